#include "model/lora/adapter.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "model/testing/lora_files.h"

namespace encore::model {
namespace {

constexpr int64_t kMaxRank = 8;

const std::vector<LoraModule>& two_layers() {
  static const std::vector<LoraModule> modules = {{"model.layers.0.self_attn.q_proj", 8, 6, 4},
                                                  {"model.layers.0.self_attn.v_proj", 8, 3, 4},
                                                  {"model.layers.1.self_attn.q_proj", 8, 6, 4},
                                                  {"model.layers.1.self_attn.v_proj", 8, 3, 4}};
  return modules;
}

LoraFiles good() {
  LoraFiles files = LoraFiles::random(1, two_layers());
  files.config = R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none",
                     "init_lora_weights": true, "target_modules": ["q_proj", "v_proj"]})";
  return files;
}

// Returns why the adapter is refused, or "" if it is not.
std::string problem(const LoraFiles& files, int64_t max_rank = kMaxRank) {
  const TempDir dir;
  const std::string path = files.write(dir, "adapter");
  return error_of([&] { return LoraAdapter(path, max_rank); });
}

std::string problem_with(const std::string& member) {
  LoraFiles files = good();
  files.config.insert(files.config.rfind('}'), ", " + member);
  return problem(files);
}

TEST(LoraAdapter, ReadsRanksAndScales) {
  const TempDir dir;
  const LoraAdapter adapter(good().write(dir, "a"), kMaxRank);
  ASSERT_EQ(adapter.projections().size(), 4U);
  const LoraProjection& q = adapter.projections().at("model.layers.1.self_attn.q_proj");
  EXPECT_EQ(q.rank(), 4);
  EXPECT_EQ(q.scale, 2);
  EXPECT_EQ(q.a.shape, (Shape{4, 8}));
  EXPECT_EQ(q.b.shape, (Shape{6, 4}));
  EXPECT_TRUE(adapter.targets("model.layers.7.self_attn.v_proj"));
  EXPECT_FALSE(adapter.targets("model.layers.7.self_attn.k_proj"));
}

// With use_rslora, the scale is alpha / sqrt(r), so 16 / sqrt(16) = 4. Other engines have divided
// by r, which would give 16 / 16 = 1.
TEST(LoraAdapter, ScalesRankStabilizedOnesByTheRoot) {
  LoraFiles files = LoraFiles::random(1, {{"model.layers.0.self_attn.q_proj", 8, 6, 16}});
  files.config = R"({"r": 16, "lora_alpha": 16, "use_rslora": true, "target_modules": ["q_proj"]})";
  const TempDir dir;
  const LoraAdapter adapter(files.write(dir, "a"), 16);
  EXPECT_EQ(adapter.projections().begin()->second.scale, 4);
}

TEST(LoraAdapter, TakesTheFirstPatternOfRanksAndAlphas) {
  std::vector<LoraModule> modules = two_layers();
  modules[0].rank = 2;
  modules[1].rank = 1;
  modules[3].rank = 1;
  LoraFiles files = LoraFiles::random(1, modules);
  files.config = R"({"r": 4, "lora_alpha": 8, "target_modules": ".*\\.(q|v)_proj",
      "rank_pattern": {"layers.0.self_attn.q_proj": 2, "v_proj": 1, "self_attn.v_proj": 3},
      "alpha_pattern": {"0\\.self_attn\\.(q|v)_proj": 3}})";
  const TempDir dir;
  const LoraAdapter adapter(files.write(dir, "a"), kMaxRank);
  const auto scale = [&](const char* module) { return adapter.projections().at(module).scale; };
  EXPECT_EQ(scale("model.layers.0.self_attn.q_proj"), 1.5);
  EXPECT_EQ(scale("model.layers.0.self_attn.v_proj"), 3);
  EXPECT_EQ(scale("model.layers.1.self_attn.q_proj"), 2);
  EXPECT_EQ(scale("model.layers.1.self_attn.v_proj"), 8);
}

TEST(LoraAdapter, ReadsLayersOfAModelWithinALargerOne) {
  LoraFiles files =
      LoraFiles::random(1, {{"model.language_model.layers.0.self_attn.q_proj", 8, 6, 4}});
  files.config = R"({"r": 4, "lora_alpha": 4, "target_modules": "all-linear"})";
  const TempDir dir;
  const LoraAdapter adapter(files.write(dir, "a"), kMaxRank);
  EXPECT_TRUE(adapter.projections().contains("model.layers.0.self_attn.q_proj"));
}

