// advance: the end of a step.
#include "backend/advance.h"

#include <array>
#include <cstring>

#include "harness.h"

namespace encore::conformance {
namespace {

constexpr int64_t kPageSize = 16;
constexpr int64_t kMaxPages = 4;
constexpr int64_t kMaxSequences = 40;  // M
constexpr int64_t kRingSteps = 8;

using namespace advance_op;  // NOLINT(google-build-using-namespace): names of the operands

// All are i32.
std::vector<HostTensor> operands(Random& random, const StepShape& step) {
  using ir::Dim;
  const auto tensor = [&](std::initializer_list<Dim> dims, int64_t first, int64_t last) {
    HostTensor made = random.tensor(type_of(DType::kI32, dims), step.padded);
    for (double& value : made.values)
      value = static_cast<double>(random.integer(first, last));
    return made;
  };
  const Dim rows = Dim::sequences();
  const Dim tokens = Dim::tokens();
  return {tensor({rows}, 0, 30),
          tensor({rows, kMaxPages}, 0, 500),
          tensor({rows, 3}, -1, 30),
          tensor({rows}, 1, kMaxPages * kPageSize + 9),
          tensor({tokens}, 0, 30),
          tensor({tokens}, 0, 60),
          tensor({tokens}, 0, 60),
          tensor({rows}, 0, kMaxPages * kPageSize),
          tensor({kMaxSequences}, 0, 30),
          tensor({2}, 0, 100),
          tensor({kRingSteps, kMaxSequences}, 0, 30),
          tensor({32}, 90, 110)};
}

// What ops.h says, one value at a time.
std::vector<HostTensor> advanced(std::vector<HostTensor> t, bool moves_rows) {
  const auto num_rows = static_cast<int64_t>(t[kNext].values.size());
  const auto steps = static_cast<int64_t>(t[kClock].values[0]);
  bool any_left = false;
  for (int64_t b = 0; b < num_rows; ++b) {
    const double token = t[kNext].values[b];
    t[kLastTokens].values[b] = token;
    t[kRing].values[steps % kRingSteps * kMaxSequences + b] = token;
    const auto length = static_cast<int64_t>(t[kKvLens].values[b]);
    if (!moves_rows || length == 0) continue;
    bool ends = length + 1 >= t[kMaxLens].values[b] || length == kMaxPages * kPageSize;
    for (int64_t i = 0; i < 3; ++i)
      ends |= t[kStopTokens].values[b * 3 + i] == token;
    const double page = ends ? 0 : t[kPageTable].values[b * kMaxPages + length / kPageSize];
    const auto place = static_cast<double>(length % kPageSize);
    t[kIds].values[b] = ends ? -1 : token;
    t[kPositions].values[b] = ends ? 0 : static_cast<double>(length);
    t[kSlots].values[b] = ends ? -1 : page * kPageSize + place;
    t[kKvLens].values[b] = ends ? 0 : static_cast<double>(length + 1);
    any_left |= !ends;
  }
  t[kClock].values[0] = static_cast<double>(steps + 1);
  t[kClock].values[1] =
      any_left && t[kMarks].values[kRunUntil] > static_cast<double>(steps + 1) ? 1 : 0;
  t[kMarks].values[kPublished] = static_cast<double>(steps + 1);
  return {t.begin() + kIds, t.end()};
}

void expect_advances(Device& device, const StepShape& step, bool moves_rows,
                     const std::vector<HostTensor>& inputs) {
  ir::Attrs attrs;
  attrs.set("page_size", kPageSize);
  const auto actual =
      run(device, {.op = "advance", .inputs = inputs, .attrs = attrs, .step = step});
  const auto expected = advanced(inputs, moves_rows);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_EQ(actual[i].tensor.values, expected[i].values) << "output " << i;
}

TEST_P(OnDevice, AdvancePublishesTokensAndMovesTheRowsOfAUniformStepOn) {
  for (const int64_t rows : {1, 2, 31, 33, 40}) {
    for (int round = 0; round < 4; ++round) {
      const StepShape step{.padded = {rows, rows}, .q = 1, .max_query_len = 1};
      expect_advances(device(), step, true, operands(random_, step));
    }
  }
}

TEST_P(OnDevice, AdvanceOnlyPublishesTheTokensOfAMixedStep) {
  const StepShape step{.padded = {57, 6}, .q = 0, .max_query_len = 20};
  expect_advances(device(), step, false, operands(random_, step));
}

}  // namespace
}  // namespace encore::conformance
