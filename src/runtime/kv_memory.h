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

// Some rows of every state, kept on the host while the states have no memory on the device.
struct SavedRows {
  std::vector<int32_t> rows;  // ascending, distinct
  Memory content;             // state after state, row after row
};

class KvMemory {
 public:
  // Reserves addresses for every state of the graph at its full size; maps nothing.
  KvMemory(Device& device, const ir::Graph& graph);

  [[nodiscard]] TensorView view(ir::ValueId state) const;

  // Puts memory behind the first `rows` rows (pages) of every state; what was there keeps its
  // content. Errors: kMemory; states that had no memory have none then.
  void map(int64_t rows);
  // Gives all memory back. The addresses stay, and so do recordings made against them.
  void unmap();

  // Copies those rows of every state to host memory. The rows are mapped and whatever writes them
  // has finished. Errors: kMemory when the host has not the memory.
  [[nodiscard]] SavedRows save(StagedCopy& copy, std::vector<int32_t> rows) const;
  // Copies saved rows back, into memory that is mapped again.
  void restore(StagedCopy& copy, const SavedRows& saved) const;

  // What mapping `rows` rows of every state takes. Units: bytes, rounded up to what the device
  // maps.
  [[nodiscard]] int64_t bytes_for(int64_t rows) const;
  [[nodiscard]] int64_t mapped_bytes() const;

 private:
  struct State {
    ir::ValueId id;
    ir::Type type;
    std::unique_ptr<AddressRange> range;

    [[nodiscard]] int64_t bytes_for(int64_t rows) const;
    [[nodiscard]] int64_t row_bytes() const { return bytes_for(1); }
  };
  // Bytes of every state's rows, those beside each other in one piece: where they lie on the device
  // and where among the saved.
  using Visit = std::function<void(std::byte* device, std::byte* host, int64_t bytes)>;
  void for_each_piece(const SavedRows& saved, const char* what, const Visit& visit) const;

  std::vector<State> states_;
};

// The most rows, up to `wanted`, that every state of all the programs may have in so many bytes.
int64_t rows_that_fit(std::span<KvMemory* const> programs, int64_t wanted, int64_t bytes);

}  // namespace encore::runtime
