// Names an adapter (LoRA) that requests may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace encore::loader {

// A loaded adapter. Immutable. It is shared by the map from names to adapters and by the requests
// that use it: a request keeps its adapter also when the name is removed or given to another
// adapter.
struct Adapter {
  std::string name;
  std::filesystem::path path;
  // A number that no other loaded adapter has, so that adapters of different generations share no K
  // and V.
  int64_t generation = 0;
};

}  // namespace encore::loader
