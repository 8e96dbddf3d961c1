// Tests checkpoints in FP8, in every spelling, against the same numbers in float32.
#include <cmath>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "base/scale_block.h"
#include "diagnose/probe.h"
#include "engine/engine.h"
#include "model/testing/typed_tensors.h"

namespace encore::engine {
namespace {

using model::TypedTensor;

constexpr int64_t kFp8Vocabulary = 96;
constexpr int64_t kFp8Hidden = 256;
constexpr int64_t kFp8Inner = 320;
constexpr int64_t kFp8Experts = 4;
constexpr int64_t kFp8ExpertInner = 192;  // not a multiple of 128, the side of a block of scales

// The families of models: Llama, and Qwen3-MoE, which has experts in both layers.
enum class Family : uint8_t { kLlama, kQwen3Moe };

// The weight of one projection. It has the FP8 code and the scale of each element; elements that
// share a scale in the checkpoint have equal scales here.
struct Projection {
  std::string name;
  Shape shape;
  std::vector<float> codes;
  std::vector<float> scales;

  [[nodiscard]] std::vector<float> numbers() const {
    std::vector<float> numbers(codes);
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] *= scales[i];
    return numbers;
  }
};

enum class Layout : uint8_t { kTensor, kRow, kBlock };

const std::vector<Projection>& projections(Layout layout, Family family) {
  static std::map<std::pair<Layout, Family>, std::vector<Projection>> known;
  std::vector<Projection>& all = known[{layout, family}];
  if (!all.empty()) return all;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
      Projection p{std::string(layer) + name, {rows, columns}, {}, {}};
      for (int64_t i = 0; i < rows * columns; ++i)
        p.codes.push_back(static_cast<float>(Float8(50 * normal(random))));
      const auto group = [&](int64_t i) -> int64_t {
        if (layout == Layout::kTensor) return 0;
        if (layout == Layout::kRow) return i / columns;
        return i / columns / kScaleBlock * 100 + i % columns / kScaleBlock;
      };
      for (int64_t i = 0; i < rows * columns; ++i)
        p.scales.push_back(0x1p-11F * static_cast<float>(1 + group(i) % 3));
      all.push_back(std::move(p));
    };
    add("self_attn.q_proj", 256, kFp8Hidden);
    add("self_attn.k_proj", 128, kFp8Hidden);
    add("self_attn.v_proj", 128, kFp8Hidden);
    add("self_attn.o_proj", kFp8Hidden, 256);
    const auto add_mlp = [&](const std::string& prefix, int64_t inner) {
      add(prefix + "gate_proj", inner, kFp8Hidden);
      add(prefix + "up_proj", inner, kFp8Hidden);
      add(prefix + "down_proj", kFp8Hidden, inner);
    };
    if (family == Family::kLlama) add_mlp("mlp.", kFp8Inner);
    for (int64_t expert = 0; expert < kFp8Experts && family == Family::kQwen3Moe; ++expert)
      add_mlp(fmt::format("mlp.experts.{}.", expert), kFp8ExpertInner);
  }
  return all;
}

std::vector<TypedTensor> other_tensors(Family family) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  const auto matrix = [&](const std::string& name, float stddev, int64_t rows = kFp8Vocabulary) {
    TypedTensor tensor{name, DType::kF32, {rows, kFp8Hidden}, {}};
    for (int64_t i = 0; i < rows * kFp8Hidden; ++i)
      tensor.values.push_back(stddev * normal(random));
    return tensor;
  };
  std::vector<TypedTensor> tensors = {matrix("model.embed_tokens.weight", 1),
                                      matrix("lm_head.weight", 0.1F),
                                      {"model.norm.weight", DType::kF32, {kFp8Hidden}, {1}}};
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      tensors.push_back({std::string(layer) + norm, DType::kF32, {kFp8Hidden}, {1}});
    if (family == Family::kLlama) continue;
    for (const char* norm : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"})
      tensors.push_back({std::string(layer) + norm, DType::kF32, {64}, {1}});
    tensors.push_back(matrix(std::string(layer) + "mlp.gate.weight", 0.1F, kFp8Experts));
  }
  return tensors;
}

