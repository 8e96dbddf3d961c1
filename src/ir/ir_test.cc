#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "listing/listing.h"

namespace encore::ir {
namespace {

void halves(const Types& in, const Attrs&, Types& out) {
  const Type& x = in["x"];
  const Type half{x.dtype, {x.dims[0], x.dims[1].value / 2}};
  out = {{"half", half}, {"half", half}};
}
void as_many_as_the_data_says(const Types& in, const Attrs&, Types& out) {
  out = {{"y", Type{in["x"].dtype, {Dim(Symbol::kData), in["x"].dims[1]}}}};
}

OpSet test_ops() {
  OpSet ops;
  ops.add({.name = "same",
           .inputs = "x any[...], other? any[...]",
           .outputs = "y = x",
           .may_reuse = {{"y", "x"}}});
  ops.add({.name = "store", .inputs = "cache any[...], x any[...]", .outputs = "cache"});
  ops.add({.name = "halves", .inputs = "x any[R,N]", .infer = halves, .is_view = true});
  ops.add({.name = "nonzero", .inputs = "x any[R,N]", .infer = as_many_as_the_data_says});
  ops.add({.name = "product",
           .inputs = "x float[R,I], weight float[O,I], bias? float[O], scale? f32[O/4]",
           .outputs = "y float[R,O]",
           .attrs = {{"eps", 0.0}}});
  ops.add({.name = "attend",
           .inputs = "q float[T,K*G*C], cache kv[P,K,2,C], lens i32[B], starts i32[B+1], "
                     "rows float[*,C]",
           .outputs = "o = q, cache"});
  return ops;
}

std::string error_of(const std::string& text) {
  static const OpSet ops = test_ops();
  return message_of(ErrorKind::kCompile, [&] { verify(listing::parse(text, ops)); });
}

constexpr const char* kGraph = R"(graph g {
  input %x: bf16[T,64]
  input %starts: i32[B+1] pad last
  input %slots: i32[T] pad -1
  weight %w: bf16[64,32] = concat("a.weight"[0:32], "b.weight" * 0.25)
  weight %v: f32[8,4] = concat("c" | by_rule(2,-3)[:,4:8] * 0.5, "d" | twice()[1:5,0:4], "e" | twice())
  weight %f: f32[3] = constant(1, 0.5, 1e-05)
  state %cache: bf16[4,64]
  %a: bf16[T,64] = same(%x, other=%w) {eps=1e-05, sizes=[1,2], out=f32, n=-3}
  %b: bf16[T,32], %c: bf16[T,32] = halves(%a)
  %cache1: bf16[4,64] over %cache = store(%cache, %b)
  %d: bf16[T,32] over %c = same(%c)
  output %d
}
)";

TEST(Listing, PrintsWhatItParsed) {
  const OpSet ops = test_ops();
  EXPECT_EQ(listing::print(listing::parse(kGraph, ops)), kGraph);
}

