// Reads many prompts from a file or standard input, for `encore generate --prompts`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "sample/params.h"

namespace encore::cli {

// Holds one line of a file of prompts.
struct PromptLine {
  int line = 0;              // number of the line, counted from 1
  json::value id = nullptr;  // the id that the line gives, printed with its results
  std::string text;          // empty where there are ids
  std::vector<int32_t> ids;
  int64_t n = 1;  // number of texts to generate
  std::optional<int64_t> max_tokens;
  sample::SamplingParams sampling;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::string adapter;  // as --adapter names it; empty: none
};

// Holds values for a line that does not set them itself.
using PromptDefaults = PromptLine;

// Reads prompts, one per line. A line is plain text, or a JSON object with `prompt` or
// `prompt_ids`, and `id`, `n`, `max_tokens`, `stop`, `ignore_eos`, `adapter` and the sampling
// parameters (sample/params.h). Empty lines are left out. `where` names the source in messages.
// Errors: kUsage "WHERE:LINE: ..." for a line that is malformed, or has an unknown key or a value
// out of range; kUsage when there is no prompt.
std::vector<PromptLine> parse_prompts(std::string_view text, const PromptDefaults& defaults,
                                      const std::string& where);

}  // namespace encore::cli
