// Sends the inputs of a step to the device in one launch before the step. All inputs lie in one
// packed struct, at addresses that are fixed per bucket. The same launch sends the pages that are
// new to the device (page_table.h).
//
// Inputs with rows over sequences lie below the middle of the region, and inputs with rows over
// tokens lie above it. Both are packed for the step's padded sizes. So the address of an input
// depends on B alone or on T alone, and a step sends one contiguous range that is no larger than
// its inputs.
//
//            <-- inputs over B ---|--- inputs over T -->
//   [ ......... max_lens | kv_lens | ids | positions | slots ........ ]
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "backend/device.h"
#include "backend/step_inputs.h"
#include "ir/graph.h"
#include "runtime/host_launch.h"
#include "runtime/page_table.h"
#include "runtime/persistent_buffers.h"

namespace encore::runtime {

// Computes the offsets of the step inputs from the start of their memory region.
class StepLayout {
 public:
  StepLayout(const ir::Graph& graph, const ir::Sizes& max_sizes);

  [[nodiscard]] int64_t bytes() const { return bytes_; }
  // Returns the offset of an input at given padded sizes.
  [[nodiscard]] int64_t offset(ir::ValueId input, const ir::Sizes& sizes) const;
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  // Returns the range of bytes of the memory region that a step of these sizes sends.
  [[nodiscard]] Range range(const ir::Sizes& sizes) const;
  [[nodiscard]] const std::vector<ir::ValueId>& inputs() const { return inputs_; }

 private:
  std::vector<ir::ValueId> inputs_;
  std::vector<ir::Type> types_;  // by position in inputs_
  int64_t middle_ = 0;
  int64_t bytes_ = 0;
};

// Owns the memory region of the inputs on the device, and its copies (twins) in host memory.
// Threads: one. Lifetime: refers to the graph and to the memory of `persistent`.
class StepInputs {
 public:
  // `num_twins` is the number of host copies of the inputs: one more than the steps whose inputs
  // may be on their way to the device at a time. Errors: kMemory; kUnsupported when the device has
  // no kernel for `write_inputs`.
  StepInputs(Device& device, const ir::Graph& graph, const ir::Sizes& max_sizes,
             const PersistentBuffers& persistent, int64_t num_twins = 2);

  // Starts a step with the next host copy of the inputs. Waits until the device has read what was
  // last sent from that copy. Inputs of fixed size are zero unless they are written. `real` are the
  // sizes before padding.
  void begin(const ir::Sizes& real, const ir::Sizes& padded);
  // Returns the step's sizes before padding.
  [[nodiscard]] const ir::Sizes& real() const { return real_; }
  // Returns the host's entries of one input for this step. There is an entry for each padded row,
  // and the caller writes those of the real rows, which come first. Errors: aborts on an unknown
  // name or a wrong element type.
  template <typename T>
  [[nodiscard]] std::span<T> host(std::string_view name) {
    const auto bytes = host_bytes(name, dtype_of<T>());
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  [[nodiscard]] bool has(std::string_view name) const { return find(name).has_value(); }
  // Returns the host's entries of an i32 input of the table in backend/step_inputs.h. Empty where
  // the program has no such input.
  [[nodiscard]] std::span<int32_t> host(const StepInput& input);
  // Returns the host's packed bytes of all inputs of the step.
  [[nodiscard]] std::span<std::byte> packed() const {
    const auto [begin, end] = layout_.range(padded_);
    return {host_ + begin, static_cast<size_t>(end - begin)};
  }
  // Returns the page table of one group of layers (model/graph.h), which holds the pages of the
  // sequences of a step. Changes to it are sent by the next send() or send_pages().
  [[nodiscard]] PageTable& page_table(size_t group = 0) { return tables_.at(group)->pages; }
  [[nodiscard]] size_t num_page_tables() const { return tables_.size(); }
  // Fills the padding rows and enqueues the launch that writes the inputs and the changed pages.
  // Where no begin() came since the last call, it sends the same inputs once more.
  void send(Stream& stream);
  // Enqueues the launch that writes pages alone, where pages have changed and were not sent yet.
  void send_pages(Stream& stream) {
    for (const auto& table : tables_)
      table->launch.launch(stream);
  }

  [[nodiscard]] TensorView device_view(ir::ValueId input, const ir::Sizes& sizes) const;
  [[nodiscard]] int64_t bytes() const { return layout_.bytes(); }

 private:
  template <typename T>
  static constexpr DType dtype_of() {
    static_assert(std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t> ||
                  std::is_same_v<T, float>);
    return std::is_same_v<T, float> ? DType::kF32 : sizeof(T) == 8 ? DType::kI64 : DType::kI32;
  }
  [[nodiscard]] std::optional<ir::ValueId> find(std::string_view name) const;
  [[nodiscard]] std::span<std::byte> host_bytes(std::string_view name, DType dtype);
  [[nodiscard]] std::byte* host_rows(ir::ValueId input) const {
    return host_ + layout_.offset(input, padded_);
  }
  void fill_padding();
  // A page table and the launch that writes it. The launch of the first group writes the step's
  // inputs as well.
  struct Table {
    Table(Device& device, const Memory& inputs, const TensorView& table, int64_t num_twins);

    HostLaunch launch;
    PageTable pages;
  };
  [[nodiscard]] HostLaunch& launch() { return tables_.front()->launch; }

  const ir::Graph& graph_;
  StepLayout layout_;
  Memory device_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::byte* host_ = nullptr;  // the twin of the region that holds the step's inputs
  ir::Sizes real_;
  ir::Sizes padded_;
};

}  // namespace encore::runtime
