#include "model/source.h"

#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "model/checkpoint.h"

namespace encore::model {
namespace {

constexpr std::string_view kSyntheticPrefix = "synthetic:";
constexpr std::string_view kFp8Suffix = ":fp8";

// Reads the config of a directory, whose weights may be absent. If they are present, they decide
// whether the head is the embedding.
ModelConfig config_of(const std::filesystem::path& dir) {
  ModelConfig config = read_config(dir);
  std::error_code ignored;
  const bool has_weights = std::filesystem::exists(dir / "model.safetensors", ignored) ||
                           std::filesystem::exists(dir / "model.safetensors.index.json", ignored);
  if (!config.tie_word_embeddings || !has_weights) return config;
  config.tie_word_embeddings = Checkpoint(dir).config().tie_word_embeddings;
  if (!config.tie_word_embeddings) {
    log::warning(
        "{} says that lm_head.weight is the embedding (tie_word_embeddings), and the checkpoint "
        "has another: its own is used; set the key to false there",
        (dir / "config.json").string());
  }
  return config;
}

}  // namespace

ModelSource find_model(const std::string& name) {
  if (name.rfind(kSyntheticPrefix, 0) != 0) return {config_of(name), name};
  std::string shape = name.substr(kSyntheticPrefix.size());
  const bool is_fp8 = shape.ends_with(kFp8Suffix);
  if (is_fp8) shape.resize(shape.size() - kFp8Suffix.size());
  if (auto config = preset(shape)) {
    if (is_fp8) config->quantization = quantized_at_load();
    return {*config, std::nullopt};
  }
  const std::filesystem::path path(shape);
  if (path.filename() == "config.json")
    return {read_config(path.has_parent_path() ? path.parent_path() : "."), std::nullopt};
  std::string known;
  for (const std::string_view preset : preset_names())
    known += fmt::format(" {}", preset);
  fail(ErrorKind::kUsage,
       "no synthetic model '{}': give a path to a config.json, or one of{}, and {} behind it for "
       "weights in FP8",
       shape, known, kFp8Suffix);
}

}  // namespace encore::model
