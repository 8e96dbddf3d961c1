// Tuning: which of several ways to run a launch is the fastest here, found by measurement and
// remembered on disk.
//
// A kernel that has several configurations (a library's algorithms, our tile sizes) asks when it is
// bound:
//
//   const auto config = device.tuner().choose({.launch = tuning_text("linear.x 1.2", args),
//                                              .args = args, .candidates = ..., .bind = ...});
//
// The answer to a launch never changes while the process lives, so all modes run the same
// configuration and agree bit for bit. Another run may measure another winner, whose sums differ in
// the last bits; with the same cache it is the same.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/kernel.h"
#include "backend/tuning_cache.h"

namespace encore {

class Device;

// A launch that can run in several ways. It is timed with random floats, so its time must follow
// from shapes alone: that of expert_mlp, which reads what rows choose, is not tuned.
struct Tunable {
  std::string launch;  // everything the choice depends on besides TuningKey; see tuning_text()
  const KernelArgs& args;
  Workspace workspace;
  // At most `most` configurations, as text without line breaks, the likeliest first; none when the
  // kernel cannot run the launch at all.
  std::function<std::vector<std::string>(int most)> candidates;
  // Binds the launch in that configuration. Null when there is no such configuration, or it cannot
  // run here (any more).
  std::function<BoundLaunch(const std::string& config, const KernelArgs& args)> bind;
  // Names the device code that a configuration runs. Loading code takes milliseconds at each start,
  // so of equally fast configurations one whose code is in use already wins. Null: not known.
  std::function<std::string(const std::string& config)> code = nullptr;
  // The cost of a configuration to the launches around it, which timing it alone does not show.
  // Null: nothing. Units: microseconds.
  std::function<double(const std::string& config)> beside = nullptr;
};

// A kernel's name and a launch's operands: "linear.x bf16[64,4096], bf16[4096,4096]/8192@8 ->
// f32[64,4096]": row strides where rows are apart, alignments where they are below 16 bytes.
std::string tuning_text(std::string_view kernel, const KernelArgs& args);

// Times launches on a device; a fake in tests.
class LaunchTimer {
 public:
  virtual ~LaunchTimer() = default;
  // Copies of the arguments with memory of their own, enough of them that caches do not hold the
  // inputs of the first when the last has run; one, where there are no inputs. Lifetime: until the
  // next call.
  // Errors: kMemory; kCompile naming the op while the thread records.
  virtual std::vector<KernelArgs> operands(const KernelArgs& args, const Workspace& workspace) = 0;
  // Runs the launches in a row, and again where the device had to wait for the host. Units:
  // microseconds, the mean of one. Errors: those of launching.
  virtual double time(std::span<const BoundLaunch> launches) = 0;
  // Gives memory back.
  virtual void release() {}
};
// `cache_bytes` is the size of the device's last cache; 0: inputs may stay in caches.
std::unique_ptr<LaunchTimer> create_launch_timer(Device& device, int64_t cache_bytes);

// The fastest of `count` things, by the median of several samples; those that fall behind are
// sampled no further. Of things that are equally fast, within 2 %, the first that is `preferred`
// wins, or else the first.
struct Fastest {
  int index = 0;
  double median = 0;
  double median_of_first = 0;
};
Fastest find_fastest(int count, const std::function<double(int index)>& sample,
                     const std::function<bool(int index)>& preferred);

// The modes of --tune: measure nothing and remember nothing; measure what the cache lacks; measure
// everything.
enum class Tune : uint8_t { kOff, kOn, kFresh };
Tune parse_tune(std::string_view text);  // "off", "on", "fresh"

struct TuningOptions {
  Tune tune = Tune::kOff;
  std::optional<std::filesystem::path> cache;  // a directory; absent: nothing is remembered
  // Measuring stops for the rest of a Phase once it took so long, unless everything is measured
  // anew: launches that are left take their first guess until the next start. Units: seconds.
  double patience = 15;
};

// Distinct launches by where their configuration came from.
struct TuningStats {
  int64_t cached = 0;     // answered by the cache
  int64_t measured = 0;   // answered by measuring now
  int64_t untuned = 0;    // answered by the first guess
  int64_t postponed = 0;  // those of them that the next start measures, as time was up
  double seconds = 0;     // spent measuring
};
// "tuned 248 launches in 3.1 s", "248 launches tuned earlier", "12 left for the next start", and
// several of them; empty when there are none.
std::string to_text(const TuningStats& stats);

// Threads: any. Lifetime: of its device.
class Tuner {
 public:
  Tuner(TuningKey key, std::unique_ptr<LaunchTimer> timer);

