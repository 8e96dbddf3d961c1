// A device of plain memory, for tests of the scheduler: it runs steps as the engine launches them,
// and sees whether every row reads just what its own sequence wrote.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "sched/scheduler.h"

namespace encore::sched::testing {

// What stands for all tokens of a sequence up to one of them.
using Chain = uint64_t;
inline Chain extend(Chain chain, int32_t token) {
  chain = (chain ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15U + 1;
  return chain ^ (chain >> 29);
}

// The rules of a language: which token follows, and which ends a sequence.
constexpr int32_t kVocab = 40;
inline int32_t next_token(Chain chain) {
  return static_cast<int32_t>((chain >> 33) % kVocab);
}
inline bool is_stop(int32_t token) {
  return token == 3;
}

// Each slot of a page remembers the chain of the token that was written there last. A step runs when
// it is collected, so everything that the host did since its launch has happened by then. A row
// whose next token the device samples computes nothing behind a stop token; a step that continues
// the one before takes its token from there, as the host sends it none.
class FakeDevice {
 public:
  FakeDevice(int64_t num_pages, int64_t page_size)
      : page_size_(page_size), slots_(static_cast<size_t>(num_pages * page_size)) {}

  void launch(const Plan& plan, Scheduler& scheduler) {
    const bool goes_on = continues(plan);
    Step step{plan, {}, goes_on};
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      const ScheduledTokens& row = plan.rows[i];
      const Sequence& sequence = *scheduler.find(row.sequence);
      // A row of the last step samples what the host does not know.
      const auto before = row_of_last_step(row.sequence);
      EXPECT_TRUE(row.end() <= sequence.known() || before.has_value());
      step.rows.push_back({sequence.tokens, sequence.pages, before.value_or(0)});
    }
    steps_.push_back(std::move(step));
    ++num_in_flight_;
  }

  // Runs the oldest step that has not run. Returns its plan, and what each row samples.
  std::pair<Plan, std::vector<int32_t>> run() {
    const size_t oldest = steps_.size() - static_cast<size_t>(num_in_flight_);
    Step& step = steps_[oldest];
    for (size_t i = 0; i < step.rows.size(); ++i) {
      const ScheduledTokens& row = step.plan.rows[i];
      std::vector<int32_t> tokens = step.rows[i].tokens;
      if (step.goes_on || row.end() > std::ssize(tokens)) {
        tokens.resize(static_cast<size_t>(row.first));
        const int32_t token = steps_[oldest - 1].sampled[step.rows[i].row_before];
        tokens.push_back(token);
        if (is_stop(token) || token == kNothing) {
          step.sampled.push_back(kNothing);
          continue;
        }
      }
      tokens.resize(static_cast<size_t>(row.end()));
      step.sampled.push_back(next_token(attend(row, tokens, step.rows[i].pages)));
    }
    --num_in_flight_;
    auto result = std::pair(step.plan, step.sampled);
    while (std::ssize(steps_) > num_in_flight_ + 1)
      steps_.pop_front();
    return result;
  }

  // What is in other pages is lost.
  void keep_only(std::vector<kv::Page> pages) {
    std::sort(pages.begin(), pages.end());
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      const auto page = static_cast<kv::Page>(static_cast<int64_t>(slot) / page_size_);
      if (!std::binary_search(pages.begin(), pages.end(), page)) slots_[slot] = 0;
    }
  }
  [[nodiscard]] int64_t num_in_flight() const { return num_in_flight_; }

 private:
  static constexpr int32_t kNothing = -1;

  struct Row {
    std::vector<int32_t> tokens;  // known to the host at the launch
    std::vector<kv::Page> pages;
    size_t row_before = 0;  // of the same sequence, in the step before
  };
  struct Step {
    Plan plan;
    std::vector<Row> rows;
    bool goes_on = false;
    std::vector<int32_t> sampled = {};
  };

  // Writes the new tokens, and reads all up to the last. Returns the chain of that.
  Chain attend(const ScheduledTokens& row, const std::vector<int32_t>& tokens,
               const std::vector<kv::Page>& pages) {
    Chain chain = 0;
    for (int64_t i = 0; i < row.end(); ++i) {
      chain = extend(chain, tokens[i]);
      Chain& slot = slots_[pages.at(i / page_size_) * page_size_ + i % page_size_];
      if (i >= row.first) slot = chain;
      EXPECT_EQ(slot, chain) << "sequence " << row.sequence << " reads at " << i
                             << " what it did not write";
    }
    return chain;
  }

  [[nodiscard]] bool continues(const Plan& plan) const {
    return !steps_.empty() && !plan.has_given_tokens &&
           std::equal(plan.rows.begin(), plan.rows.end(), steps_.back().plan.rows.begin(),
                      steps_.back().plan.rows.end(),
                      [](const ScheduledTokens& now, const ScheduledTokens& before) {
                        return before.count == 1 &&
                               now == ScheduledTokens{before.sequence, before.end(), 1};
                      });
  }
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
  std::deque<Step> steps_;  // the last one that ran, then those in flight
  int64_t num_in_flight_ = 0;
};

}  // namespace encore::sched::testing
