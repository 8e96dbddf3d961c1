// The drafts of a draft model: where they begin in a step (begin_drafts), and one more of each sequence
// (extend_drafts).
//
// Kernels further on read what these write before they wait for the launch in front of them
// (attention/decode.cuh reads lengths and tables so), so none of them starts before these have ended: they
// do not call allow_next_kernel().
#include <algorithm>
#include <array>
#include <span>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "backend/last_token.h"
#include "backend/sampling.h"

namespace encore::cuda {
namespace {

constexpr int kChainThreads = 256;

// The operands, as in ops.cc; a sequence has `q` rows of logits.
struct DraftsBegin {
  int32_t* ids;
  const int32_t* positions;
  const int32_t* slots;
  const int32_t* kv_lens;
  const int32_t* last_rows;
  const SamplingRow* sampling;
  const int32_t* last_tokens;
  int32_t* logits_rows;
  int32_t* lengths;
  int32_t* last_ids;
  int32_t* last_positions;
  int32_t* last_slots;
  int32_t* last_lens;
  int32_t* starts;
  int32_t* read_ids;
  int32_t* read_positions;
  int32_t* read_slots;
  int num_tokens;
  int num_sequences;
  int q;
};

// A step that guesses nothing: a thread a token, and a sequence.
__global__ void __launch_bounds__(kChainThreads)
    read_tokens_kernel(const __grid_constant__ DraftsBegin begin) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i == 0) begin.starts[0] = 0;
  if (i < begin.num_tokens) {
    const int32_t id = known_token(begin.ids[i], begin.last_tokens);
    begin.ids[i] = id;
    begin.read_ids[i] = id;
    begin.read_positions[i] = begin.positions[i];
    begin.read_slots[i] = begin.slots[i];
  }
  if (i < begin.num_sequences) {
    begin.logits_rows[i] = begin.last_rows[i];
    begin.lengths[i] = begin.kv_lens[i];
  }
  __threadfence();
}

// A step that guesses: a thread a sequence.
__global__ void __launch_bounds__(kChainThreads)
    begin_drafts_kernel(const __grid_constant__ DraftsBegin begin) {
  const int b = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (b == 0) begin.starts[begin.num_sequences] = begin.num_sequences;
  if (b >= begin.num_sequences) return;
  const int first = b * begin.q;
  const int32_t kv_len = begin.kv_lens[b];
  const bool takes_drafts = kv_len > 0 && begin.sampling[b].takes_drafts();
  const int32_t id = known_token(begin.ids[first], begin.last_tokens);
  begin.last_ids[b] = takes_drafts ? id : -1;
  begin.last_positions[b] = takes_drafts ? begin.positions[first] : 0;
  begin.last_slots[b] = takes_drafts ? begin.slots[first] : -1;
  begin.last_lens[b] = takes_drafts ? kv_len - (begin.q - 1) : 0;
  begin.starts[b] = b;
  for (int j = 0; j < begin.q; ++j) {
    const bool is_chosen = kv_len > 0 && (j == 0 || takes_drafts);
    begin.ids[first + j] = id;
    begin.logits_rows[first + j] = first + j;
    begin.lengths[first + j] = is_chosen ? kv_len - (begin.q - 1 - j) : 0;
  }
  __threadfence();
}

// The operands, as in ops.cc.
struct DraftsExtend {
  const int32_t* next;
  const int32_t* positions;
  const int32_t* lens;
  const int32_t* page_table;
  int32_t* ids;
  int32_t* next_ids;
  int32_t* next_positions;
  int32_t* next_slots;
  int32_t* next_lens;
  int num_sequences;
  int q;
  int place;
  int max_pages;
  int page_size;
};

