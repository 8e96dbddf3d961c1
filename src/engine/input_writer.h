// Writes the real rows of a step's inputs: the one place that knows what each of them holds
// (model/graph.h).
#pragma once

#include <cstdint>
#include <span>

#include "backend/sampling.h"
#include "runtime/executor.h"

namespace encore::engine {

// A sequence's share of a step.
struct StepRows {
  std::span<const int32_t> ids;    // new tokens; see model::last_token_of for one not known yet
  int64_t first = 0;               // position of the first of them
  std::span<const int32_t> pages;  // in order, for all of its tokens
  // They are those of layers with a window, in order, where such layers have pages of their own; the first
  // `num_unseen_pages` are not looked at.
  std::span<const int32_t> window_pages = {};
  int64_t num_unseen_pages = 0;
  // The fields below belong to a step that samples.
  SamplingRow sampling;
  std::span<const int32_t> stop_tokens = {};  // the step input has room for kMaxStopTokens
  int64_t max_len = 0;                        // tokens at which the sequence ends

  bool has_sent_pages = false;  // the device's page table has its pages in this row
  int32_t adapter = -1;         // slot of its adapter; -1: none
  int64_t num_drafts = 0;       // tokens behind those of `ids` that the device guesses
};

// The stop tokens of a sequence that the step input has no room for: a step does not end at them.
std::span<const int32_t> unsent_stops(std::span<const int32_t> stop_tokens);

// Writes the inputs of one step. Lifetime: between Executor::begin() and run(); refers to the
// executor's inputs and page table.
class InputWriter {
 public:
  InputWriter(runtime::Executor& executor, int64_t page_size);

  // Adds the next sequence, its rows behind those of the one before.
  void add(const StepRows& rows);

 private:
  void add_end(const StepRows& rows);

  std::span<int32_t> ids_;
  std::span<int32_t> positions_;
  std::span<int32_t> slots_;
  std::span<int32_t> window_slots_;  // empty where all layers have the same pages
  std::span<int32_t> kv_lens_;
  std::span<int32_t> query_starts_;
  // The inputs below are empty where the step does not sample.
  std::span<int32_t> last_rows_;
  std::span<int32_t> stop_tokens_;
  std::span<int32_t> max_lens_;
  std::span<int32_t> sampling_;  // kSamplingWords a row
  // Empty where the program has no room for adapters:
  std::span<int32_t> token_adapters_;
  std::span<int32_t> adapters_;  // and where the step does not sample
  runtime::StepInputs& inputs_;
  int64_t page_size_;
  size_t sequence_ = 0;
  int32_t row_ = 0;
};

}  // namespace encore::engine
