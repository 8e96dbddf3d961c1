// Tests the skinny GEMM of linear with shapes of models, which are larger than those of the
// conformance suite.
#include "backend/cuda/linear/skinny_gemm.h"

#include <cmath>
#include <cstring>
#include <utility>

#include <gtest/gtest.h>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/testing/cuda_fixture.h"
#include "backend/tuning.h"
#include "base/rounding.h"

namespace encore {
namespace {

using Case = ProductShape;

TEST_F(CudaTest, SkinnyGemmAgreesWithThePlainKernelAndGivesTheSameBitsEveryTime) {
  for (const Case& c :
       {Case{1, 1, 8},         Case{2, 5, 1032},      Case{3, 1000, 896},    Case{7, 6144, 4096},
        Case{8, 4096, 14336},  Case{9, 2048, 2048},   Case{16, 28672, 512},  Case{16, 333, 4104},
        Case{17, 3072, 2048},  Case{33, 1000, 4096},  Case{48, 4096, 4096},  Case{64, 4096, 4096},
        Case{64, 70000, 320},  Case{65, 4096, 2048},  Case{72, 4096, 4096},  Case{96, 1003, 1088},
        Case{104, 512, 8200},  Case{128, 6144, 4096}, Case{128, 1001, 72},   Case{136, 1003, 4096},
        Case{170, 4096, 2048}, Case{184, 512, 8200},  Case{192, 6144, 4096}, Case{200, 1003, 4096},
        Case{233, 4096, 2048}, Case{248, 1003, 4096}, Case{256, 6144, 4096}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const TensorView x = left_part(random({c.rows, c.columns + 64}, dtype, 1), c.columns);
      const TensorView weight = random({c.outputs, c.columns}, dtype, 2);
      const TensorView bias = random({c.outputs}, dtype, 3);
      const TensorView plain = allocate({c.rows, c.outputs + 3});
      const TensorView wide = allocate({c.rows, c.outputs + 3});
      stream_->synchronize();  // weights are constants: launches read them ahead of their turn
      fill(plain, 7.0F);
      launch("linear", bind("linear",
                            {.inputs = {{"x", x}, {"weight", weight}, {"bias", bias}},
                             .outputs = {{"y", left_part(plain, c.outputs)}}},
                            "linear.plain"));
      const std::vector<float> want = read(plain);
      const double tolerance = 3e-4 * std::sqrt(static_cast<double>(c.columns));
      const BoundLaunch bound = bind("linear",
                                     {.inputs = {{"x", x}, {"weight", weight}, {"bias", bias}},
                                      .outputs = {{"y", left_part(wide, c.outputs)}}},
                                     "linear.skinny_gemm");
      std::vector<float> first;
      for (int repeat = 0; repeat < 3; ++repeat) {
        fill(wide, 7.0F);
        launch("linear", bound);
        launch("linear", bound);
        const std::vector<float> got = read(wide);
        if (repeat == 0) first = got;
        ASSERT_EQ(got, first);
      }
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(first[i], want[i], tolerance)
            << c.rows << "x" << c.outputs << "x" << c.columns << " at " << i;
      }
    }
    memory_.clear();
  }
}

TEST_F(CudaTest, SkinnyGemmAgreesWithThePlainKernelHoweverItIsCut) {
  constexpr int64_t kOutputs = 1003;
  constexpr int64_t kStride = 1008;  // the stride of outputs that are stored in packs
  constexpr int64_t kColumns = 1088;
  const TensorView weight = random({kOutputs, kColumns}, DType::kBF16, 2);
  const TensorView bias = random({kOutputs}, DType::kBF16, 3);
  for (const int64_t rows : {5,   16,  30,  41,  64,  72,  80,  86,  90,  97,  120, 128, 136,
                             147, 160, 168, 171, 181, 192, 200, 213, 217, 232, 241, 256}) {
    const TensorView x = random({rows, kColumns}, DType::kBF16, 1);
    const TensorView out = allocate({rows, kOutputs});
    const TensorView wide = allocate({rows, kStride}, DType::kBF16);
    const TensorView rounded = left_part(wide, kOutputs);
    stream_->synchronize();
    launch("linear",
           bind("linear",
                {.inputs = {{"x", x}, {"weight", weight}, {"bias", bias}}, .outputs = {{"y", out}}},
                "linear.plain"));
    const std::vector<float> want = read(out);
    for (const cuda::SkinnyGemmTiling& tiling :
         cuda::skinny_gemm_tilings(rows, kOutputs, kColumns, kH200)) {
      fill(out, NAN);
      stream_->fill(wide.data, 0x7fc07fc0, wide.num_bytes());
      for (const TensorView& target : {out, rounded}) {
        launch("linear",
               cuda::bind_skinny_gemm(*device_,
                                      {.inputs = {{"x", x}, {"weight", weight}, {"bias", bias}},
                                       .outputs = {{"y", target}}},
                                      tiling));
      }
      const std::vector<float> got = read(out);
      const std::vector<uint16_t> bits = read_bits(wide);
      for (int64_t i = 0; i < rows * kOutputs; ++i) {
        ASSERT_NEAR(got[i], want[i], 1e-2) << rows << " rows, cut " << to_text(tiling);
        const float stored = of_bf16(bits[i / kOutputs * kStride + i % kOutputs]);
        ASSERT_NEAR(stored, got[i], std::abs(got[i]) / 256)
            << rows << " rows, cut " << to_text(tiling);
      }
    }
  }
}

// The activations x have 16 bits, or are rounded to codes. With x in codes, the tensor cores keep
// only some 14 bits of each sum over 128 columns.
TEST_F(CudaTest, SkinnyGemmOfCodesAgreesWithThePlainKernelHoweverItIsCut) {
  constexpr int64_t kOutputs = 1008;
  for (const int64_t columns : {80, 400, 1104}) {
    const TensorView weight = random({kOutputs, columns}, DType::kFP8, 2);
    for (const bool by_block : {false, true}) {
      const TensorView scale = random(
          by_block ? Shape{8, div_up(columns, int64_t{128})} : Shape{kOutputs}, DType::kF32, 4);
      for (const int64_t rows : {3, 16, 30, 64, 65, 100, 128, 177, 256}) {
        for (const auto operands :
             {cuda::SkinnyOperands::kWidenedCodes, cuda::SkinnyOperands::kCodes}) {
          const bool is_rounded = operands == cuda::SkinnyOperands::kCodes;
          if (!is_rounded && rows > 128) continue;
          KernelArgs args{.inputs = {{"x", random({rows, columns}, DType::kBF16, 1)},
                                     {"weight", weight},
                                     {"scale", scale}},
                          .outputs = {{"y", allocate({rows, kOutputs})}}};
          if (is_rounded) args.attrs.set("fp8_rows", int64_t{1});
          const Workspace workspace = cuda::skinny_gemm_workspace(args);
          args = with_workspace(workspace, std::move(args));
          const TensorView out = args.outputs["y"];
          stream_->synchronize();
          launch("linear", bind("linear", args, "linear.plain"));
          const std::vector<float> want = read(out);
          double squares = 0;
          for (const float value : want)
            squares += value * value;
          for (const cuda::SkinnyGemmTiling& tiling : cuda::skinny_gemm_tilings(
                   rows, kOutputs, columns, kH200, /*silu_mul=*/false, operands)) {
            std::vector<float> first;
            for (int repeat = 0; repeat < 2; ++repeat) {
              fill(out, NAN);
              launch("linear", cuda::bind_skinny_gemm(*device_, args, tiling));
              const std::vector<float> got = read(out);
              if (first.empty()) first = got;
              double errors = 0;
              for (size_t i = 0; i < want.size(); ++i)
                errors += std::pow(got[i] - want[i], 2);
              ASSERT_LT(std::sqrt(errors / squares), 4e-3)
                  << rows << " rows, " << columns << " columns, cut " << to_text(tiling)
                  << (is_rounded ? ", x in codes" : "") << (by_block ? ", by block" : "");
              ASSERT_EQ(got, first);
            }
          }
        }
      }
    }
    memory_.clear();
  }
}

TEST_F(CudaTest, SkinnyGemmWithSiluMulHasTheBitsOfItsPartsHoweverItIsCut) {
  struct Case {
    int64_t outputs;
    int64_t columns;
  };
  const ir::Attrs silu_mul{{"epilogue", std::string("silu_mul")}};
  for (const Case& c : {Case{1008, 1088}, Case{4144, 328}, Case{16, 72}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const TensorView weight = random({c.outputs, c.columns}, dtype, 2);
      const TensorView bias = random({c.outputs}, dtype, 3);
      for (const int64_t rows : {2,   16,  30,  48,  64,  72,  77,  85,  90,  101, 112, 120, 128,
                                 136, 144, 153, 165, 176, 181, 192, 200, 203, 216, 227, 245, 256}) {
        const TensorView x = random({rows, c.columns}, dtype, 1);
        const TensorView product = allocate({rows, c.outputs}, dtype);
        const TensorView want = allocate({rows, c.outputs / 2}, dtype);
        const TensorView out = allocate({rows, c.outputs / 2}, dtype);
        TensorView gate = left_part(product, c.outputs / 2);
        TensorView up = gate;
        up.data = product.row<uint16_t>(0) + c.outputs / 2;
        stream_->synchronize();
        for (const cuda::SkinnyGemmTiling& tiling :
             cuda::skinny_gemm_tilings(rows, c.outputs, c.columns, kH200, true)) {
          launch("linear",
                 cuda::bind_skinny_gemm(*device_,
                                        {.inputs = {{"x", x}, {"weight", weight}, {"bias", bias}},
                                         .outputs = {{"y", product}}},
                                        tiling));
          launch("silu_mul", bind("silu_mul", {.inputs = {{"gate", gate}, {"up", up}},
                                               .outputs = {{"y", want}}}));
          fill(out, NAN);
          launch("fused_linear",
                 cuda::bind_skinny_gemm(*device_,
                                        {.inputs = {{"x", x}, {"weight", weight}, {"bias", bias}},
                                         .outputs = {{"y", out}},
                                         .attrs = silu_mul},
                                        tiling));
          ASSERT_EQ(read_bits(out), read_bits(want))
              << c.outputs << "x" << c.columns << ", " << rows << " rows, cut " << to_text(tiling);
        }
      }
      memory_.clear();
    }
  }
}

TEST_F(CudaTest, SkinnyGemmWritesEveryOutputDtypeAndStride) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t beside : {0, 1, 2}) {
      constexpr int64_t kRows = 13;
      constexpr int64_t kOutputs = 1001;
      const TensorView x = random({kRows, 1024}, dtype, 1);
      const TensorView weight = random({kOutputs, 1024}, dtype, 2);
      const TensorView wide = allocate({kRows, kOutputs + beside}, dtype);
      std::vector<std::vector<std::byte>> results;
      stream_->synchronize();
      for (const char* name : {"linear.skinny_gemm", "linear.plain"}) {
        auto& bytes = results.emplace_back(static_cast<size_t>(wide.num_bytes()));
        stream_->fill(wide.data, 0x7fc07fc0, wide.num_bytes() / 4 * 4);
        launch("linear", bind("linear",
                              {.inputs = {{"x", x}, {"weight", weight}},
                               .outputs = {{"y", left_part(wide, kOutputs)}}},
                              name));
        stream_->copy_to_host(bytes.data(), wide.data, wide.num_bytes());
        stream_->synchronize();
      }
      visit_float(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto* got = reinterpret_cast<const T*>(results[0].data());
        const auto* want = reinterpret_cast<const T*>(results[1].data());
        for (int64_t i = 0; i < kRows * (kOutputs + beside) - 1; ++i) {
          if (i % (kOutputs + beside) >= kOutputs) {
            ASSERT_EQ(0, std::memcmp(got + i, want + i, 2)) << "written beside, at " << i;
          } else {
            const float value = static_cast<float>(want[i]);
            ASSERT_NEAR(static_cast<float>(got[i]), value, 1e-2 + 1e-2 * std::abs(value)) << i;
          }
        }
      });
      memory_.clear();
    }
  }
}

