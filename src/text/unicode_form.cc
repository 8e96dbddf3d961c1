// Implements Unicode normalization forms and lower case by utf8proc's tables. Characters that are
// too new for the `tokenizers` package stay as they are.
#include <algorithm>
#include <array>
#include <memory>
#include <utf8proc.h>
#include <vector>

#include "base/error.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace encore::text {

namespace {

constexpr int kNumForms = 4;

bool composes(UnicodeForm form) {
  return form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
}
bool is_compatible(UnicodeForm form) {
  return form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
}

void decompose(UnicodeForm form, uint32_t code_point, std::vector<utf8proc_int32_t>& out) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (is_compatible(form) ? UTF8PROC_COMPAT : 0));
  utf8proc_int32_t parts[32];
  int boundary_class = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts, 32,
                                             options, &boundary_class);
  ENCORE_CHECK(count >= 0 && count <= 32, "U+{:04X} decomposes into {} parts", code_point, count);
  out.insert(out.end(), parts, parts + count);
}

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Brings decomposed `text` into canonical order and, where the form composes, composes it.
void reorder_and_compose(UnicodeForm form, std::vector<utf8proc_int32_t>& text) {
  for (size_t i = 0; i < text.size();) {
    if (combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < text.size() && combining_class(text[end]) != 0)
      ++end;
    if (end - i > 1) {
      std::stable_sort(text.begin() + static_cast<ptrdiff_t>(i),
                       text.begin() + static_cast<ptrdiff_t>(end),
                       [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    }
    i = end;
  }
  if (!composes(form)) return;
  const auto length =
      utf8proc_normalize_utf32(text.data(), static_cast<utf8proc_ssize_t>(text.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  ENCORE_CHECK(length >= 0, "composition failed: {}", utf8proc_errmsg(length));
  text.resize(static_cast<size_t>(length));
}

// Holds one bit per code point: the bit is set where the code point is its own normal form and no
// code point before it can change it. Inert code points have the bit set in every form, and they do
// not change the code points behind them either.
class Boundaries {
 public:
  explicit Boundaries(UnicodeForm form) : bits_(kNumCodePoints, true) {
    std::vector<utf8proc_int32_t> parts;
    for (uint32_t c = 0; c < kNumCodePoints; ++c) {
      const utf8proc_property_t* property = utf8proc_get_property(static_cast<int32_t>(c));
      const bool is_hangul = c >= 0xac00 && c < 0xd7a4;
      const bool is_jamo_tail = (c >= 0x1161 && c < 0x1176) || (c >= 0x11a8 && c < 0x11c3);
      const bool is_second = property->comb_index != UINT16_MAX && (property->comb_index & 0x8000);
      if ((char_classes()[c] & kInert) != 0) continue;
      if (property->combining_class != 0 || (composes(form) && (is_jamo_tail || is_second))) {
        bits_[c] = false;
      } else if (is_hangul) {
        bits_[c] = composes(form);
      } else if (property->decomp_seqindex != UINT16_MAX) {
        parts.clear();
        decompose(form, c, parts);
        reorder_and_compose(form, parts);
        bits_[c] = parts.size() == 1 && parts[0] == static_cast<utf8proc_int32_t>(c);
      }
    }
  }

  [[nodiscard]] bool has(uint32_t code_point) const { return bits_[code_point]; }

 private:
  std::vector<bool> bits_;
};

const Boundaries& boundaries_of(UnicodeForm form) {
  static const std::array<const Boundaries, kNumForms> tables = {
      Boundaries(UnicodeForm::kNfc), Boundaries(UnicodeForm::kNfd), Boundaries(UnicodeForm::kNfkc),
      Boundaries(UnicodeForm::kNfkd)};
  return tables[static_cast<size_t>(form)];
}

uint32_t lower_case(uint32_t code_point) {
  for (int i = 0; i < kNumNewerLowerCases; ++i) {
    const NewerLowerCase& newer = kNewerLowerCases[i];
    if (newer.first <= code_point && code_point <= newer.last) return code_point + newer.distance;
  }
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(code_point)));
}

}  // namespace

void normalize_unicode(UnicodeForm form, std::string& text) {
  const Boundaries& boundaries = boundaries_of(form);
  const uint8_t* classes = char_classes();
  std::string out;
  std::vector<utf8proc_int32_t> segment;
  size_t copied = 0;         // all text before this byte is in `out`
  size_t last_boundary = 0;  // where the current segment starts
  bool changed = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text.data() + i);
    if (boundaries.has(c.value)) {
      last_boundary = (classes[c.value] & kInert) != 0 ? i + c.num_bytes : i;
      i += c.num_bytes;
      continue;
    }
    // The segment from the last boundary up to the next one may change, so it is decomposed and
    // composed.
    out.append(text, copied, last_boundary - copied);
    segment.clear();
    for (i = last_boundary; i < text.size();) {
      const CodePoint d = decode_utf8(text.data() + i);
      if (i > last_boundary && boundaries.has(d.value)) break;
      decompose(form, d.value, segment);
      i += d.num_bytes;
    }
    reorder_and_compose(form, segment);
    for (const auto part : segment)
      append_utf8(static_cast<uint32_t>(part), out);
    copied = last_boundary = i;
    changed = true;
  }
  if (!changed) return;
  out.append(text, copied);
  text = std::move(out);
}

void lowercase(std::string& text) {
  constexpr uint32_t kCapitalIWithDot = 0x130;
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text.data() + i);
    if (c.value == kCapitalIWithDot) {
      out += "i\xcc\x87";
    } else {
      append_utf8(lower_case(c.value), out);
    }
    i += c.num_bytes;
  }
  text = std::move(out);
}

int display_width(uint32_t code_point) {
  return utf8proc_charwidth(static_cast<utf8proc_int32_t>(code_point));
}

}  // namespace encore::text
