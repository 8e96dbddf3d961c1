#include "model/config_keys.h"

#include <cmath>

#include "base/error.h"

namespace encore::model {

int64_t in_range(const json::Object& object, std::string_view key, int64_t number, int64_t low,
                 int64_t high) {
  if (number < low || number > high) {
    fail(ErrorKind::kModel, "{}: key '{}' must be between {} and {}, not {}", object.where(), key,
         low, high, number);
  }
  return number;
}

int64_t count_at(const json::Object& object, std::string_view key, int64_t max) {
  return in_range(object, key, object.int_at(key), 1, max);
}

int64_t count_or(const json::Object& object, std::string_view key, int64_t fallback, int64_t max) {
  return in_range(object, key, object.int_or(key, fallback), 1, max);
}

double real(const json::Object& object, std::string_view key, double number, double low) {
  if (!std::isfinite(static_cast<float>(number)) || number < low) {
    fail(ErrorKind::kModel, "{}: key '{}' must be a finite number of at least {}, not {}",
         object.where(), key, low, number);
  }
  return number;
}

double real_or(const json::Object& object, std::string_view key, double fallback, double low) {
  return real(object, key, object.double_or(key, fallback), low);
}

bool present(const json::Object& object, std::string_view key) {
  return object.raw().contains(key);
}

}  // namespace encore::model
