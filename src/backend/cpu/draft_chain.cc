// The drafts of a draft model: where they begin in a step, and one more of each sequence.
#include <algorithm>
#include <array>

#include "backend/cpu/kernels.h"
#include "backend/last_token.h"
#include "backend/sampling.h"

namespace encore::cpu {
namespace {

int32_t* integers(const Views& views, std::string_view name) {
  return views[name].as<int32_t>();
}

void begin_drafts(Pool& /*pool*/, const KernelArgs& args) {
  const auto* const sampling = args.inputs["sampling"].as<SamplingRow>();
  const int32_t* const positions = integers(args.inputs, "positions");
  const int32_t* const slots = integers(args.inputs, "slots");
  const int32_t* const kv_lens = integers(args.inputs, "kv_lens");
  const int32_t* const last_rows = integers(args.inputs, "last_rows");
  const int32_t* const last_tokens = integers(args.inputs, "last_tokens");
  int32_t* const ids = integers(args.outputs, "ids");
  int32_t* const logits_rows = integers(args.outputs, "logits_rows");
  int32_t* const lengths = integers(args.outputs, "lengths");
  const int64_t num_tokens = args.inputs["ids"].shape[0];
  const int64_t num_sequences = args.inputs["kv_lens"].shape[0];
  const auto q = static_cast<int32_t>(args.outputs["lengths"].shape[0] / num_sequences);
  for (int64_t t = 0; t < num_tokens; ++t) {
    ids[t] = known_token(ids[t], last_tokens);
  }
  int32_t* const starts = integers(args.outputs, "starts");
  if (q == 1) {
    starts[0] = 0;
    std::copy_n(last_rows, num_sequences, logits_rows);
    std::copy_n(kv_lens, num_sequences, lengths);
    std::copy_n(ids, num_tokens, integers(args.outputs, "read_ids"));
    std::copy_n(positions, num_tokens, integers(args.outputs, "read_positions"));
    std::copy_n(slots, num_tokens, integers(args.outputs, "read_slots"));
    return;
  }
  starts[num_sequences] = static_cast<int32_t>(num_sequences);
  for (int64_t b = 0; b < num_sequences; ++b) {
    const int64_t first = b * q;
    const bool takes_drafts = kv_lens[b] > 0 && sampling[b].takes_drafts();
    integers(args.outputs, "last_ids")[b] = takes_drafts ? ids[first] : -1;
    integers(args.outputs, "last_positions")[b] = takes_drafts ? positions[first] : 0;
    integers(args.outputs, "last_slots")[b] = takes_drafts ? slots[first] : -1;
    integers(args.outputs, "last_lens")[b] = takes_drafts ? kv_lens[b] - (q - 1) : 0;
    starts[b] = static_cast<int32_t>(b);
    for (int32_t j = 0; j < q; ++j) {
      const bool is_chosen = kv_lens[b] > 0 && (j == 0 || takes_drafts);
      ids[first + j] = ids[first];
      logits_rows[first + j] = static_cast<int32_t>(first) + j;
      lengths[first + j] = is_chosen ? kv_lens[b] - (q - 1 - j) : 0;
    }
  }
}

void extend_drafts(Pool& /*pool*/, const KernelArgs& args) {
  const int32_t* const next = integers(args.inputs, "next");
  const int32_t* const positions = integers(args.inputs, "positions");
  const int32_t* const lens = integers(args.inputs, "lens");
  const TensorView& page_table = args.inputs["page_table"];
  int32_t* const ids = integers(args.outputs, "ids");
  const int64_t num_sequences = args.inputs["next"].shape[0];
  const int64_t q = args.inputs["ids"].shape[0] / num_sequences;
  const int64_t place = args.attrs.get_int("place");
  const int64_t page_size = args.attrs.get_int("page_size");
  for (int64_t g = 0; g < num_sequences; ++g) {
    const bool goes_on = lens[g] > 0;
    const int32_t position = goes_on ? positions[g] + 1 : 0;
    const int32_t page = goes_on ? page_table.row<int32_t>(g)[position / page_size] : -1;
    if (goes_on) ids[g * q + place] = next[g];
    integers(args.outputs, "next_ids")[g] = goes_on ? next[g] : -1;
    integers(args.outputs, "next_positions")[g] = position;
    integers(args.outputs, "next_slots")[g] =
        page < 0 ? -1 : static_cast<int32_t>(page * page_size + position % page_size);
    integers(args.outputs, "next_lens")[g] = goes_on ? lens[g] + 1 : 0;
  }
}

}  // namespace

std::span<const Kernel> draft_chain_kernels() {
  static constexpr std::array kRows = {
      row<"begin_drafts.cpu", begin_drafts>("begin_drafts"),
      row<"extend_drafts.cpu", extend_drafts>("extend_drafts"),
  };
  return kRows;
}

}  // namespace encore::cpu
