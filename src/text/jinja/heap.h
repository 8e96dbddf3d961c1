// Makes the values of one rendering, and counts the memory of each in the rendering's budget.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/jinja/value.h"

namespace encore::text::jinja {

// Makes values. Lifetime: the heap must outlive its values. Threads: one at a time.
class Heap {
 public:
  explicit Heap(const Limits& limits) : budget_(limits) {}
  // Empties the namespaces, so that no namespace keeps itself alive by a member that refers to it.
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  [[nodiscard]] Budget& budget() { return budget_; }

  // Makes a text. REQUIRES: `bytes` are valid UTF-8.
  Value text(std::string bytes, bool markup = false);
  Value sequence(Sequence::Kind kind, std::vector<Value> items, std::string label = {});
  Value list(std::vector<Value> items) { return sequence(Sequence::Kind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) {
    return sequence(Sequence::Kind::kTuple, std::move(items));
  }
  Value generator(std::vector<Value> items) {
    return sequence(Sequence::Kind::kGenerator, std::move(items));
  }
  Value mapping(std::vector<Mapping::Entry> entries);
  Value new_namespace(std::map<std::string, Value, std::less<>> members);
  std::shared_ptr<Loop> loop(std::vector<Value> items);
  Value function(Function function);
  template <typename... Args>
  static Value undefined(fmt::format_string<Args...> format, Args&&... args) {
    return Undefined{
        std::make_shared<const std::string>(fmt::format(format, std::forward<Args>(args)...))};
  }
  // Makes a value of JSON. Bytes of strings that are not UTF-8 become U+FFFD.
  Value from_json(const json::value& json, int depth = 0);

  // Returns the items that Python's iteration over the value gives, and leaves a generator empty.
  // Errors: RenderFailure for a value that cannot be iterated.
  std::vector<Value> items_of(const Value& value);
  // Checks that a list of this many items fits the budget. Errors: RenderFailure of kLimit where it
  // does not.
  void check_items(size_t num_items) { budget_.check_room(num_items * sizeof(Value)); }
  // Checks that containers of this depth are not too deep for the functions that walk through them.
  // Errors: RenderFailure of kLimit where they are.
  static void check_depth(int depth);

 private:
  Budget budget_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// A text that is being built. Its memory is counted as it grows.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(&heap), charge_(&heap.budget(), 0) {}

  TextBuilder& operator+=(std::string_view bytes) {
    heap_->budget().spend_bytes(bytes.size());
    charge_.grow(bytes.size());
    bytes_.append(bytes);
    return *this;
  }
  TextBuilder& operator+=(char c) { return *this += std::string_view(&c, 1); }
  void append(size_t count, std::string_view bytes) {
    if (bytes.empty()) return;
    if (count > heap_->budget().limits().max_memory_bytes / bytes.size())
      heap_->budget().check_room(heap_->budget().limits().max_memory_bytes + 1);
    heap_->budget().check_room(count * bytes.size());
    for (; count > 0; --count)
      *this += bytes;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] Value finish(bool markup = false);
  [[nodiscard]] std::string release() { return std::move(bytes_); }

 private:
  Heap* heap_;
  std::string bytes_;
  Charge charge_;
};

}  // namespace encore::text::jinja
