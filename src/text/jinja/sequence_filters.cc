// Implements the filters of lists and dicts.
#include <algorithm>
#include <numeric>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text_functions.h"

namespace encore::text::jinja {
namespace {

using Kind = Value::Kind;

// A path such as "function.name" or "0.name", by which filters find a member of an item.
class Path {
 public:
  // `attribute` is a path, an index, or None, which stands for the item itself.
  Path(const Value& attribute, Heap& heap) : heap_(&heap) {
    if (attribute.is_none()) return;
    if (attribute.is_integral()) {
      steps_.push_back(attribute);
      return;
    }
    if (attribute.if_text() == nullptr)
      fail_render("an attribute must be a name or an index, not {}", type_name(attribute));
    const std::string& path = attribute.if_text()->bytes;
    for (size_t begin = 0; begin <= path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      add_step(path.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  [[nodiscard]] Value of(Value value, const Value* fallback = nullptr) const {
    for (const Value& step : steps_) {
      value = item(value, step, *heap_);
      if (fallback != nullptr && value.is_undefined()) value = *fallback;
    }
    return value;
  }

 private:
  void add_step(const std::string& step) {
    const bool is_index = !step.empty() && step.size() < 10 &&
                          step.find_first_not_of("0123456789") == std::string::npos;
    steps_.push_back(is_index ? Value(Int{std::stol(step)}) : heap_->text(step));
  }

  Heap* heap_;
  std::vector<Value> steps_;
};

// Computes the keys by which items are sorted and grouped: the members at a path. Text becomes
// lower case unless `case_sensitive`.
std::vector<Value> keys_of(const std::vector<Value>& items, const Path& path, bool case_sensitive,
                           Heap& heap) {
  std::vector<Value> keys;
  heap.check_items(items.size());
  for (const Value& item : items) {
    Value key = path.of(item);
    if (const Text* text = key.if_text(); text != nullptr && !case_sensitive)
      key = heap.text(to_lower(text->bytes));
    keys.push_back(std::move(key));
  }
  return keys;
}

// Returns the indices of the keys in sorted order. Equal keys keep their order.
std::vector<size_t> order_of(const std::vector<Value>& keys, bool reverse, Budget& budget) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? less(keys[b], keys[a], budget) : less(keys[a], keys[b], budget);
  });
  return order;
}

Value attribute_or_none(const Bound& bound, size_t parameter) {
  return bound.value_or(parameter, None{});
}

Value length_filter(Evaluator& /*evaluator*/, const Value& self, Arguments& arguments) {
  const Bound bound("length", arguments, {});
  return Value(length_of(self));
}

Value list_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("list", arguments, {});
  return evaluator.heap().list(evaluator.heap().items_of(self));
}

Value items_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("items", arguments, {});
  if (self.is_undefined()) return evaluator.heap().generator({});
  if (self.if_mapping() == nullptr) fail_render("can only get item pairs from a mapping");
  const Value view = view_of(*self.if_mapping(), Sequence::Kind::kItems, evaluator.heap());
  return evaluator.heap().generator(view.if_sequence()->items);
}

Value first_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("first", arguments, {});
  Sequence* sequence = self.if_sequence();
  if (sequence != nullptr && sequence->kind == Sequence::Kind::kGenerator &&
      !sequence->items.empty()) {  // takes one item, and leaves the others
    Value first = std::move(sequence->items.front());
    evaluator.budget().spend(static_cast<int64_t>(sequence->items.size() / 4));
    sequence->items.erase(sequence->items.begin());
    return first;
  }
  if (self.if_text() != nullptr && !self.if_text()->bytes.empty())
    return item(self, Value(Int{0}), evaluator.heap());
  std::vector<Value> items = evaluator.heap().items_of(self);
  if (items.empty()) return Heap::undefined("No first item, sequence was empty.");
  return items.front();
}

Value last_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("last", arguments, {});
  if (type_name(self) == "generator")
    fail_render("'generator' object has no last item; make it a list first");
  if (self.if_text() != nullptr && !self.if_text()->bytes.empty())
    return item(self, Value(Int{-1}), evaluator.heap());
  std::vector<Value> items = evaluator.heap().items_of(self);
  if (items.empty()) return Heap::undefined("No last item, sequence was empty.");
  return items.back();
}

Value join_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  Heap& heap = evaluator.heap();
  const std::string separator = bound.has(0) ? str(bound.at(0), heap) : "";
  const Path path(attribute_or_none(bound, 1), heap);
  TextBuilder out(heap);
  bool first = true;
  for (const Value& item : heap.items_of(self)) {
    if (!std::exchange(first, false)) out += separator;
    append_str(path.of(item), out);
  }
  return out.finish();
}

