// Tests that each known or conceivable way to break a checkpoint ends with one clear line and an
// exit code, and never with a crash.
#include <random>

#include "model/checkpoint.h"
#include "model/testing/checkpoint_fixture.h"

namespace encore::model {
namespace {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kConfig = "config.json";
constexpr const char* kIndex = "model.safetensors.index.json";

struct Case {
  const char* name;
  void (*damage)(Files& files);
  const char* message;  // a part of the error's line
  ErrorKind kind = ErrorKind::kModel;
};

// Opens a checkpoint and reads each tensor that a Llama with its config has, as a loader would.
void load(const std::filesystem::path& dir) {
  const Checkpoint checkpoint(dir);
  const ModelConfig& c = checkpoint.config();
  const int64_t hidden = c.hidden_size;
  (void)checkpoint.tensor("model.embed_tokens.weight", {c.vocab_size, hidden});
  for (int64_t i = 0; i < c.num_layers(); ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    (void)checkpoint.tensor(layer + "input_layernorm.weight", {hidden});
    (void)checkpoint.tensor(layer + "self_attn.q_proj.weight", {c.q_size(), hidden});
    (void)checkpoint.tensor(layer + "self_attn.k_proj.weight", {c.kv_size(), hidden});
    (void)checkpoint.tensor(layer + "self_attn.v_proj.weight", {c.kv_size(), hidden});
    (void)checkpoint.tensor(layer + "self_attn.o_proj.weight", {hidden, c.q_size()});
    (void)checkpoint.tensor(layer + "post_attention_layernorm.weight", {hidden});
    (void)checkpoint.tensor(layer + "mlp.gate_proj.weight", {c.intermediate_size, hidden});
    (void)checkpoint.tensor(layer + "mlp.up_proj.weight", {c.intermediate_size, hidden});
    (void)checkpoint.tensor(layer + "mlp.down_proj.weight", {hidden, c.intermediate_size});
  }
  (void)checkpoint.tensor("model.norm.weight", {hidden});
  if (!c.tie_word_embeddings) (void)checkpoint.tensor("lm_head.weight", {c.vocab_size, hidden});
  for (const Rope& rope : c.ropes)
    EXPECT_FALSE(inv_freq(rope, c.head_dim, c.max_position_embeddings).empty());
}

void header(Files& files, const std::string& from, const std::string& to) {
  replace_in_header(files[kWeights], from, to);
}

void config(Files& files, const std::string& from, const std::string& to) {
  replace(files[kConfig], from, to);
}

const Case kFileCases[] = {
    {"EmptyFile", [](Files& f) { f[kWeights] = ""; }, "0 bytes are too few"},
    {"CutInTheLength", [](Files& f) { f[kWeights].resize(7); }, "7 bytes are too few"},
    {"CutInTheHeader", [](Files& f) { f[kWeights].resize(100); },
     "but the file has 100: truncated?"},
    {"CutInTheBuffer", [](Files& f) { f[kWeights].pop_back(); },
     "tensor \"lm_head.weight\" ends at byte 1520, but the file holds 1519: truncated?"},
    {"BytesAfterTheLastTensor", [](Files& f) { f[kWeights] += "xyz"; },
     "3 bytes after the last tensor belong to none"},
    {"HugeHeader", [](Files& f) { f[kWeights].replace(0, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f"); },
     "a header of 9223372036854775807 bytes is above the format's limit"},
    {"HeaderLengthWithTheTopBit", [](Files& f) { f[kWeights].replace(0, 8, 8, '\xff'); },
     "a header of 18446744073709551615 bytes is above the format's limit"},
    {"HeaderOf99Megabytes",
     [](Files& f) { f[kWeights].replace(0, 8, std::string("\xc0\x9e\xe6\x05\0\0\0\0", 8)); },
     "truncated?"},
    {"EmptyHeader", [](Files& f) { f[kWeights] = safetensors("", ""); },
     "the header must begin with '{'"},
    {"HeaderThatIsAnArray", [](Files& f) { f[kWeights] = safetensors("[]", ""); },
     "the header must begin with '{'"},
    {"HeaderCutByAByte", [](Files& f) { f[kWeights][0] = static_cast<char>(f[kWeights][0] - 1); },
     "header: invalid JSON at byte"},
    {"HeaderWithBadUtf8", [](Files& f) { header(f, "lm_head", "lm_h\xff\xff"); },
     "header: invalid JSON at byte"},
    {"DeepHeader",
     [](Files& f) { f[kWeights] = safetensors("{\"a\":" + std::string(100000, '['), ""); },
     "header: invalid JSON at byte"},
    {"DuplicateTensor", [](Files& f) { header(f, "lm_head.weight", "model.norm.weight"); },
     "key \"model.norm.weight\" occurs twice"},
    {"DuplicateKeyOfATensor",
     [](Files& f) { header(f, "\"dtype\":\"BF16\"", "\"shape\":[],\"dtype\":\"BF16\""); },
     "key \"shape\" occurs twice"},
    {"MetadataThatIsNoString", [](Files& f) { header(f, "\"pt\"", "{\"a\":1}"); },
     "'__metadata__': key \"format\" must be a string"},
    {"MetadataThatIsNoObject", [](Files& f) { header(f, "{\"format\":\"pt\"}", "[]"); },
     "key '__metadata__' must be an object"},
    {"TensorThatIsNoObject", [](Files& f) { f[kWeights] = safetensors("{\"a\":3}", ""); },
     "tensor \"a\": must be a JSON object, not an integer"},
    {"NoDtype", [](Files& f) { header(f, "\"dtype\":\"BF16\",", ""); }, "key 'dtype' is missing"},
    {"UnknownDtype", [](Files& f) { header(f, "BF16", "BF17"); },
     "tensor \"model.embed_tokens.weight\": unknown dtype \"BF17\""},
    {"DtypeThatIsNoString", [](Files& f) { header(f, "\"BF16\"", "16"); },
     "key 'dtype' must be a string"},
    {"UnsupportedDtype", [](Files& f) { header(f, "BF16", "U16"); },
     "tensor \"model.embed_tokens.weight\" has dtype U16; supported: BF16",
     ErrorKind::kUnsupported},
    {"NoShape", [](Files& f) { header(f, "\"shape\":[16,8],", ""); }, "key 'shape' is missing"},
    {"ShapeThatIsNoArray", [](Files& f) { header(f, "[16,8]", "128"); },
     "'shape' must be an array"},
    {"NegativeDim", [](Files& f) { header(f, "[16,8]", "[-16,-8]"); },
     "'shape' must hold non-negative integers"},
    {"FractionalDim", [](Files& f) { header(f, "[16,8]", "[16.0,8]"); },
     "'shape' must hold non-negative integers"},
    {"DimThatIsAString", [](Files& f) { header(f, "[16,8]", "[\"16\",8]"); },
     "'shape' must hold non-negative integers"},
    {"OverflowingShape", [](Files& f) { header(f, "[16,8]", "[4611686018427387904,8]"); },
     "the shape's size overflows"},
    {"RankOfSix", [](Files& f) { header(f, "[16,8]", "[16,8,1,1,1,1]"); }, "rank 6 is above 5"},
    {"ShapeAgainstOffsets", [](Files& f) { header(f, "[16,8]", "[16,9]"); },
     "has 256 bytes, but its shape of BF16 needs 288"},
    {"DtypeAgainstOffsets", [](Files& f) { header(f, "BF16", "F32"); },
     "has 256 bytes, but its shape of F32 needs 512"},
    {"NoOffsets", [](Files& f) { header(f, ",\"data_offsets\":[0,256]", ""); },
     "key 'data_offsets' is missing"},
    {"OneOffset", [](Files& f) { header(f, "[0,256]", "[0]"); }, "'data_offsets' must hold two"},
    {"NegativeOffset", [](Files& f) { header(f, "[0,256]", "[-256,0]"); },
     "'data_offsets' must hold non-negative integers"},
    {"OffsetAbove63Bits", [](Files& f) { header(f, "[0,256]", "[0,18446744073709551615]"); },
     "'data_offsets' must hold non-negative integers"},
    {"OffsetsReversed", [](Files& f) { header(f, "[0,256]", "[256,0]"); },
     "begins at byte 256, after its end at 0"},
    {"OffsetsBeyondTheFile",
     [](Files& f) { header(f, "[0,256]", "[9223372036854775551,9223372036854775807]"); }, "a hole"},
    {"OverlappingTensors", [](Files& f) { header(f, "[256,272]", "[240,256]"); }, "they overlap"},
    {"TwoTensorsInOnePlace", [](Files& f) { header(f, "[464,528]", "[400,464]"); }, "they overlap"},
    {"HoleBetweenTensors", [](Files& f) { header(f, "[0,256]", "[0,240]"); }, "has 240 bytes"},
    {"HoleAtTheFront",
     [](Files& f) {
       f[kWeights] = safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy");
     },
     "tensor \"a\" begins at byte 1, but the tensors before it end at 0: a hole"},
    {"GitLfsPointer",
     [](Files& f) { f[kWeights] = "version https://git-lfs.github.com/spec/v1\n"; },
     "a git-lfs pointer, not the weights: run 'git lfs pull'"},
    {"PickleUnderTheName", [](Files& f) { f[kWeights] = "PK\x03\x04 a zip archive of tensors"; },
     "is above the format's limit"},
    {"MissingTensor", [](Files& f) { header(f, "lm_head.weight", "lm_head.height"); },
     "tensor \"lm_head.weight\" is missing"},
    {"TransposedTensor", [](Files& f) { header(f, "[16,8]", "[8,16]"); },
     "has shape [8, 16], but config.json implies [16, 8]"},
    {"FlatTensor", [](Files& f) { header(f, "[16,8]", "[128]"); },
     "has shape [128], but config.json"},
    {"NoWeights", [](Files& f) { f.erase(kWeights); }, "no model.safetensors and no"},
    {"OnlyPickledWeights",
     [](Files& f) {
       f.erase(kWeights);
       f["pytorch_model.bin"] = "PK";
     },
     "convert it to safetensors"},
};

const Case kConfigCases[] = {
    {"NoConfig", [](Files& f) { f.erase(kConfig); }, "no config.json"},
    {"EmptyConfig", [](Files& f) { f[kConfig] = ""; }, "config.json: invalid JSON at byte 0"},
    {"CutConfig", [](Files& f) { f[kConfig].resize(200); },
     "config.json: invalid JSON at byte 200"},
    {"ConfigThatIsAList", [](Files& f) { f[kConfig] = "[]"; }, "must be a JSON object"},
    {"DuplicateConfigKey", [](Files& f) { config(f, "\"vocab_size\"", "\"hidden_size\""); },
     "key \"hidden_size\" occurs twice"},
    {"MissingSize", [](Files& f) { config(f, "\"vocab_size\": 16,", ""); },
     "key 'vocab_size' is missing"},
    {"SizeThatIsAString",
     [](Files& f) { config(f, "\"hidden_size\": 8", "\"hidden_size\": \"8\""); },
     "key 'hidden_size' must be an integer, not a string"},
    {"ZeroLayers", [](Files& f) { config(f, "layers\": 1", "layers\": 0"); },
     "key 'num_hidden_layers' must be between 1 and 16384, not 0"},
    {"NegativeHeads", [](Files& f) { config(f, "attention_heads\": 2", "attention_heads\": -2"); },
     "key 'num_attention_heads' must be between 1 and 65536, not -2"},
    {"HugeVocabulary",
     [](Files& f) { config(f, "\"vocab_size\": 16", "\"vocab_size\": 9000000000000000000"); },
     "key 'vocab_size' must be between 1 and 268435456"},
    {"SizeAbove63Bits",
     [](Files& f) { config(f, "\"vocab_size\": 16", "\"vocab_size\": 18446744073709551615"); },
     "key 'vocab_size' is too large"},
    {"HeadsThatDoNotDivide",
     [](Files& f) { config(f, "key_value_heads\": 1", "key_value_heads\": 3"); },
     "num_attention_heads 2 is not a multiple of num_key_value_heads 3"},
    {"HiddenSizeThatDoesNotDivide",
     [](Files& f) { config(f, "\"hidden_size\": 8", "\"hidden_size\": 9"); },
     "hidden_size 9 is not a multiple of num_attention_heads 2"},
    {"OddHeadDim", [](Files& f) { config(f, "\"vocab_size\"", "\"head_dim\": 3, \"vocab_size\""); },
     "head_dim 3 must be even"},
    {"NegativeEps", [](Files& f) { config(f, "1e-05", "-1e-05"); },
     "key 'rms_norm_eps' must be a finite number"},
    {"EpsAboveAFloat", [](Files& f) { config(f, "1e-05", "1e300"); },
     "key 'rms_norm_eps' must be a finite number"},
    {"EpsThatIsNaN", [](Files& f) { config(f, "1e-05", "NaN"); }, "invalid JSON"},
    {"ThetaAboveADouble", [](Files& f) { config(f, "500000.0", "1e999"); }, "1e999 is too large"},
    {"ThetaOfZero", [](Files& f) { config(f, "500000.0", "0"); }, "key 'rope_theta' must be"},
    {"RopeFactorOfZero", [](Files& f) { config(f, "\"factor\": 8.0", "\"factor\": 0"); },
     "'rope_scaling': key 'factor' must be a finite number"},
    {"NoRopeFactor", [](Files& f) { config(f, "\"factor\": 8.0,", ""); },
     "key 'factor' is missing"},
    {"RopeFactorsReversed",
     [](Files& f) { config(f, "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 4"); },
     "key 'high_freq_factor' must be above 'low_freq_factor'"},
    {"RopeScalingThatIsAString",
     [](Files& f) {
       config(f, "\"vocab_size\"", "\"rope_parameters\": \"x\", \"vocab_size\"");
       config(f, "rope_scaling", "unused");
     },
     "key 'rope_parameters' must be an object"},
    {"UnknownRopeType", [](Files& f) { config(f, "llama3", "warp"); },
     "rope_type \"warp\" is not supported; supported: default, linear, llama3, yarn, dynamic, "
     "longrope",
     ErrorKind::kUnsupported},
    {"UnknownModelType", [](Files& f) { config(f, "\"llama\"", "\"gpt2\""); },
     "model_type \"gpt2\" is not supported", ErrorKind::kUnsupported},
    {"UnknownArchitecture", [](Files& f) { config(f, "LlamaForCausalLM", "LlamaModel"); },
     "architecture \"LlamaModel\" is not supported", ErrorKind::kUnsupported},
    {"UnknownActivation", [](Files& f) { config(f, "\"silu\"", "\"gelu\""); },
     "hidden_act \"gelu\" is not supported", ErrorKind::kUnsupported},
    {"UnknownDtypeName", [](Files& f) { config(f, "bfloat16", "float8_e4m3fn"); },
     "torch_dtype \"float8_e4m3fn\" is not supported", ErrorKind::kUnsupported},
    {"Quantized",
     [](Files& f) { config(f, "\"vocab_size\"", "\"quantization_config\": {}, \"vocab_size\""); },
     "quant_method absent is not supported", ErrorKind::kUnsupported},
    {"EosThatIsAString", [](Files& f) { config(f, "[2, 3]", "\"</s>\""); },
     "key 'eos_token_id' must hold token ids"},
    {"NegativeEos", [](Files& f) { config(f, "[2, 3]", "[2, -1]"); },
     "key 'eos_token_id' must hold token ids"},
    {"BadGenerationConfig", [](Files& f) { f["generation_config.json"] = "{"; },
     "generation_config.json: invalid JSON"},
    {"ConfigOfAnotherModel",
     [](Files& f) { config(f, "\"intermediate_size\": 12", "\"intermediate_size\": 24"); },
     "mlp.gate_proj.weight\" has shape [12, 8], but config.json implies [24, 8]"},
    {"MoreLayersThanWeights", [](Files& f) { config(f, "layers\": 1", "layers\": 2"); },
     "tensor \"model.layers.1.input_layernorm.weight\" is missing"},
};

const Case kShardCases[] = {
    {"IndexThatIsNoJson", [](Files& f) { f[kIndex] = "weights"; },
     "index.json: invalid JSON at byte 0"},
    {"NoWeightMap", [](Files& f) { replace(f[kIndex], "weight_map", "map"); },
     "key 'weight_map' is missing"},
    {"EmptyWeightMap", [](Files& f) { f[kIndex] = "{\"weight_map\": {}}"; },
     "'weight_map' is empty"},
    {"NumberAsShard", [](Files& f) { replace(f[kIndex], "\"b.safetensors\"", "2"); },
     "must map to a file name"},
    {"ParentInTheIndex", [](Files& f) { replace(f[kIndex], "\"b.saf", "\"../b.saf"); },
     "which is not a plain file name"},
    {"ParentAsShard", [](Files& f) { replace(f[kIndex], "b.safetensors", ".."); },
     "maps to \"..\", which is not a plain file name"},
    {"AbsolutePathInTheIndex", [](Files& f) { replace(f[kIndex], "b.safetensors", "/etc/passwd"); },
     "maps to \"/etc/passwd\", which is not a plain file name"},
    {"FolderInTheIndex", [](Files& f) { replace(f[kIndex], "\"b.saf", "\"sub\\\\b.saf"); },
     "which is not a plain file name"},
    {"NulInTheIndex", [](Files& f) { replace(f[kIndex], "\"b.saf", "\"b\\u0000.saf"); },
     "which is not a plain file name"},
    {"EmptyShardName", [](Files& f) { replace(f[kIndex], "b.safetensors", ""); },
     "maps to \"\", which is not a plain file name"},
    {"MissingShard", [](Files& f) { f.erase("b.safetensors"); },
     "shard \"b.safetensors\" is missing (1 of 2 are): is the download complete?"},
    {"TensorNotInItsShard",
     [](Files& f) { replace(f[kIndex], "\"lm_head.weight\": \"b", "\"lm_head.weight\": \"a"); },
     "tensor \"lm_head.weight\" is not in its shard a.safetensors"},
    {"TensorNotInTheIndex",
     [](Files& f) { replace(f[kIndex], ", \"lm_head.weight\": \"b.safetensors\"", ""); },
     "tensor \"lm_head.weight\" is missing"},
    {"DuplicateTensorInTheIndex",
     [](Files& f) { replace(f[kIndex], "\"lm_head.weight\"", "\"model.norm.weight\""); },
     "key \"model.norm.weight\" occurs twice"},
    {"CutShard", [](Files& f) { f["b.safetensors"].pop_back(); },
     "b.safetensors: tensor \"lm_head"},
};

void expect_one_clear_error(const Files& intact, const Case& c) {
  SCOPED_TRACE(c.name);
  Files files = intact;
  c.damage(files);
  const TempDir dir;
  write_all(dir, files);
  try {
    load(dir.path());
    ADD_FAILURE() << "loaded";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), c.kind) << message;
    EXPECT_EQ(exit_code(error.kind()), c.kind == ErrorKind::kModel ? 3 : 4);
    EXPECT_NE(message.find(c.message), std::string::npos) << message;
    EXPECT_EQ(message.find(dir.path().string()), 0U) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), dir.path().string().size() + 300);
  }
}

