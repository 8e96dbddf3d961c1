// Whole compiles of small models against text on file: an empty diff says that a refactor changed
// nothing. After a wanted change, replace testdata/NAME.compiled by what the failing test printed.
#include "base/json.h"
#include "passes/pipeline.h"
#include "passes/text_in_text_out.h"

namespace encore::passes {
namespace {

constexpr ir::Sizes kMaxSizes{64, 8};

std::string testdata(const std::string& name) {
  return json::read_file(std::string(ENCORE_SOURCE_DIR) + "/src/passes/testdata/" + name);
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  static ir::Graph trace() {
    return ir::parse(testdata(std::string(GetParam()) + ".ir"), ops::standard());
  }
  static Program compiled(std::vector<std::string> disabled = {}) {
    return compile(trace(), ops::standard(), {kMaxSizes, std::move(disabled), {}}).program;
  }
};

TEST_P(Golden, TraceReadsBackAsItWasPrinted) {
  EXPECT_EQ(ir::print(trace()), testdata(std::string(GetParam()) + ".ir"));
}

TEST_P(Golden, CompilesToTheProgramOnFile) {
  EXPECT_EQ(print(compiled()), testdata(std::string(GetParam()) + ".compiled"))
      << "compiled to:\n"
      << print(compiled());
}

TEST_P(Golden, CompiledGraphReadsBackAsItWasPrinted) {
  const std::string text = ir::print(compiled().graph);
  EXPECT_EQ(ir::print(ir::parse(text, ops::standard())), text);
}

// Everything from one attention to the next is one segment, across the border between two layers.
TEST_P(Golden, HasTwoSegmentsALayerOneForTheRestAndOneForTheLogits) {
  const Program program = compiled();
  ASSERT_EQ(program.segments.size(), 6U);  // T attention T attention T B
  for (size_t i = 0; i < program.segments.size(); ++i) {
    const Segment& segment = program.segments[i];
    EXPECT_EQ(segment.capture == ir::Capture::kUniform, i == 1 || i == 3) << i;
    EXPECT_EQ(segment.rows, i == 5 ? ir::Symbol::kSequences : ir::Symbol::kTokens) << i;
  }
  EXPECT_TRUE(program.full_recordable());
}

TEST_P(Golden, CompilesWithEveryOptionalPassLeftOut) {
  std::vector<std::string> disabled;
  for (const Pass& pass : all()) {
    if (!pass.required) disabled.emplace_back(pass.name);
  }
  const Program program = compiled(disabled);
  EXPECT_EQ(program.graph.num_nodes(), trace().num_nodes());
  EXPECT_EQ(program.segments.size(), 6U);
}

TEST_P(Golden, DumpsOnlyGraphsThatVerify) {
  CompileOptions options;
  options.dump = [](std::string_view pass, const Program& program) {
    EXPECT_NO_THROW(ir::verify(ir::parse(ir::print(program.graph), ops::standard()))) << pass;
  };
  (void)compile(trace(), ops::standard(), options);
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::Values("tiny_llama", "tiny_qwen2", "tiny_qwen3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::passes
