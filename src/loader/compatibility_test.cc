#include "loader/compatibility.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include "base/source_dir.h"
#include "loader/loaded_model.h"

namespace encore::loader {
namespace {

namespace fs = std::filesystem;

// "Suite.Name" for each test that the source tree has.
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
  for (const RefusedPair& pair : refused_pairs())
    EXPECT_TRUE(tests.contains(std::string(pair.test))) << name(pair.feature) << ": " << pair.test;
}

void ask_for(Feature feature, LoadOptions& options) {
  switch (feature) {
    case Feature::kAdapters:
      options.adapters.num_slots = 3;
      return;
    case Feature::kBursts:
      options.bursts = true;
      return;
    case Feature::kDraftModel:
      options.draft.emplace();
      return;
    case Feature::kDrafts:
      options.limits.num_drafts = 4;
      return;
    case Feature::kRanks:
      options.rank.size = 2;
      return;
  }
}

TEST(Compatibility, ARefusedPairNamesBothOptionsAndOneAloneIsNotRefused) {
  for (const RefusedPair& pair : refused_pairs()) {
    LoadOptions options;
    EXPECT_EQ(asked(pair.feature, options), std::nullopt) << name(pair.feature);
    ask_for(pair.feature, options);
    check_pairs(options);
    const std::string feature = asked(pair.feature, options).value();
    EXPECT_EQ(asked(pair.other, options), std::nullopt) << name(pair.other);
    ask_for(pair.other, options);
    try {
      check_pairs(options);
      ADD_FAILURE() << name(pair.feature) << " with " << name(pair.other);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), pair.kind);
      EXPECT_EQ(error.what(), fmt::format("{} with {}: {}; leave out one of the two", feature,
                                          asked(pair.other, options).value(), pair.why));
    }
    LoadOptions alone;
    ask_for(pair.other, alone);
    check_pairs(alone);
  }
}

}  // namespace
}  // namespace encore::loader
