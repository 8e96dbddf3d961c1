#include "model/lora/adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <sodium.h>

#include <fmt/ranges.h>

#include "base/json.h"
#include "base/log.h"
#include "model/config_keys.h"

namespace encore::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigName = "adapter_config.json";
constexpr std::string_view kTensorsName = "adapter_model.safetensors";
constexpr std::string_view kMerge =
    "merge it into the model (PEFT: merge_and_unload, then save_pretrained) and serve the result";
constexpr std::string_view kTrainAnew = "train or save the adapter without it";

// Returns whether the value switches a feature off.
bool is_off(const json::value& value) {
  return value.is_null() || (value.is_bool() && !value.get_bool()) ||
         (value.is_array() && value.get_array().empty()) ||
         (value.is_object() && value.get_object().empty());
}

// Describes a key that is refused because its feature is more than A and B of projections: what the
// feature does, and the user's remedy.
struct RefusedKey {
  std::string_view key;
  std::string_view what;
  std::string_view remedy;
};
constexpr RefusedKey kRefusedKeys[] = {
    {"use_dora", "DoRA rescales the model's own weights", kMerge},
    {"lora_bias", "a bias of B is added", kTrainAnew},
    {"modules_to_save", "whole modules are replaced", kMerge},
    {"layer_replication", "layers of the model are repeated", kMerge},
    {"alora_invocation_tokens", "it begins at some tokens of a prompt (aLoRA)", kTrainAnew},
    {"trainable_token_indices", "rows of the embedding are replaced", kMerge},
    {"target_parameters", "it changes parameters that are no projections, as of experts", kMerge},
    {"fan_in_fan_out", "its matrices are transposed", kTrainAnew},
    {"use_qalora", "QALoRA pools what A reads", kTrainAnew},
    {"use_bdlora", "its matrices are block-diagonal", kTrainAnew},
    {"arrow_config", "it is a router of several adapters", kTrainAnew},
    {"megatron_config", "it was trained with Megatron's layers", kTrainAnew},
};
// Keys of adapter_config.json that are accepted with any value here: those that are read elsewhere,
// and those that do not affect the computation. Unknown keys that are set are warned about.
constexpr std::string_view kKnownKeys[] = {"peft_type",
                                           "r",
                                           "lora_alpha",
                                           "use_rslora",
                                           "rank_pattern",
                                           "alpha_pattern",
                                           "bias",
                                           "init_lora_weights",
                                           "target_modules",
                                           "exclude_modules",
                                           "layers_to_transform",
                                           "layers_pattern",
                                           "lora_dropout",
                                           "task_type",
                                           "inference_mode",
                                           "base_model_name_or_path",
                                           "revision",
                                           "auto_mapping",
                                           "peft_version",
                                           "megatron_core",
                                           "qalora_group_size",
                                           "loftq_config",
                                           "eva_config",
                                           "corda_config",
                                           "lora_ga_config",
                                           "runtime_config",
                                           "ensure_weight_tying"};
// The values of init_lora_weights that leave the model's weights as they are.
constexpr std::string_view kPlainInits[] = {"gaussian", "eva", "orthogonal", "default"};

// Returns a pattern of modules whose names end with `key`, as PEFT's get_pattern_key matches them.
ModulePattern suffix_pattern(std::string_view key) {
  return {ModulePattern::Kind::kRegex, fmt::format("(?:.*\\.)?(?:{})$", key)};
}

// Reads the patterns of modules: names, or a regular expression for the whole name.
std::vector<ModulePattern> module_patterns(const json::value& value) {
  using Kind = ModulePattern::Kind;
  if (value.is_string())
    return {{Kind::kRegex, fmt::format("(?:{})$", std::string(value.get_string()))}};
  std::vector<ModulePattern> patterns;
  for (const json::value& name : value.get_array())
    patterns.emplace_back(Kind::kParts, std::string(name.as_string()));
  return patterns;
}

bool is_list_of_names(const json::value& value) {
  return value.is_array() && std::ranges::all_of(value.get_array(), [](const json::value& name) {
           return name.is_string();
         });
}

void refuse_keys(const json::Object& config) {
  const std::string& where = config.where();
  for (const RefusedKey& refused : kRefusedKeys) {
    const json::value* value = config.raw().if_contains(refused.key);
    if (value == nullptr || is_off(*value)) continue;
    fail(ErrorKind::kUnsupported, "{}: {} {}: {}; {}", where, refused.key, json::to_text(*value),
         refused.what, refused.remedy);
  }
  for (const auto& [key, value] : config.raw()) {
    const std::string_view name(key.data(), key.size());
    const bool is_known = std::ranges::count(kKnownKeys, name) > 0 ||
                          std::ranges::count(kRefusedKeys, name, &RefusedKey::key) > 0;
    if (!is_known && !is_off(value))
      log::warning("{}: Encore does not know the key {:?}, which has no effect", where, name);
  }
}

