#include "model/checkpoint.h"

#include "model/source.h"
#include "model/testing/checkpoint_fixture.h"

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

// Returns the tiny model's config, changed to say that the head is the embedding.
std::string tied_config() {
  std::string config = kTinyLlamaConfig;
  replace(config, "{", R"({"tie_word_embeddings": true, )");
  return config;
}

TEST(Checkpoint, TakesAHeadOfItsOwnThoughTheConfigTiesIt) {
  for (Files files : {tiny_llama(), tiny_llama_in_shards()}) {
    const TempDir dir;
    files["config.json"] = tied_config();
    write_all(dir, files);
    EXPECT_FALSE(Checkpoint(dir.path()).config().tie_word_embeddings);
    EXPECT_FALSE(find_model(dir.path().string()).config.tie_word_embeddings);
  }
}

TEST(Checkpoint, FindsAHeadThatTheIndexLeavesOut) {
  const TempDir dir;
  Files files = tiny_llama_in_shards();
  files["config.json"] = tied_config();
  replace(files["model.safetensors.index.json"], R"(, "lm_head.weight": "b.safetensors")", "");
  write_all(dir, files);
  EXPECT_FALSE(Checkpoint(dir.path()).config().tie_word_embeddings);
}

TEST(Checkpoint, StaysTiedWhereThereIsNoHeadOrTheSame) {
  NamedShapes tensors = tiny_llama_tensors();
  tensors.pop_back();  // removes the head
  const std::string without = safetensors(tensors);
  std::string same = without;
  replace_in_header(
      same, R"({"__metadata__":{"format":"pt"})",
      R"({"__metadata__":{"format":"pt","lm_head.weight":"model.embed_tokens.weight"})");
  for (const std::string& file : {without, same}) {
    const TempDir dir;
    write_all(dir, {{"config.json", tied_config()}, {"model.safetensors", file}});
    EXPECT_TRUE(Checkpoint(dir.path()).config().tie_word_embeddings);
    EXPECT_TRUE(find_model(dir.path().string()).config.tie_word_embeddings);
  }
}

TEST(Checkpoint, FindsATensorUnderTheNameThatSaveModelLeftOut) {
  NamedShapes tensors = tiny_llama_tensors();
  tensors.erase(tensors.begin());  // removes the embedding
  std::string file = safetensors(tensors);
  replace_in_header(file, R"("format":"pt")",
                    R"("format":"pt","model.embed_tokens.weight":"lm_head.weight")");
  const TempDir dir;
  write_all(dir, {{"config.json", tied_config()}, {"model.safetensors", file}});
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(checkpoint.tensor("model.embed_tokens.weight", {16, 8}).data,
            checkpoint.tensor("lm_head.weight").data);
  EXPECT_TRUE(checkpoint.config().tie_word_embeddings);
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
  // A link to itself stands for a folder that may not be read: in both cases the file system
  // reports an error.
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
