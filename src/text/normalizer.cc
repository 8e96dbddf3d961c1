#include "text/normalizer.h"

#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "text/regex.h"
#include "text/sequence.h"
#include "text/unicode.h"

namespace encore::text {

namespace {

void prepend(std::string& text, const std::string& prefix) {
  if (!text.empty()) text.insert(0, prefix);
}

void replace_literal(std::string& text, const std::string& pattern, const std::string& content) {
  size_t at = text.find(pattern);
  if (at == std::string::npos) return;
  if (pattern.size() == content.size()) {
    for (; at != std::string::npos; at = text.find(pattern, at + content.size())) {
      text.replace(at, pattern.size(), content);
    }
    return;
  }
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  size_t begin = 0;
  for (; at != std::string::npos; at = text.find(pattern, begin)) {
    out.append(text, begin, at - begin);
    out += content;
    begin = at + pattern.size();
  }
  out.append(text, begin);
  text = std::move(out);
}

void replace_matches(std::string& text, const Regex& regex, const std::string& content) {
  std::vector<Span> matches;
  regex.find_all(text, {0, static_cast<uint32_t>(text.size())}, matches);
  if (matches.empty()) return;
  std::string out;
  size_t begin = 0;
  for (const Span match : matches) {
    out.append(text, begin, match.begin - begin);
    out += content;
    begin = match.end;
  }
  out.append(text, begin);
  text = std::move(out);
}

void strip(std::string& text, bool left, bool right) {
  const uint8_t* classes = char_classes();
  const char* begin = text.data();
  const char* end = begin + text.size();
  while (left && begin < end) {
    const CodePoint c = decode_utf8(begin);
    if ((classes[c.value] & kSpace) == 0) break;
    begin += c.num_bytes;
  }
  while (right && begin < end) {
    const CodePoint c = decode_utf8_before(end);
    if ((classes[c.value] & kSpace) == 0) break;
    end -= c.num_bytes;
  }
  text = std::string(begin, end);
}

void strip_marks(std::string& text) {
  const uint8_t* classes = char_classes();
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text.data() + i);
    if ((classes[c.value] & kMark) == 0) out.append(text, i, c.num_bytes);
    i += c.num_bytes;
  }
  text = std::move(out);
}

std::function<void(std::string&)> parse_one(std::string_view type, const json::Object& object) {
  if (type == "NFC") return [](std::string& text) { normalize_unicode(UnicodeForm::kNfc, text); };
  if (type == "NFD") return [](std::string& text) { normalize_unicode(UnicodeForm::kNfd, text); };
  if (type == "NFKC") return [](std::string& text) { normalize_unicode(UnicodeForm::kNfkc, text); };
  if (type == "NFKD") return [](std::string& text) { normalize_unicode(UnicodeForm::kNfkd, text); };
  if (type == "Lowercase") return lowercase;
  if (type == "StripAccents") return strip_marks;
  if (type == "Prepend") {
    return [prefix = object.string_at("prepend")](std::string& text) { prepend(text, prefix); };
  }
  if (type == "Strip") {
    return [left = object.bool_at("strip_left"),
            right = object.bool_at("strip_right")](std::string& text) { strip(text, left, right); };
  }
  if (type == "ByteLevel") {
    return [](std::string& text) {
      std::string out;
      append_byte_level_text(text, out);
      text = std::move(out);
    };
  }
  fail(ErrorKind::kUnsupported, "{}: normalizer '{}'", object.where(), type);
}

}  // namespace

std::function<void(std::string&)> parse_replace(const boost::json::value& json,
                                                const std::string& where) {
  const json::Object object(json, where);
  const json::Object pattern = object.object_at("pattern");
  const std::string content = object.string_at("content");
  if (pattern.has("String")) {
    const std::string literal = pattern.string_at("String");
    if (literal.empty()) fail(ErrorKind::kModel, "{}: Replace of an empty pattern", where);
    return [literal, content](std::string& text) { replace_literal(text, literal, content); };
  }
  // std::function copies its callable; the copies share one compiled, immutable pattern.
  const auto regex = std::make_shared<const Regex>(pattern.string_at("Regex"), where);
  return [regex, content](std::string& text) { replace_matches(text, *regex, content); };
}

Normalizer Normalizer::parse(const boost::json::value& json, const std::string& where) {
  Normalizer normalizer;
  for (const auto& [step, type] : steps_of(json, "normalizers", where)) {
    normalizer.steps_.push_back(type == "Replace" ? parse_replace(*step, where)
                                                  : parse_one(type, json::Object(*step, where)));
  }
  return normalizer;
}

void Normalizer::apply(std::string& text) const {
  for (const Step& step : steps_)
    step(text);
}

}  // namespace encore::text
