#include <gtest/gtest.h>

#include "ir/text.h"
#include "ir/verify.h"

namespace encore::ir {
namespace {

std::vector<Type> same_as_first(std::span<const Type> in, const Attrs&) {
  return {in[0]};
}
std::vector<Type> halves(std::span<const Type> in, const Attrs&) {
  const Type half{in[0].dtype, {in[0].dims[0], in[0].dims[1].value / 2}};
  return {half, half};
}
std::vector<Type> as_many_as_the_data_says(std::span<const Type> in, const Attrs&) {
  return {{in[0].dtype, {Dim(Symbol::kData), in[0].dims[1]}}};
}

OpSet test_ops() {
  OpSet ops;
  ops.add({.name = "same",
           .min_inputs = 1,
           .max_inputs = 2,
           .infer = same_as_first,
           .may_reuse = {{0, 0}}});
  ops.add({.name = "store",
           .min_inputs = 2,
           .max_inputs = 2,
           .infer = same_as_first,
           .mutates = {{0, 0}}});
  ops.add({.name = "halves", .min_inputs = 1, .max_inputs = 1, .infer = halves, .is_view = true});
  ops.add({.name = "nonzero", .min_inputs = 1, .max_inputs = 1, .infer = as_many_as_the_data_says});
  ops.add({.name = "batch_norm",
           .min_inputs = 1,
           .max_inputs = 1,
           .infer = same_as_first,
           .rows_independent = false});
  return ops;
}

std::string error_of(const std::string& text) {
  static const OpSet ops = test_ops();
  try {
    verify(parse(text, ops));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCompile);
    return error.what();
  }
  return "";
}

constexpr const char* kGraph = R"(graph g {
  input %x: bf16[T,64]
  input %starts: i32[B+1] pad last
  input %slots: i32[T] pad -1
  weight %w: bf16[64,32] = concat("a.weight"[0:32], "b.weight" * 0.25)
  weight %f: f32[3] = constant(1, 0.5, 1e-05)
  state %cache: bf16[4,64]
  %a: bf16[T,64] = same(%x, %w) {eps=1e-05, sizes=[1,2], out=f32, n=-3}
  %b: bf16[T,32], %c: bf16[T,32] = halves(%a)
  %cache1: bf16[4,64] over %cache = store(%cache, %b)
  %d: bf16[T,32] over %c = same(%c)
  output %d
}
)";

TEST(IrText, PrintsWhatItParsed) {
  const OpSet ops = test_ops();
  EXPECT_EQ(print(parse(kGraph, ops)), kGraph);
}

TEST(IrText, NamesTheLineOfAnError) {
  EXPECT_NE(error_of("graph g {\n  %a: bf16[T,4] = same(%x)\n}\n").find("line 2"),
            std::string::npos);
  EXPECT_NE(error_of("graph g {\n  input %x: bf16[T,4\n}\n").find("line 2"), std::string::npos);
  EXPECT_NE(error_of("graph g {\n  input %x: bf16[T,4]\n  %a: bf16[T,4] = what(%x)\n}\n")
                .find("no op 'what'"),
            std::string::npos);
  EXPECT_NE(error_of("graph g {\n").find("expected"), std::string::npos);
}

TEST(Verify, AcceptsAWellFormedGraph) {
  EXPECT_EQ(error_of(kGraph), "");
}

TEST(Verify, RefusesADataDependentShapeByTheOpsName) {
  const std::string error =
      error_of("graph g {\n input %x: bf16[T,4]\n %a: bf16[?,4] = nonzero(%x)\n output %a\n}\n");
  EXPECT_NE(error.find("'nonzero'"), std::string::npos) << error;
  EXPECT_NE(error.find("depends on data"), std::string::npos) << error;
}

TEST(Verify, RefusesRowsThatDependOnEachOther) {
  EXPECT_NE(error_of("graph g {\n input %x: bf16[T,4]\n %a: bf16[T,4] = batch_norm(%x)\n}\n")
                .find("row mask"),
            std::string::npos);
}

TEST(Verify, RefusesAReadOfAStateAfterItsMutation) {
  EXPECT_NE(
      error_of(
          "graph g {\n input %x: bf16[T,4]\n state %s: bf16[4,4]\n"
          " %s1: bf16[4,4] over %s = store(%s, %x)\n %y: bf16[4,4] = same(%s)\n output %y\n}\n")
          .find("read after it was mutated"),
      std::string::npos);
}

TEST(Verify, RefusesToMutateWhatANodeMade) {
  EXPECT_NE(error_of("graph g {\n input %x: bf16[T,4]\n %a: bf16[T,4] = same(%x)\n"
                     " %b: bf16[T,4] = store(%a, %x)\n}\n")
                .find("neither a state"),
            std::string::npos);
}

TEST(Verify, RefusesToOverwriteAValueThatIsReadLater) {
  EXPECT_NE(
      error_of("graph g {\n input %x: bf16[T,4]\n %a: bf16[T,4] = same(%x)\n"
               " %b: bf16[T,4] over %a = same(%a)\n %c: bf16[T,4] = same(%a, %b)\n output %c\n}\n")
          .find("still needed"),
      std::string::npos);
}

TEST(Verify, RefusesToOverwriteAStepInput) {
  EXPECT_NE(error_of("graph g {\n input %x: bf16[T,4]\n %a: bf16[T,4] over %x = same(%x)\n}\n")
                .find("no node made"),
            std::string::npos);
}

TEST(Dim, ResolvesNumbersAndSymbols) {
  const Sizes sizes{7, 3};
  EXPECT_EQ(Dim::parse("T")->resolve(sizes), 7);
  EXPECT_EQ(Dim::parse("B+1")->resolve(sizes), 4);
  EXPECT_EQ(Dim::parse("128")->resolve(sizes), 128);
  EXPECT_EQ(Dim::parse("x"), std::nullopt);
  EXPECT_THROW((void)Dim::parse("?")->resolve(sizes), Error);
}

TEST(OpSet, TakesRowsFromOutsideOnce) {
  OpSet ops = test_ops();
  EXPECT_NE(ops.find("same"), nullptr);
  EXPECT_THROW(ops.add({.name = "same", .infer = same_as_first}), Error);
  EXPECT_THROW(ops.add({.name = "shapeless"}), Error);
}

TEST(Graph, ForgetsValuesThatNothingUses) {
  const OpSet ops = test_ops();
  Graph graph = parse(kGraph, ops);
  std::vector<Node> nodes(graph.nodes().begin(), graph.nodes().begin() + 2);
  graph = parse(
      "graph g {\n input %x: bf16[T,4]\n weight %w: bf16[4,4] = \"w\"\n"
      " %a: bf16[T,4] = same(%x, %w)\n %b: bf16[T,4] = same(%x)\n output %b\n}\n",
      ops);
  graph.replace_nodes({graph.nodes()[1]});
  EXPECT_EQ(print(graph),
            "graph g {\n  input %x: bf16[T,4]\n  %b: bf16[T,4] = same(%x)\n  output %b\n}\n");
}

}  // namespace
}  // namespace encore::ir
