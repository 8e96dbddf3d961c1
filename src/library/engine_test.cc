#include <algorithm>
#include <atomic>
#include <cctype>
#include <string>
#include <thread>
#include <vector>

#include <encore/engine.h>
#include <gtest/gtest.h>

namespace encore {
namespace {

using std::chrono::milliseconds;

constexpr const char* kPrompt = "Once upon a time";
// Holds the parameters of a request that is still running when the other requests of a test have
// come and ended.
const Settings kLong = {{"max_tokens", 900}, {"ignore_eos", true}};

// Returns options of an engine that starts quickly.
Settings options(int max_batch_size = 8) {
  return {{"device", "cpu"},
          {"max_batch_size", max_batch_size},
          {"max_num_tokens", 64},
          {"max_seq_len", 1024}};
}

// Returns the status and the text of the error that `call` throws.
template <typename Call>
std::pair<encore_status, std::string> failure(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.status(), error.what()};
  }
  return {ENCORE_OK, ""};
}

void expect_usage(const std::pair<encore_status, std::string>& failure, const std::string& words) {
  EXPECT_EQ(failure.first, ENCORE_USAGE);
  EXPECT_NE(failure.second.find(words), std::string::npos) << failure.second;
}

TEST(LibraryEngine, StreamsWhatItGivesAsAWhole) {
  Engine engine(options());
  const Settings parameters = {{"max_tokens", 20}};
  const Update whole = engine.submit(kPrompt, parameters).wait();
  EXPECT_EQ(whole.finish, ENCORE_FINISH_LENGTH);
  EXPECT_EQ(whole.tokens.size(), 20U);
  EXPECT_FALSE(whole.text.empty());

  // A thread that calls late gets everything in one update.
  int num_updates = 0;
  for (int round = 0; round < 100 && num_updates < 2; ++round) {
    Request request = engine.submit(kPrompt, parameters);
    Update streamed;
    num_updates = 0;
    while (auto update = request.next()) {
      EXPECT_FALSE(streamed.finish);
      streamed.text += update->text;
      streamed.tokens.insert(streamed.tokens.end(), update->tokens.begin(), update->tokens.end());
      streamed.finish = update->finish;
      ++num_updates;
    }
    EXPECT_TRUE(request.has_ended());
    EXPECT_EQ(streamed.text, whole.text);
    EXPECT_EQ(streamed.tokens, whole.tokens);
  }
  EXPECT_GT(num_updates, 1);
}

TEST(LibraryEngine, SaysHowLikelyEachTokenWas) {
  Engine engine(options());
  const Update update = engine.submit(kPrompt, {{"max_tokens", 12}, {"logprobs", 3}}).wait();
  ASSERT_EQ(update.logprobs.size(), update.tokens.size());
  for (size_t i = 0; i < update.tokens.size(); ++i) {
    const Logprobs& row = update.logprobs[i];
    ASSERT_EQ(row.top.size(), 3U);
    EXPECT_EQ(row.rank, 1) << "the likeliest is taken";
    EXPECT_EQ(row.top[0].token, update.tokens[i]);
    EXPECT_EQ(row.top[0].logprob, row.logprob);
    EXPECT_LE(row.logprob, 0);
    EXPECT_GE(row.top[0].logprob, row.top[1].logprob);
    EXPECT_GE(row.top[1].logprob, row.top[2].logprob);
  }
  EXPECT_TRUE(engine.submit(kPrompt, {{"max_tokens", 2}}).wait().logprobs.empty());
  const Update stopped =
      engine.submit(kPrompt, {{"max_tokens", 60}, {"logprobs", 0}, {"stop", "."}}).wait();
  EXPECT_EQ(stopped.logprobs.size(), stopped.tokens.size());
  EXPECT_TRUE(stopped.logprobs.at(0).top.empty());
}

