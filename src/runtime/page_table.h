// Keeps a table on the device of the pages that hold each sequence's tokens: a row a sequence, in
// the order of the step's rows. It stays from one step to the next; only changes are sent.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/host_launch.h"

namespace encore::runtime {

// The part of a row, or of the step's inputs, that `write_inputs` writes.
struct WrittenRange {
  int32_t first = 0;
  int32_t count = 0;
};

// Threads: one. Lifetime: refers to the launch.
class PageTable {
 public:
  // `launch` is one of `write_inputs`, which writes to `table`. A table without rows has none to
  // set.
  PageTable(HostLaunch& launch, const TensorView& table);

  // Row `row` holds these pages, in order, for the steps launched behind the next launch. The entry
  // behind them is -1: a sequence that reaches it rests until it has a page. Nobody looks at the first
  // `num_unseen` entries any more: what the device has there may stay.
  void set(int64_t row, std::span<const int32_t> pages, int64_t num_unseen = 0);
  // Is told of each row that set() changes.
  using Listener =
      std::function<void(int64_t row, std::span<const int32_t> pages, int64_t num_unseen)>;
  void listen(Listener listener) { listener_ = std::move(listener); }

 private:
  HostLaunch& launch_;
  Listener listener_;
  int64_t width_;                           // entries of a row
  std::vector<std::vector<int32_t>> rows_;  // what the device's begin with, once all is written
};

}  // namespace encore::runtime
