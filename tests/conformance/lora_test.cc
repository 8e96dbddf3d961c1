// Tests lora_shrink, lora_expand, and linear and fused_linear with adapters in some rows.
#include <algorithm>
#include <cmath>

#include "base/testing/message_of.h"
#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

constexpr int64_t kSlots = 3;

// Describes a linear whose weight merges several projections (parts), and the rank of its adapters.
struct LoraCase {
  int64_t in;
  int64_t rank;
  std::vector<int64_t> blocks;  // output columns of each part

  [[nodiscard]] int64_t out() const {
    int64_t columns = 0;
    for (const int64_t block : blocks)
      columns += block;
    return columns;
  }
  [[nodiscard]] int64_t num_sums() const { return std::ssize(blocks) * rank; }
  [[nodiscard]] ir::Attrs attrs() const {
    ir::Attrs attrs;
    if (blocks.size() > 1) attrs.set("lora_blocks", blocks);
    return attrs;
  }
};

const LoraCase kLoraCases[] = {
    {64, 8, {72}},    {320, 16, {130, 40, 40}}, {1024, 16, {96, 96}},
    {5, 1, {3}},      {1000, 20, {33, 300, 7}}, {4096, 64, {24}},
    {72, 3, {18, 5}}, {2056, 8, {520}},
};

// Returns the adapter slot of each row. In the pattern, some neighbours share an adapter slot and
// others do not, and some rows have no adapter (-1).
HostTensor slots_of(int64_t rows) {
  const double pattern[] = {-1, 2, 0, 0, 1, -1, 2, 2, 2, 1};
  std::vector<double> slots;
  for (int64_t r = 0; r < rows; ++r)
    slots.push_back(pattern[r % 10]);
  return tensor_of(type_of(DType::kI32, {Dim::tokens()}), tokens(rows).sizes(), std::move(slots));
}

HostTensor rounded(DType dtype, HostTensor tensor) {
  for (double& value : tensor.values)
    value = round_to(dtype, value);
  return tensor;
}

struct Matrices {
  HostTensor a;
  HostTensor b;
};
Matrices matrices(const LoraCase& c, DType dtype, Random& random) {
  return {random.tensor(type_of(dtype, {kSlots, c.num_sums(), c.in}), {},
                        1 / std::sqrt(static_cast<double>(c.in))),
          random.tensor(type_of(dtype, {kSlots, c.out(), c.rank}), {}, 0.5)};
}

