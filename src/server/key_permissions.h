// Declares the permissions of an API key. They concern adapters (LoRA).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace encore::server {

struct KeyPermissions {
  // The names of the adapters that the key may use. An entry that ends with * stands for all names
  // that begin with the text before it. If absent, the key may use all adapters.
  std::optional<std::vector<std::string>> adapters;
  bool loads_adapters = false;  // whether the key may load and unload adapters

  [[nodiscard]] bool may_use(std::string_view adapter) const {
    if (!adapters) return true;
    for (const std::string_view allowed : *adapters) {
      const bool is_start = allowed.ends_with('*');
      if (is_start ? adapter.starts_with(allowed.substr(0, allowed.size() - 1))
                   : adapter == allowed)
        return true;
    }
    return false;
  }
};

}  // namespace encore::server
