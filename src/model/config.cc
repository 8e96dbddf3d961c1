#include "model/config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "model/config_keys.h"
#include "model/families.h"
#include "model/gguf/metadata.h"

namespace encore::model {
namespace {

// Checks the config's architecture. Errors: kUnsupported on a head other than the language model's
// (a classifier, a bare encoder).
void check_architecture(const json::Object& config, const Family& family) {
  if (!config.has("architectures")) return;
  std::string first;
  const json::array& list = config.array_at("architectures");
  for (const json::value& entry : list) {
    if (!entry.is_string()) {
      fail(ErrorKind::kModel, "{}: key 'architectures' must hold strings", config.where());
    }
    const std::string text(entry.get_string().data(), entry.get_string().size());
    if (text == family.architecture) return;
    if (first.empty()) first = text;
  }
  if (list.empty()) return;
  fail(ErrorKind::kUnsupported, "{}: architecture {:?} is not supported; for model_type '{}': {}",
       config.where(), first.substr(0, 80), family.model_type, family.architecture);
}

// Returns the activation that the config names, or the family's default.
Activation read_activation(const json::Object& config, Activation of_family) {
  for (const std::string_view key : {"hidden_activation", "hidden_act"}) {
    if (!config.has(key)) continue;
    const std::string name = config.string_at(key);
    if (name == "silu" || name == "swish") return Activation::kSilu;
    if (name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
    fail(ErrorKind::kUnsupported,
         "{}: {} {:?} is not supported; supported: silu, gelu_pytorch_tanh", config.where(), key,
         name.substr(0, 80));
  }
  return of_family;
}

// Returns the config of the text model, for a model of several kinds of input: the object of the
// text model, and the keys outside of it that hold for all kinds. Returns the config itself if it
// has no such object.
json::value text_config(const json::Object& config) {
  json::object text = config.raw();
  if (!config.has("text_config")) return text;
  text = config.object_at("text_config").raw();
  for (const std::string_view key : {"tie_word_embeddings", "dtype", "torch_dtype", "bos_token_id",
                                     "eos_token_id", "quantization_config"}) {
    if (config.has(key) && !text.contains(key)) text[key] = config.at(key);
  }
  // `architectures` names the whole model, not the text model.
  text.erase("architectures");
  return text;
}

DType read_dtype(const json::Object& config) {
  const char* const key = config.has("dtype") ? "dtype" : "torch_dtype";
  std::string text = config.string_or(key, "bfloat16");
  if (text.starts_with("torch.")) text.erase(0, 6);
  if (text == "bfloat16") return DType::kBF16;
  if (text == "float16") return DType::kF16;
  if (text == "float32") return DType::kF32;
  fail(ErrorKind::kUnsupported,
       "{}: {} {:?} is not supported; supported: bfloat16, float16, float32", config.where(), key,
       text.substr(0, 80));
}

// Reads token ids under a key: one id, a list of ids, or null for no id.
std::vector<int32_t> token_ids_at(const json::Object& object, std::string_view key) {
  const json::value& found = object.at(key);
  std::vector<int32_t> ids;
  const auto add = [&](const json::value& id) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > kMaxTokenId) {
      fail(ErrorKind::kModel, "{}: key '{}' must hold token ids, integers from 0", object.where(),
           key);
    }
    ids.push_back(static_cast<int32_t>(id.get_int64()));
  };
  if (found.is_array()) {
    for (const json::value& id : found.get_array())
      add(id);
  } else if (!found.is_null()) {
    add(found);
  }
  return ids;
}

void read_special_tokens(const json::Object& config, const json::Object* generation_config,
                         const Family& family, ModelConfig& model) {
  const auto read = [&](std::string_view key, std::optional<int32_t> fallback) {
    if (generation_config != nullptr && generation_config->has(key)) {
      return token_ids_at(*generation_config, key);
    }
    if (present(config, key)) return token_ids_at(config, key);
    return fallback ? std::vector<int32_t>{*fallback} : std::vector<int32_t>{};
  };
  model.eos_token_ids = read("eos_token_id", family.eos_token_id);
  // An end token outside the vocabulary is never sampled, so it is removed.
  std::erase_if(model.eos_token_ids, [&](int32_t id) { return id >= model.vocab_size; });
  const std::vector<int32_t> bos = read("bos_token_id", family.bos_token_id);
  if (!bos.empty()) model.bos_token_id = bos.front();
}

void read_heads(const json::Object& config, const Family& family, ModelConfig& model) {
  model.num_heads = family.num_heads == 0
                        ? count_at(config, "num_attention_heads", kMaxHeads)
                        : count_or(config, "num_attention_heads", family.num_heads, kMaxHeads);
  const bool all_heads = family.num_kv_heads == 0 || present(config, "num_key_value_heads");
  model.num_kv_heads = count_or(config, "num_key_value_heads",
                                all_heads ? model.num_heads : family.num_kv_heads, kMaxHeads);
  if (model.num_heads % model.num_kv_heads != 0) {
    fail(ErrorKind::kModel,
         "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", config.where(),
         model.num_heads, model.num_kv_heads);
  }
  if (config.has("head_dim")) {
    model.head_dim = count_at(config, "head_dim", kMaxHeadDim);
  } else if (family.head_dim != 0) {
    model.head_dim = family.head_dim;
  } else if (model.hidden_size % model.num_heads == 0) {
    model.head_dim =
        in_range(config, "head_dim", model.hidden_size / model.num_heads, 1, kMaxHeadDim);
  } else {
    fail(ErrorKind::kModel, "{}: hidden_size {} is not a multiple of num_attention_heads {}",
         config.where(), model.hidden_size, model.num_heads);
  }
  if (model.head_dim % 2 != 0) {
    fail(ErrorKind::kModel, "{}: head_dim {} must be even", config.where(), model.head_dim);
  }
}

// Reads an optional JSON file beside config.json. Immovable, because the object refers to the
// value.
class ConfigBeside {
 public:
  explicit ConfigBeside(const std::filesystem::path& path) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return;
    value_ = json::parse_file(path);
    object_.emplace(value_, path.string());
  }
  ConfigBeside(const ConfigBeside&) = delete;
  ConfigBeside& operator=(const ConfigBeside&) = delete;

