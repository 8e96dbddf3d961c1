#include "passes/pipeline.h"

#include <algorithm>

#include "base/testing/message_of.h"
#include "passes/rewrite.h"
#include "passes/testing/text_in_text_out.h"

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

ir::Graph graph_with(const ir::OpSet& ops) {
  return listing::parse(std::string("graph g {") + kText + "}\n", ops);
}

// Returns the names of the passes that are dumped when the graph is compiled.
std::vector<std::string> dumped_names(const ir::OpSet& ops, CompileOptions options) {
  std::vector<std::string> names;
  options.dump = [&](std::string_view pass, const Program&, double) { names.emplace_back(pass); };
  (void)compile(graph_with(ops), ops, options);
  return names;
}

std::string error_of(const CompileOptions& options, ErrorKind kind) {
  return message_of(kind, [&] { (void)compile(graph_of(kText), ops::standard(), options); });
}

TEST(Pipeline, RunsThePassesInTheOrderOfItsList) {
  std::vector<std::string> names;
  for (const Pass& pass : all())
    names.emplace_back(pass.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"remove_dead", "fuse_silu_mul", "fuse_add_rms_norm",
                                      "fuse_all_reduce_rms_norm", "fuse_rope_kv_write",
                                      "fuse_attention_prologue", "merge_linears", "fuse_route",
                                      "fuse_linear_prologue", "fuse_linear_epilogue",
                                      "restore_in_place", "split_segments", "plan_arena"}));
  names.insert(names.begin(), "trace");
  EXPECT_EQ(dumped_names(ops::standard(), {}), names);
}

TEST(Pipeline, CompilesToFewerNodes) {
  const Program program = compile(graph_of(kText), ops::standard(), {});
  EXPECT_EQ(listing::print(program.graph), R"(graph g {
  input %x: bf16[T,64]
  weight %gate_up: bf16[128,64] = concat("gate", "up")
  %y: bf16[T,64] = fused_linear(%x, %gate_up) {epilogue=silu_mul}
  output %y
}
)");
}

TEST(Pipeline, DumpsTheTraceAndTheProgramAfterEachPassAndHowLongThatTook) {
  std::vector<std::string> dumped;
  std::vector<int> num_nodes;
  CompileOptions options;
  options.dump = [&](std::string_view pass, const Program& program, double ms) {
    dumped.emplace_back(pass);
    num_nodes.push_back(program.graph.num_nodes());
    EXPECT_GE(ms, 0);
  };
  (void)compile(graph_of(kText), ops::standard(), options);
  EXPECT_EQ(dumped.front(), "trace");
  EXPECT_EQ(dumped.back(), "plan_arena");
  EXPECT_EQ(num_nodes, (std::vector<int>{5, 4, 3, 3, 3, 3, 3, 3, 3, 3, 1, 1, 1, 1}));
}

TEST(Pipeline, LeavesOutADisabledPass) {
  CompileOptions options;
  options.disabled = {"fuse_silu_mul", "merge_linears"};
  EXPECT_EQ(compile(graph_of(kText), ops::standard(), options).graph.num_nodes(), 4);
  const std::vector<std::string> names = dumped_names(ops::standard(), options);
  EXPECT_EQ(names.size(), all().size() - 2 + 1);
  for (const std::string& disabled : options.disabled)
    EXPECT_EQ(std::ranges::count(names, disabled), 0);
}

TEST(Pipeline, CompilesWithEveryOptionalPassLeftOut) {
  CompileOptions options;
  options.disabled = optional_passes();
  const Program program = compile(graph_of(kText), ops::standard(), options);
  EXPECT_EQ(program.graph.num_nodes(), 5);
  EXPECT_EQ(program.segments.size(), 1U);
  EXPECT_GT(program.arena.bytes, 0);
  CompileOptions all_of_them;
  all_of_them.disabled = {"all"};
  EXPECT_EQ(listing::print(compile(graph_of(kText), ops::standard(), all_of_them)),
            listing::print(program));
}

// The program verifies with any one of the optional passes left out.
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
  const std::string message = message_of(
      ErrorKind::kCompile, [&] { (void)compile(std::move(graph), ops::standard(), {}); });
  EXPECT_NE(message.find("'mul'"), std::string::npos) << message;
}

