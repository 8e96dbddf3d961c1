// Tests that every mode prepares the same things at start-up, before KV takes the remaining memory.
// --graphs none leaves out the recordings and nothing else.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "diagnose/compare.h"
#include "engine/testing/tiny_model.h"

namespace encore::diagnose {
namespace {

using runtime::Graphs;

// Counts what a device does. It adds a kernel that allocates memory when it first runs at a size,
// as a kernel does whose code is loaded then. Only one object may exist at a time.
class Counts {
 public:
  explicit Counts(Device& device)
      : injection_([this](std::string_view call) {
          if (call == "allocate") ++num_allocated_;
          if (call == "map") num_allocated_ = 0;
        }) {
    bound_.clear();
    loaded_.clear();
    const auto rows = device.kernels().rows();
    kernel_ =
        *std::find_if(rows.begin(), rows.end(), [](const Kernel& k) { return k.op == "sample"; });
    Kernel counting = kernel_;
    counting.bind = bind;
    device.kernels().add_first(counting);
  }

  // Returns the sizes at which the kernel was bound.
  [[nodiscard]] static const std::multiset<int64_t>& bound() { return bound_; }
  // Returns the number of allocations since memory was mapped for KV.
  [[nodiscard]] int num_allocated() const { return num_allocated_; }

 private:
  static BoundLaunch bind(Device& device, const KernelArgs& args) {
    const int64_t rows = args.inputs["logits"].num_rows();
    bound_.insert(rows);
    return [&device, rows, bound = kernel_.bind(device, args)](Stream& stream,
                                                               const StepLengths& lengths) {
      if (loaded_.insert(rows).second) (void)device.allocate(64);
      bound(stream, lengths);
    };
  }

  inline static std::multiset<int64_t> bound_;
  inline static std::set<int64_t> loaded_;
  inline static Kernel kernel_;
  fault::Injection injection_;
  int num_allocated_ = 0;
};

loader::LoadOptions options_of(Graphs graphs) {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 8, .max_q = 1, .max_seq_len = 64};
  options.kv_tokens = 1024;
  options.graphs = graphs;
  return options;
}

void launch(loader::LoadedModel& model, const StepKey& key) {
  const auto step = trial_step(model, key);
  ASSERT_TRUE(step.has_value());
  begin(model, *step, 1);
  model.executor().run(step->lengths());
  model.executor().loaded().stream.synchronize();
}

TEST(Prepare, EveryModeBindsTheSameAndSetsNothingUpWhileItServes) {
  std::multiset<int64_t> bound;
  for (const Graphs graphs : {Graphs::kAuto, Graphs::kPiecewise, Graphs::kFull, Graphs::kNone}) {
    SCOPED_TRACE(static_cast<int>(graphs));
    const auto device = create_cpu_device({.num_threads = 1, .sets_up_late = true});
    const Counts counts(*device);
    loader::LoadedModel model(*device, engine::testing::tiny_model(engine::testing::Tiny::kLlama),
                              options_of(graphs));
    if (bound.empty()) bound = Counts::bound();
    EXPECT_EQ(Counts::bound(), bound);
    EXPECT_EQ(counts.num_allocated(), 0);
    for (int64_t size = 1; size <= 8; ++size) {
      launch(model, StepKey::uniform(size));
      launch(model, StepKey::mixed(size + 20, size));
    }
    EXPECT_EQ(Counts::bound(), bound);
    EXPECT_EQ(counts.num_allocated(), 0);
  }
  EXPECT_FALSE(bound.empty());
}

TEST(Prepare, StepsAboveTheLaddersAreBoundBeforeKvTakesItsMemory) {
  const auto device = create_cpu_device({.num_threads = 1, .sets_up_late = true});
  const Counts counts(*device);
  loader::LoadOptions options = options_of(Graphs::kAuto);
  options.sequences = runtime::Ladder({1, 2});
  options.tokens = runtime::Ladder({8});
  loader::LoadedModel model(*device, engine::testing::tiny_model(engine::testing::Tiny::kLlama),
                            options);
  const size_t num_bound = Counts::bound().size();
  for (const int64_t size : {8, 4, 3}) {
    launch(model, StepKey::uniform(size));
    launch(model, StepKey::mixed(32, size));
  }
  EXPECT_EQ(Counts::bound().size(), num_bound);
  EXPECT_EQ(counts.num_allocated(), 0);
}

// Steps above the ladders come in more sizes than launch tables are kept for. The test looks up the
// tables of many such sizes.
TEST(Prepare, TablesOfStepsAboveTheLaddersMakeRoomForEachOther) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadOptions options = options_of(Graphs::kAuto);
  options.limits = {.max_num_tokens = 512, .max_batch_size = 32, .max_q = 1, .max_seq_len = 64};
  options.sequences = runtime::Ladder({1, 2});
  options.tokens = runtime::Ladder({8});
  loader::LoadedModel model(*device, engine::testing::tiny_model(engine::testing::Tiny::kLlama),
                            options);
  runtime::Tables& tables = model.executor().loaded().tables;
  const int num_kept = tables.num_tables();
  const auto look = [&](const StepKey& step) {
    for (int segment = 0; segment < tables.num_segments(); ++segment)
      EXPECT_FALSE(tables.at(segment, step).empty());
  };
  for (int64_t num_tokens = 33; num_tokens < 512; ++num_tokens) {
    for (const int64_t sequences : {3, 9, 27})
      look(StepKey::mixed(num_tokens, sequences));
    ASSERT_LE(tables.num_tables(), num_kept + static_cast<int>(runtime::Tables::kMaxPassing));
  }
  for (const int64_t size : {1, 2, 3, 32})
    launch(model, StepKey::uniform(size));
  launch(model, StepKey::mixed(33, 3));
}

}  // namespace
}  // namespace encore::diagnose