TEST(MalformedCheckpoint, LoadsWhenItIsIntact) {
  for (const Files& files : {tiny_llama(), tiny_llama_in_shards()}) {
    const TempDir dir;
    write_all(dir, files);
    EXPECT_EQ(error_of([&] { return load(dir.path()), 0; }), "");
  }
}

TEST(MalformedCheckpoint, GivesOneClearErrorForABrokenFile) {
  for (const Case& c : kFileCases)
    expect_one_clear_error(tiny_llama(), c);
}

TEST(MalformedCheckpoint, GivesOneClearErrorForABrokenConfig) {
  for (const Case& c : kConfigCases)
    expect_one_clear_error(tiny_llama(), c);
}

TEST(MalformedCheckpoint, GivesOneClearErrorForABrokenIndex) {
  for (const Case& c : kShardCases)
    expect_one_clear_error(tiny_llama_in_shards(), c);
}

TEST(MalformedCheckpoint, SurvivesRandomDamageToConfigAndIndex) {
  std::mt19937 random(20250102);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  static constexpr std::string_view kCharacters = "0123456789-.eE\"{}[],:ntx/\\ \n\xff";
  const Files intact = tiny_llama_in_shards();
  const TempDir dir;
  write_all(dir, intact);
  int num_errors = 0;
  for (int round = 0; round < 3000; ++round) {
    const char* const name = round % 2 == 0 ? kConfig : kIndex;
    std::string text = intact.at(name);
    for (size_t change = below(3) + 1; change > 0; --change) {
      const size_t place = below(text.size());
      if (below(4) == 0) {
        text.erase(place, 1 + below(8));
      } else {
        text[place] = kCharacters[below(kCharacters.size())];
      }
    }
    (void)dir.write(name, text);
    const std::string error = error_of([&] { return load(dir.path()), 0; });
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    num_errors += error.empty() ? 0 : 1;
    (void)dir.write(name, intact.at(name));
  }
  EXPECT_GT(num_errors, 1500);
}

}  // namespace
}  // namespace encore::model
