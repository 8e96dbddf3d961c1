// Holds the tokens of a request while it lives, how far they are computed, and their pages.
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

// A sequence's row of a step: `count` of its tokens from position `first` on, and drafts behind
// them.
struct ScheduledTokens {
  SequenceId sequence = 0;
  int64_t first = 0;
  int64_t count = 0;
  // The number of places for drafts behind the row's one token; 0 where `count` is not 1. The device
  // guesses and checks them. In a uniform step, rows of sequences that take no drafts have these
  // places, too, but choose only one token. For each draft of a step in flight that turns out right,
  // the row begins one position later than `first`.
  int64_t drafts = 0;
  // The sequence's address while it lives (see Scheduler::find()).
  Sequence* place = nullptr;

  [[nodiscard]] int64_t end() const { return first + count; }
  // Returns the number of tokens that the row takes in the step.
  [[nodiscard]] int64_t num_tokens() const { return count + drafts; }
  // Returns whether two rows have the same tokens and as many drafts.
  friend bool operator==(const ScheduledTokens& a, const ScheduledTokens& b) {
    return a.sequence == b.sequence && a.first == b.first && a.count == b.count &&
           a.drafts == b.drafts;
  }
};

// The state of a request in the scheduler. The fields that every step reads come first, and begin
// with a cache line.
// Invariant: 0 <= collected <= launched <= known() + 1 and launched < max_length. The token at
// position known() is sampled by a step in flight: the device has it, and the host does not. A step
// with drafts counts in `launched` as the one token that it computes in any case. When the step is
// collected, the drafts that turned out right are added to `launched` and `collected`.
struct alignas(64) Sequence {
  SequenceId id = 0;           // ascending in the order of arrival
  int32_t priority = 0;        // lower numbers come first
  int32_t index = 0;           // given by the scheduler; small, and no other living sequence has it
  std::optional<int32_t> row;  // row in the step launched last, if the sequence took part
  std::vector<int32_t> tokens;  // the prompt, then the generated tokens that were collected
  // The most tokens of prompt and answer together. The last one is never computed.
  int64_t max_length = 0;
  // The tokens that the host knew when the sequence was admitted. The host packs these.
  int64_t given = 0;
  // The tokens of `given` that were not found in the prefix cache.
  int64_t num_to_compute = 0;
  // The tokens whose K and V are computed by launched steps, of this sequence or of others.
  int64_t launched = 0;
  // The tokens of `launched` whose steps the host has collected.
  int64_t collected = 0;
  std::vector<kv::Page> pages;   // pages of the first tokens, in order; none while it waits
  kv::WindowPages window_pages;  // pages of layers with a window, where these have their own
  bool takes_drafts = true;      // as SamplingRow::takes_drafts() of its rows
  kv::PageChain chain;           // hashes of its pages, where there is a prefix cache
  // The place of the page for which this sequence last waited, because another sequence was about
  // to compute it. Absent: it has not waited.
  std::optional<size_t> awaited_page;
  // The number of first tokens that may be taken from the prefix cache. All tokens behind them must
  // be computed. Absent: no limit.
  std::optional<int64_t> max_cached = std::nullopt;
  std::optional<int64_t> num_cached;  // tokens found in the prefix cache at its first admission
  std::optional<std::chrono::steady_clock::time_point> admitted;  // time of its first admission
  int64_t num_preemptions = 0;                                    // times that it gave up its pages

  [[nodiscard]] int64_t known() const { return static_cast<int64_t>(tokens.size()); }
  // Returns how many tokens the next step can compute.
  [[nodiscard]] int64_t num_ready() const {
    if (launched < known()) return known() - launched;
    const bool is_sampled_in_flight = launched == known() && launched + 1 < max_length;
    return is_sampled_in_flight ? 1 : 0;
  }
  // Returns how many first tokens have K and V that every later step may read. Tokens that the host
  // did not pack count only once they are collected, since a step in flight computes none behind a
  // stop token.
  [[nodiscard]] int64_t num_readable() const {
    return std::min(known(), std::max(std::min(launched, given), collected));
  }
  // Returns how many first tokens need not be computed if their K and V are in the prefix cache.
  // The last token is always computed, as its step samples the next one.
  [[nodiscard]] int64_t num_findable() const { return max_cached.value_or(known() - 1); }
  // Returns the lowest position that a later step may compute. sample_again() goes back to the last
  // known token.
  [[nodiscard]] int64_t next_position() const { return std::min(launched, known() - 1); }
  // Notes that a step was launched that computes these tokens.
  void launch(const ScheduledTokens& computed) {
    ENCORE_CHECK(computed.first == launched && computed.count <= num_ready());
    launched += computed.count;
  }
  // Notes that a step was collected that computed these tokens and sampled the tokens `sampled`
  // behind them: one token, and one more for each draft that was right. Returns whether these are
  // the next tokens of the sequence. They are not where more of the prompt follows.
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
  // Makes a later step compute the last known position once more and choose the token behind it.
  // The token that steps in flight choose there does not count.
  void sample_again() {
    launched = std::min(launched, known() - 1);
    collected = std::min(collected, launched);
  }
  // Gives up the pages. All tokens are computed again, except those whose pages the prefix cache
  // still has then. Tokens that steps in flight sample still count.
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
