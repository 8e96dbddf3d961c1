#include "text/jinja/text_functions.h"

#include <algorithm>

#include "text/jinja/characters.h"
#include "text/unicode.h"

namespace encore::text::jinja {

Value replace_text(const Value& text, const std::string& old, const std::string& with, Int count,
                   Heap& heap) {
  const std::string& bytes = text.if_text()->bytes;
  heap.budget().spend_bytes(kSearchCost * bytes.size());
  TextBuilder out(heap);
  size_t done = 0;
  for (size_t at = 0; count != 0; --count) {
    at = find_part(bytes, old, at);
    if (at == std::string::npos) break;
    out += std::string_view(bytes).substr(done, at - done);
    out += with;
    done = at + old.size();
    if (!old.empty()) {
      at = done;
    } else if (at < bytes.size()) {
      at += decode_utf8(bytes.data() + at).num_bytes;  // empty `old` matches between all characters
    } else {
      break;
    }
  }
  out += std::string_view(bytes).substr(done);
  return out.finish(text.if_text()->markup);
}

Value align_text(const Value& text, Int width, const std::string& fill, char align, Heap& heap) {
  if (length(fill) != 1) fail_render("the fill character must be exactly one character long");
  const std::string& bytes = text.if_text()->bytes;
  const auto size = static_cast<Int>(length(bytes));
  const auto missing = static_cast<size_t>(std::clamp<Int>(width - size, 0, Int{1} << 32));
  // Where the padding cannot be divided equally, Python puts the extra character in front if the
  // width is odd.
  const size_t before = align == '<'   ? 0
                        : align == '>' ? missing
                                       : missing / 2 + (missing & static_cast<size_t>(width) & 1U);
  TextBuilder out(heap);
  out.append(before, fill);
  out += bytes;
  out.append(missing - before, fill);
  return out.finish(text.if_text()->markup);
}

bool has_case(const std::string& text, bool upper, Budget& budget) {
  budget.spend_bytes(text.size());
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    if (upper ? is_lower(c.value) : is_upper(c.value)) return false;
    found = found || is_lower(c.value) || is_upper(c.value);
    at += c.num_bytes;
  }
  return found;
}

Value view_of(const Mapping& mapping, Sequence::Kind kind, Heap& heap) {
  std::vector<Value> items;
  heap.check_items(mapping.entries().size());
  items.reserve(mapping.entries().size());
  for (const auto& [key, value] : mapping.entries()) {
    if (kind == Sequence::Kind::kItems) {
      items.push_back(heap.tuple({key, value}));
    } else {
      items.push_back(kind == Sequence::Kind::kKeys ? key : value);
    }
  }
  return heap.sequence(kind, std::move(items));
}

}  // namespace encore::text::jinja
