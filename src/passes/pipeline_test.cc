#include "passes/pipeline.h"

#include <algorithm>

#include "passes/text_in_text_out.h"

namespace encore::passes {
namespace {

constexpr const char* kText = R"(
  input %x: bf16[T,64]
  weight %gate: bf16[64,64] = "gate"
  weight %up: bf16[64,64] = "up"
  %g: bf16[T,64] = linear(%x, %gate)
  %u: bf16[T,64] = linear(%x, %up)
  %s: bf16[T,64] = silu(%g)
  %y: bf16[T,64] = mul(%s, %u)
  %dead: bf16[T,64] = silu(%u)
  output %y
)";

std::vector<std::string> optional_passes() {
  std::vector<std::string> names;
  for (const Pass& pass : all()) {
    if (!pass.required) names.emplace_back(pass.name);
  }
  return names;
}

std::string error_of(const CompileOptions& options, ErrorKind kind) {
  try {
    (void)compile(graph_of(kText), ops::standard(), options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "no error";
}

TEST(Pipeline, RunsThePassesInTheOrderOfItsList) {
  std::vector<std::string> names;
  for (const Pass& pass : all())
    names.emplace_back(pass.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "remove_dead", "fuse_silu_mul", "fuse_add_rms_norm", "fuse_rope_kv_write",
                "fuse_attention_prologue", "merge_linears", "fuse_linear_prologue",
                "fuse_linear_epilogue", "restore_in_place", "split_at_attention", "plan_arena"}));
  const Compiled compiled = compile(graph_of(kText), ops::standard(), {});
  ASSERT_EQ(compiled.reports.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(compiled.reports[i].name, names[i]);
}

TEST(Pipeline, CompilesToFewerNodes) {
  const Compiled compiled = compile(graph_of(kText), ops::standard(), {});
  EXPECT_EQ(ir::print(compiled.program.graph), R"(graph g {
  input %x: bf16[T,64]
  weight %gate_up: bf16[128,64] = concat("gate", "up")
  %y: bf16[T,64] = fused_linear(%x, %gate_up) {epilogue=silu_mul}
  output %y
}
)");
}

TEST(Pipeline, ReportsNodesAndTimeOfEachPass) {
  const Compiled compiled = compile(graph_of(kText), ops::standard(), {});
  EXPECT_EQ(compiled.reports[0].nodes_before, 5);
  EXPECT_EQ(compiled.reports[0].nodes_after, 4);
  EXPECT_EQ(compiled.reports[1].nodes_after, 3);
  for (const PassReport& report : compiled.reports)
    EXPECT_GE(report.milliseconds, 0);
}

TEST(Pipeline, DumpsTheTraceAndTheProgramAfterEachPass) {
  std::vector<std::string> dumped;
  std::vector<int> num_nodes;
  CompileOptions options;
  options.dump = [&](std::string_view pass, const Program& program) {
    dumped.emplace_back(pass);
    num_nodes.push_back(program.graph.num_nodes());
  };
  (void)compile(graph_of(kText), ops::standard(), options);
  EXPECT_EQ(dumped.front(), "trace");
  EXPECT_EQ(dumped.back(), "plan_arena");
  EXPECT_EQ(num_nodes, (std::vector<int>{5, 4, 3, 3, 3, 3, 3, 3, 1, 1, 1, 1}));
}

TEST(Pipeline, LeavesOutADisabledPass) {
  CompileOptions options;
  options.disabled = {"fuse_silu_mul", "merge_linears"};
  const Compiled compiled = compile(graph_of(kText), ops::standard(), options);
  EXPECT_EQ(compiled.program.graph.num_nodes(), 4);
  EXPECT_EQ(compiled.reports.size(), all().size() - 2);
}

TEST(Pipeline, CompilesWithEveryOptionalPassLeftOut) {
  CompileOptions options;
  options.disabled = optional_passes();
  const Program program = compile(graph_of(kText), ops::standard(), options).program;
  EXPECT_EQ(program.graph.num_nodes(), 5);
  EXPECT_EQ(program.segments.size(), 1U);
  EXPECT_GT(program.arena.bytes, 0);
}

// Any subset of passes gives a program that verifies.
TEST(Pipeline, CompilesWithAnyOnePassLeftOut) {
  for (const std::string& name : optional_passes()) {
    CompileOptions options;
    options.disabled = {name};
    EXPECT_NO_THROW((void)compile(graph_of(kText), ops::standard(), options)) << name;
  }
}

TEST(Pipeline, RefusesToLeaveOutWhatAProgramNeeds) {
  const std::string error = error_of({{64, 4}, {"plan_arena"}, {}}, ErrorKind::kUsage);
  EXPECT_NE(error.find("needs pass 'plan_arena'"), std::string::npos) << error;
  EXPECT_NE(error.find("fuse_silu_mul"), std::string::npos) << error;
}

TEST(Pipeline, RefusesAPassThatDoesNotExist) {
  const std::string error = error_of({{64, 4}, {"fuse_everything"}, {}}, ErrorKind::kUsage);
  EXPECT_NE(error.find("no pass 'fuse_everything'"), std::string::npos) << error;
}

TEST(Pipeline, RefusesATraceThatDoesNotVerify) {
  ir::Graph graph = graph_of(kText);
  graph.value(*graph.find_value("y")).type.dims[1] = 32;
  try {
    (void)compile(std::move(graph), ops::standard(), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCompile);
    EXPECT_NE(std::string(error.what()).find("'mul'"), std::string::npos) << error.what();
  }
}

// A registered fused op whose shape function disagrees after the rewrite is caught by name of pass
// and op.
TEST(Pipeline, NamesThePassThatBrokeTheGraph) {
  static const ir::OpSet kOps = [] {
    ir::OpSet ops;
    for (const std::string& name : ops::standard().names()) {
      ir::Op op = *ops::standard().find(name);
      if (name == "split") {
        op.infer = [](std::span<const ir::Type> in, const ir::Attrs&) {
          return std::vector<ir::Type>{in[0]};
        };
      }
      ops.add(std::move(op));
    }
    return ops;
  }();
  const std::string text = std::string("graph g {") + kText + "}\n";
  try {
    (void)compile(ir::parse(text, kOps), kOps, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("pass merge_linears: op 'split'"), std::string::npos)
        << error.what();
  }
}

// The bookkeeping is quadratic in bits, not in time one would notice: an 80-layer model's trace.
TEST(Pipeline, CompilesThousandsOfNodesInPassing) {
  std::string lines = "  input %x0: bf16[T,64]\n  weight %n: bf16[64] = \"n\"\n";
  constexpr int kNumLayers = 750;
  for (int i = 0; i < kNumLayers; ++i) {
    lines += fmt::format(
        "  weight %w{0}: bf16[64,64] = \"w{0}\"\n"
        "  %h{0}: bf16[T,64] = rms_norm(%x{0}, %n) {{eps=1e-05}}\n"
        "  %y{0}: bf16[T,64] = linear(%h{0}, %w{0})\n"
        "  %s{0}: bf16[T,64] = silu(%y{0})\n"
        "  %x{1}: bf16[T,64] = add(%x{0}, %s{0})\n",
        i, i + 1);
  }
  lines += fmt::format("  output %x{}\n", kNumLayers);
  const Compiled compiled = compile(graph_of(lines), ops::standard(), {});
  EXPECT_EQ(compiled.reports[0].nodes_before, 4 * kNumLayers);
  double milliseconds = 0;
  for (const PassReport& report : compiled.reports) {
    milliseconds += report.milliseconds;
    RecordProperty(report.name, std::to_string(report.milliseconds));
  }
  EXPECT_LT(milliseconds, 2000);  // tens on an idle machine
  EXPECT_LT(compiled.program.arena.bytes * 100, compiled.program.arena.unshared_bytes);
}

}  // namespace
}  // namespace encore::passes
