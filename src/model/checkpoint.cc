#include "model/checkpoint.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/json.h"
#include "model/gguf/metadata.h"

namespace encore::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kEmbeddingName = "model.embed_tokens.weight";
constexpr std::string_view kHeadName = "lm_head.weight";

// Returns whether `name` stays inside the directory that it is appended to.
bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.size() > 255) return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
  });
}

// Returns a shape as config files and error messages write it: "[2, 3]".
std::string text_of(const Shape& shape) {
  std::string text;
  for (const int64_t dim : shape)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", dim);
  return "[" + text + "]";
}

[[noreturn]] void no_weights(const fs::path& dir) {
  bool has_pickle = false;
  bool has_gguf = false;
  bool has_shard = false;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    const fs::path name = entry.path().filename();
    has_pickle |= name.string().starts_with("pytorch_model") || name.extension() == ".pth";
    has_gguf |= name.extension() == ".gguf";
    has_shard |= name.extension() == ".safetensors";
  }
  std::string remedy = "is the download complete?";
  if (has_pickle) {
    remedy =
        "pytorch_model.bin is not supported: convert it to safetensors (transformers: "
        "save_pretrained)";
  } else if (has_gguf) {
    remedy = "give --model the *.gguf file itself";
  } else if (has_shard) {
    remedy = fmt::format("safetensors shards need {} beside them", kIndexName);
  }
  fail(ErrorKind::kModel, "{}: no {} and no {}; {}", dir.string(), kSingleName, kIndexName, remedy);
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& dir) : dir_(dir) {
  if (gguf::is_gguf(dir)) {
    gguf_.emplace(dir);
    config_ = gguf::read_config(*gguf_);
    return;
  }
  config_ = read_config(dir);
  std::error_code ignored;
  if (fs::exists(dir / kSingleName, ignored)) {
    open_single(dir / kSingleName);
  } else if (fs::exists(dir / kIndexName, ignored)) {
    open_shards(dir / kIndexName);
  } else {
    no_weights(dir);
  }
  add_text_names();
  if (config_.tie_word_embeddings) config_.tie_word_embeddings = !finds_own_head();
}

void Checkpoint::open_single(const fs::path& path) {
  files_.emplace_back(path);
  for (const std::string& tensor_name : files_.front().names())
    places_.emplace(tensor_name, Place{0, tensor_name});
}

void Checkpoint::add_text_names() {
  constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
      {"model.language_model.", "model."},
      {"language_model.model.", "model."},
      {"language_model.lm_head.", "lm_head."},
  };
  std::map<std::string, Place, std::less<>> own;
  for (const auto& [name, place] : places_) {
    for (const auto& [inside, alone] : kPrefixes) {
      if (name.starts_with(inside))
        own.emplace(fmt::format("{}{}", alone, name.substr(inside.size())), place);
    }
  }
  places_.merge(own);
}

void Checkpoint::open_shards(const fs::path& index_path) {
  const std::string where = index_path.string();
  const json::value index_value = json::parse_file(index_path);
  const json::Object index(index_value, where);
  const json::Object weight_map = index.object_at("weight_map");

  std::map<std::string, size_t> shards;  // maps a file's name to its index in files_
  for (const auto& [key, value] : weight_map.raw()) {
    const std::string tensor_name(key.data(), key.size());
    if (!value.is_string()) {
      fail(ErrorKind::kModel, "{}: tensor {:?} must map to a file name", where,
           tensor_name.substr(0, 200));
    }
    const std::string file_name(value.get_string().data(), value.get_string().size());
    if (!is_plain_file_name(file_name)) {
      fail(ErrorKind::kModel, "{}: tensor {:?} maps to {:?}, which is not a plain file name", where,
           tensor_name.substr(0, 200), file_name.substr(0, 200));
    }
    shards.try_emplace(file_name, 0);
  }
  if (shards.empty()) fail(ErrorKind::kModel, "{}: key 'weight_map' is empty", where);

  std::error_code ignored;
  const auto is_missing = [&](const auto& shard) {
    return !fs::exists(dir_ / shard.first, ignored);
  };
  const auto missing = std::find_if(shards.begin(), shards.end(), is_missing);
  if (missing != shards.end()) {
    fail(ErrorKind::kModel, "{}: shard {:?} is missing ({} of {} are): is the download complete?",
         where, missing->first, std::count_if(shards.begin(), shards.end(), is_missing),
         shards.size());
  }
  for (auto& [file_name, number] : shards) {
    number = files_.size();
    files_.emplace_back(dir_ / file_name);
  }
  for (const auto& [key, value] : weight_map.raw()) {
    const std::string tensor_name(key.data(), key.size());
    const size_t number = shards.at(value.get_string().c_str());
    if (!files_[number].contains(tensor_name)) {
      fail(ErrorKind::kModel, "{}: tensor {:?} is not in its shard {}", where,
           tensor_name.substr(0, 200), files_[number].path().filename().string());
    }
    places_.emplace(tensor_name, Place{number, tensor_name});
  }
}

