#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/litmus/field.h"
#include "backend/litmus.h"

namespace encore::cuda::litmus {
namespace {

using Place = encore::litmus::Scope;

TEST(LitmusRows, AreOneForEachFormOfTheirScope) {
  const std::pair<Place, std::span<const Row>> tables[] = {{Place::kBlock, block_rows()},
                                                           {Place::kCluster, cluster_rows()},
                                                           {Place::kDevice, device_rows()},
                                                           {Place::kSystem, system_rows()}};
  size_t num_rows = 0;
  for (const auto& [scope, rows] : tables) {
    for (const Row& row : rows) {
      EXPECT_NE(encore::litmus::find_form(scope, row.name), nullptr) << row.name;
      EXPECT_NE(row.kernel, nullptr) << row.name;
    }
    num_rows += rows.size();
  }
  EXPECT_EQ(num_rows, encore::litmus::forms().size());
}

TEST(LitmusField, GivesEveryGroupLinesOfItsOwn) {
  Field field{};
  field.num_lines = 1U << 12;
  field.players = 96;
  field.slots = 7;
  field.seed = 12345;
  std::vector<uint32_t> cells(size_t{field.num_lines} * kCellsPerLine);
  field.cells = cells.data();
  for (uint32_t slot = 0; slot < field.slots; ++slot) {
    for (uint32_t group = 0; group < field.players; ++group) {
      for (uint32_t k = 0; k < kLinesPerGroup; ++k) {
        uint32_t* first = line(field, group, k, slot);
        ASSERT_GE(first, cells.data());
        ASSERT_LE(first + kCellsPerLine, cells.data() + cells.size());
        ASSERT_EQ(*first, 0U) << "line of two groups";
        *first = 1;
      }
    }
  }
}

}  // namespace
}  // namespace encore::cuda::litmus
