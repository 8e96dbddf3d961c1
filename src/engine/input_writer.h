// Writes the real rows of a step's inputs. No other file knows what each input holds
// (model/graph.h).
#pragma once

#include <cstdint>
#include <span>

#include "backend/sampling.h"
#include "runtime/executor.h"

namespace encore::engine {

// The rows of one sequence in a step, which an InputWriter writes.
struct StepRows {
  std::span<const int32_t> ids;    // new tokens; model::last_token_of stands for one not known yet
  int64_t first = 0;               // position of the first of `ids`
  std::span<const int32_t> pages;  // pages of all of its tokens, in order
  // The sequence's pages in layers with a window, in order, where these layers have pages of their
  // own. The first `num_unseen_pages` entries are not read.
  std::span<const int32_t> window_pages = {};
  int64_t num_unseen_pages = 0;
  // The fields below belong to a step that samples.
  SamplingRow sampling;
  std::span<const int32_t> stop_tokens = {};  // the step input has room for kMaxStopTokens
  // The number of tokens at which the sequence ends.
  int64_t max_len = 0;

  // Is true where the device's page table holds the pages in this row already.
  bool has_sent_pages = false;
  int32_t adapter = -1;    // the sequence's adapter slot; -1: no adapter
  int64_t num_drafts = 0;  // drafts that the device guesses behind the tokens of `ids`
};

// Returns the sequence's stop tokens that the step input has no room for. A step does not end at
// them.
std::span<const int32_t> unsent_stops(std::span<const int32_t> stop_tokens);

// Writes the inputs of one step. Lifetime: it may live between Executor::begin() and run() only,
// and refers to the executor's inputs and page table.
class InputWriter {
 public:
  InputWriter(runtime::Executor& executor, int64_t page_size);

  // Adds the next sequence. Its rows come behind those of the sequence added before.
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
  std::span<int32_t> sampling_;  // kSamplingWords words for each row
  // The inputs below are empty where the program has no room for adapters.
  std::span<int32_t> token_adapters_;
  std::span<int32_t> adapters_;  // empty, too, where the step does not sample
  runtime::StepInputs& inputs_;
  int64_t page_size_;
  size_t sequence_ = 0;
  int32_t row_ = 0;
};

}  // namespace encore::engine
