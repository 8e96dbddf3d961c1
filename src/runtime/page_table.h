// Which pages hold the tokens of each sequence: a table on the device, a row a sequence, in the
// order of the step's rows. It stays from one step to the next; only what changes is sent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "runtime/host_launch.h"
#include "runtime/persistent_buffers.h"

namespace encore::runtime {

// Threads: one. Lifetime: refers to the memory of `persistent`.
class PageTable {
 public:
  // Of a graph with a persistent buffer `page_table`; of any other, it has no rows.
  // Errors: kMemory; kUnsupported when the device has no kernel for `write_pages`.
  PageTable(Device& device, const ir::Graph& graph, const PersistentBuffers& persistent);

  // Row `row` holds these pages, in order, for the steps launched behind the next write(). The
  // entry behind them is -1: a sequence that reaches it rests until it has a page.
  void set(int64_t row, std::span<const int32_t> pages);
  // Enqueues what has changed, if anything has.
  void write(Stream& stream) { launch_.launch(stream); }
  // Enqueues a write that changes nothing: what a device sets up at a first launch is set up.
  void warm_up(Stream& stream);

  // Entries that set() has had to change so far.
  [[nodiscard]] int64_t num_changed() const { return num_changed_; }

 private:
  struct Range {
    int32_t first = 0;
    int32_t count = 0;
  };
  // The changes to be written next; none when the last were written.
  std::span<Range> changes();

  int64_t width_ = 0;                       // entries of a row
  std::vector<std::vector<int32_t>> rows_;  // what the device's begin with, once all is written
  HostLaunch launch_;
  int64_t num_changed_ = 0;
};

}  // namespace encore::runtime
