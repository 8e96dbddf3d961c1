#include "runtime/lower.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "backend/cpu/device.h"
#include "listing/listing.h"
#include "ops/ops.h"

namespace encore::runtime {
namespace {

// Resolves values to views with a shape and without memory.
class NowhereAddresses final : public Addresses {
 public:
  explicit NowhereAddresses(const passes::Program& program) : program_(program) {}
  [[nodiscard]] TensorView view(ir::ValueId id, const ir::Sizes& sizes) const override {
    const ir::Type& type = program_.graph.value(id).type;
    return {nullptr, type.dtype, type.resolve(sizes)};
  }
  [[nodiscard]] void* scratch(int64_t /*bytes*/) const override { return nullptr; }
  [[nodiscard]] uint32_t* counters(int64_t /*count*/) const override { return nullptr; }

 private:
  const passes::Program& program_;
};

// The graph has two launches over all tokens. Between them are two launches over rows that only
// steps with drafts have.
constexpr const char* kSilus = R"(graph g {
  input %x: f32[T,4]
  input %guesses: f32[G,4]
  %a: f32[T,4] = silu(%x)
  %b: f32[G,4] = silu(%guesses)
  %c: f32[G,4] = silu(%b)
  %d: f32[T,4] = silu(%a)
  output %c
  output %d
}
)";

TEST(Lower, ALaunchWaitsForThoseInFrontOfOnesThatAStepLeavesOut) {
  passes::Program program(listing::parse(kSilus, ops::standard()));
  program.after = {{}, {0}, {1}, {2}};
  const auto device = create_cpu_device({.num_threads = 1});
  const auto table = [&](const StepKey& step) {
    return lower(program, 0, 4, step, *device, NowhereAddresses(program));
  };
  const std::vector<Launch> guessing = table(StepKey::uniform(2, 3));
  ASSERT_EQ(guessing.size(), 4);
  EXPECT_EQ(std::ranges::count(guessing[3].after, guessing[2].id), 1);
  const std::vector<Launch> others = table(StepKey::mixed(6, 2));
  ASSERT_EQ(others.size(), 2);
  EXPECT_EQ(others[1].node, 3);
  EXPECT_EQ(std::ranges::count(others[1].after, others[0].id), 1);
}

}  // namespace
}  // namespace encore::runtime
