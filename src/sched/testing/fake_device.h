// A device in plain memory for tests of the scheduler. It runs steps as the engine launches them,
// and checks that every row reads exactly the tokens that its own sequence wrote.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "sched/scheduler.h"

namespace encore::sched::testing {

// A hash that stands for the tokens of a sequence up to one of its tokens.
using Chain = uint64_t;
inline Chain extend(Chain chain, int32_t token) {
  chain = (chain ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15U + 1;
  return chain ^ (chain >> 29);
}

// The rules of a made-up language: they say which token follows a chain, and which token ends a
// sequence.
constexpr int32_t kVocab = 40;
inline int32_t next_token(Chain chain) {
  return static_cast<int32_t>((chain >> 33) % kVocab);
}
inline bool is_stop(int32_t token) {
  return token == 3;
}

// Each slot of a page remembers the chain of the token that was written there last. A step runs
// when it is collected, so it sees everything that the host did since its launch. A row whose next
// token the device samples computes nothing behind the end of its sequence. A step that continues
// the one before takes its token from that step, as the host sends none. About two in three drafts
// are right. Behind the first wrong draft, slots get content that nobody may read.
class FakeDevice {
 public:
  // `window`: the pages of layers with a window, where these have pages of their own.
  FakeDevice(int64_t num_pages, int64_t page_size, const kv::WindowGroup* window = nullptr)
      : page_size_(page_size), slots_(static_cast<size_t>(num_pages * page_size)) {
    if (window == nullptr) return;
    window_ = window->rule().window;
    window_slots_.resize(static_cast<size_t>(window->pool().num_pages() * page_size));
  }

  // Enqueues a step. `continues`: as in StepDevice::launch().
  void launch(const Plan& plan, const Scheduler& scheduler, bool continues) {
    Step step{plan, {}, continues};
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      const ScheduledTokens& row = plan.rows[i];
      const Sequence& sequence = *scheduler.find(row.sequence);
      // Where the host does not know a row's token, a row of the last step must sample it.
      const auto before = row_of_last_step(row.sequence);
      EXPECT_TRUE(row.end() <= sequence.known() || before.has_value());
      step.rows.push_back({sequence.tokens, sequence.pages, sequence.window_pages.pages,
                           before.value_or(0), sequence.max_length,
                           sequence.takes_drafts ? row.drafts : 0});
    }
    steps_.push_back(std::move(step));
    ++num_in_flight_;
  }

  // Runs the oldest step that has not run. Returns its plan and the tokens that each row samples.
  std::pair<Plan, std::vector<std::vector<int32_t>>> run() {
    const size_t oldest = steps_.size() - static_cast<size_t>(num_in_flight_);
    Step& step = steps_[oldest];
    const Plan plan = step.plan;
    std::vector<std::vector<int32_t>> sampled;
    for (size_t i = 0; i < step.rows.size(); ++i) {
      Row& row = step.rows[i];
      const ScheduledTokens& planned = plan.rows[i];
      if (step.goes_on || planned.end() > std::ssize(row.tokens)) {
        row.tokens = steps_[oldest - 1].rows[row.row_before].tokens;
        const int64_t first = std::ssize(row.tokens) - 1;
        EXPECT_TRUE(planned.drafts > 0 || row.has_ended() || first == planned.first);
        sampled.push_back(row.has_ended() ? std::vector<int32_t>{kNothing}
                                          : sample(row, first, planned.drafts));
      } else {
        row.tokens.resize(static_cast<size_t>(planned.end()));
        sampled.push_back(sample(row, planned.first, planned.drafts));
      }
      move_rows(oldest, planned.sequence, std::ssize(sampled.back()) - 1);
    }
    --num_in_flight_;
    while (std::ssize(steps_) > num_in_flight_ + 1)
      steps_.pop_front();
    return {plan, sampled};
  }

  // Clears all pages of each group except `pages`.
  void keep_only(const std::vector<std::vector<kv::Page>>& pages) {
    keep_only(pages[0], slots_);
    if (window_ > 0) keep_only(pages[1], window_slots_);
  }

 private:
  struct Row {
    // The tokens that the host knew at the launch. Once the row has run, the tokens that the device
    // knows.
    std::vector<int32_t> tokens;
    std::vector<kv::Page> pages;
    std::vector<kv::Page> window_pages;
    size_t row_before = 0;  // row of the same sequence in the step before
    int64_t max_length = 0;
    // The number of drafts in the row that may be right. It is 0 where the sequence takes no
    // drafts.
    int64_t num_drafts = 0;

    [[nodiscard]] bool has_ended() const {
      return is_stop(tokens.back()) || std::ssize(tokens) >= max_length;
    }
  };
  struct Step {
    Plan plan;
    std::vector<Row> rows;
    bool goes_on = false;
  };

  // Computes a row's tokens from position `first` on, and appends the tokens that it samples and
  // returns. `num_places`: the number of places behind the row's tokens that drafts are written to.
  std::vector<int32_t> sample(Row& row, int64_t first, int64_t num_places) {
    std::vector<int32_t> sampled;
    Chain chain = attend(row, first);
    while (true) {
      row.tokens.push_back(next_token(chain));
      sampled.push_back(row.tokens.back());
      const bool is_right = (chain >> 7) % 3 != 0;
      if (std::ssize(sampled) > row.num_drafts || row.has_ended() || !is_right) break;
      chain = attend(row, std::ssize(row.tokens) - 1);
    }
    for (int64_t i = std::ssize(row.tokens) - 1; i <= first + num_places; ++i) {
      slot(row, i) = kJunk;
      if (window_ > 0) window_slot(row, i) = kJunk;
    }
    return sampled;
  }

  Chain& slot(const Row& row, int64_t i) {
    return slots_[static_cast<size_t>(
        row.pages.at(static_cast<size_t>(i / page_size_)) * page_size_ + i % page_size_)];
  }
  Chain& window_slot(const Row& row, int64_t i) {
    const kv::Page page = row.window_pages.at(static_cast<size_t>(i / page_size_));
    return window_slots_.at(static_cast<size_t>(page * page_size_ + i % page_size_));
  }
  // Writes the slots of the tokens from `first` on, and checks all slots of the sequence. In layers
  // with a window it checks only slots that the token at `first` or a later one sees. Returns the
  // chain of the last token.
  Chain attend(const Row& row, int64_t first) {
    Chain chain = 0;
    for (int64_t i = 0; i < std::ssize(row.tokens); ++i) {
      chain = extend(chain, row.tokens[static_cast<size_t>(i)]);
      if (i >= first) slot(row, i) = chain;
      EXPECT_EQ(slot(row, i), chain) << "somebody reads at " << i << " what it did not write";
      if (window_ == 0 || i <= first - window_) continue;
      if (i >= first) window_slot(row, i) = chain;
      EXPECT_EQ(window_slot(row, i), chain)
          << "somebody reads at " << i << ", in a window, what it did not write";
    }
    return chain;
  }
  void keep_only(std::vector<kv::Page> pages, std::vector<Chain>& slots) const {
    std::sort(pages.begin(), pages.end());
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      const auto page = static_cast<kv::Page>(static_cast<int64_t>(slot) / page_size_);
      if (!std::binary_search(pages.begin(), pages.end(), page)) slots[slot] = 0;
    }
  }
  // Moves the sequence's rows of later steps on: it got `count` tokens more than were counted at
  // their launch.
  void move_rows(size_t step, SequenceId sequence, int64_t count) {
    for (; step < steps_.size(); ++step)
      steps_[step].plan.move_on(sequence, count);
  }

  static constexpr int32_t kNothing = -1;
  static constexpr Chain kJunk = 0x6e6f7468696e67;
  [[nodiscard]] std::optional<size_t> row_of_last_step(SequenceId id) const {
    if (steps_.empty()) return std::nullopt;
    const auto& rows = steps_.back().plan.rows;
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const ScheduledTokens& r) { return r.sequence == id; });
    if (row == rows.end()) return std::nullopt;
    return static_cast<size_t>(row - rows.begin());
  }

  int64_t page_size_;
  std::vector<Chain> slots_;
  int64_t window_ = 0;  // 0: no layer has pages of its own
  std::vector<Chain> window_slots_;
  std::deque<Step> steps_;  // the step that ran last, then the steps in flight
  int64_t num_in_flight_ = 0;
};

}  // namespace encore::sched::testing
