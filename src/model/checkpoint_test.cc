#include "model/checkpoint.h"

#include "model/checkpoint_fixture.h"

namespace encore::model {
namespace {

void expect_tiny_llama(const Checkpoint& checkpoint) {
  for (const auto& [name, shape] : tiny_llama_tensors()) {
    const StoredTensor tensor = checkpoint.tensor(name, shape);
    EXPECT_EQ(tensor.dtype, DType::kBF16) << name;
    EXPECT_EQ(tensor.num_bytes(), 2 * shape.num_elements()) << name;
  }
  EXPECT_TRUE(checkpoint.contains("lm_head.weight"));
  EXPECT_FALSE(checkpoint.contains("lm_head.bias"));
  EXPECT_EQ(checkpoint.config().architecture, "LlamaForCausalLM");
}

TEST(Checkpoint, ReadsASingleFile) {
  const TempDir dir;
  write_all(dir, tiny_llama());
  const Checkpoint checkpoint(dir.path());
  expect_tiny_llama(checkpoint);
  EXPECT_EQ(checkpoint.files().size(), 1U);
  EXPECT_EQ(
      std::to_integer<int>(checkpoint.tensor("model.layers.0.input_layernorm.weight").data[0]),
      256 % 251);
}

TEST(Checkpoint, FindsATextModelWithinAModelOfSeveralKindsOfInput) {
  for (const auto& [body, head] : {std::pair{"model.language_model.", "lm_head."},
                                   std::pair{"language_model.model.", "language_model.lm_head."}}) {
    NamedShapes nested;
    for (const auto& [name, shape] : tiny_llama_tensors()) {
      const bool is_head = name.starts_with("lm_head.");
      nested.emplace_back((is_head ? head : body) + name.substr(is_head ? 8 : 6), shape);
    }
    nested.emplace_back("vision_tower.patch.weight", Shape{2, 2});
    const TempDir dir;
    write_all(dir, {{"config.json", kTinyLlamaConfig}, {"model.safetensors", safetensors(nested)}});
    expect_tiny_llama(Checkpoint(dir.path()));
  }
}

TEST(Checkpoint, FindsTensorsInAllShards) {
  const TempDir dir;
  write_all(dir, tiny_llama_in_shards());
  const Checkpoint checkpoint(dir.path());
  expect_tiny_llama(checkpoint);
  EXPECT_EQ(checkpoint.files().size(), 2U);
  EXPECT_EQ(std::to_integer<int>(checkpoint.tensor("model.norm.weight").data[1]), 1);
}

TEST(Checkpoint, PrefersTheSingleFileWhenBothAreThere) {
  const TempDir dir;
  write_all(dir, tiny_llama_in_shards());
  write_all(dir, tiny_llama());
  EXPECT_EQ(Checkpoint(dir.path()).files().size(), 1U);
}

TEST(Checkpoint, FollowsLinksToFiles) {
  const TempDir dir;
  const TempDir blobs;
  write_all(blobs, tiny_llama());
  for (const auto& [name, bytes] : tiny_llama()) {
    std::filesystem::create_symlink(blobs.path() / name, dir.path() / name);
  }
  expect_tiny_llama(Checkpoint(dir.path()));
}

TEST(Checkpoint, NamesTheTensorAndBothShapesWhenTheyDiffer) {
  const TempDir dir;
  write_all(dir, tiny_llama());
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(error_of([&] { return checkpoint.tensor("model.norm.weight", {16}); }),
            "model: " + dir.path().string() +
                ": tensor \"model.norm.weight\" has shape [8], but config.json implies [16]");
  EXPECT_EQ(error_of([&] { return checkpoint.tensor("model.norm.bias", {16}); }),
            "model: " + dir.path().string() + ": tensor \"model.norm.bias\" is missing");
}

TEST(Checkpoint, TellsWhatToDoAboutAPathThatIsNoCheckpoint) {
  const TempDir dir;
  const auto open_error = [&](const std::filesystem::path& path) {
    return error_of([&] { return Checkpoint(path); });
  };
  EXPECT_NE(open_error(dir.path() / "no").find("no such directory; give the directory of a"),
            std::string::npos);
  EXPECT_NE(open_error(dir.write("file", "")).find("not a directory; give"), std::string::npos);
  EXPECT_NE(open_error(dir.path()).find("no config.json; a Hugging Face checkpoint has"),
            std::string::npos);
  // A folder that may not be read is no different from a link that leads nowhere.
  std::filesystem::create_symlink("config.json", dir.path() / "config.json");
  EXPECT_NE(open_error(dir.path()).find("config.json: Too many levels of symbolic links"),
            std::string::npos);
  std::filesystem::remove(dir.path() / "config.json");
  (void)dir.write("config.json", kTinyLlamaConfig);
  EXPECT_NE(open_error(dir.path())
                .find("no model.safetensors and no model.safetensors.index.json; is the download "
                      "complete?"),
            std::string::npos);
  (void)dir.write("model-00001-of-00002.safetensors", "");
  EXPECT_NE(open_error(dir.path()).find("shards need model.safetensors.index.json beside them"),
            std::string::npos);
  (void)dir.write("pytorch_model.bin", "");
  EXPECT_NE(
      open_error(dir.path()).find("pytorch_model.bin is not supported: convert it to safetensors"),
      std::string::npos);
}

}  // namespace
}  // namespace encore::model