TEST(Pipeline, FusesNoOpThatTheUserSplitsAt) {
  CompileOptions options;
  options.add_split_op("silu_mul");
  const Program program = compile(graph_of(kText), ops::standard(), options);
  EXPECT_EQ(listing::print(program.graph), R"(graph g {
  input %x: bf16[T,64]
  weight %gate_up: bf16[128,64] = concat("gate", "up")
  %g_u: bf16[T,128] = linear(%x, %gate_up)
  %g: bf16[T,64], %u: bf16[T,64] = split(%g_u) {sizes=[64,64]}
  %y: bf16[T,64] over %g = silu_mul(%g, %u)
  output %y
}
)");
  ASSERT_EQ(program.segments.size(), 2U);
  EXPECT_EQ(program.segments[1].in_pieces, false);
}

TEST(Pipeline, RefusesToSplitAtAnOpThatIsNotThere) {
  // The first name is misspelled. The second op is a view, which launches nothing.
  for (const char* op : {"silu_mull", "split"}) {
    CompileOptions options;
    options.disabled = {"fuse_linear_epilogue"};
    options.add_split_op(op);
    const std::string error = error_of(options, ErrorKind::kUsage);
    EXPECT_NE(error.find(fmt::format("no launch of op '{}'", op)), std::string::npos) << error;
    EXPECT_NE(error.find("linear, silu_mul"), std::string::npos) << error;
  }
}

// Returns Encore's ops and `swiglu`, an op from outside Encore that computes silu and mul.
const ir::OpSet& ops_with_swiglu() {
  static const ir::OpSet ops = [] {
    ir::OpSet ops = ops::standard();
    ir::Op swiglu = *ops.find("silu_mul");
    swiglu.name = "swiglu";
    ops.add(std::move(swiglu));
    return ops;
  }();
  return ops;
}

void fuse_swiglu(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops, {R"(
      %s = silu(%gate)
    @ %y = mul(%s, %up)
    ->
      %y = swiglu(%gate, %up))"});
}

constexpr Pass kFuseSwiglu{.name = "fuse_swiglu",
                           .what = "silu(gate) * up as the user has it",
                           .run = fuse_swiglu,
                           .before = "fuse_silu_mul"};

std::vector<std::string> run_passes(const CompileOptions& options) {
  std::vector<std::string> names = dumped_names(ops_with_swiglu(), options);
  names.erase(names.begin());  // "trace"
  return names;
}

TEST(Pipeline, RunsAPassFromOutsideWhereItBelongs) {
  CompileOptions options;
  options.add_pass(kFuseSwiglu);
  const std::vector<std::string> names = run_passes(options);
  std::string after;
  options.dump = [&](std::string_view pass, const Program& program, double) {
    if (pass == "fuse_swiglu") after = listing::print(program.graph);
  };
  (void)compile(graph_with(ops_with_swiglu()), ops_with_swiglu(), options);
  EXPECT_EQ(names.size(), all().size() + 1);
  EXPECT_EQ(names[1], "fuse_swiglu");
  EXPECT_EQ(names[2], "fuse_silu_mul");
  EXPECT_EQ(after, R"(graph g {
  input %x: bf16[T,64]
  weight %gate: bf16[64,64] = "gate"
  weight %up: bf16[64,64] = "up"
  %g: bf16[T,64] = linear(%x, %gate)
  %u: bf16[T,64] = linear(%x, %up)
  %y: bf16[T,64] = swiglu(%g, %u)
  output %y
}
)");
}

TEST(Pipeline, RunsPassesFromOutsideOfOnePlaceInTheirOrder) {
  CompileOptions options;
  for (const char* name : {"mine", "yours"}) {
    options.add_pass({.name = name, .what = "", .run = [](Program&, const ir::OpSet&) {}});
  }
  const std::vector<std::string> names = run_passes(options);
  const auto mine = std::find(names.begin(), names.end(), "mine");
  ASSERT_LT(mine + 2, names.end());
  EXPECT_EQ(mine[1], "yours");
  EXPECT_EQ(mine[2], "restore_in_place");
}