void check_initialization(const json::Object& config) {
  const json::value* init = config.raw().if_contains("init_lora_weights");
  if (init == nullptr || init->is_bool() || init->is_null()) return;
  const std::string name = config.string_at("init_lora_weights");
  if (std::ranges::count(kPlainInits, name) > 0) return;
  fail(ErrorKind::kUnsupported,
       "{}: init_lora_weights {:?} may have changed the model's own weights, so that the adapter "
       "does "
       "not fit the published ones: save it as an ordinary one (PEFT: save_pretrained with "
       "path_initial_model_for_weight_conversion)",
       config.where(), name);
}

// Holds the name of the module that a tensor belongs to, and whether the tensor is the module's A
// or B.
struct TensorName {
  std::string module;
  bool is_a = false;
};

// Returns the module's name in a separate text model, even if the adapter was trained within a
// larger model.
std::string module_of(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
      {"model.language_model.", "model."}, {"language_model.model.", "model."}};
  for (const auto& [inside, alone] : kPrefixes) {
    if (name.starts_with(inside)) return fmt::format("{}{}", alone, name.substr(inside.size()));
  }
  return std::string(name);
}

// Parses a tensor's name. Returns nullopt if the tensor is not A or B of a module.
std::optional<TensorName> parse(std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  constexpr std::pair<std::string_view, bool> kSuffixes[] = {{".lora_A.weight", true},
                                                             {".lora_B.weight", false},
                                                             {".lora_A.default.weight", true},
                                                             {".lora_B.default.weight", false}};
  for (const auto& [suffix, is_a] : kSuffixes) {
    if (name.ends_with(suffix))
      return TensorName{module_of(name.substr(0, name.size() - suffix.size())), is_a};
  }
  return std::nullopt;
}

// Returns why an adapter may not have a tensor of this name.
std::string why_unused(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (has("lora_magnitude_vector")) return "it is DoRA's";
  if (has("lora_embedding")) return "it changes the embedding";
  if (name.ends_with(".bias")) return "it is a bias";
  if (has("modules_to_save")) return "it replaces a module of the model";
  return "it is no lora_A.weight or lora_B.weight of a module";
}

void check_matrix(const std::string& where, const std::string& name, const StoredTensor& tensor) {
  if (is_float(tensor.dtype) && tensor.shape.rank() == 2 && tensor.shape.num_elements() > 0) return;
  fail(ErrorKind::kModel, "{}: tensor {:?} must be a matrix of BF16, F16 or F32, and is {} [{}]",
       where, name, encore::name(tensor.dtype), fmt::join(tensor.shape, ", "));
}

fs::path checked(const fs::path& dir) {
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) {
    fail(ErrorKind::kModel, "{}: an adapter is a directory with {} and {}, as PEFT saves it",
         dir.string(), kConfigName, kTensorsName);
  }
  if (!fs::exists(dir / kTensorsName, ignored) && fs::exists(dir / "adapter_model.bin", ignored)) {
    fail(ErrorKind::kUnsupported,
         "{}: adapter_model.bin is not supported: save the adapter as safetensors (PEFT: "
         "save_pretrained)",
         dir.string());
  }
  // The files must be regular files, because opening a pipe would wait for its writer.
  for (const std::string_view name : {kConfigName, kTensorsName}) {
    if (fs::is_regular_file(dir / name, ignored)) continue;
    fail(ErrorKind::kModel, "{}: there is no file {} that can be read: an adapter has {} and {}",
         dir.string(), name, kConfigName, kTensorsName);
  }
  return dir;
}

}  // namespace

LoraAdapter::LoraAdapter(const fs::path& dir, int64_t max_rank, FileAccess access)
    : dir_(checked(dir)),
      config_(json::read_file(dir / kConfigName)),
      file_(dir / kTensorsName, access) {
  read_config();
  read_tensors(max_rank);
}

void LoraAdapter::read_config() {
  const std::string path = (dir_ / kConfigName).string();
  const json::value value = json::parse(config_, path);
  const json::Object config(value, path);
  if (const std::string type = config.string_or("peft_type", "LORA"); type != "LORA") {
    fail(ErrorKind::kUnsupported, "{}: peft_type {:?} is not supported: only LORA is",
         config.where(), type);
  }
  refuse_keys(config);
  check_initialization(config);
  if (const std::string bias = config.string_or("bias", "none"); bias != "none") {
    fail(ErrorKind::kUnsupported, "{}: bias {:?}: biases of the model are replaced; {}",
         config.where(), bias, kMerge);
  }
  scaling_.rank = count_at(config, "r", kMaxWidth);
  scaling_.alpha = real_or(config, "lora_alpha", 8, 0);
  scaling_.is_rank_stabilized = config.bool_or("use_rslora", false);
  if (config.has("rank_pattern")) {
    const json::Object ranks = config.object_at("rank_pattern");
    for (const auto& [key, rank] : ranks.raw())
      scaling_.ranks.emplace_back(suffix_pattern(key), count_at(ranks, key, kMaxWidth));
  }
  if (config.has("alpha_pattern")) {
    const json::Object alphas = config.object_at("alpha_pattern");
    for (const auto& [key, alpha] : alphas.raw())
      scaling_.alphas.emplace_back(suffix_pattern(key),
                                   real(alphas, key, alphas.double_at(key), 0));
  }
  read_targets(config);
}

