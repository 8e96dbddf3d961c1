// Many prompts from a file or standard input, for `encore generate --prompts`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "sample/params.h"

namespace encore::cli {

// One line of a file of prompts.
struct PromptLine {
  int line = 0;              // from 1
  json::value id = nullptr;  // the line's own, printed beside its results
  std::string text;          // empty where there are ids
  std::vector<int32_t> ids;
  int64_t n = 1;  // texts to generate
  std::optional<int64_t> max_tokens;
  sample::SamplingParams sampling;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::string adapter;  // as --adapter names it; empty: none
};

// Values for a line that does not set them itself.
using PromptDefaults = PromptLine;

// Reads prompts, one a line: plain text, or a JSON object with `prompt` or `prompt_ids`, and `id`,
// `n`, `max_tokens`, `stop`, `ignore_eos`, `adapter` and the sampling parameters (sample/params.h).
// Empty lines are left out. `where` names the source in messages.
// Errors: kUsage "WHERE:LINE: ..." for what is malformed, unknown or out of range; kUsage when
// there is no prompt.
std::vector<PromptLine> parse_prompts(std::string_view text, const PromptDefaults& defaults,
                                      const std::string& where);

}  // namespace encore::cli