// A spelling in which checkpoints declare their format.
struct Spelling {
  const char* name;
  Layout layout;
  const char* config;  // quantization_config; null: the file hf_quant_config.json is used
  const char* scale = "weight_scale";
  DType scale_dtype = DType::kF32;
  int rank = 2;  // rank of a scale's shape
};

const char* const kModelOpt = R"({"producer": {"name": "modelopt"},
  "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})";

const Spelling kSpellings[] = {
    {"CompressedTensorsChannel", Layout::kRow,
     R"({"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
         "config_groups": {"group_0": {"targets": ["Linear"],
           "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
           "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true}}}})",
     "weight_scale", DType::kBF16},
    {"CompressedTensorsBlock", Layout::kBlock,
     R"({"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["re:.*lm_head"],
         "config_groups": {"group_0": {"targets": ["Linear"],
           "weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
           "input_activations": {"num_bits": 8, "type": "float", "strategy": "group", "dynamic": true}}}})"},
    {"Fp8Tensor", Layout::kTensor, R"({"quant_method": "fp8", "activation_scheme": "static"})",
     "weight_scale", DType::kF32, 0},
    {"Fp8Block", Layout::kBlock, R"({"quant_method": "fp8", "weight_block_size": [128, 128]})",
     "weight_scale_inv"},
    {"Fbgemm", Layout::kRow, R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})"},
    {"ModelOpt", Layout::kTensor, nullptr, "weight_scale", DType::kF32, 0},
    {"ModelOptBlock", Layout::kBlock, R"({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"})",
     "weight_scale", DType::kF32, 4},
};

TypedTensor scale_tensor(const Projection& p, const Spelling& spelling) {
  const int64_t columns = p.shape[1];
  const auto blocks = [&](int dim) { return (p.shape[dim] + kScaleBlock - 1) / kScaleBlock; };
  TypedTensor tensor{p.name + "." + spelling.scale, spelling.scale_dtype, {}, {}};
  if (spelling.layout == Layout::kTensor) {
    tensor.values = {p.scales[0]};
  } else if (spelling.layout == Layout::kRow) {
    tensor.shape = {p.shape[0], 1};
    for (int64_t row = 0; row < p.shape[0]; ++row)
      tensor.values.push_back(p.scales[static_cast<size_t>(row * columns)]);
  } else {
    tensor.shape =
        spelling.rank == 4 ? Shape{blocks(0), 1, blocks(1), 1} : Shape{blocks(0), blocks(1)};
    for (int64_t row = 0; row < p.shape[0]; row += kScaleBlock) {
      for (int64_t column = 0; column < columns; column += kScaleBlock)
        tensor.values.push_back(p.scales[static_cast<size_t>(row * columns + column)]);
    }
  }
  return tensor;
}

void write_config(const TempDir& dir, const std::string& quantization, Family family) {
  const std::string names =
      family == Family::kLlama
          ? R"("architectures": ["LlamaForCausalLM"], "model_type": "llama")"
          : fmt::format(R"("architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
    "num_experts": {}, "num_experts_per_tok": 2, "moe_intermediate_size": {}, "norm_topk_prob": true)",
                        kFp8Experts, kFp8ExpertInner);
  (void)dir.write(
      "config.json",
      fmt::format(R"({{
    {}, "hidden_size": {},
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "intermediate_size": {}, "vocab_size": {}, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-05, "torch_dtype": "float32"{}{}}})",
                  names, kFp8Hidden, kFp8Inner, kFp8Vocabulary,
                  quantization.empty() ? "" : ", \"quantization_config\": ", quantization));
}

// Writes a checkpoint in FP8 in a spelling. Projections whose name contains `float_part` stay
// floats.
void write_fp8(const TempDir& dir, const Spelling& spelling, const std::string& float_part = "none",
               Family family = Family::kLlama) {
  std::vector<TypedTensor> tensors = other_tensors(family);
  for (const Projection& p : projections(spelling.layout, family)) {
    if (p.name.find(float_part) != std::string::npos) {
      tensors.push_back({p.name + ".weight", DType::kF32, p.shape, p.numbers()});
      continue;
    }
    tensors.push_back({p.name + ".weight", DType::kFP8, p.shape, p.codes});
    tensors.push_back(scale_tensor(p, spelling));
    tensors.push_back({p.name + ".input_scale", DType::kF32, {}, {0.01F}});
  }
  write_config(dir, spelling.config == nullptr ? "" : spelling.config, family);
  if (spelling.config == nullptr) (void)dir.write("hf_quant_config.json", kModelOpt);
  (void)dir.write("model.safetensors", safetensors(tensors));
}

