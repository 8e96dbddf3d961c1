// Tests sequences with adapters. Each gets what the model with the adapter's weights merged in
// gives, whatever runs beside it. A sequence without an adapter gets what the model gives.
#include <array>
#include <atomic>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "base/testing/message_of.h"
#include "engine/serving_loop.h"
#include "engine/testing/lora_model.h"

namespace encore::engine::lora {
namespace {

class LoraTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    write_model(dir_, kLlama, base_tensors(kLlama));
    add("a", LoraFiles::random(1, modules_of(kLlama, {"self_attn"})));
    add("b", LoraFiles::random(2, modules_of(kLlama, {"q_proj", "v_proj"}, 8)),
        R"({"r": 8, "lora_alpha": 4, "use_rslora": true, "target_modules": ["q_proj", "v_proj"]})");
    add("c", LoraFiles::random(3, modules_of(kLlama, {"self_attn", "mlp"})),
        R"({"r": 4, "lora_alpha": 6, "target_modules": "all-linear"})");
  }
  void add(const std::string& name, LoraFiles files, const std::string& config = "") {
    if (!config.empty()) files.config = config;
    options_.adapters.adapters.push_back({name, files.write(dir_, name)});
  }
  [[nodiscard]] std::unique_ptr<LoadedModel> load(const LoadOptions& options) {
    return std::make_unique<LoadedModel>(device_for_another(),
                                         model::find_model(dir_.path().string()), options);
  }
  [[nodiscard]] std::unique_ptr<LoadedModel> load() { return load(options_); }

  TempDir dir_;
  LoadOptions options_ = lora_options();
};

// Returns requests of different lengths, with each adapter and with none.
std::vector<Request> a_mix() {
  std::vector<Request> requests;
  const char* const adapters[] = {"", "a", "b", "c", "a", ""};
  for (int i = 0; i < 6; ++i)
    requests.push_back(request_of(adapters[i], i / 2, 5 + i * 13));
  return requests;
}