TEST_P(Conformance, LoraShrinkAgrees) {
  for (const LoraCase& c : cases(kLoraCases, 2)) {
    const HostTensor a = matrices(c, dtype(), random_).a;
    const HostTensor norm = random_.tensor(type_of(dtype(), {c.in}), {});
    for (const int64_t rows : {0, 1, 3, 10, 70, 260}) {
      for (const int around : {0, 1, 2}) {
        const bool has_norm = around > 0;
        const bool has_residual = around > 1;
        SCOPED_TRACE(at(rows, c.in) + ", sums " + std::to_string(c.num_sums()) +
                     (has_norm ? ", norm" : "") + (has_residual ? ", residual" : ""));
        const StepKey step = tokens(rows);
        const HostTensor x = random_.tensor(tokens_by(c.in), step.sizes());
        const HostTensor residual = random_.tensor(tokens_by(c.in), step.sizes());
        const HostTensor adapters = slots_of(rows);
        OpCase op{.op = "lora_shrink",
                  .inputs = {{"x", x}, {"a", a}, {"adapters", adapters}},
                  .step = step};
        op.may_skip = [&](std::string_view, int64_t row) { return adapters.integer(row) < 0; };
        if (has_norm) {
          op.inputs.add("norm", norm, true);
          op.attrs.set("eps", 1e-5);
        }
        if (has_residual) op.inputs.add("residual", residual, true);
        const HostTensor sum = has_residual ? rounded(dtype(), reference::add(x, residual)) : x;
        const HostTensor taken =
            has_norm ? rounded(dtype(), reference::rms_norm(sum, norm, 1e-5)) : x;
        const HostTensor expected = reference::lora_shrink(taken, a, adapters);
        const std::vector<Output> h = run(device(), op);
        for (int64_t r = 0; r < rows; ++r) {
          if (adapters.integer(r) < 0) continue;
          // A result of the norm may be rounded in the other direction than the reference rounds
          // it.
          const double ulps = !has_norm                 ? 64
                              : dtype() == DType::kBF16 ? 0x1p16
                              : dtype() == DType::kF16  ? 0x1p13
                                                        : 256;
          expect_row_close(DType::kF32, h[0].tensor.row(r), expected.row(r), c.num_sums(),
                           {.ulps = ulps, .floor_rms = 1});
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Conformance, LoraExpandAgreesAndLeavesBaseRows) {
  for (const LoraCase& c : cases(kLoraCases, 2)) {
    const HostTensor b = matrices(c, dtype(), random_).b;
    for (const int64_t rows : {0, 1, 3, 10, 70, 260}) {
      SCOPED_TRACE(at(rows, c.out()) + ", rank " + std::to_string(c.rank));
      const StepKey step = tokens(rows);
      const HostTensor base = random_.tensor(tokens_by(c.out()), step.sizes());
      const HostTensor h =
          random_.tensor(type_of(DType::kF32, {Dim::tokens(), c.num_sums()}), step.sizes());
      const HostTensor adapters = slots_of(rows);
      const OpCase op{
          .op = "lora_expand", .inputs = {base, h, b, adapters}, .attrs = c.attrs(), .step = step};
      expect_agrees(op, {reference::lora_expand(base, h, b, adapters, c.blocks)},
                    {.ulps = dtype() == DType::kF32 ? 16.0 : 2.0, .floor_rms = 1});
      const std::vector<Output> y = run(device(), op);
      for (int64_t r = 0; r < rows; ++r) {
        if (adapters.integer(r) >= 0) continue;
        EXPECT_TRUE(std::equal(base.row(r), base.row(r) + c.out(), y[0].tensor.row(r)));
      }
      if (HasFailure()) return;
    }
  }
}

// lora_expand applies silu_mul to all rows, with and without an adapter.
TEST_P(Conformance, LoraExpandAppliesSiluMul) {
  for (const LoraCase& c :
       {LoraCase{0, 16, {300, 300}}, LoraCase{0, 32, {320, 320}}, LoraCase{0, 3, {40, 32}}}) {
    const HostTensor b = matrices({8, c.rank, c.blocks}, dtype(), random_).b;
    for (const int64_t rows : {1, 10, 70, 260}) {
      SCOPED_TRACE(at(rows, c.out()));
      const StepKey step = tokens(rows);
      const HostTensor base = random_.tensor(tokens_by(c.out()), step.sizes());
      const HostTensor h =
          random_.tensor(type_of(DType::kF32, {Dim::tokens(), c.num_sums()}), step.sizes());
      const HostTensor adapters = slots_of(rows);
      OpCase op{
          .op = "lora_expand", .inputs = {base, h, b, adapters}, .attrs = c.attrs(), .step = step};
      const HostTensor columns = run(device(), op)[0].tensor;
      op.attrs.set("epilogue", std::string("silu_mul"));
      const std::vector<Output> y = run(device(), op);
      const int64_t half = c.out() / 2;
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<double> expected;
        for (int64_t i = 0; i < half; ++i) {
          const double gate = columns.row(r)[i];
          expected.push_back(gate / (1 + std::exp(-gate)) * columns.row(r)[half + i]);
        }
        expect_row_close(dtype(), y[0].tensor.row(r), expected.data(), half,
                         {.ulps = dtype() == DType::kF32 ? 64.0 : 1.0});
      }
      if (HasFailure()) return;
    }
  }
}

// Makes a case of linear, or of fused_linear with a residual, a norm and a bias.
OpCase product_case(const LoraCase& c, bool is_fused, DType dtype, int64_t rows, Random& random) {
  const StepKey step = tokens(rows);
  const ir::Type x = type_of(dtype, {Dim::tokens(), c.in});
  OpCase op{.op = is_fused ? "fused_linear" : "linear",
            .inputs = {{"x", random.tensor(x, step.sizes())}},
            .step = step};
  if (is_fused) {
    op.inputs.add("residual", random.tensor(x, step.sizes()), true);
    op.inputs.add("norm", random.tensor(type_of(dtype, {c.in}), {}), true);
    op.attrs.set("eps", 1e-5);
  }
  op.inputs.add("weight", random.tensor(type_of(dtype, {c.out(), c.in}), {},
                                        1 / std::sqrt(static_cast<double>(c.in))));
  op.inputs.add("bias", random.tensor(type_of(dtype, {c.out()}), {}), true);
  return op;
}

OpCase with_adapters(OpCase op, const LoraCase& c, const Matrices& m, const HostTensor& adapters) {
  op.inputs.add("lora_a", m.a, true);
  op.inputs.add("lora_b", m.b, true);
  op.inputs.add("adapters", adapters, true);
  if (c.blocks.size() > 1) op.attrs.set("lora_blocks", c.blocks);
  return op;
}

TEST_P(Conformance, LinearAddsAdaptersAndABaseRowKeepsItsBits) {
  for (const LoraCase& c : cases(kLoraCases, 2)) {
    const Matrices m = matrices(c, dtype(), random_);
    for (const bool is_fused : {false, true}) {
      for (const int64_t rows : {1, 2, 4, 7, 33, 100}) {
        SCOPED_TRACE((is_fused ? "fused " : "") + at(rows, c.in) + ", outputs " +
                     std::to_string(c.out()));
        const OpCase base = product_case(c, is_fused, dtype(), rows, random_);
        const HostTensor adapters = slots_of(rows);
        const std::vector<Output> plain = run(device(), base);
        const std::vector<Output> y = run(device(), with_adapters(base, c, m, adapters));
        HostTensor x = base.inputs["x"];
        if (is_fused) {
          expect_same_bits({plain[0]}, {y[0]});
          x = rounded(dtype(), reference::rms_norm(
                                   rounded(dtype(), reference::add(x, base.inputs["residual"])),
                                   base.inputs["norm"], 1e-5));
        }
        const Output& product = plain.back();
        const HostTensor expected = reference::lora_expand(
            product.tensor, reference::lora_shrink(x, m.a, adapters), m.b, adapters, c.blocks);
        for (int64_t r = 0; r < rows; ++r) {
          if (adapters.integer(r) < 0) {
            EXPECT_EQ(y.back().row_bits(r), product.row_bits(r)) << "row " << r;
          }
          expect_row_close(dtype(), y.back().tensor.row(r), expected.row(r), c.out(),
                           {.ulps = dtype() == DType::kF32 ? 64.0 : 2.0, .floor_rms = 1});
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Conformance, LinearAddsAdaptersInFrontOfSiluMul) {
  const LoraCase c{320, 16, {48, 48}};
  const Matrices m = matrices(c, dtype(), random_);
  for (const int64_t rows : {1, 4, 7, 33}) {
    SCOPED_TRACE(at(rows, c.in));
    OpCase op = with_adapters(product_case(c, true, dtype(), rows, random_), c, m, slots_of(rows));
    const std::vector<Output> product = run(device(), op);
    const HostTensor& columns = product.back().tensor;
    op.attrs.set("epilogue", std::string("silu_mul"));
    const std::vector<Output> y = run(device(), op);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<double> expected;
      for (int64_t i = 0; i < 48; ++i) {
        const double gate = columns.row(r)[i];
        expected.push_back(gate / (1 + std::exp(-gate)) * columns.row(r)[48 + i]);
      }
      expect_row_close(dtype(), y.back().tensor.row(r), expected.data(), 48,
                       {.ulps = dtype() == DType::kF32 ? 64.0 : 2.0, .floor_rms = 1});
    }
  }
}

// Rows without an adapter have the bits of the product with silu_mul fused, because the kernel and
// tiles for the product in front of lora_expand are chosen as for that fused product.
TEST_P(Conformance, ABaseRowInFrontOfSiluMulHasTheBitsOfTheFusedProduct) {
  const LoraCase c{1024, 16, {96, 96}};
  const Matrices m = matrices(c, dtype(), random_);
  for (const bool has_norm : {false, true}) {
    for (const int64_t rows : {1, 4, 7, 33, 100, 300}) {
      SCOPED_TRACE(at(rows, c.in) + (has_norm ? ", norm" : ""));
      OpCase op = product_case(c, has_norm, dtype(), rows, random_);
      op.op = "fused_linear";
      op.attrs.set("epilogue", std::string("silu_mul"));
      const HostTensor adapters = slots_of(rows);
      const std::vector<Output> without = run(device(), op);
      const std::vector<Output> with = run(device(), with_adapters(op, c, m, adapters));
      for (int64_t r = 0; r < rows; ++r) {
        if (adapters.integer(r) >= 0) continue;
        EXPECT_EQ(with.back().row_bits(r), without.back().row_bits(r)) << "row " << r;
      }
    }
  }
}

// Rows without an adapter keep their bits in a step in which only the last row, or no row, has an
// adapter.
TEST_P(Conformance, BaseRowsKeepTheirBitsHoweverFewRowsHaveAdapters) {
  const LoraCase c{1024, 16, {96, 32, 32}};
  const Matrices m = matrices(c, dtype(), random_);
  for (const int64_t rows : {1, 4, 5, 16, 64, 200, 256}) {
    const OpCase base = product_case(c, false, dtype(), rows, random_);
    const std::vector<Output> plain = run(device(), base);
    for (const int64_t row : {int64_t{-1}, rows - 1}) {
      HostTensor adapters = slots_of(rows);
      std::ranges::fill(adapters.values, -1);
      if (row >= 0) adapters.values[static_cast<size_t>(row)] = 1;
      const std::vector<Output> y = run(device(), with_adapters(base, c, m, adapters));
      for (int64_t r = 0; r < rows; ++r) {
        if (r == row) {
          EXPECT_NE(y[0].row_bits(r), plain[0].row_bits(r)) << "of " << rows;
        } else {
          EXPECT_EQ(y[0].row_bits(r), plain[0].row_bits(r)) << "row " << r << " of " << rows;
        }
      }
    }
  }
}

// A row with an adapter has the same bits among base rows, even if these are NaN, as beside rows
// with other adapters.
TEST_P(Conformance, ARowsAdapterDependsOnNoOther) {
  const LoraCase c{1024, 16, {96, 32}};
  const Matrices m = matrices(c, dtype(), random_);
  for (const int64_t rows : {3, 10, 70, 300}) {
    const OpCase base = product_case(c, false, dtype(), rows, random_);
    const HostTensor adapters = slots_of(rows);
    const std::vector<Output> together = run(device(), with_adapters(base, c, m, adapters));
    for (const int64_t row : {int64_t{1}, int64_t{2}, rows - 1}) {
      HostTensor own = adapters;
      OpCase alone = base;
      HostTensor& x = alone.inputs["x"];
      for (int64_t r = 0; r < rows; ++r) {
        if (r == row) continue;
        own.values[static_cast<size_t>(r)] = -1;
        std::fill_n(x.row(r), c.in, kNaN);
      }
      const std::vector<Output> y = run(device(), with_adapters(alone, c, m, own));
      EXPECT_EQ(y[0].row_bits(row), together[0].row_bits(row)) << "row " << row << " of " << rows;
    }
  }
}

}  // namespace
}  // namespace encore::conformance
