#include "text/jinja/heap.h"

#include <algorithm>

#include "text/jinja/characters.h"
#include "text/unicode.h"

namespace encore::text::jinja {
namespace {

constexpr int kMaxValueDepth = 200;
// An estimate of the bytes that a value takes besides its content: the allocation, its reference
// counts and its fields.
constexpr size_t kOverheadBytes = 96;

int depth_of(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items)
    depth = std::max(depth, item.depth());
  Heap::check_depth(depth + 1);
  return depth + 1;
}

}  // namespace

Heap::~Heap() {
  for (const auto& space : namespaces_)
    space->members.clear();
}

void Heap::check_depth(int depth) {
  if (depth > kMaxValueDepth) {
    throw RenderFailure(FailureKind::kLimit,
                        fmt::format("nests more than {} lists or dicts", kMaxValueDepth));
  }
}

Value Heap::text(std::string bytes, bool markup) {
  Charge charge(&budget_, bytes.size() + kOverheadBytes);
  budget_.spend_bytes(bytes.size());
  return Value(std::make_shared<const Text>(Text{std::move(bytes), markup, std::move(charge)}));
}

Value Heap::sequence(Sequence::Kind kind, std::vector<Value> items, std::string label) {
  Charge charge(&budget_, items.size() * sizeof(Value) + kOverheadBytes);
  budget_.spend(1 + static_cast<int64_t>(items.size() / 4));
  const int depth = depth_of(items);
  return Value(std::make_shared<Sequence>(
      Sequence{kind, std::move(items), std::move(label), depth, std::move(charge)}));
}

Value Heap::mapping(std::vector<Mapping::Entry> entries) {
  Charge charge(&budget_, entries.size() * (sizeof(Mapping::Entry) + 16) + kOverheadBytes);
  budget_.spend(1 + static_cast<int64_t>(entries.size()));
  auto mapping = std::make_shared<const Mapping>(std::move(entries), std::move(charge), budget_);
  check_depth(mapping->depth());
  return Value(std::move(mapping));
}

Value Heap::new_namespace(std::map<std::string, Value, std::less<>> members) {
  budget_.spend(1 + static_cast<int64_t>(members.size()));
  Charge charge(&budget_, members.size() * 2 * kOverheadBytes + kOverheadBytes);
  auto space = std::make_shared<Namespace>(Namespace{std::move(members), std::move(charge)});
  namespaces_.push_back(space);
  return Value(std::move(space));
}

std::shared_ptr<Loop> Heap::loop(std::vector<Value> items) {
  Charge charge(&budget_, items.size() * sizeof(Value) + kOverheadBytes);
  const int depth = depth_of(items);
  return std::make_shared<Loop>(Loop{std::move(items), 0, depth, std::move(charge)});
}

Value Heap::function(Function function) {
  budget_.spend();
  check_depth(function.self.depth() + 1);
  function.charge.count(budget_, sizeof(Function) + kOverheadBytes);
  return Value(std::make_shared<const Function>(std::move(function)));
}

Value Heap::from_json(const json::value& json, int depth) {
  check_depth(depth);
  if (json.is_null()) return None{};
  if (json.is_bool()) return Value(json.get_bool());
  if (json.is_int64()) return Value(Int{json.get_int64()});
  if (json.is_uint64()) return Value(Int{json.get_uint64()});
  if (json.is_double()) return Value(json.get_double());
  if (json.is_string()) {
    const std::string_view bytes(json.get_string().data(), json.get_string().size());
    return text(is_valid_utf8(bytes) ? std::string(bytes) : to_valid_utf8(bytes));
  }
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.get_array().size());
    for (const json::value& item : json.get_array())
      items.push_back(from_json(item, depth + 1));
    return list(std::move(items));
  }
  std::vector<Mapping::Entry> entries;
  entries.reserve(json.get_object().size());
  for (const auto& [key, value] : json.get_object()) {
    const std::string_view bytes(key.data(), key.size());
    entries.emplace_back(text(is_valid_utf8(bytes) ? std::string(bytes) : to_valid_utf8(bytes)),
                         from_json(value, depth + 1));
  }
  return mapping(std::move(entries));
}

std::vector<Value> Heap::items_of(const Value& value) {
  if (Sequence* sequence = value.if_sequence()) {
    if (sequence->kind == Sequence::Kind::kGenerator) return std::exchange(sequence->items, {});
    check_items(sequence->items.size());
    budget_.spend(1 + static_cast<int64_t>(sequence->items.size() / 4));
    return sequence->items;
  }
  std::vector<Value> items;
  if (const Mapping* mapping = value.if_mapping()) {
    budget_.spend(1 + static_cast<int64_t>(mapping->entries().size() / 4));
    check_items(mapping->entries().size());
    for (const auto& [key, member] : mapping->entries())
      items.push_back(key);
  } else if (const Text* text = value.if_text()) {
    check_items(text->bytes.size());
    for (size_t at = 0; at < text->bytes.size();) {
      const size_t size = decode_utf8(text->bytes.data() + at).num_bytes;
      items.push_back(this->text(text->bytes.substr(at, size), text->markup));
      at += size;
    }
  } else if (const Loop* loop = value.if_loop()) {
    items = loop->items;
  } else if (!value.is_undefined()) {
    fail_render("'{}' object is not iterable", type_name(value));
  }
  return items;
}

Value TextBuilder::finish(bool markup) {
  return Value(std::make_shared<const Text>(Text{std::move(bytes_), markup, std::move(charge_)}));
}

}  // namespace encore::text::jinja
