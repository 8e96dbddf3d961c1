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

// The strings and tokens that end a text before its greatest length. A string or token within the
// first `min_tokens` tokens does not end the text.
struct StopRules {
  std::vector<std::string> strings;
  std::vector<int32_t> tokens;      // stop tokens of the request; the text shows none of them
  std::vector<int32_t> end_tokens;  // end tokens of the model; empty to ignore them
  int64_t min_tokens = 0;
  bool include_in_output = false;  // shows the stop string or token that ended the text
  bool skip_special_tokens = true;
  std::vector<int32_t> shown_tokens;  // special tokens that are shown in any case
};

// Turns the tokens of one request into text. Threads: one at a time. Lifetime: the tokenizer must
// outlive it.
class OutputText {
 public:
  // `prompt` holds the ids in front of the text, since decoding the first token may depend on them.
  OutputText(const Tokenizer& tokenizer, std::span<const int32_t> prompt, StopRules rules);

  // Returns the text that can be shown now. Tokens behind the end of the text are ignored.
  std::string push(std::span<const int32_t> ids);
  // Ends the text for another reason than a stop string or token, and returns the text that is
  // still held back.
  std::string finish();

  // Returns whether a stop string or token has ended the text.
  [[nodiscard]] bool is_stopped() const { return is_stopped_; }
  // Returns whether the last token has ended the text without being part of it.
  [[nodiscard]] bool hides_last() const { return hides_last_; }
  // Returns the request's stop string or stop token that ended the text. Returns monostate where an
  // end token of the model ended the text, or where neither a string nor a token has ended it.
  [[nodiscard]] const std::variant<std::monostate, std::string, int32_t>& stop_reason() const {
    return stop_reason_;
  }
  // Returns how many tokens count as generated: those up to the end of the text.
  [[nodiscard]] int64_t num_tokens() const { return num_tokens_; }

 private:
  void push_one(int32_t id, std::string& shown);
  // Returns whether `id` is a stop token or an end token of the rules. A stop token becomes the
  // stop reason.
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