// Runs the skinny GEMM with the first `rows` rows of x, and returns the rows of `out` that it
// writes.
class CudaSkinnyGemm : public CudaTest {
 protected:
  std::vector<float> outputs(int64_t rows, const TensorView& x, const TensorView& weight,
                             const TensorView& out) {
    fill(out, NAN);
    const TensorView some = upper_part(out, rows);
    launch("linear", bind("linear",
                          {.inputs = {{"x", upper_part(x, rows)}, {"weight", weight}},
                           .outputs = {{"y", some}}},
                          "linear.skinny_gemm"));
    return read(some);
  }
};

TEST_F(CudaSkinnyGemm, HasTheSameBitsInARowWhateverTheOthersAre) {
  const TensorView weight = random({4096, 2048}, DType::kBF16, 2);
  const TensorView x = random({16, 2048}, DType::kBF16, 1);
  const TensorView out = allocate({16, 4096});
  stream_->synchronize();
  const std::vector<float> of_nine = outputs(9, x, weight, out);
  const auto first_nine_of_all = [&] {
    std::vector<float> all = outputs(16, x, weight, out);
    all.resize(of_nine.size());
    return all;
  };
  EXPECT_EQ(first_nine_of_all(), of_nine);
  stream_->fill(x.row<uint16_t>(9), 0x7fc07fc0, 7 * 2048 * 2);
  EXPECT_EQ(first_nine_of_all(), of_nine);
}

