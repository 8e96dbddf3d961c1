// The kernels at both ends of a step. write_inputs runs in front of it, and writes the step's
// inputs and the pages that the host granted to the device. advance runs at its end, in one block:
// it publishes the step's tokens to the host, and turns the step's inputs into those of the next
// step.
//
// The tokens reach the host by message passing. Every thread writes its tokens into host memory, a
// barrier orders these writes before thread 0, and thread 0's release at system scope publishes
// them all (`release_acquire` in docs/memory-model.md).
#include "backend/advance.h"

#include <algorithm>
#include <array>
#include <span>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/memory_order.cuh"
#include "backend/sampling.h"

namespace encore::cuda {
namespace {

using namespace advance_op;  // NOLINT(google-build-using-namespace): names of the operands

constexpr int kMaxThreads = 256;

// The operands of advance, which ops.cc describes.
struct Advance {
  const int32_t* next;
  const int32_t* page_table;
  const int32_t* stop_tokens;
  const int32_t* max_lens;
  int32_t* ids;
  int32_t* positions;
  int32_t* slots;
  int32_t* kv_lens;
  int32_t* last_tokens;
  uint32_t* clock;
  int32_t* ring;
  uint32_t* marks;
  int num_rows;
  int max_pages;
  int num_stops;
  int page_size;
  int ring_steps;
  int ring_rows;
  bool moves_rows;  // the step is uniform, with as many tokens per sequence as rows of logits
  const int32_t* logits_rows;  // null: the program has no drafts
  const int32_t* lengths;      // null: the program has no drafts
  int num_each;                // rows of logits of a sequence
  const float* acceptance;     // null: a draft is right where it equals the chosen token
  int num_rates;
  const int32_t* window_table;  // null: all layers have the same pages
  int32_t* window_slots;
  const SamplingRow* sampling;
  int32_t* token_counts;  // null: `sample` counts the tokens
  int vocabulary;
  const uint32_t* run_until;  // step up to which a burst runs on all ranks; null: as the host marks
};

// A row's state in front of the step's end. Together with the row's token, it decides whether the
// row goes on, and where. No other launch of the step writes it, so it is read while the launch in
// front still runs (see attention/decode.cuh).
struct Row {
  static constexpr int kStops = 8;  // the first of the row's stop tokens, which registers hold

  int32_t position = 0;  // of the row's token; 0: a row without a sequence
  int32_t max_len = 0;
  int32_t page = -1;  // page of the position; -1: it has none
  int32_t window_page = 0;
  int32_t stops[kStops];