TEST_P(LoraTest, AMixOfAdaptersGivesEachWhatItGetsAlone) {
  const auto model = load();
  for (const EngineOptions& way : {EngineOptions{.overlap = false}, EngineOptions{.overlap = true},
                                   EngineOptions{.overlap = true, .burst_steps = 16}}) {
    Engine engine(*model, way);
    const std::vector<Request> requests = a_mix();
    const std::vector<Answer> together = answers(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_LT(error_of(together[i], answers(engine, {requests[i]})[0]), 1e-5) << "request " << i;
  }
}

// With batch-invariant kernels the GPU gives a row the same bits in steps of every size, as the CPU
// does with all kernels. So answers can be compared bit for bit.
TEST_P(LoraTest, AMixOfAdaptersGivesEachTheBitsThatItGetsAlone) {
  options_.compile.batch_invariant = true;
  const auto model = load();
  Engine engine(*model);
  const std::vector<Request> requests = a_mix();
  const std::vector<Answer> together = answers(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_TRUE(together[i] == answers(engine, {requests[i]})[0]) << "request " << i;
}

// Drafts come from look-up, or from a draft model without adapters.
TEST_P(LoraTest, DraftsChangeNoBitOfWhatAMixOfAdaptersGives) {
  options_.compile.batch_invariant = true;
  const auto without = load();
  Engine plain(*without);
  const std::vector<Answer> expected = answers(plain, a_mix());
  options_.limits.num_drafts = 3;
  for (const bool has_model : {false, true}) {
    if (has_model) options_.draft = model::find_model(dir_.path().string());
    const auto model = load();
    Engine engine(*model);
    const std::vector<Answer> given = answers(engine, a_mix());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(given[i] == expected[i]) << "request " << i;
    EXPECT_GT(engine.draft_counts().tokens, 0);
    EXPECT_GE(engine.draft_counts().num_accepted(), has_model ? 1 : 0);
  }
}

TEST_P(LoraTest, ABaseSequenceHasTheBitsOfAModelWithoutAdapters) {
  for (const bool has_mlp : {false, true}) {
    LoadOptions options = options_;
    if (!has_mlp) options.adapters.adapters.pop_back();
    const auto with = load(options);
    const auto without = load(lora_options());
    const std::vector<Request> base = {request_of("", 5), request_of("", 6, 50)};
    std::vector<Request> mixed = base;
    for (int i = 0; i < 4; ++i)
      mixed.push_back(request_of(i % 2 == 0 ? "a" : "b", i));
    Engine engine(*with);
    Engine plain(*without);
    std::vector<Request> as_many = mixed;
    for (Request& request : as_many)
      request.adapter.clear();
    const std::vector<Answer> beside = answers(engine, mixed);
    const std::vector<Answer> expected = answers(plain, as_many);
    for (size_t i = 0; i < base.size(); ++i)
      EXPECT_TRUE(beside[i] == expected[i]) << "request " << i;
    EXPECT_FALSE(beside[2] == expected[2]);
  }
}

TEST_P(LoraTest, AnAdaptersScaleIsThatOfItsConfiguration) {
  const auto model = load();
  Engine engine(*model);
  const struct {
    const char* name;
    LoraFiles files;
    double scale;
  } cases[] = {
      {"a", LoraFiles::random(1, modules_of(kLlama, {"self_attn"})), 2},
      {"b", LoraFiles::random(2, modules_of(kLlama, {"q_proj", "v_proj"}, 8)), 4 / std::sqrt(8.0)},
      {"c", LoraFiles::random(3, modules_of(kLlama, {"self_attn", "mlp"})), 1.5},
  };
  for (const auto& c : cases) {
    const TempDir merged;
    write_model(merged, kLlama,
                merged_tensors(kLlama, c.files, [&](const auto&) { return c.scale; }));
    LoadedModel reference_model(device_for_another(), model::find_model(merged.path().string()),
                                lora_options());
    Engine reference(reference_model);
    Request asked = request_of(c.name, 9, 40);
    asked.num_prompt_logprobs = 0;
    Request expected = asked;
    expected.adapter.clear();
    EXPECT_LT(error_of(answers(engine, {asked})[0], answers(reference, {expected})[0]), 2e-4)
        << c.name;
    EXPECT_FALSE(answers(engine, {asked})[0] == answers(engine, {expected})[0]) << "no effect";
  }
}

// Returns how far the log probabilities of a prompt, with an adapter of all linears, are from those
// of the model with the adapter merged in.
double error_of_family(const Family& family, const std::function<Device&()>& device) {
  const TempDir base;
  write_model(base, family, base_tensors(family));
  LoraFiles files = LoraFiles::random(4, modules_of(family, {"self_attn", "mlp"}));
  files.config = R"({"r": 4, "lora_alpha": 8, "target_modules": "all-linear"})";
  const TempDir merged;
  write_model(merged, family, merged_tensors(family, files, [](const auto&) { return 2.0; }));
  LoadOptions options = lora_options();
  options.adapters.adapters = {{"x", files.write(base, "x")}};
  LoadedModel model(device(), model::find_model(base.path().string()), options);
  LoadedModel reference_model(device(), model::find_model(merged.path().string()), lora_options());
  Engine engine(model);
  Engine reference(reference_model);
  Request asked = request_of("x", 9, 40);
  asked.num_prompt_logprobs = 0;
  Request expected = asked;
  expected.adapter.clear();
  EXPECT_FALSE(answers(engine, {asked})[0] == answers(engine, {expected})[0]) << "no effect";
  return error_of(answers(engine, {asked})[0], answers(reference, {expected})[0]);
}

// The families order the rows of q and k differently, keep several projections in one tensor, or
// multiply values by factors on the way.
TEST_P(LoraTest, RowsOfBFollowThoseOfTheWeight) {
  for (const Family& family : {kPhi3, kGranite, kGlm4}) {
    SCOPED_TRACE(family.name);
    EXPECT_LT(error_of_family(family, [&]() -> Device& { return device_for_another(); }), 2e-4);
  }
}

TEST_P(LoraTest, AdaptersOfAttentionServeAModelWithExpertsAndThoseOfExpertsAreRefused) {
  EXPECT_LT(error_of_family(kMixtral, [&]() -> Device& { return device_for_another(); }), 2e-4);
  write_model(dir_, kMixtral, base_tensors(kMixtral));
  for (const char* module : {"block_sparse_moe.experts.0.w2", "block_sparse_moe.gate"}) {
    const std::string name = std::string("model.layers.0.") + module;
    LoraFiles files = LoraFiles::random(5, {{name, kHidden, kInner, 4}});
    files.config = fmt::format(R"({{"r": 4, "lora_alpha": 8, "target_modules": ["{}"]}})", name);
    options_.adapters.adapters = {{"x", files.write(dir_, "x")}};
    const std::string problem = message_of(ErrorKind::kUnsupported, [&] { (void)load(); });
    EXPECT_NE(problem.find(name), std::string::npos) << problem;
    EXPECT_NE(problem.find("merge it into the model"), std::string::npos) << problem;
  }
}

TEST_P(LoraTest, KvInFp8ScalesWhatAdaptersAddAsWell) {
  std::vector<TypedTensor> tensors = base_tensors(kLlama);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const auto& [name, scale] : {std::pair{"k_scale", 4.0F}, std::pair{"v_scale", 0.25F}})
      tensors.push_back(
          {fmt::format("model.layers.{}.self_attn.{}", layer, name), DType::kF32, {1}, {scale}});
  }
  write_model(dir_, kLlama, tensors);
  options_.kv_dtype = DType::kFP8;
  const auto model = load();
  options_.kv_dtype = std::nullopt;
  const auto exact_model = load();
  Engine engine(*model);
  Engine exact(*exact_model);
  Request request = request_of("a", 9, 40);
  request.max_tokens = 1;
  request.num_prompt_logprobs = 0;
  EXPECT_LT(error_of(answers(engine, {request})[0], answers(exact, {request})[0]), 0.3);
}