TEST_F(CudaSkinnyGemm, AddsColumnsInOneOrderWhateverTheRowsWhereTheBatchMustNotShow) {
  for (const int64_t columns : {328, 2048}) {
    const TensorView weight = random({1536, columns}, DType::kBF16, 2);
    const TensorView x = random({600, columns}, DType::kBF16, 1);
    const TensorView out = allocate({600, 1536}, DType::kBF16);
    stream_->synchronize();
    std::vector<uint16_t> want;
    for (const int64_t rows : {600, 300, 256, 129, 100, 33, 32, 17, 9, 1}) {
      const KernelArgs args{.inputs = {{"x", upper_part(x, rows)}, {"weight", weight}},
                            .outputs = {{"y", upper_part(out, rows)}},
                            .batch_invariant = true};
      const auto expect_same = [&](const BoundLaunch& bound, const std::string& what) {
        stream_->fill(out.data, 0x7fc07fc0, out.num_bytes());
        launch("linear", bound);
        const std::vector<uint16_t> got = read_bits(args.outputs["y"]);
        if (want.empty()) want = got;
        EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin()))
            << rows << " rows, " << columns << " columns, " << what;
      };
      if (rows > cuda::kMaxSkinnyRows) {
        for (const char* name : {"linear.gemm", "linear.skinny_gemm"})
          expect_same(bind("linear", args, name), name);
        continue;
      }
      for (cuda::SkinnyGemmTiling tiling : cuda::skinny_gemm_tilings(rows, 1536, columns, kH200)) {
        if (tiling.split) continue;
        tiling.in_order = true;
        expect_same(cuda::bind_skinny_gemm(*device_, args, tiling), to_text(tiling));
      }
    }
    memory_.clear();
  }
}