bool Checkpoint::finds_own_head() {
  // An index may leave out tensors that it takes to be tied, so all files are searched for the head
  // and the embedding.
  for (size_t number = 0; number < files_.size(); ++number) {
    for (const std::string_view name : {kHeadName, kEmbeddingName})
      if (files_[number].contains(name))
        places_.try_emplace(std::string(name), Place{number, std::string(name)});
  }
  if (!contains(kHeadName) || !contains(kEmbeddingName)) return false;
  const StoredTensor head = tensor(kHeadName);
  const StoredTensor embedding = tensor(kEmbeddingName);
  return head.dtype != embedding.dtype || head.shape != embedding.shape ||
         std::memcmp(head.data, embedding.data, head.num_bytes()) != 0;
}

std::vector<fs::path> Checkpoint::files() const {
  if (gguf_) return gguf_->paths();
  std::vector<fs::path> paths;
  for (const SafetensorsFile& file : files_)
    paths.push_back(file.path());
  return paths;
}

// Returns a tensor of a GGUF file: plain numbers in the file's dtype, or blocks, which stand for
// f32.
StoredTensor Checkpoint::gguf_tensor(std::string_view tensor_name) const {
  const gguf::File& file = *gguf_;
  const auto found = file.tensors().find(gguf::tensor_name(tensor_name));
  if (found == file.tensors().end())
    fail(ErrorKind::kModel, "{}: tensor {:?} is missing", file.path().string(), tensor_name);
  const gguf::Tensor& tensor = found->second;
  const std::string_view format = tensor.format->name;
  if (tensor.format->widen == nullptr) {
    fail(ErrorKind::kUnsupported,
         "{}: tensor {:?} is in {}, which is not read; take a file in F32, F16, BF16, Q8_0, Q4_0, "
         "Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K",
         file.path().string(), found->first, format);
  }
  StoredTensor stored{DType::kF32, tensor.shape, tensor.data};
  if (format == "F16") {
    stored.dtype = DType::kF16;
  } else if (format == "BF16") {
    stored.dtype = DType::kBF16;
  } else if (format != "F32") {
    stored.blocks = tensor.format;
  }
  if (config_.model_type == "llama") {
    const bool is_q = tensor_name.find(".q_proj.") != std::string_view::npos;
    const bool is_k = tensor_name.find(".k_proj.") != std::string_view::npos;
    const int64_t heads = is_q ? config_.num_heads : is_k ? config_.num_kv_heads : 0;
    if (heads > 0 && stored.shape[0] % (2 * heads) == 0) stored.interleaved_heads = heads;
  }
  return stored;
}

bool Checkpoint::contains(std::string_view tensor_name) const {
  if (gguf_) return gguf_->has_tensor(gguf::tensor_name(tensor_name));
  return places_.find(tensor_name) != places_.end();
}

StoredTensor Checkpoint::tensor(std::string_view tensor_name) const {
  if (gguf_) return gguf_tensor(tensor_name);
  const auto found = places_.find(tensor_name);
  if (found == places_.end()) {
    fail(ErrorKind::kModel, "{}: tensor {:?} is missing", dir_.string(), tensor_name);
  }
  const Place& place = found->second;
  return files_[place.file].tensor(place.stored);
}

StoredTensor Checkpoint::tensor(std::string_view tensor_name, const Shape& expected) const {
  const StoredTensor found = tensor(tensor_name);
  if (found.shape != expected) {
    fail(ErrorKind::kModel, "{}: tensor {:?} has shape {}, but config.json implies {}",
         dir_.string(), tensor_name, text_of(found.shape), text_of(expected));
  }
  return found;
}

}  // namespace encore::model
