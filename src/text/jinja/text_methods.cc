// Implements the methods of Python's str.
#include <algorithm>
#include <functional>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/string_format.h"
#include "text/jinja/text_functions.h"
#include "text/unicode.h"

namespace encore::text::jinja {
namespace {

const std::string& bytes_of(const Value& self) {
  return self.if_text()->bytes;
}

Value like(const Value& self, std::string bytes, Heap& heap) {
  return heap.text(std::move(bytes), self.if_text()->markup);
}

using Strip = std::string_view (*)(std::string_view, const std::string*);

template <Strip strip>
Value do_strip(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  const std::string* drop = bound.has_some(0) ? &bound.text(0) : nullptr;
  const std::string& text = bytes_of(self);
  evaluator.budget().spend_bytes(text.size());
  if (drop != nullptr) evaluator.budget().spend_bytes(drop->size() * text.size());
  return like(self, std::string(strip(text, drop)), evaluator.heap());
}

template <std::string (*map)(std::string_view)>
Value do_map(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  return like(self, map(bytes_of(self)), evaluator.heap());
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    const std::string_view character = text.substr(at, c.num_bytes);
    const bool cased = is_upper(c.value) || is_lower(c.value);
    out += in_word ? to_lower(character) : capitalize(character);
    in_word = cased;
    at += c.num_bytes;
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    const std::string_view character = text.substr(at, c.num_bytes);
    out += is_upper(c.value) ? to_lower(character) : to_upper(character);
    at += c.num_bytes;
  }
  return out;
}

// Splits a text at white space from its start, at most `limit` times where `limit` is not negative.
std::vector<std::string_view> split_spaces(std::string_view text, Int limit) {
  std::vector<std::string_view> parts;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    if (limit >= 0 && static_cast<Int>(parts.size()) >= limit) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const CodePoint c = decode_utf8(text.data() + end);
      if (is_space(c.value)) break;
      end += c.num_bytes;
    }
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

// Splits a text at white space from its end, at most `limit` times where `limit` is not negative.
std::vector<std::string_view> split_spaces_right(std::string_view text, Int limit) {
  std::vector<std::string_view> parts;
  for (text = strip_right(text); !text.empty(); text = strip_right(text)) {
    if (limit >= 0 && static_cast<Int>(parts.size()) >= limit) {
      parts.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      const CodePoint c = decode_utf8_before(text.data() + begin);
      if (is_space(c.value)) break;
      begin -= c.num_bytes;
    }
    parts.push_back(text.substr(begin));
    text.remove_suffix(text.size() - begin);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// Returns the last place of `part` in `text`; npos where `part` does not occur. It searches the
// reversed text forward, since only this search is linear on adverse text.
size_t rfind_part(std::string_view text, std::string_view part) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_part(part.rbegin(), part.rend());
  const size_t at = find_part(reversed_text, reversed_part);
  return at == std::string::npos ? at : text.size() - at - part.size();
}

std::vector<size_t> places_of(std::string_view text, std::string_view part) {
  std::vector<size_t> places;
  for (size_t at = find_part(text, part); at != std::string_view::npos;
       at = find_part(text, part, at + part.size()))
    places.push_back(at);
  return places;
}

std::vector<size_t> places_from_right(std::string_view text, std::string_view part) {
  std::string reversed_text(text.rbegin(), text.rend());
  std::string reversed_part(part.rbegin(), part.rend());
  std::vector<size_t> places = places_of(reversed_text, reversed_part);
  for (size_t& place : places)
    place = text.size() - place - part.size();
  return places;
}

template <bool from_right>
Value do_split(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const Int limit = bound.int_or(1, -1);
  const std::string& text = bytes_of(self);
  Heap& heap = evaluator.heap();
  heap.budget().spend_bytes(kSearchCost * text.size());
  heap.check_items(text.size() / 2);
  std::vector<std::string_view> parts;
  if (!bound.has_some(0)) {
    parts = from_right ? split_spaces_right(text, limit) : split_spaces(text, limit);
  } else {
    const std::string& separator = bound.text(0);
    if (separator.empty()) fail_render("empty separator");
    std::vector<size_t> places =
        from_right ? places_from_right(text, separator) : places_of(text, separator);
    if (limit >= 0 && static_cast<Int>(places.size()) > limit)
      places.resize(static_cast<size_t>(limit));
    if (from_right) std::reverse(places.begin(), places.end());
    size_t begin = 0;
    for (const size_t place : places) {
      parts.push_back(std::string_view(text).substr(begin, place - begin));
      begin = place + separator.size();
    }
    parts.push_back(std::string_view(text).substr(begin));
  }
  std::vector<Value> items;
  for (const std::string_view part : parts)
    items.push_back(like(self, std::string(part), heap));
  return heap.list(std::move(items));
}

Value do_splitlines(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  std::vector<Value> items;
  for (const std::string_view line : split_lines(bytes_of(self), bound.flag_or(0, false)))
    items.push_back(like(self, std::string(line), evaluator.heap()));
  return evaluator.heap().list(std::move(items));
}

template <bool from_right>
Value do_partition(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("partition", arguments, {"sep"}, 1);
  const std::string& text = bytes_of(self);
  const std::string& separator = bound.text(0);
  if (separator.empty()) fail_render("empty separator");
  evaluator.budget().spend_bytes(kSearchCost * text.size());
  Heap& heap = evaluator.heap();
  const size_t at = from_right ? rfind_part(text, separator) : find_part(text, separator);
  std::string parts[3];
  if (at != std::string::npos) {
    parts[0] = text.substr(0, at);
    parts[1] = separator;
    parts[2] = text.substr(at + separator.size());
  } else {
    parts[from_right ? 2 : 0] = text;
  }
  return heap.tuple(
      {like(self, parts[0], heap), like(self, parts[1], heap), like(self, parts[2], heap)});
}

// The part of a text between two positions that count characters, such as find() searches, and the
// byte where the part starts.
struct Window {
  std::string_view text;
  size_t begin = 0;
  bool is_empty_range = false;  // the part starts behind the end of the text
};

Window window_of(std::string_view text, const Bound& bound, size_t first) {
  const auto size = static_cast<Int>(length(text));
  const auto place = [&](size_t parameter, Int fallback) {
    const Int at = bound.has_some(parameter) ? bound.int_or(parameter, 0) : fallback;
    return at < 0 ? std::max<Int>(at + size, 0) : at;
  };
  const Int begin = place(first, 0);
  const Int end = std::min(place(first + 1, size), size);
  if (begin > end) return {{}, 0, true};
  const size_t begin_byte = byte_of(text, static_cast<size_t>(begin));
  const size_t end_byte = byte_of(text, static_cast<size_t>(end));
  return {text.substr(begin_byte, end_byte - begin_byte), begin_byte, false};
}

template <bool at_end>
Value do_starts(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound(at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"}, 1);
  evaluator.budget().spend_bytes(bytes_of(self).size());
  const Window window = window_of(bytes_of(self), bound, 1);
  const auto matches = [&window](const Value& affix) {
    const Text* text = affix.if_text();
    if (text == nullptr) fail_render("expected a string or a tuple of strings");
    if (window.is_empty_range) return false;
    return at_end ? window.text.ends_with(text->bytes) : window.text.starts_with(text->bytes);
  };
  const Sequence* several = bound.at(0).if_sequence();
  if (several == nullptr || several->kind != Sequence::Kind::kTuple)
    return Value(matches(bound.at(0)));
  return Value(std::any_of(several->items.begin(), several->items.end(), matches));
}

// Implements find() and its variants: returns the index of the character at which the part is
// found, or -1.
template <bool from_right>
Int find_character(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("find", arguments, {"sub", "start", "end"}, 1);
  const std::string_view text = bytes_of(self);
  evaluator.budget().spend_bytes(kSearchCost * text.size());
  const Window window = window_of(text, bound, 1);
  if (window.is_empty_range) return -1;
  const size_t at =
      from_right ? rfind_part(window.text, bound.text(0)) : find_part(window.text, bound.text(0));
  if (at == std::string_view::npos) return -1;
  return static_cast<Int>(length(text.substr(0, window.begin + at)));
}

template <bool from_right, bool must_be_there>
Value do_find(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Int at = find_character<from_right>(evaluator, self, arguments);
  if (must_be_there && at < 0) fail_render("substring not found");
  return Value(at);
}

Value do_count(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"}, 1);
  evaluator.budget().spend_bytes(kSearchCost * bytes_of(self).size());
  const Window window = window_of(bytes_of(self), bound, 1);
  if (window.is_empty_range) return Value(Int{0});
  if (bound.text(0).empty()) return Value(static_cast<Int>(length(window.text)) + 1);
  return Value(static_cast<Int>(places_of(window.text, bound.text(0)).size()));
}

Value do_join(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"}, 1);
  TextBuilder out(evaluator.heap());
  bool first = true;
  for (const Value& item : evaluator.heap().items_of(bound.at(0))) {
    const Text* text = item.if_text();
    if (text == nullptr)
      fail_render("sequence item: expected str instance, {} found", type_name(item));
    if (!std::exchange(first, false)) out += bytes_of(self);
    out += text->bytes;
  }
  return out.finish(self.if_text()->markup);
}

Value do_replace(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return replace_text(self, bound.text(0), bound.text(1), bound.int_or(2, -1), evaluator.heap());
}

template <bool at_end>
Value do_remove(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("remove", arguments, {"affix"}, 1);
  std::string_view text = bytes_of(self);
  const std::string& affix = bound.text(0);
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return like(self, std::string(text), evaluator.heap());
}

template <char align>
Value do_align(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("align", arguments, {"width", "fillchar"}, 1);
  return align_text(self, bound.int_or(0, 0), bound.text_or(1, " "), align, evaluator.heap());
}

Value do_zfill(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("zfill", arguments, {"width"}, 1);
  const std::string& text = bytes_of(self);
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  const Value digits = evaluator.heap().text(text.substr(has_sign ? 1 : 0));
  const Value padded =
      align_text(digits, bound.int_or(0, 0) - (has_sign ? 1 : 0), "0", '>', evaluator.heap());
  return like(self, text.substr(0, has_sign ? 1 : 0) + bytes_of(padded), evaluator.heap());
}

template <bool (*is)(uint32_t)>
Value do_all_are(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  const std::string& text = bytes_of(self);
  evaluator.budget().spend_bytes(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    if (!is(c.value)) return Value(false);
    at += c.num_bytes;
  }
  return Value(!text.empty());
}

bool is_alpha_or_digit(uint32_t code_point) {
  return is_alpha(code_point) || is_digit(code_point);
}

// Implements isupper() and islower(): returns whether the text has cased characters and all of them
// have the case.
template <bool upper>
Value do_is_case(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("str method", arguments, {});
  return Value(has_case(bytes_of(self), upper, evaluator.budget()));
}

Value do_format(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  return brace_format(*self.if_text(), arguments, evaluator.heap());
}

constexpr NamedBuiltin kTextMethods[] = {
    {"strip", do_strip<strip>},
    {"lstrip", do_strip<strip_left>},
    {"rstrip", do_strip<strip_right>},
    {"upper", do_map<to_upper>},
    {"lower", do_map<to_lower>},
    {"casefold", do_map<to_lower>},
    {"capitalize", do_map<capitalize>},
    {"title", do_map<title>},
    {"swapcase", do_map<swap_case>},
    {"split", do_split<false>},
    {"rsplit", do_split<true>},
    {"splitlines", do_splitlines},
    {"partition", do_partition<false>},
    {"rpartition", do_partition<true>},
    {"startswith", do_starts<false>},
    {"endswith", do_starts<true>},
    {"find", do_find<false, false>},
    {"rfind", do_find<true, false>},
    {"index", do_find<false, true>},
    {"rindex", do_find<true, true>},
    {"count", do_count},
    {"join", do_join},
    {"replace", do_replace},
    {"removeprefix", do_remove<false>},
    {"removesuffix", do_remove<true>},
    {"center", do_align<'^'>},
    {"ljust", do_align<'<'>},
    {"rjust", do_align<'>'>},
    {"zfill", do_zfill},
    {"isspace", do_all_are<is_space>},
    {"isalpha", do_all_are<is_alpha>},
    {"isdigit", do_all_are<is_digit>},
    {"isdecimal", do_all_are<is_digit>},
    {"isnumeric", do_all_are<is_digit>},
    {"isalnum", do_all_are<is_alpha_or_digit>},
    {"isupper", do_is_case<true>},
    {"islower", do_is_case<false>},
    {"format", do_format},
};

}  // namespace

Builtin find_text_method(std::string_view name) {
  return find_in(kTextMethods, name);
}

}  // namespace encore::text::jinja
