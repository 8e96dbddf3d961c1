// Kernel of lookup_drafts, which begins a step that may have drafts. Drafts are copied from earlier
// tokens of the same sequence.
#include <algorithm>
#include <array>

#include "backend/cpu/kernels.h"
#include "backend/draft_places.h"
#include "backend/last_token.h"
#include "backend/sampling.h"

namespace encore::cpu {
namespace {

// The tokens of a sequence up to the last known one, which is at position `last`.
struct KnownTokens {
  const int32_t* pages;  // pages of the sequence
  const TensorView& token_cache;
  int64_t last;
  int32_t last_token;

  [[nodiscard]] int32_t at(int64_t position) const {
    if (position == last) return last_token;
    const int64_t page_size = token_cache.shape[1];
    return token_cache.row<int32_t>(pages[position / page_size])[position % page_size];
  }
  // Returns how many tokens directly in front of `place` equal the sequence's last tokens, counted
  // backwards.
  [[nodiscard]] int64_t match(int64_t place, int64_t most) const {
    int64_t count = 0;
    while (count < std::min(place, most) && at(place - 1 - count) == at(last - count))
      ++count;
    return count;
  }
  // Returns the place with the longest match in front of it; of equally long matches, the last
  // place.
  [[nodiscard]] int64_t find_place(int64_t most) const {
    int64_t best = last;
    int64_t longest = match(last, most);
    for (int64_t place = last - 1; place > 0 && longest < most; --place) {
      const int64_t count = match(place, most);
      if (count > longest) best = place;
      longest = std::max(longest, count);
    }
    return best;
  }
};

void lookup_drafts(Pool& pool, const KernelArgs& args) {
  const TensorView& token_cache = args.outputs["token_cache"];
  const TensorView& page_table = args.inputs["page_table"];
  const auto* const sampling = args.inputs["sampling"].as<SamplingRow>();
  const auto* const kv_lens = args.inputs["kv_lens"].as<int32_t>();
  const auto* const last_rows = args.inputs["last_rows"].as<int32_t>();
  const auto* const last_tokens = args.inputs["last_tokens"].as<int32_t>();
  const auto* const slots = args.inputs["slots"].as<int32_t>();
  auto* const ids = args.outputs["ids"].as<int32_t>();
  auto* const rows = args.outputs["logits_rows"].as<int32_t>();
  auto* const lengths = args.outputs["lengths"].as<int32_t>();
  const int64_t num_sequences = args.inputs["kv_lens"].shape[0];
  const auto num_logits = static_cast<int32_t>(args.outputs["lengths"].shape[0] / num_sequences);
  const bool is_uniform = args.step.is_uniform();
  const int64_t most = args.attrs.get_int("max_match");
  for (int64_t t = 0; t < args.inputs["ids"].shape[0]; ++t) {
    ids[t] = known_token(ids[t], last_tokens);
  }
  pool.parallel_for(num_sequences, 1, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      DraftPlaces places;
      if (is_uniform) {
        places = uniform_draft_places(static_cast<int32_t>(b), num_logits);
      } else if (kv_lens[b] > 0) {
        places = mixed_draft_places(ids, last_rows[b], num_logits - 1);
      }
      const int32_t count = places.num_drafts;
      for (int32_t j = 0; j < num_logits; ++j) {
        const bool is_chosen =
            kv_lens[b] > 0 && (j == 0 || (j <= count && sampling[b].takes_drafts()));
        rows[b * num_logits + j] = places.known_row + std::min(j, count);
        lengths[b * num_logits + j] = is_chosen ? kv_lens[b] - (count - j) : 0;
      }
      if (count == 0 || kv_lens[b] == 0) continue;
      int32_t* const own = ids + places.known_row;
      const KnownTokens known{page_table.row<int32_t>(b), token_cache, kv_lens[b] - count - 1,
                              own[0]};
      const int64_t place = known.find_place(most);
      for (int64_t j = 0; j < count; ++j) {
        const int64_t behind = place + j - known.last;
        own[1 + j] = behind <= 0 ? known.at(place + j) : own[behind];
      }
    }
  });
  for (int64_t t = 0; t < args.inputs["ids"].shape[0]; ++t) {
    if (slots[t] >= 0) token_cache.as<int32_t>()[slots[t]] = ids[t];
  }
}

}  // namespace

std::span<const Kernel> lookup_drafts_kernels() {
  static constexpr std::array kRows = {
      row<"lookup_drafts.cpu", lookup_drafts>("lookup_drafts"),
  };
  return kRows;
}

}  // namespace encore::cpu