void write_floats(const TempDir& dir, Layout layout, Family family = Family::kLlama) {
  std::vector<TypedTensor> tensors = other_tensors(family);
  for (const Projection& p : projections(layout, family))
    tensors.push_back({p.name + ".weight", DType::kF32, p.shape, p.numbers()});
  write_config(dir, "", family);
  (void)dir.write("model.safetensors", safetensors(tensors));
}

// A model loaded from a checkpoint on the CPU.
class Loaded {
 public:
  explicit Loaded(const TempDir& dir, model::FormatOptions formats = {},
                  bool batch_invariant = false)
      : model_(*device_, model::find_model(dir.path().string()),
               options(formats, batch_invariant)) {}

  // Returns the logits of the last token of a prompt. 48 tokens are enough for activations to be in
  // FP8.
  std::vector<float> logits(int32_t num_tokens = 48) {
    Engine engine(model_, {.overlap = false});
    Request request{.max_tokens = 1};
    for (int32_t i = 0; i < num_tokens; ++i)
      request.prompt.push_back(i * 7 % kFp8Vocabulary);
    (void)engine.add(std::move(request));
    (void)engine.step([](const Generated&) {});
    std::vector<float> logits(kFp8Vocabulary);
    diagnose::read_output(model_.executor(), 1, logits.data(), kFp8Vocabulary * 4);
    return logits;
  }
  LoadedModel& model() { return model_; }

 private:
  static LoadOptions options(model::FormatOptions formats, bool batch_invariant) {
    LoadOptions options;
    options.limits = {.max_num_tokens = 64, .max_batch_size = 1, .max_q = 1, .max_seq_len = 128};
    options.graphs = runtime::Graphs::kNone;
    options.tokens = runtime::Ladder({16, 64});
    options.formats = formats;
    options.compile.batch_invariant = batch_invariant;
    return options;
  }
  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  LoadedModel model_;
};

// Returns the root mean square of the difference, relative to the root mean square of `expected`.
double error_of(const std::vector<float>& found, const std::vector<float>& expected) {
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(found[i] - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  return std::sqrt(error / size);
}

constexpr model::FormatOptions k16Bit{.activations = model::Activations::k16Bit};

// Returns the logits of a model with the same weights in float32.
const std::vector<float>& expected_logits(Layout layout, Family family = Family::kLlama) {
  static std::map<std::pair<Layout, Family>, std::vector<float>> known;
  std::vector<float>& logits = known[{layout, family}];
  if (logits.empty()) {
    const TempDir floats;
    write_floats(floats, layout, family);
    logits = Loaded(floats).logits();
  }
  return logits;
}

class Fp8Spelling : public ::testing::TestWithParam<Spelling> {};

TEST_P(Fp8Spelling, GivesTheNumbersThatItStandsFor) {
  const TempDir stored;
  write_fp8(stored, GetParam(), "layers.0.self_attn.k_proj");  // this projection stays in floats
  const std::vector<float>& expected = expected_logits(GetParam().layout);
  EXPECT_LT(error_of(Loaded(stored, k16Bit).logits(), expected), 1e-5);
  // The rounding of activations to three bits of mantissa causes an error of a few percent a
  // product, which is not zero.
  const model::FormatOptions fp8{.activations = model::Activations::kFp8};
  const double error = error_of(Loaded(stored, fp8).logits(), expected);
  EXPECT_LT(error, 0.15);
  EXPECT_GT(error, 1e-3);
}

// The router is stored as floats, as in checkpoints that list it in modules_to_not_convert or a
// similar key.
TEST_P(Fp8Spelling, GivesTheNumbersOfExperts) {
  const TempDir stored;
  write_fp8(stored, GetParam(), "none", Family::kQwen3Moe);
  EXPECT_LT(error_of(Loaded(stored, k16Bit).logits(),
                     expected_logits(GetParam().layout, Family::kQwen3Moe)),
            1e-5);
}

void expect_no_more_memory_than(const TempDir& stored) {
  const model::Checkpoint checkpoint(stored.path());
  const model::WeightFormats formats(checkpoint.config(), {}, &checkpoint);
  const ir::Graph graph = model::build_graph(
      checkpoint.config(), {.dtype = DType::kF32, .max_seq_len = 128, .formats = &formats});
  int64_t resident_bytes = 0;
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight))
    resident_bytes += graph.value(id).type.num_bytes({});
  int64_t stored_bytes = 0;
  for (const std::filesystem::path& path : checkpoint.files()) {
    const model::SafetensorsFile file(path);
    for (const std::string& name : file.names())
      stored_bytes += file.tensor(name).num_bytes();
  }
  EXPECT_LE(static_cast<double>(resident_bytes), 1.05 * static_cast<double>(stored_bytes));
}