TEST_P(LoraTest, AdaptersAddToProductsOfWeightsInFp8) {
  const auto exact_model = load();
  options_.formats.quantize = true;
  const auto model = load();
  Engine engine(*model);
  Engine exact(*exact_model);
  for (const char* adapter : {"a", "c"}) {
    Request request = request_of(adapter, 9, 40);
    request.num_prompt_logprobs = 0;
    Request base = request;
    base.adapter.clear();
    const auto found = answers(engine, {request})[0].logprobs;
    const auto expected = answers(exact, {request})[0].logprobs;
    const auto without = answers(engine, {base})[0].logprobs;
    const auto distance = [&](const std::vector<float>& other) {
      double sum = 0;
      for (size_t i = 0; i < 39; ++i)  // log probabilities of the prompt
        sum += std::fabs(found[i] - other[i]);
      return sum / 39;
    };
    EXPECT_LT(distance(expected), 0.3 * distance(without)) << adapter;
  }
}

TEST_P(LoraTest, AdaptersShareNoPagesOfThePrefixCache) {
  const auto model = load();
  EngineOptions how;
  how.prefix_cache.emplace();
  Engine engine(*model, how);
  Engine uncached(*model);
  for (const char* adapter : {"a", "", "b", "c"}) {
    const Request request = request_of(adapter, 7, 70);
    const Answer first = answers(engine, {request})[0];
    EXPECT_EQ(first.num_cached, 0) << "took pages of another adapter: " << adapter;
    const Answer again = answers(engine, {request})[0];
    EXPECT_EQ(again.num_cached, 64) << adapter;
    const Answer expected = answers(uncached, {request})[0];
    EXPECT_LT(error_of(first, expected), 1e-5);
    EXPECT_LT(error_of(again, expected), 1e-4);
  }
}

