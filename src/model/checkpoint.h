// Opens a checkpoint on disk: a Hugging Face directory with config.json and safetensors files, or a
// GGUF file.
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

// Provides the config and the tensors of a checkpoint. In a directory, the tensors are in
// model.safetensors or in the shards that model.safetensors.index.json lists. The tensors of a GGUF
// file have the names that they would have in a directory. Opening a checkpoint maps the files and
// reads no weights.
// Threads: const, so any thread. Lifetime: tensors point into the mapped files and die with the
// checkpoint.
class Checkpoint {
 public:
  // Opens a checkpoint. Errors: those of read_config and SafetensorsFile; kModel when the weights
  // are missing or in another format, or when the index names a file outside the directory, a
  // missing shard or a missing tensor.
  explicit Checkpoint(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& dir() const { return dir_; }
  // Returns the config, corrected by the tensors: where it says that the head is the embedding but
  // a file has a different head, the file's head counts.
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  // Returns the paths of the files with the weights.
  [[nodiscard]] std::vector<std::filesystem::path> files() const;
  // Returns whether the checkpoint has the tensor. Names are those of a separate text model, such
  // as "model.layers.0.mlp.up_proj.weight", even if the checkpoint's model has several kinds of
  // input.
  [[nodiscard]] bool contains(std::string_view tensor_name) const;
  // Returns a tensor. Errors: kModel when no file holds it; kUnsupported, naming the tensor and its
  // dtype, for a dtype that Encore lacks.
  [[nodiscard]] StoredTensor tensor(std::string_view tensor_name) const;
  // Returns a tensor of the shape `expected`. Errors: those of tensor(tensor_name); kModel, naming
  // both shapes, for a tensor of another shape.
  [[nodiscard]] StoredTensor tensor(std::string_view tensor_name, const Shape& expected) const;

 private:
  void open_single(const std::filesystem::path& path);
  void open_shards(const std::filesystem::path& index_path);
  // Returns whether the files have a head that differs from the embedding. It is called where the
  // config says that the head is the embedding.
  bool finds_own_head();
  [[nodiscard]] StoredTensor gguf_tensor(std::string_view tensor_name) const;

  std::filesystem::path dir_;
  std::optional<gguf::File> gguf_;
  ModelConfig config_;
  std::vector<SafetensorsFile> files_;
  // Adds the names that tensors would have in a separate text model, where they belong to a model
  // of several kinds of input.
  void add_text_names();

  struct Place {
    size_t file = 0;     // index in files_
    std::string stored;  // the tensor's name in that file
  };
  std::map<std::string, Place, std::less<>> places_;  // each tensor's place, by the tensor's name
};

}  // namespace encore::model
