// Tests the GEMM of codes with codes, with every way to cut a product.
#include "backend/cuda/linear/gemm_fp8.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "backend/cuda/testing/cuda_fixture.h"
#include "base/rounding.h"
#include "base/scale_block.h"

namespace encore {
namespace {

class CudaGemmFp8 : public CudaTest {
 protected:
  struct Case {
    ProductShape shape;
    bool by_block;  // blocks of the weight have scales instead of its rows
    bool has_bias = true;
  };

  // Returns the operands of a product, for which x is rounded to FP8 first.
  KernelArgs product(const Case& c) {
    const auto [rows, outputs, columns] = c.shape;
    const Shape scales = c.by_block
                             ? Shape{div_up(outputs, kScaleBlock), div_up(columns, kScaleBlock)}
                             : Shape{outputs};
    KernelArgs args{
        .inputs = {{"x", left_part(random({rows, columns + 64}, DType::kBF16, 1), columns)},
                   {"weight", random({outputs, columns}, DType::kFP8, 2)},
                   {"scale", random(scales, DType::kF32, 4)}},
        .outputs = {{"y", allocate({rows, outputs}, DType::kBF16)}},
        .attrs = {{"fp8_rows", int64_t{33}}}};
    if (c.has_bias) args.inputs.add("bias", random({outputs}, DType::kBF16, 3));
    stream_->synchronize();  // weights are constants: launches read them ahead of their turn
    const Workspace workspace = cuda::gemm_fp8_workspace(args);
    return with_workspace(workspace, std::move(args));
  }
  // Runs the launch and returns its output. The output held NaN before, so elements that were not
  // written show.
  std::vector<uint16_t> run(const KernelArgs& args, const BoundLaunch& bound) {
    constexpr uint32_t kNans = 0x7fc07fc0;
    const TensorView& out = args.outputs["y"];
    stream_->fill(out.data, kNans, out.num_bytes());
    launch("linear", bound);
    return read_bits(out);
  }
  static std::vector<cuda::GemmFp8Tiling> tilings(const Case& c, bool silu_mul = false) {
    const auto [rows, outputs, columns] = c.shape;
    return cuda::gemm_fp8_tilings(rows, outputs, columns, kH200, silu_mul);
  }
};

TEST_F(CudaGemmFp8, AgreesWithThePlainKernelAndHasTheSameBitsHoweverItIsCut) {
  for (const Case& c :
       {Case{{129, 16, 16}, false}, Case{{300, 1008, 1088}, true}, Case{{257, 400, 2064}, false},
        Case{{640, 2048, 512}, true}, Case{{1000, 1552, 336}, true},
        Case{{2048, 4096, 4096}, false, false}, Case{{4200, 272, 144}, true}}) {
    const KernelArgs args = product(c);
    const std::vector<uint16_t> want = run(args, bind("linear", args, "linear.plain"));
    std::vector<uint16_t> first;
    for (const cuda::GemmFp8Tiling& tiling : tilings(c)) {
      for (int repeat = 0; repeat < 2; ++repeat) {
        const std::vector<uint16_t> got = run(args, cuda::bind_gemm_fp8(*device_, args, tiling));
        if (first.empty()) first = got;
        ASSERT_EQ(got, first) << c.shape.rows << " rows, " << c.shape.outputs << " x "
                              << c.shape.columns << ", tiles of " << to_text(tiling);
      }
    }
    double squares = 0;
    double errors = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      squares += std::pow(of_bf16(want[i]), 2);
      errors += std::pow(of_bf16(first[i]) - of_bf16(want[i]), 2);
    }
    EXPECT_LT(std::sqrt(errors / squares), 4e-3)
        << c.shape.rows << " rows, " << c.shape.outputs << " x " << c.shape.columns;
    memory_.clear();
  }
}

TEST_F(CudaGemmFp8, WithSiluMulHasTheBitsOfItsParts) {
  for (const Case& c : {Case{{300, 1056, 1088}, true}, Case{{700, 4160, 336}, false},
                        Case{{257, 32, 80}, true}, Case{{2200, 544, 64}, false}}) {
    const auto [rows, outputs, columns] = c.shape;
    KernelArgs args = product(c);
    const TensorView whole = args.outputs["y"];
    const TensorView gate = left_part(whole, outputs / 2);
    TensorView up = gate;
    up.data = whole.row<uint16_t>(0) + outputs / 2;
    const TensorView out = allocate({rows, outputs / 2}, DType::kBF16);
    run(args, cuda::bind_gemm_fp8(*device_, args, tilings(c).front()));
    const KernelArgs silu_mul{.inputs = {{"gate", gate}, {"up", up}}, .outputs = {{"y", out}}};
    const std::vector<uint16_t> want = run(silu_mul, bind("silu_mul", silu_mul));
    args.outputs = {{"y", out}};
    args.attrs.set("epilogue", std::string("silu_mul"));
    for (const cuda::GemmFp8Tiling& tiling : tilings(c, /*silu_mul=*/true)) {
      ASSERT_EQ(run(args, cuda::bind_gemm_fp8(*device_, args, tiling)), want)
          << rows << " rows, " << outputs << " x " << columns << ", tiles of " << to_text(tiling);
    }
    memory_.clear();
  }
}

TEST(GemmFp8, TriesTilesThatFillTheChipFirst) {
  constexpr int64_t kTileRows = 128;
  for (const int chip : kChips) {
    for (const int64_t outputs : {4096, 6144, 28672}) {
      for (const int64_t rows : {512, 1024, 2048, 8192}) {
        const cuda::GemmFp8Tiling tiling =
            cuda::gemm_fp8_tilings(rows, outputs, 4096, chip).front();
        const int64_t tiles = div_up(rows, kTileRows) * div_up(outputs, tiling.tile_outputs);
        const int64_t rounds = div_up(tiles, chip / 2 * 2);
        const double used =
            static_cast<double>(rows * outputs) /
            static_cast<double>(rounds * (chip / 2 * 2) * kTileRows * tiling.tile_outputs);
        EXPECT_GE(used, 0.75) << outputs << " outputs, " << rows << " rows on " << chip
                              << " multiprocessors: " << to_text(tiling);
      }
    }
  }
}

// With an odd number of row tiles, a cluster that takes two row tiles has one block without work,
// so clusters whose two tiles have the same rows are tried as well.
TEST(GemmFp8, TriesClustersOfTheSameRowsWhereTheNumberOfTheirTilesIsOdd) {
  const auto has = [](int64_t rows, bool shares_weight) {
    const auto tilings = cuda::gemm_fp8_tilings(rows, 4096, 4096, kH200);
    return std::any_of(tilings.begin(), tilings.end(),
                       [&](const auto& t) { return t.shares_weight == shares_weight; });
  };
  EXPECT_FALSE(has(256, false));
  EXPECT_TRUE(has(256, true));
  EXPECT_TRUE(has(384, false));
  EXPECT_TRUE(has(384, true));
  EXPECT_FALSE(has(2048, false));
}

}  // namespace
}  // namespace encore