TEST_F(CudaSkinnyGemm, SharesWhatTheTunerMeasuredWithSizesThatArePaddedAlike) {
  device_->tuner().configure({.tune = Tune::kFresh, .cache = {}});
  const Tuner::Phase tuning(device_->tuner());
  const TensorView weight = random({2048, 1024}, DType::kBF16, 2);
  const TensorView x = random({80, 1024}, DType::kBF16, 1);
  const TensorView out = allocate({80, 2048});
  stream_->synchronize();
  int64_t num_sizes = 0;
  for (const auto& [rows, padded] : {std::pair{50, 64}, std::pair{65, 72}, std::pair{73, 80}}) {
    ++num_sizes;
    const std::vector<float> some = outputs(rows, x, weight, out);
    EXPECT_EQ(device_->tuner().stats().measured, num_sizes);
    std::vector<float> of_padded = outputs(padded, x, weight, out);
    of_padded.resize(some.size());
    EXPECT_EQ(of_padded, some);
    EXPECT_EQ(device_->tuner().stats().measured, num_sizes);
  }
}

struct Model {
  int64_t heads;
  int64_t kv_heads;
  int64_t head_size;
  int64_t hidden;

  [[nodiscard]] KernelArgs attention(int64_t batch) const {
    constexpr int64_t kPages = 64;
    constexpr int64_t kPageSize = 32;
    const TensorView rows(nullptr, DType::kBF16, {batch, heads * head_size});
    const TensorView cache(nullptr, DType::kBF16, {kPages, kv_heads, kPageSize, head_size});
    KernelArgs args;
    args.inputs = {{"q", rows},
                   {"k_cache", cache},
                   {"v_cache", cache},
                   {"page_table", TensorView(nullptr, DType::kI32, {batch, kPages})},
                   {"kv_lens", TensorView(nullptr, DType::kI32, {batch})},
                   {"query_starts", TensorView(nullptr, DType::kI32, {batch + 1})}};
    args.outputs = {{"o", rows}};
    args.step = StepKey::uniform(batch);
    return args;
  }
};