Value reverse_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("reverse", arguments, {});
  if (self.is(Kind::kText)) return slice(self, None{}, None{}, Value(Int{-1}), evaluator.heap());
  std::vector<Value> items = evaluator.heap().items_of(self);
  std::reverse(items.begin(), items.end());
  return evaluator.heap().generator(std::move(items));
}

Value sort_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  Heap& heap = evaluator.heap();
  const std::vector<Value> items = heap.items_of(self);
  // `attribute` may name several paths with commas between them. An item's sort key then has one
  // part for each path.
  std::vector<std::vector<Value>> parts(items.size());
  const Value attribute = attribute_or_none(bound, 2);
  std::string paths = attribute.if_text() != nullptr ? attribute.if_text()->bytes : "";
  for (bool more = true; more;) {
    const size_t comma = paths.find(',');
    more = comma != std::string::npos;
    const Value path =
        attribute.if_text() == nullptr ? attribute : heap.text(paths.substr(0, comma));
    if (more) paths.erase(0, comma + 1);
    const std::vector<Value> keys = keys_of(items, Path(path, heap), bound.flag_or(1, false), heap);
    for (size_t i = 0; i < items.size(); ++i)
      parts[i].push_back(keys[i]);
  }
  std::vector<Value> keys;
  for (std::vector<Value>& part : parts)
    keys.push_back(heap.list(std::move(part)));
  std::vector<Value> sorted;
  for (const size_t i : order_of(keys, bound.flag_or(0, false), heap.budget()))
    sorted.push_back(items[i]);
  return heap.list(std::move(sorted));
}

Value dictsort_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  Heap& heap = evaluator.heap();
  if (self.if_mapping() == nullptr) {
    if (self.is_undefined()) fail_render("{}", self.why_undefined());
    fail_render("dictsort() needs a dict, not {}", type_name(self));
  }
  const std::string by = bound.text_or(1, "key");
  if (by != "key" && by != "value") fail_render("you can only sort by either \"key\" or \"value\"");
  const Value view = view_of(*self.if_mapping(), Sequence::Kind::kItems, heap);
  const std::vector<Value>& items = view.if_sequence()->items;
  const Path path(Value(Int{by == "key" ? 0 : 1}), heap);
  const std::vector<Value> keys = keys_of(items, path, bound.flag_or(0, false), heap);
  std::vector<Value> sorted;
  for (const size_t i : order_of(keys, bound.flag_or(2, false), heap.budget()))
    sorted.push_back(items[i]);
  return heap.list(std::move(sorted));
}

Value unique_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  Heap& heap = evaluator.heap();
  const std::vector<Value> items = heap.items_of(self);
  const Path path(attribute_or_none(bound, 1), heap);
  const std::vector<Value> keys = keys_of(items, path, bound.flag_or(0, false), heap);
  std::vector<Value> unique;
  std::vector<Value> seen;
  for (size_t i = 0; i < items.size(); ++i) {
    hash(keys[i], heap.budget());  // refuses a key that Python could not put into a set
    const bool is_known = std::any_of(seen.begin(), seen.end(), [&](const Value& other) {
      return equal(keys[i], other, heap.budget());
    });
    if (is_known) continue;
    seen.push_back(keys[i]);
    unique.push_back(items[i]);
  }
  return heap.generator(std::move(unique));
}

template <bool largest>
Value extreme_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  Heap& heap = evaluator.heap();
  const std::vector<Value> items = heap.items_of(self);
  if (items.empty()) return Heap::undefined("No aggregated item, sequence was empty.");
  const Path path(attribute_or_none(bound, 1), heap);
  const std::vector<Value> keys = keys_of(items, path, bound.flag_or(0, false), heap);
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i)
    if (largest ? less(keys[best], keys[i], heap.budget())
                : less(keys[i], keys[best], heap.budget()))
      best = i;
  return items[best];
}

Value sum_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  Heap& heap = evaluator.heap();
  const Path path(attribute_or_none(bound, 0), heap);
  Value sum = bound.value_or(1, Value(Int{0}));
  if (sum.is(Kind::kText)) fail_render("sum() can't sum strings; use join");
  for (const Value& item : heap.items_of(self))
    sum = apply(ast::BinaryOp::kAdd, sum, path.of(item), heap);
  return sum;
}

Value map_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  Heap& heap = evaluator.heap();
  if (!truthy(self)) return heap.generator({});
  std::vector<Value> mapped;
  if (arguments.positional.empty() && !arguments.named.empty()) {
    const Bound bound("map", arguments, {"attribute", "default"}, 1);
    const Path path(bound.at(0), heap);
    const Value* fallback = bound.has_some(1) ? &bound.at(1) : nullptr;
    for (const Value& item : heap.items_of(self))
      mapped.push_back(path.of(item, fallback));
    return heap.generator(std::move(mapped));
  }
  if (arguments.positional.empty() || arguments.positional.front().if_text() == nullptr)
    fail_render("map requires a filter argument");
  const std::string name = arguments.positional.front().if_text()->bytes;
  arguments.positional.erase(arguments.positional.begin());
  for (const Value& item : heap.items_of(self)) {
    Arguments given = arguments;
    heap.budget().spend();
    mapped.push_back(evaluator.apply_filter(name, item, given));
  }
  return heap.generator(std::move(mapped));
}

