#include "model/format/quantization.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/json.h"
#include "base/scale_block.h"
#include "model/format/spelling.h"

namespace encore::model {
namespace {

// Maps a name that quantizers give to several modules together to the names of these modules.
constexpr std::array kFusedNames = {
    std::pair{"qkv_proj", std::array{"q_proj", "k_proj", "v_proj"}},
    std::pair{"gate_up_proj", std::array{"gate_proj", "up_proj", "up_proj"}},
};

bool matches_wildcard(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;  // the last * seen
  size_t taken = 0;                      // end of the characters that this * has matched
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

// Returns whether the pattern matches as in Python's re.match: from the beginning of the name, with
// any rest.
bool matches_regex(const std::string& pattern, std::string_view name) {
  constexpr uint32_t kMatchLimit = 1'000'000;
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR>(text.data());
  };
  const auto refuse = [&](int code) {
    std::array<PCRE2_UCHAR, 128> message{};
    pcre2_get_error_message(code, message.data(), message.size());
    fail(ErrorKind::kUnsupported,
         "the pattern {:?} of modules that a checkpoint's configuration names cannot be read: {}",
         pattern.substr(0, 200), reinterpret_cast<const char*>(message.data()));
  };
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(bytes(pattern), pattern.size(), PCRE2_ANCHORED, &error, &at, nullptr),
      pcre2_code_free);
  if (code == nullptr) refuse(error);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  pcre2_set_match_limit(limits.get(), kMatchLimit);
  const int found =
      pcre2_match(code.get(), bytes(name), name.size(), 0, 0, data.get(), limits.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH) refuse(found);
  return found >= 0;
}

bool matches_parts(std::string_view pattern, std::string_view name) {
  if (name == pattern || pattern.empty() || name.size() <= pattern.size()) return name == pattern;
  return (name.starts_with(pattern) && name[pattern.size()] == '.') ||
         (name.ends_with(pattern) && name[name.size() - pattern.size() - 1] == '.');
}

}  // namespace

bool ModulePattern::matches(std::string_view module) const {
  const auto matches_name = [&](std::string_view name) {
    switch (kind_) {
      case Kind::kName:
        return name == text_;
      case Kind::kParts:
        return matches_parts(text_, name);
      case Kind::kWildcard:
        return matches_wildcard(text_, name);
      case Kind::kRegex:
        return matches_regex(text_, name);
      case Kind::kAny:
        return true;
    }
    return false;
  };
  if (matches_name(module)) return true;
  const size_t dot = module.rfind('.');
  if (dot == std::string_view::npos) return false;
  for (const auto& [fused, parts] : kFusedNames) {
    if (std::ranges::count(parts, module.substr(dot + 1)) == 0) continue;
    return matches_name(std::string(module.substr(0, dot + 1)) + fused);
  }
  return false;
}

const ModulePattern* Quantization::ignoring(std::string_view module) const {
  const auto found =
      std::ranges::find_if(ignored, [&](const auto& pattern) { return pattern.matches(module); });
  return found == ignored.end() ? nullptr : &*found;
}

const WeightScheme* Quantization::find(std::string_view module) const {
  if (ignoring(module) != nullptr) return nullptr;
  for (const Group& group : groups) {
    if (std::ranges::any_of(group.targets,
                            [&](const auto& pattern) { return pattern.matches(module); }))
      return &group.scheme;
  }
  return nullptr;
}

Quantization quantized_at_load() {
  return {.method = "fp8",
          .where = "--quantize fp8",
          .groups = {{{{ModulePattern::Kind::kAny, ""}},
                      {.scales = ScaleLayout::kRow, .fp8_activations = true}}},
          .ignored = {{ModulePattern::Kind::kName, "lm_head"},
                      {ModulePattern::Kind::kName, "model.embed_tokens"},
                      {ModulePattern::Kind::kWildcard, "*.gate"}}};
}

std::optional<Quantization> read_quantization(const json::Object& config,
                                              const json::Object* hf_quant_config) {
  std::optional<Quantization> beside;
  if (hf_quant_config != nullptr && hf_quant_config->has("quantization"))
    beside = format::read_modelopt(hf_quant_config->object_at("quantization"));
  if (!config.has("quantization_config")) return beside;
  const json::Object object = config.object_at("quantization_config");
  const std::string method = object.string_or("quant_method", "unnamed");
  std::optional<Quantization> read;
  if (method == "compressed-tensors") {
    read = format::read_compressed_tensors(object);
  } else if (method == "fp8") {
    read = format::read_fp8(object);
  } else if (method == "fbgemm_fp8") {
    read = format::read_fbgemm(object);
  } else if (method == "modelopt") {
    read = format::read_modelopt(object);
  } else {
    format::refuse(
        object, "quant_method",
        "compressed-tensors, fp8, fbgemm_fp8 and modelopt, of weights in FP8; or take the "
        "checkpoint before it was quantized");
  }
  if (!beside || !read) return read ? read : beside;
  const auto schemes = [](const Quantization& of) {
    std::vector<WeightScheme> all;
    for (const Quantization::Group& group : of.groups)
      all.push_back(group.scheme);
    return all;
  };
  if (schemes(*beside) != schemes(*read)) {
    fail(ErrorKind::kModel, "{} and {} say that weights are stored in different ways: remove one",
         read->where, beside->where);
  }
  return read;
}

namespace format {

void refuse(const json::Object& object, std::string_view key, std::string_view supported) {
  const std::string value =
      object.raw().contains(key) ? json::to_text(object.raw().at(key)) : "absent";
  fail(ErrorKind::kUnsupported, "{}: {} {} is not supported; supported: {}", object.where(), key,
       value.substr(0, 80), supported);
}

void require(bool holds, const json::Object& object, std::string_view key,
             std::string_view supported) {
  if (object.has(key) && !holds) refuse(object, key, supported);
}

std::vector<std::string> names_at(const json::Object& object, std::string_view key) {
  std::vector<std::string> names;
  if (!object.has(key)) return names;
  for (const json::value& name : object.array_at(key)) {
    if (!name.is_string()) {
      fail(ErrorKind::kModel, "{}: key '{}' must hold names of modules", object.where(), key);
    }
    names.emplace_back(name.get_string().data(), name.get_string().size());
  }
  return names;
}

std::vector<ModulePattern> patterns(ModulePattern::Kind kind,
                                    const std::vector<std::string>& names) {
  std::vector<ModulePattern> patterns;
  for (const std::string& name : names)
    patterns.emplace_back(kind, name);
  return patterns;
}

bool is_known_block(const json::value& value) {
  if (value.is_string()) return value.get_string() == "128x128";
  if (!value.is_array() || value.get_array().size() != 2) return false;
  return std::ranges::all_of(value.get_array(), [](const json::value& size) {
    return size.is_int64() && size.get_int64() == kScaleBlock;
  });
}

}  // namespace format
}  // namespace encore::model