TEST(AttentionKernels, SayWhichModelsDecodeSlowly) {
  const std::vector<Kernel> rows = cuda::all_kernels();
  const KernelTable table(rows);
  const auto slow = [&](const Model& model) {
    return table.choose("attention", model.attention(4)).slow;
  };
  EXPECT_EQ(slow({32, 8, 128, 4096}), "");
  EXPECT_EQ(slow({14, 2, 64, 896}), "");
  EXPECT_NE(slow({32, 8, 80, 2560}), "");
  EXPECT_NE(slow({32, 1, 128, 4096}), "");
}

// A step of 8 sequences loses 1 to 7 % of its time if a block of attention does not fit one
// multiprocessor beside a block of the skinny GEMM. No other test would notice that.
TEST(SkinnyGemm, LeavesRoomForABlockOfAttention) {
  constexpr int64_t kMultiprocessor = 228 << 10;
  constexpr int64_t kReserved = 1 << 10;  // taken by each block
  constexpr Model k8B{32, 8, 128, 4096};
  constexpr Model k1B{32, 8, 64, 2048};
  constexpr Model k06B{16, 8, 128, 1024};
  struct Case {
    Model model;
    int64_t batch;
  };
  for (const auto& [model, batch] :
       {Case{k8B, 2}, Case{k8B, 4}, Case{k8B, 8}, Case{k1B, 2}, Case{k1B, 8}, Case{k1B, 64},
        Case{k06B, 2}, Case{k06B, 8}, Case{k06B, 64}}) {
    const int64_t projected = (model.heads + 2 * model.kv_heads) * model.head_size;
    const int64_t attended = model.heads * model.head_size;
    const int64_t attention = cuda::attention_decode_shared_bytes(model.attention(batch));
    for (const auto& [outputs, columns] :
         {std::pair{projected, model.hidden}, std::pair{model.hidden, attended}}) {
      for (const cuda::SkinnyGemmTiling& tiling :
           cuda::skinny_gemm_tilings(batch, outputs, columns, kH200)) {
        const int64_t linear =
            cuda::skinny_gemm_shared_bytes(batch, outputs, columns, kH200, tiling);
        EXPECT_LE(attention + linear + 2 * kReserved, kMultiprocessor)
            << outputs << " x " << columns << ", " << batch << " sequences";
        // Two blocks of the skinny GEMM must not fit one multiprocessor together, or else one
        // launch would give some multiprocessors twice the work of others.
        EXPECT_GT(2 * linear, kMultiprocessor);
      }
    }
  }
}