TEST(LibraryEngine, HoldsATextToWhatItIsAskedToFit) {
  Engine engine(options());
  const auto text = [&](const char* name, const char* value) {
    const Settings parameters = {
        {"max_tokens", 60}, {"temperature", 1}, {"seed", 3}, {name, value}};
    return engine.submit(kPrompt, parameters).wait().text;
  };
  const std::string matched = text("regex", "[0-9]{3}-[a-f]{2}");
  EXPECT_EQ(matched.size(), 6U);
  EXPECT_EQ(matched.find_first_not_of("0123456789"), 3U) << matched;
  EXPECT_EQ(matched[3], '-') << matched;
  EXPECT_EQ(matched.find_first_not_of("abcdef", 4), std::string::npos) << matched;
  EXPECT_EQ(text("choice", "neither cat nor dog"), "neither cat nor dog");
  EXPECT_EQ(text("grammar", "root ::= \"ab\" | \"cd\"").size(), 2U);
  EXPECT_EQ(text("json_schema", R"({"const": {"a": [1, null]}})"), R"({"a":[1,null]})");
  expect_usage(failure([&] { text("regex", "a("); }), "");
  expect_usage(failure([&] {
                 engine.submit(kPrompt, {{"regex", "a"}, {"choice", "b"}});
               }),
               "one of json_object");
}

TEST(LibraryEngine, MakesAPromptOfAConversation) {
  Engine engine(options());
  const Settings parameters = {{"max_tokens", 8}, {"ignore_eos", true}};
  const char* const hello =
      R"([{"role": "user", "content": "  Tom had a dog. "}, {"role": "assistant", "content": "It ran."},
          {"role": "user", "content": "One day"}])";
  const Update update = engine.submit_chat(hello, parameters).wait();
  EXPECT_EQ(update.tokens.size(), 8U);
  // The text of the second request is the prompt that the bundled model's chat template writes for
  // the conversation of the first.
  EXPECT_EQ(update.tokens,
            engine.submit("Tom had a dog. It ran.\n\nOne day", parameters).wait().tokens);
  const char* const robot = R"([{"role": "robot", "content": "Beep."}])";
  expect_usage(failure([&] { engine.submit_chat(robot, parameters); }), "knows no role robot");
  expect_usage(failure([&] { engine.submit_chat("[{]", parameters); }), "messages");
  expect_usage(failure([&] { engine.submit_chat("{}", parameters); }), "messages is a JSON array");
  expect_usage(failure([&] { engine.submit_chat(R"(["hello"])", parameters); }), "messages");
  expect_usage(failure([&] {
                 engine.submit_chat(hello, {{"chat_template_kwargs", "[]"}});
               }),
               "chat_template_kwargs is a JSON object");
}

TEST(LibraryEngine, AStopStringEndsTheTextAndIsNotShown) {
  Engine engine(options());
  const std::string text = engine.submit(kPrompt, {{"max_tokens", 60}}).wait().text;
  const std::string stop = text.substr(text.size() / 2, 3);
  const Settings stops = {{"max_tokens", 60}, {"stop", "never in it"}, {"stop", stop}};
  const Update stopped = engine.submit(kPrompt, stops).wait();
  EXPECT_EQ(stopped.finish, ENCORE_FINISH_STOP);
  EXPECT_EQ(stopped.text, text.substr(0, text.find(stop)));
  EXPECT_LT(stopped.tokens.size(), 60U);

  Settings shown = stops;
  shown.emplace_back("include_stop_str_in_output", true);
  EXPECT_EQ(engine.submit(kPrompt, shown).wait().text, stopped.text + stop);
  EXPECT_TRUE(engine.drain());
  EXPECT_EQ(engine.statistics().num_finished[ENCORE_FINISH_STOP], 2);
}

TEST(LibraryEngine, NothingIsGeneratedBehindAStopString) {
  Engine engine(options());
  Settings parameters = kLong;
  parameters.emplace_back("stop", "a");
  EXPECT_EQ(engine.submit(kPrompt, parameters).wait().finish, ENCORE_FINISH_STOP);
  EXPECT_TRUE(engine.drain());
  EXPECT_LT(engine.statistics().generated_tokens, 900);
}

