// A checkpoint on disk: a Hugging Face directory with config.json and weights in safetensors files, or a GGUF file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "model/config.h"
#include "model/gguf/file.h"
#include "model/safetensors.h"

namespace encore::model {

// The config and the tensors of a directory, whichever of its files holds them: model.safetensors,
// or the shards that model.safetensors.index.json lists; or those of a GGUF file, under the names
// that a directory would have them by. Opening maps the files and reads no weights. Threads: const,
// so from any thread. Lifetime: tensors point into the mapped files and die with it.
class Checkpoint {
 public:
  // Errors: those of read_config and SafetensorsFile; kModel when the weights are missing or in
  // another format, or when the index names a file outside the directory, a missing shard or a
  // missing tensor.
  explicit Checkpoint(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& dir() const { return dir_; }
  // The config, corrected by the tensors: where it says that the head is the embedding, and a file
  // has a head that differs, the file's counts.
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  // The files with the weights.
  [[nodiscard]] std::vector<std::filesystem::path> files() const;
  // Names are those of a text model by itself, such as "model.layers.0.mlp.up_proj.weight", also where
  // the checkpoint keeps it within a model of several kinds of input.
  [[nodiscard]] bool contains(std::string_view tensor_name) const;
  // Errors: kModel when no file holds it; kUnsupported, naming it and its dtype, for a dtype that
  // Encore lacks.
  [[nodiscard]] StoredTensor tensor(std::string_view tensor_name) const;
  // Finds a tensor as above. Errors: also kModel, naming both shapes, unless the shape is
  // `expected`.
  [[nodiscard]] StoredTensor tensor(std::string_view tensor_name, const Shape& expected) const;

 private:
  void open_single(const std::filesystem::path& path);
  void open_shards(const std::filesystem::path& index_path);
  // For a config that says that the head is the embedding: is there a head that differs?
  bool finds_own_head();
  [[nodiscard]] StoredTensor gguf_tensor(std::string_view tensor_name) const;

  std::filesystem::path dir_;
  std::optional<gguf::File> gguf_;
  ModelConfig config_;
  std::vector<SafetensorsFile> files_;
  // Adds the names that tensors of a text model have by themselves, where they lie within a larger
  // model.
  void add_text_names();

  struct Place {
    size_t file = 0;     // index in files_
    std::string stored;  // the tensor's name there
  };
  std::map<std::string, Place, std::less<>> places_;  // by tensor name
};

}  // namespace encore::model