void LoraAdapter::read_targets(const json::Object& config) {
  const json::value& targets = config.at("target_modules");
  if (!targets.is_string() && !is_list_of_names(targets)) {
    fail(ErrorKind::kModel, "{}: target_modules must be a list of names or a pattern",
         config.where());
  }
  targets_all_ = targets.is_string() && targets.get_string() == "all-linear";
  if (!targets_all_) targets_ = module_patterns(targets);
  const json::value* excluded = config.raw().if_contains("exclude_modules");
  if (excluded != nullptr && (excluded->is_string() || is_list_of_names(*excluded)))
    excluded_ = module_patterns(*excluded);
  const json::value* layers = config.raw().if_contains("layers_to_transform");
  if (layers == nullptr || layers->is_null()) return;
  if (layers->is_int64()) layers_.insert(layers->get_int64());
  if (!layers->is_array()) return;
  for (const json::value& layer : layers->get_array()) {
    if (layer.is_int64()) layers_.insert(layer.get_int64());
  }
}

void LoraAdapter::read_tensors(int64_t max_rank) {
  const std::string where = file_.path().string();
  for (const std::string& name : file_.names()) {
    const auto parsed = parse(name);
    if (!parsed) {
      fail(ErrorKind::kUnsupported, "{}: tensor {:?} would have no effect, as {}; {}", where, name,
           why_unused(name), kMerge);
    }
    const StoredTensor tensor = file_.tensor(name);
    check_matrix(where, name, tensor);
    LoraProjection& projection = projections_[parsed->module];
    StoredTensor& half = parsed->is_a ? projection.a : projection.b;
    if (half.data != nullptr)
      fail(ErrorKind::kModel, "{}: tensor {:?} is there under two names", where, name);
    half = tensor;
  }
  if (projections_.empty()) fail(ErrorKind::kModel, "{}: there are no tensors", where);
  for (auto& [module, projection] : projections_) {
    if (projection.a.data == nullptr || projection.b.data == nullptr) {
      fail(ErrorKind::kModel, "{}: module {:?} has no lora_{}", where, module,
           projection.a.data == nullptr ? "A" : "B");
    }
    const auto value_for = [&](const auto& patterns, auto fallback) {
      const auto found = std::ranges::find_if(
          patterns, [&](const auto& pattern) { return pattern.first.matches(module); });
      return found == patterns.end() ? fallback : found->second;
    };
    const int64_t rank = value_for(scaling_.ranks, scaling_.rank);
    if (projection.a.shape[0] != rank || projection.b.shape[1] != rank) {
      fail(ErrorKind::kModel,
           "{}: module {:?} has A [{}] and B [{}], but {} says that its rank is {}", where, module,
           fmt::join(projection.a.shape, ", "), fmt::join(projection.b.shape, ", "), kConfigName,
           rank);
    }
    if (rank > max_rank) {
      fail(ErrorKind::kUnsupported,
           "{}: module {:?} has rank {}, and adapters may have {}: raise --max-lora-rank to {}",
           where, module, rank, max_rank, rank);
    }
    const auto divisor = static_cast<double>(rank);
    projection.scale = value_for(scaling_.alphas, scaling_.alpha) /
                       (scaling_.is_rank_stabilized ? std::sqrt(divisor) : divisor);
  }
  for (const ModulePattern& target : targets_) {
    const auto is_its = [&](const auto& entry) { return target.matches(entry.first); };
    if (std::ranges::any_of(projections_, is_its)) continue;
    fail(
        ErrorKind::kModel,
        "{}: no tensors for the target module {:?} that {} names: the adapter would have no effect "
        "there; take the whole adapter, or leave the module out of target_modules",
        where, target.text(), kConfigName);
  }
}

bool LoraAdapter::targets(std::string_view module) const {
  const auto matches = [&](const ModulePattern& pattern) { return pattern.matches(module); };
  if (!targets_all_ && !std::ranges::any_of(targets_, matches)) return false;
  if (std::ranges::any_of(excluded_, matches)) return false;
  if (layers_.empty()) return true;
  return std::ranges::any_of(layers_, [&](int64_t layer) {
    return module.find(fmt::format(".{}.", layer)) != std::string_view::npos;
  });
}

std::string LoraAdapter::digest() const {
  ENCORE_CHECK(sodium_init() >= 0);
  crypto_generichash_state state;
  std::array<unsigned char, crypto_generichash_BYTES> hash{};
  crypto_generichash_init(&state, nullptr, 0, hash.size());
  const auto config_bytes = static_cast<unsigned long long>(config_.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&config_bytes),
                            sizeof(config_bytes));
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(config_.data()),
                            config_.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(file_.bytes().data()),
                            file_.bytes().size());
  crypto_generichash_final(&state, hash.data(), hash.size());
  return {hash.begin(), hash.end()};
}

}  // namespace encore::model
