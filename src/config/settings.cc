#include "config/settings.h"

#include <type_traits>

namespace encore::config {
namespace {

template <typename T>
void call(void (*set)(Settings&, T), Settings& settings, const Value& value) {
  set(settings, std::get<std::remove_cvref_t<T>>(value));
}

void put(Settings& settings, const Option& option, const Value& value) {
  std::visit([&](auto set) { call(set, settings, value); }, option.set);
}

}  // namespace

Settings make_settings(const Options& options, std::span<const Option* const> taken) {
  Settings settings;
  for (const Option* option : taken) {
    if (const Value* value = options.find(*option)) {
      put(settings, *option, *value);
    } else if (option->fallback.is_value) {
      const Item item = scalar(std::string(option->fallback.text), 1);
      put(settings, *option, read_value(*option, item, "default", option->name));
    }
  }
  return settings;
}

Settings make_settings(const Options& options) {
  std::vector<const Option*> all;
  for (const Option& option : all_options())
    all.push_back(&option);
  return make_settings(options, all);
}

}  // namespace encore::config
