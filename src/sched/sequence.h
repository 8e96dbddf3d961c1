// The tokens of a request while it lives, how far they have come, and their pages.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "kv/page_pool.h"
#include "kv/prefix_cache.h"
#include "kv/window_group.h"

namespace encore::sched {

using SequenceId = int64_t;

struct Sequence;

// `count` tokens of one sequence, from position `first`, and drafts behind them: its row of a step.
struct ScheduledTokens {
  SequenceId sequence = 0;
  int64_t first = 0;
  int64_t count = 0;
  // Tokens that the device guesses and checks behind a `count` of one, where the sequence takes drafts. Then
  // the row may turn out to be as many tokens longer, and `first` is where it begins at least.
  int64_t drafts = 0;
  Sequence* place = nullptr;  // where it lies while it lives; see Scheduler::find()

  [[nodiscard]] int64_t end() const { return first + count; }
  // Tokens of the step that the row takes.
  [[nodiscard]] int64_t num_tokens() const { return count + drafts; }
  // Are they the same tokens, with as many drafts?
  friend bool operator==(const ScheduledTokens& a, const ScheduledTokens& b) {
    return a.sequence == b.sequence && a.first == b.first && a.count == b.count &&
           a.drafts == b.drafts;
  }
};

// The fields that every step reads come first, and begin with a cache line.
// Invariant: 0 <= collected <= launched <= known() + 1 and launched < max_length. The token at
// known() is one that a step in flight samples: the device has it, the host does not. A step with
// drafts counts as launched for the one token that it computes in any case; when it is collected,
// the drafts that turned out right are launched and collected, too.
struct alignas(64) Sequence {
  SequenceId id = 0;             // ascending in the order of arrival
  int32_t priority = 0;          // lower numbers come first
  int32_t index = 0;             // given by the scheduler: small, and no other that lives has it
  std::optional<int32_t> row;    // in the step launched last, if it took part
  std::vector<int32_t> tokens;   // the prompt, then what was generated and collected
  int64_t max_length = 0;        // prompt and generated tokens; the last is never computed
  int64_t given = 0;             // tokens known when it was admitted: the host packs these
  int64_t num_to_compute = 0;    // of those, tokens that it did not find in the prefix cache
  int64_t launched = 0;          // tokens whose K and V launched steps compute, its own or others
  int64_t collected = 0;         // those of them whose steps the host has collected
  std::vector<kv::Page> pages;   // of the first tokens, in order; none while it waits
  kv::WindowPages window_pages;  // in layers with a window, where those have pages of their own
  bool takes_drafts = true;      // as SamplingRow::takes_drafts() of its rows
  kv::PageChain chain;           // of its pages, where there is a prefix cache
  std::optional<size_t> awaited_page;  // the last that it waited for another sequence to compute
  // Tokens behind which all must be computed, whatever the prefix cache has. Absent: no limit.
  std::optional<int64_t> max_cached = std::nullopt;
  std::optional<int64_t> num_cached;  // tokens found in the prefix cache when it was first admitted
  std::optional<std::chrono::steady_clock::time_point> admitted;  // first
  int64_t num_preemptions = 0;                                    // times that it gave up its pages

  [[nodiscard]] int64_t known() const { return static_cast<int64_t>(tokens.size()); }
  // Tokens that the next step can compute.
  [[nodiscard]] int64_t num_ready() const {
    if (launched < known()) return known() - launched;
    const bool is_sampled_in_flight = launched == known() && launched + 1 < max_length;
    return is_sampled_in_flight ? 1 : 0;
  }
  // Tokens whose K and V every later step may read. Tokens that the host did not pack count when
  // they are collected, since a step in flight computes none behind a stop token.
  [[nodiscard]] int64_t num_readable() const {
    return std::min(known(), std::max(std::min(launched, given), collected));
  }
  // The number of first tokens that need not be computed if their K and V are in the prefix cache.
  // The last token is computed, as its step samples the next.
  [[nodiscard]] int64_t num_findable() const { return max_cached.value_or(known() - 1); }
  // The first token that some later step may compute; sample_again() goes back to the last known one.
  [[nodiscard]] int64_t next_position() const { return std::min(launched, known() - 1); }
  // A step that computes these tokens was launched.
  void launch(const ScheduledTokens& computed) {
    ENCORE_CHECK(computed.first == launched && computed.count <= num_ready());
    launched += computed.count;
  }
  // A step that computed these tokens was collected, and sampled some behind them: one, and one more
  // for each draft that it computed besides and that was right. Are those the next tokens of the
  // sequence? They are not where more of the prompt follows.
  bool collect(const ScheduledTokens& computed, std::span<const int32_t> sampled) {
    const int64_t num_right = std::ssize(sampled) - 1;
    if (computed.end() <= launched) {
      launched += num_right;
      collected = std::max(collected, computed.end() + num_right);
    }
    if (computed.end() != known()) return false;
    tokens.insert(tokens.end(), sampled.begin(), sampled.end());
    return true;
  }
  bool collect(const ScheduledTokens& computed, int32_t token) {
    return collect(computed, std::span(&token, 1));
  }
  // The token behind those known is chosen by a later step than those in flight, which computes the
  // position before it once more.
  void sample_again() {
    launched = std::min(launched, known() - 1);
    collected = std::min(collected, launched);
  }
  // Gives up the pages: all tokens are given to steps again, except those whose pages are found in
  // the prefix cache by then. Tokens of steps in flight still count.
  void preempt() {
    launched = 0;
    collected = 0;
    pages.clear();
    window_pages = {};
    row.reset();
    ++num_preemptions;
  }
};

}  // namespace encore::sched
