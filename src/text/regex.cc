#include "text/regex.h"

#include <algorithm>
#include <optional>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "text/unicode.h"

namespace encore::text {

namespace {

// The members of the classes \s and \w in Oniguruma's meaning. PCRE2's own \s also has U+180E, and
// its \w lacks marks.
constexpr std::string_view kSpaceMembers =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kHexMembers = "0-9a-fA-F";

constexpr size_t kJitStackStart = 64 << 10;
constexpr size_t kJitStackMax = 256 << 20;  // address space, of which only used pages take memory
constexpr uint32_t kMatchLimit = 100'000'000;
constexpr uint32_t kHeapLimitKib = 256 << 10;

template <typename T, void (*Destroy)(T*)>
struct Deleter {
  void operator()(T* handle) const { Destroy(handle); }
};
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code, pcre2_code_free>>;
using MatchData =
    std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data, pcre2_match_data_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context, pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack, pcre2_jit_stack_free>>;

// The memory that one thread needs to match. Matching keeps only the whole match, no groups, so all
// patterns can share it.
struct Workspace {
  JitStack stack{pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  MatchData data{pcre2_match_data_create(1, nullptr)};

  Workspace() {
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

std::string message_of(int code) {
  PCRE2_UCHAR8 buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

// Returns the members of a PCRE2 class that stand for a general category, such as "L" or "Lu":
// PCRE2's own category, and the code points that are newer than PCRE2's tables.
std::string category_members(std::string_view category) {
  std::string members = fmt::format("\\p{{{}}}", category);
  for (int i = 0; i < kNumNewerCategories; ++i) {
    const NewerCategory& newer = kNewerCategories[i];
    if (std::string_view(newer.category).starts_with(category))
      members += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", newer.first, newer.last);
  }
  return members;
}

std::string word_members() {
  return category_members("L") + category_members("M") + category_members("N") + "\\p{Pc}";
}

// Translates one pattern from Oniguruma's spelling into PCRE2's, from left to right.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string run() {
    while (!rest_.empty()) {
      if (in_class_) {
        class_member();
      } else {
        step();
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorKind::kUnsupported, "{}: {} in the regular expression '{}'", where_, what, pattern_);
  }

  void copy(size_t count) {
    out_ += rest_.substr(0, count);
    rest_.remove_prefix(std::min(count, rest_.size()));
  }

  void step() {
    const char c = rest_[0];
    if (c == '{' && interval_length() > 0) return interval();
    if (c == '(') {
      if (rest_.starts_with("(?m")) refuse("the option m");
      groups_.push_back(out_.size());
      return copy(1);
    }
    if (c == ')' && !groups_.empty()) {
      atom_ = groups_.back();
      groups_.pop_back();
      return copy(1);
    }
    if (c != '*' && c != '+' && c != '?') atom_ = out_.size();
    if (c == '\\') return escape();
    if (c != '[') return copy(1);
    in_class_ = true;
    // A closing bracket that comes first in a class is a member, not the end of the class.
    copy(rest_.starts_with("[^]") ? 3 : rest_.starts_with("[]") || rest_.starts_with("[^") ? 2 : 1);
  }

  void class_member() {
    if (rest_.starts_with("&&")) refuse("a class intersection");
    if (rest_.starts_with("[:")) {
      const size_t end = rest_.find(":]");
      if (end == std::string_view::npos) refuse("an unfinished class");
      return copy(end + 2);
    }
    if (rest_[0] == '[') refuse("a class within a class");
    if (rest_[0] == '\\') return escape();
    in_class_ = rest_[0] != ']';
    copy(1);
  }

  // Returns the length of an interval {n}, {n,}, {,m} or {n,m}; 0 when the brace stands for itself.
  [[nodiscard]] size_t interval_length() const {
    const size_t end = rest_.find_first_not_of("0123456789,", 1);
    const bool closes = end != std::string_view::npos && rest_[end] == '}';
    return closes && rest_.substr(1, end - 1).find_first_not_of(',') != std::string_view::npos
               ? end + 1
               : 0;
  }

  // Copies an interval. A + behind it repeats the interval once more, but PCRE2 would read {n}+ as
  // possessive.
  void interval() {
    const size_t length = interval_length();
    if (rest_[1] == ',') {
      out_ += "{0";
      rest_.remove_prefix(1);
      copy(length - 1);
    } else {
      copy(length);
    }
    if (!rest_.starts_with('+')) return;
    out_.insert(atom_, "(?:");
    out_ += ')';
    copy(1);
  }

  // Returns the position of the brace that closes \p{...} or \x{...}. Returns the position of the
  // last character when there is none; PCRE2 then reports the mistake.
  [[nodiscard]] size_t closing_brace() const { return std::min(rest_.find('}'), rest_.size() - 1); }

  void escape() {
    const char kind = rest_.size() > 1 ? rest_[1] : '\0';
    switch (kind) {
      case 's':
        return members(kSpaceMembers, false);
      case 'w':
        return members(word_members(), false);
      case 'd':
        return members(category_members("Nd"), false);
      case 'h':
        return members(kHexMembers, false);
      case 'S':
      case 'W':
      case 'H':
      case 'D':
        if (in_class_) break;
        return members(kind == 'S'   ? std::string(kSpaceMembers)
                       : kind == 'W' ? word_members()
                       : kind == 'H' ? std::string(kHexMembers)
                                     : category_members("Nd"),
                       true);
      case 'p':
      case 'P':
        if (const size_t length = category_length(); length > 0 && (kind == 'p' || !in_class_)) {
          const std::string category(rest_.substr(3, length));
          rest_.remove_prefix(length + 2);  // what is left is as long as \\d
          return members(category_members(category), kind == 'P');
        }
        [[fallthrough]];
      case 'x':
        if (rest_.size() > 2 && rest_[2] == '{') return copy(closing_brace() + 1);
        break;
      default:
        break;
    }
    copy(2);
  }

  // Returns the length of a general category's name in \p{Lu} or \p{L}; 0 for another property.
  [[nodiscard]] size_t category_length() const {
    const size_t length = closing_brace() - std::min<size_t>(closing_brace(), 3);
    return rest_.starts_with("\\p{^") || length > 2 ? 0 : length;
  }

  void members(std::string_view text, bool negated) {
    if (in_class_) {
      out_ += text;
    } else {
      out_ += negated ? "[^" : "[";
      out_ += text;
      out_ += ']';
    }
    rest_.remove_prefix(2);
  }

  std::string_view pattern_;
  const std::string& where_;
  std::string_view rest_ = pattern_;
  std::string out_;
  bool in_class_ = false;
  size_t atom_ = 0;             // where in out_ the last item that can be repeated begins
  std::vector<size_t> groups_;  // where in out_ each open group begins
};

}  // namespace

std::string translate_regex(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

struct Regex::Impl {
  Code code;
  std::string where;
};

Regex::Regex(std::string_view pattern, const std::string& where) {
  const std::string translated = translate_regex(pattern, where);
  auto impl = std::make_unique<Impl>();
  impl->where = where;
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset,
                                 nullptr));
  if (impl->code == nullptr) {
    fail(ErrorKind::kModel, "{}: the regular expression '{}' does not compile: {}", where, pattern,
         message_of(error));
  }
  // Where JIT compilation fails, pcre2_match interprets the pattern.
  pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE);
  impl_ = std::move(impl);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::find_all(std::string_view text, Span range, std::vector<Span>& matches) const {
  thread_local Workspace workspace;
  const std::string_view part = range.in(text);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(part.data());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(workspace.data.get());
  size_t start = 0;
  std::optional<size_t> last_end;
  while (start <= part.size()) {
    const int rc = pcre2_match(impl_->code.get(), subject, part.size(), start, PCRE2_NO_UTF_CHECK,
                               workspace.data.get(), workspace.context.get());
    if (rc == PCRE2_ERROR_NOMATCH) return;
    if (rc < 0) {
      fail(ErrorKind::kUnsupported, "{}: matching a text of {} bytes failed: {}", impl_->where,
           part.size(), message_of(rc));
    }
    const size_t begin = bounds[0];
    const size_t end = bounds[1];
    if (begin == end && last_end == end) {  // an empty match right behind a match does not count
      if (end == part.size()) return;
      start = end + decode_utf8(part.data() + end).num_bytes;
      continue;
    }
    matches.push_back(
        {static_cast<uint32_t>(range.begin + begin), static_cast<uint32_t>(range.begin + end)});
    last_end = end;
    start = end;
  }
}

}  // namespace encore::text
