#include "backend/tuning_cache.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "base/testing/temp_dir.h"

namespace encore {
namespace {

namespace fs = std::filesystem;

const TuningKey kKey = {{"device", "NVIDIA H200"}, {"driver", "580.1 13.0"}, {"source", "abc"}};
constexpr const char* kLaunch = "linear.x 1.2 bf16[64,4096], bf16[4096,4096] -> bf16[64,4096]";

class TuningCacheTest : public testing::Test {
 protected:
  TuningCache open(const TuningKey& key = kKey) { return {directory_, key}; }
  void save_one() {
    TuningCache cache = open();
    cache.add(kLaunch, {"a", 12.5, 14});
    ASSERT_TRUE(cache.save());
  }
  // Returns the warning of a reader that finds `text` in the file. Expects that the reader sees
  // `expected_choices` choices.
  std::string warning_of(const std::string& text, size_t expected_choices = 0) {
    fs::create_directories(directory_);
    std::ofstream(path_) << text;
    testing::internal::CaptureStderr();
    EXPECT_EQ(open().choices().size(), expected_choices) << text;
    return testing::internal::GetCapturedStderr();
  }

  TempDir dir_;
  fs::path directory_ = dir_.path() / "tuning";
  fs::path path_ = open().path();  // path of the file for kKey
};

std::string content(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_F(TuningCacheTest, ReadsBackWhatItSaved) {
  {
    TuningCache cache = open();
    EXPECT_EQ(cache.find(kLaunch), nullptr);
    cache.add(kLaunch, {"line \"1\"\n\\", 12.5, 14});
    cache.add("other", {"0123", 0, 0});
    EXPECT_TRUE(cache.save());
  }
  const TuningCache cache = open();
  ASSERT_NE(cache.find(kLaunch), nullptr);
  EXPECT_EQ(cache.find(kLaunch)->config, "line \"1\"\n\\");
  EXPECT_EQ(cache.find(kLaunch)->microseconds, 12.5);
  EXPECT_EQ(cache.find(kLaunch)->first_guess_microseconds, 14);
  EXPECT_EQ(cache.choices().size(), 2U);
  // The directory holds only the cache file, so no temporary file was left.
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(TuningCacheTest, WritesNothingWithoutSomethingNew) {
  EXPECT_TRUE(open().save());
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(TuningCacheTest, EveryPartOfTheKeyHasAFileOfItsOwn) {
  save_one();
  for (const auto& [name, value] : kKey) {
    TuningKey other = kKey;
    other[name] = value + "1";
    EXPECT_NE(open(other).path(), open().path());
    EXPECT_EQ(open(other).find(kLaunch), nullptr) << name;
  }
  EXPECT_NE(open().find(kLaunch), nullptr);
}

TEST(EnvironmentText, NamesTheVariablesThatAreSetWithTheirValues) {
  constexpr std::array kVariables = {"ENCORE_TEST_A", "ENCORE_TEST_B", "ENCORE_TEST_C"};
  EXPECT_EQ(environment_text(kVariables), "");
  setenv("ENCORE_TEST_C", "2", 1);
  EXPECT_EQ(environment_text(kVariables), "ENCORE_TEST_C=2");
  setenv("ENCORE_TEST_A", "", 1);
  EXPECT_EQ(environment_text(kVariables), "ENCORE_TEST_A= ENCORE_TEST_C=2");
  unsetenv("ENCORE_TEST_A");
  unsetenv("ENCORE_TEST_C");
}

TEST_F(TuningCacheTest, AMalformedFileCountsAsNoneWithOneLineThatNamesIt) {
  save_one();
  const std::string good = content(path_);
  EXPECT_EQ(warning_of(good, 1), "");
  std::vector<std::string> bad = {
      "",        "{", "[]", "null", "{\"format\": 2}", "\xff\xfe", good.substr(0, good.size() / 2),
      good + "x"};
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"a\"", "1"},
                                                        {"\"us\": 12.500", "\"us\": \"soon\""},
                                                        {"\"choices\": {", "\"c\": {"}}) {
    std::string text = good;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    bad.push_back(text.replace(text.find(from), from.size(), to));
  }
  for (const std::string& text : bad) {
    const std::string warning = warning_of(text);
    EXPECT_NE(warning.find(path_.filename().string()), std::string::npos) << text;
    EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << warning;
  }
  // The file is then written anew without a warning.
  testing::internal::CaptureStderr();
  TuningCache cache = open();
  cache.add(kLaunch, {"a", 1, 1});
  (void)testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  EXPECT_TRUE(cache.save());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_NE(open().find(kLaunch), nullptr);
}

TEST_F(TuningCacheTest, AFileOfAnotherKeyInItsPlaceCountsAsNone) {
  save_one();
  TuningKey other = kKey;
  other["source"] = "def";
  fs::copy_file(path_, open(other).path());
  testing::internal::CaptureStderr();
  EXPECT_EQ(open(other).find(kLaunch), nullptr);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("of another device"), std::string::npos);
}

TEST_F(TuningCacheTest, WritersMergeWhatTheyAdded) {
  TuningCache first = open();
  TuningCache second = open();
  first.add("first", {"1", 1, 1});
  first.add("both", {"1", 1, 1});
  EXPECT_TRUE(first.save());
  second.add("second", {"2", 2, 2});
  second.add("both", {"2", 2, 2});
  EXPECT_TRUE(second.save());
  const TuningCache merged = open();
  EXPECT_EQ(merged.choices().size(), 3U);
  EXPECT_EQ(merged.find("both")->config, "2");
}

TEST_F(TuningCacheTest, ConcurrentProcessesLoseNothingAndReadersSeeWholeFiles) {
  constexpr int kProcesses = 4;
  constexpr int kSaves = 20;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = true;
      TuningCache cache = open();
      for (int i = 0; i < kSaves; ++i) {
        cache.add(fmt::format("{} {}", process, i), {"c", 1, 1});
        good &= cache.save();
        good &= open().choices().size() >= static_cast<size_t>(i) + 1;
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(open().choices().size(), static_cast<size_t>(kProcesses * kSaves));
}

// Where a file system has no locks, a process of another container may write at the same time.
TEST_F(TuningCacheTest, WritesBesideAnotherProcessOfTheSameNumber) {
  save_one();
  fs::create_directory(fmt::format("{}.{}", path_.string(), getpid()));
  TuningCache cache = open();
  cache.add("other", {"a", 1, 1});
  EXPECT_TRUE(cache.save());
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms{0644});
}

TEST_F(TuningCacheTest, ADirectoryThatCannotBeWrittenCostsOneLine) {
  const fs::path file = directory_ / "file";
  fs::create_directories(directory_);
  std::ofstream(file) << "not a directory";
  for (const fs::path& place : {file / "below", fs::path("/proc/encore")}) {
    TuningCache cache(place, kKey);
    cache.add(kLaunch, {"a", 1, 1});
    testing::internal::CaptureStderr();
    EXPECT_FALSE(cache.save());
    const std::string warning = testing::internal::GetCapturedStderr();
    EXPECT_NE(warning.find("--tuning-cache"), std::string::npos) << warning;
    EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << warning;
    EXPECT_NE(cache.find(kLaunch), nullptr);
  }
}

TEST_F(TuningCacheTest, AReadOnlyDirectoryIsReadAndNotWritten) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  save_one();
  fs::permissions(directory_, fs::perms::owner_read | fs::perms::owner_exec);
  TuningCache cache = open();
  EXPECT_NE(cache.find(kLaunch), nullptr);
  cache.add("other", {"a", 1, 1});
  EXPECT_FALSE(cache.save());
  fs::permissions(directory_, fs::perms::owner_all);
}

TEST_F(TuningCacheTest, FilesOfADirectoryAreListedWithTheirKeys) {
  EXPECT_TRUE(tuning_files(directory_).empty());
  save_one();
  std::ofstream(directory_ / "tuning-0.json") << "{";
  std::ofstream(directory_ / "notes.txt") << "mine";
  const std::vector<TuningFile> files = tuning_files(directory_);
  ASSERT_EQ(files.size(), 2U);
  EXPECT_FALSE(files[0].problem.empty());
  EXPECT_EQ(files[1].key, kKey);
  EXPECT_EQ(files[1].num_choices, 1U);
}

TEST_F(TuningCacheTest, SaysWhyADirectoryCannotBeWritten) {
  EXPECT_EQ(write_problem(directory_), std::nullopt);
  EXPECT_TRUE(fs::is_empty(directory_));
  const fs::path file = dir_.path() / "file";
  std::ofstream(file) << "no directory";
  const auto problem = write_problem(file / "tuning");
  ASSERT_TRUE(problem);
  EXPECT_NE(problem->find("Not a directory"), std::string::npos) << *problem;
}

}  // namespace
}  // namespace encore
