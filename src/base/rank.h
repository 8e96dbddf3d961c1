// A rank is one of the devices that compute a model together. Each rank has a share of the weights
// and of KV memory.
#pragma once

namespace encore {

struct Rank {
  int index = 0;
  int size = 1;

  friend bool operator==(const Rank&, const Rank&) = default;
};

}  // namespace encore
