// Memory of a program's states (KV caches): addresses from the start, memory once it is known how
// much is left. Recordings are made against the addresses; their memory comes last.
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

// The number of rows of each group's states, by group (ir::Value::group). Pages are rows, and each
// group has page numbers of its own.
using GroupRows = std::vector<int64_t>;

// Some rows of every state, kept on the host while the states have no memory on the device.
struct SavedRows {
  std::vector<std::vector<int32_t>> rows;  // by group; ascending, distinct
  Memory content;                          // state after state, row after row
};

class KvMemory {
 public:
  // Reserves addresses for every state of the graph at its full size; maps nothing.
  KvMemory(Device& device, const ir::Graph& graph);

  [[nodiscard]] TensorView view(ir::ValueId state) const;

  [[nodiscard]] size_t num_groups() const { return num_groups_; }
  // Puts memory behind the first rows of every state, as many as its group has; what was there keeps
  // its content. Errors: kMemory; states that had no memory have none then.
  void map(const GroupRows& rows);
  // Gives all memory back. The addresses stay, and so do recordings made against them.
  void unmap();

  // Copies those rows of every state to host memory. The rows are mapped and whatever writes them
  // has finished. Errors: kMemory when the host has not the memory.
  [[nodiscard]] SavedRows save(StagedCopy& copy, std::vector<std::vector<int32_t>> rows) const;
  // Copies saved rows back, into memory that is mapped again.
  void restore(StagedCopy& copy, const SavedRows& saved) const;

  // The memory that mapping those rows takes. Units: bytes, rounded up to what the device maps.
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
  // Bytes of every state's rows, those beside each other in one piece: where they lie on the device
  // and where among the saved.
  using Visit = std::function<void(std::byte* device, std::byte* host, int64_t bytes)>;
  void for_each_piece(const SavedRows& saved, const char* what, const Visit& visit) const;

  std::vector<State> states_;
  size_t num_groups_ = 1;
};

// The most rows of the first group, up to `wanted`, with which the states of all the programs fit so many
// bytes; they share one pool for each group. `rows_beside` says how many each group has beside so many of the
// first. 0: not one fits.
int64_t rows_that_fit(std::span<KvMemory* const> programs,
                      const std::function<GroupRows(int64_t)>& rows_beside, int64_t wanted,
                      int64_t bytes);

}  // namespace encore::runtime
