#include "text/jinja/arguments.h"

#include <algorithm>

namespace encore::text::jinja {

Bound::Bound(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> parameters, size_t num_required)
    : function_(function), parameters_(parameters), values_(parameters.size()) {
  if (arguments.positional.size() > parameters_.size()) {
    fail_render("{}() takes at most {} arguments, not {}", function_, parameters_.size(),
                arguments.positional.size());
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    if (found == parameters_.end()) fail_render("{}() has no argument '{}'", function_, name);
    std::optional<Value>& slot = values_[static_cast<size_t>(found - parameters_.begin())];
    if (slot) fail_render("{}() got two values for '{}'", function_, name);
    slot = value;
  }
  for (size_t i = 0; i < num_required; ++i)
    if (!values_[i]) fail_render("{}() needs the argument '{}'", function_, parameters_[i]);
}

Value Bound::value_or(size_t parameter, const Value& fallback) const {
  return values_[parameter].value_or(fallback);
}

bool Bound::flag_or(size_t parameter, bool fallback) const {
  return has(parameter) ? truthy(at(parameter)) : fallback;
}

Int Bound::int_or(size_t parameter, Int fallback) const {
  if (!has(parameter)) return fallback;
  if (!at(parameter).is_integral()) fail_type(parameter, "an integer");
  return at(parameter).as_int();
}

std::string Bound::text_or(size_t parameter, std::string fallback) const {
  return has(parameter) ? text(parameter) : std::move(fallback);
}

const std::string& Bound::text(size_t parameter) const {
  const Text* text = at(parameter).if_text();
  if (text == nullptr) fail_type(parameter, "a string");
  return text->bytes;
}

void Bound::fail_type(size_t parameter, std::string_view expected) const {
  if (at(parameter).is_undefined()) fail_render("{}", at(parameter).why_undefined());
  fail_render("{}(): '{}' must be {}, not {}", function_, parameters_[parameter], expected,
              type_name(at(parameter)));
}

}  // namespace encore::text::jinja
