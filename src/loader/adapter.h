// An adapter (LoRA) that requests may have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace encore::loader {

// Immutable. Shared by those that name it and the requests that have it: they keep it also when its name
// is taken away or given to another.
struct Adapter {
  std::string name;
  std::filesystem::path path;
  // No other that was loaded has it, so adapters of different generations share no K and V.
  int64_t generation = 0;
};

}  // namespace encore::loader
