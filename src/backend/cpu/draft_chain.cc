// Kernels for the drafts of a draft model: begin_drafts sets where the drafts of a step begin, and
// extend_drafts adds one draft to each sequence.
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "backend/cpu/kernels.h"
#include "backend/draft_places.h"
#include "backend/last_token.h"
#include "backend/sampling.h"

namespace encore::cpu {
namespace {

int32_t* integers(const Views& views, std::string_view name) {
  return views[name].as<int32_t>();
}

// The operands of begin_drafts, which ops.cc describes.
struct BeginDrafts {
  explicit BeginDrafts(const KernelArgs& args)
      : sampling(args.inputs["sampling"].as<SamplingRow>()),
        num_tokens(args.inputs["ids"].shape[0]),
        num_sequences(args.inputs["kv_lens"].shape[0]),
        num_logits(static_cast<int32_t>(args.outputs["lengths"].shape[0] / num_sequences)),
        is_uniform(args.step.is_uniform()),
        guesses(args.outputs["last_ids"].shape[0] > 0),
        reads(args.outputs["read_ids"].shape[0] > 0) {
    for (const auto& [name, operand] : {std::pair{"positions", &positions},
                                        {"slots", &slots},
                                        {"kv_lens", &kv_lens},
                                        {"last_rows", &last_rows}})
      *operand = integers(args.inputs, name);
    for (const auto& [name, operand] : {std::pair{"ids", &ids},
                                        {"logits_rows", &logits_rows},
                                        {"lengths", &lengths},
                                        {"last_ids", &last_ids},
                                        {"last_positions", &last_positions},
                                        {"last_slots", &last_slots},
                                        {"last_lens", &last_lens},
                                        {"read_ids", &read_ids},
                                        {"read_positions", &read_positions},
                                        {"read_slots", &read_slots},
                                        {"read_lens", &read_lens}})
      *operand = integers(args.outputs, name);
    if (args.inputs.find("window_slots") == nullptr) return;
    window_slots = integers(args.inputs, "window_slots");
    last_window_slots = integers(args.outputs, "last_window_slots");
    read_window_slots = integers(args.outputs, "read_window_slots");
  }

  [[nodiscard]] DraftPlaces places(int64_t b) const {
    return is_uniform ? uniform_draft_places(static_cast<int32_t>(b), num_logits)
                      : mixed_draft_places(ids, last_rows[b], num_logits - 1);
  }
  void give_logits_rows(int64_t b, const DraftPlaces& places, bool takes_drafts) const {
    for (int32_t j = 0; j < num_logits; ++j) {
      const bool is_chosen = kv_lens[b] > 0 && (j == 0 || (takes_drafts && j <= places.num_drafts));
      const int64_t l = b * num_logits + j;
      logits_rows[l] = places.known_row + std::min(j, places.num_drafts);
      lengths[l] = is_chosen ? kv_lens[b] - (places.num_drafts - j) : 0;
    }
  }
  // Gives a sequence the token that its first draft follows, or -1 where it takes no drafts.
  void give_last(int64_t b, const DraftPlaces& places, bool guesses) const {
    const int32_t row = places.known_row;
    last_ids[b] = guesses ? ids[row] : -1;
    last_positions[b] = guesses ? positions[row] : 0;
    last_slots[b] = guesses ? slots[row] : -1;
    if (window_slots != nullptr) last_window_slots[b] = guesses ? window_slots[row] : -1;
    last_lens[b] = guesses ? kv_lens[b] - places.num_drafts : 0;
  }
  // Excludes the rows from `first` to `last` from those that the draft model reads as part of a
  // prompt.
  void leave_unread(int64_t b, int32_t first, int32_t last) const {
    std::fill(read_ids + first, read_ids + last + 1, -1);
    std::fill(read_positions + first, read_positions + last + 1, 0);
    std::fill(read_slots + first, read_slots + last + 1, -1);
    if (window_slots != nullptr)
      std::fill(read_window_slots + first, read_window_slots + last + 1, -1);
    read_lens[b] = 0;
  }
  void run() const {
    if (reads) {
      std::copy_n(ids, num_tokens, read_ids);
      std::copy_n(positions, num_tokens, read_positions);
      std::copy_n(slots, num_tokens, read_slots);
      if (window_slots != nullptr) std::copy_n(window_slots, num_tokens, read_window_slots);
    }
    for (int64_t b = 0; b < num_sequences; ++b) {
      const DraftPlaces places = kv_lens[b] > 0 || is_uniform ? this->places(b) : DraftPlaces{};
      const bool takes_drafts = kv_lens[b] > 0 && sampling[b].takes_drafts();
      const bool guesses_some = takes_drafts && places.num_drafts > 0;
      give_logits_rows(b, places, takes_drafts);
      if (guesses) give_last(b, places, guesses_some);
      read_lens[b] = reads ? kv_lens[b] : 0;
      const bool is_alone = last_rows[b] == (b == 0 ? 0 : last_rows[b - 1] + 1);
      if (reads && kv_lens[b] > 0 && (places.num_drafts > 0 || (is_alone && !takes_drafts)))
        leave_unread(b, places.known_row, places.known_row + places.num_drafts);
      std::fill_n(ids + places.known_row, 1 + places.num_drafts, ids[places.known_row]);
    }
  }

