// Tuning measures which of several ways to run a launch is the fastest on this device, and stores
// the answer on disk.
//
// A kernel that has several configurations (algorithms of cuBLASLt, tile sizes of Encore's kernels)
// asks for the fastest one when it is bound:
//
//   const auto config = device.tuner().choose({.launch = tuning_text("linear.x 1.2", args),
//                                              .args = args, .candidates = ..., .bind = ...});
//
// The answer for a launch never changes while the process lives, so all modes run the same
// configuration and agree bit for bit. Another process may measure another winner, whose sums
// differ in the last bits. With the same cache, it gets the same answer.
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

// A launch that can run in several ways. It is timed with random floats, so its time must depend on
// shapes alone. expert_mlp is not tuned, because its time depends on the experts that rows choose.
struct Tunable {
  std::string launch;  // all that the choice depends on besides TuningKey; see tuning_text()
  const KernelArgs& args;
  Workspace workspace;
  // Returns at most `most` configurations, as texts without line breaks, the one that is most
  // likely the fastest first. Empty when the kernel cannot run the launch at all.
  std::function<std::vector<std::string>(int most)> candidates;
  // Binds the launch in that configuration. Returns null when the configuration does not exist, or
  // cannot run on this device.
  std::function<BoundLaunch(const std::string& config, const KernelArgs& args)> bind;
  // Returns the name of the device code that a configuration runs. Loading code takes milliseconds
  // at each start, so among equally fast configurations, one whose code is already in use wins.
  // Null: the code is not known.
  std::function<std::string(const std::string& config)> code = nullptr;
  // Returns the cost of a configuration to the launches around it, which timing it alone does not
  // show. Null: there is no such cost. Units: microseconds.
  std::function<double(const std::string& config)> beside = nullptr;
};

// Describes a kernel and the operands of a launch: "linear.x bf16[64,4096], bf16[4096,4096]/8192@8
// -> f32[64,4096]". The text has row strides where there are gaps between rows, and alignments
// below 16 bytes.
std::string tuning_text(std::string_view kernel, const KernelArgs& args);

// Times launches on a device. Tests replace it.
class LaunchTimer {
 public:
  virtual ~LaunchTimer() = default;
  // Returns copies of the arguments with memory of their own. There are so many copies that, when
  // the last one has run, caches no longer hold the inputs of the first. One copy is enough where
  // there are no inputs. Lifetime: until the next call. Errors: kMemory; kCompile naming the op
  // while the thread records.
  virtual std::vector<KernelArgs> operands(const KernelArgs& args, const Workspace& workspace) = 0;
  // Runs the launches one after the other, and returns the mean time of one. Runs them again where
  // the device had to wait for the host. Units: microseconds. Errors: those of launching.
  virtual double time(std::span<const BoundLaunch> launches) = 0;
  // Gives the memory of operands() back.
  virtual void release() {}
};
// Creates the timer of a device. `cache_bytes` is the size of the last-level cache; 0: inputs may
// stay in caches.
std::unique_ptr<LaunchTimer> create_launch_timer(Device& device, int64_t cache_bytes);

// Finds the fastest of `count` candidates by the median of several samples. A candidate that falls
// behind is not sampled any more. Among candidates that are equally fast within 2 %, the first one
// that is `preferred` wins, or the first one where none is.
struct Fastest {
  int index = 0;
  double median = 0;
  double median_of_first = 0;
};
Fastest find_fastest(int count, const std::function<double(int index)>& sample,
                     const std::function<bool(int index)>& preferred);

// The modes of --tune. kOff measures nothing and stores nothing, kOn measures the launches that the
// cache lacks, and kFresh measures all launches.
enum class Tune : uint8_t { kOff, kOn, kFresh };
Tune parse_tune(std::string_view text);  // "off", "on", "fresh"

struct TuningOptions {
  Tune tune = Tune::kOff;
  std::optional<std::filesystem::path> cache;  // a directory; absent: nothing is remembered
  // The time after which measuring stops for the rest of a Phase, except with Tune::kFresh. The
  // remaining launches run their first guess until the next start. Units: seconds.
  double patience = 15;
};

// Counts the distinct launches that were tuned, by the source of their configuration.
struct TuningStats {
  int64_t cached = 0;     // launches whose answer was in the cache
  int64_t measured = 0;   // launches that were measured now
  int64_t untuned = 0;    // launches that run their first guess
  int64_t postponed = 0;  // untuned launches left for the next start, as time was up
  double seconds = 0;     // time spent measuring
};
// Describes the counts in words: "tuned 248 launches in 3.1 s", "248 launches tuned earlier", "12
// left for the next start", or several of these. Empty when there is nothing to tell.
std::string to_text(const TuningStats& stats);

// Chooses configurations of launches by measurement. Threads: any. Lifetime: that of its device.
class Tuner {
 public:
  Tuner(TuningKey key, std::unique_ptr<LaunchTimer> timer);

  // Sets the options. Nothing is tuned before the first call.
  void configure(TuningOptions options);

  // From now on, this tuner gives the answers of `first`, which another thread asks for the same
  // launches. `check` throws where `first` will not answer any more.
  void follow(std::shared_ptr<Tuner> first, std::function<void()> check);

  // The tuning phase of start-up. While a Phase lives, choices that the cache lacks are measured,
  // within TuningOptions::patience. Outside of a Phase the first guess is taken, so nothing is
  // measured while serving. The end of the last Phase saves the cache and gives back the memory
  // that measuring took.
  class Phase {
   public:
    explicit Phase(Tuner& tuner);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    Tuner& tuner_;
  };

  // Returns the configuration to run. Absent when the kernel has none for the launch. Errors:
  // kCompile naming the op when it must be measured and the thread records.
  std::optional<std::string> choose(const Tunable& tunable);

  [[nodiscard]] TuningStats stats() const;
  [[nodiscard]] const TuningKey& key() const { return key_; }

 private:
  // Waits until choose() has an answer for that launch, and returns it.
  std::optional<std::string> answer(const std::string& launch, const std::function<void()>& check);
  std::optional<std::string> find_answer(const Tunable& tunable);
  std::optional<std::string> remembered(const Tunable& tunable);
  // Returns whether the patience of this Phase leaves time to measure one more launch.
  [[nodiscard]] bool has_time() const;
  std::optional<TunedChoice> measure(const Tunable& tunable);

  TuningKey key_;
  std::unique_ptr<LaunchTimer> timer_;
  std::shared_ptr<Tuner> first_;  // shared with its device; null: this tuner follows none
  std::function<void()> check_first_;
  std::condition_variable answered_;
  mutable std::mutex mutex_;  // guards everything below
  TuningOptions options_;
  std::optional<TuningCache> cache_;
  int phases_ = 0;
  bool out_of_memory_ = false;  // measuring was given up for this phase
  double phase_seconds_ = 0;    // spent measuring in this phase
  std::map<std::string, std::optional<std::string>> answers_;
  std::set<std::string> codes_;  // device code that answers run
  TuningStats stats_;
};

// A choice between several ways to run a launch. Way is any type that a function `text` converts to
// a text.
template <typename Way>
struct TunableWays {
  std::string launch;  // see Tunable::launch
  const KernelArgs& args;
  Workspace workspace = {};
  const std::vector<Way>& ways;  // at least one; the likeliest first
  std::function<std::string(const Way& way)> text;
  std::function<BoundLaunch(const Way& way, const KernelArgs& args)> bind;
  std::function<double(const Way& way)> beside = nullptr;  // see Tunable::beside
};

// Chooses one of the ways, each named by its text, with Tuner::choose(). Returns the first way
// where the tuner chooses none.
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
