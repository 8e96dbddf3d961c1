// Keeps a table on the device of the pages that hold each sequence's tokens. The table has a row
// for each sequence, in the order of the step's rows. It stays from one step to the next, and only
// changes are sent.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/host_launch.h"

namespace encore::runtime {

// The range of entries, of a row of a page table or of the step's inputs, that `write_inputs`
// writes.
struct WrittenRange {
  int32_t first = 0;
  int32_t count = 0;
};

// The page table of one group of layers. Threads: one. Lifetime: refers to the launch.
class PageTable {
 public:
  // `launch` is a launch of the op `write_inputs` that writes to `table`, the page table on the
  // device, which may have no rows.
  PageTable(HostLaunch& launch, const TensorView& table);

  // Sets row `row` to these pages, in order, for the steps that are enqueued after the next
  // `write_inputs` launch. The entry after the last page is -1: a sequence that reaches it rests
  // until it has a page. No kernel reads the first `num_unseen` entries any more, so these are not
  // sent.
  void set(int64_t row, std::span<const int32_t> pages, int64_t num_unseen = 0);
  // A function that is called for each row that set() changes.
  using Listener =
      std::function<void(int64_t row, std::span<const int32_t> pages, int64_t num_unseen)>;
  void listen(Listener listener) { listener_ = std::move(listener); }

 private:
  HostLaunch& launch_;
  Listener listener_;
  int64_t width_;                           // entries of a row
  std::vector<std::vector<int32_t>> rows_;  // the first entries of rows on the device, once sent
};

}  // namespace encore::runtime