TEST(LibraryEngine, AStopTokenEndsTheText) {
  Engine engine(options());
  const std::vector<int32_t> tokens = engine.submit(kPrompt, {{"max_tokens", 9}}).wait().tokens;
  const Update stopped = engine.submit(kPrompt, {{"stop_token_ids", tokens[8]}}).wait();
  EXPECT_EQ(stopped.finish, ENCORE_FINISH_STOP);
  const auto end = std::find(tokens.begin(), tokens.end(), tokens[8]) + 1;
  EXPECT_EQ(stopped.tokens, std::vector(tokens.begin(), end));
}

TEST(LibraryEngine, AbortEndsARequestAndNoOther) {
  Engine engine(options());
  Request aborted = engine.submit(kPrompt, kLong);
  Request other = engine.submit(kPrompt, {{"max_tokens", 50}, {"ignore_eos", true}});
  ASSERT_TRUE(aborted.next());
  aborted.abort();
  EXPECT_EQ(aborted.wait().finish, ENCORE_FINISH_ABORTED);
  EXPECT_EQ(other.wait().finish, ENCORE_FINISH_LENGTH);
  aborted.abort();
  EXPECT_FALSE(aborted.next());
}

TEST(LibraryEngine, DrainFinishesWhatIsInHandAndTakesNoMore) {
  Engine engine(options());
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i)
    requests.push_back(engine.submit(kPrompt, {{"max_tokens", 30}, {"ignore_eos", true}}));
  EXPECT_TRUE(engine.drain());
  EXPECT_EQ(failure([&] { engine.submit(kPrompt); }).first, ENCORE_DRAINING);
  for (Request& request : requests) {
    const auto all = request.next(milliseconds(0));
    ASSERT_TRUE(all);
    EXPECT_EQ(all->finish, ENCORE_FINISH_LENGTH);
    EXPECT_EQ(all->tokens.size(), 30U);
  }
  const encore_statistics statistics = engine.statistics();
  EXPECT_EQ(statistics.generated_tokens, 12 * 30);
  EXPECT_EQ(statistics.num_finished[ENCORE_FINISH_LENGTH], 12);
  EXPECT_EQ(statistics.num_running + statistics.num_waiting, 0);
  EXPECT_EQ(statistics.num_free_pages, statistics.num_pages);
  EXPECT_GT(statistics.num_steps, 0);
}

TEST(LibraryEngine, WaitsForNoLongerThanItIsTold) {
  Engine engine(options(1));
  Request first = engine.submit(kPrompt, kLong);
  Request second = engine.submit(kPrompt, {{"max_tokens", 1}});
  EXPECT_FALSE(second.next(milliseconds(0)));
  EXPECT_FALSE(second.has_ended());
  EXPECT_FALSE(engine.drain(milliseconds(0)));
  first.abort();
  EXPECT_EQ(second.wait().tokens.size(), 1U);
}

TEST(LibraryEngine, RefusesWhatItsQueueCannotHold) {
  Settings settings = options(1);
  settings.emplace_back("max_queue", 0);
  Engine engine(settings);
  Request only = engine.submit(kPrompt, kLong);
  EXPECT_EQ(failure([&] { engine.submit(kPrompt); }).first, ENCORE_QUEUE_FULL);
  only.abort();
  only.wait();
  EXPECT_EQ(engine.submit(kPrompt, {{"max_tokens", 2}}).wait().tokens.size(), 2U);
}

