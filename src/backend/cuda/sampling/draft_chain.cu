// Kernels for the drafts of a draft model: begin_drafts sets where the drafts of a step begin, and
// extend_drafts adds one draft to each sequence.
//
// Later kernels read what these kernels write before they wait for the launch in front of them
// (attention/decode.cuh reads lengths and page tables in this way). So no later kernel may start
// before these kernels have ended, and these do not call allow_next_kernel().
#include <algorithm>
#include <array>
#include <span>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "backend/draft_places.h"
#include "backend/last_token.h"
#include "backend/sampling.h"

namespace encore::cuda {
namespace {

constexpr int kChainThreads = 256;
constexpr int kMixedThreads = 1024;

// The operands of begin_drafts, which ops.cc describes. A sequence has `num_logits` rows of logits.
struct DraftsBegin {
  int32_t* ids;
  const int32_t* positions;
  const int32_t* slots;
  const int32_t* window_slots;  // null: the draft model has no pages of windows
  const int32_t* kv_lens;
  const int32_t* last_rows;
  const SamplingRow* sampling;
  const int32_t* last_tokens;
  int32_t* logits_rows;
  int32_t* lengths;
  int32_t* last_ids;
  int32_t* last_positions;
  int32_t* last_slots;
  int32_t* last_window_slots;
  int32_t* last_lens;
  int32_t* starts;
  int32_t* read_ids;
  int32_t* read_positions;
  int32_t* read_slots;
  int32_t* read_window_slots;
  int32_t* read_lens;
  int num_tokens;
  int num_sequences;
  int num_logits;
};

__device__ __forceinline__ bool takes_drafts(const DraftsBegin& begin, int b) {
  return begin.kv_lens[b] > 0 && begin.sampling[b].takes_drafts();
}

__device__ void give_logits_rows(const DraftsBegin& begin, int b, const DraftPlaces& places) {
  const int32_t kv_len = begin.kv_lens[b];
  const int num_chosen = kv_len == 0 ? 0 : takes_drafts(begin, b) ? 1 + places.num_drafts : 1;
  for (int j = 0; j < begin.num_logits; ++j) {
    const int l = b * begin.num_logits + j;
    begin.logits_rows[l] = places.known_row + min(j, places.num_drafts);
    begin.lengths[l] = j < num_chosen ? kv_len - (places.num_drafts - j) : 0;
  }
}

// Gives a sequence the token that its first draft follows, or -1 where it takes no drafts.
__device__ void give_last(const DraftsBegin& begin, int b, const DraftPlaces& places) {
  const int row = places.known_row;
  const bool guesses = takes_drafts(begin, b) && places.num_drafts > 0;
  begin.last_ids[b] = guesses ? begin.ids[row] : -1;
  begin.last_positions[b] = guesses ? begin.positions[row] : 0;
  begin.last_slots[b] = guesses ? begin.slots[row] : -1;
  if (begin.window_slots != nullptr)
    begin.last_window_slots[b] = guesses ? begin.window_slots[row] : -1;
  begin.last_lens[b] = guesses ? begin.kv_lens[b] - places.num_drafts : 0;
}

__device__ void read_token(const DraftsBegin& begin, int row, bool is_read) {
  begin.read_ids[row] = is_read ? begin.ids[row] : -1;
  begin.read_positions[row] = is_read ? begin.positions[row] : 0;
  begin.read_slots[row] = is_read ? begin.slots[row] : -1;
  if (begin.window_slots != nullptr)
    begin.read_window_slots[row] = is_read ? begin.window_slots[row] : -1;
}

// Begins a step of one token per sequence, in which no draft is made: the draft model only reads
// the tokens. One thread handles one sequence.
__global__ void __launch_bounds__(kChainThreads)
    read_tokens_kernel(const __grid_constant__ DraftsBegin begin) {
  const int b = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (b == 0) begin.starts[0] = 0;
  if (b >= begin.num_sequences) return;
  begin.ids[b] = known_token(begin.ids[b], begin.last_tokens);
  begin.logits_rows[b] = b;
  begin.lengths[b] = begin.kv_lens[b];
  const bool is_read = takes_drafts(begin, b);
  read_token(begin, b, is_read);
  begin.read_lens[b] = is_read ? begin.kv_lens[b] : 0;
  __threadfence();
}

// Begins a mixed step, in one block. It first has the draft model read all tokens, and then
// overwrites the entries of sequences that take drafts.
__global__ void __launch_bounds__(kMixedThreads)
    begin_mixed_kernel(const __grid_constant__ DraftsBegin begin) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int t = thread; t < begin.num_tokens; t += kMixedThreads) {
    begin.ids[t] = known_token(begin.ids[t], begin.last_tokens);
    read_token(begin, t, true);
  }
  __syncthreads();
  const bool guesses = begin.num_logits > 1;
  if (thread == 0)
    begin.starts[guesses ? begin.num_sequences : 0] = guesses ? begin.num_sequences : 0;
  for (int b = thread; b < begin.num_sequences; b += kMixedThreads) {
    DraftPlaces places;
    if (begin.kv_lens[b] > 0)
      places = mixed_draft_places(begin.ids, begin.last_rows[b], begin.num_logits - 1);
    give_logits_rows(begin, b, places);
    const bool is_alone = begin.last_rows[b] == (b == 0 ? 0 : begin.last_rows[b - 1] + 1);
    const bool is_left_out = places.num_drafts > 0 || (is_alone && !takes_drafts(begin, b));
    begin.read_lens[b] = is_left_out ? 0 : begin.kv_lens[b];
    if (guesses) {
      begin.starts[b] = b;
      give_last(begin, b, places);
    }
    if (begin.kv_lens[b] == 0) continue;
    const int32_t id = begin.ids[places.known_row];
    for (int row = places.known_row; row <= places.known_row + places.num_drafts; ++row) {
      if (is_left_out) read_token(begin, row, false);
      begin.ids[row] = id;
    }
  }
  __threadfence();
}

