#include "text/stop_strings.h"

#include <random>

#include <gtest/gtest.h>

namespace encore::text {
namespace {

TEST(StopStrings, LetsThroughWhatCannotBecomeAStopString) {
  StopStrings stops({"###", "END"});
  EXPECT_EQ(stops.push("Hello E"), "Hello ");
  EXPECT_EQ(stops.push("lse #"), "Else ");
  EXPECT_EQ(stops.push("#"), "");
  EXPECT_EQ(stops.push("1"), "##1");
  EXPECT_EQ(stops.finish(), "");
  EXPECT_FALSE(stops.matched());
}

TEST(StopStrings, EndsInFrontOfAStringThatSeveralPiecesMake) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("text E"), "text ");
  EXPECT_EQ(stops.push("N"), "");
  EXPECT_EQ(stops.push("D more"), "");
  EXPECT_EQ(stops.matched(), "END");
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, EndsBehindItWhereAsked) {
  StopStrings stops({"END"}, true);
  EXPECT_EQ(stops.push("a E"), "a ");
  EXPECT_EQ(stops.push("ND b"), "END");
}

TEST(StopStrings, GivesBackAtTheEndWhatItHeld) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("the EN"), "the ");
  EXPECT_EQ(stops.finish(), "EN");
}

TEST(StopStrings, FindsAStringThatStartsWithinAFailedStart) {
  StopStrings stops({"aab"});
  EXPECT_EQ(stops.push("aaaab"), "aa");
  EXPECT_EQ(stops.matched(), "aab");
}

TEST(StopStrings, TakesTheLongerOfTwoThatAreCompleteAtOnce) {
  StopStrings stops({"d", "cd"});
  EXPECT_EQ(stops.push("abcd"), "ab");
  EXPECT_EQ(stops.matched(), "cd");
}

// Cuts the whole text where StopStrings should end it, however the text is divided.
std::string expected(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopStrings, EndsAtTheSamePlaceHoweverTheTextIsDivided) {
  std::mt19937 random(7);
  const auto draw = [&](size_t length) {
    std::string text;
    while (text.size() < length)
      text.push_back(static_cast<char>('a' + random() % 3));
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::vector<std::string> strings = {draw(1 + random() % 6), draw(2 + random() % 5),
                                              draw(4)};
    const std::string text = draw(40);
    StopStrings stops(strings);
    std::string shown;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 5;
      shown += stops.push(std::string_view(text).substr(at, length));
      at += length;
    }
    shown += stops.finish();
    EXPECT_EQ(shown, expected(text, strings)) << text;
  }
}

}  // namespace
}  // namespace encore::text
