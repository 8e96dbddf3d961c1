#include "text/tokenizer.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "text/decoder.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

namespace encore::text {

namespace {

// Holds the buffers that Tokenizer::encode() reuses from call to call.
struct Scratch {
  std::vector<Segment> segments;
  std::vector<Segment> parts;
  std::string normalized;
  Words words;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  thread_local Scratch scratch;
  if (text.size() >= std::numeric_limits<uint32_t>::max() / 4) {
    fail(ErrorKind::kUnsupported, "cannot tokenize a text of {} bytes", text.size());
  }
  std::string valid;
  if (!is_valid_utf8(text)) {
    valid = to_valid_utf8(text);
    text = valid;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  if (add_special_tokens) ids = impl_->prefix;
  scratch.segments.clear();
  impl_->raw_tokens.split(text, scratch.segments);
  for (const Segment& segment : scratch.segments) {
    if (segment.token >= 0) {
      ids.push_back(segment.token);
      continue;
    }
    std::string_view part = segment.span.in(text);
    if (!impl_->normalizer.empty()) {
      scratch.normalized = part;
      impl_->normalizer.apply(scratch.normalized);
      part = scratch.normalized;
    }
    scratch.parts.clear();
    impl_->normalized_tokens.split(part, scratch.parts);
    for (const Segment& word : scratch.parts) {
      if (word.token >= 0) {
        ids.push_back(word.token);
        continue;
      }
      scratch.words.reset(word.span.in(part), segment.span.begin == 0 && word.span.begin == 0);
      impl_->pre_tokenizer.split(scratch.words);
      const std::string_view words = scratch.words.text();
      for (const Span span : scratch.words.spans())
        impl_->model.encode(span.in(words), ids);
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), impl_->suffix.begin(), impl_->suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string text;
  DecoderStream stream = impl_->decoder.start();
  for (const int32_t id : ids) {
    if (const auto token = impl_->text_to_decode(id, skip_special)) stream.push(*token, text);
  }
  stream.finish(text);
  return text;
}

int32_t Tokenizer::vocab_size() const {
  return impl_->vocab_size;
}

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
  return impl_->id_of(token);
}

std::optional<int32_t> Tokenizer::Impl::id_of(std::string_view token) const {
  const auto found = std::find_if(added.begin(), added.end(),
                                  [&](const auto& entry) { return entry.second.content == token; });
  if (found != added.end()) return found->first;
  const int32_t id = model.vocab().find(token);
  return id >= 0 ? std::optional(id) : std::nullopt;
}

std::optional<std::string_view> Tokenizer::token(int32_t id) const {
  if (const auto added = impl_->added.find(id); added != impl_->added.end()) {
    return added->second.content;
  }
  const std::string_view text = impl_->model.vocab().text(id);
  return text.data() == nullptr ? std::nullopt : std::optional(text);
}

bool Tokenizer::is_special(int32_t id) const {
  const auto added = impl_->added.find(id);
  return added != impl_->added.end() && added->second.special;
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const auto token = impl_->text_to_decode(id, true);
  return token ? impl_->decoder.bytes_of(*token) : std::string();
}

std::optional<int32_t> Tokenizer::bos_id() const {
  return impl_->bos;
}
std::optional<int32_t> Tokenizer::eos_id() const {
  return impl_->eos;
}

std::optional<std::string_view> Tokenizer::Impl::text_to_decode(int32_t id,
                                                                bool skip_special) const {
  if (const auto token = added.find(id); token != added.end()) {
    if (skip_special && token->second.special) return std::nullopt;
    const auto normalized = normalized_text.find(id);
    return normalized != normalized_text.end() ? normalized->second : token->second.content;
  }
  const std::string_view text = model.vocab().text(id);
  return text.data() == nullptr ? std::nullopt : std::optional(text);
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, std::span<const int32_t> context,
                         bool skip_special, std::vector<int32_t> shown)
    : tokenizer_(tokenizer.impl_.get()),
      skip_special_(skip_special),
      stream_(std::make_unique<DecoderStream>(tokenizer_->decoder.start())) {
  size_t num_bytes = 0;
  for (const int32_t id : context)
    num_bytes += push(id).size();
  context_rest_ = tokenizer.decode(context, skip_special).substr(num_bytes);
  shown_ = std::move(shown);  // holds for the ids behind the context only
}
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;
Detokenizer::~Detokenizer() = default;

std::string Detokenizer::push(int32_t id) {
  std::string text;
  const bool skips = skip_special_ && std::find(shown_.begin(), shown_.end(), id) == shown_.end();
  if (const auto token = tokenizer_->text_to_decode(id, skips)) stream_->push(*token, text);
  return without_context(std::move(text));
}

std::string Detokenizer::finish() {
  std::string text;
  stream_->finish(text);
  return without_context(std::move(text));
}

// Removes the context's text from the front of `text`. Text of the context that later ids have
// changed, such as a character that they complete, is returned whole.
std::string Detokenizer::without_context(std::string text) {
  const size_t length = std::min(text.size(), context_rest_.size());
  if (!text.starts_with(std::string_view(context_rest_).substr(0, length))) {
    context_rest_.clear();
    return text;
  }
  context_rest_.erase(0, length);
  return text.substr(length);
}

}  // namespace encore::text
