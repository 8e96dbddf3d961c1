// The end of a step: tokens published, inputs moved on.
#include "backend/advance.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "backend/cpu/kernels.h"

namespace encore::cpu {
namespace {

using namespace advance_op;  // NOLINT(google-build-using-namespace): where marks lie

// Row b's step inputs.
struct Row {
  int32_t& id;
  int32_t& position;
  int32_t& slot;
  int32_t& kv_len;
};

// To `token`, the next of its sequence, whose page is the one given.
void move_on(const Row& row, int32_t token, int32_t page, int64_t page_size) {
  const int32_t position = row.kv_len;
  row.id = token;
  row.position = position;
  row.slot = static_cast<int32_t>(page * page_size + position % page_size);
  row.kv_len = position + 1;
}

void become_padding(const Row& row) {
  row.id = -1;
  row.position = 0;
  row.slot = -1;
  row.kv_len = 0;
}

void advance(Pool& /*pool*/, const KernelArgs& args) {
  const auto ints = [&](std::string_view name) { return args.inputs[name].as<int32_t>(); };
  const TensorView& page_table = args.inputs["page_table"];
  const TensorView& stop_tokens = args.inputs["stop_tokens"];
  const TensorView& ring = args.inputs["token_ring"];
  const int32_t* const next = ints("next");
  const int32_t* const max_lens = ints("max_lens");
  int32_t* const ids = ints("ids");
  int32_t* const positions = ints("positions");
  int32_t* const slots = ints("slots");
  int32_t* const kv_lens = ints("kv_lens");
  int32_t* const last_tokens = ints("last_tokens");
  int32_t* const clock = ints("step_clock");
  int32_t* const marks = ints("ring_marks");
  const int64_t num_rows = args.inputs["next"].shape[0];
  const int64_t page_size = args.attrs.get_int("page_size");
  const uint32_t done = static_cast<uint32_t>(clock[0]);
  bool any_left = false;
  for (int64_t b = 0; b < num_rows; ++b) {
    const int32_t token = next[b];
    last_tokens[b] = token;
    ring.as<int32_t>()[done % ring.shape[0] * ring.shape[1] + b] = token;
    int32_t& kv_len = kv_lens[b];
    if (args.step.q != 1 || kv_len == 0) continue;
    const int32_t* stops = stop_tokens.as<int32_t>() + b * stop_tokens.shape[1];
    const int32_t* stops_end = stops + stop_tokens.shape[1];
    const bool is_stop = std::find(stops, stops_end, token) != stops_end;
    const int64_t entry = kv_len / page_size;
    const int32_t page =
        entry < page_table.shape[1] ? page_table.row<int32_t>(b)[entry] : int32_t{-1};
    const bool goes_on = !ends(is_stop, kv_len + 1, max_lens[b]) && page >= 0;
    const Row row{ids[b], positions[b], slots[b], kv_len};
    goes_on ? move_on(row, token, page, page_size) : become_padding(row);
    any_left |= goes_on;
  }
  clock[0] = static_cast<int32_t>(done + 1);
  const auto run_until =
      static_cast<uint32_t>(std::atomic_ref(marks[kRunUntil]).load(std::memory_order_relaxed));
  clock[1] = any_left && static_cast<int32_t>(run_until - (done + 1)) > 0 ? 1 : 0;
  std::atomic_ref(marks[kPublished]).store(clock[0], std::memory_order_release);
}

void write_inputs(Pool& /*pool*/, const KernelArgs& args) {
  const TensorView& table = args.inputs["page_table"];
  const auto write = [&](int64_t m, const int32_t* from, int32_t* to) {
    const int32_t* const change = args.inputs["changes"].row<int32_t>(m);
    std::copy_n(from + change[0], change[1], to + change[0]);
  };
  for (int64_t m = 0; m < table.num_rows(); ++m)
    write(m, args.inputs["pages"].row<int32_t>(m), table.row<int32_t>(m));
  write(table.num_rows(), args.inputs["host_inputs"].as<int32_t>(),
        args.inputs["step_inputs"].as<int32_t>());
}

}  // namespace

std::span<const Kernel> advance_kernels() {
  static constexpr std::array kRows = {
      row<"advance.cpu", advance>("advance"),
      row<"write_inputs.cpu", write_inputs>("write_inputs"),
  };
  return kRows;
}

}  // namespace encore::cpu
