#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace encore::text::jinja {
namespace {

using Kind = Value::Kind;

size_t hash_bytes(std::string_view bytes) {
  return std::hash<std::string_view>{}(bytes);
}

size_t combine(size_t seed, size_t more) {
  return seed * 1'000'003 + more;
}

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  return a.as_double() == b.as_double();
}

// Compares two sequences of one kind by their items. Sequences of two kinds are never equal, and a
// generator or a dict.values() equals only itself.
bool equal_sequences(const Sequence& a, const Sequence& b, Budget& budget) {
  if (a.kind != b.kind || a.kind == Sequence::Kind::kGenerator || a.kind == Sequence::Kind::kValues)
    return &a == &b;
  return std::equal(
      a.items.begin(), a.items.end(), b.items.begin(), b.items.end(),
      [&budget](const Value& left, const Value& right) { return equal(left, right, budget); });
}

bool equal_mappings(const Mapping& a, const Mapping& b, Budget& budget) {
  if (a.entries().size() != b.entries().size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const Mapping::Entry& entry) {
    const Value* other = b.find(entry.first, budget);
    return other != nullptr && equal(entry.second, *other, budget);
  });
}

}  // namespace

void Budget::out_of_steps() const {
  throw RenderFailure(FailureKind::kLimit,
                      fmt::format("takes more than {} steps", limits_.max_steps));
}

void Budget::out_of_memory() const {
  throw RenderFailure(FailureKind::kLimit, fmt::format("takes more than {} MiB of memory",
                                                       limits_.max_memory_bytes >> 20U));
}

bool Value::is_integral() const {
  return is(Kind::kBool) || is(Kind::kInt);
}

bool Value::is_number() const {
  return is_integral() || is(Kind::kFloat);
}

Int Value::as_int() const {
  return is(Kind::kBool) ? Int{as_bool() ? 1 : 0} : std::get<Int>(data_);
}

double Value::as_double() const {
  return is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(as_int());
}

std::string Value::why_undefined() const {
  const auto* undefined = std::get_if<Undefined>(&data_);
  return undefined != nullptr && undefined->why ? *undefined->why : "the value is undefined";
}

const void* Value::identity() const {
  switch (kind()) {
    case Kind::kText:
      return if_text();
    case Kind::kSequence:
      return if_sequence();
    case Kind::kMapping:
      return if_mapping();
    case Kind::kNamespace:
      return if_namespace();
    case Kind::kLoop:
      return if_loop();
    case Kind::kFunction:
      return if_function();
    default:
      return nullptr;
  }
}

int Value::depth() const {
  if (const Sequence* sequence = if_sequence()) return sequence->depth;
  if (const Mapping* mapping = if_mapping()) return mapping->depth();
  if (const Loop* loop = if_loop()) return loop->depth;
  if (const Function* function = if_function()) return 1 + function->self.depth();
  return 0;
}

Mapping::Mapping(std::vector<Entry> entries, Charge charge, Budget& budget)
    : charge_(std::move(charge)) {
  std::vector<std::pair<size_t, uint32_t>> order;
  order.reserve(entries.size());
  for (uint32_t i = 0; i < entries.size(); ++i)
    order.emplace_back(hash(entries[i].first, budget), i);
  // Sorting by hash, and by index among equal hashes, brings equal keys together, since equal keys
  // have equal hashes. Of equal keys, the first keeps its place and gets the value of the last.
  std::sort(order.begin(), order.end());
  std::vector<bool> replaced(entries.size());
  for (size_t i = 0; i < order.size(); ++i) {
    Entry& first = entries[order[i].second];
    if (replaced[order[i].second]) continue;
    for (size_t k = i + 1; k < order.size() && order[k].first == order[i].first; ++k) {
      Entry& later = entries[order[k].second];
      if (replaced[order[k].second] || !equal(first.first, later.first, budget)) continue;
      first.second = later.second;
      replaced[order[k].second] = true;
    }
  }
  std::vector<uint32_t> place(entries.size());
  entries_.reserve(entries.size());
  for (uint32_t i = 0; i < entries.size(); ++i) {
    if (replaced[i]) continue;
    place[i] = static_cast<uint32_t>(entries_.size());
    depth_ = std::max({depth_, entries[i].first.depth() + 1, entries[i].second.depth() + 1});
    entries_.push_back(std::move(entries[i]));
  }
  by_hash_.reserve(entries_.size());
  for (const auto& [key_hash, i] : order)
    if (!replaced[i]) by_hash_.emplace_back(key_hash, place[i]);
}