TEST_P(Fp8Spelling, TakesNoMoreMemoryThanTheFile) {
  for (const Family family : {Family::kLlama, Family::kQwen3Moe}) {
    const TempDir stored;
    write_fp8(stored, GetParam(), "none", family);
    expect_no_more_memory_than(stored);
  }
}

INSTANTIATE_TEST_SUITE_P(Engine, Fp8Spelling, ::testing::ValuesIn(kSpellings),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Fp8Weights, AreLoadedAgainAfterSleep) {
  const TempDir dir;
  write_fp8(dir, kSpellings[2]);  // one scale for each tensor, repeated for its rows
  Loaded loaded(dir);
  const std::vector<float> before = loaded.logits();
  loaded.model().sleep(loader::SleepDepth::kKvAndWeights, {});
  loaded.model().wake();
  EXPECT_EQ(loaded.logits(), before);
}

// Floats that are quantized while they are loaded give the same weights as floats that were
// quantized before.
TEST(Fp8Weights, QuantizedAtLoadAreThoseOfAFile) {
  const TempDir floats;
  const TempDir stored;
  write_floats(floats, Layout::kTensor);
  std::vector<TypedTensor> tensors = other_tensors(Family::kLlama);
  for (const Projection& p : projections(Layout::kTensor, Family::kLlama)) {
    const std::vector<float> numbers = p.numbers();
    TypedTensor codes{p.name + ".weight", DType::kFP8, p.shape, {}};
    TypedTensor scale{p.name + ".weight_scale", DType::kF32, {p.shape[0], 1}, {}};
    for (int64_t row = 0; row < p.shape[0]; ++row) {
      const float* first = numbers.data() + row * p.shape[1];
      float largest = 0;
      for (int64_t i = 0; i < p.shape[1]; ++i)
        largest = std::max(largest, std::fabs(first[i]));
      scale.values.push_back(largest / 448);
      for (int64_t i = 0; i < p.shape[1]; ++i)
        codes.values.push_back(first[i] * (1 / scale.values.back()));
    }
    tensors.push_back(std::move(codes));
    tensors.push_back(std::move(scale));
  }
  write_config(stored, R"({"quant_method": "fbgemm_fp8"})", Family::kLlama);
  (void)stored.write("model.safetensors", safetensors(tensors));
  EXPECT_EQ(Loaded(floats, {.quantize = true}).logits(), Loaded(stored).logits());
}

// 16 rows are too few for activations in FP8, unless activations must have the same dtype at every
// number of rows.
TEST(Fp8Weights, HaveActivationsInFp8AtEverySizeWhereTheBatchMustNotShow) {
  const TempDir dir;
  write_fp8(dir, kSpellings[0]);
  EXPECT_EQ(Loaded(dir).logits(16), Loaded(dir, k16Bit).logits(16));
  EXPECT_NE(Loaded(dir, {}, true).logits(16), Loaded(dir).logits(16));
}

// Static scales round differently from the scales of each token, as a static scale is one number
// for a whole tensor.
TEST(Fp8Weights, RoundActivationsByTheScalesInTheCheckpointWhereAsked) {
  const TempDir dir;
  write_fp8(dir, kSpellings[2]);
  const std::vector<float>& expected = expected_logits(Layout::kTensor);
  const std::vector<float> found =
      Loaded(dir, {.activations = model::Activations::kStatic}).logits();
  EXPECT_LT(error_of(found, expected), 0.2);
  EXPECT_GT(error_of(found, expected), 1e-3);
  EXPECT_NE(found, Loaded(dir, {.activations = model::Activations::kFp8}).logits());
}

}  // namespace
}  // namespace encore::engine
