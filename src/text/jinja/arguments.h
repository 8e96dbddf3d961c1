// Holds the arguments of a call, and gives functions access to them by parameter.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/heap.h"

namespace encore::text::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments of a call, assigned to the parameters of a function. Errors of all functions:
// RenderFailure, naming the function.
class Bound {
 public:
  // Assigns the arguments of a call to `parameters`. The first `num_required` parameters must be
  // given.
  Bound(std::string_view function, const Arguments& arguments,
        std::initializer_list<std::string_view> parameters, size_t num_required = 0);

  [[nodiscard]] bool has(size_t parameter) const { return values_[parameter].has_value(); }
  // Returns whether the call gives an argument for the parameter, and the argument is not None.
  [[nodiscard]] bool has_some(size_t parameter) const {
    return has(parameter) && !values_[parameter]->is_none();
  }
  // Returns the argument of a call for the parameter with this index. REQUIRES: has(parameter).
  [[nodiscard]] const Value& at(size_t parameter) const { return *values_[parameter]; }
  [[nodiscard]] Value value_or(size_t parameter, const Value& fallback) const;
  [[nodiscard]] bool flag_or(size_t parameter, bool fallback) const;
  [[nodiscard]] Int int_or(size_t parameter, Int fallback) const;
  [[nodiscard]] std::string text_or(size_t parameter, std::string fallback) const;
  // Returns the text of an argument. Errors: RenderFailure also where the argument is not a string.
  [[nodiscard]] const std::string& text(size_t parameter) const;

 private:
  [[noreturn]] void fail_type(size_t parameter, std::string_view expected) const;

  std::string_view function_;
  std::vector<std::string_view> parameters_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace encore::text::jinja
