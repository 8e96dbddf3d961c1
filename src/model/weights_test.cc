#include "model/weights.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "base/log.h"
#include "base/testing/message_of.h"
#include "listing/listing.h"
#include "model/checkpoint.h"
#include "model/testing/checkpoint_fixture.h"
#include "ops/ops.h"

namespace encore::model {
namespace {

const char* const kQProj = "model.layers.0.self_attn.q_proj.weight";
const char* const kKProj = "model.layers.0.self_attn.k_proj.weight";

class WeightsTest : public ::testing::Test {
 protected:
  // Loads the tiny checkpoint's weights as `recipes`, which are lines of IR text, ask for them.
  Weights load(const std::string& recipes) {
    graph_ = listing::parse("graph g {\n" + recipes + "}\n", ops::standard());
    return Weights(*graph_, dir_.path(), *device_);
  }
  std::string error_of(const std::string& recipes) {
    return message_of(ErrorKind::kModel, [&] { load(recipes); });
  }
  const TensorView& view(const Weights& weights, const char* name) const {
    return weights.views()[graph_->find_value(name)->index];
  }
  // Returns an element of the stored tensor, widened to float.
  float stored(const char* name, int64_t index) const {
    BFloat16 element;
    std::memcpy(&element, checkpoint_.tensor(name).data + 2 * index, 2);
    return static_cast<float>(element);
  }

