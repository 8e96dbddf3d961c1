#include "setup/open.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"
#include "engine/testing/tiny_model.h"
#include "setup/options.h"

namespace encore::setup {
namespace {

// Returns the lines that a start on the device writes to stderr.
std::string lines_of_a_start(Device& device) {
  loader::LoadOptions load;
  load.limits = {.max_num_tokens = 4, .max_batch_size = 2, .max_q = 1, .max_seq_len = 16};
  load.kv_tokens = 64;
  ::testing::internal::CaptureStderr();
  (void)open_model(device, engine::testing::tiny_model(engine::testing::Tiny::kLlama), load, {});
  return ::testing::internal::GetCapturedStderr();
}

TEST(OpenModel, WarnsOfSlowDecodeStepsAndSaysWhy) {
  const auto device = create_cpu_device({.num_threads = 1});
  EXPECT_EQ(lines_of_a_start(*device).find("warning"), std::string::npos);
  engine::testing::slow_down_attention(*device, "heads of 80");
  const std::string lines = lines_of_a_start(*device);
  EXPECT_NE(lines.find("warning: decode steps are slow: heads of 80\n"), std::string::npos)
      << lines;
}

TEST(OpenModel, RefusesADraftModelWithAnotherTokenizer) {
  config::Settings settings;
  settings.draft_model = "stories-draft";
  const model::ModelSource source = open_source(settings);
  const TempDir dir;
  for (const char* file : {"config.json", "model.safetensors", "tokenizer_config.json"})
    std::filesystem::copy(*open_draft_source(settings).checkpoint / file, dir.path() / file);
  std::string tokenizer = json::read_file(*source.checkpoint / "tokenizer.json");
  const auto rename = [&](std::string_view from, std::string_view to) {
    tokenizer.replace(tokenizer.find(from), from.size(), to);
  };
  rename("\"#\": 2,", "\"#\": 3,");
  rename("\"$\": 3,", "\"$\": 2,");
  dir.write("tokenizer.json", tokenizer);
  settings.draft_model = dir.path().string();
  loader::LoadOptions load = load_options(settings);
  load.limits = {.max_num_tokens = 16, .max_batch_size = 2, .max_seq_len = 64, .num_drafts = 2};
  const auto device = create_cpu_device({.num_threads = 1});
  const std::string message =
      message_of(ErrorKind::kUsage, [&] { (void)open_model(*device, source, load, settings); });
  EXPECT_NE(message.find("another tokenizer than the model: token 2 is \"$\" there"),
            std::string::npos)
      << message;
}

TEST(LoadOptions, SayWhichOfTwoSourcesOfDraftsIsToGo) {
  config::Settings settings;
  settings.speculative_method = "draft_model";
  EXPECT_NE(message_of(ErrorKind::kUsage, [&] { (void)load_options(settings); })
                .find("without --draft-model"),
            std::string::npos);
  settings.draft_model = "stories-draft";
  EXPECT_TRUE(load_options(settings).draft.has_value());
  settings.speculative_method = "ngram";
  EXPECT_NE(message_of(ErrorKind::kUsage, [&] { (void)load_options(settings); })
                .find("--speculative-method ngram with --draft-model stories-draft"),
            std::string::npos);
}

TEST(EndTokens, AreThoseOfAllFilesAndWhatTheyDisagreeOnIsSaid) {
  const TempDir dir;
  dir.write("tokenizer.json", R"({"model": {"type": "BPE", "merges": [], "vocab": {
      "<a>": 0, "<b>": 1, "<c>": 2}}})");
  const auto ends = [&](std::vector<int32_t> own, const std::string& config,
                        const std::string& eos) {
    dir.write("config.json", config);
    dir.write("tokenizer_config.json", fmt::format(R"({{"eos_token": "{}"}})", eos));
    const text::Tokenizer tokenizer = text::Tokenizer::load(dir.path());
    model::ModelSource source;
    source.config.eos_token_ids = std::move(own);
    source.checkpoint = dir.path();
    ::testing::internal::CaptureStderr();
    auto tokens = end_tokens(source, &tokenizer);
    return std::pair(tokens, ::testing::internal::GetCapturedStderr());
  };
  EXPECT_EQ(ends({0, 1}, R"({"eos_token_id": 1})", "<b>"),
            std::pair(std::vector{0, 1}, std::string()));
  const auto [tokens, warning] = ends({0}, R"({"eos_token_id": [0, 2]})", "<b>");
  EXPECT_EQ(tokens, (std::vector{0, 2, 1}));
  EXPECT_NE(warning.find("config.json has the end token 2"), std::string::npos) << warning;
  EXPECT_NE(warning.find("1 \"<b>\""), std::string::npos) << warning;
}

}  // namespace
}  // namespace encore::setup
