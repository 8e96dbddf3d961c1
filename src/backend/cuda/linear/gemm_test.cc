// Tests the GEMM of linear for many rows, with every way to cut a product.
#include "backend/cuda/linear/gemm.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "backend/cuda/testing/cuda_fixture.h"
#include "base/rounding.h"

namespace encore {
namespace {

constexpr uint32_t kNans = 0x7fc07fc0;

class CudaGemm : public CudaTest {
 protected:
  // Runs the launch and returns its output. The output held NaN before, so elements that were not
  // written show.
  std::vector<uint16_t> run(const KernelArgs& args, int tile_rows) {
    stream_->fill(args.outputs["y"].data, kNans, args.outputs["y"].num_bytes());
    launch("linear", cuda::bind_gemm(*device_, args, tile_rows));
    return read_bits(args.outputs["y"]);
  }
};

TEST_F(CudaGemm, AgreesWithThePlainKernelAndHasTheSameBitsHoweverItIsCut) {
  for (const ProductShape& c :
       {ProductShape{257, 8, 8}, ProductShape{300, 1000, 1088}, ProductShape{512, 384, 72},
        ProductShape{640, 2048, 512}, ProductShape{1000, 1544, 328}, ProductShape{2048, 4096, 4096},
        ProductShape{4200, 264, 136}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const TensorView x = left_part(random({c.rows, c.columns + 64}, dtype, 1), c.columns);
      const TensorView weight = random({c.outputs, c.columns}, dtype, 2);
      const TensorView bias = random({c.outputs}, dtype, 3);
      const TensorView plain = allocate({c.rows, c.outputs}, dtype);
      const TensorView out = allocate({c.rows, c.outputs}, dtype);
      stream_->synchronize();  // weights are constants: launches read them ahead of their turn
      const Views inputs{{"x", x}, {"weight", weight}, {"bias", bias}};
      launch("linear",
             bind("linear", {.inputs = inputs, .outputs = {{"y", plain}}}, "linear.plain"));
      const std::vector<uint16_t> want = read_bits(plain);
      std::vector<uint16_t> first;
      for (const int tile_rows : cuda::gemm_tile_rows(c.rows, c.outputs, kH200)) {
        for (int repeat = 0; repeat < 2; ++repeat) {
          const std::vector<uint16_t> got =
              run({.inputs = inputs, .outputs = {{"y", out}}}, tile_rows);
          if (first.empty()) first = got;
          ASSERT_EQ(got, first) << c.rows << " rows, " << c.outputs << " x " << c.columns
                                << ", tiles of " << tile_rows;
        }
      }
      visit_float(dtype, [&](auto zero) {
        using T = decltype(zero);
        const double tolerance = 3e-4 * std::sqrt(static_cast<double>(c.columns));
        const auto* got = reinterpret_cast<const T*>(first.data());
        const auto* expected = reinterpret_cast<const T*>(want.data());
        for (size_t i = 0; i < want.size(); ++i) {
          const auto value = static_cast<float>(expected[i]);
          ASSERT_NEAR(static_cast<float>(got[i]), value, tolerance + std::abs(value) / 64)
              << c.rows << " rows, " << c.outputs << " x " << c.columns << " at " << i;
        }
      });
    }
    memory_.clear();
  }
}

TEST_F(CudaGemm, WithSiluMulHasTheBitsOfItsParts) {
  const ir::Attrs silu_mul{{"epilogue", std::string("silu_mul")}};
  for (const ProductShape& c : {ProductShape{300, 1008, 1088}, ProductShape{700, 4144, 328},
                                ProductShape{257, 16, 72}, ProductShape{2200, 528, 64}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const TensorView x = random({c.rows, c.columns}, dtype, 1);
      const TensorView weight = random({c.outputs, c.columns}, dtype, 2);
      const TensorView bias = random({c.outputs}, dtype, 3);
      const TensorView product = allocate({c.rows, c.outputs}, dtype);
      const TensorView want = allocate({c.rows, c.outputs / 2}, dtype);
      const TensorView out = allocate({c.rows, c.outputs / 2}, dtype);
      const TensorView gate = left_part(product, c.outputs / 2);
      TensorView up = gate;
      up.data = product.row<uint16_t>(0) + c.outputs / 2;
      stream_->synchronize();
      const Views inputs{{"x", x}, {"weight", weight}, {"bias", bias}};
      for (const int tile_rows : cuda::gemm_tile_rows(c.rows, c.outputs, kH200)) {
        run({.inputs = inputs, .outputs = {{"y", product}}}, tile_rows);
        launch("silu_mul", bind("silu_mul", {.inputs = {{"gate", gate}, {"up", up}},
                                             .outputs = {{"y", want}}}));
        const std::vector<uint16_t> got =
            run({.inputs = inputs, .outputs = {{"y", out}}, .attrs = silu_mul}, tile_rows);
        ASSERT_EQ(got, read_bits(want))
            << c.rows << " rows, " << c.outputs << " x " << c.columns << ", tiles of " << tile_rows;
      }
    }
    memory_.clear();
  }
}

TEST_F(CudaGemm, ARowDependsNeitherOnTheOthersNorOnTheirNumber) {
  const TensorView weight = random({1024, 2048}, DType::kBF16, 2);
  const TensorView x = random({1000, 2048}, DType::kBF16, 1);
  const TensorView out = allocate({1000, 1024}, DType::kBF16);
  stream_->synchronize();
  const auto outputs = [&](int64_t rows) {
    return run({.inputs = {{"x", upper_part(x, rows)}, {"weight", weight}},
                .outputs = {{"y", upper_part(out, rows)}}},
               cuda::gemm_tile_rows(rows, 1024, kH200).front());
  };
  const std::vector<uint16_t> of_some = outputs(300);
  stream_->fill(x.row<uint16_t>(300), kNans, 700 * 2048 * 2);
  std::vector<uint16_t> of_all = outputs(1000);
  of_all.resize(of_some.size());
  EXPECT_EQ(of_all, of_some);
}

// One tile too many for the chip's multiprocessors makes all of them wait for another round of
// tiles.
TEST(Gemm, IsCutForTheMultiprocessorsThatThereAre) {
  constexpr int64_t kPairOutputs = 256;
  for (const int chip : kChips) {
    for (const int64_t outputs : {4096, 6144, 28672}) {
      for (int64_t rows = 512; rows <= 2048; rows += 64) {
        const int64_t tile_rows = cuda::gemm_tile_rows(rows, outputs, chip).front();
        const int64_t tiles = div_up(rows, tile_rows) * (outputs / kPairOutputs);
        const int64_t rounds = div_up(tiles, chip / 2);
        const double used = static_cast<double>(rows * outputs) /
                            static_cast<double>(rounds * (chip / 2) * tile_rows * kPairOutputs);
        EXPECT_GE(used, outputs < 8192 ? 0.6 : 0.8)
            << outputs << " outputs, " << rows << " rows on " << chip
            << " multiprocessors: tiles of " << tile_rows;
      }
    }
  }
}

TEST(Gemm, TriesTilesThatCoverTheRowsOnly) {
  for (int64_t rows = 257; rows < 9000; rows += 37) {
    const std::vector<int> tiles = cuda::gemm_tile_rows(rows, 4096, kH200);
    ASSERT_FALSE(tiles.empty());
    for (const int tile_rows : tiles) {
      EXPECT_EQ(tile_rows % 16, 0);
      EXPECT_GE(tile_rows, 128);
      EXPECT_LE(tile_rows, 256);
      EXPECT_EQ(std::count(tiles.begin(), tiles.end(), tile_rows), 1);
    }
  }
}

}  // namespace
}  // namespace encore
