#include "backend/tuning.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"

namespace encore {
namespace {

constexpr int kMostCandidates = 16;
constexpr int kMostSamples = 7;
// A candidate is given up when its first sample is longer than the shortest first sample of all
// candidates by this factor.
constexpr double kHopeless = 1.3;
// A candidate with several samples is given up when its median is longer than the shortest median
// of all candidates by this factor.
constexpr double kBehind = 1.03;
constexpr double kEqual = 1.02;

constexpr std::pair<std::string_view, Tune> kTunes[] = {
    {"off", Tune::kOff}, {"on", Tune::kOn}, {"fresh", Tune::kFresh}};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the median. For an even number of values, returns the larger of the two in the middle,
// and therefore the slower one of two samples.
double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string text_of(const Views& views) {
  std::string text;
  for (const TensorView& view : views) {
    text += fmt::format("{}{}[", text.empty() ? "" : ", ", name(view.dtype));
    for (int i = 0; i < view.shape.rank(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : ",", view.shape[i]);
    text += ']';
    if (!view.is_dense()) text += fmt::format("/{}", view.row_stride);
    const auto address = reinterpret_cast<uintptr_t>(view.data);
    if (address % 16 != 0) text += fmt::format("@{}", address & (0 - address));
  }
  return text;
}

}  // namespace

std::string tuning_text(std::string_view kernel, const KernelArgs& args) {
  return fmt::format("{}{} {} -> {}", kernel, args.batch_invariant ? " batch-invariant" : "",
                     text_of(args.inputs), text_of(args.outputs));
}

Fastest find_fastest(int count, const std::function<double(int)>& sample,
                     const std::function<bool(int)>& preferred) {
  std::vector<std::vector<double>> samples(count);
  std::vector<double> medians(count);
  std::vector<bool> is_behind(count);
  for (int round = 0; round < kMostSamples; ++round) {
    double best = 0;
    for (int i = 0; i < count; ++i) {
      if (is_behind[i]) continue;
      samples[i].push_back(sample(i));
      medians[i] = upper_median(samples[i]);
      best = best == 0 ? medians[i] : std::min(best, medians[i]);
    }
    const double limit = best * (round == 0 ? kHopeless : kBehind);
    for (int i = 0; i < count; ++i)
      is_behind[i] = is_behind[i] || (round != 1 && medians[i] > limit);
    if (std::count(is_behind.begin(), is_behind.end(), false) <= 1) break;
  }
  double best = 0;
  for (int i = 0; i < count; ++i) {
    if (!is_behind[i]) best = best == 0 ? medians[i] : std::min(best, medians[i]);
  }
  int winner = -1;
  for (int i = 0; i < count; ++i) {
    if (is_behind[i] || medians[i] > best * kEqual) continue;
    if (winner < 0) winner = i;
    if (preferred(i)) {
      winner = i;
      break;
    }
  }
  return {winner, medians[winner], medians[0]};
}

Tune parse_tune(std::string_view text) {
  for (const auto& [name, tune] : kTunes) {
    if (text == name) return tune;
  }
  fail(ErrorKind::kUsage, "--tune is on, off or fresh, not '{}'", text);
}

std::string to_text(const TuningStats& stats) {
  std::string text;
  if (stats.measured > 0)
    text = fmt::format("tuned {} launches in {:.1f} s", stats.measured, stats.seconds);
  if (stats.cached > 0)
    text += fmt::format("{}{} launches tuned earlier", text.empty() ? "" : ", ", stats.cached);
  if (stats.postponed > 0)
    text += fmt::format("{}{} left for the next start", text.empty() ? "" : ", ", stats.postponed);
  return text;
}

Tuner::Tuner(TuningKey key, std::unique_ptr<LaunchTimer> timer)
    : key_(std::move(key)), timer_(std::move(timer)) {}

void Tuner::configure(TuningOptions options) {
  const std::lock_guard lock(mutex_);
  options_ = std::move(options);
  cache_.reset();
}

Tuner::Phase::Phase(Tuner& tuner) : tuner_(tuner) {
  const std::lock_guard lock(tuner_.mutex_);
  ++tuner_.phases_;
}

Tuner::Phase::~Phase() {
  const std::lock_guard lock(tuner_.mutex_);
  if (--tuner_.phases_ > 0) return;
  tuner_.out_of_memory_ = false;
  tuner_.phase_seconds_ = 0;
  tuner_.timer_->release();
  if (tuner_.cache_) (void)tuner_.cache_->save();
}

TuningStats Tuner::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Tuner::follow(std::shared_ptr<Tuner> first, std::function<void()> check) {
  first_ = std::move(first);
  check_first_ = std::move(check);
}

std::optional<std::string> Tuner::answer(const std::string& launch,
                                         const std::function<void()>& check) {
  constexpr std::chrono::milliseconds kBetweenChecks(100);
  std::unique_lock lock(mutex_);
  while (true) {
    const auto known = answers_.find(launch);
    if (known != answers_.end()) return known->second;
    if (answered_.wait_for(lock, kBetweenChecks) == std::cv_status::timeout) check();
  }
}

std::optional<std::string> Tuner::choose(const Tunable& tunable) {
  if (first_) return first_->answer(tunable.launch, check_first_);
  const std::lock_guard lock(mutex_);
  auto known = answers_.find(tunable.launch);
  if (known == answers_.end()) {
    known = answers_.emplace(tunable.launch, find_answer(tunable)).first;
    answered_.notify_all();
  }
  const std::optional<std::string>& config = known->second;
  if (config && tunable.code != nullptr) codes_.insert(tunable.code(*config));
  return config;
}

std::optional<std::string> Tuner::find_answer(const Tunable& tunable) {
  if (options_.tune != Tune::kOff) {
    if (options_.cache && !cache_) cache_.emplace(*options_.cache, key_);
    if (auto config = remembered(tunable)) return config;
    if (phases_ > 0 && !has_time()) {
      ++stats_.postponed;
    } else if (phases_ > 0) {
      const double start = seconds_now();
      const std::optional<TunedChoice> choice = measure(tunable);
      const double seconds = seconds_now() - start;
      stats_.seconds += seconds;
      phase_seconds_ += seconds;
      if (choice) {
        ++stats_.measured;
        if (cache_) cache_->add(tunable.launch, *choice);
        return choice->config;
      }
    }
  }
  const std::vector<std::string> guesses = tunable.candidates(1);
  if (guesses.empty()) return std::nullopt;
  ++stats_.untuned;
  return guesses.front();
}

std::optional<std::string> Tuner::remembered(const Tunable& tunable) {
  if (!cache_ || options_.tune == Tune::kFresh) return std::nullopt;
  const TunedChoice* choice = cache_->find(tunable.launch);
  if (choice == nullptr) return std::nullopt;
  if (tunable.bind(choice->config, tunable.args) == nullptr) {
    log::warning("tuning cache {}: what it holds for {} does not run here; chosen anew",
                 cache_->path().string(), tunable.launch);
    return std::nullopt;
  }
  ++stats_.cached;
  return choice->config;
}

bool Tuner::has_time() const {
  return options_.tune == Tune::kFresh || phase_seconds_ < options_.patience;
}

std::optional<TunedChoice> Tuner::measure(const Tunable& tunable) {
  const std::vector<std::string> configs = tunable.candidates(kMostCandidates);
  if (configs.size() == 1) return TunedChoice{configs.front(), 0, 0};
  if (configs.empty() || out_of_memory_) return std::nullopt;
  std::vector<KernelArgs> operands;
  try {
    operands = timer_->operands(tunable.args, tunable.workspace);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kMemory) throw;
    log::warning("kernels are not tuned any further: {}", error.what());
    out_of_memory_ = true;
    return std::nullopt;
  }
  struct Contender {
    std::string config;
    std::vector<BoundLaunch> launches;
  };
  std::vector<Contender> contenders;
  for (const std::string& config : configs) {
    Contender contender{config, {}};
    for (const KernelArgs& args : operands) {
      BoundLaunch bound = tunable.bind(config, args);
      if (bound != nullptr) contender.launches.push_back(std::move(bound));
    }
    if (contender.launches.size() < operands.size()) continue;
    try {
      // The first launch of a kernel loads it, so its time does not count.
      (void)timer_->time(contender.launches);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kDevice) throw;
      continue;  // the launch failed, so the candidate is left out
    }
    contenders.push_back(std::move(contender));
  }
  if (contenders.empty()) return std::nullopt;
  const Fastest fastest = find_fastest(
      static_cast<int>(contenders.size()),
      [&](int i) {
        const Contender& contender = contenders[i];
        const double beside = tunable.beside == nullptr ? 0 : tunable.beside(contender.config);
        return timer_->time(contender.launches) + beside;
      },
      [&](int i) {
        return tunable.code != nullptr && codes_.contains(tunable.code(contenders[i].config));
      });
  return TunedChoice{contenders[fastest.index].config, fastest.median, fastest.median_of_first};
}

}  // namespace encore