TEST(Listing, NamesTheLineOfAnError) {
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

// Returns the error of a linear of %x whose text ends with `rest`.
std::string error_of_product(const std::string& rest) {
  return error_of(
      "graph g {\n input %x: bf16[T,8]\n weight %w: bf16[4,8] = \"w\"\n weight %b: bf16[4] = "
      "\"b\"\n"
      " weight %s: f32[1] = \"s\"\n" +
      rest + "\n output %y\n}\n");
}

TEST(Operands, AreRequiredOnesInOrderAndOptionalOnesByName) {
  EXPECT_EQ(error_of_product(" %y: bf16[T,4] = product(%x, %w) {eps=0.5}"), "");
  EXPECT_EQ(error_of_product(" %y: bf16[T,4] = product(%x, %w, bias=%b) {eps=0.5}"), "");
  EXPECT_EQ(error_of_product(" %y: bf16[T,4] = product(%x, %w, scale=%s) {eps=0.5}"), "")
      << "without a bias in front of it";
  EXPECT_EQ(error_of_product(" %y: bf16[T,4] = product(scale=%s, weight=%w, x=%x) {eps=0.5}"), "");
}

TEST(Operands, ArePrintedInTheOrderOfTheRow) {
  const OpSet ops = test_ops();
  const std::string head =
      "graph g {\n  input %x: bf16[T,8]\n  weight %w: bf16[4,8] = \"w\"\n"
      "  weight %b: bf16[4] = \"b\"\n  weight %s: f32[1] = \"s\"\n";
  EXPECT_EQ(listing::print(listing::parse(
                head + "  %y: bf16[T,4] = product(scale=%s, bias=%b, weight=%w, x=%x) "
                       "{eps=0.5}\n}\n",
                ops)),
            head + "  %y: bf16[T,4] = product(%x, %w, bias=%b, scale=%s) {eps=0.5}\n}\n");
}

TEST(Operands, AreRefusedByTheNamesOfOpAndOperand) {
  const auto expect = [](const std::string& node, const std::string& error) {
    EXPECT_EQ(error_of_product(" %y: bf16[T,4] = " + node), "IR text, line 6: " + error);
  };
  expect("product(%x) {eps=0.5}", "op 'product': weight is missing");
  expect("product(%x, %w, %b) {eps=0.5}",
         "op 'product' takes no further operand without a name; it takes x, weight, bias?, scale?");
  expect("product(%x, %w, gain=%b) {eps=0.5}",
         "op 'product' takes no 'gain'; it takes x, weight, bias?, scale?");
  expect("product(%x, %w, bias=%b, bias=%b) {eps=0.5}", "op 'product': bias is given twice");
  expect("product(%x, %w, weight=%w) {eps=0.5}", "op 'product': weight is given twice");
  expect("product(%x, %w, bias=%s) {eps=0.5}",
         "op 'product': bias is f32[1], needs float[O] with float = bf16, O = 4");
  expect("product(%x, %x) {eps=0.5}",
         "op 'product': weight is bf16[T,8], needs float[O,I] with "
         "float = bf16, I = 8, O = T");
  expect("product(%x, %b) {eps=0.5}",
         "op 'product': weight is bf16[4], needs float[O,I] with float = bf16, I = 8");
  expect("product(%x, %w, scale=%b) {eps=0.5}",
         "op 'product': scale is bf16[4], needs f32[O/4] with O = 4");
  expect("product(%x, %w)", "op 'product': attribute 'eps' is missing or of another type");
  expect("product(%x, %w) {eps=1}", "op 'product': attribute 'eps' is missing or of another type");
}

TEST(Operands, OfWeightsMayBeOfATypeThatIsOnlyStored) {
  OpSet ops;
  ops.add({.name = "product", .inputs = "x float[R,I], weight stored[O,I]", .outputs = "y = x"});
  const auto error = [&](DType x, DType weight) {
    return message_of(ErrorKind::kCompile, [&] {
      infer(*ops.find("product"), {{"x", {x, {2, 4}}}, {"weight", {weight, {3, 4}}}}, {});
    });
  };
  EXPECT_EQ(error(DType::kBF16, DType::kBF16), "");
  EXPECT_EQ(error(DType::kBF16, DType::kFP8), "");
  EXPECT_EQ(error(DType::kBF16, DType::kF32),
            "op 'product': weight is f32[3,4], needs stored[O,I] with float = bf16, I = 4");
  EXPECT_EQ(error(DType::kF32, DType::kI32),
            "op 'product': weight is i32[3,4], needs stored[O,I] with float = f32, I = 4");
  EXPECT_NE(error(DType::kFP8, DType::kFP8), "");
}

TEST(Operands, HaveShapesThatLettersSay) {
  const auto error = [](const std::string& q, const std::string& cache, const std::string& starts) {
    return error_of("graph g {\n input %q: " + q + "\n state %c: " + cache +
                    "\n input %l: i32[B]\n input %s: " + starts + "\n input %r: bf16[B,4]\n %o: " +
                    q + ", %c1: " + cache + " = attend(%q, %c, %l, %s, %r)\n output %o\n}\n");
  };
  EXPECT_EQ(error("bf16[T,24]", "fp8[9,2,2,4]", "i32[B+1]"), "");
  EXPECT_NE(error("bf16[T,20]", "fp8[9,2,2,4]", "i32[B+1]").find("q is bf16[T,20]"),
            std::string::npos)
      << "two heads of 4 do not divide 20";
  EXPECT_NE(error("bf16[T,24]", "fp8[9,2,3,4]", "i32[B+1]").find("cache is"), std::string::npos);
  EXPECT_NE(error("bf16[T,24]", "i32[9,2,2,4]", "i32[B+1]").find("cache is"), std::string::npos);
  EXPECT_NE(error("bf16[T,24]", "bf16[9,2,2,8]", "i32[B+1]").find("rows is"), std::string::npos);
  EXPECT_NE(error("bf16[T,24]", "bf16[9,2,2,4]", "i32[B]").find("starts is i32[B]"),
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
      error_of(
          "graph g {\n input %x: bf16[T,4]\n %a: bf16[T,4] = same(%x)\n"
          " %b: bf16[T,4] over %a = same(%a)\n %c: bf16[T,4] = same(%a, other=%b)\n output %c\n}\n")
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
  EXPECT_EQ(Dim::tokens().resolve(sizes), 7);
  EXPECT_EQ(Dim::sequences(1).resolve(sizes), 4);
  EXPECT_EQ(Dim(128).resolve(sizes), 128);
  EXPECT_THROW((void)Dim(Symbol::kData).resolve(sizes), Error);
}

TEST(OpSet, TakesRowsFromOutsideOnce) {
  OpSet ops = test_ops();
  EXPECT_NE(ops.find("same"), nullptr);
  EXPECT_THROW(ops.add({.name = "same", .outputs = "y i32[2]"}), Error);
  EXPECT_THROW(ops.add({.name = "shapeless"}), Error);
}

TEST(OpSet, NamesADimThatNoInputSays) {
  OpSet ops;
  ops.add({.name = "guess", .inputs = "x any[R,N]", .outputs = "y f32[R,M]"});
  Graph graph("g");
  const ValueId x = graph.add_input("x", {DType::kF32, {Dim::tokens(), 4}});
  EXPECT_EQ(message_of(ErrorKind::kCompile, [&] { graph.add_node(*ops.find("guess"), {x}); }),
            "op 'guess': no input says what M of y is");
}

TEST(Graph, ForgetsValuesThatNothingUses) {
  const OpSet ops = test_ops();
  Graph graph = listing::parse(kGraph, ops);
  std::vector<Node> nodes(graph.nodes().begin(), graph.nodes().begin() + 2);
  graph = listing::parse(
      "graph g {\n input %x: bf16[T,4]\n weight %w: bf16[4,4] = \"w\"\n"
      " %a: bf16[T,4] = same(%x, other=%w)\n %b: bf16[T,4] = same(%x)\n output %b\n}\n",
      ops);
  graph.replace_nodes({graph.nodes()[1]});
  EXPECT_EQ(listing::print(graph),
            "graph g {\n  input %x: bf16[T,4]\n  %b: bf16[T,4] = same(%x)\n  output %b\n}\n");
}

}  // namespace
}  // namespace encore::ir