// Begins a uniform step with drafts. One thread handles one sequence.
__global__ void __launch_bounds__(kChainThreads)
    begin_drafts_kernel(const __grid_constant__ DraftsBegin begin) {
  const int b = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (b == 0) begin.starts[begin.num_sequences] = begin.num_sequences;
  if (b >= begin.num_sequences) return;
  const DraftPlaces places = uniform_draft_places(b, begin.num_logits);
  const int32_t id = known_token(begin.ids[places.known_row], begin.last_tokens);
  for (int j = 0; j < begin.num_logits; ++j)
    begin.ids[places.known_row + j] = id;
  give_logits_rows(begin, b, places);
  give_last(begin, b, places);
  begin.starts[b] = b;
  begin.read_lens[b] = 0;
  __threadfence();
}

// The operands of extend_drafts, which ops.cc describes.
struct DraftsExtend {
  const int32_t* next;
  const int32_t* positions;
  const int32_t* lens;
  const int32_t* page_table;
  const int32_t* window_table;  // null: the draft model has no pages of windows
  const int32_t* logits_rows;
  const int32_t* lengths;
  int32_t* ids;
  int32_t* next_ids;
  int32_t* next_positions;
  int32_t* next_slots;
  int32_t* next_window_slots;
  int32_t* next_lens;
  int num_sequences;
  int num_logits;
  int place;
  int max_pages;
  int page_size;
};

// Returns the slot of a sequence's token at a position, or -1 where the sequence has no page for
// it.
__device__ __forceinline__ int32_t slot_in(const int32_t* table, const DraftsExtend& extend, int g,
                                           int32_t position) {
  const int place = position / extend.page_size;
  if (place >= extend.max_pages) return -1;
  const int32_t page = table[static_cast<int64_t>(g) * extend.max_pages + place];
  return page < 0 ? -1 : page * extend.page_size + position % extend.page_size;
}

// Extends the drafts of each sequence by one. One thread handles one sequence.
__global__ void __launch_bounds__(kChainThreads)
    extend_drafts_kernel(const __grid_constant__ DraftsExtend extend) {
  const int g = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (g >= extend.num_sequences) return;
  const int32_t len = extend.lens[g];
  const int l = g * extend.num_logits + extend.place;
  const bool goes_on = len > 0 && extend.lengths[l] > 0;
  const int32_t position = goes_on ? extend.positions[g] + 1 : 0;
  const int32_t token = extend.next[g];
  if (goes_on) extend.ids[extend.logits_rows[l]] = token;
  extend.next_ids[g] = goes_on ? token : -1;
  extend.next_positions[g] = position;
  extend.next_slots[g] = goes_on ? slot_in(extend.page_table, extend, g, position) : -1;
  if (extend.window_table != nullptr)
    extend.next_window_slots[g] = goes_on ? slot_in(extend.window_table, extend, g, position) : -1;
  extend.next_lens[g] = goes_on ? len + 1 : 0;
  __threadfence();
}

Grid chain_grid(int64_t num_threads) {
  return {.blocks =
              dim3(static_cast<unsigned>(std::max<int64_t>(1, div_up(num_threads, kChainThreads)))),
          .threads = kChainThreads,
          .overlap = false};
}