// A router computes the hashes of pages, so they must be the same in all processes. They depend on
// a digest of the adapter's files for that reason, and not only on how many times an adapter was
// loaded.
TEST_P(LoraTest, APrefixIsFoundByTheDigestOfItsAdapterAndByItsLoad) {
  EngineOptions how;
  how.prefix_cache.emplace().key = "known to routers";
  const Request request = request_of("a", 7, 70);
  const auto first = load();
  Engine engine(*first, how);
  const kv::PageHash root = engine.page_chain(request).root;
  const auto alike = load();
  EXPECT_EQ(Engine(*alike, how).page_chain(request).root, root);

  (void)answers(engine, {request});
  EXPECT_EQ(answers(engine, {request})[0].num_cached, 64);
  first->adapters()->load("a", options_.adapters.adapters[0].path, true);
  EXPECT_NE(engine.page_chain(request).root, root) << "another load of these files";
  EXPECT_EQ(answers(engine, {request})[0].num_cached, 0);
  EXPECT_EQ(answers(engine, {request})[0].num_cached, 64);

  (void)LoraFiles::random(77, modules_of(kLlama, {"self_attn"})).write(dir_, "a");
  const auto other = load();
  EXPECT_NE(Engine(*other, how).page_chain(request).root, root) << "the first load of other files";
  first->adapters()->load("a", options_.adapters.adapters[0].path, true);
  EXPECT_EQ(answers(engine, {request})[0].num_cached, 0) << "pages of files that were replaced";
}

// While a CUDA driver allocates memory, no step can be launched. So loading an adapter beside steps
// must not allocate.
TEST_P(LoraTest, AdaptersAreLoadedBesideStepsWithoutAllocatingOnTheDevice) {
  const auto all = std::exchange(options_.adapters.adapters, {});
  options_.adapters.num_slots = 2;
  const auto model = load();
  Engine engine(*model);
  (void)answers(engine, {request_of("", 1)});
  std::atomic<int> allocations = 0;
  const fault::Injection injection([&](std::string_view call) {
    if (call == "allocate") ++allocations;
  });
  for (const auto& [name, path] : all) {  // the last takes another's adapter slot
    model->adapters()->load(name, path);
    EXPECT_EQ(answers(engine, {request_of(name, 1)})[0].problem, "");
  }
  EXPECT_EQ(model->adapters()->stats().slots.num_evictions, 1);
  EXPECT_EQ(allocations, 0);
}

// A sleep that gives weights back empties the adapter slots that no sequence holds. Afterwards
// requests wait until their adapters are in slots again, so they are batched with other requests
// than before the sleep. Only batch-invariant kernels then give equal answers.
TEST_P(LoraTest, AdaptersAreThereAfterASleepThatGaveWeightsBack) {
  options_.compile.batch_invariant = true;
  const auto model = load();
  Engine engine(*model);
  const std::vector<Answer> before = answers(engine, a_mix());
  engine.sleep(SleepDepth::kKvAndWeights);
  engine.wake();
  EXPECT_TRUE(answers(engine, a_mix()) == before);
}

// Running sequences keep their adapter slots during a sleep, so their adapters are read again as
// soon as the model wakes.
TEST_P(LoraTest, AnAdapterWhoseFilesChangedInASleepEndsItsRequestsAlone) {
  options_.adapters.max_images = 1;
  const auto model = load();
  Engine engine(*model);
  const std::vector<Answer> before = answers(engine, a_mix());
  std::map<SequenceId, Answer> given;
  const auto take = [&](const Generated& generated) { given[generated.sequence].add(generated); };
  std::vector<SequenceId> ids;
  for (const Request& request : a_mix())
    ids.push_back(std::get<SequenceId>(engine.add(request)));
  for (int i = 0; i < 4; ++i)
    engine.step(take);
  engine.sleep(SleepDepth::kKvAndWeights);
  (void)LoraFiles::random(77, modules_of(kLlama, {"self_attn"})).write(dir_, "a");
  engine.wake();
  while (engine.step(take)) {
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const Answer& answer = given[ids[i]];
    if (a_mix()[i].adapter == "a") {
      EXPECT_NE(answer.problem.find("changed on disk"), std::string::npos) << answer.problem;
    } else {
      EXPECT_LT(error_of(answer, before[i]), 1e-5) << i;
    }
  }
  EXPECT_NE(answers(engine, {request_of("a", 1)})[0].problem.find("changed"), std::string::npos);
  loader::Adapters& adapters = *model->adapters();
  const std::string message =
      message_of(ErrorKind::kModel, [&] { (void)adapters.wait_for(adapters.find("a")); });
  EXPECT_NE(message.find("changed on disk"), std::string::npos) << message;
}

