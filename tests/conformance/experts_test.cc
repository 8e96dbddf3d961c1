// Tests route, count_experts, fused_route and expert_mlp.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/rounding.h"
#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

struct RouteCase : reference::Routing {
  RouteCase(int64_t num_experts, const reference::Routing& routing, bool has_bias = false)
      : reference::Routing(routing), num_experts(num_experts), has_bias(has_bias) {}

  int64_t num_experts;
  bool has_bias;

  [[nodiscard]] ir::Attrs attrs() const {
    ir::Attrs attrs{
        {"top_k", top_k}, {"renormalize", static_cast<int64_t>(renormalize)}, {"least", least}};
    if (sigmoid) attrs.set("score", std::string("sigmoid"));
    if (groups > 1) attrs.set("groups", groups);
    if (groups > 1) attrs.set("groups_kept", groups_kept);
    if (factor != 1) attrs.set("factor", factor);
    return attrs;
  }
  [[nodiscard]] ir::Type logits() const {
    return type_of(DType::kF32, {Dim::tokens(), num_experts});
  }
};

HostTensor rows_of_words(const StepKey& step, std::vector<double> words) {
  return tensor_of(type_of(DType::kI32, {Dim::tokens()}), step.sizes(), std::move(words));
}

void expect_routed(const std::vector<Output>& actual, const reference::Routed& expected) {
  EXPECT_EQ(actual[0].tensor.values, expected.experts.values);
  expect_close(actual[1].tensor, expected.weights, {.ulps = 8});
}

const RouteCase kRouteCases[] = {
    {128, {.top_k = 8}},
    {128, {.top_k = 8, .renormalize = false}},
    {8, {.top_k = 2}},
    {7, {.top_k = 7, .renormalize = false}},
    {1, {.top_k = 1}},
    {513, {.top_k = 40, .renormalize = false, .factor = 1.5}},
    {128, {.top_k = 8, .sigmoid = true, .factor = 2.5}, true},
    {64, {.top_k = 4, .renormalize = false, .sigmoid = true}},
    {60, {.top_k = 4, .renormalize = false}, true},
    {256, {.top_k = 8, .sigmoid = true, .groups = 8, .groups_kept = 4, .factor = 2.5}, true},
    {12, {.top_k = 5, .sigmoid = true, .groups = 3, .groups_kept = 2}, true},
    {64, {.top_k = 2, .groups = 32, .groups_kept = 1}},
};

