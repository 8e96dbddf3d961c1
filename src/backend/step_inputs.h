// A table of the inputs that the host writes for a step. The graph is built from this table, and
// the host finds its inputs by it, so each name is written only once.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/sampling.h"
#include "ir/graph.h"

namespace encore {

// The most stop tokens of a sequence that fit into the step input `stop_tokens`.
inline constexpr int64_t kMaxStopTokens = 8;

struct StepInput {
  std::string_view name;
  // Says whether the input has an entry for each token or for each sequence. With kNone, it has
  // only as many entries as `entries` says.
  ir::Symbol rows = ir::Symbol::kNone;
  int64_t entries = 0;           // entries besides those of `rows`
  int64_t words = 0;             // words of an entry; 0: one word, without a dim
  ir::Pad pad = ir::Pad::kZero;  // the content of padding rows
  std::string_view about;
  DType dtype = DType::kI32;

  [[nodiscard]] ir::Type type() const {
    std::vector<ir::Dim> dims{ir::Dim(rows, entries)};
    if (words > 0) dims.emplace_back(words);
    return {dtype, std::move(dims)};
  }
  ir::ValueId add_to(ir::Graph& graph) const {
    return graph.add_input(std::string(name), type(), pad);
  }
};

// The inputs of a step of a model (model/graph.h), with T tokens and B sequences.
namespace step_input {
using enum ir::Symbol;
inline constexpr StepInput kIds{
    .name = "ids",
    .rows = kTokens,
    .pad = ir::Pad::kMinusOne,
    .about = "the token; -2 - b: what the last step sampled for its row b; -1: none"};
inline constexpr StepInput kPositions{
    .name = "positions", .rows = kTokens, .about = "its place in its sequence"};
inline constexpr StepInput kSlots{
    .name = "slots",
    .rows = kTokens,
    .pad = ir::Pad::kMinusOne,
    .about = "where its K and V go: page * page_size + place; -1: nowhere"};
// This input exists where layers with a window have pages of their own.
inline constexpr StepInput kWindowSlots{.name = "window_slots",
                                        .rows = kTokens,
                                        .pad = ir::Pad::kMinusOne,
                                        .about = "slots, in layers with a window"};
inline constexpr StepInput kKvLens{
    .name = "kv_lens", .rows = kSequences, .about = "tokens of each sequence after this step"};
inline constexpr StepInput kQueryStarts{.name = "query_starts",
                                        .rows = kSequences,
                                        .entries = 1,
                                        .pad = ir::Pad::kRepeatLast,
                                        .about = "first row of each sequence, then T"};
inline constexpr StepInput kFill{.name = "fill",
                                 .entries = 1,
                                 .about = "what the embedding of a padding row holds",
                                 .dtype = DType::kF32};
// The inputs from here to `sampling` exist only where the step samples.
inline constexpr StepInput kLastRows{
    .name = "last_rows", .rows = kSequences, .about = "the row whose logits count"};
inline constexpr StepInput kStopTokens{.name = "stop_tokens",
                                       .rows = kSequences,
                                       .words = kMaxStopTokens,
                                       .pad = ir::Pad::kMinusOne,
                                       .about = "each ends the sequence; -1: none"};
inline constexpr StepInput kMaxLens{
    .name = "max_lens", .rows = kSequences, .about = "tokens at which the sequence ends"};
// In `sampling`, every word of a padding row is -1, so its logits are not adjusted and no log
// probabilities are computed.
inline constexpr StepInput kSampling{
    .name = "sampling",
    .rows = kSequences,
    .words = kSamplingWords,
    .pad = ir::Pad::kMinusOne,
    .about = "how the next token is chosen: a SamplingRow (backend/sampling.h)"};
// The inputs from here to the end exist only where the program has room for adapters.
inline constexpr StepInput kTokenAdapters{.name = "token_adapters",
                                          .rows = kTokens,
                                          .pad = ir::Pad::kMinusOne,
                                          .about = "the slot of each token's adapter; -1: none"};
inline constexpr StepInput kAdapters{
    .name = "adapters",
    .rows = kSequences,
    .pad = ir::Pad::kMinusOne,
    .about =
        "the slot of each sequence's adapter, where the step samples, or with drafts of each row "
        "of logits; -1: none"};
}  // namespace step_input

inline constexpr StepInput kStepInputs[] = {
    step_input::kIds,         step_input::kPositions, step_input::kSlots,
    step_input::kWindowSlots, step_input::kKvLens,    step_input::kQueryStarts,
    step_input::kFill,        step_input::kLastRows,  step_input::kStopTokens,
    step_input::kMaxLens,     step_input::kSampling,  step_input::kTokenAdapters,
    step_input::kAdapters};

// The inputs of a run that scores tokens of prompts. It has a row for each token to score.
namespace score_input {
inline constexpr StepInput kRows{.name = "rows",
                                 .rows = ir::Symbol::kSequences,
                                 .pad = ir::Pad::kMinusOne,
                                 .about = "the row of the step before, whose output counts"};
inline constexpr StepInput kTokens{.name = "tokens",
                                   .rows = ir::Symbol::kSequences,
                                   .pad = ir::Pad::kMinusOne,
                                   .about = "the token that follows it"};
inline constexpr StepInput kSampling{.name = "sampling",
                                     .rows = ir::Symbol::kSequences,
                                     .words = kSamplingWords,
                                     .pad = ir::Pad::kMinusOne,
                                     .about = "a SamplingRow, of which only num_logprobs matters"};
inline constexpr StepInput kClock{.name = "clock",
                                  .entries = 2,
                                  .about = "the first says which entry of the ring the run writes"};
inline constexpr StepInput kAdapters = step_input::kAdapters;
}  // namespace score_input

}  // namespace encore