TEST(LoraAdapter, RefusesWhatWouldNotBeComputedAndSaysWhatToDo) {
  EXPECT_EQ(problem(good()), "");
  const std::pair<const char*, const char*> refused[] = {
      {R"("use_dora": true)", "DoRA"},
      {R"("lora_bias": true)", "bias"},
      {R"("modules_to_save": ["lm_head"])", "modules_to_save"},
      {R"("layer_replication": [[0, 2], [1, 2]])", "layers of the model are repeated"},
      {R"("alora_invocation_tokens": [1, 2])", "aLoRA"},
      {R"("trainable_token_indices": [5])", "embedding"},
      {R"("target_parameters": ["mlp.experts.gate_up_proj"])", "experts"},
      {R"("fan_in_fan_out": true)", "transposed"},
  };
  for (const auto& [member, why] : refused) {
    const std::string said = problem_with(member);
    EXPECT_NE(said.find("unsupported"), std::string::npos) << member << ": " << said;
    EXPECT_NE(said.find(why), std::string::npos) << said;
    EXPECT_NE(said.find("; "), std::string::npos) << "no remedy: " << said;
  }
  EXPECT_EQ(problem_with(R"("use_dora": false, "modules_to_save": null, "lora_dropout": 0.1)"), "");
}

TEST(LoraAdapter, RefusesInitializationsThatChangedTheModel) {
  for (const char* init : {"pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga"}) {
    LoraFiles files = good();
    replace(files.config, R"("init_lora_weights": true)",
            fmt::format(R"("init_lora_weights": "{}")", init));
    EXPECT_NE(problem(files).find(init), std::string::npos) << problem(files);
  }
  LoraFiles files = good();
  replace(files.config, R"("init_lora_weights": true)", R"("init_lora_weights": "gaussian")");
  EXPECT_EQ(problem(files), "");
}

TEST(LoraAdapter, RefusesBiasesAndOtherKindsOfAdapters) {
  LoraFiles files = good();
  replace(files.config, R"("bias": "none")", R"("bias": "lora_only")");
  EXPECT_NE(problem(files).find("lora_only"), std::string::npos);
  files = good();
  replace(files.config, "LORA", "IA3");
  EXPECT_NE(problem(files).find("IA3"), std::string::npos);
}

TEST(LoraAdapter, RefusesTensorsThatItWouldNotUse) {
  for (const char* name : {"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",
                           "base_model.model.model.embed_tokens.lora_embedding_A",
                           "base_model.model.lm_head.modules_to_save.weight",
                           "base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias",
                           "model.layers.0.self_attn.k_proj.lora_A.weight"}) {
    LoraFiles files = good();
    files.tensors.push_back({name, DType::kF32, {4, 8}, {1}});
    EXPECT_NE(problem(files).find(name), std::string::npos) << problem(files);
  }
}

// Other engines have served the unchanged model under such an adapter's name.
TEST(LoraAdapter, RefusesATargetWithoutTensors) {
  LoraFiles files = good();
  replace(files.config, R"(["q_proj", "v_proj"])", R"(["q_proj", "v_proj", "o_proj"])");
  EXPECT_NE(problem(files).find("o_proj"), std::string::npos) << problem(files);
}

TEST(LoraAdapter, RefusesHalvesAndRanksThatDoNotFit) {
  LoraFiles files = good();
  files.tensors.erase(files.tensors.begin());
  EXPECT_NE(problem(files).find("has no lora_A"), std::string::npos) << problem(files);
  files = good();
  files.tensors[1].shape = {8, 3};
  EXPECT_NE(problem(files).find("rank is 4"), std::string::npos) << problem(files);
  EXPECT_NE(problem(good(), 2).find("--max-lora-rank to 4"), std::string::npos);
}

// Returns a safetensors file of the header `header`, followed by `bytes` bytes.
std::string tensors_of(const std::string& header, size_t bytes = 0) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i)
    file[i] = static_cast<char>(header.size() >> 8 * i);
  return file + header + std::string(bytes, '\0');
}

TEST(LoraAdapter, RefusesHostileTensorsByName) {
  const std::string name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  const auto tensor = [&](const std::string& dtype, const std::string& shape, size_t bytes) {
    return tensors_of(
        fmt::format(R"({{"{}": {{"dtype": "{}", "shape": {}, "data_offsets": [0, {}]}}}})", name,
                    dtype, shape, bytes),
        bytes);
  };
  const std::pair<std::string, const char*> files[] = {
      {tensor("F32", "[4398046511104, 4398046511104]", 0), "overflows"},
      {tensor("F32", "[4398046511104, 8]", 32), "q_proj"},
      {tensor("F32", "[4398046511104, 0]", 0), "must be a matrix"},
      {tensor("F32", "[4, -8]", 0), "shape"},
      {tensor("F32", "[128]", 512), "must be a matrix"},
      {tensor("F32", "[4, 2, 4]", 128), "must be a matrix"},
      {tensor("F8_E4M3", "[4, 8]", 32), "must be a matrix"},
      {tensor("I64", "[4, 8]", 256), "must be a matrix"},
      {tensor("F64", "[4, 8]", 256), "F64"},
      {tensor("X9", "[4, 8]", 256), "X9"},
      {tensors_of("{}"), "no tensors"},
      {tensors_of("[1]"), "header"},
      {std::string(), "too few"},
      {std::string(8, '\xff'), "limit"},
      {tensors_of("{", 4), ""},
      {tensors_of(std::string(100000, '['), 4), ""},
  };
  for (const auto& [content, part] : files) {
    const TempDir dir;
    const std::string path = good().write(dir, "a");
    dir.write("a/adapter_model.safetensors", content);
    for (const FileAccess access : {FileAccess::kMapped, FileAccess::kCopied}) {
      const std::string said = error_of([&] { return LoraAdapter(path, kMaxRank, access); });
      EXPECT_NE(said, "");
      EXPECT_NE(said.find(part), std::string::npos) << said;
    }
  }
}