  // Sets the options that hold from now on; nothing is tuned before.
  void configure(TuningOptions options);

  // From now on this one's answers are those of `first`, which is asked for the same launches by a thread of
  // its own; `check` throws where that will not answer any more.
  void follow(std::shared_ptr<Tuner> first, std::function<void()> check);

  // While a Phase lives, choices that the cache lacks are measured, as long as patience lasts: the tune phase of start-up.
  // Outside of it the first guess is taken, so that nothing is measured while serving. Its end
  // saves the cache and gives back the memory that measuring took.
  class Phase {
   public:
    explicit Phase(Tuner& tuner);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    Tuner& tuner_;
  };

  // The configuration to run; nothing when the kernel has none for the launch.
  // Errors: kCompile naming the op when it must be measured and the thread records.
  std::optional<std::string> choose(const Tunable& tunable);

  [[nodiscard]] TuningStats stats() const;
  [[nodiscard]] const TuningKey& key() const { return key_; }

 private:
  // Waits until choose() has answered for that launch.
  std::optional<std::string> answer(const std::string& launch, const std::function<void()>& check);
  std::optional<std::string> find_answer(const Tunable& tunable);
  std::optional<std::string> remembered(const Tunable& tunable);
  // Is there time to measure one more launch?
  [[nodiscard]] bool has_time() const;
  std::optional<TunedChoice> measure(const Tunable& tunable);

  TuningKey key_;
  std::unique_ptr<LaunchTimer> timer_;
  std::shared_ptr<Tuner> first_;  // shared with its device; null: this one chooses itself
  std::function<void()> check_first_;
  std::condition_variable answered_;
  mutable std::mutex mutex_;  // guards everything below
  TuningOptions options_;
  std::optional<TuningCache> cache_;
  int phases_ = 0;
  bool out_of_memory_ = false;  // measuring was given up for this phase
  double phase_seconds_ = 0;    // spent measuring in this phase
  std::map<std::string, std::optional<std::string>> answers_;
  std::set<std::string> codes_;  // that answers run
  TuningStats stats_;
};

// A choice between several Ways to run a launch, things with a text of their own.
template <typename Way>
struct TunableWays {
  std::string launch;  // as Tunable::launch
  const KernelArgs& args;
  Workspace workspace = {};
  const std::vector<Way>& ways;  // one at least, the likeliest first
  std::function<std::string(const Way& way)> text;
  std::function<BoundLaunch(const Way& way, const KernelArgs& args)> bind;
  std::function<double(const Way& way)> beside = nullptr;  // as Tunable::beside
};

// Chooses one of the ways by its text, as Tuner::choose() does; the first where that finds none.
template <typename Way>
Way choose_way(Tuner& tuner, const TunableWays<Way>& tunable) {
  std::vector<std::string> texts;
  for (const Way& way : tunable.ways)
    texts.push_back(tunable.text(way));
  const auto named = [&](const std::string& text) -> const Way* {
    const auto found = std::find(texts.begin(), texts.end(), text);
    return found == texts.end() ? nullptr : &tunable.ways[found - texts.begin()];
  };
  Tunable plain{.launch = tunable.launch,
                .args = tunable.args,
                .workspace = tunable.workspace,
                .candidates =
                    [&](int most) {
                      const auto count = std::min<ptrdiff_t>(most, std::ssize(texts));
                      return std::vector(texts.begin(), texts.begin() + count);
                    },
                .bind = [&](const std::string& text, const KernelArgs& on) -> BoundLaunch {
                  const Way* way = named(text);
                  return way == nullptr ? nullptr : tunable.bind(*way, on);
                }};
  if (tunable.beside != nullptr)
    plain.beside = [&](const std::string& text) { return tunable.beside(*named(text)); };
  const std::optional<std::string> choice = tuner.choose(plain);
  return choice ? *named(*choice) : tunable.ways.front();
}

}  // namespace encore