  __device__ __forceinline__ Row(const Advance& a, int row) {
    if (!a.moves_rows || row >= a.num_rows) return;
    position = __ldcg(a.kv_lens + row);
    max_len = __ldcg(a.max_lens + row);
#pragma unroll
    for (int i = 0; i < kStops; ++i)
      stops[i] = i < a.num_stops ? __ldcg(a.stop_tokens + row * a.num_stops + i) : -1;
    if (position < a.max_pages * a.page_size) {
      page = __ldcg(a.page_table + row * a.max_pages + position / a.page_size);
      if (a.window_table != nullptr)
        window_page = __ldcg(a.window_table + row * a.max_pages + position / a.page_size);
    }
  }
  [[nodiscard]] __device__ __forceinline__ bool ends(const Advance& a, int row,
                                                     int32_t token) const {
    bool is_stop = false;
#pragma unroll
    for (const int32_t candidate : stops)
      is_stop |= candidate == token;
    for (int i = kStops; i < a.num_stops; ++i)
      is_stop |= a.stop_tokens[row * a.num_stops + i] == token;
    return advance_op::ends(is_stop, position + 1, max_len) || page < 0 || window_page < 0;
  }
};

// Moves a row on to the next step, and returns whether it takes part in the next step.
__device__ __forceinline__ bool move_on(const Advance& a, int row, const Row& old, int32_t token) {
  if (old.position == 0) return false;
  const bool last = old.ends(a, row, token);
  a.ids[row] = last ? -1 : token;
  a.positions[row] = last ? 0 : old.position;
  a.slots[row] = last ? -1 : old.page * a.page_size + old.position % a.page_size;
  if (a.window_slots != nullptr)
    a.window_slots[row] = last ? -1 : old.window_page * a.page_size + old.position % a.page_size;
  a.kv_lens[row] = last ? 0 : old.position + 1;
  return !last;
}

// Counts the first `count` tokens that a row chose, where penalties need the counts. `length` is
// the sequence's length before them.
__device__ __forceinline__ void count_tokens(const Advance& a, int row, int length, int count) {
  if (a.token_counts == nullptr || length == 0 || a.sampling[row].state < 0) return;
  int32_t* const counts =
      a.token_counts + static_cast<int64_t>(a.sampling[row].state) * a.vocabulary;
  for (int j = 0; j < count; ++j)
    ++counts[a.next[row * a.num_each + j]];
}

// Publishes to the host that step `done` is complete and its tokens are written.
__device__ __forceinline__ void publish(const Advance& a, uint32_t done, uint32_t run_until,
                                        bool any_left) {
  any_left = __syncthreads_or(any_left);
  if (threadIdx.x != 0) return;
  if (a.run_until != nullptr) run_until = *a.run_until;
  a.clock[0] = done + 1;
  a.clock[1] = any_left && static_cast<int32_t>(run_until - (done + 1)) > 0 ? 1 : 0;
  st_release<Scope::kSystem>(a.marks + kPublished, done + 1);
}

__global__ void __launch_bounds__(kMaxThreads) advance_kernel(const __grid_constant__ Advance a) {
  allow_next_kernel();
  const uint32_t run_until = threadIdx.x == 0 ? ld_relaxed<Scope::kSystem>(a.marks + kRunUntil) : 0;
  const uint32_t done = __ldcg(a.clock);
  const Row first(a, static_cast<int>(threadIdx.x));
  wait_for_inputs();
  int32_t* const ring = a.ring + static_cast<int64_t>(done % a.ring_steps) * a.ring_rows;
  bool any_left = false;
  for (int row = static_cast<int>(threadIdx.x); row < a.num_rows;
       row += static_cast<int>(blockDim.x)) {
    const int32_t token = a.next[row];
    ring[row] = token;
    a.last_tokens[row] = token;
    if (a.token_counts != nullptr) count_tokens(a, row, a.lengths[row], 1);
    if (!a.moves_rows) continue;
    any_left |= move_on(a, row, row < static_cast<int>(blockDim.x) ? first : Row(a, row), token);
  }
  publish(a, done, run_until, any_left);
}

// Handles row `row` of step `done`, which has drafts: checks the drafts, and moves the row on.
// Returns whether the row takes part in the next step.
__device__ bool advance_span(const Advance& a, int row, uint32_t done, int32_t* ring) {
  const int first = row * a.num_each;
  const int kv_len = a.kv_lens[row];
  // The length of the sequence in front of the step's first chosen token.
  const int length = a.moves_rows ? kv_len - (a.num_each - 1) : a.lengths[first];
  const auto ends = [&](int32_t token, int new_length) {
    bool is_stop = false;
    for (int i = 0; i < a.num_stops; ++i)
      is_stop |= a.stop_tokens[row * a.num_stops + i] == token;
    return advance_op::ends(is_stop, new_length, a.max_lens[row]);
  };
  const float drawn =
      a.acceptance == nullptr ? 0.0F : forced_draw(done, static_cast<uint32_t>(row));
  const auto is_right = [&](int draft, int32_t wanted) {
    const int place = a.moves_rows ? first + draft : a.logits_rows[first + draft];
    const bool is_equal = a.ids[place] == wanted;
    if (a.acceptance == nullptr) return is_equal;
    return draft <= a.num_rates && drawn < a.acceptance[draft - 1];
  };
  int count = 1;
  int32_t token = a.next[first];
  bool has_ended = ends(token, length + 1);
  while (count < a.num_each && !has_ended && a.lengths[first + count] > 0 &&
         is_right(count, token)) {
    token = a.next[first + count];
    has_ended = ends(token, length + ++count);
  }
  for (int j = 0; j < a.num_each; ++j)
    ring[first + j] = j < count ? a.next[first + j] : -1;
  a.last_tokens[row] = token;
  count_tokens(a, row, a.lengths[first], count);
  if (kv_len == 0 || !a.moves_rows) return false;

  const int position = length + count - 1;
  const int64_t first_page = static_cast<int64_t>(row) * a.max_pages;
  const int32_t* const pages = a.page_table + first_page;
  const int32_t* const window_pages =
      a.window_table == nullptr ? pages : a.window_table + first_page;
  const int last_page = (position + a.num_each - 1) / a.page_size;
  bool goes_on = !has_ended && last_page < a.max_pages;
  for (int page = position / a.page_size; goes_on && page <= last_page; ++page)
    goes_on = pages[page] >= 0 && window_pages[page] >= 0;
  for (int j = 0; j < a.num_each; ++j) {
    const int place = position + j;
    a.ids[first + j] = goes_on && j == 0 ? token : -1;
    a.positions[first + j] = goes_on ? place : 0;
    a.slots[first + j] =
        goes_on ? pages[place / a.page_size] * a.page_size + place % a.page_size : -1;
    if (a.window_slots != nullptr) {
      a.window_slots[first + j] =
          goes_on ? window_pages[place / a.page_size] * a.page_size + place % a.page_size : -1;
    }
  }
  a.kv_lens[row] = goes_on ? position + a.num_each : 0;
  return goes_on;
}

__global__ void __launch_bounds__(kMaxThreads)
    advance_spans_kernel(const __grid_constant__ Advance a) {
  begin_kernel();
  const uint32_t run_until = threadIdx.x == 0 ? ld_relaxed<Scope::kSystem>(a.marks + kRunUntil) : 0;
  const uint32_t done = *a.clock;
  int32_t* const ring = a.ring + static_cast<int64_t>(done % a.ring_steps) * a.ring_rows;
  bool any_left = false;
  for (int row = static_cast<int>(threadIdx.x); row < a.num_rows;
       row += static_cast<int>(blockDim.x))
    any_left |= advance_span(a, row, done, ring);
  publish(a, done, run_until, any_left);
}

BoundLaunch bind(Device& /*device*/, const KernelArgs& args) {
  const auto in = [&](std::string_view name) { return args.inputs[name].as<int32_t>(); };
  const auto size = [&](std::string_view name, int dim) {
    return static_cast<int>(args.inputs[name].shape[dim]);
  };
  const TensorView* const logits_rows = args.inputs.find("logits_rows");
  const TensorView* const lengths = args.inputs.find("lengths");
  const int num_each = size("next", 0) / std::max(1, size("kv_lens", 0));
  const TensorView* const acceptance = args.inputs.find("acceptance");
  const TensorView* const window_table = args.inputs.find("window_table");
  const TensorView* const run_until = args.inputs.find("run_until");
  const TensorView* const token_counts = args.inputs.find("token_counts");
  const Advance advance{
      .next = in("next"),
      .page_table = in("page_table"),
      .stop_tokens = in("stop_tokens"),
      .max_lens = in("max_lens"),
      .ids = in("ids"),
      .positions = in("positions"),
      .slots = in("slots"),
      .kv_lens = in("kv_lens"),
      .last_tokens = in("last_tokens"),
      .clock = reinterpret_cast<uint32_t*>(in("step_clock")),
      .ring = in("token_ring"),
      .marks = reinterpret_cast<uint32_t*>(in("ring_marks")),
      .num_rows = size("kv_lens", 0),
      .max_pages = size("page_table", 1),
      .num_stops = size("stop_tokens", 1),
      .page_size = static_cast<int>(args.attrs.get_int("page_size")),
      .ring_steps = size("token_ring", 0),
      .ring_rows = size("token_ring", 1),
      .moves_rows = args.step.q == num_each,
      .logits_rows = logits_rows == nullptr ? nullptr : logits_rows->as<const int32_t>(),
      .lengths = lengths == nullptr ? nullptr : lengths->as<const int32_t>(),
      .num_each = num_each,
      .acceptance = acceptance == nullptr ? nullptr : acceptance->as<const float>(),
      .num_rates = acceptance == nullptr ? 0 : size("acceptance", 0),
      .window_table = window_table == nullptr ? nullptr : window_table->as<const int32_t>(),
      .window_slots = window_table == nullptr ? nullptr : in("window_slots"),
      .sampling =
          token_counts == nullptr ? nullptr : args.inputs["sampling"].as<const SamplingRow>(),
      .token_counts = token_counts == nullptr ? nullptr : token_counts->as<int32_t>(),
      .vocabulary = token_counts == nullptr ? 0 : size("token_counts", 1),
      .run_until = run_until == nullptr ? nullptr : run_until->as<const uint32_t>()};
  const auto threads =
      static_cast<unsigned>(std::clamp<int64_t>(round_up(advance.num_rows, 32), 32, kMaxThreads));
  const auto kernel = advance.num_each > 1 ? advance_spans_kernel : advance_kernel;
  return [=](Stream& stream, const StepLengths&) {
    launch(stream, {.blocks = 1, .threads = threads}, kernel, advance);
  };
}

constexpr int kWriteThreads = 256;
constexpr int kRowsPerBlock = kWriteThreads / 32;
constexpr int kMostInputBlocks = 16;

// Holds the values that write_inputs writes, or the addresses from which it reads them. All are
// kernel arguments, so no read of host memory (`pages`, `host_inputs`), which takes some
// microseconds, has to wait for another.
struct WriteInputs {
  static constexpr int kMostRows = 64;  // 3 KB more of arguments take half a microsecond (H100)
  struct Row {
    int64_t first;  // index in `page_table` of the row's first entry
    int count;
  };

