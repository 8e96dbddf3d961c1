// Ends a text where one of some strings first comes, wherever tokens divide it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace encore::text {

// Lets text through but for what may be the start of a stop string, which waits until it is known.
// The string that is complete first ends the text; of two that are complete at once, the longer
// one. So the end does not depend on how the text is divided. Threads: one at a time.
class StopStrings {
 public:
  // REQUIRES: no string is empty. `include_in_output`: the text ends behind the stop string rather
  // than in front of it.
  explicit StopStrings(std::vector<std::string> strings, bool include_in_output = false);

  // Returns the text that can be shown now. Behind the end, nothing more comes.
  std::string push(std::string_view text);
  // Ends the text and returns what is still held back. REQUIRES: nothing is pushed afterwards.
  std::string finish();
  // The stop string that ended the text.
  [[nodiscard]] const std::optional<std::string>& matched() const { return matched_; }

 private:
  struct Pattern {
    std::string text;
    // For each length of a prefix: the length of the longest shorter prefix that ends as it does.
    std::vector<size_t> fallback;
    size_t length = 0;  // of the prefix that the text so far ends with

    void push(char byte);
  };

  std::vector<Pattern> patterns_;
  bool include_in_output_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace encore::text
