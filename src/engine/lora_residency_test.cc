// Tests a model with more adapters than adapter slots. Adapters come and go with the requests, no
// request waits for another's adapter, and each request gets the tokens that it gets alone.
#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "engine/testing/lora_model.h"

namespace encore::engine::lora {
namespace {

namespace fs = std::filesystem;

// Writes adapters with a different seed each, so that no two are alike.
class ManyAdapters {
 public:
  explicit ManyAdapters(int count) {
    write_model(dir_, kLlama, base_tensors(kLlama));
    for (int i = 0; i < count; ++i)
      named_.push_back({fmt::format("adapter-{}", i), files(i).write(dir_, fmt::format("{}", i))});
  }
  static LoraFiles files(int i) {
    LoraFiles files = LoraFiles::random(static_cast<uint64_t>(i) + 1,
                                        modules_of(kLlama, {"q_proj", "v_proj"}, 2), 0.4F);
    files.config = R"({"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"]})";
    return files;
  }
  [[nodiscard]] LoadOptions options(int64_t num_slots, int64_t max_images) const {
    LoadOptions options = lora_options();
    options.compile.batch_invariant = true;
    options.adapters = {.adapters = named_, .num_slots = num_slots, .max_images = max_images};
    return options;
  }
  [[nodiscard]] std::unique_ptr<LoadedModel> load(Device& device,
                                                  const LoadOptions& options) const {
    return std::make_unique<LoadedModel>(device, model::find_model(dir_.path().string()), options);
  }
  [[nodiscard]] const auto& named() const { return named_; }
  [[nodiscard]] const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
  std::vector<loader::AdapterOptions::Named> named_;
};

class LoraResidencyTest : public testing::DeviceTest {};

// Requests come at random, and most use a few of the adapters. There are two different prompts
// only, so sequences would find pages of other adapters in the prefix cache if the hashes of pages
// did not depend on the adapter. ENCORE_ADAPTER_REQUESTS=10000 runs the traffic of a large server,
// with 2,000 adapters and 64 adapter slots.
TEST_P(LoraResidencyTest, RandomTrafficGetsWhatEachRequestGetsAlone) {
  const char* const wanted = std::getenv("ENCORE_ADAPTER_REQUESTS");
  const int num_requests = wanted != nullptr ? std::atoi(wanted) : is_thorough() ? 300 : 60;
  const int num_adapters = wanted != nullptr ? 2000 : 40;
  const int num_slots = wanted != nullptr ? 64 : 4;
  constexpr int kPrompts = 2;
  constexpr int64_t kLength = 20;
  const ManyAdapters many(num_adapters);
  const auto model = many.load(*device_, many.options(num_slots, wanted != nullptr ? 32 : 2));
  const int64_t num_recordings = model->recording_stats().num_full();
  EngineOptions how;
  how.prefix_cache.emplace();
  how.preempts_by_priority = true;
  Engine engine(*model, how);

  struct Asked {
    int adapter = 0;  // index among all adapters; -1: none
    int prompt = 0;
    int64_t max_tokens = 0;
  };
  std::map<SequenceId, Asked> asked;
  std::map<SequenceId, Answer> given;
  std::set<SequenceId> living;
  std::mt19937 random(5);
  const auto below = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  const auto request_for = [&](const Asked& one) {
    Request request =
        request_of(one.adapter < 0 ? "" : many.named()[static_cast<size_t>(one.adapter)].name,
                   one.prompt, kLength);
    request.max_tokens = one.max_tokens;
    return request;
  };
  const auto take = [&](const Generated& generated) {
    given[generated.sequence].add(generated);
    if (generated.finish) living.erase(generated.sequence);
  };
  int num_asked = 0;
  while (num_asked < num_requests || !living.empty()) {
    while (num_asked < num_requests && std::ssize(living) < 12 && below(3) > 0) {
      const int adapter = below(8) == 0 ? -1 : below(2) == 0 ? below(3) : below(num_adapters);
      const Asked one{adapter, below(kPrompts), 1 + below(6)};
      Request request = request_for(one);
      request.priority = below(5) == 0 ? -1 : 0;
      const auto id = std::get<SequenceId>(engine.add(std::move(request)));
      asked[id] = one;
      living.insert(id);
      ++num_asked;
    }
    if (!living.empty() && below(40) == 0) {
      engine.abort(*living.begin());
      asked.erase(*living.begin());
      living.erase(living.begin());
    }
    engine.step(take);
    std::map<kv::Page, int> adapter_of_page;
    for (const sched::Sequence* sequence : engine.scheduler().running()) {
      for (const kv::Page page : sequence->pages) {
        const int adapter = asked[sequence->id].adapter;
        ASSERT_EQ(adapter_of_page.emplace(page, adapter).first->second, adapter) << "shared page";
      }
    }
  }
  const loader::AdapterStats stats = model->adapters()->stats();
  EXPECT_GT(stats.slots.num_evictions, 0);
  EXPECT_GT(stats.slots.num_waits, 0);
  EXPECT_EQ(stats.slots.num_failures, 0);
  EXPECT_EQ(stats.num_registered, num_adapters);
  EXPECT_LE(stats.slots.num_resident, num_slots);
  EXPECT_EQ(model->recording_stats().num_full(), num_recordings) << "recorded anew";

  Engine alone(*model, {});
  std::map<std::tuple<int, int, int64_t>, Answer> expected;
  for (const auto& [id, one] : asked) {
    auto& answer = expected[{one.adapter, one.prompt, one.max_tokens}];
    if (answer.tokens.empty()) answer = answers(alone, {request_for(one)})[0];
    ASSERT_TRUE(given[id] == answer) << "request " << id << " of adapter " << one.adapter;
  }
}

// Both adapter slots are in use, so a request for a third adapter waits. Requests that need no
// adapter, or one of the two that are in slots, go on.
TEST_P(LoraResidencyTest, ARequestThatWaitsForASlotHoldsUpNobody) {
  const ManyAdapters many(4);
  const auto model = many.load(*device_, many.options(2, 4));
  Engine engine(*model, {});
  std::map<SequenceId, Answer> given;
  std::vector<SequenceId> ended;
  const auto take = [&](const Generated& generated) {
    given[generated.sequence].add(generated);
    if (generated.finish) ended.push_back(generated.sequence);
  };
  const auto add = [&](const std::string& adapter, int64_t max_tokens) {
    Request request = request_of(adapter, 3);
    request.max_tokens = max_tokens;
    return std::get<SequenceId>(engine.add(std::move(request)));
  };
  const SequenceId first = add("adapter-0", 60);
  (void)add("adapter-1", 90);
  engine.step(take);
  const SequenceId waiting = add("adapter-2", 5);
  const SequenceId base = add("", 8);
  const SequenceId fellow = add("adapter-1", 8);  // its adapter's slot was used last
  EXPECT_EQ(engine.adapters_in_use().running, (std::set<std::string>{"adapter-0", "adapter-1"}));
  EXPECT_EQ(engine.adapters_in_use().waiting, (std::set<std::string>{"adapter-1", "adapter-2"}));
  while (engine.step(take)) {
  }
  ASSERT_EQ(ended.size(), 5U);
  // The order in which the last two requests end is open, as it depends on when the files of the
  // awaited adapter are read.
  ended.resize(3);
  EXPECT_EQ(ended, (std::vector<SequenceId>{base, fellow, first}));
  const Answer expected = answers(engine, {request_of("adapter-2", 3)})[0];
  EXPECT_TRUE(std::equal(given[waiting].tokens.begin(), given[waiting].tokens.end(),
                         expected.tokens.begin()));
}

// Requests of one adapter come without end, each before the last one ends. A request of another
// adapter still gets its turn.
TEST_P(LoraResidencyTest, AnAdapterInDemandDoesNotKeepItsSlotForever) {
  const ManyAdapters many(2);
  const auto model = many.load(*device_, many.options(1, 2));
  Engine engine(*model, {});
  SequenceId other = 0;
  bool has_ended = false;
  int num_living = 0;
  const auto take = [&](const Generated& generated) {
    if (!generated.finish) return;
    has_ended = has_ended || generated.sequence == other;
    --num_living;
  };
  int num_asked = 0;
  for (; !has_ended && num_asked < 100; ++num_asked) {
    if (num_asked == 5) {
      other = std::get<SequenceId>(engine.add(request_of("adapter-1", 1)));
      ++num_living;
    }
    Request request = request_of("adapter-0", num_asked);
    request.max_tokens = 30;
    (void)engine.add(std::move(request));
    ++num_living;
    for (int i = 0; i < 10 || num_living > 3; ++i)
      engine.step(take);
  }
  EXPECT_TRUE(has_ended);
}

TEST_P(LoraResidencyTest, AReadThatFailsEndsTheRequestsOfThatAdapterOnly) {
  const ManyAdapters many(4);
  const LoadOptions options = many.options(1, 1);
  const auto model = many.load(*device_, options);
  Engine engine(*model, {});
  const Answer good = answers(engine, {request_of("adapter-3", 2)})[0];
  const std::vector<Answer> before =
      answers(engine, {request_of("adapter-1", 2), request_of("", 2)});
  const auto expect_failure = [&](const std::string& part) {
    const std::vector<Answer> found =
        answers(engine, {request_of("adapter-3", 2), request_of("adapter-1", 2), request_of("", 2),
                         request_of("adapter-3", 3)});
    EXPECT_NE(found[0].problem.find(part), std::string::npos) << found[0].problem;
    EXPECT_NE(found[3].problem.find(part), std::string::npos) << found[3].problem;
    EXPECT_TRUE(found[0].tokens.empty() && found[3].tokens.empty());
    EXPECT_TRUE(found[1] == before[0] && found[2] == before[1]);
  };
  const fs::path path = many.named()[3].path;
  const fs::path tensors = path / "adapter_model.safetensors";
  fs::resize_file(tensors, fs::file_size(tensors) - 8);
  expect_failure("adapter_model.safetensors");
  (void)ManyAdapters::files(77).write(many.dir(), "3");
  expect_failure("changed on disk");
  fs::remove_all(path);
  expect_failure("is a directory with");
  (void)ManyAdapters::files(3).write(many.dir(), "3");
  EXPECT_TRUE(answers(engine, {request_of("adapter-3", 2)})[0] == good);
}

// Where an adapter has a copy in host memory, a load into an adapter slot reads that copy and not
// the adapter's files.
TEST_P(LoraResidencyTest, AnAdapterWithACopyInHostMemoryIsNotReadAgain) {
  const ManyAdapters many(3);
  const auto model = many.load(*device_, many.options(1, 3));
  Engine engine(*model, {});
  std::vector<Answer> before;
  for (int i = 0; i < 3; ++i)
    before.push_back(
        answers(engine, {request_of(many.named()[static_cast<size_t>(i)].name, 2)})[0]);
  EXPECT_EQ(model->adapters()->stats().num_reads, 3);
  for (const auto& [name, path] : many.named())
    fs::remove_all(path);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(before[static_cast<size_t>(i)] ==
                answers(engine, {request_of(many.named()[static_cast<size_t>(i)].name, 2)})[0]);
  }
  EXPECT_EQ(model->adapters()->stats().num_reads, 3);
}

INSTANTIATE_TEST_SUITE_P(Devices, LoraResidencyTest,
                         ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::engine::lora