TEST(Pipeline, AsksAPassWhetherItAppliesToTheLargestStep) {
  Pass small_steps = kFuseSwiglu;
  small_steps.applies = [](const ir::Sizes& max_sizes) { return max_sizes.tokens <= 64; };
  CompileOptions options;
  options.add_pass(small_steps);
  options.max_sizes = {64, 4};
  EXPECT_EQ(run_passes(options)[1], "fuse_swiglu");
  options.max_sizes = {65, 4};
  EXPECT_EQ(run_passes(options)[1], "fuse_silu_mul");
}

TEST(Pipeline, LeavesOutAPassFromOutsideLikeAnyOther) {
  CompileOptions options;
  options.add_pass(kFuseSwiglu);
  options.disabled = {"fuse_swiglu"};
  EXPECT_EQ(run_passes(options)[1], "fuse_silu_mul");
}

TEST(Pipeline, RefusesAPassFromOutsideThatHasNoNameOrPlaceOfItsOwn) {
  CompileOptions taken;
  taken.add_pass({.name = "merge_linears", .what = "", .run = fuse_swiglu});
  std::string error = error_of(taken, ErrorKind::kUsage);
  EXPECT_NE(error.find("a pass 'merge_linears' already"), std::string::npos) << error;
  CompileOptions lost;
  lost.add_pass({.name = "mine", .what = "", .run = fuse_swiglu, .before = "fuse_all"});
  error = error_of(lost, ErrorKind::kUsage);
  EXPECT_NE(error.find("before 'fuse_all', which there is not"), std::string::npos) << error;
}

// The rewritten node's type no longer agrees with what the op's shape function says. The error
// names the pass and the op.
TEST(Pipeline, NamesThePassThatBrokeTheGraph) {
  static const ir::OpSet kOps = [] {
    ir::OpSet ops;
    for (const auto& [name, row] : ops::standard().rows()) {
      ir::Op op = row;
      if (name == "split") {
        op.infer = nullptr;
        op.outputs = "y = x";
      }
      ops.add(std::move(op));
    }
    return ops;
  }();
  CompileOptions options;
  options.disabled = {"fuse_linear_epilogue"};  // this pass takes the split away
  const std::string message =
      message_of(ErrorKind::kCompile, [&] { (void)compile(graph_with(kOps), kOps, options); });
  EXPECT_NE(message.find("pass merge_linears: op 'split'"), std::string::npos) << message;
}

void narrow_y(Program& program, const ir::OpSet& /*ops*/) {
  program.graph.value(*program.graph.find_value("y")).type.dims[1] = 32;
}

TEST(Pipeline, VerifiesWhatAPassFromOutsideMadeBeforeTheNextSeesIt) {
  static int num_seen = 0;
  CompileOptions options;
  options.add_pass({"narrow_y", "y as no op makes it", narrow_y, false, "fuse_silu_mul"});
  options.add_pass({"look", "counts its runs", [](Program&, const ir::OpSet&) { ++num_seen; },
                    false, "fuse_silu_mul"});
  const std::string message = message_of(
      ErrorKind::kCompile, [&] { (void)compile(graph_of(kText), ops::standard(), options); });
  EXPECT_NE(message.find("pass narrow_y: "), std::string::npos) << message;
  EXPECT_EQ(num_seen, 0);
}

// The order between nodes takes memory that is quadratic in the number of nodes, but compiling
// stays fast. This graph is larger than the trace of an 80-layer model.
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
  double milliseconds = 0;
  CompileOptions options;
  options.dump = [&](std::string_view pass, const Program& program, double ms) {
    if (pass == "trace") {
      EXPECT_EQ(program.graph.num_nodes(), 4 * kNumLayers);
    }
    milliseconds += ms;
    RecordProperty(std::string(pass), std::to_string(ms));
  };
  const Program program = compile(graph_of(lines), ops::standard(), options);
  EXPECT_LT(milliseconds, 60'000);  // tens of milliseconds on an idle machine
  EXPECT_LT(program.arena.bytes * 100, program.arena.unshared_bytes);
}

}  // namespace
}  // namespace encore::passes