// A sequence keeps the adapter that it began with, even while another adapter takes its name.
TEST_P(LoraTest, AdaptersAreLoadedAndUnloadedWhileSequencesRun) {
  const auto reference = load();
  Engine apart(*reference);
  const std::vector<Answer> expected =
      answers(apart, {request_of("a", 1, 30), request_of("b", 1, 30), request_of("c", 1, 30)});
  const loader::AdapterOptions all = options_.adapters;
  options_.adapters.adapters = {all.adapters[0]};
  options_.adapters.num_slots = 2;
  const auto model = load();
  EngineOptions how;
  how.prefix_cache.emplace();
  Engine engine(*model, how);
  loader::Adapters& adapters = *model->adapters();
  const auto path_of = [&](int i) { return all.adapters[static_cast<size_t>(i)].path; };

  std::map<SequenceId, Answer> given;
  const auto take = [&](const Generated& generated) { given[generated.sequence].add(generated); };
  const auto first = std::get<SequenceId>(engine.add(request_of("a", 1, 30)));
  for (int i = 0; i < 4; ++i)
    engine.step(take);
  EXPECT_NE(message_of(ErrorKind::kUsage, [&] { adapters.load("a", path_of(1)); }).find("already"),
            std::string::npos);
  adapters.load("a", path_of(1), true);  // the files of b
  const auto second = std::get<SequenceId>(engine.add(request_of("a", 1, 30)));
  engine.step(take);
  engine.sleep(SleepDepth::kKvAndWeights);
  engine.wake();
  adapters.load("c", path_of(2));  // both adapter slots are in use meanwhile
  adapters.unload("c");
  adapters.unload("a");
  EXPECT_TRUE(std::holds_alternative<Rejection>(engine.add(request_of("a", 1, 30))));
  while (engine.step(take)) {
  }
  adapters.load("a", path_of(2));  // c's files, in one of the two adapter slots
  const auto third = std::get<SequenceId>(engine.add(request_of("a", 1, 30)));
  while (engine.step(take)) {
  }
  EXPECT_LT(error_of(given[first], expected[0]), 1e-5);
  EXPECT_LT(error_of(given[second], expected[1]), 1e-5);
  EXPECT_LT(error_of(given[third], expected[2]), 1e-5);
  EXPECT_NE(message_of(ErrorKind::kUsage, [&] { adapters.unload("b"); }), "");
  engine.sleep(SleepDepth::kKvAndWeights);
  adapters.load("b", path_of(1));
  engine.wake();
  EXPECT_LT(error_of(answers(engine, {request_of("b", 1, 30)})[0], expected[1]), 1e-5);
}

// A waiting request keeps the adapter that its prompt was hashed for. It finds only that adapter's
// pages in the prefix cache, even if the name belongs to another adapter by then.
TEST_P(LoraTest, ARequestThatWaitsKeepsTheAdapterThatItsNameHadWhenItCame) {
  options_.adapters.num_slots = 4;
  const auto model = load();
  Engine apart(*model);
  const std::vector<Answer> expected =
      answers(apart, {request_of("a", 1, 40), request_of("b", 1, 40)});
  ServingOptions options;
  options.engine.prefix_cache.emplace();
  ServingLoop loop(*model, options);
  std::vector<int32_t> tokens[3];
  const auto submit = [&](size_t i) {
    std::vector<Submission> one;
    one.push_back({request_of("a", 1, 40), [&tokens, i](const Update& update) {
                     tokens[i].insert(tokens[i].end(), update.tokens.begin(), update.tokens.end());
                   }});
    ASSERT_TRUE(std::holds_alternative<std::vector<RequestId>>(loop.submit(std::move(one))));
  };
  submit(0);
  EXPECT_FALSE(loop.load_adapter("a", options_.adapters.adapters[1].path.string(), true));
  submit(1);
  EXPECT_FALSE(loop.unload_adapter("b"));
  EXPECT_TRUE(loop.unload_adapter("b"));
  EXPECT_TRUE(loop.load_adapter("a", options_.adapters.adapters[1].path.string(), false));
  submit(2);
  loop.drain();
  loop.run();
  EXPECT_EQ(tokens[0], expected[0].tokens);
  EXPECT_EQ(tokens[1], expected[1].tokens);
  EXPECT_EQ(tokens[2], expected[1].tokens);
  const GeneratorStatistics statistics = loop.statistics();
  ASSERT_TRUE(statistics.adapters);
  EXPECT_EQ(statistics.adapters->num_slots, 4);
}