TEST(LibraryEngine, ManyThreadsGetWhatEachGetsAlone) {
  constexpr int kNumThreads = 8;
  constexpr int kNumEach = 4;
  Engine engine(options());
  const auto generate = [&](int seed) {
    return engine.submit(kPrompt, {{"max_tokens", 16}, {"temperature", 1.0}, {"seed", seed}})
        .wait()
        .tokens;
  };
  std::vector<std::vector<int32_t>> alone;
  for (int seed = 0; seed < kNumEach; ++seed)
    alone.push_back(generate(seed));
  EXPECT_NE(alone[0], alone[1]);
  std::atomic<int> num_equal = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kNumThreads; ++i) {
    threads.emplace_back([&] {
      for (int seed = 0; seed < kNumEach; ++seed)
        num_equal += generate(seed) == alone[seed] ? 1 : 0;
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(num_equal, kNumThreads * kNumEach);
}

TEST(LibraryEngine, RequestsAlikeShareTheirPrompt) {
  Settings settings = options();
  settings.emplace_back("page_size", 16);
  Engine engine(settings);
  std::vector<int32_t> prompt;
  for (int i = 0; i < 40; ++i)
    prompt.push_back(100 + i);
  EXPECT_EQ(engine.submit_tokens(prompt, {{"max_tokens", 2}}).wait().num_cached_tokens, 0);
  EXPECT_EQ(engine.submit_tokens(prompt, {{"max_tokens", 2}}).wait().num_cached_tokens, 32);
  EXPECT_EQ(engine.statistics().cached_prompt_tokens, 32);
}

TEST(LibraryEngine, ARequestOutlivesItsEngine) {
  std::optional<Request> request;
  {
    Engine engine(options());
    request = engine.submit(kPrompt, kLong);
  }
  const Update all = request->wait();
  EXPECT_EQ(all.finish, ENCORE_FINISH_ABORTED);
  request->abort();
}

TEST(LibraryEngine, TwoAreIndependent) {
  Engine one(options());
  Engine two(options());
  const Update first = one.submit(kPrompt, {{"max_tokens", 8}}).wait();
  EXPECT_TRUE(one.drain());
  EXPECT_EQ(two.submit(kPrompt, {{"max_tokens", 8}}).wait().tokens, first.tokens);
}

TEST(LibraryEngine, SaysWhatIsWrongWithAnOption) {
  const auto open = [](const Settings& settings) {
    return failure([&] { Engine engine(settings); });
  };
  expect_usage(open({{"max_batch_sise", 8}}), "did you mean 'max_batch_size'");
  expect_usage(open({{"max_batch_size", "many"}}), "max_batch_size is a whole number");
  expect_usage(open({{"max_batch_size", 8}, {"max_batch_size", 9}}), "given twice");
  expect_usage(open({{"port", 8000}}), "encore serve");
  expect_usage(open({{"model", "/no/such/model"}}), "no model '/no/such/model'");
}

TEST(LibraryEngine, SaysWhyAnAdapterIsNotLoaded) {
  Engine engine(options());
  expect_usage(failure([&] { engine.load_adapter("x", "/none"); }), "no room for adapters");
  Settings with_room = options();
  with_room.emplace_back("max_loras", 1);
  Engine other(with_room);
  expect_usage(failure([&] { other.load_adapter("x", "/none"); }), "an adapter is a directory");
  expect_usage(failure([&] { other.unload_adapter("x"); }), "no adapter");
  expect_usage(failure([&] { other.submit(kPrompt, {{"adapter", "x"}}); }), "no adapter");
}

TEST(LibraryEngine, SaysWhatIsWrongWithARequest) {
  Engine engine(options());
  const auto submit = [&](const std::string& prompt, const Settings& settings) {
    return failure([&] { engine.submit(prompt, settings); });
  };
  expect_usage(submit(kPrompt, {{"temprature", 1}}), "did you mean 'temperature'");
  expect_usage(submit(kPrompt, {{"temperature", "hot"}}), "temperature is a number, not 'hot'");
  expect_usage(submit(kPrompt, {{"top_k", 1.5}}), "top_k is a whole number");
  expect_usage(submit(kPrompt, {{"top_p", 2}}), "top_p is at least 0 and at most 1");
  expect_usage(submit(kPrompt, {{"max_tokens", 0}}), "max_tokens is at least 1");
  expect_usage(submit(kPrompt, {{"max_tokens", 2000}}), "2000");
  expect_usage(submit(kPrompt, {{"seed", 1}, {"seed", 2}}), "seed is given twice");
  expect_usage(failure([&] { engine.submit_tokens({}); }), "empty");
  expect_usage(failure([&] { engine.submit_tokens({1, 1 << 30}); }), "vocabulary");
  EXPECT_EQ(engine.submit(kPrompt, {{"max_tokens", 3}}).wait().tokens.size(), 3U);
}

}  // namespace
}  // namespace encore
