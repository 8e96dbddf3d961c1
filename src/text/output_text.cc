#include "text/output_text.h"

#include <algorithm>

namespace encore::text {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

OutputText::OutputText(const Tokenizer& tokenizer, std::span<const int32_t> prompt, StopRules rules)
    : rules_(std::move(rules)),
      detokenizer_(tokenizer, prompt, rules_.skip_special_tokens, rules_.shown_tokens),
      stop_strings_(rules_.strings, rules_.include_in_output) {}

std::string OutputText::push(std::span<const int32_t> ids) {
  std::string shown;
  for (const int32_t id : ids) {
    if (is_stopped_) break;
    push_one(id, shown);
  }
  return shown;
}

void OutputText::push_one(int32_t id, std::string& shown) {
  ++num_tokens_;
  const bool is_early = num_tokens_ <= rules_.min_tokens;
  is_stopped_ = !is_early && ends(id);
  hides_last_ = is_stopped_ && !rules_.include_in_output;
  std::string text;
  if (!hides_last_) text = detokenizer_.push(id);
  if (is_stopped_) text += detokenizer_.finish();
  if (is_early) {
    shown += text;
    return;
  }
  shown += stop_strings_.push(text);
  if (stop_strings_.matched()) {
    is_stopped_ = true;
    stop_reason_ = *stop_strings_.matched();
  } else if (is_stopped_) {
    shown += stop_strings_.finish();
  }
}

bool OutputText::ends(int32_t id) {
  if (contains(rules_.tokens, id)) {
    stop_reason_ = id;
    return true;
  }
  return contains(rules_.end_tokens, id);
}

std::string OutputText::finish() {
  if (is_stopped_) return "";
  std::string shown = stop_strings_.push(detokenizer_.finish());
  if (stop_strings_.matched()) {
    is_stopped_ = true;
    stop_reason_ = *stop_strings_.matched();
  }
  return shown + stop_strings_.finish();
}

}  // namespace encore::text
