// Kernels at the ends of a step: advance publishes the step's tokens and turns its inputs into
// those of the next step, and write_inputs writes the inputs that the host gives.
#include "backend/advance.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "backend/cpu/kernels.h"
#include "backend/sampling.h"

namespace encore::cpu {
namespace {

using namespace advance_op;  // NOLINT(google-build-using-namespace): where marks lie

// The operands of advance, which ops.cc describes. A sequence has `num_each` rows of logits.
struct Advance {
  explicit Advance(const KernelArgs& args)
      : page_table(args.inputs["page_table"]),
        window_table(args.inputs.find("window_table")),
        stop_tokens(args.inputs["stop_tokens"]),
        num_each(args.inputs["next"].shape[0] / args.inputs["kv_lens"].shape[0]),
        page_size(args.attrs.get_int("page_size")) {
    const auto ints = [&](std::string_view name) { return args.inputs[name].as<int32_t>(); };
    next = ints("next");
    max_lens = ints("max_lens");
    ids = ints("ids");
    positions = ints("positions");
    slots = ints("slots");
    kv_lens = ints("kv_lens");
    if (args.inputs.find("lengths") != nullptr) {
      lengths = ints("lengths");
      logits_rows = ints("logits_rows");
    }
    if (window_table != nullptr) window_slots = ints("window_slots");
    token_counts = args.inputs.find("token_counts");
    if (token_counts != nullptr) sampling = args.inputs["sampling"].as<SamplingRow>();
    acceptance = args.inputs.find("acceptance");
    step = static_cast<uint32_t>(ints("step_clock")[0]);
  }

  // Returns whether row b's sequence ends with `token`, which makes it `length` long.
  [[nodiscard]] bool ends(int64_t b, int32_t token, int64_t length) const {
    const int32_t* const stops = stop_tokens.row<int32_t>(b);
    const int32_t* const stops_end = stops + stop_tokens.shape[1];
    return advance_op::ends(std::find(stops, stops_end, token) != stops_end, length, max_lens[b]);
  }
  // Returns the length of row b's sequence in front of the first token that the step chose for it.
  [[nodiscard]] int64_t first_length(int64_t b) const {
    return lengths == nullptr ? kv_lens[b] : lengths[b * num_each];
  }
  // Returns whether draft j = 1, 2, ... of row b is right.
  [[nodiscard]] bool is_right(int64_t b, int64_t j) const {
    const int64_t first = b * num_each;
    const bool is_equal = ids[logits_rows[first + j]] == next[first + j - 1];
    if (acceptance == nullptr) return is_equal;
    return j <= acceptance->shape[0] &&
           forced_draw(step, static_cast<uint32_t>(b)) < acceptance->as<float>()[j - 1];
  }
  // Returns the size of row b's span: how many of the tokens chosen for it count, because all
  // drafts in front of them were right and the sequence had not ended.
  [[nodiscard]] int64_t span(int64_t b) const {
    const int64_t first = b * num_each;
    int64_t count = 1;
    while (count < num_each && lengths[first + count] > 0 && is_right(b, count) &&
           !ends(b, next[first + count - 1], first_length(b) + count))
      ++count;
    return count;
  }
  // Counts the tokens of row b's span, where penalties need the counts.
  void count_tokens(int64_t b, int64_t count) const {
    if (token_counts == nullptr || sampling[b].state < 0 || first_length(b) == 0) return;
    auto* const counts = token_counts->row<int32_t>(sampling[b].state);
    for (int64_t j = 0; j < count; ++j)
      ++counts[next[b * num_each + j]];
  }
  // Moves row b on with the last token of a span, unless that token ends the sequence or a token
  // behind it has no page. Returns whether the row goes on.
  bool move_on(int64_t b, int64_t count) const {
    const int32_t token = next[b * num_each + count - 1];
    const int64_t length = first_length(b) + count;
    const bool goes_on = !ends(b, token, length) && place(b, length - 1);
    if (goes_on) {
      ids[b * num_each] = token;
    } else {
      become_padding(b);
    }
    kv_lens[b] = goes_on ? static_cast<int32_t>(length - 1 + num_each) : 0;
    return goes_on;
  }
  void become_padding(int64_t b) const {
    std::fill_n(ids + b * num_each, num_each, -1);
    std::fill_n(positions + b * num_each, num_each, 0);
    std::fill_n(slots + b * num_each, num_each, -1);
    if (window_slots != nullptr) std::fill_n(window_slots + b * num_each, num_each, -1);
  }
  // Gives row b's tokens their places from position `first` on. Returns false where a token has no
  // page.
  [[nodiscard]] bool place(int64_t b, int64_t first) const {
    for (int64_t j = 0; j < num_each; ++j) {
      const int64_t position = first + j;
      const auto slot = slot_of(page_table, b, position);
      if (!slot) return false;
      const int64_t t = b * num_each + j;
      ids[t] = -1;
      positions[t] = static_cast<int32_t>(position);
      slots[t] = *slot;
      if (window_table == nullptr) continue;
      const auto window_slot = slot_of(*window_table, b, position);
      if (!window_slot) return false;
      window_slots[t] = *window_slot;
    }
    return true;
  }
  // Returns the slot of a position in row b's pages of `table`, or nothing where it has no page.
  [[nodiscard]] std::optional<int32_t> slot_of(const TensorView& table, int64_t b,
                                               int64_t position) const {
    const int64_t entry = position / page_size;
    if (entry >= table.shape[1] || table.row<int32_t>(b)[entry] < 0) return std::nullopt;
    return static_cast<int32_t>(table.row<int32_t>(b)[entry] * page_size + position % page_size);
  }