TEST_P(LoraTest, AnAdapterThatIsUnloadedGoesOnForThoseWhoHaveIt) {
  constexpr size_t kMany = 64;
  options_.adapters.num_slots = 2;
  const auto model = load();
  Engine apart(*model);
  const std::vector<Answer> expected =
      answers(apart, {request_of("a", 1), request_of("b", 1), request_of("", 1)});
  ServingLoop loop(*model, {});
  std::vector<std::vector<int32_t>> tokens(kMany + 3);
  const auto submit = [&](size_t i, const std::string& adapter) {
    std::vector<Submission> one;
    one.push_back({request_of(adapter, 1), [&tokens, i](const Update& update) {
                     tokens[i].insert(tokens[i].end(), update.tokens.begin(), update.tokens.end());
                   }});
    return std::holds_alternative<std::vector<RequestId>>(loop.submit(std::move(one)));
  };
  for (size_t i = 0; i < kMany; ++i)
    EXPECT_TRUE(submit(i, "a"));
  EXPECT_FALSE(loop.unload_adapter("a"));
  EXPECT_FALSE(submit(kMany, "a"));
  EXPECT_FALSE(loop.load_adapter("a", options_.adapters.adapters[1].path.string(), false));
  EXPECT_TRUE(submit(kMany + 1, "a"));
  EXPECT_TRUE(submit(kMany + 2, ""));
  loop.drain();
  loop.run();
  for (size_t i = 0; i < kMany; ++i)
    EXPECT_EQ(tokens[i], expected[0].tokens) << i;
  EXPECT_EQ(tokens[kMany + 1], expected[1].tokens);
  EXPECT_EQ(tokens[kMany + 2], expected[2].tokens);
}

TEST_P(LoraTest, OfTwoThatLoadOneNameAtOnceOneDoes) {
  const auto model = load();
  Engine engine(*model);
  const std::vector<Answer> expected = answers(engine, {request_of("a", 1), request_of("b", 1)});
  loader::Adapters& adapters = *model->adapters();
  for (int round = 0; round < 8; ++round) {
    std::array<bool, 2> is_loaded{};
    const auto load_one = [&](size_t i) {
      is_loaded[i] = message_of(ErrorKind::kUsage, [&] {
                       adapters.load("x", options_.adapters.adapters[i].path);
                     }).empty();
    };
    std::thread other([&] { load_one(1); });
    load_one(0);
    other.join();
    ASSERT_EQ(is_loaded[0] + is_loaded[1], 1);
    EXPECT_LT(error_of(answers(engine, {request_of("x", 1)})[0], expected[is_loaded[0] ? 0 : 1]),
              1e-5);
    adapters.unload("x");
  }
}

TEST_P(LoraTest, ARequestOfAnAdapterThatThereIsNotIsRejected) {
  const auto model = load();
  Engine engine(*model);
  const auto added = engine.add(request_of("d", 1));
  ASSERT_TRUE(std::holds_alternative<Rejection>(added));
  EXPECT_NE(std::get<Rejection>(added).why.find("no adapter \"d\""), std::string::npos);
  const auto without = load(lora_options());
  Engine plain(*without);
  EXPECT_TRUE(std::holds_alternative<Rejection>(plain.add(request_of("a", 1))));
}