TEST(LoraAdapter, RefusesHostileConfigurationsAndEndsSoon) {
  const auto problem_of = [](const std::string& old, const std::string& now) {
    LoraFiles files = good();
    replace(files.config, old, now);
    return problem(files);
  };
  const std::string rank = R"("r": 4)";
  for (const char* bad : {R"("r": 1000000000000000000)", R"("r": 99999999999999999999999)",
                          R"("r": 0)", R"("r": -4)", R"("r": "4")", R"("r": 4.5)", R"("r": null)"})
    EXPECT_NE(problem_of(rank, bad), "") << bad;
  const std::string alpha = R"("lora_alpha": 8)";
  for (const char* bad : {R"("lora_alpha": 1e300)", R"("lora_alpha": -1)", R"("lora_alpha": NaN)",
                          R"("lora_alpha": "inf")"})
    EXPECT_NE(problem_of(alpha, bad), "") << bad;
  const std::string targets = R"("target_modules": ["q_proj", "v_proj"])";
  for (const char* bad :
       {R"("target_modules": 5)", R"("target_modules": {})", R"("target_modules": [["q_proj"]])",
        R"("target_modules": "((")", R"("target_modules": "(((.*)*)*)*[xyz]")",
        R"("target_modules": "")", R"("target_modules": ["q_proj", ""])"})
    EXPECT_NE(problem_of(targets, bad), "") << bad;
  EXPECT_EQ(problem_of(targets, R"("target_modules": ".*\\.(q|v)_proj")"), "");
  EXPECT_NE(problem_with(R"("rank_pattern": {"((": 4})"), "");
  EXPECT_NE(problem_with(R"("rank_pattern": {"(((.*)*)*)*[xyz]": 4})"), "");
  EXPECT_NE(problem_with(R"("rank_pattern": [4])"), "");
  LoraFiles deep = good();
  deep.config = std::string(200000, '[');
  EXPECT_NE(problem(deep), "");
}

TEST(LoraAdapter, WaitsForNoPipeAndFollowsNoLoop) {
  namespace fs = std::filesystem;
  const TempDir dir;
  fs::create_directory_symlink(dir.path() / "loop", dir.path() / "loop");
  EXPECT_NE(error_of([&] { return LoraAdapter(dir.path() / "loop", 8); }), "");
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
    const fs::path path = good().write(dir, "a");
    fs::remove(path / file);
    ASSERT_EQ(mkfifo((path / file).c_str(), 0600), 0);
    EXPECT_NE(error_of([&] { return LoraAdapter(path, 8); }).find(file), std::string::npos);
    fs::remove(path / file);
    fs::create_symlink(path / file, path / file);
    EXPECT_NE(error_of([&] { return LoraAdapter(path, 8); }).find(file), std::string::npos);
    fs::remove(path / file);
  }
}

// An adapter that was copied does not change when its file does.
TEST(LoraAdapter, IsACopyOfItsFilesWhereThatIsAskedFor) {
  const TempDir dir;
  const std::string path = good().write(dir, "a");
  const LoraAdapter mapped(path, kMaxRank);
  const std::string digest = mapped.digest();
  const LoraAdapter copied(path, kMaxRank, FileAccess::kCopied);
  EXPECT_EQ(copied.digest(), digest);
  std::filesystem::resize_file(path + "/adapter_model.safetensors", 0);
  EXPECT_EQ(copied.digest(), digest);
}

TEST(LoraAdapter, IsADirectoryWithBothFiles) {
  const TempDir dir;
  EXPECT_NE(error_of([&] { return LoraAdapter(dir.path() / "none", 8); }).find("directory"),
            std::string::npos);
  const std::string path = good().write(dir, "a");
  std::filesystem::remove(dir.path() / "a" / "adapter_model.safetensors");
  EXPECT_NE(error_of([&] { return LoraAdapter(path, 8); }), "");
}

TEST(LoraAdapter, HasADigestOfItsContentAndNotOfItsPlace) {
  const TempDir dir;
  const LoraAdapter a(good().write(dir, "a"), kMaxRank);
  const LoraAdapter same(good().write(dir, "b"), kMaxRank);
  LoraFiles other = good();
  other.tensors[0].values[3] += 1;
  const LoraAdapter changed(other.write(dir, "c"), kMaxRank);
  other = good();
  replace(other.config, R"("lora_alpha": 8)", R"("lora_alpha": 9)");
  const LoraAdapter scaled(other.write(dir, "d"), kMaxRank);
  EXPECT_EQ(a.digest(), same.digest());
  EXPECT_NE(a.digest(), changed.digest());
  EXPECT_NE(a.digest(), scaled.digest());
}

}  // namespace
}  // namespace encore::model
