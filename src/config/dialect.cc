#include "config/dialect.h"

#include <algorithm>

#include "config/read.h"

namespace encore::config {

std::string canonical(std::string key) {
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::vector<int64_t> capped(std::vector<int64_t> sizes, int64_t max) {
  const auto above = std::upper_bound(sizes.begin(), sizes.end(), max);
  const bool has_larger = above != sizes.end();
  sizes.erase(above, sizes.end());
  if (has_larger && (sizes.empty() || sizes.back() < max)) sizes.push_back(max);
  return sizes;
}

std::optional<Note> sorted_note(const Item& list, const std::string& where, std::string_view key) {
  const std::vector<int64_t> sizes = read_list(list, where, key);
  if (std::is_sorted(sizes.begin(), sizes.end())) return std::nullopt;
  return Note{list.line, fmt::format("{}: the sizes are sorted", key)};
}

void append(std::vector<int64_t>& sizes, int64_t first, int64_t last, int64_t step) {
  for (int64_t size = first; size <= last; size += step)
    sizes.push_back(size);
}

Draft::Draft(const DialectTable& table, const Document& document)
    : table_(table), where_(document.where) {
  config_.where = document.where;
  config_.dialect = table.dialect;
  flatten(document.root, "");
}

const ForeignKey* Draft::find(std::string_view name) const {
  for (const ForeignKey& key : table_.keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

const ForeignKey* Draft::find_spelled(const std::string& spelling, bool& negated) const {
  negated = false;
  if (const ForeignKey* key = find(spelling)) return key;
  for (const Alias& alias : table_.aliases) {
    if (alias.spelling == spelling) return find(alias.name);
  }
  if (spelling.rfind("no_", 0) == 0) {
    const ForeignKey* key = find(std::string_view(spelling).substr(3));
    negated = key != nullptr && key->type == Type::kBool;
    if (negated) return key;
  }
  return nullptr;
}

void Draft::flatten(const Item& map, const std::string& prefix) {
  for (const Member& member : map.members) {
    const std::string spelling = prefix + canonical(member.key);
    bool negated = false;
    const ForeignKey* key = find_spelled(spelling, negated);
    if (key == nullptr) {
      std::vector<std::string_view> names;
      for (const ForeignKey& known : table_.keys)
        names.push_back(known.name);
      config_.unknown.push_back({member.line, spelling, suggestion(spelling, names)});
      continue;
    }
    Item value = member.value;
    if (negated) {
      if (value.text != "true") fail_at(where_, member.line, "{} takes no value", spelling);
      value = scalar("false", member.line);
    }
    // A section may be JSON text, as on a command line.
    if (key->type == Type::kSection && value.text.starts_with('{'))
      value = parse_yaml(value.text, where_, value.line).root;
    const bool is_list =
        key->type == Type::kSizes || key->type == Type::kNames || key->type == Type::kTexts;
    if (is_list && value.text.starts_with('['))
      value = parse_yaml("sizes: " + value.text, where_, value.line).root.members.front().value;
    value.line = std::max(value.line, member.line);
    if (key->type == Type::kSection && !value.is_map() && !value.is_null())
      fail_at(where_, value.line, "{} holds keys and values, or null", spelling);
    if (value.is_map() && key->type == Type::kSection) {
      take(*key, spelling, scalar("true", member.line));
      flatten(value, std::string(key->name) + ".");
    } else {
      take(*key, spelling, std::move(value));
    }
  }
}

void Draft::take(const ForeignKey& key, const std::string& spelling, Item value) {
  const auto place = given_.find(key.name);
  if (place != given_.end() && key.type != Type::kSection) {
    fail_at(where_, value.line, "{} is given twice, first as {} on line {}", spelling,
            place->second.spelling, place->second.value.line);
  }
  if (value.is_null() && key.type != Type::kSection) return;  // null means that the key is not set
  const Given given{spelling, std::move(value)};
  check(key, given);
  if (key.type == Type::kSizes) {
    if (auto note = sorted_note(given.value, where_, spelling)) config_.notes.push_back(*note);
  }
  given_[std::string(key.name)] = given;
}

void Draft::check(const ForeignKey& key, const Given& given) const {
  const Item& item = given.value;
  const auto check_range = [&](double value) {
    if (value < key.min || value > key.max) {
      fail_at(where_, item.line, "{} is {}, not {}", given.spelling,
              key.max < 1e15 ? fmt::format("{} to {}", key.min, key.max)
                             : fmt::format("{} or more", key.min),
              item.text);
    }
  };
  switch (key.type) {
    case Type::kBool:
      (void)read_bool(item, where_, given.spelling);
      break;
    case Type::kInt:
      check_range(static_cast<double>(read_int(item, where_, given.spelling)));
      break;
    case Type::kNumber:
      check_range(read_number(item, where_, given.spelling));
      break;
    case Type::kText: {
      const std::string text = read_text(item, where_, given.spelling);
      if (!key.choices.empty() && !is_choice(key.choices, text)) {
        fail_at(where_, item.line, "{} is {}, not '{}'", given.spelling, choices_text(key.choices),
                text);
      }
      break;
    }
    case Type::kTexts:
      (void)read_texts(item, where_, given.spelling);
      break;
    case Type::kNames:
      if (!item.is_list() || !item.list.empty()) (void)read_names(item, where_, given.spelling);
      break;
    case Type::kSizes:
      (void)read_sizes(item, where_, given.spelling);
      break;
    case Type::kSection:
    case Type::kAny:
      break;
  }
}

bool Draft::given(std::string_view name) const {
  const auto place = given_.find(name);
  return place != given_.end() && !place->second.value.is_null();
}

bool Draft::refuses(std::string_view name) const {
  return refused_.contains(name);
}

bool Draft::is_null(std::string_view name) const {
  const auto place = given_.find(name);
  return place != given_.end() && place->second.value.is_null();
}

Item Draft::value(std::string_view name) const {
  const auto place = given_.find(name);
  if (place != given_.end()) return place->second.value;
  const ForeignKey* key = find(name);
  ENCORE_CHECK(key != nullptr && !key->fallback.empty(), "{} has no default", name);
  return scalar(std::string(key->fallback), 0);
}

bool Draft::flag(std::string_view name) const {
  return read_bool(value(name), where_, name);
}
int64_t Draft::count(std::string_view name) const {
  return read_int(value(name), where_, name);
}
double Draft::number(std::string_view name) const {
  return read_number(value(name), where_, name);
}
std::string Draft::text(std::string_view name) const {
  return read_text(value(name), where_, name);
}

std::optional<std::vector<int64_t>> Draft::sizes(std::string_view name) const {
  if (!given(name)) return std::nullopt;
  return read_sizes(value(name), where_, name);
}

std::string Draft::cite(std::string_view name) const {
  const auto place = given_.find(name);
  if (place == given_.end()) return fmt::format("{}'s default of {}", table_.title, name);
  return fmt::format("{}, line {}", place->second.spelling, place->second.value.line);
}

void Draft::put_item(std::string_view option, const Item& value,
                     std::initializer_list<std::string_view> names) {
  const Option* row = find_option(option);
  ENCORE_CHECK(row != nullptr, "no option {}", option);
  Item placed = value;
  Origin origin;
  std::string key(option);
  for (const std::string_view name : names) {
    const auto place = given_.find(name);
    if (place == given_.end()) continue;
    if (origin.line == 0) {
      origin.line = place->second.value.line;
      key = place->second.spelling;
    }
    origin.from += (origin.from.empty() ? "" : "; ") + cite(name);
  }
  if (origin.line == 0) origin.from = cite(*names.begin());
  placed.line = origin.line;
  set(config_.options, *row, placed, where_, key);
  config_.origins[std::string(option)] = origin;
}

void Draft::put(std::string_view option, std::string value,
                std::initializer_list<std::string_view> names) {
  put_item(option, scalar(std::move(value), 0), names);
}

void Draft::put(std::string_view option, const std::vector<int64_t>& sizes,
                std::initializer_list<std::string_view> names) {
  put_item(option, list(sizes, 0), names);
}

void Draft::put_default(std::string_view option, std::string value, std::string because) {
  const Option* row = find_option(option);
  ENCORE_CHECK(row != nullptr, "no option {}", option);
  set(config_.options, *row, scalar(std::move(value), 0), where_, option);
  config_.origins[std::string(option)] = {std::move(because), 0};
}

void Draft::put_dtype() {
  const std::string dtype = text("dtype");
  if (dtype == "auto") return;
  const bool is_half = dtype == "half" || dtype == "float16";
  put("dtype", is_half ? "f16" : dtype == "bfloat16" ? "bf16" : "f32", {"dtype"});
}

void Draft::put_kv_dtype(std::string_view name) {
  const std::string dtype = text(name);
  if (dtype == "auto") return;
  put("kv_dtype", dtype == "bfloat16" ? "bf16" : "fp8", {name});
}

void Draft::put_quantization(std::string_view name) {
  if (given(name) && text(name) == "fp8") put("quantize", "fp8", {name});
}

std::vector<int64_t> Draft::cut(std::vector<int64_t> sizes, int64_t max, std::string_view name,
                                std::string_view limit) {
  if (given(name) && sizes.back() > max) {
    note(name, fmt::format("{}: sizes above {}, which is {}, are left out", name, limit, max));
  }
  return capped(std::move(sizes), max);
}

void Draft::put_split_at(std::string_view name) {
  if (!given(name)) return;
  const Item& item = given_.find(name)->second.value;
  const Names ops = read_names(item, where_, name);
  if (ops.empty())
    note(name, fmt::format("{}: mixed steps are split at attention all the same", name));
  std::string split_at;
  for (const std::string& op : ops) {
    const bool is_foreign = op.find_first_of(":.") != std::string::npos;  // vllm::mamba_mixer2
    if (!is_foreign) {
      split_at += (split_at.empty() ? "" : ",") + op;
    } else if (op.find("attention") == std::string::npos) {
      note(name, fmt::format("{}: there is no op '{}' here to split at", name, op));
    }
  }
  if (!split_at.empty()) put("split_at", split_at, {name});
}

void Draft::note(std::string_view name, std::string text) {
  const auto place = given_.find(name);
  config_.notes.push_back({place == given_.end() ? 0 : place->second.value.line, std::move(text)});
}

void Draft::fail_key(std::string_view name, const std::string& message) const {
  const auto place = given_.find(name);
  fail_at(where_, place == given_.end() ? 1 : place->second.value.line, "{}", message);
}

Config Draft::finish() {
  for (const ForeignKey& key : table_.keys) {
    const auto place = given_.find(key.name);
    const bool is_given = place != given_.end() && !place->second.value.is_null();
    if (is_given && !key.why.empty()) {
      const Item& item = place->second.value;
      std::string text = item.text;
      if (key.type == Type::kBool) text = flag(key.name) ? "true" : "false";
      const bool is_taken = key.accepts == "*" || (item.is_scalar() && !key.accepts.empty() &&
                                                   is_choice(key.accepts, text));
      if (!is_taken) {
        config_.refused.push_back(
            {item.line, place->second.spelling, std::string(key.why), key.alters});
        refused_.insert(std::string(key.name));
        given_.erase(place);
        continue;
      }
      if (key.accepts == "*") note(key.name, fmt::format("{}: {}", key.name, key.why));
    }
    const bool has_value = is_given || (place == given_.end() && !key.fallback.empty());
    if (!key.native.empty() && has_value) put_item(key.native, value(key.name), {key.name});
  }
  table_.derive(*this);
  std::sort(config_.refused.begin(), config_.refused.end(),
            [](const Refused& a, const Refused& b) { return a.line < b.line; });
  return std::move(config_);
}

}  // namespace encore::config