TEST_P(Conformance, RouteAgrees) {
  for (const RouteCase& routing : kRouteCases) {
    for (const int64_t rows : {0, 1, 3, 40}) {
      SCOPED_TRACE(at(rows, routing.num_experts));
      const StepKey step = tokens(rows);
      const HostTensor logits = random_.tensor(routing.logits(), step.sizes(), 2);
      const HostTensor bias = random_.tensor(type_of(DType::kF32, {routing.num_experts}), {}, 0.3);
      std::vector<double> slots(static_cast<size_t>(rows), 0);
      for (int64_t r = 0; r < rows; r += 3)
        slots[static_cast<size_t>(r)] = static_cast<double>(random_.integer(-1, 5));
      const HostTensor live = rows_of_words(step, slots);
      OpCase c{.op = "route", .inputs = {logits, live}, .attrs = routing.attrs(), .step = step};
      if (routing.has_bias) c.inputs.add("bias", bias, true);
      expect_routed(run(device(), c),
                    reference::route(logits, live, routing.has_bias ? &bias : nullptr, routing));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, RouteTakesTheLowerOfEqualExperts) {
  const RouteCase routing{40, {.top_k = 4}};
  const StepKey step = tokens(2);
  HostTensor logits = random_.tensor(routing.logits(), step.sizes(), 0);
  logits.row(1)[39] = logits.row(1)[33] = logits.row(1)[2] = 1;
  const std::vector<Output> routed = run(device(), {.op = "route",
                                                    .inputs = {logits, rows_of_words(step, {0, 0})},
                                                    .attrs = routing.attrs(),
                                                    .step = step});
  EXPECT_EQ(routed[0].tensor.values, (std::vector<double>{0, 1, 2, 3, 2, 33, 39, 0}));
  EXPECT_EQ(routed[1].tensor.values[0], 0.25);
}

// If `live` holds kv_lens, a row is live if its sequence's length is 1 or more.
TEST_P(Conformance, RouteLeavesPaddingWithoutExperts) {
  const RouteCase routing{16, {.top_k = 2, .least = 1}};
  const StepKey step = tokens(3);
  HostTensor logits = random_.tensor(routing.logits(), step.sizes());
  std::fill_n(logits.row(0), 16, kNaN);
  const std::vector<Output> routed =
      run(device(), {.op = "route",
                     .inputs = {logits, rows_of_words(step, {0, 1, 0})},
                     .attrs = routing.attrs(),
                     .step = step});
  for (const int64_t row : {0, 2}) {
    for (const int64_t k : {0, 1}) {
      EXPECT_EQ(routed[0].tensor.row(row)[k], -1);
      EXPECT_EQ(routed[1].tensor.row(row)[k], 0);
    }
  }
  EXPECT_GE(routed[0].tensor.row(1)[0], 0);
}

// Even if logits are NaN or infinite, a row's experts are distinct and exist, and its weights are
// numbers.
TEST_P(Conformance, RouteIsProofAgainstNumbersThatAreNone) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const StepKey step = tokens(6);
  for (const RouteCase& routing :
       {RouteCase{48, {.top_k = 3}}, RouteCase{48, {.top_k = 3, .sigmoid = true}},
        RouteCase{48, {.top_k = 3, .sigmoid = true, .groups = 4, .groups_kept = 2}, true}}) {
    HostTensor logits = random_.tensor(routing.logits(), step.sizes());
    const HostTensor bias = random_.tensor(type_of(DType::kF32, {48}), {}, 0.3);
    std::fill_n(logits.row(0), 48, kNaN);
    std::fill_n(logits.row(1), 48, -kInfinity);
    std::fill_n(logits.row(2), 48, kInfinity);
    std::fill_n(logits.row(3), 48, kNaN);
    logits.row(3)[47] = 5;
    logits.row(4)[7] = kNaN;
    logits.row(5)[40] = kInfinity;
    const HostTensor live = rows_of_words(step, {0, 0, 0, 0, 0, 0});
    OpCase c{.op = "route", .inputs = {logits, live}, .attrs = routing.attrs(), .step = step};
    if (routing.has_bias) c.inputs.add("bias", bias, true);
    const std::vector<Output> routed = run(device(), c);
    expect_routed(routed,
                  reference::route(logits, live, routing.has_bias ? &bias : nullptr, routing));
    EXPECT_EQ(routed[0].tensor.row(3)[0], 47);
  }
}

// Benchmarks draw experts at random: those of a row are distinct, those of two steps differ, and
// padding gets none.
TEST_P(Conformance, RouteDrawsExpertsAtRandom) {
  const RouteCase routing{24, {.top_k = 6}};
  const StepKey step = tokens(40);
  const HostTensor logits = random_.tensor(routing.logits(), step.sizes());
  std::vector<double> slots(40, 0);
  slots[7] = -1;
  ir::Attrs attrs = routing.attrs();
  attrs.set("drawn", int64_t{3});
  std::vector<std::vector<double>> drawn;
  for (const double clock : {5, 6}) {
    const HostTensor step_clock = tensor_of(type_of(DType::kI32, {2}), {}, {clock, 0});
    OpCase c{.op = "route",
             .inputs = {logits, rows_of_words(step, slots)},
             .attrs = attrs,
             .step = step};
    c.inputs.add("step_clock", step_clock, true);
    const std::vector<Output> routed = run(device(), c);
    std::vector<int> counts(24);
    for (int64_t r = 0; r < 40; ++r) {
      std::vector<double> row(routed[0].tensor.row(r), routed[0].tensor.row(r) + 6);
      EXPECT_NEAR(routed[1].tensor.row(r)[5], r == 7 ? 0 : 1.0 / 6, 1e-7);
      if (r == 7) {
        EXPECT_EQ(row, std::vector<double>(6, -1));
        continue;
      }
      for (const double id : row)
        ++counts.at(static_cast<size_t>(id));
      EXPECT_EQ(std::set<double>(row.begin(), row.end()).size(), 6U) << r;
    }
    // 39 rows draw 6 of 24 experts each, so the expected count is 39 * 6 / 24 = 9.75.
    EXPECT_GT(*std::ranges::min_element(counts), 1);
    drawn.push_back(routed[0].tensor.values);
  }
  EXPECT_NE(drawn[0], drawn[1]);
}

// Each of the first four of 24 experts has a share of 0.24 of the draws. Two experts of each of 60
// rows are drawn, so each of the four is drawn about 0.24 * 120 = 29 times.
TEST_P(Conformance, RouteDrawsExpertsByTheirShares) {
  const RouteCase routing{24, {.top_k = 2}};
  const StepKey step = tokens(60);
  std::vector<double> shares(24);
  for (int e = 0; e < 24; ++e)
    shares[static_cast<size_t>(e)] = round_to(DType::kF32, e < 4     ? 0.24 * (e + 1)
                                                           : e == 23 ? 1
                                                                     : 0.96 + 0.002 * (e - 3));
  ir::Attrs attrs = routing.attrs();
  attrs.set("drawn", int64_t{1});
  OpCase c{.op = "route",
           .inputs = {random_.tensor(routing.logits(), step.sizes()),
                      rows_of_words(step, std::vector<double>(60, 0))},
           .attrs = attrs,
           .step = step};
  c.inputs.add("step_clock", tensor_of(type_of(DType::kI32, {2}), {}, {9, 0}), true);
  c.inputs.add("shares", tensor_of(type_of(DType::kF32, {1, 24}), {}, shares), true);
  const std::vector<Output> routed = run(device(), c);
  std::vector<int> counts(24);
  for (int64_t r = 0; r < 60; ++r) {
    const double* const ids = routed[0].tensor.row(r);
    EXPECT_NE(ids[0], ids[1]);
    for (const int64_t k : {0, 1})
      ++counts.at(static_cast<size_t>(ids[k]));
  }
  for (int e = 0; e < 4; ++e)
    EXPECT_NEAR(counts[static_cast<size_t>(e)], 29, 15) << e;
}

// Expects the right counts after `rows` rows have chosen experts of one layer, where all counts
// were `before`.
void expect_counted(Device& device, Random& random, int64_t rows, double before) {
  constexpr int64_t kExperts = 5;
  constexpr double kMost = 2147483647;
  const StepKey step = tokens(rows);
  std::vector<double> ids;
  std::vector<double> counts(3 * kExperts * 2, before);
  std::vector<double> steps(3, before);
  std::vector<double> expected = counts;
  std::vector<double> expected_steps = steps;
  std::vector<int> rows_of(kExperts);
  for (int64_t i = 0; i < 2 * rows; ++i) {
    const int64_t id = random.integer(-1, kExperts + 1);
    ids.push_back(static_cast<double>(id));
    if (id >= 0 && id < kExperts) ++rows_of.at(static_cast<size_t>(id));
  }
  for (size_t e = 0; e < kExperts; ++e) {
    double* const of_expert = &expected[(kExperts + e) * 2];
    of_expert[0] = std::min(kMost, before + rows_of[e]);
    of_expert[1] = std::min(kMost, before + (rows_of[e] > 0 ? 1 : 0));
    if (rows_of[e] > 0) expected_steps[1] = std::min(kMost, before + 1);
  }
  const OpCase c{.op = "count_experts",
                 .inputs = {tensor_of(type_of(DType::kI32, {Dim::tokens(), 2}), step.sizes(), ids),
                            tensor_of(type_of(DType::kI32, {3, kExperts, 2}), {}, counts),
                            tensor_of(type_of(DType::kI32, {3}), {}, steps)},
                 .attrs = {{"layer", int64_t{1}}},
                 .step = step};
  const std::vector<Output> counted = run(device, c);
  EXPECT_EQ(counted[0].tensor.values, expected) << rows;
  EXPECT_EQ(counted[1].tensor.values, expected_steps) << rows;
}

TEST_P(Conformance, CountsTheRowsAndStepsOfEachExpert) {
  for (const int64_t rows : {0, 3, 300})
    expect_counted(device(), random_, rows, 7);
}

TEST_P(Conformance, CountsOfExpertsStopAtTheLargestNumber) {
  expect_counted(device(), random_, 300, 2147483646);
  expect_counted(device(), random_, 300, 2147483647);
}

// Expects the results of a norm, the router's product and its choice of experts. A result of the
// norm that lies between two numbers may be rounded either way, so the choice is compared with the
// reference's choice from the norm that the device computed.
void expect_fused_route(const std::vector<Output>& actual, const HostTensor* sum,
                        const HostTensor& normed, const OpCase& c, const RouteCase& routing) {
  const size_t first = sum == nullptr ? 0 : 1;
  if (sum != nullptr) expect_close(actual[0].tensor, *sum);
  expect_close(actual[first].tensor, normed);
  HostTensor logits = reference::linear(actual[first].tensor, c.inputs["weight"], nullptr);
  const HostTensor* bias = c.inputs.find("bias");
  const reference::Routed expected = reference::route(logits, c.inputs["live"], bias, routing);
  EXPECT_EQ(actual[first + 1].tensor.values, expected.experts.values);
  expect_close(actual[first + 2].tensor, expected.weights, {.ulps = 64});
}

TEST_P(Conformance, FusedRouteAgrees) {
  struct FusedRoute {
    RouteCase routing;
    int64_t columns;
    bool has_residual;
  };
  const FusedRoute all[] = {
      {{128, {.top_k = 8}}, 256, true},
      {{8, {.top_k = 2, .renormalize = false}}, 64, false},
      {{60, {.top_k = 4, .sigmoid = true, .factor = 2.5}, true}, 2048, true},
      {{12, {.top_k = 5, .sigmoid = true, .groups = 3, .groups_kept = 2}, true}, 136, false},
      {{16, {.top_k = 3}}, 33, true},
      {{70, {.top_k = 6}}, 8192, true},
  };
  for (const FusedRoute& of : cases(all, 2)) {
    for (const int64_t rows : {0, 1, 3, 32, 33}) {
      if (of.columns > 2048 && rows > 3) continue;
      SCOPED_TRACE(at(rows, of.columns) + ", experts " + std::to_string(of.routing.num_experts));
      const StepKey step = tokens(rows);
      const HostTensor x = random_.tensor(tokens_by(of.columns), step.sizes());
      const HostTensor residual = random_.tensor(tokens_by(of.columns), step.sizes());
      const HostTensor norm = random_.tensor(type_of(dtype(), {of.columns}), {});
      const double spread = 1 / std::sqrt(static_cast<double>(of.columns));
      const HostTensor weight =
          random_.tensor(type_of(dtype(), {of.routing.num_experts, of.columns}), {}, spread);
      const HostTensor bias =
          random_.tensor(type_of(DType::kF32, {of.routing.num_experts}), {}, 0.3);
      std::vector<double> live(static_cast<size_t>(rows), 0);
      for (int64_t r = 0; r < rows; r += 3)
        live[static_cast<size_t>(r)] = static_cast<double>(random_.integer(-1, 5));
      ir::Attrs attrs = of.routing.attrs();
      attrs.set("eps", 1e-6);
      attrs.set("out", std::string("f32"));
      OpCase c{.op = "fused_route",
               .inputs = {{"x", x},
                          {"norm", norm},
                          {"weight", weight},
                          {"live", rows_of_words(step, live)}},
               .attrs = attrs,
               .step = step};
      if (of.has_residual) c.inputs.add("residual", residual, true);
      if (of.routing.has_bias) c.inputs.add("bias", bias, true);
      HostTensor sum = of.has_residual ? reference::add(x, residual) : x;
      for (double& value : sum.values)
        value = round_to(dtype(), value);
      const HostTensor normed = reference::rms_norm(sum, norm, 1e-6);
      const HostTensor* const added = of.has_residual ? &sum : nullptr;
      expect_fused_route(run(device(), c), added, normed, c, of.routing);
      c.output_gap = 8;
      expect_fused_route(run(device(), c), added, normed, c, of.routing);
      c.output_gap = 0;
      c.in_place = {{"y", "x"}};
      expect_fused_route(run(device(), c), added, normed, c, of.routing);
      if (of.has_residual) {
        c.in_place = {{"y", "residual"}, {"sum", "x"}};
        expect_fused_route(run(device(), c), added, normed, c, of.routing);
      }
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, RowsOfFusedRouteAreIndependent) {
  const StepKey step = tokens(5);
  ir::Attrs attrs = RouteCase{32, {.top_k = 4}}.attrs();
  attrs.set("eps", 1e-6);
  attrs.set("out", std::string("f32"));
  const OpCase c{.op = "fused_route",
                 .inputs = {{"x", random_.tensor(tokens_by(128), step.sizes())},
                            {"norm", random_.tensor(type_of(dtype(), {128}), {})},
                            {"weight", random_.tensor(type_of(dtype(), {32, 128}), {}, 0.1)},
                            {"live", rows_of_words(step, {0, 1, 2, 3, 4})}},
                 .attrs = attrs,
                 .step = step};
  expect_row_independent(c, 3);
}

struct ExpertSizes {
  int64_t num_experts;
  int64_t top_k;
  int64_t width;
  int64_t inner;
};

// Holds one launch of expert_mlp, and the experts that it routes rows to.
struct ExpertCase {
  OpCase op;
  reference::Routed routed;

  [[nodiscard]] const HostTensor& input(std::string_view name) const { return op.inputs[name]; }
  // Returns the numbers that a weight stands for.
  [[nodiscard]] HostTensor numbers(const std::string& name, int64_t num_matrices) const {
    const HostTensor* scale = op.inputs.find(name + "_scale");
    return scale == nullptr ? input(name)
                            : reference::scaled_experts(input(name), *scale, num_matrices);
  }
  [[nodiscard]] HostTensor expected() const {
    return reference::expert_mlp(input("x"), routed, numbers("gate_up", 2), numbers("down", 1));
  }
};

// Makes a case whose rows choose distinct experts at random. Every fourth row is padding.
ExpertCase expert_case(Random& random, DType dtype, const ExpertSizes& s, const StepKey& step) {
  const int64_t rows = step.tokens;
  std::vector<double> ids;
  std::vector<double> weights;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> all(static_cast<size_t>(s.num_experts));
    for (int64_t e = 0; e < s.num_experts; ++e)
      all[static_cast<size_t>(e)] = static_cast<double>(e);
    std::shuffle(all.begin(), all.end(), random.engine());
    for (int64_t k = 0; k < s.top_k; ++k) {
      ids.push_back(r % 4 == 3 ? -1 : all[static_cast<size_t>(k)]);
      weights.push_back(round_to(DType::kF32, std::fabs(random.normal())));
    }
  }
  const std::initializer_list<Dim> by_expert{Dim::tokens(), s.top_k};
  reference::Routed routed{
      tensor_of(type_of(DType::kI32, by_expert), step.sizes(), std::move(ids)),
      tensor_of(type_of(DType::kF32, by_expert), step.sizes(), std::move(weights))};
  const double spread = 1 / std::sqrt(static_cast<double>(s.width));
  HostTensors inputs{
      {"x", random.tensor(type_of(dtype, {Dim::tokens(), s.width}), step.sizes())},
      {"experts", routed.experts},
      {"weights", routed.weights},
      {"gate_up", random.tensor(type_of(dtype, {s.num_experts, 2 * s.inner, s.width}), {}, spread)},
      {"down", random.tensor(type_of(dtype, {s.num_experts, s.width, s.inner}), {}, spread)}};
  return {{.op = "expert_mlp", .inputs = std::move(inputs), .step = step}, std::move(routed)};
}

enum class ExpertScales : uint8_t { kByRow, kByBlock };

// Replaces a weight of the case by fp8 codes. The codes have a standard deviation of 20, and their
// scales differ around 1/20 of 1 / sqrt(x's columns), so the weight's numbers have a standard
// deviation of about 1 / sqrt(x's columns).
void store_in_fp8(ExpertCase& c, Random& random, const std::string& name, ExpertScales scales) {
  const int64_t num_matrices = name == "gate_up" ? 2 : 1;
  const Shape shape = c.input(name).shape;
  const auto blocks = [](int64_t n) { return div_up(n, int64_t{128}); };
  const ir::Type by_row = type_of(DType::kF32, {shape[0], shape[1]});
  const ir::Type by_block = type_of(
      DType::kF32, {shape[0], num_matrices * blocks(shape[1] / num_matrices), blocks(shape[2])});
  HostTensor scale = random.tensor(scales == ExpertScales::kByRow ? by_row : by_block, {});
  const double spread = 1 / std::sqrt(static_cast<double>(c.input("x").shape[1]));
  for (double& value : scale.values)
    value = round_to(DType::kF32, spread / 20 * std::exp2(value / 2));
  c.op.inputs[name] = random.tensor(type_of(DType::kFP8, {shape[0], shape[1], shape[2]}), {}, 20);
  // Operands keep no copy of their names, so the name must be a literal.
  c.op.inputs.add(name == "gate_up" ? "gate_up_scale" : "down_scale", scale, true);
}

// Returns a tolerance for sums in which some products of silu(gate) and up are rounded in the other
// direction than the reference rounds them.
Tolerance expert_tolerance(DType dtype, const ExpertSizes& s) {
  const double size =
      std::sqrt(static_cast<double>(s.top_k * s.inner) / static_cast<double>(s.width));
  return {.ulps = dtype == DType::kF32 ? 8.0 : 1.0, .floor_rms = size};
}

const ExpertSizes kExpertSizes[] = {{8, 2, 64, 96},  {128, 8, 64, 16}, {4, 4, 72, 40},
                                    {5, 3, 33, 17},  {3, 1, 320, 72},  {1, 1, 16, 8},
                                    {32, 6, 128, 64}};

TEST_P(Conformance, ExpertMlpAgrees) {
  for (const ExpertSizes& sizes : cases(kExpertSizes, 3)) {
    for (const int64_t rows : {0, 1, 2, 5, 16, 17, 70}) {
      SCOPED_TRACE(at(rows, sizes.width) + ", experts " + std::to_string(sizes.num_experts));
      const ExpertCase c = expert_case(random_, dtype(), sizes, tokens(rows));
      expect_agrees(c.op, {c.expected()}, expert_tolerance(dtype(), sizes));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, ExpertMlpOfManyRowsAgrees) {
  const ExpertSizes sizes{6, 2, 64, 48};
  for (const int64_t rows : {300, 127, 1100}) {
    SCOPED_TRACE(at(rows, sizes.width));
    const ExpertCase c = expert_case(random_, dtype(), sizes, tokens(rows));
    expect_agrees(c.op, {c.expected()}, expert_tolerance(dtype(), sizes));
    if (!is_thorough()) break;
  }
}

// One expert has all rows, and the other experts have a few rows, one row, or none. The widths give
// several tiles of outputs, tiles that are only partly filled, and sums whose last step over the
// inputs is only partly filled.
TEST_P(Conformance, ExpertMlpOfExpertsOfAllSizesAgrees) {
  const ExpertSizes all[] = {{5, 2, 200, 136}, {4, 2, 328, 264}};
  for (const ExpertSizes& sizes : cases(all, 2)) {
    for (const int64_t rows : {500, 90}) {
      SCOPED_TRACE(at(rows, sizes.width));
      ExpertCase c = expert_case(random_, dtype(), sizes, tokens(rows));
      for (int64_t r = 0; r < rows; ++r) {
        double* const ids = c.routed.experts.row(r);
        ids[0] = 1;
        ids[1] = r == 5 ? 3 : r % 7 == 0 ? 0 : -1;
      }
      c.op.inputs["experts"] = c.routed.experts;
      expect_agrees(c.op, {c.expected()}, expert_tolerance(dtype(), sizes));
      if (HasFailure()) return;
    }
  }
}

// A GPU computes at most 8192 rows at a time, so these rows take two parts.
TEST_P(Conformance, ExpertMlpOfSeveralPartsOfTheRowsAgrees) {
  const ExpertSizes sizes{3, 1, 16, 8};
  const ExpertCase c = expert_case(random_, dtype(), sizes, tokens(8600));
  const std::vector<Output> y = run(device(), c.op);
  expect_close(y[0].tensor, c.expected(), expert_tolerance(dtype(), sizes));
}

// The widths give several blocks of 128 x 128 codes that share a scale, blocks that are only partly
// filled, and rows whose length is no multiple of 16 codes. In some cases one of the two weights is
// in floats.
TEST_P(Conformance, ExpertMlpOfFp8WeightsAgrees) {
  struct Fp8Experts {
    ExpertSizes sizes;
    ExpertScales scales;
    bool gate_up = true;
    bool down = true;
  };
  const Fp8Experts all[] = {
      {{8, 2, 64, 96}, ExpertScales::kByRow},
      {{6, 2, 320, 144}, ExpertScales::kByBlock},
      {{16, 4, 128, 272}, ExpertScales::kByBlock},
      {{5, 3, 33, 17}, ExpertScales::kByRow},
      {{3, 1, 200, 136}, ExpertScales::kByBlock},
      {{4, 2, 256, 128}, ExpertScales::kByRow, true, false},
      {{4, 2, 256, 128}, ExpertScales::kByBlock, false, true},
  };
  for (const Fp8Experts& of : cases(all, 2)) {
    for (const int64_t rows : {0, 1, 2, 5, 9, 17, 70}) {
      SCOPED_TRACE(at(rows, of.sizes.width) + ", experts " + std::to_string(of.sizes.num_experts));
      ExpertCase c = expert_case(random_, dtype(), of.sizes, tokens(rows));
      if (of.gate_up) store_in_fp8(c, random_, "gate_up", of.scales);
      if (of.down) store_in_fp8(c, random_, "down", of.scales);
      expect_agrees(c.op, {c.expected()}, expert_tolerance(dtype(), of.sizes));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, ExpertMlpOfFp8WeightsWithManyRowsAgrees) {
  const ExpertSizes sizes{3, 2, 272, 144};
  for (const int64_t rows : {60, 200}) {
    for (const ExpertScales scales : {ExpertScales::kByRow, ExpertScales::kByBlock}) {
      SCOPED_TRACE(at(rows, scales == ExpertScales::kByBlock ? 1 : 0));
      ExpertCase c = expert_case(random_, dtype(), sizes, tokens(rows));
      store_in_fp8(c, random_, "gate_up", scales);
      if (rows > 100) store_in_fp8(c, random_, "down", scales);
      expect_agrees(c.op, {c.expected()}, expert_tolerance(dtype(), sizes));
      if (HasFailure()) return;
    }
  }
}

// All rows go to one expert, or all rows except one are padding.
TEST_P(Conformance, ExpertMlpOfUnevenChoicesAgrees) {
  const ExpertSizes sizes{16, 1, 64, 32};
  for (const int64_t rows : {4, 64, 200}) {
    for (const bool padding : {false, true}) {
      SCOPED_TRACE(at(rows, padding ? 1 : 0));
      ExpertCase c = expert_case(random_, dtype(), sizes, tokens(rows));
      for (int64_t r = 0; r < rows; ++r)
        c.routed.experts.row(r)[0] = padding && r != rows / 2 ? -1 : 11;
      c.op.inputs["experts"] = c.routed.experts;
      // The weights of experts that no row chose are NaN.
      for (const char* const name : {"gate_up", "down"}) {
        for (int64_t expert = 0; expert < sizes.num_experts; ++expert) {
          HostTensor& weight = c.op.inputs[name];
          if (expert != 11) std::fill_n(weight.row(expert), weight.row_elements(), kNaN);
        }
      }
      expect_agrees(c.op, {c.expected()}, expert_tolerance(dtype(), sizes));
      if (HasFailure()) return;
    }
  }
}

// The weights of an expert that no row chose, and the values of padding rows, may be NaN. Ids that
// name no expert add nothing.
TEST_P(Conformance, ExpertMlpReadsNoExpertThatNobodyChose) {
  const ExpertSizes sizes{8, 2, 64, 32};
  for (const int64_t rows : {2, 40, 130}) {
    SCOPED_TRACE(at(rows, sizes.width));
    ExpertCase c = expert_case(random_, dtype(), sizes, tokens(rows));
    HostTensor x = c.input("x");
    HostTensor gate_up = c.input("gate_up");
    HostTensor down = c.input("down");
    for (int64_t r = 0; r < rows; ++r) {
      double* const ids = c.routed.experts.row(r);
      if (ids[0] < 0) std::fill_n(x.row(r), sizes.width, kNaN);
      for (const int64_t k : {0, 1}) {
        if (ids[k] == 3) ids[k] = 8 + static_cast<double>(r);
        if (ids[k] == 5) ids[k] = -1000;
      }
    }
    for (const int64_t expert : {3, 5}) {
      std::fill_n(gate_up.row(expert), gate_up.row_elements(), kNaN);
      std::fill_n(down.row(expert), down.row_elements(), kNaN);
    }
    c.op.inputs["x"] = x;
    c.op.inputs["gate_up"] = gate_up;
    c.op.inputs["down"] = down;
    c.op.inputs["experts"] = c.routed.experts;
    expect_agrees(c.op, {c.expected()}, expert_tolerance(dtype(), sizes));
    if (HasFailure()) return;
  }
}

// In these steps no row has an expert, so the result is zero.
TEST_P(Conformance, ExpertMlpOfPaddingAloneIsZero) {
  const ExpertSizes sizes{8, 2, 328, 64};
  for (const int64_t rows : {1, 9, 40, 130}) {
    SCOPED_TRACE(at(rows, sizes.width));
    ExpertCase c = expert_case(random_, dtype(), sizes, tokens(rows));
    std::ranges::fill(c.routed.experts.values, -1);
    std::ranges::fill(c.op.inputs["x"].values, kNaN);
    c.op.inputs["experts"] = c.routed.experts;
    EXPECT_EQ(run(device(), c.op)[0].tensor.values,
              std::vector<double>(static_cast<size_t>(rows * sizes.width), 0));
  }
}

// A row keeps its bits in all steps of one size, whatever rows are beside it: only padding, rows
// that choose other experts or the same ones, copies of the row, and any number of padding rows.
TEST_P(Conformance, AnyCompositionLeavesARowOfExpertMlpItsBits) {
  struct Step {
    int64_t rows;
    ExpertSizes sizes;
    int compositions;
  };
  const ExpertSizes few{8, 2, 32, 24};
  const ExpertSizes many{16, 8, 32, 24};
  for (const auto& [rows, sizes, compositions] :
       {Step{8, many, 100}, {24, few, 100}, {64, many, 500}, {120, few, 100}}) {
    const auto num_compositions = is_thorough() ? compositions : static_cast<int>(960 / rows);
    const ExpertCase first = expert_case(random_, dtype(), sizes, tokens(rows));
    std::vector<std::byte> alone;
    for (int i = 0; i < num_compositions; ++i) {
      ExpertCase c = expert_case(random_, dtype(), sizes, tokens(rows));
      for (const char* const name : {"gate_up", "down"})
        c.op.inputs[name] = first.input(name);
      const int64_t row = random_.integer(0, rows - 1);
      const int64_t num_alike = i == 0 ? 0 : random_.integer(0, 3);
      HostTensor& x = c.op.inputs["x"];
      if (i == 0) std::ranges::fill(c.routed.experts.values, -1);
      for (int64_t r = 0; r < rows; ++r) {
        const bool is_alike = r == row || random_.integer(0, rows) < num_alike;
        if (is_alike) std::copy_n(first.input("x").row(0), sizes.width, x.row(r));
        for (int64_t k = 0; k < sizes.top_k && is_alike; ++k) {
          c.routed.experts.row(r)[k] = first.routed.experts.row(0)[k];
          c.routed.weights.row(r)[k] = first.routed.weights.row(0)[k];
        }
        if (c.routed.experts.row(r)[0] < 0) std::fill_n(x.row(r), sizes.width, kNaN);
      }
      c.op.inputs["experts"] = c.routed.experts;
      c.op.inputs["weights"] = c.routed.weights;
      const std::vector<std::byte> found = run(device(), c.op)[0].row_bits(row);
      if (i == 0) alone = found;
      ASSERT_TRUE(found == alone) << "composition " << i << ", row " << row << " of " << rows;
    }
  }
}

// A row that is alone in a step has the same bits as among rows that choose other experts, the same
// experts, or none.
TEST_P(Conformance, RowsOfExpertMlpAreIndependent) {
  const ExpertSizes sizes{16, 4, 64, 96};
  for (const int64_t rows : {4, 16, 64, 150}) {
    SCOPED_TRACE(at(rows, sizes.width));
    const ExpertCase c = expert_case(random_, dtype(), sizes, tokens(rows));
    const std::vector<Output> together = run(device(), c.op);
    for (const int64_t row : {int64_t{0}, rows / 2, rows - 2}) {
      ExpertCase alone = c;
      for (int64_t r = 0; r < rows; ++r) {
        if (r != row) std::fill_n(alone.routed.experts.row(r), sizes.top_k, -1.0);
      }
      alone.op.inputs["experts"] = alone.routed.experts;
      const std::vector<Output> by_itself = run(device(), alone.op);
      EXPECT_TRUE(together[0].row_bits(row) == by_itself[0].row_bits(row)) << "row " << row;
      expect_row_independent(c.op, row);
    }
  }
}

}  // namespace
}  // namespace encore::conformance
