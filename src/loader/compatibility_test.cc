#include "loader/compatibility.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include "base/source_dir.h"

namespace encore::loader {
namespace {

namespace fs = std::filesystem;

// Returns "Suite.Name" for each test in the source tree.
std::set<std::string> all_tests() {
  const std::regex head(R"(\nTEST(?:_F|_P)?\((\w+),\s*(\w+)\))");
  std::set<std::string> tests;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(ENCORE_SOURCE_DIR) / "src")) {
    if (!entry.path().filename().string().ends_with("_test.cc")) continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (auto match = std::sregex_iterator(text.begin(), text.end(), head);
         match != std::sregex_iterator(); ++match)
      tests.insert((*match)[1].str() + "." + (*match)[2].str());
  }
  return tests;
}

TEST(Compatibility, EveryRowNamesATestThatThereIs) {
  const std::set<std::string> tests = all_tests();
  ASSERT_GT(tests.size(), 1000U);
  std::set<std::string_view> features;
  for (const Compatibility& row : compatibilities()) {
    EXPECT_TRUE(tests.contains(std::string(row.test))) << row.feature << ": " << row.test;
    EXPECT_TRUE(features.insert(row.feature).second) << row.feature << " stands there twice";
    EXPECT_FALSE(row.how.empty()) << row.feature;
  }
}

}  // namespace
}  // namespace encore::loader
