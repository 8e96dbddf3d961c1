#include "sched/sequence.h"

#include <algorithm>

#include "base/error.h"

namespace encore::sched {

int64_t Sequence::num_ready() const {
  if (launched < known()) return known() - launched;
  const bool is_sampled_in_flight = launched == known() && launched + 1 < max_length;
  return is_sampled_in_flight ? 1 : 0;
}

int64_t Sequence::num_readable() const {
  return std::min(known(), std::max(std::min(launched, given), collected));
}

int64_t Sequence::num_findable() const {
  return is_to_be_scored(num_scored) ? num_scored : known() - 1;
}

void Sequence::launch(const ScheduledTokens& tokens) {
  ENCORE_CHECK(tokens.first == launched && tokens.count <= num_ready());
  launched += tokens.count;
}

bool Sequence::collect(const ScheduledTokens& computed, int32_t token) {
  if (computed.end() <= launched) collected = std::max(collected, computed.end());
  if (computed.end() != known()) return false;
  tokens.push_back(token);
  return true;
}

void Sequence::preempt() {
  launched = 0;
  collected = 0;
  pages.clear();
  row = -1;
  token_state_row = -1;
}

}  // namespace encore::sched
