// The state of a request in the engine, beside its tokens and pages, which are the scheduler's (sched/sequence.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "loader/adapters.h"
#include "sample/params.h"
#include "sample/token_grammar.h"
#include "sched/sequence.h"

namespace encore::engine {

// The log probabilities of a prompt, as far as they are collected.
struct PromptScores {
  int32_t num_top = 0;                // likeliest tokens to name beside each token but the first
  int64_t num_scored = 0;             // tokens whose followers have theirs collected
  std::vector<LogprobRow> collected;  // and not handed on
};

// The number of a sequence's pages in each group of layers.
struct SentPages {
  int64_t whole = 0;
  int64_t window = 0;

  friend bool operator==(const SentPages&, const SentPages&) = default;
};

// The rows of page tables and of token state that earlier steps left on the device for a sequence.
struct DeviceRows {
  int64_t num_preemptions = 0;         // of the sequence by then: one more, and nothing here holds
  SentPages sent;                      // that the device's page tables have in the sequence's row
  std::optional<int32_t> token_state;  // the row of what is kept to adjust the sequence's logits
};

struct RequestState {
  int64_t prompt_length = 0;
  sample::SamplingParams sampling;
  std::vector<TokenBias> token_bias;
  std::vector<int32_t> stop_tokens;
  int64_t min_length = 0;  // tokens before which none of those ends the sequence
  // The grammar's state after the collected tokens. Null without a grammar.
  std::unique_ptr<sample::TokenMatcher> matcher;
  std::chrono::steady_clock::duration mask_time{};  // that its grammar took in all
  std::optional<PromptScores> scores;               // where the request asks for them
  std::shared_ptr<const loader::Adapter> adapter;   // null: none
  // It, from when it is asked for until the sequence ends or loses its pages. Shared with the steps in
  // flight.
  std::shared_ptr<const loader::ResidentAdapter> resident = nullptr;
  DeviceRows device;

  // The slot of the adapter; -1: none. REQUIRES: the sequence runs.
  [[nodiscard]] int32_t slot() const { return resident ? resident->slot() : -1; }
  // Must the token behind `position` be scored by the step that computes that position?
  [[nodiscard]] bool is_to_be_scored(int64_t position) const {
    return scores && position >= scores->num_scored && position + 1 < prompt_length;
  }
};

}  // namespace encore::engine