// Implements select, reject, selectattr and rejectattr: gives the items that pass a test, or whose
// attribute does; the rejecting filters give the items that do not.
template <bool wanted, bool by_attribute>
Value select_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  Heap& heap = evaluator.heap();
  if (!truthy(self)) return heap.generator({});
  auto& given = arguments.positional;
  Value attribute = None{};
  if (by_attribute) {
    if (given.empty()) fail_render("missing parameter for attribute name");
    attribute = given.front();
    given.erase(given.begin());
  }
  const Path path(attribute, heap);
  std::string test;
  if (!given.empty()) {
    if (given.front().if_text() == nullptr) fail_render("the name of a test must be a string");
    test = given.front().if_text()->bytes;
    given.erase(given.begin());
  }
  std::vector<Value> selected;
  for (const Value& item : heap.items_of(self)) {
    heap.budget().spend();
    const Value tested = path.of(item);
    Arguments copy = arguments;
    const bool passes = test.empty() ? truthy(tested) : evaluator.apply_test(test, tested, copy);
    if (passes == wanted) selected.push_back(item);
  }
  return heap.generator(std::move(selected));
}

Value batch_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  Heap& heap = evaluator.heap();
  const Int size = std::max<Int>(bound.int_or(0, 1), 1);
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (Value& item : heap.items_of(self)) {
    if (static_cast<Int>(batch.size()) == size)
      batches.push_back(heap.list(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    if (bound.has_some(1) && static_cast<Int>(batch.size()) < size) {
      heap.check_items(static_cast<size_t>(std::min<Int>(size, Int{1} << 40)));
      batch.resize(static_cast<size_t>(size), bound.at(1));
    }
    batches.push_back(heap.list(std::move(batch)));
  }
  return heap.generator(std::move(batches));
}

Value slice_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  Heap& heap = evaluator.heap();
  const std::vector<Value> items = heap.items_of(self);
  const auto slices = static_cast<size_t>(std::clamp<Int>(bound.int_or(0, 1), 1, Int{1} << 32));
  heap.check_items(slices);
  const size_t size = items.size() / slices;
  const size_t num_longer = items.size() % slices;
  std::vector<Value> result;
  size_t at = 0;
  for (size_t i = 0; i < slices; ++i) {
    const size_t end = at + size + (i < num_longer ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<ptrdiff_t>(at),
                            items.begin() + static_cast<ptrdiff_t>(end));
    if (bound.has_some(1) && i >= num_longer) part.push_back(bound.at(1));
    result.push_back(heap.list(std::move(part)));
    at = end;
  }
  return heap.generator(std::move(result));
}

Value groupby_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  Heap& heap = evaluator.heap();
  const std::vector<Value> items = heap.items_of(self);
  const Path path(bound.at(0), heap);
  const std::vector<Value> keys = keys_of(items, path, bound.flag_or(2, false), heap);
  const std::vector<size_t> order = order_of(keys, false, heap.budget());
  std::vector<Value> groups;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    std::vector<Value> members;
    for (; end < order.size() && equal(keys[order[begin]], keys[order[end]], heap.budget()); ++end)
      members.push_back(items[order[end]]);
    groups.push_back(heap.tuple({path.of(items[order[begin]]), heap.list(std::move(members))}));
    begin = end;
  }
  return heap.list(std::move(groups));
}

Value attr_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  if (self.if_mapping() != nullptr)
    return Heap::undefined("'dict object' has no attribute '{}'", bound.text(0));
  return member(self, bound.text(0), evaluator.heap());
}

constexpr NamedBuiltin kSequenceFilters[] = {
    {"attr", attr_filter},
    {"batch", batch_filter},
    {"count", length_filter},
    {"dictsort", dictsort_filter},
    {"first", first_filter},
    {"groupby", groupby_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"map", map_filter},
    {"max", extreme_filter<true>},
    {"min", extreme_filter<false>},
    {"reject", select_filter<false, false>},
    {"rejectattr", select_filter<false, true>},
    {"reverse", reverse_filter},
    {"select", select_filter<true, false>},
    {"selectattr", select_filter<true, true>},
    {"slice", slice_filter},
    {"sort", sort_filter},
    {"sum", sum_filter},
    {"unique", unique_filter},
};

}  // namespace

Builtin find_sequence_filter(std::string_view name) {
  return find_in(kSequenceFilters, name);
}

}  // namespace encore::text::jinja