  const TensorView& page_table;
  const TensorView* window_table;  // null: all layers have the same pages
  const TensorView& stop_tokens;
  int64_t num_each;
  int64_t page_size;
  const int32_t* next = nullptr;
  const int32_t* max_lens = nullptr;
  const int32_t* lengths = nullptr;
  const int32_t* logits_rows = nullptr;
  const TensorView* token_counts = nullptr;  // null: `sample` counts the tokens
  const SamplingRow* sampling = nullptr;
  // For benchmarks: the probability with which each draft counts as right. Null: a draft is right
  // where it equals the chosen token.
  const TensorView* acceptance = nullptr;
  uint32_t step = 0;
  int32_t* ids = nullptr;
  int32_t* positions = nullptr;
  int32_t* slots = nullptr;
  int32_t* window_slots = nullptr;
  int32_t* kv_lens = nullptr;
};

void advance(Pool& /*pool*/, const KernelArgs& args) {
  const Advance a(args);
  const TensorView& ring = args.inputs["token_ring"];
  int32_t* const last_tokens = args.inputs["last_tokens"].as<int32_t>();
  int32_t* const clock = args.inputs["step_clock"].as<int32_t>();
  int32_t* const marks = args.inputs["ring_marks"].as<int32_t>();
  const uint32_t done = static_cast<uint32_t>(clock[0]);
  int32_t* const published = ring.row<int32_t>(done % ring.shape[0]);
  bool any_left = false;
  for (int64_t b = 0; b < args.inputs["kv_lens"].shape[0]; ++b) {
    const int64_t count = a.span(b);
    const int32_t* const tokens = a.next + b * a.num_each;
    for (int64_t j = 0; j < a.num_each; ++j)
      published[b * a.num_each + j] = j < count ? tokens[j] : -1;
    last_tokens[b] = tokens[count - 1];
    a.count_tokens(b, count);
    if (args.step.q == a.num_each && a.kv_lens[b] > 0) any_left |= a.move_on(b, count);
  }
  clock[0] = static_cast<int32_t>(done + 1);
  const TensorView* const agreed = args.inputs.find("run_until");
  const auto run_until = static_cast<uint32_t>(
      agreed != nullptr ? agreed->as<int32_t>()[0]
                        : std::atomic_ref(marks[kRunUntil]).load(std::memory_order_relaxed));
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
      row<"advance.cpu", advance>(
          "advance", {"logits_rows", "lengths", "acceptance", "window_table", "window_slots",
                      "sampling", "token_counts", "run_until"}),
      row<"write_inputs.cpu", write_inputs>("write_inputs"),
  };
  return kRows;
}

}  // namespace encore::cpu
