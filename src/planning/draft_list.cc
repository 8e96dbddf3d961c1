#include "planning/draft_list.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/step.h"
#include "base/error.h"

namespace encore::planning {
namespace {

constexpr int kMostCounts = 3;
constexpr double kAcceptances[] = {0.5, 0.6, 0.7, 0.8, kMostRight};
// A list of more numbers of drafts is only chosen over a shorter list if the share of the best
// speed that it reaches is higher by at least this.
constexpr double kLeastGain = 0.002;
// A launch takes at least this time, on a GPU and on a CPU.
constexpr double kLaunchSeconds = 2e-6;
// A number of drafts is only considered if it multiplies the speed by at least this, because the
// estimate by bytes and operations is not exact enough to tell smaller gains.
constexpr double kLeastSpeedUp = 1.05;

// Holds, for one batch size, the time of a step with each number of drafts, divided by the time of
// a step without drafts.
struct BatchSpeeds {
  int64_t sequences = 0;
  std::vector<double> costs = {};

  // Returns the tokens that a sequence gets in the time of one step without drafts.
  [[nodiscard]] double speed(double acceptance, int64_t num_drafts) const {
    return tokens_of_step(acceptance, num_drafts) / costs[static_cast<size_t>(num_drafts)];
  }
};

// Returns the share of the best speed that a list reaches, on average. `list` is a set of bits, one
// for each number of drafts; steps without drafts are always allowed.
double share_of_best(const std::vector<BatchSpeeds>& batches, unsigned list) {
  double sum = 0;
  for (const BatchSpeeds& batch : batches) {
    for (const double acceptance : kAcceptances) {
      double own = 1;
      double best = 1;
      for (int64_t drafts = 1; drafts < std::ssize(batch.costs); ++drafts) {
        const double speed = batch.speed(acceptance, drafts);
        best = std::max(best, speed);
        if ((list >> drafts & 1U) != 0) own = std::max(own, speed);
      }
      sum += own / best;
    }
  }
  return sum / static_cast<double>(batches.size() * std::size(kAcceptances));
}

// Returns whether the node belongs to the pass in which a draft model reads the tokens of a step
// that guesses none.
bool reads_for_draft_model(const ir::Graph& graph, const ir::Node& node) {
  return std::ranges::any_of(node.inputs, [&](ir::ValueId input) {
    return graph.value(input).type.rows() == ir::Symbol::kUnguessed;
  });
}

// Returns the list that comes nearest to the best speed, as a set of bits. Bit d stands for d
// drafts; the list may only have bits that `gaining` has.
unsigned nearest_list(const std::vector<BatchSpeeds>& batches, unsigned gaining) {
  unsigned best = 0;
  double share = share_of_best(batches, 0);
  for (int size = 1; size <= kMostCounts; ++size) {
    unsigned nearest = 0;
    double nearest_share = share + kLeastGain;
    for (unsigned list = gaining; list != 0; list = (list - 1) & gaining) {
      if (std::popcount(list) != size) continue;
      const double own = share_of_best(batches, list);
      if (own < nearest_share) continue;
      nearest = list;
      nearest_share = own;
    }
    if (nearest == 0) continue;
    best = nearest;
    share = nearest_share;
  }
  return best;
}

}  // namespace

double drafting_seconds(const passes::Program& program, int64_t sequences, int64_t num_drafts,
                        int64_t context, const Rates& rates) {
  const StepKey step = StepKey::uniform(sequences, 1 + num_drafts);
  const KvWork kv{sequences * context, step.tokens * context};
  const std::vector<NodeFloor> floors = node_floors(program.graph, step.sizes(), kv, rates);
  double seconds = 0;
  for (size_t i = 0; i < floors.size(); ++i) {
    const bool is_of_more = !program.least_drafts.empty() && num_drafts < program.least_drafts[i];
    const bool only_reads = reads_for_draft_model(program.graph, program.graph.nodes()[i]);
    if (is_of_more || only_reads || floors[i].bytes == 0) continue;
    seconds += std::max(floors[i].us * 1e-6, kLaunchSeconds);
  }
  return seconds;
}

double tokens_of_step(double probability, int64_t num_drafts) {
  double tokens = 1;
  for (int64_t j = 1; j <= num_drafts; ++j)
    tokens += std::pow(probability, static_cast<double>(j));
  return tokens;
}

DraftList choose_draft_list(const passes::Program& program, std::span<const int64_t> batches,
                            int64_t context, const Rates& rates) {
  const int64_t most = program.num_drafts();
  ENCORE_CHECK(most > 0 && !batches.empty());
  std::vector<BatchSpeeds> all;
  unsigned gaining = 0;
  for (const int64_t sequences : batches) {
    BatchSpeeds& batch = all.emplace_back(BatchSpeeds{.sequences = sequences});
    const double plain = drafting_seconds(program, sequences, 0, context, rates);
    for (int64_t drafts = 0; drafts <= most; ++drafts)
      batch.costs.push_back(drafting_seconds(program, sequences, drafts, context, rates) / plain);
    for (int64_t drafts = 1; drafts <= most; ++drafts) {
      if (batch.speed(kMostRight, drafts) >= kLeastSpeedUp) gaining |= 1U << drafts;
    }
  }
  const unsigned best = nearest_list(all, gaining);
  DraftList list;
  for (int64_t drafts = 1; drafts <= most; ++drafts) {
    if ((best >> drafts & 1U) != 0) list.counts.push_back(drafts);
  }
  for (const BatchSpeeds& batch : all) {
    const auto gains = [&](int64_t count) {
      return batch.speed(kMostRight, count) >= kLeastSpeedUp;
    };
    if (std::ranges::any_of(list.counts, gains)) list.max_sequences = batch.sequences;
  }
  list.considered = list.counts.empty() ? 1 : list.counts.back();
  list.cost = all.front().costs[static_cast<size_t>(list.considered)];
  list.tokens = tokens_of_step(kMostRight, list.considered);
  return list;
}

std::string to_text(const DraftList& list) {
  const std::string why = fmt::format(
      "by bytes and operations, a step of one sequence takes {:.2f} x as long with {}, and gives "
      "{:.2f} tokens where 9 guesses in 10 are right",
      list.cost, list.considered, list.tokens);
  if (list.counts.empty())
    return fmt::format("guesses: none, as they would gain next to nothing: {}", why);
  return fmt::format("guesses: {} or none, in batches of up to {}: {}",
                     fmt::join(list.counts, ", "), list.max_sequences, why);
}

}  // namespace encore::planning