// A thread a sequence.
__global__ void __launch_bounds__(kChainThreads)
    extend_drafts_kernel(const __grid_constant__ DraftsExtend extend) {
  const int g = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (g >= extend.num_sequences) return;
  const int32_t len = extend.lens[g];
  const bool goes_on = len > 0;
  const int32_t position = goes_on ? extend.positions[g] + 1 : 0;
  const int place = position / extend.page_size;
  const int32_t page = goes_on && place < extend.max_pages
                           ? extend.page_table[static_cast<int64_t>(g) * extend.max_pages + place]
                           : -1;
  const int32_t token = extend.next[g];
  if (goes_on) extend.ids[g * extend.q + extend.place] = token;
  extend.next_ids[g] = goes_on ? token : -1;
  extend.next_positions[g] = position;
  extend.next_slots[g] = page < 0 ? -1 : page * extend.page_size + position % extend.page_size;
  extend.next_lens[g] = goes_on ? len + 1 : 0;
  __threadfence();
}

Grid chain_grid(int64_t num_threads) {
  return {.blocks =
              dim3(static_cast<unsigned>(std::max<int64_t>(1, div_up(num_threads, kChainThreads)))),
          .threads = kChainThreads,
          .overlap = false};
}

BoundLaunch bind_begin(Device& /*device*/, const KernelArgs& args) {
  const auto in = [&](std::string_view name) { return args.inputs[name].as<int32_t>(); };
  const auto out = [&](std::string_view name) { return args.outputs[name].as<int32_t>(); };
  ENCORE_CHECK(args.inputs["sampling"].row_elements() == kSamplingWords);
  const int64_t num_sequences = args.inputs["kv_lens"].shape[0];
  const int64_t num_tokens = args.inputs["ids"].shape[0];
  const int64_t q = args.outputs["lengths"].shape[0] / std::max<int64_t>(1, num_sequences);
  const DraftsBegin begin{.ids = out("ids"),
                          .positions = in("positions"),
                          .slots = in("slots"),
                          .kv_lens = in("kv_lens"),
                          .last_rows = in("last_rows"),
                          .sampling = args.inputs["sampling"].as<const SamplingRow>(),
                          .last_tokens = in("last_tokens"),
                          .logits_rows = out("logits_rows"),
                          .lengths = out("lengths"),
                          .last_ids = out("last_ids"),
                          .last_positions = out("last_positions"),
                          .last_slots = out("last_slots"),
                          .last_lens = out("last_lens"),
                          .starts = out("starts"),
                          .read_ids = out("read_ids"),
                          .read_positions = out("read_positions"),
                          .read_slots = out("read_slots"),
                          .num_tokens = static_cast<int>(num_tokens),
                          .num_sequences = static_cast<int>(num_sequences),
                          .q = static_cast<int>(q)};
  const Grid grid = chain_grid(q > 1 ? num_sequences : std::max(num_tokens, num_sequences));
  const auto kernel = q > 1 ? begin_drafts_kernel : read_tokens_kernel;
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, begin); };
}

BoundLaunch bind_extend(Device& /*device*/, const KernelArgs& args) {
  const auto in = [&](std::string_view name) { return args.inputs[name].as<int32_t>(); };
  const auto out = [&](std::string_view name) { return args.outputs[name].as<int32_t>(); };
  const int64_t num_sequences = args.inputs["next"].shape[0];
  const DraftsExtend extend{
      .next = in("next"),
      .positions = in("positions"),
      .lens = in("lens"),
      .page_table = in("page_table"),
      .ids = out("ids"),
      .next_ids = out("next_ids"),
      .next_positions = out("next_positions"),
      .next_slots = out("next_slots"),
      .next_lens = out("next_lens"),
      .num_sequences = static_cast<int>(num_sequences),
      .q = static_cast<int>(args.inputs["ids"].shape[0] / std::max<int64_t>(1, num_sequences)),
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
      {{"begin_drafts", "begin_drafts.thread", nullptr, nullptr, bind_begin},
       {"extend_drafts", "extend_drafts.thread", nullptr, nullptr, bind_extend}}};
  return kRows;
}

}  // namespace encore::cuda
