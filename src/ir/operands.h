// Holds operands by name: the values that a node reads, the tensors of a launch, or the types that
// a shape function gets.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace encore::ir {

// Maps names to operands in the order of the op's row. An absent optional operand has no entry.
// Lifetime: the names are literals or belong to an op's row.
template <typename T>
class Operands {
 public:
  // Holds an operand with its name, as {"weight", w}. An optional operand is {"bias", b}, where b
  // is a pointer or a std::optional that may be empty. An item without a name is the next operand
  // that the row requires (ir::named).
  struct Item {
    // NOLINTBEGIN(google-explicit-constructor): items read as pairs
    Item(T value) : value(std::move(value)) {}
    Item(std::string_view name, T value) : name(name), value(std::move(value)) {}
    Item(std::string_view name, const T* given) : name(name), optional(true) {
      if (given != nullptr) value = *given;
    }
    Item(std::string_view name, std::optional<T> given)
        : name(name), value(std::move(given)), optional(true) {}
    // NOLINTEND(google-explicit-constructor)

    std::string_view name;
    std::optional<T> value;
    bool optional = false;
  };

  Operands() = default;
  Operands(std::initializer_list<Item> items) {
    for (const Item& item : items) {
      if (item.value) add(item.name, *item.value, item.optional);
    }
  }

  void reserve(size_t size) {
    names_.reserve(size);
    values_.reserve(size);
  }
  void add(std::string_view name, T value, bool optional = false) {
    names_.push_back({name, optional});
    values_.push_back(std::move(value));
  }

  // Returns the operand of that name, or null if it is absent.
  [[nodiscard]] const T* find(std::string_view name) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i].name == name) return &values_[i];
    }
    return nullptr;
  }
  // Returns the operand of that name. Errors: kCompile when it is absent.
  [[nodiscard]] const T& operator[](std::string_view name) const {
    const T* value = find(name);
    if (value == nullptr) fail(ErrorKind::kCompile, "there is no operand '{}'", name);
    return *value;
  }
  [[nodiscard]] T& operator[](std::string_view name) {
    return const_cast<T&>(std::as_const(*this)[name]);
  }
  const T& operator[](int place) const = delete;  // operands have names

  [[nodiscard]] size_t size() const { return values_.size(); }
  [[nodiscard]] bool empty() const { return values_.empty(); }
  [[nodiscard]] auto begin() const { return values_.begin(); }
  [[nodiscard]] auto end() const { return values_.end(); }
  [[nodiscard]] auto begin() { return values_.begin(); }
  [[nodiscard]] auto end() { return values_.end(); }
  [[nodiscard]] const std::vector<T>& values() const { return values_; }
  [[nodiscard]] std::vector<T>& values() { return values_; }
  // Returns the name of values()[i].
  [[nodiscard]] std::string_view name(size_t i) const { return names_[i].name; }
  [[nodiscard]] bool is_optional(size_t i) const { return names_[i].optional; }

  [[nodiscard]] Operands without(std::initializer_list<std::string_view> left_out) const {
    Operands kept;
    for (size_t i = 0; i < size(); ++i) {
      if (std::ranges::count(left_out, names_[i].name) == 0)
        kept.add(names_[i].name, values_[i], names_[i].optional);
    }
    return kept;
  }
  // Applies `f` to each operand and keeps the names.
  template <typename F>
  [[nodiscard]] auto map(const F& f) const {
    Operands<decltype(f(values_[0]))> made;
    made.reserve(size());
    for (size_t i = 0; i < size(); ++i)
      made.add(names_[i].name, f(values_[i]), names_[i].optional);
    return made;
  }

  friend bool operator==(const Operands&, const Operands&) = default;

 private:
  struct Name {
    std::string_view name;
    bool optional = false;
    friend bool operator==(const Name&, const Name&) = default;
  };
  std::vector<Name> names_;
  std::vector<T> values_;
};

}  // namespace encore::ir
