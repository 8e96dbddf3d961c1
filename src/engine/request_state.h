// Holds the engine's state of a request. The scheduler holds its tokens and pages
// (sched/sequence.h).
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

// The log probabilities of a prompt that are collected so far.
struct PromptScores {
  int32_t num_top = 0;     // number of likeliest tokens to report at each token but the first
  int64_t num_scored = 0;  // tokens whose next token's log probability is collected
  std::vector<LogprobRow> collected;  // rows that were not handed on yet
};

// The number of a sequence's pages in each group of layers.
struct SentPages {
  int64_t whole = 0;
  int64_t window = 0;

  friend bool operator==(const SentPages&, const SentPages&) = default;
};

// The rows of the device's page tables and token state that earlier steps left for a sequence.
struct DeviceRows {
  // The sequence's number of preemptions when these fields were set. They are void once it is
  // larger.
  int64_t num_preemptions = 0;
  SentPages sent;  // pages that the device's page tables hold in the sequence's row
  std::optional<int32_t> token_state;  // row of the device state that adjusts the sequence's logits
};

struct RequestState {
  int64_t prompt_length = 0;
  sample::SamplingParams sampling;
  std::vector<TokenBias> token_bias;
  std::vector<int32_t> stop_tokens;
  int64_t min_length = 0;  // tokens before which no stop token ends the sequence
  // The grammar's state after the collected tokens. Null without a grammar.
  std::unique_ptr<sample::TokenMatcher> matcher;
  std::chrono::steady_clock::duration mask_time{};  // time that the grammar took in all
  std::optional<PromptScores> scores;               // absent unless the request asks for them
  std::shared_ptr<const loader::Adapter> adapter;   // null: no adapter
  // The adapter in its adapter slot. It is set from when the sequence asks for it until the
  // sequence ends or loses its pages. It is shared with the steps in flight.
  std::shared_ptr<const loader::ResidentAdapter> resident = nullptr;
  DeviceRows device;

  // Returns the number of the adapter slot, or -1 without an adapter. REQUIRES: the sequence runs.
  [[nodiscard]] int32_t slot() const { return resident ? resident->slot() : -1; }
  // Returns whether the step that computes `position` must score the token behind it.
  [[nodiscard]] bool is_to_be_scored(int64_t position) const {
    return scores && position >= scores->num_scored && position + 1 < prompt_length;
  }
};

}  // namespace encore::engine