  const int32_t* pages;
  int32_t* page_table;
  const int4* host_inputs;
  int4* step_inputs;
  int num_row_blocks;
  int num_rows;
  int num_pieces;   // 16-byte pieces of the inputs
  int num_threads;  // threads that copy the inputs
  Row rows[kMostRows];
};

// Writes the rows of the page table, one warp per row, and the inputs, in the last blocks. Loops
// are not unrolled: each launch fetches its code from memory anew (launch.h), so short code is
// faster.
__global__ void __launch_bounds__(kWriteThreads)
    write_inputs_kernel(const __grid_constant__ WriteInputs w) {
  const int block = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  if (block < w.num_row_blocks) {
    const int number = block * kRowsPerBlock + thread / 32;
    if (number >= w.num_rows) return;
    const auto [first, count] = w.rows[number];
#pragma unroll 1
    for (int i = thread % 32; i < count; i += 32)
      w.page_table[first + i] = w.pages[first + i];
  } else {
#pragma unroll 1
    for (int i = (block - w.num_row_blocks) * kWriteThreads + thread; i < w.num_pieces;
         i += w.num_threads)
      w.step_inputs[i] = w.host_inputs[i];
  }
  // The fence makes the writes visible when this launch ends: launches of the next step may start
  // then, and attention reads lengths and tables before it waits for the launch in front of it.
  __threadfence();
}

// Launches write_inputs, in more than one launch where the arguments have no room for all rows that
// change.
void launch_writes(Stream& stream, WriteInputs write, std::span<const int2> changes,
                   int64_t row_entries) {
  const int2 inputs = changes.back();
  write.host_inputs += inputs.x / 4;
  write.step_inputs += inputs.x / 4;
  write.num_pieces = inputs.y / 4;
  const std::span<const int2> rows = changes.first(changes.size() - 1);
  size_t row = 0;
  do {
    write.num_rows = 0;
    for (; row < rows.size() && write.num_rows < WriteInputs::kMostRows; ++row) {
      const int2 change = rows[row];
      if (change.y > 0)
        write.rows[write.num_rows++] = {static_cast<int64_t>(row) * row_entries + change.x,
                                        change.y};
    }
    write.num_row_blocks = static_cast<int>(div_up(write.num_rows, kRowsPerBlock));
    const auto blocks =
        std::min<int64_t>(div_up(write.num_pieces, kWriteThreads), kMostInputBlocks);
    write.num_threads = static_cast<int>(blocks) * kWriteThreads;
    launch(stream,
           {.blocks = dim3(static_cast<unsigned>(write.num_row_blocks + blocks)),
            .threads = kWriteThreads,
            .overlap = false},
           write_inputs_kernel, write);
    write.num_pieces = 0;
  } while (row < rows.size());
}

BoundLaunch bind_write_inputs(Device& /*device*/, const KernelArgs& args) {
  const TensorView& table = args.inputs["page_table"];
  const TensorView& changes = args.inputs["changes"];
  const WriteInputs write{.pages = args.inputs["pages"].as<const int32_t>(),
                          .page_table = table.as<int32_t>(),
                          .host_inputs = args.inputs["host_inputs"].as<const int4>(),
                          .step_inputs = args.inputs["step_inputs"].as<int4>()};
  const std::span<const int2> on_host(changes.as<const int2>(),
                                      static_cast<size_t>(changes.num_rows()));
  return [=, row_entries = table.row_elements()](Stream& stream, const StepLengths&) {
    launch_writes(stream, write, on_host, row_entries);
  };
}

}  // namespace

std::span<const Kernel> advance_kernels() {
  static constexpr std::array<Kernel, 2> kRows = {{
      {"advance",
       "advance.block",
       nullptr,
       nullptr,
       bind,
       {"logits_rows", "lengths", "acceptance", "window_table", "window_slots", "sampling",
        "token_counts", "run_until"}},
      {"write_inputs", "write_inputs.rows", nullptr, nullptr, bind_write_inputs},
  }};
  return kRows;
}

}  // namespace encore::cuda