  // Returns the file's content, or null when there is no such file.
  [[nodiscard]] const json::Object* get() const { return object_ ? &*object_ : nullptr; }

 private:
  json::value value_;
  std::optional<json::Object> object_;
};

}  // namespace

ModelConfig parse_config(const json::Object& whole, const json::Object* generation_config,
                         const json::Object* hf_quant_config) {
  const json::value text = text_config(whole);
  const json::Object config(text, whole.where());
  const Family& family = family_of(config);
  check_architecture(config, family);

  ModelConfig model;
  model.architecture = family.architecture;
  model.model_type = family.model_type;
  model.layers = read_layers(config, family);
  model.hidden_size = count_at(config, "hidden_size", kMaxWidth);
  read_heads(config, family, model);
  model.intermediate_size = count_at(config, "intermediate_size", kMaxWidth);
  model.vocab_size = family.vocab_size == 0
                         ? count_at(config, "vocab_size", kMaxVocab)
                         : count_or(config, "vocab_size", family.vocab_size, kMaxVocab);
  model.max_position_embeddings =
      count_or(config, "max_position_embeddings", family.max_position_embeddings, kMaxPositions);

  model.rms_norm_eps = real_or(config, "rms_norm_eps", family.rms_norm_eps, 0);
  read_ropes(config, family, model);
  model.tie_word_embeddings = config.bool_or("tie_word_embeddings", family.ties_embeddings);
  model.dtype = read_dtype(config);
  model.quantization = read_quantization(config, hf_quant_config);
  read_special_tokens(config, generation_config, family, model);
  if (family.read != nullptr) family.read(config, model);
  model.activation = read_activation(config, model.activation);
  return model;
}

ModelConfig read_config(const std::filesystem::path& dir) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  // `problem` is the error of looking for a file that may exist, as in a folder without read
  // access.
  std::error_code problem;
  if (gguf::is_gguf(dir) && fs::exists(dir, ignored)) return gguf::read_config(gguf::File(dir));
  if (!fs::is_directory(dir, ignored)) {
    fail(ErrorKind::kModel,
         "{}: {}; give the directory of a downloaded checkpoint (config.json, *.safetensors, "
         "tokenizer.json)",
         dir.string(), fs::exists(dir, ignored) ? "not a directory" : "no such directory");
  }
  const fs::path config_path = dir / "config.json";
  if (!fs::exists(config_path, problem)) {
    if (problem) fail(ErrorKind::kModel, "{}: {}", config_path.string(), problem.message());
    for (const auto& entry : fs::directory_iterator(dir, ignored)) {
      if (gguf::is_gguf(entry.path()))
        fail(ErrorKind::kModel, "{}: no config.json; give --model the file {} itself", dir.string(),
             entry.path().filename().string());
    }
    fail(ErrorKind::kModel,
         "{}: no config.json; a Hugging Face checkpoint has config.json, *.safetensors and "
         "tokenizer.json",
         dir.string());
  }
  const json::value config_value = json::parse_file(config_path);
  const json::Object config(config_value, config_path.string());
  const ConfigBeside generation(dir / "generation_config.json");
  const ConfigBeside hf_quant(dir / "hf_quant_config.json");
  return parse_config(config, generation.get(), hf_quant.get());
}

int64_t longest_sequence(const ModelConfig& config) {
  int64_t longest = config.max_position_embeddings;
  for (const Rope& rope : config.ropes) {
    if (rope.scaling != RopeScaling::kDynamic) continue;
    const double stretched = static_cast<double>(config.max_position_embeddings) * rope.factor;
    longest = std::max(longest, static_cast<int64_t>(std::min<double>(stretched, kMaxPositions)));
  }
  return longest;
}

}  // namespace encore::model
