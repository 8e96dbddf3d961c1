#include "server/scripted_generator.h"

#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "base/source_dir.h"
#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"

namespace encore::server {
namespace {

using engine::EndReason;

class ScriptedGeneratorTest : public ::testing::Test {
 protected:
  struct Answer {
    std::vector<int32_t> tokens;
    std::optional<engine::Ending> ending;
  };
  engine::RequestId submit(const std::string& prompt, int64_t max_tokens,
                           std::vector<int32_t> stop_tokens) {
    engine::Request request{.prompt = tokenizer_.encode(prompt), .max_tokens = max_tokens};
    request.stop_tokens = std::move(stop_tokens);
    std::vector<engine::Submission> one;
    one.push_back({std::move(request), [this](const engine::Update& update) {
                     answer_.tokens.insert(answer_.tokens.end(), update.tokens.begin(),
                                           update.tokens.end());
                     answer_.ending = update.ending;
                   }});
    return std::get<std::vector<engine::RequestId>>(generator_.submit(std::move(one))).at(0);
  }
  // Submits a request, drains the generator, and returns everything that the request received.
  Answer ask(const std::string& prompt, int64_t max_tokens = 100) {
    submit(prompt, max_tokens, {end_});
    generator_.drain();
    generator_.run();
    return answer_;
  }

  text::Tokenizer tokenizer_ =
      text::Tokenizer::load(std::filesystem::path(ENCORE_SOURCE_DIR) / "models" / "stories");
  int32_t end_ = *tokenizer_.eos_id();
  ScriptedGenerator generator_{
      {.answers = {{"weather", "It rains."}, {"", "I do not know."}}}, tokenizer_, end_, {}};
  Answer answer_;
};

TEST_F(ScriptedGeneratorTest, GivesTheFirstAnswerThatFitsThePrompt) {
  const Answer answer = ask("How is the weather?");
  EXPECT_EQ(tokenizer_.decode(answer.tokens), "It rains.");
  EXPECT_EQ(answer.tokens.back(), end_);
  EXPECT_EQ(answer.ending->reason, EndReason::kStop);
}

TEST_F(ScriptedGeneratorTest, GivesAnAnswerWithoutAConditionToAllOthers) {
  EXPECT_EQ(tokenizer_.decode(ask("How are you?").tokens), "I do not know.");
}

TEST_F(ScriptedGeneratorTest, EndsAtTheLengthThatWasAskedFor) {
  const Answer answer = ask("weather", 2);
  EXPECT_EQ(answer.tokens.size(), 2U);
  EXPECT_EQ(answer.ending->reason, EndReason::kLength);
}

TEST_F(ScriptedGeneratorTest, BeginsAnewWhereNoTokenEndsIt) {
  submit("weather", 50, {});
  generator_.drain();
  generator_.run();
  EXPECT_EQ(answer_.tokens.size(), 50U);
  EXPECT_TRUE(tokenizer_.decode(answer_.tokens).starts_with("It rains.It rains."));
}

TEST_F(ScriptedGeneratorTest, NoTokenComesBeforeItsTime) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kTokenTime = std::chrono::milliseconds(20);
  ScriptedGenerator paced({.token_time = kTokenTime, .answers = {{"", "Paced."}}}, tokenizer_, end_,
                          {});
  std::vector<Clock::time_point> times;
  std::vector<engine::Submission> one;
  one.push_back({{.prompt = {1}, .max_tokens = 3},
                 [&](const engine::Update&) { times.push_back(Clock::now()); }});
  const auto submitted = Clock::now();
  paced.submit(std::move(one));
  paced.drain();
  paced.run();
  ASSERT_EQ(times.size(), 3U);
  EXPECT_GE(times[1] - submitted, kTokenTime);
  EXPECT_GE(times[2] - submitted, 2 * kTokenTime);
}

TEST_F(ScriptedGeneratorTest, ARequestWaitsForNoTokenOfAnother) {
  ScriptedGenerator slow({.token_time = std::chrono::hours(1), .answers = {{"", "Slow."}}},
                         tokenizer_, end_, {});
  std::thread thread([&] { slow.run(); });
  std::atomic<size_t> num_tokens = 0;
  for (size_t i = 0; i < 2; ++i) {
    std::vector<engine::Submission> one;
    one.push_back({{.prompt = {1}, .max_tokens = 2}, [&](const engine::Update& update) {
                     num_tokens += update.tokens.size();
                     num_tokens.notify_all();
                   }});
    slow.submit(std::move(one));
    num_tokens.wait(i);
  }
  slow.stop();
  thread.join();
}

TEST_F(ScriptedGeneratorTest, AnAbortedRequestHasAnEndingAtOnce) {
  ScriptedGenerator slow({.token_time = std::chrono::hours(1), .answers = {{"", "Slow."}}},
                         tokenizer_, end_, {});
  std::thread thread([&] { slow.run(); });
  std::atomic<bool> has_ended = false;
  std::vector<engine::Submission> one;
  one.push_back({{.prompt = {1}, .max_tokens = 9}, [&](const engine::Update& update) {
                   has_ended = update.ending && update.ending->reason == EndReason::kAborted;
                   has_ended.notify_all();
                 }});
  const auto ids = std::get<std::vector<engine::RequestId>>(slow.submit(std::move(one)));
  slow.abort(ids[0]);
  has_ended.wait(false);
  slow.stop();
  thread.join();
}

TEST_F(ScriptedGeneratorTest, ReadsAScriptAndSaysWhatIsWrongWithOne) {
  const TempDir dir;
  const auto path =
      dir.write("script.json", R"({"token_ms": 7, "answers": [{"when": "a", "text": "b"}]})");
  const Script script = Script::load(path);
  EXPECT_EQ(script.token_time.count(), 7);
  EXPECT_EQ(script.answers.at(0).when, "a");
  dir.write("script.json", R"({"answers": [{"when": "a"}]})");
  const std::string message = message_of(ErrorKind::kUsage, [&] { Script::load(path); });
  EXPECT_NE(message.find("'text'"), std::string::npos) << message;
}

}  // namespace
}  // namespace encore::server