  const SamplingRow* sampling;
  int64_t num_tokens;
  int64_t num_sequences;
  int32_t num_logits;  // rows of logits of a sequence
  bool is_uniform;
  bool guesses;  // some sequences may get drafts
  bool reads;    // some sequences may have tokens that the draft model only reads
  int32_t* positions = nullptr;
  int32_t* slots = nullptr;
  int32_t* kv_lens = nullptr;
  int32_t* last_rows = nullptr;
  int32_t* ids = nullptr;
  int32_t* logits_rows = nullptr;
  int32_t* lengths = nullptr;
  int32_t* last_ids = nullptr;
  int32_t* last_positions = nullptr;
  int32_t* last_slots = nullptr;
  int32_t* last_lens = nullptr;
  int32_t* read_ids = nullptr;
  int32_t* read_positions = nullptr;
  int32_t* read_slots = nullptr;
  int32_t* read_lens = nullptr;
  // The window slots are null unless the draft model has pages of windows.
  int32_t* window_slots = nullptr;
  int32_t* last_window_slots = nullptr;
  int32_t* read_window_slots = nullptr;
};

void begin_drafts(Pool& /*pool*/, const KernelArgs& args) {
  const BeginDrafts begin(args);
  const int32_t* const last_tokens = integers(args.inputs, "last_tokens");
  for (int64_t t = 0; t < begin.num_tokens; ++t) {
    begin.ids[t] = known_token(begin.ids[t], last_tokens);
  }
  int32_t* const starts = integers(args.outputs, "starts");
  std::iota(starts, starts + args.outputs["starts"].shape[0], 0);
  begin.run();
}

void extend_drafts(Pool& /*pool*/, const KernelArgs& args) {
  const int32_t* const next = integers(args.inputs, "next");
  const int32_t* const positions = integers(args.inputs, "positions");
  const int32_t* const lens = integers(args.inputs, "lens");
  const int32_t* const logits_rows = integers(args.inputs, "logits_rows");
  const int32_t* const lengths = integers(args.inputs, "lengths");
  int32_t* const ids = integers(args.outputs, "ids");
  const int64_t num_sequences = args.inputs["next"].shape[0];
  const int64_t num_logits = args.inputs["lengths"].shape[0] / num_sequences;
  const int64_t place = args.attrs.get_int("place");
  const int64_t page_size = args.attrs.get_int("page_size");
  for (int64_t g = 0; g < num_sequences; ++g) {
    const int64_t l = g * num_logits + place;
    const bool goes_on = lens[g] > 0 && lengths[l] > 0;
    const int32_t position = goes_on ? positions[g] + 1 : 0;
    const auto slot_in = [&](std::string_view table) {
      const int32_t page = goes_on ? args.inputs[table].row<int32_t>(g)[position / page_size] : -1;
      return page < 0 ? -1 : static_cast<int32_t>(page * page_size + position % page_size);
    };
    if (goes_on) ids[logits_rows[l]] = next[g];
    integers(args.outputs, "next_ids")[g] = goes_on ? next[g] : -1;
    integers(args.outputs, "next_positions")[g] = position;
    integers(args.outputs, "next_slots")[g] = slot_in("page_table");
    if (args.inputs.find("window_table") != nullptr)
      integers(args.outputs, "next_window_slots")[g] = slot_in("window_table");
    integers(args.outputs, "next_lens")[g] = goes_on ? lens[g] + 1 : 0;
  }
}

}  // namespace

std::span<const Kernel> draft_chain_kernels() {
  static constexpr std::array kRows = {
      row<"begin_drafts.cpu", begin_drafts>("begin_drafts", {"window_slots"}),
      row<"extend_drafts.cpu", extend_drafts>("extend_drafts", {"window_slots", "window_table"}),
  };
  return kRows;
}

}  // namespace encore::cpu