  TempDir dir_;
  Checkpoint checkpoint_ = [this] {
    write_all(dir_, tiny_llama());
    return Checkpoint(dir_.path());
  }();
  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  std::optional<ir::Graph> graph_;
};

TEST_F(WeightsTest, PutsPiecesBelowEachOtherAndTakesRows) {
  const Shape q = checkpoint_.tensor(kQProj).shape;
  const Shape k = checkpoint_.tensor(kKProj).shape;
  ASSERT_EQ(q[1], k[1]);
  const Weights weights =
      load(fmt::format("  weight %both: bf16[{},{}] = concat(\"{}\", \"{}\")\n"
                       "  weight %rows: bf16[2,{}] = \"{}\"[1:3]\n",
                       q[0] + k[0], q[1], kQProj, kKProj, q[1], kQProj));
  const TensorView both = view(weights, "both");
  EXPECT_EQ(std::memcmp(both.data, checkpoint_.tensor(kQProj).data, q.num_elements() * 2), 0);
  EXPECT_EQ(
      std::memcmp(both.row<BFloat16>(q[0]), checkpoint_.tensor(kKProj).data, k.num_elements() * 2),
      0);
  EXPECT_EQ(
      std::memcmp(view(weights, "rows").data, checkpoint_.tensor(kQProj).data + q[1] * 2, q[1] * 4),
      0);
}

TEST_F(WeightsTest, OfADraftModelComeFromASourceOfItsOwn) {
  const Shape q = checkpoint_.tensor(kQProj).shape;
  graph_ = listing::parse(fmt::format("graph g {{\n  weight %q: bf16[{0},{1}] = \"{2}\"\n"
                                      "  weight %draft.q: bf16[{0},{1}] = \"draft.{2}\"\n}}\n",
                                      q[0], q[1], kQProj),
                          ops::standard());
  const auto is_stored = [&](const Weights& weights, const char* name) {
    return std::memcmp(view(weights, name).data, checkpoint_.tensor(kQProj).data,
                       q.num_elements() * 2) == 0;
  };
  const Weights with_draft(*graph_, {RandomWeights{}, dir_.path()}, *device_);
  EXPECT_TRUE(is_stored(with_draft, "draft.q"));
  EXPECT_FALSE(is_stored(with_draft, "q"));
  const Weights random_draft(*graph_, {dir_.path(), RandomWeights{}}, *device_);
  EXPECT_FALSE(is_stored(random_draft, "draft.q"));
  EXPECT_TRUE(is_stored(random_draft, "q"));
}

TEST_F(WeightsTest, CastsToTheGraphsDtype) {
  const Shape q = checkpoint_.tensor(kQProj).shape;
  const Weights weights =
      load(fmt::format("  weight %wide: f32[{},{}] = \"{}\"\n"
                       "  weight %half: f16[{},{}] = \"{}\"\n",
                       q[0], q[1], kQProj, q[0], q[1], kQProj));
  for (int64_t i = 0; i < q.num_elements(); ++i) {
    const float value = stored(kQProj, i);
    if (std::isnan(value)) continue;
    EXPECT_EQ(view(weights, "wide").as<float>()[i], value);
    EXPECT_EQ(view(weights, "half").as<Float16>()[i].bits, Float16(value).bits);
  }
}

TEST_F(WeightsTest, WritesConstants) {
  const Weights weights = load("  weight %c: f32[3] = constant(1, 0.5, -2)\n");
  const TensorView c = view(weights, "c");
  EXPECT_EQ(std::vector<float>(c.as<float>(), c.as<float>() + 3), (std::vector<float>{1, 0.5, -2}));
}

TEST_F(WeightsTest, MultipliesEachPieceByItsFactor) {
  const Shape q = checkpoint_.tensor(kQProj).shape;
  const Shape k = checkpoint_.tensor(kKProj).shape;
  const Weights weights =
      load(fmt::format("  weight %both: bf16[{},{}] = concat(\"{}\", \"{}\" * 0.25)\n", q[0] + k[0],
                       q[1], kQProj, kKProj));
  const TensorView both = view(weights, "both");
  EXPECT_EQ(std::memcmp(both.data, checkpoint_.tensor(kQProj).data, q.num_elements() * 2), 0);
  for (int64_t i = 0; i < k.num_elements(); ++i) {
    const float value = stored(kKProj, i) * 0.25F;
    if (std::isnan(value)) continue;
    EXPECT_EQ(static_cast<float>(both.row<BFloat16>(q[0])[i]), value);
  }
}

TEST_F(WeightsTest, NamesATensorThatIsMissingOrHasAnotherShape) {
  EXPECT_NE(error_of("  weight %w: bf16[4,4] = \"no.such.weight\"\n").find("no.such.weight"),
            std::string::npos);
  EXPECT_NE(error_of(fmt::format("  weight %w: bf16[1,1] = \"{}\"\n", kQProj)).find(kQProj),
            std::string::npos);
  EXPECT_NE(error_of(fmt::format("  weight %w: bf16[3,{}] = \"{}\"[0:2]\n",
                                 checkpoint_.tensor(kQProj).shape[1], kQProj))
                .find("2 rows"),
            std::string::npos);
}

TEST_F(WeightsTest, CutsColumns) {
  const Shape q = checkpoint_.tensor(kQProj).shape;
  const Weights weights = load(fmt::format(
      "  weight %w: f32[5,3] = concat(\"{0}\"[1:3,2:5], \"{0}\"[0:3,5:8] * 2)\n", kQProj));
  const TensorView w = view(weights, "w");
  for (int64_t column = 0; column < 3; ++column) {
    EXPECT_EQ(w.row<float>(1)[column], stored(kQProj, 2 * q[1] + 2 + column));
    EXPECT_EQ(w.row<float>(4)[column], 2 * stored(kQProj, 2 * q[1] + 5 + column));
  }
}

TEST_F(WeightsTest, ReordersRowsBeforeItCutsThem) {
  const Shape q = checkpoint_.tensor(kQProj).shape;
  const Weights weights =
      load(fmt::format("  weight %w: bf16[{0},{1}] = \"{2}\" | deinterleave(2,2)\n"
                       "  weight %third: bf16[1,{1}] = \"{2}\" | deinterleave(2,2)[2:3]\n",
                       q[0], q[1], kQProj));
  ASSERT_EQ(q[0], 8);
  constexpr int64_t kFrom[] = {0, 2, 1, 3, 4, 6, 5, 7};
  const auto* bytes = checkpoint_.tensor(kQProj).data;
  for (int64_t row = 0; row < q[0]; ++row) {
    EXPECT_EQ(std::memcmp(view(weights, "w").row<BFloat16>(row), bytes + kFrom[row] * q[1] * 2,
                          static_cast<size_t>(q[1] * 2)),
              0);
  }
  EXPECT_EQ(
      std::memcmp(view(weights, "third").data, bytes + q[1] * 2, static_cast<size_t>(q[1] * 2)), 0);
}

TEST_F(WeightsTest, StacksWhatLacksTheFirstDim) {
  const Shape k = checkpoint_.tensor(kKProj).shape;
  const Weights weights =
      load(fmt::format("  weight %experts: bf16[2,{},{}] = concat(\"{}\", \"{}\"[4:8])\n", k[0],
                       k[1], kKProj, kQProj));
  const TensorView experts = view(weights, "experts");
  const auto bytes = static_cast<size_t>(k.num_elements() * 2);
  EXPECT_EQ(std::memcmp(experts.data, checkpoint_.tensor(kKProj).data, bytes), 0);
  EXPECT_EQ(
      std::memcmp(experts.row<BFloat16>(1), checkpoint_.tensor(kQProj).data + 4 * k[1] * 2, bytes),
      0);
}

TEST_F(WeightsTest, StacksASingleMatrixToo) {
  const Shape k = checkpoint_.tensor(kKProj).shape;
  const Weights weights =
      load(fmt::format("  weight %experts: bf16[1,{},{}] = \"{}\"\n", k[0], k[1], kKProj));
  EXPECT_EQ(std::memcmp(view(weights, "experts").data, checkpoint_.tensor(kKProj).data,
                        static_cast<size_t>(k.num_elements() * 2)),
            0);
}

// Covers scales that were stored in another shape, or as one number for all rows.
TEST_F(WeightsTest, GivesNumbersAnotherShapeAndRepeatsOne) {
  const char* const kHeader = R"({"one":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
                              R"("rows":{"dtype":"F32","shape":[3,1],"data_offsets":[4,16]}})";
  const std::vector<float> numbers{0.5, 1, 2, 4};
  (void)dir_.write(
      "model.safetensors",
      safetensors(kHeader, std::string(reinterpret_cast<const char*>(numbers.data()), 16)));
  const Weights weights =
      load("  weight %scale: f32[5] = concat(\"one\" | repeat(2), \"rows\" | shape(3) * 3)\n");
  const auto* scale = view(weights, "scale").as<float>();
  EXPECT_EQ(std::vector<float>(scale, scale + 5), (std::vector<float>{0.5, 0.5, 3, 6, 12}));
  EXPECT_NE(
      error_of("  weight %scale: f32[2] = \"rows\" | repeat(2)\n").find("tensor 'rows': repeat"),
      std::string::npos);
  EXPECT_NE(
      error_of("  weight %scale: f32[2] = \"rows\" | shape(2)\n").find("tensor 'rows': shape"),
      std::string::npos);
}

TEST_F(WeightsTest, QuantizesRowsToFp8) {
  const char* const kHeader = R"({"w":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]}})";
  const std::vector<float> numbers{448, -1, 0, 0, 0.25, 0.1};
  (void)dir_.write(
      "model.safetensors",
      safetensors(kHeader, std::string(reinterpret_cast<const char*>(numbers.data()), 24)));
  const Weights weights = load(
      "  weight %codes: fp8[3,2] = \"w\" | fp8_codes()\n"
      "  weight %scale: f32[3] = \"w\" | fp8_scales()\n");
  const auto* scale = view(weights, "scale").as<float>();
  EXPECT_EQ(std::vector<float>(scale, scale + 3), (std::vector<float>{1, 1, 0.25F / 448}));
  std::vector<float> codes;
  for (int i = 0; i < 6; ++i)
    codes.push_back(static_cast<float>(view(weights, "codes").as<Float8>()[i]));
  EXPECT_EQ(codes, (std::vector<float>{448, -1, 0, 0, 448, 176}));
}

TEST_F(WeightsTest, NamesACodeThatIsNaNAndItsIndex) {
  const char* const kHeader =
      R"({"codes":{"dtype":"F8_E4M3","shape":[40,100],"data_offsets":[0,4000]}})";
  for (const char nan : {'\x7f', '\xff'}) {
    std::string codes(4000, '\x7e');
    codes[3999] = '\xfe';
    (void)dir_.write("model.safetensors", safetensors(kHeader, codes));
    EXPECT_NO_THROW(load("  weight %w: fp8[40,100] = \"codes\"\n"));
    codes[1234] = codes[3000] = nan;
    (void)dir_.write("model.safetensors", safetensors(kHeader, codes));
    for (const char* recipe :
         {"  weight %w: fp8[40,100] = \"codes\"\n", "  weight %w: fp8[30,100] = \"codes\"[10:40]\n",
          "  weight %w: fp8[40,70] = \"codes\"[0:40,30:100]\n"}) {
      EXPECT_NE(error_of(recipe).find("'codes' has NaN at index 1234 (row 12, column 34)"),
                std::string::npos)
          << recipe << error_of(recipe);
    }
    EXPECT_NO_THROW(load("  weight %w: fp8[17,100] = \"codes\"[13:30]\n"));
  }
}

TEST_F(WeightsTest, NamesATransformThatIsNotThere) {
  EXPECT_NE(
      message_of(ErrorKind::kCompile,
                 [&] { load(fmt::format("  weight %w: bf16[8,8] = \"{}\" | twice()\n", kQProj)); })
          .find("no transform 'twice'"),
      std::string::npos);
}

TEST_F(WeightsTest, RefusesATensorOfIntegers) {
  const char* const kHeader = R"({"packed":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})";
  (void)dir_.write("model.safetensors", safetensors(kHeader, std::string(16, '\1')));
  const std::string message =
      message_of(ErrorKind::kUnsupported, [&] { load("  weight %w: bf16[2,2] = \"packed\"\n"); });
  EXPECT_NE(message.find("'packed' holds integers (i32)"), std::string::npos) << message;
}

TEST_F(WeightsTest, MakesTheSameRandomWeightsFromTheSameSeed) {
  graph_ = listing::parse(
      "graph g {\n  weight %w: f32[8,16] = \"a.weight\"\n  weight %n: f32[4] = "
      "\"input_layernorm.weight\"\n}\n",
      ops::standard());
  const Weights a(*graph_, RandomWeights{1}, *device_);
  const Weights b(*graph_, RandomWeights{1}, *device_);
  const Weights c(*graph_, RandomWeights{2}, *device_);
  const int64_t bytes = view(a, "w").num_bytes();
  EXPECT_EQ(std::memcmp(view(a, "w").data, view(b, "w").data, bytes), 0);
  EXPECT_NE(std::memcmp(view(a, "w").data, view(c, "w").data, bytes), 0);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(view(a, "n").as<float>()[i], 1.0F);
}

TEST_F(WeightsTest, MakesRandomScalesOfCodesPositive) {
  graph_ = listing::parse(
      "graph g {\n  weight %stored: f32[8] = \"a.weight_scale\"\n"
      "  weight %made: f32[8] = \"a.weight\" | fp8_scales()\n}\n",
      ops::standard());
  const Weights weights(*graph_, RandomWeights{1}, *device_);
  for (const char* name : {"stored", "made"}) {
    for (int i = 0; i < 8; ++i)
      EXPECT_GT(view(weights, name).as<float>()[i], 0.0F) << name;
  }
}

TEST_F(WeightsTest, SayHowFarTheyAreWhereverTheyComeFrom) {
  std::vector<std::string> states;
  log::Progress::listen([&](const std::string& state) { states.push_back(state); });
  const Shape q = checkpoint_.tensor(kQProj).shape;
  load(fmt::format("  weight %q: f32[{},{}] = \"{}\"\n", q[0], q[1], kQProj));
  const Weights random(*graph_, RandomWeights{1}, *device_);
  log::Progress::listen(nullptr);
  ASSERT_EQ(states.size(), 2U);
  EXPECT_TRUE(states[0].starts_with("loading weights 0 of ")) << states[0];
  EXPECT_TRUE(states[1].starts_with("making random weights 0 of ")) << states[1];
}

TEST_F(WeightsTest, AreTheSameAtTheSamePlaceWhenLoadedAgain) {
  const Shape q = checkpoint_.tensor(kQProj).shape;
  Weights loaded = load(fmt::format("  weight %q: f32[{},{}] = \"{}\"\n", q[0], q[1], kQProj));
  Weights random(*graph_, RandomWeights{3}, *device_);
  for (Weights* weights : {&loaded, &random}) {
    const TensorView before = view(*weights, "q");
    const std::vector<std::byte> content(before.as<std::byte>(),
                                         before.as<std::byte>() + before.num_bytes());
    for (int i = 0; i < 3; ++i) {
      weights->release();
      EXPECT_FALSE(weights->is_mapped());
      weights->map();
      StagedCopy copy(*device_);
      weights->fill(copy);
      ASSERT_EQ(view(*weights, "q").data, before.data);
      EXPECT_EQ(std::memcmp(before.data, content.data(), content.size()), 0);
    }
  }
}

TEST_F(WeightsTest, AreNotLoadedAgainFromACheckpointThatChanged) {
  const std::string name = "model.safetensors";
  const auto path = dir_.path() / name;
  Weights weights = load("  weight %n: f32[8] = \"model.norm.weight\"\n");
  const auto loaded_at = std::filesystem::last_write_time(path);
  const auto reload = [&] {
    return model::error_of([&] {
      StagedCopy copy(*device_);
      weights.fill(copy);
      return 0;
    });
  };
  EXPECT_EQ(reload(), "");

  Files files = tiny_llama();
  replace_in_header(files[name], "model.norm.weight", "model.norn.weight");  // same size, same time
  write_all(dir_, files);
  std::filesystem::last_write_time(path, loaded_at);
  EXPECT_NE(reload().find("changed on disk"), std::string::npos);

  write_all(dir_, tiny_llama());
  std::filesystem::last_write_time(path, loaded_at + std::chrono::seconds(1));
  EXPECT_NE(reload().find(path.string() + ": changed on disk"), std::string::npos);

  std::filesystem::remove(path);
  EXPECT_NE(reload().find("cannot be read"), std::string::npos);

  write_all(dir_, tiny_llama());
  std::filesystem::last_write_time(path, loaded_at);
  EXPECT_EQ(reload(), "");
}

}  // namespace
}  // namespace encore::model