// Returns the address of the data of an operand, or null in graphs that do not have the operand.
int32_t* found(const Views& views, std::string_view name) {
  const TensorView* const view = views.find(name);
  return view == nullptr ? nullptr : view->as<int32_t>();
}

BoundLaunch bind_begin(Device& /*device*/, const KernelArgs& args) {
  const auto in = [&](std::string_view name) { return args.inputs[name].as<int32_t>(); };
  const auto out = [&](std::string_view name) { return args.outputs[name].as<int32_t>(); };
  ENCORE_CHECK(args.inputs["sampling"].row_elements() == kSamplingWords);
  const int64_t num_sequences = args.inputs["kv_lens"].shape[0];
  const int64_t num_tokens = args.inputs["ids"].shape[0];
  const int64_t num_logits = args.outputs["lengths"].shape[0] / std::max<int64_t>(1, num_sequences);
  const DraftsBegin begin{.ids = out("ids"),
                          .positions = in("positions"),
                          .slots = in("slots"),
                          .window_slots = found(args.inputs, "window_slots"),
                          .kv_lens = in("kv_lens"),
                          .last_rows = in("last_rows"),
                          .sampling = args.inputs["sampling"].as<const SamplingRow>(),
                          .last_tokens = in("last_tokens"),
                          .logits_rows = out("logits_rows"),
                          .lengths = out("lengths"),
                          .last_ids = out("last_ids"),
                          .last_positions = out("last_positions"),
                          .last_slots = out("last_slots"),
                          .last_window_slots = found(args.outputs, "last_window_slots"),
                          .last_lens = out("last_lens"),
                          .starts = out("starts"),
                          .read_ids = out("read_ids"),
                          .read_positions = out("read_positions"),
                          .read_slots = out("read_slots"),
                          .read_window_slots = found(args.outputs, "read_window_slots"),
                          .read_lens = out("read_lens"),
                          .num_tokens = static_cast<int>(num_tokens),
                          .num_sequences = static_cast<int>(num_sequences),
                          .num_logits = static_cast<int>(num_logits)};
  if (!args.step.is_uniform()) {
    const Grid grid{.blocks = 1, .threads = kMixedThreads, .overlap = false};
    return [=](Stream& stream, const StepLengths&) {
      launch(stream, grid, begin_mixed_kernel, begin);
    };
  }
  const Grid grid = chain_grid(num_sequences);
  const auto kernel = num_logits > 1 ? begin_drafts_kernel : read_tokens_kernel;
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, begin); };
}

BoundLaunch bind_extend(Device& /*device*/, const KernelArgs& args) {
  const auto in = [&](std::string_view name) { return args.inputs[name].as<int32_t>(); };
  const auto out = [&](std::string_view name) { return args.outputs[name].as<int32_t>(); };
  const int64_t num_sequences = args.inputs["next"].shape[0];
  const DraftsExtend extend{.next = in("next"),
                            .positions = in("positions"),
                            .lens = in("lens"),
                            .page_table = in("page_table"),
                            .window_table = found(args.inputs, "window_table"),
                            .logits_rows = in("logits_rows"),
                            .lengths = in("lengths"),
                            .ids = out("ids"),
                            .next_ids = out("next_ids"),
                            .next_positions = out("next_positions"),
                            .next_slots = out("next_slots"),
                            .next_window_slots = found(args.outputs, "next_window_slots"),
                            .next_lens = out("next_lens"),
                            .num_sequences = static_cast<int>(num_sequences),
                            .num_logits = static_cast<int>(args.inputs["lengths"].shape[0] /
                                                           std::max<int64_t>(1, num_sequences)),
                            .place = static_cast<int>(args.attrs.get_int("place")),
                            .max_pages = static_cast<int>(args.inputs["page_table"].shape[1]),
                            .page_size = static_cast<int>(args.attrs.get_int("page_size"))};
  const Grid grid = chain_grid(num_sequences);
  return [=](Stream& stream, const StepLengths&) {
    launch(stream, grid, extend_drafts_kernel, extend);
  };
}

}  // namespace

std::span<const Kernel> draft_chain_kernels() {
  static constexpr std::array<Kernel, 2> kRows = {
      {{"begin_drafts", "begin_drafts.thread", nullptr, nullptr, bind_begin, {"window_slots"}},
       {"extend_drafts",
        "extend_drafts.thread",
        nullptr,
        nullptr,
        bind_extend,
        {"window_slots", "window_table"}}}};
  return kRows;
}

}  // namespace encore::cuda
