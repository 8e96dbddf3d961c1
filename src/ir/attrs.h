// Holds an op's attributes: a few named values. They keep the order in which they were added, so
// that printed text is stable.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace encore::ir {

class Attrs {
 public:
  using Value = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, Value>> entries) : entries_(entries) {}

  [[nodiscard]] const Value* find(std::string_view name) const {
    for (const auto& [key, value] : entries_) {
      if (key == name) return &value;
    }
    return nullptr;
  }
  // These functions return the value of an attribute. Errors: kCompile when the attribute is
  // missing or of another type.
  [[nodiscard]] int64_t get_int(std::string_view name) const { return get<int64_t>(name); }
  [[nodiscard]] double get_double(std::string_view name) const { return get<double>(name); }
  [[nodiscard]] const std::string& get_string(std::string_view name) const {
    return get<std::string>(name);
  }
  [[nodiscard]] const std::vector<int64_t>& get_ints(std::string_view name) const {
    return get<std::vector<int64_t>>(name);
  }

  // Sets an attribute, replacing an earlier value of that name.
  void set(std::string name, Value value) {
    for (auto& [key, old] : entries_) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    entries_.emplace_back(std::move(name), std::move(value));
  }

  [[nodiscard]] auto begin() const { return entries_.begin(); }
  [[nodiscard]] auto end() const { return entries_.end(); }
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  template <typename T>
  [[nodiscard]] const T& get(std::string_view name) const {
    const Value* value = find(name);
    if (value == nullptr || !std::holds_alternative<T>(*value)) {
      fail(ErrorKind::kCompile, "attribute '{}' is missing or of another type", name);
    }
    return std::get<T>(*value);
  }

  std::vector<std::pair<std::string, Value>> entries_;
};

}  // namespace encore::ir
