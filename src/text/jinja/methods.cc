// Implements the methods of Python's dict and list, and says which members templates may not use.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/text_functions.h"

namespace encore::text::jinja {
namespace {

using Kind = Value::Kind;

template <Sequence::Kind kind>
Value do_view(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("dict method", arguments, {});
  return view_of(*self.if_mapping(), kind, evaluator.heap());
}

Value do_get(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"}, 1);
  const Value* found = self.if_mapping()->find(bound.at(0), evaluator.budget());
  return found != nullptr ? *found : bound.value_or(1, None{});
}

Value do_copy(Evaluator& /*evaluator*/, const Value& self, Arguments& arguments) {
  const Bound bound("copy", arguments, {});
  return self;  // nothing can change the copy or the original
}

constexpr NamedBuiltin kMappingMethods[] = {
    {"keys", do_view<Sequence::Kind::kKeys>},
    {"values", do_view<Sequence::Kind::kValues>},
    {"items", do_view<Sequence::Kind::kItems>},
    {"get", do_get},
    {"copy", do_copy},
};

Value do_list_count(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"value"}, 1);
  const std::vector<Value>& items = self.if_sequence()->items;
  return Value(static_cast<Int>(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return equal(item, bound.at(0), evaluator.budget());
  })));
}

Value do_list_index(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("index", arguments, {"value", "start"}, 1);
  const std::vector<Value>& items = self.if_sequence()->items;
  Int start = bound.int_or(1, 0);
  if (start < 0) start = std::max<Int>(start + static_cast<Int>(items.size()), 0);
  for (Int at = start; at < static_cast<Int>(items.size()); ++at)
    if (equal(items[static_cast<size_t>(at)], bound.at(0), evaluator.budget())) return Value(at);
  fail_render("the value is not in the list");
}

constexpr NamedBuiltin kListMethods[] = {
    {"count", do_list_count}, {"index", do_list_index}, {"copy", do_copy}};

Value do_cycle(Evaluator& /*evaluator*/, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty()) fail_render("no items for cycling given");
  return arguments.positional[self.if_loop()->index % arguments.positional.size()];
}

constexpr NamedBuiltin kLoopMethods[] = {{"cycle", do_cycle}};

}  // namespace

Builtin find_method(const Value& object, std::string_view name) {
  if (object.is(Kind::kText)) return find_text_method(name);
  if (object.is(Kind::kMapping)) return find_in(kMappingMethods, name);
  if (object.is(Kind::kLoop)) return find_in(kLoopMethods, name);
  const Sequence* sequence = object.if_sequence();
  if (sequence == nullptr) return nullptr;
  if (sequence->kind == Sequence::Kind::kTuple && name == "copy") return nullptr;
  if (sequence->kind == Sequence::Kind::kList || sequence->kind == Sequence::Kind::kTuple)
    return find_in(kListMethods, name);
  return nullptr;
}

bool is_forbidden_member(const Value& object, std::string_view name) {
  static constexpr std::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault",
                                                  "update"};
  static constexpr std::string_view kOfLists[] = {"append", "clear", "pop",    "reverse",
                                                  "insert", "sort",  "extend", "remove"};
  const auto has = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (object.is(Kind::kMapping)) return has(kOfDicts);
  return type_name(object) == "list" && has(kOfLists);
}

}  // namespace encore::text::jinja