class LoraRefusalTest : public ::testing::Test {
 protected:
  LoraRefusalTest() { write_model(dir_, kLlama, base_tensors(kLlama)); }
  // Returns the reason why the model is not loaded with the adapter.
  std::string problem(ErrorKind kind, const LoraFiles& files) {
    LoadOptions options = lora_options();
    options.adapters.adapters = {{"x", files.write(dir_, "x")}};
    return message_of(
        kind, [&] { LoadedModel(*device_, model::find_model(dir_.path().string()), options); });
  }
  TempDir dir_;
  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
};

TEST_F(LoraRefusalTest, NamesModulesThatTheModelHasNotOrOfOtherSizes) {
  LoraFiles files = LoraFiles::random(1, modules_of(kLlama, {"self_attn"}));
  files.tensors[0].shape = {4, 32};
  files.tensors[0].values.resize(128);
  EXPECT_NE(problem(ErrorKind::kModel, files).find("q_proj"), std::string::npos);
  std::vector<LoraModule> modules = modules_of(kLlama, {"self_attn"});
  modules.push_back({"model.layers.7.self_attn.q_proj", 64, 64, 4});
  EXPECT_NE(problem(ErrorKind::kUnsupported, LoraFiles::random(1, modules)).find("layers.7"),
            std::string::npos);
  modules.back().name = "lm_head";
  EXPECT_NE(problem(ErrorKind::kUnsupported, LoraFiles::random(1, modules)).find("lm_head"),
            std::string::npos);
  modules.back().name = "model.layers.0.mlp.experts.0.down_proj";
  EXPECT_NE(problem(ErrorKind::kUnsupported, LoraFiles::random(1, modules)).find("experts"),
            std::string::npos);
}

TEST_F(LoraRefusalTest, NamesATargetWithoutTensorsInOneLayer) {
  std::vector<LoraModule> modules = modules_of(kLlama, {"self_attn"});
  modules.pop_back();
  EXPECT_NE(
      problem(ErrorKind::kModel, LoraFiles::random(1, modules)).find("layers.1.self_attn.o_proj"),
      std::string::npos);
}

TEST_F(LoraRefusalTest, WantsTensorsOfThoseLayersAloneThatTheAdapterIsFor) {
  std::vector<LoraModule> modules = modules_of(kLlama, {"self_attn"});
  std::erase_if(modules, [](const LoraModule& module) {
    return module.name.find("layers.1.") != std::string::npos;
  });
  LoraFiles files = LoraFiles::random(1, modules);
  const auto is_for = [&](const char* layers) {
    files.config = fmt::format(
        R"({{"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"],
             "layers_to_transform": {}}})",
        layers);
  };
  for (const char* const layers : {"0", "[0]"}) {
    is_for(layers);
    LoadOptions options = lora_options();
    options.adapters.adapters = {{"x", files.write(dir_, "x")}};
    EXPECT_NO_THROW(LoadedModel(*device_, model::find_model(dir_.path().string()), options))
        << layers;
  }
  for (const char* const layers : {"1", "[0, 1]", "null"}) {
    is_for(layers);
    EXPECT_NE(problem(ErrorKind::kModel, files).find("layers.1."), std::string::npos) << layers;
  }
}

TEST_F(LoraRefusalTest, NamesATensorWithANumberThatIsNotFinite) {
  for (const float number : {NAN, INFINITY, -INFINITY}) {
    LoraFiles files = LoraFiles::random(1, modules_of(kLlama, {"self_attn"}));
    files.tensors[3].values[5] = number;
    EXPECT_NE(problem(ErrorKind::kModel, files).find("no finite number"), std::string::npos);
  }
}

TEST_F(LoraRefusalTest, TwoAdaptersHaveTwoNames) {
  const std::string path = LoraFiles::random(1, modules_of(kLlama, {"self_attn"})).write(dir_, "x");
  LoadOptions options = lora_options();
  options.adapters.adapters = {{"x", path}, {"x", path}};
  EXPECT_NE(
      message_of(ErrorKind::kUsage,
                 [&] { LoadedModel(*device_, model::find_model(dir_.path().string()), options); })
          .find("two adapters"),
      std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Devices, LoraTest, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::engine::lora
