// Kernels of lookup_drafts, which begin a step that may have drafts.
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

constexpr int kLookupThreads = 1024;
constexpr int kLookupWarps = kLookupThreads / 32;
constexpr int kMostMatch = 64;  // the most tokens by which a draft is looked up

// The operands of lookup_drafts, which ops.cc describes. A sequence has `num_each` rows of logits.
struct Lookup {
  int32_t* ids;
  const int32_t* slots;
  const int32_t* kv_lens;
  const int32_t* last_rows;
  const SamplingRow* sampling;
  const int32_t* page_table;
  const int32_t* last_tokens;
  int32_t* token_cache;
  int32_t* logits_rows;
  int32_t* lengths;
  int num_tokens;
  int num_rows;
  int num_each;
  int max_pages;
  int page_size;
  int max_match;
};

// Writes the token of row `row` to the step's ids and to the token cache, where the token is known.
__device__ __forceinline__ void keep_token(const Lookup& lookup, int row) {
  const int32_t id = known_token(lookup.ids[row], lookup.last_tokens);
  if (id == -1) return;
  lookup.ids[row] = id;
  if (lookup.slots[row] >= 0) lookup.token_cache[lookup.slots[row]] = id;
}

// Keeps the tokens of a step that has one token per sequence.
__global__ void __launch_bounds__(kLookupThreads)
    keep_tokens_kernel(const __grid_constant__ Lookup lookup) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < lookup.num_tokens) keep_token(lookup, i);
  if (i < lookup.num_rows) {
    lookup.logits_rows[i] = i;
    lookup.lengths[i] = lookup.kv_lens[i];
  }
  __threadfence();
}

