// The values of a template: the Python values that templates can make or see.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/budget.h"

namespace encore::text::jinja {

namespace ast {
struct Macro;
}
struct Arguments;
class Evaluator;
class Mapping;
struct Function;
struct Loop;
struct Namespace;
struct Scope;
struct Sequence;
struct Text;
class Value;

// An integer of a template. It is wide enough for all integers of JSON.
using Int = __int128;
using Builtin = Value (*)(Evaluator& evaluator, const Value& self, Arguments& arguments);

// The value of a name or a member that does not exist. Printing it gives no text; most other uses
// fail with `why`.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};

// A value of a template. It is cheap to copy: large content is shared and does not change, except
// the members of a namespace and the items of a generator.
class Value {
 public:
  // The kinds of values, in the order of the variant `data_`.
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kSequence,
    kMapping,
    kNamespace,
    kLoop,
    kFunction,
  };

  Value() = default;
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(None none) : data_(none) {}
  explicit Value(bool flag) : data_(flag) {}
  Value(const char*) = delete;  // the pointer would become a boolean
  explicit Value(Int number) : data_(number) {}
  explicit Value(double number) : data_(number) {}
  explicit Value(std::shared_ptr<const Text> text) : data_(std::move(text)) {}
  explicit Value(std::shared_ptr<Sequence> sequence) : data_(std::move(sequence)) {}
  explicit Value(std::shared_ptr<const Mapping> mapping) : data_(std::move(mapping)) {}
  explicit Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}
  explicit Value(std::shared_ptr<Loop> loop) : data_(std::move(loop)) {}
  explicit Value(std::shared_ptr<const Function> function) : data_(std::move(function)) {}

  [[nodiscard]] Kind kind() const { return static_cast<Kind>(data_.index()); }
  [[nodiscard]] bool is(Kind kind) const { return this->kind() == kind; }
  [[nodiscard]] bool is_undefined() const { return is(Kind::kUndefined); }
  [[nodiscard]] bool is_none() const { return is(Kind::kNone); }
  [[nodiscard]] bool is_number() const;    // a boolean counts, as in Python
  [[nodiscard]] bool is_integral() const;  // a boolean or an integer

  // The functions if_...() return the content, or nullptr where the value is of another kind.
  // Lifetime: the value's.
  [[nodiscard]] const Text* if_text() const { return get<std::shared_ptr<const Text>>(); }
  [[nodiscard]] Sequence* if_sequence() const { return get<std::shared_ptr<Sequence>>(); }
  [[nodiscard]] const Mapping* if_mapping() const { return get<std::shared_ptr<const Mapping>>(); }
  [[nodiscard]] Namespace* if_namespace() const { return get<std::shared_ptr<Namespace>>(); }
  [[nodiscard]] Loop* if_loop() const { return get<std::shared_ptr<Loop>>(); }
  [[nodiscard]] const Function* if_function() const {
    return get<std::shared_ptr<const Function>>();
  }

  // as_bool(), as_int() and as_double() return the value as a C++ type. REQUIRES: a boolean for
  // as_bool(), is_integral() for as_int(), is_number() for as_double().
  [[nodiscard]] bool as_bool() const { return std::get<bool>(data_); }
  [[nodiscard]] Int as_int() const;
  [[nodiscard]] double as_double() const;
  // Says why an undefined value is undefined.
  [[nodiscard]] std::string why_undefined() const;

  // Returns the address of the shared content that the value refers to; nullptr for a value that
  // has none.
  [[nodiscard]] const void* identity() const;
  // Returns how deep containers nest within this value, itself included; 0 for a value that is not
  // a container.
  [[nodiscard]] int depth() const;

 private:
  template <typename Pointer>
  [[nodiscard]] typename Pointer::element_type* get() const {
    const Pointer* pointer = std::get_if<Pointer>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  std::variant<Undefined, None, bool, Int, double, std::shared_ptr<const Text>,
               std::shared_ptr<Sequence>, std::shared_ptr<const Mapping>,
               std::shared_ptr<Namespace>, std::shared_ptr<Loop>, std::shared_ptr<const Function>>
      data_;
};

struct Text {
  std::string bytes;    // valid UTF-8
  bool markup = false;  // marked by `safe`: adding other text to it escapes that text
  Charge charge;
};

// A value that Python iterates by position, such as a list, a tuple or a range.
struct Sequence {
  enum class Kind : uint8_t { kList, kTuple, kKeys, kValues, kItems, kRange, kGenerator };

  Kind kind = Kind::kList;
  std::vector<Value> items;  // of a generator: the items that it has not given yet
  std::string label;         // of a range: its text when it is printed
  int depth = 1;
  Charge charge;
};

// A dict. It keeps its entries in the order of insertion.
class Mapping {
 public:
  using Entry = std::pair<Value, Value>;

  // Makes a dict of the entries. A later entry replaces the value of an earlier one with an equal
  // key. Errors: RenderFailure when a value cannot be a key.
  Mapping(std::vector<Entry> entries, Charge charge, Budget& budget);

  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] int depth() const { return depth_; }
  // Returns the value of a key, or nullptr where the dict lacks the key. Errors: RenderFailure when
  // `key` cannot be a key. Lifetime: the dict's.
  [[nodiscard]] const Value* find(const Value& key, Budget& budget) const;
  [[nodiscard]] const Value* find(std::string_view key) const;

 private:
  template <typename Matches>
  [[nodiscard]] const Value* find_hashed(size_t hash, Matches matches) const;

  std::vector<Entry> entries_;
  std::vector<std::pair<size_t, uint32_t>> by_hash_;  // hash and index of an entry, ascending
  int depth_ = 1;
  Charge charge_;
};

struct Namespace {
  std::map<std::string, Value, std::less<>> members;
  Charge charge;
};

// The variable `loop` that a template sees within a for statement.
struct Loop {
  std::vector<Value> items;
  size_t index = 0;
  int depth = 1;  // how deep containers nest
  Charge charge;
};

// A macro with the scope that defines it, or a built-in function, or a method with its object
// `self`.
struct Function {
  std::string name;
  Builtin builtin = nullptr;
  Value self;
  const ast::Macro* macro = nullptr;
  std::shared_ptr<Scope> scope;
  Charge charge;
};

// Returns Python's name of the value's type, such as "str" or "dict".
std::string_view type_name(const Value& value);
// Returns whether Python's bool() of the value is true.
bool truthy(const Value& value);
// Returns whether two values are equal by Python's ==. Containers are compared by content.
bool equal(const Value& a, const Value& b, Budget& budget);
// Returns a hash of a value that can be a key of a dict. Errors: RenderFailure for other values.
size_t hash(const Value& value, Budget& budget);

}  // namespace encore::text::jinja
