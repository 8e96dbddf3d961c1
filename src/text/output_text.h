// Turns a request's tokens into text as they come, and finds where the text ends.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace encore::text {

// The strings and tokens that end a text, beside its length. A string or token within the first
// `min_tokens` tokens does not end it.
struct StopRules {
  std::vector<std::string> strings;
  std::vector<int32_t> tokens;      // that the request names: the text shows none of them
  std::vector<int32_t> end_tokens;  // of the model; empty to ignore them
  int64_t min_tokens = 0;
  bool include_in_output = false;  // shows the stop string or token that ended the text
  bool skip_special_tokens = true;
  std::vector<int32_t> shown_tokens;  // special ones that are shown all the same
};

// Threads: one at a time. Lifetime: the tokenizer must outlive it.
class OutputText {
 public:
  // `prompt`: the ids in front of the text, as the first token may need them to be decoded.
  OutputText(const Tokenizer& tokenizer, std::span<const int32_t> prompt, StopRules rules);

  // The text that can be shown now. Tokens behind the end are ignored.
  std::string push(std::span<const int32_t> ids);
  // Returns the text that is still held back, where the text ends for another reason than a stop.
  std::string finish();

  // Has a stop string or token ended the text?
  [[nodiscard]] bool is_stopped() const { return is_stopped_; }
  // Has the last token ended the text without being part of it?
  [[nodiscard]] bool hides_last() const { return hides_last_; }
  // The string or token of the request that ended the text; nothing where a token of the model did.
  [[nodiscard]] const std::variant<std::monostate, std::string, int32_t>& stop_reason() const {
    return stop_reason_;
  }
  // The tokens that count as generated: those up to the end.
  [[nodiscard]] int64_t num_tokens() const { return num_tokens_; }

 private:
  void push_one(int32_t id, std::string& shown);
  // Does a stop token end the text here?
  bool ends(int32_t id);

  StopRules rules_;
  Detokenizer detokenizer_;
  StopStrings stop_strings_;
  int64_t num_tokens_ = 0;
  bool is_stopped_ = false;
  bool hides_last_ = false;
  std::variant<std::monostate, std::string, int32_t> stop_reason_;
};

}  // namespace encore::text