// Returns, to every thread, the place in front of which the most tokens equal the sequence's last
// tokens; of equally long matches, the last one. `tail` holds the last tokens of the sequence in
// reverse order.
__device__ int find_place(const Lookup& lookup, const int32_t* pages, const int32_t* tail,
                          int last) {
  __shared__ uint64_t of_warps[kLookupWarps];
  uint64_t best = static_cast<uint32_t>(last);  // a match of no tokens
  for (int place = last - static_cast<int>(threadIdx.x); place > 0; place -= kLookupThreads) {
    const int most = min(place, lookup.max_match);
    int count = 0;
    while (count < most) {
      const int position = place - 1 - count;
      const int64_t page = pages[position / lookup.page_size];
      if (lookup.token_cache[page * lookup.page_size + position % lookup.page_size] != tail[count])
        break;
      ++count;
    }
    best = max(best, static_cast<uint64_t>(count) << 32U | static_cast<uint32_t>(place));
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    best = max(best, __shfl_xor_sync(~0U, best, offset));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = best;
  __syncthreads();
  for (const uint64_t of_warp : of_warps)
    best = max(best, of_warp);
  return static_cast<int>(static_cast<uint32_t>(best));
}

// Writes the rows of logits and the drafts of a sequence, with all threads of a block.
__device__ void lookup_row(const Lookup& lookup, int row, const DraftPlaces& places) {
  __shared__ int32_t tail[kMostMatch];
  const int thread = static_cast<int>(threadIdx.x);
  const int first = places.known_row;
  const int kv_len = lookup.kv_lens[row];
  const int last = kv_len - 1 - places.num_drafts;  // position of the last known token
  const int32_t* const pages = lookup.page_table + static_cast<int64_t>(row) * lookup.max_pages;
  const auto at = [&](int position) {
    const int64_t page = pages[position / lookup.page_size];
    return lookup.token_cache[page * lookup.page_size + position % lookup.page_size];
  };
  const bool guesses = kv_len > 0 && places.num_drafts > 0;
  int place = 0;
  if (guesses) {
    if (thread < min(lookup.max_match, last + 1))
      tail[thread] =
          thread == 0 ? known_token(lookup.ids[first], lookup.last_tokens) : at(last - thread);
    __syncthreads();
    place = find_place(lookup, pages, tail, last);
  }
  if (thread >= lookup.num_each) return;
  const int num_chosen = kv_len == 0                           ? 0
                         : lookup.sampling[row].takes_drafts() ? 1 + places.num_drafts
                                                               : 1;
  const int l = row * lookup.num_each + thread;
  lookup.logits_rows[l] = first + min(thread, places.num_drafts);
  lookup.lengths[l] = thread < num_chosen ? last + 1 + thread : 0;
  if (guesses && thread <= places.num_drafts) {
    // The drafts repeat the tokens from the place on, up to the last known one, in a cycle.
    const int source = thread == 0 ? last : place + (thread - 1) % (last + 1 - place);
    const int32_t id = source == last ? tail[0] : at(source);
    lookup.ids[first + thread] = id;
    if (lookup.slots[first + thread] >= 0) lookup.token_cache[lookup.slots[first + thread]] = id;
  }
}

// Looks up the drafts of a uniform step, and writes the step's ids, the known tokens, and the rows
// of logits and their lengths. One block handles one sequence.
__global__ void __launch_bounds__(kLookupThreads)
    lookup_drafts_kernel(const __grid_constant__ Lookup lookup) {
  const int row = static_cast<int>(blockIdx.x);
  lookup_row(lookup, row, uniform_draft_places(row, lookup.num_each));
  __threadfence();
}

// Looks up the drafts of a mixed step and writes what lookup_drafts_kernel() writes. One block
// handles one sequence, and further blocks keep all known tokens.
// The block of a sequence with drafts keeps that sequence's tokens, too, with the same values.
__global__ void __launch_bounds__(kLookupThreads)
    lookup_mixed_kernel(const __grid_constant__ Lookup lookup) {
  const int block = static_cast<int>(blockIdx.x);
  if (block < lookup.num_rows) {
    __shared__ DraftPlaces places;
    if (threadIdx.x == 0) {
      places = lookup.kv_lens[block] == 0
                   ? DraftPlaces{}
                   : mixed_draft_places(lookup.ids, lookup.last_rows[block], lookup.num_each - 1);
    }
    __syncthreads();
    lookup_row(lookup, block, places);
  } else {
    const int row = (block - lookup.num_rows) * kLookupThreads + static_cast<int>(threadIdx.x);
    if (row < lookup.num_tokens) keep_token(lookup, row);
  }
  __threadfence();
}

BoundLaunch bind_lookup(Device& /*device*/, const KernelArgs& args) {
  const auto in = [&](std::string_view name) { return args.inputs[name].as<int32_t>(); };
  const auto size = [&](const Views& views, std::string_view name, int dim) {
    return static_cast<int>(views[name].shape[dim]);
  };
  ENCORE_CHECK(args.inputs["sampling"].row_elements() == kSamplingWords);
  const Lookup lookup{
      .ids = in("ids"),
      .slots = in("slots"),
      .kv_lens = in("kv_lens"),
      .last_rows = in("last_rows"),
      .sampling = args.inputs["sampling"].as<const SamplingRow>(),
      .page_table = in("page_table"),
      .last_tokens = in("last_tokens"),
      .token_cache = in("token_cache"),
      .logits_rows = args.outputs["logits_rows"].as<int32_t>(),
      .lengths = args.outputs["lengths"].as<int32_t>(),
      .num_tokens = size(args.inputs, "ids", 0),
      .num_rows = size(args.inputs, "kv_lens", 0),
      .num_each = size(args.outputs, "lengths", 0) / std::max(1, size(args.inputs, "kv_lens", 0)),
      .max_pages = size(args.inputs, "page_table", 1),
      .page_size = size(args.inputs, "token_cache", 1),
      .max_match = static_cast<int>(args.attrs.get_int("max_match"))};
  if (lookup.max_match > kMostMatch || lookup.num_each > kLookupThreads) {
    fail(ErrorKind::kCompile, "drafts are looked up by at most {} tokens, {} at a time", kMostMatch,
         kLookupThreads - 1);
  }
  const bool is_mixed = !args.step.is_uniform();
  const bool has_drafts = lookup.num_each > 1;
  const int64_t num_token_blocks = div_up(lookup.num_tokens, kLookupThreads);
  const int64_t num_blocks = is_mixed     ? lookup.num_rows + num_token_blocks
                             : has_drafts ? lookup.num_rows
                                          : num_token_blocks;
  const Grid grid{.blocks = dim3(static_cast<unsigned>(num_blocks)),
                  .threads = kLookupThreads,
                  .overlap = false};
  const auto kernel = is_mixed     ? lookup_mixed_kernel
                      : has_drafts ? lookup_drafts_kernel
                                   : keep_tokens_kernel;
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, lookup); };
}

}  // namespace

std::span<const Kernel> lookup_drafts_kernels() {
  static constexpr std::array<Kernel, 1> kRows = {
      {{"lookup_drafts", "lookup_drafts.block", nullptr, nullptr, bind_lookup}}};
  return kRows;
}

}  // namespace encore::cuda
