#include "planning/tune.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/statistics.h"

namespace encore::planning {
namespace {

Histogram to_histogram(const std::map<int64_t, int64_t>& counts) {
  Histogram histogram;
  for (const auto& [size, steps] : counts)
    histogram.push_back({size, steps});
  return histogram;
}

// Makes times ascend: neighbouring sizes whose times fall are pooled to their mean, until no time
// falls.
class RisingTimes {
 public:
  void add(int64_t size, double us, double weight) {
    pools_.push_back({{size}, us, weight});
    while (pools_.size() > 1 && pools_[pools_.size() - 2].us > pools_.back().us) {
      const Pool last = std::move(pools_.back());
      pools_.pop_back();
      Pool& pool = pools_.back();
      pool.us = (pool.us * pool.weight + last.us * last.weight) / (pool.weight + last.weight);
      pool.weight += last.weight;
      pool.sizes.insert(pool.sizes.end(), last.sizes.begin(), last.sizes.end());
    }
  }
  [[nodiscard]] std::vector<std::pair<int64_t, double>> points() const {
    std::vector<std::pair<int64_t, double>> points;
    for (const Pool& pool : pools_) {
      for (const int64_t size : pool.sizes)
        points.emplace_back(size, pool.us);
    }
    return points;
  }

 private:
  struct Pool {
    std::vector<int64_t> sizes;
    double us = 0;
    double weight = 0;
  };
  std::vector<Pool> pools_;
};

// Computes best[k] of tune.h, the least costs of ladders of k sizes, from best[k - 1].
class Layer {
 public:
  // `steps_before[i]` is the number of steps of the first i candidates.
  Layer(const std::vector<double>& cost, const std::vector<double>& steps_before,
        const std::vector<double>& best_before)
      : cost_(cost),
        steps_before_(steps_before),
        best_before_(best_before),
        best_(cost.size() + 1, 0),
        covered_before_(cost.size() + 1, 0) {
    const auto n = static_cast<int32_t>(cost.size());
    fill(1, n, 0, n - 1);
  }
  std::vector<double> best_of() { return std::move(best_); }
  std::vector<int32_t> covered_before() { return std::move(covered_before_); }

 private:
  // Computes best_[j] and covered_before_[j] for the j in [first, last], which are numbers of
  // candidates that a ladder covers. In the best ladder for each such j, all sizes but the last
  // together cover between `least` and `most` candidates.
  void fill(int32_t first, int32_t last, int32_t least, int32_t most) {
    if (first > last) return;
    const int32_t j = first + (last - first) / 2;
    double best = std::numeric_limits<double>::infinity();
    int32_t where = least;
    for (int32_t i = least; i <= std::min(most, j - 1); ++i) {
      const double cost = best_before_[i] + cost_[j - 1] * (steps_before_[j] - steps_before_[i]);
      if (cost < best) {
        best = cost;
        where = i;
      }
    }
    best_[j] = best;
    covered_before_[j] = where;
    fill(first, j - 1, least, where);
    fill(j + 1, last, where, most);
  }

