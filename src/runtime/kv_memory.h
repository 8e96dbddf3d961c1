// Owns the memory of a program's states (KV caches). Addresses are reserved at the start, and
// recordings are made against them. The memory is mapped last, when it is known how much is left.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "backend/staged_copy.h"
#include "ir/graph.h"

namespace encore::runtime {

// The number of rows of the states of each group, indexed by group (ir::Value::group). A row of a
// state is a page, and each group has page numbers of its own.
using GroupRows = std::vector<int64_t>;

// A copy of some rows of every state, kept on the host while the states have no memory on the
// device.
struct SavedRows {
  std::vector<std::vector<int32_t>> rows;  // by group; ascending, distinct
  Memory content;                          // state after state, row after row
};

class KvMemory {
 public:
  // Reserves addresses for every state of the graph at its full size. Maps no memory.
  KvMemory(Device& device, const ir::Graph& graph);

  [[nodiscard]] TensorView view(ir::ValueId state) const;

  [[nodiscard]] size_t num_groups() const { return num_groups_; }
  // Maps memory for the first rows of every state; `rows` has their number by group. Rows that were
  // mapped before keep their content. Errors: kMemory; states that had no memory before have none
  // then.
  void map(const GroupRows& rows);
  // Gives all memory back. The addresses stay reserved, and recordings made against them stay
  // valid.
  void unmap();

  // Copies `rows`, given by group, of every state to host memory. REQUIRES: the rows are mapped,
  // and all launches that write them have finished. Errors: kMemory when the host has too little
  // memory.
  [[nodiscard]] SavedRows save(StagedCopy& copy, std::vector<std::vector<int32_t>> rows) const;
  // Copies saved rows back to the device. REQUIRES: their memory is mapped again.
  void restore(StagedCopy& copy, const SavedRows& saved) const;

  // Returns the memory that mapping `rows`, the number of rows of each group, takes. Units: bytes,
  // rounded up for each state to the granularity at which the device maps memory.
  [[nodiscard]] int64_t bytes_for(const GroupRows& rows) const;
  [[nodiscard]] int64_t mapped_bytes() const;

 private:
  struct State {
    ir::ValueId id;
    ir::Type type;
    size_t group = 0;
    std::unique_ptr<AddressRange> range;

    [[nodiscard]] int64_t bytes_for(int64_t rows) const;
    [[nodiscard]] int64_t row_bytes() const { return bytes_for(1); }
  };
  // Calls `visit` for the saved rows of every state, with their addresses on the device and in the
  // saved copy. Neighbouring rows are visited in one call.
  using Visit = std::function<void(std::byte* device, std::byte* host, int64_t bytes)>;
  void for_each_piece(const SavedRows& saved, const char* what, const Visit& visit) const;

  std::vector<State> states_;
  size_t num_groups_ = 1;
};

// Returns the most rows of the first group, up to `wanted`, with which the states of all programs
// fit into `bytes` bytes. The programs share one pool of rows for each group. `rows_beside` returns
// the number of rows of every group, given the number of rows of the first group. Returns 0 where
// not even one row fits.
int64_t rows_that_fit(std::span<KvMemory* const> programs,
                      const std::function<GroupRows(int64_t)>& rows_beside, int64_t wanted,
                      int64_t bytes);

}  // namespace encore::runtime
