// Ends a text at the first of several stop strings that comes, even where tokens divide the string.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace encore::text {

// Passes text on, but holds back text that may be the start of a stop string until it is known. The
// stop string that is complete first ends the text; of two strings that are complete at once, the
// longer one does. So the end does not depend on how the text is divided. Threads: one at a time.
class StopStrings {
 public:
  // `include_in_output` makes the text end behind the stop string rather than in front of it.
  // REQUIRES: no string is empty.
  explicit StopStrings(std::vector<std::string> strings, bool include_in_output = false);

  // Returns the text that can be shown now. After the text has ended, it returns no more text.
  std::string push(std::string_view text);
  // Ends the text and returns the text that is still held back. REQUIRES: nothing is pushed
  // afterwards.
  std::string finish();
  // Returns the stop string that ended the text; nullopt where none has.
  [[nodiscard]] const std::optional<std::string>& matched() const { return matched_; }

 private:
  struct Pattern {
    std::string text;
    // Maps the length of each prefix of `text` to the length of the longest shorter prefix with
    // which that prefix ends.
    std::vector<size_t> fallback;
    size_t length = 0;  // length of the prefix with which the text so far ends

    void push(char byte);
  };

  std::vector<Pattern> patterns_;
  bool include_in_output_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace encore::text
