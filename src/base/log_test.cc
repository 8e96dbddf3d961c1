#include "base/log.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/quiet_thread.h"

namespace encore::log {
namespace {

TEST(Progress, TellsItsListenerWhereTheWorkStands) {
  std::vector<std::string> states;
  Progress::listen([&](const std::string& state) { states.push_back(state); });
  { const Progress progress("loading weights", 16060, "MB", 1e9); }
  { const Progress progress("recording", 51, "sizes", 1e9); }
  Progress::listen(nullptr);
  { const Progress progress("recording", 3, "sizes", 1e9); }
  EXPECT_EQ(states,
            (std::vector<std::string>{"loading weights 0 of 16060 MB", "recording 0 of 51 sizes"}));
}

class LogFormat : public ::testing::Test {
 protected:
  ~LogFormat() override { set_format(Format::kText); }
  static std::string written(const std::vector<Field>& fields) {
    ::testing::internal::CaptureStderr();
    write(Level::kInfo, "request", fields);
    return ::testing::internal::GetCapturedStderr();
  }

  const std::vector<Field> fields_ = {{"path", std::string("/a\n\"b\"")},
                                      {"status", int64_t{200}},
                                      {"first_s", std::monostate()},
                                      {"total_s", 0.25}};
};

TEST_F(LogFormat, TextIsALineWithoutWhatIsNotKnown) {
  EXPECT_EQ(written(fields_), "encore: request path=\"/a\\n\\\"b\\\"\" status=200 total_s=0.25\n");
}

TEST_F(LogFormat, JsonIsAnObjectALine) {
  set_format(Format::kJson);
  const std::string line = written(fields_);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  json::object object = json::parse(line, "line").as_object();
  const std::string time(object.at("time").as_string());
  EXPECT_TRUE(time.size() == 24 && time[10] == 'T' && time.ends_with('Z')) << time;
  object.erase("time");
  EXPECT_EQ(object, (json::object{{"level", "info"},
                                  {"message", "request"},
                                  {"path", "/a\n\"b\""},
                                  {"status", 200},
                                  {"first_s", nullptr},
                                  {"total_s", 0.25}}));
}

TEST_F(LogFormat, ErrorsNameTheirKind) {
  ::testing::internal::CaptureStderr();
  error("usage", "give a port");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "encore: error (usage): give a port\n");
  set_format(Format::kJson);
  ::testing::internal::CaptureStderr();
  error("usage", "give a port");
  const json::value line = json::parse(::testing::internal::GetCapturedStderr(), "line");
  EXPECT_EQ(line.at("level"), "error");
  EXPECT_EQ(line.at("kind"), "usage");
  EXPECT_EQ(line.at("message"), "give a port");
}

TEST(QuietThread, DropsAllButErrorsOfItsThreadAlone) {
  std::vector<std::string> states;
  Progress::listen([&](const std::string& state) { states.push_back(state); });
  ::testing::internal::CaptureStderr();
  {
    const QuietThread quiet;
    warning("unheard");
    { const Progress progress("loading weights", 3, "MB"); }
    std::thread([] { warning("heard"); }).join();
    error("device", "heard too");
  }
  warning("heard again");
  Progress::listen(nullptr);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "encore: warning: heard\nencore: error (device): heard too\n"
            "encore: warning: heard again\n");
  EXPECT_TRUE(states.empty());
}

}  // namespace
}  // namespace encore::log