TEST(SkinnyGemm, HasRoomForItsRingsHoweverAnyShapeIsCut) {
  constexpr int64_t kMostOfABlock = 227 << 10;
  for (const int chip : kChips) {
    for (int64_t rows = 1; rows <= cuda::kMaxSkinnyRows; rows += 3) {
      for (const int64_t columns : {8, 64, 72, 200, 512, 704, 1024, 4096, 14336}) {
        for (int64_t outputs = 8; outputs < 40'000; outputs += outputs / 64 * 8 + 8) {
          for (const cuda::SkinnyGemmTiling& tiling :
               cuda::skinny_gemm_tilings(rows, outputs, columns, chip)) {
            const int64_t bytes =
                cuda::skinny_gemm_shared_bytes(rows, outputs, columns, chip, tiling);
            ASSERT_LE(bytes, kMostOfABlock) << rows << " rows, " << outputs << " x " << columns;
          }
        }
      }
    }
  }
}

TEST(SkinnyGemm, HasRoomForItsRingsOfCodes) {
  constexpr int64_t kMostOfABlock = 227 << 10;
  for (const auto operands : {cuda::SkinnyOperands::kWidenedCodes, cuda::SkinnyOperands::kCodes}) {
    const int64_t most = operands == cuda::SkinnyOperands::kCodes ? cuda::kMaxSkinnyRows : 128;
    for (int64_t rows = 1; rows <= most; rows += 5) {
      for (const int64_t columns : {16, 128, 256, 272, 400, 512, 1024, 4096, 14336}) {
        for (int64_t outputs = 16; outputs < 40'000; outputs += outputs / 32 * 8 + 16) {
          for (cuda::SkinnyGemmTiling tiling :
               cuda::skinny_gemm_tilings(rows, outputs, columns, kH200, false, operands)) {
            for (const bool in_order : {false, !tiling.split}) {
              tiling.in_order = in_order;
              const int64_t bytes =
                  cuda::skinny_gemm_shared_bytes(rows, outputs, columns, kH200, tiling, operands);
              ASSERT_LE(bytes, kMostOfABlock)
                  << rows << " rows, " << outputs << " x " << columns << ", " << to_text(tiling);
            }
          }
        }
      }
    }
  }
}

// One tile too many for the chip's multiprocessors makes all of them wait for another round of
// tiles.
TEST(SkinnyGemm, IsCutForTheMultiprocessorsThatThereAre) {
  for (const int chip : kChips) {
    for (const int64_t outputs : {4096, 5120, 6144, 28672, 128256}) {
      for (const int64_t rows : {8, 32, 64}) {
        const cuda::SkinnyGemmTiling best =
            cuda::skinny_gemm_tilings(rows, outputs, 4096, chip).front();
        const int64_t blocks =
            div_up(outputs, best.tile_outputs) * best.row_tiles * (best.split ? 2 : 1);
        const int64_t rounds = div_up(blocks, chip);
        EXPECT_GE(static_cast<double>(blocks), 0.8 * static_cast<double>(rounds * chip))
            << outputs << " outputs, " << rows << " rows on " << chip << " multiprocessors, cut "
            << to_text(best);
      }
    }
  }
}

}  // namespace
}  // namespace encore
