#include "cli/take_options.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"
#include "cli/options.h"

namespace encore::cli {
namespace {

using config::Group;
using config::Settings;

// Returns the settings of a verb that takes these options, after a call with these arguments.
Settings parse(const Taken& taken, std::vector<std::string> arguments) {
  Command app("encore", "", "encore 1");
  Settings settings;
  Settings seen;
  Command* verb = app.add_subcommand("verb", "A verb");
  take_options(*verb, settings, taken);
  verb->callback([&] { seen = settings; });
  arguments.insert(arguments.begin(), {"encore", "verb"});
  std::vector<char*> argv;
  for (std::string& argument : arguments)
    argv.push_back(argument.data());
  app.parse(static_cast<int>(argv.size()), argv.data());
  return seen;
}

std::string problem(const Taken& taken, const std::vector<std::string>& arguments) {
  return message_of(ErrorKind::kUsage, [&] { (void)parse(taken, arguments); });
}

TEST(TakeOptions, LetFlagsWinOverTheFileAndTheFileOverTheTable) {
  const TempDir folder;
  const std::string path =
      folder.write("c.yml", "port: 81\nmax_queue: 5\npage_size: 16\nverbose: on\n").string();
  const Taken taken{.groups = {Group::kServer}, .also = {"verbose"}};
  const Settings settings = parse(taken, {"--config", path, "--port", "82"});
  EXPECT_EQ(settings.http.port, 82);
  EXPECT_EQ(settings.serving.max_queue, 5);
  EXPECT_EQ(settings.drain_timeout_s, 30);
  EXPECT_TRUE(settings.verbose);
  // The verb does not take page_size, so it keeps its default.
  EXPECT_EQ(settings.load.page_size, 32);
}

TEST(TakeOptions, TakeSomeTextsWholeAndNamesBetweenCommas) {
  const Taken taken{.groups = {Group::kServer, Group::kCompiler}};
  const Settings settings = parse(taken, {"--api-key", "a,b", "c", "--api-key", "d",
                                          "--disable-pass", "x,y", "--disable-pass", "z"});
  EXPECT_EQ(settings.api_keys, (std::vector<std::string>{"a,b", "c", "d"}));
  EXPECT_EQ(settings.load.compile.disabled, (std::vector<std::string>{"x", "y", "z"}));
  EXPECT_NE(problem(taken, {"--disable-pass", "x", "--disable-pass", "x"}).find("x is given twice"),
            std::string::npos);
}

TEST(TakeOptions, SayWhichFlagsDoNothing) {
  const TempDir folder;
  const std::string path =
      folder.write("c.yml", "record_order: ascending\ngraphs: full\n").string();
  const Taken taken{.groups = {Group::kDevice, Group::kGraphs, Group::kRecording}};
  const auto said = [&](const std::vector<std::string>& arguments) {
    ::testing::internal::CaptureStderr();
    (void)parse(taken, arguments);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said({"--graphs", "none", "--record-order", "ascending"})
                .find("--record-order has no effect: --graphs is none"),
            std::string::npos);
  EXPECT_NE(said({"--config", path, "--graphs", "none"}).find("--record-order has no effect"),
            std::string::npos);
  EXPECT_NE(said({"--device", "cuda:1", "--threads", "2"})
                .find("--threads has no effect: --device is cuda:1"),
            std::string::npos);
  EXPECT_EQ(said({"--config", path}), "");
  EXPECT_EQ(said({"--graphs", "full", "--record-order", "ascending", "--threads", "2"}), "");
  EXPECT_NE(problem(taken, {"--dialect", "vllm"}).find("--dialect"), std::string::npos);
}

TEST(TakeOptions, RefuseFlagsThatAreNotTakenAndValuesOutOfRange) {
  const Taken taken{.groups = {Group::kServer}, .but = {"host"}};
  EXPECT_NE(problem(taken, {"--page-size", "16"}).find("--page-size"), std::string::npos);
  EXPECT_NE(problem(taken, {"--host", "::1"}).find("--host"), std::string::npos);
  EXPECT_NE(problem(taken, {"--port", "65536"}).find("--port: port is 0 to 65535, not 65536"),
            std::string::npos);
  EXPECT_NE(problem(taken, {"--api-key", ""}).find("--api-key"), std::string::npos);
}

}  // namespace
}  // namespace encore::cli
