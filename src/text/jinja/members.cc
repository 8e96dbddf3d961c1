// Finds the members and items of values.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace encore::text::jinja {
namespace {

using Kind = Value::Kind;

// Returns the name, such as "dict object", that Jinja's messages use for an object that lacks a
// member.
std::string object_name(const Value& object) {
  return object.is_none() ? "None" : fmt::format("{} object", type_name(object));
}

std::optional<Value> loop_member(const Loop& loop, std::string_view name) {
  const auto size = static_cast<Int>(loop.items.size());
  const auto index = static_cast<Int>(loop.index);
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index == size - 1);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(Int{1});
  if (name == "depth0") return Value(Int{0});
  if (name == "previtem")
    return index > 0 ? loop.items[loop.index - 1] : Heap::undefined("there is no previous item");
  if (name == "nextitem") {
    return index + 1 < size ? loop.items[loop.index + 1] : Heap::undefined("there is no next item");
  }
  return std::nullopt;
}

// Finds the attribute that Python's getattr finds; nullopt where there is none.
std::optional<Value> attribute(const Value& object, std::string_view name, Heap& heap) {
  if (const Namespace* space = object.if_namespace()) {
    const auto found = space->members.find(name);
    if (found != space->members.end()) return found->second;
  }
  if (const Loop* loop = object.if_loop())
    if (std::optional<Value> found = loop_member(*loop, name)) return found;
  if (const Function* function = object.if_function())
    if (function->macro != nullptr && name == "name") return heap.text(function->name);
  if (const Builtin builtin = find_method(object, name)) {
    Function method;
    method.name = name;
    method.builtin = builtin;
    method.self = object;
    return heap.function(std::move(method));
  }
  if (is_forbidden_member(object, name)) {
    return Heap::undefined("access to attribute '{}' of '{}' object is unsafe", name,
                           type_name(object));
  }
  return std::nullopt;
}

// Returns the item at `index`, which counts from the front or, where negative, from the end.
std::optional<Value> item_at(const Value& object, Int index, Heap& heap) {
  if (const Text* text = object.if_text()) {
    heap.budget().spend_bytes(text->bytes.size());
    const auto size = static_cast<Int>(length(text->bytes));
    if (index < 0) index += size;
    if (index < 0 || index >= size) return std::nullopt;
    const std::string_view rest =
        std::string_view(text->bytes).substr(byte_of(text->bytes, static_cast<size_t>(index)));
    return heap.text(std::string(rest.substr(0, byte_of(rest, 1))), text->markup);
  }
  const Sequence* sequence = object.if_sequence();
  if (sequence == nullptr) return std::nullopt;
  switch (sequence->kind) {
    case Sequence::Kind::kList:
    case Sequence::Kind::kTuple:
    case Sequence::Kind::kRange: {
      const auto size = static_cast<Int>(sequence->items.size());
      if (index < 0) index += size;
      if (index < 0 || index >= size) return std::nullopt;
      return sequence->items[static_cast<size_t>(index)];
    }
    default:
      return std::nullopt;
  }
}

bool may_be_key(const Value& value) {
  const Sequence* sequence = value.if_sequence();
  return value.if_mapping() == nullptr &&
         (sequence == nullptr || sequence->kind == Sequence::Kind::kTuple);
}

}  // namespace

Value member(const Value& object, std::string_view name, Heap& heap) {
  if (object.is_undefined()) fail_render("{}", object.why_undefined());
  if (std::optional<Value> found = attribute(object, name, heap)) return *found;
  if (const Mapping* mapping = object.if_mapping())
    if (const Value* found = mapping->find(name)) return *found;
  return Heap::undefined("'{}' has no attribute '{}'", object_name(object), name);
}

Value item(const Value& object, const Value& index, Heap& heap) {
  if (object.is_undefined()) fail_render("{}", object.why_undefined());
  if (object.if_mapping() != nullptr && may_be_key(index)) {
    if (const Value* found = object.if_mapping()->find(index, heap.budget())) return *found;
  }
  if (index.is_integral())
    if (std::optional<Value> found = item_at(object, index.as_int(), heap)) return *found;
  if (const Text* name = index.if_text()) {
    if (std::optional<Value> found = attribute(object, name->bytes, heap)) return *found;
    return Heap::undefined("'{}' has no attribute '{}'", object_name(object), name->bytes);
  }
  return Heap::undefined("{} has no element {}", object_name(object), repr(index, heap));
}

}  // namespace encore::text::jinja