template <typename Matches>
const Value* Mapping::find_hashed(size_t hash, Matches matches) const {
  auto found = std::lower_bound(by_hash_.begin(), by_hash_.end(), std::pair{hash, uint32_t{0}});
  for (; found != by_hash_.end() && found->first == hash; ++found) {
    const Entry& entry = entries_[found->second];
    if (matches(entry.first)) return &entry.second;
  }
  return nullptr;
}

const Value* Mapping::find(const Value& key, Budget& budget) const {
  return find_hashed(hash(key, budget),
                     [&](const Value& other) { return equal(key, other, budget); });
}

const Value* Mapping::find(std::string_view key) const {
  return find_hashed(hash_bytes(key), [key](const Value& other) {
    const Text* text = other.if_text();
    return text != nullptr && text->bytes == key;
  });
}

std::string_view type_name(const Value& value) {
  static constexpr std::string_view kNames[] = {"Undefined", "NoneType",    "bool",    "int",
                                                "float",     "str",         "list",    "dict",
                                                "Namespace", "LoopContext", "function"};
  static constexpr std::string_view kSequenceNames[] = {
      "list", "tuple", "dict_keys", "dict_values", "dict_items", "range", "generator"};
  if (const Sequence* sequence = value.if_sequence())
    return kSequenceNames[static_cast<size_t>(sequence->kind)];
  if (const Text* text = value.if_text(); text != nullptr && text->markup) return "Markup";
  if (const Function* function = value.if_function(); function != nullptr && function->macro)
    return "Macro";
  return kNames[static_cast<size_t>(value.kind())];
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kText:
      return !value.if_text()->bytes.empty();
    case Kind::kSequence:
      return !value.if_sequence()->items.empty() ||
             value.if_sequence()->kind == Sequence::Kind::kGenerator;
    case Kind::kMapping:
      return !value.if_mapping()->entries().empty();
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kFunction:
      return true;
  }
  return false;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.spend();
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      budget.spend_bytes(std::min(a.if_text()->bytes.size(), b.if_text()->bytes.size()));
      return a.if_text()->bytes == b.if_text()->bytes;
    case Kind::kSequence:
      return equal_sequences(*a.if_sequence(), *b.if_sequence(), budget);
    case Kind::kMapping:
      return equal_mappings(*a.if_mapping(), *b.if_mapping(), budget);
    default:
      return a.identity() == b.identity();
  }
}

size_t hash(const Value& value, Budget& budget) {
  budget.spend();
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return static_cast<size_t>(value.kind());
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<double>{}(static_cast<double>(value.as_int()));
    case Kind::kFloat:
      return std::hash<double>{}(value.as_double());
    case Kind::kText:
      budget.spend_bytes(value.if_text()->bytes.size());
      return hash_bytes(value.if_text()->bytes);
    case Kind::kSequence:
      if (value.if_sequence()->kind == Sequence::Kind::kTuple) {
        size_t seed = 1;
        for (const Value& item : value.if_sequence()->items)
          seed = combine(seed, hash(item, budget));
        return seed;
      }
      break;
    case Kind::kLoop:
    case Kind::kNamespace:
    case Kind::kFunction:
      return std::hash<const void*>{}(value.identity());
    default:
      break;
  }
  fail_render("unhashable type: '{}'", type_name(value));
}

}  // namespace encore::text::jinja