  const std::vector<double>& cost_;
  const std::vector<double>& steps_before_;
  const std::vector<double>& best_before_;
  std::vector<double> best_;  // best cost, by number of candidates covered
  std::vector<int32_t> covered_before_;
};

Histogram without_one(Histogram histogram) {
  if (!histogram.empty() && histogram.front().size == 1) histogram.erase(histogram.begin());
  return histogram;
}

}  // namespace

int64_t StepSizes::num_steps() const {
  int64_t total = 0;
  for (const Histogram* histogram : {&decode, &tokens}) {
    for (const SizeCount& count : *histogram)
      total += count.steps;
  }
  return total;
}

StepSizes step_sizes(std::span<const LoggedStep> steps) {
  std::map<int64_t, int64_t> decode;
  std::map<int64_t, int64_t> tokens;
  StepSizes sizes;
  for (const LoggedStep& step : steps) {
    if (step.size() == 0) {
      ++sizes.num_idle;
    } else {
      ++(step.is_decode() ? decode : tokens)[step.size()];
    }
  }
  sizes.decode = to_histogram(decode);
  sizes.tokens = to_histogram(tokens);
  return sizes;
}

double LadderPrice::hit_rate() const {
  return steps == 0 ? 1 : static_cast<double>(hits) / static_cast<double>(steps);
}

double LadderPrice::waste() const {
  const int64_t launched = rows + padding;
  return launched == 0 ? 0 : static_cast<double>(padding) / static_cast<double>(launched);
}

LadderPrice price(const Histogram& histogram, const runtime::Ladder& ladder) {
  LadderPrice price;
  for (const SizeCount& count : histogram) {
    price.steps += count.steps;
    const auto bucket = ladder.bucket(count.size);
    if (!bucket) continue;
    price.hits += count.steps;
    price.rows += count.size * count.steps;
    price.padding += (*bucket - count.size) * count.steps;
  }
  return price;
}

std::optional<StepTimes> StepTimes::fit(std::span<const LoggedStep> steps, bool decode) {
  std::map<int64_t, std::vector<double>> times;  // by size: the times of the steps launched at it
  for (const LoggedStep& step : steps) {
    const bool counts = step.size() > 0 && step.is_decode() == decode && step.mode != "eager";
    if (counts && step.step_us())
      times[step.bucket.value_or(step.size())].push_back(*step.step_us());
  }
  if (times.size() < 2) return std::nullopt;
  RisingTimes rising;
  for (auto& [size, values] : times)
    rising.add(size, median(values), static_cast<double>(values.size()));
  StepTimes fitted;
  fitted.points_ = rising.points();
  return fitted;
}

double StepTimes::operator()(int64_t size) const {
  const auto line = [](const auto& from, const auto& to, int64_t at) {
    const double slope = (to.second - from.second) / static_cast<double>(to.first - from.first);
    return from.second + slope * static_cast<double>(at - from.first);
  };
  const auto above = std::lower_bound(points_.begin(), points_.end(), size,
                                      [](const auto& point, int64_t s) { return point.first < s; });
  if (above == points_.begin()) return above->second;
  if (above == points_.end()) {
    return points_.back().second + line(points_.front(), points_.back(), size) -
           line(points_.front(), points_.back(), points_.back().first);
  }
  return line(*(above - 1), *above, size);
}

double total_us(const Histogram& histogram, const runtime::Ladder& ladder, const StepTimes& times) {
  double total = 0;
  for (const SizeCount& count : histogram) {
    const auto bucket = ladder.bucket(count.size);
    if (bucket) total += times(*bucket) * static_cast<double>(count.steps);
  }
  return total;
}

OptimalLadders::OptimalLadders(const Histogram& histogram, int64_t max, int64_t max_sizes,
                               const Cost& cost) {
  std::vector<double> costs;
  std::vector<double> steps_before{0};
  const auto add = [&](const SizeCount& count) {
    sizes_.push_back(count.size);
    costs.push_back(cost(count.size));
    steps_before.push_back(steps_before.back() + static_cast<double>(count.steps));
  };
  for (const SizeCount& count : histogram) {
    if (count.size <= max) add(count);
  }
  if (sizes_.empty() || sizes_.back() < max) add({max, 0});

  const auto num_layers = std::min(max_sizes, static_cast<int64_t>(sizes_.size()));
  // Without any size, only 0 candidates are covered at a finite cost.
  std::vector<double> best(sizes_.size() + 1, std::numeric_limits<double>::infinity());
  best[0] = 0;
  for (int64_t k = 0; k < num_layers; ++k) {
    Layer layer(costs, steps_before, best);
    best = layer.best_of();
    covered_before_.push_back(layer.covered_before());
  }
}

runtime::Ladder OptimalLadders::ladder(int64_t num_sizes) const {
  ENCORE_CHECK(num_sizes > 0);
  std::vector<int64_t> chosen;
  auto layer = std::min(num_sizes, static_cast<int64_t>(covered_before_.size()));
  for (auto covered = static_cast<int32_t>(sizes_.size()); covered > 0;) {
    chosen.push_back(sizes_[covered - 1]);
    covered = covered_before_[--layer][covered];
  }
  return runtime::Ladder(std::move(chosen));
}

TunedLadders::TunedLadders(Histogram histogram, int64_t max, int64_t max_sizes,
                           const OptimalLadders::Cost& cost, bool with_one)
    : with_one_(with_one && max > 1),
      optimal_(histogram, max, with_one_ ? 1 : max_sizes, cost),
      others_(without_one(std::move(histogram)), max,
              with_one_ ? std::max<int64_t>(max_sizes - 1, 1) : 1, cost) {}

runtime::Ladder TunedLadders::ladder(int64_t num_sizes) const {
  if (!with_one_ || num_sizes == 1) return optimal_.ladder(num_sizes);
  std::vector<int64_t> sizes = others_.ladder(num_sizes - 1).sizes();
  sizes.push_back(1);
  return runtime::Ladder(std::move(sizes));
}

runtime::Ladder optimal_ladder(const Histogram& histogram, int64_t max, int64_t num_sizes) {
  return OptimalLadders(histogram, max, num_sizes,
                        [](int64_t size) { return static_cast<double>(size); })
      .ladder(num_sizes);
}

}  // namespace encore::planning
