#include "grammar/pattern.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utf8proc.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace encore::grammar {
namespace {

constexpr int kMaxDepth = 100;
constexpr size_t kMaxNfaStates = 20'000;
constexpr int64_t kMaxWork = 20'000'000;  // the most NFA states that determinizing may visit
constexpr size_t kMaxAheads = 8;

[[noreturn]] void refuse(const std::string& why) {
  fail(ErrorKind::kUnsupported, "the regular expression {}", why);
}

struct RegexNode;
using RegexNodes = std::vector<RegexNode>;

struct RegexNode {
  enum class Kind : uint8_t {
    kSet,
    kSequence,
    kChoice,
    kRepeat,
    kStart,
    kEnd,
    kBoundary,
    kNoBoundary,
    kAhead,
    kNotAhead
  };
  Kind kind = Kind::kSequence;
  CodeSet set = {};  // for kSet
  // The parts of kSequence, or the alternatives of kChoice. kRepeat, kAhead and kNotAhead have
  // exactly one part.
  RegexNodes parts = {};
  int64_t least = 0;  // for kRepeat
  std::optional<int64_t> most = {};
};

const CodeSet& digits() {
  static const CodeSet set = code_set({{'0', '9'}});
  return set;
}

const CodeSet& word_codes() {
  static const CodeSet set = code_set({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return set;
}

const CodeSet& white_space() {
  static const CodeSet set = code_set({{0x9, 0xd},
                                       {0x20, 0x20},
                                       {0xa0, 0xa0},
                                       {0x1680, 0x1680},
                                       {0x2000, 0x200a},
                                       {0x2028, 0x2029},
                                       {0x202f, 0x202f},
                                       {0x205f, 0x205f},
                                       {0x3000, 0x3000},
                                       {0xfeff, 0xfeff}});
  return set;
}

const CodeSet& no_line_ends() {
  static const CodeSet set = complement(code_set({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
  return set;
}

// Returns the characters of a Unicode general category, given its short or long name: L, Lu,
// Letter, Uppercase_Letter.
std::optional<CodeSet> category(std::string_view name) {
  struct Category {
    std::string_view short_name;
    std::string_view long_name;
  };
  // The names of Unicode's general categories, in the order of utf8proc_category_t.
  static constexpr std::array<Category, 30> kCategories{{{"Cn", "Unassigned"},
                                                         {"Lu", "Uppercase_Letter"},
                                                         {"Ll", "Lowercase_Letter"},
                                                         {"Lt", "Titlecase_Letter"},
                                                         {"Lm", "Modifier_Letter"},
                                                         {"Lo", "Other_Letter"},
                                                         {"Mn", "Nonspacing_Mark"},
                                                         {"Mc", "Spacing_Mark"},
                                                         {"Me", "Enclosing_Mark"},
                                                         {"Nd", "Decimal_Number"},
                                                         {"Nl", "Letter_Number"},
                                                         {"No", "Other_Number"},
                                                         {"Pc", "Connector_Punctuation"},
                                                         {"Pd", "Dash_Punctuation"},
                                                         {"Ps", "Open_Punctuation"},
                                                         {"Pe", "Close_Punctuation"},
                                                         {"Pi", "Initial_Punctuation"},
                                                         {"Pf", "Final_Punctuation"},
                                                         {"Po", "Other_Punctuation"},
                                                         {"Sm", "Math_Symbol"},
                                                         {"Sc", "Currency_Symbol"},
                                                         {"Sk", "Modifier_Symbol"},
                                                         {"So", "Other_Symbol"},
                                                         {"Zs", "Space_Separator"},
                                                         {"Zl", "Line_Separator"},
                                                         {"Zp", "Paragraph_Separator"},
                                                         {"Cc", "Control"},
                                                         {"Cf", "Format"},
                                                         {"Cs", "Surrogate"},
                                                         {"Co", "Private_Use"}}};
  static constexpr std::array<Category, 7> kGroups{{{"L", "Letter"},
                                                    {"M", "Mark"},
                                                    {"N", "Number"},
                                                    {"P", "Punctuation"},
                                                    {"S", "Symbol"},
                                                    {"Z", "Separator"},
                                                    {"C", "Other"}}};
  for (const std::string_view prefix : {"General_Category=", "gc="})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  std::array<bool, 30> is_in{};
  bool is_known = false;
  for (size_t i = 0; i < kCategories.size(); ++i) {
    is_in[i] = name == kCategories[i].short_name || name == kCategories[i].long_name;
    for (const Category& group : kGroups)
      is_in[i] = is_in[i] || ((name == group.short_name || name == group.long_name) &&
                              kCategories[i].short_name.starts_with(group.short_name));
    is_known = is_known || is_in[i];
  }
  if (!is_known) return std::nullopt;
  std::vector<CodeRange> ranges;
  for (CodePoint code = 0; code <= 0x10ffff; ++code) {
    if (!is_in[static_cast<size_t>(utf8proc_category(static_cast<utf8proc_int32_t>(code)))])
      continue;
    if (!ranges.empty() && ranges.back().last + 1 == code) {
      ranges.back().last = code;
    } else {
      ranges.push_back({code, code});
    }
  }
  return code_set(std::move(ranges));
}

class RegexParser {
 public:
  explicit RegexParser(std::string_view pattern) : codes_(code_points(pattern)) {}

  RegexNode parse() {
    RegexNode node = choice(0);
    if (!is_at_end()) refuse("has a ) without its (");
    return node;
  }

 private:
  using Kind = RegexNode::Kind;

  [[nodiscard]] bool is_at_end() const { return at_ == codes_.size(); }
  [[nodiscard]] CodePoint peek(size_t ahead = 0) const {
    return at_ + ahead < codes_.size() ? codes_[at_ + ahead] : 0x110000;
  }
  bool take(CodePoint code) {
    if (peek() != code) return false;
    ++at_;
    return true;
  }
  bool take_text(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i)
      if (peek(i) != static_cast<CodePoint>(text[i])) return false;
    at_ += text.size();
    return true;
  }

  RegexNode choice(int depth) {
    if (depth > kMaxDepth) refuse("is nested too deep");
    RegexNodes options;
    do {
      options.push_back(sequence(depth));
    } while (take('|'));
    if (options.size() == 1) return std::move(options.front());
    return {.kind = Kind::kChoice, .parts = std::move(options)};
  }

  RegexNode sequence(int depth) {
    RegexNodes parts;
    while (!is_at_end() && peek() != '|' && peek() != ')')
      parts.push_back(term(depth));
    return {.kind = Kind::kSequence, .parts = std::move(parts)};
  }

  RegexNode term(int depth) {
    if (take('^')) return not_repeated({.kind = Kind::kStart});
    if (take('$')) return not_repeated({.kind = Kind::kEnd});
    if (take_text("\\b")) return not_repeated({.kind = Kind::kBoundary});
    if (take_text("\\B")) return not_repeated({.kind = Kind::kNoBoundary});
    if (take_text("(?=")) return not_repeated({.kind = Kind::kAhead, .parts = {group(depth)}});
    if (take_text("(?!")) return not_repeated({.kind = Kind::kNotAhead, .parts = {group(depth)}});
    return repeated(atom(depth));
  }

  RegexNode not_repeated(RegexNode node) const {
    if (peek() == '*' || peek() == '+' || peek() == '?') refuse("repeats what has no width");
    return node;
  }

  RegexNode group(int depth) {
    RegexNode inner = choice(depth + 1);
    if (!take(')')) refuse("has a ( without its )");
    return inner;
  }

  RegexNode atom(int depth) {
    if (peek() == '(') return opened_group(depth);
    if (take('[')) return {.kind = Kind::kSet, .set = bracket()};
    if (take('.')) return {.kind = Kind::kSet, .set = no_line_ends()};
    if (take('\\')) return {.kind = Kind::kSet, .set = escape(false)};
    const CodePoint code = peek();
    if (code == '*' || code == '+' || code == '?') refuse("repeats nothing");
    ++at_;
    if (code == '{' && counts()) refuse("repeats nothing");
    return {.kind = Kind::kSet, .set = {{code, code}}};
  }

  RegexNode opened_group(int depth) {
    ++at_;
    if (take('?')) {
      if (take_text("<=") || take_text("<!"))
        refuse("has a lookbehind, which answers are not held to");
      if (take_text("P<") || take('<')) {
        while (!is_at_end() && peek() != '>')
          ++at_;
        if (!take('>')) refuse("has a name of a group that does not end");
      } else if (!take(':')) {
        refuse("has a flag or a group of a kind that is not known behind (?");
      }
    }
    return group(depth);
  }

  // Reads the numbers m and n of a repetition {m,n}, behind its {. Returns nothing, and reads
  // nothing, if the text is not a repetition.
  std::optional<std::pair<int64_t, std::optional<int64_t>>> counts() {
    const size_t start = at_;
    const auto number = [&]() -> std::optional<int64_t> {
      if (peek() < '0' || peek() > '9') return std::nullopt;
      int64_t value = 0;
      for (; peek() >= '0' && peek() <= '9'; ++at_)
        value = std::min<int64_t>(value * 10 + (peek() - '0'), 1'000'000);
      return value;
    };
    const std::optional<int64_t> least = number();
    std::optional<int64_t> most = least;
    if (take(',')) most = number();
    if (least && take('}')) return std::pair(*least, most);
    if (!least && peek() == '}' && most) refuse("has a repetition without its smaller number");
    at_ = start;
    return std::nullopt;
  }

  RegexNode repeated(RegexNode node) {
    int64_t least = 0;
    std::optional<int64_t> most;
    if (take('*')) {
    } else if (take('+')) {
      least = 1;
    } else if (take('?')) {
      most = 1;
    } else if (peek() == '{') {
      ++at_;
      const auto found = counts();
      if (!found) {
        --at_;
        return node;
      }
      std::tie(least, most) = *found;
      if (most && *most < least) refuse("has a repetition whose numbers are in the wrong order");
    } else {
      return node;
    }
    take('?');  // a lazy quantifier matches the same set of texts
    if (peek() == '*' || peek() == '+' || peek() == '?') refuse("repeats a repetition");
    return {.kind = Kind::kRepeat, .parts = {std::move(node)}, .least = least, .most = most};
  }

  CodePoint hex(int num_digits) {
    CodePoint value = 0;
    for (int i = 0; i < num_digits; ++i, ++at_) {
      const CodePoint c = peek();
      const bool is_digit = c >= '0' && c <= '9';
      const CodePoint lower = c | 0x20U;
      if (!is_digit && (lower < 'a' || lower > 'f' || c > 'f'))
        refuse("has an escape that lacks a hexadecimal digit");
      value = value * 16 + (is_digit ? c - '0' : lower - 'a' + 10);
    }
    return value;
  }

  // Reads the digits of an escape \u, behind the u. Returns the code point.
  CodePoint unicode_escape() {
    if (take('{')) {
      CodePoint value = 0;
      do {
        value = value * 16 + hex(1);
        if (value > 0x10ffff) refuse("has a character beyond Unicode");
      } while (peek() != '}' && !is_at_end());
      if (!take('}')) refuse("has an escape that does not end");
      return value;
    }
    const CodePoint first = hex(4);
    if (first < 0xd800 || first > 0xdbff || peek() != '\\' || peek(1) != 'u') return first;
    at_ += 2;
    const CodePoint second = hex(4);
    if (second < 0xdc00 || second > 0xdfff) refuse("has half of a surrogate pair");
    return 0x10000 + ((first - 0xd800) << 10U) + (second - 0xdc00);
  }

  CodeSet property(bool is_complement) {
    if (!take('{')) refuse("has a \\p without its {");
    std::string name;
    for (; !is_at_end() && peek() != '}'; ++at_)
      name += utf8(peek());
    if (!take('}')) refuse("has a \\p that does not end");
    const auto found = category(name);
    if (!found)
      refuse(
          fmt::format("has \\p{{{}}}: only general categories are known, such as \\p{{L}}", name));
    return is_complement ? complement(*found) : *found;
  }

  // Reads an escape behind its backslash. Returns the characters that it matches.
  CodeSet escape(bool is_in_bracket) {
    const auto single = [](CodePoint code) { return code_set({{code, code}}); };
    if (is_at_end()) refuse("ends with a backslash");
    const CodePoint code = peek();
    ++at_;
    switch (code) {
      case 'd':
        return digits();
      case 'D':
        return complement(digits());
      case 'w':
        return word_codes();
      case 'W':
        return complement(word_codes());
      case 's':
        return white_space();
      case 'S':
        return complement(white_space());
      case 'p':
      case 'P':
        return property(code == 'P');
      case 't':
        return single('\t');
      case 'n':
        return single('\n');
      case 'v':
        return single('\v');
      case 'f':
        return single('\f');
      case 'r':
        return single('\r');
      case '0':
        if (peek() >= '0' && peek() <= '9') refuse("has an octal escape");
        return single(0);
      case 'c': {
        const CodePoint letter = peek() | 0x20U;
        if (letter < 'a' || letter > 'z') refuse("has a \\c without its letter");
        ++at_;
        return single(letter - 'a' + 1);
      }
      case 'x':
        return single(hex(2));
      case 'u':
        return single(unicode_escape());
      case 'b':
        if (is_in_bracket) return single('\b');
        break;
      default:
        break;
    }
    if (code >= '1' && code <= '9')
      refuse(fmt::format("has the back-reference \\{}, which is not regular", utf8(code)));
    if (code == 'k') refuse("has the back-reference \\k, which is not regular");
    if ((code | 0x20U) >= 'a' && (code | 0x20U) <= 'z' && code < 0x80)
      refuse(fmt::format("has the escape \\{}, which is not known", utf8(code)));
    return single(code);
  }

  // Reads a character class such as [a-z], behind its [.
  CodeSet bracket() {
    const bool is_complement = take('^');
    std::vector<CodeRange> ranges;
    while (!take(']')) {
      if (is_at_end()) refuse("has a [ without its ]");
      const CodeSet from = bracket_item();
      if (peek() != '-' || peek(1) == ']' || at_ + 1 >= codes_.size()) {
        ranges.insert(ranges.end(), from.begin(), from.end());
        continue;
      }
      ++at_;
      const CodeSet to = bracket_item();
      const auto is_single = [](const CodeSet& set) {
        return set.size() == 1 && set[0].first == set[0].last;
      };
      if (!is_single(from) || !is_single(to) || from[0].first > to[0].first)
        refuse("has a range in brackets that is none");
      ranges.push_back({from[0].first, to[0].first});
    }
    const CodeSet set = code_set(std::move(ranges));
    return is_complement ? complement(set) : set;
  }

  CodeSet bracket_item() {
    if (take('\\')) return escape(true);
    const CodePoint code = peek();
    ++at_;
    return {{code, code}};
  }

  const std::vector<CodePoint> codes_;
  size_t at_ = 0;
};

Automaton determinized(const RegexNode& node, Extent extent);

bool has_any(const RegexNode& node, std::initializer_list<RegexNode::Kind> kinds) {
  return std::find(kinds.begin(), kinds.end(), node.kind) != kinds.end() ||
         std::any_of(node.parts.begin(), node.parts.end(),
                     [&](const RegexNode& part) { return has_any(part, kinds); });
}

// A nondeterministic automaton, built by Thompson's construction.
struct Nfa {
  enum class Condition : uint8_t { kNone, kStart, kEnd, kBoundary, kNoBoundary, kAhead };
  struct Empty {
    Condition condition;
    int32_t target;
    int32_t ahead = -1;  // for kAhead: index in `aheads`
  };
  struct State {
    std::vector<Empty> empties;
    CodeSet set = {};
    int32_t target = -1;  // the state that a character of `set` leads to; -1 if there is none
  };

  std::vector<State> states;
  std::vector<Automaton> aheads;  // for each lookahead, the texts that may follow it
  bool has_boundaries = false;

  int32_t add() {
    if (states.size() >= kMaxNfaStates) refuse("repeats too much: use smaller counts");
    states.emplace_back();
    return static_cast<int32_t>(states.size()) - 1;
  }
  void link(int32_t from, int32_t to, Condition condition = Condition::kNone) {
    states[from].empties.push_back({condition, to});
  }
  // Adds states to the nondeterministic automaton that match `node`, starting from the state
  // `from`. Returns the state at the end of the match.
  int32_t build(const RegexNode& node, int32_t from) {
    using Kind = RegexNode::Kind;
    const auto conditioned = [&](Condition condition) {
      const int32_t end = add();
      link(from, end, condition);
      return end;
    };
    switch (node.kind) {
      case Kind::kSet: {
        const int32_t start = add();
        const int32_t end = add();
        link(from, start);
        states[start].set = node.set;
        states[start].target = end;
        return end;
      }
      case Kind::kSequence:
        for (const RegexNode& part : node.parts)
          from = build(part, from);
        return from;
      case Kind::kChoice: {
        const int32_t end = add();
        for (const RegexNode& part : node.parts) {
          const int32_t start = add();
          link(from, start);
          link(build(part, start), end);
        }
        return end;
      }
      case Kind::kRepeat:
        return build_repeat(node, from);
      case Kind::kStart:
        return conditioned(Condition::kStart);
      case Kind::kEnd:
        return conditioned(Condition::kEnd);
      case Kind::kBoundary:
        has_boundaries = true;
        return conditioned(Condition::kBoundary);
      case Kind::kNoBoundary:
        has_boundaries = true;
        return conditioned(Condition::kNoBoundary);
      case Kind::kAhead:
      case Kind::kNotAhead:
        break;
    }
    const int32_t end = conditioned(Condition::kAhead);
    states[from].empties.back().ahead = add_ahead(node);
    return end;
  }

  int32_t build_repeat(const RegexNode& node, int32_t from) {
    for (int64_t i = 0; i < node.least; ++i)
      from = build(node.parts[0], from);
    const int32_t end = add();
    if (!node.most) {
      const int32_t loop = add();
      link(from, loop);
      link(build(node.parts[0], loop), loop);
      link(loop, end);
      return end;
    }
    for (int64_t i = node.least; i < *node.most; ++i) {
      link(from, end);
      const int32_t start = add();
      link(from, start);
      from = build(node.parts[0], start);
    }
    link(from, end);
    return end;
  }

  int32_t add_ahead(const RegexNode& node) {
    using Kind = RegexNode::Kind;
    if (has_any(node.parts[0], {Kind::kStart, Kind::kBoundary, Kind::kNoBoundary}))
      refuse("has a lookahead that looks at what is in front of it, by ^ or \\b");
    if (aheads.size() >= kMaxAheads) refuse(fmt::format("has more than {} lookaheads", kMaxAheads));
    const Automaton ahead =
        determinized({.kind = Kind::kSequence, .parts = {{.kind = Kind::kStart}, node.parts[0]}},
                     Extent::kSearch);
    aheads.push_back(node.kind == Kind::kAhead ? ahead : ahead.complement());
    return static_cast<int32_t>(aheads.size()) - 1;
  }
};

// The kind of the character on one side of a place in a text: none, because the text ends there, a
// character of words (\w), or another character.
enum class Side : uint8_t { kNothing, kWord, kOther };

// Makes a nondeterministic automaton (Nfa) deterministic by the subset construction. A place is a
// state of the nondeterministic automaton, together with the lookaheads that the rest of the text
// must still satisfy (`owed`).
class Determinizer {
 public:
  Determinizer(const Nfa& nfa, int32_t start, int32_t end, Extent extent)
      : nfa_(nfa), end_(end), extent_(extent) {
    owed_id({});
    keys_.push_back({Side::kNothing, {{start, 0}}});
    ids_.emplace(keys_.back(), 0);
  }

  Automaton run() {
    std::vector<Automaton::State> states;
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (static_cast<int64_t>(i) > 4 * Automaton::kMaxStates)
        refuse("needs an automaton of too many states: simplify it");
      const Key key = keys_[i];
      Automaton::State state;
      if (key.places == kMatched) {
        state.accepts = true;
        for (const CodeRange& range : any_code())
          state.edges.push_back({range, static_cast<int32_t>(i)});
      } else {
        const std::vector<Place> last = closure(key, Side::kNothing);
        state.accepts = std::any_of(last.begin(), last.end(), [&](const Place& place) {
          return place.state == end_ && is_paid(place.owed);
        });
        if (nfa_.has_boundaries) {
          add_edges(key, Side::kWord, word_codes(), state.edges);
          add_edges(key, Side::kOther, complement(word_codes()), state.edges);
        } else {
          add_edges(key, Side::kOther, any_code(), state.edges);
        }
        std::sort(state.edges.begin(), state.edges.end(),
                  [](const auto& a, const auto& b) { return a.range.first < b.range.first; });
      }
      states.push_back(std::move(state));
    }
    return Automaton(std::move(states));
  }

 private:
  // Lookaheads that the rest of the text must still satisfy: pairs of a lookahead and the state of
  // its automaton, sorted.
  using Owed = std::vector<std::pair<int32_t, int32_t>>;

  struct Place {
    int32_t state = 0;
    int32_t owed = 0;  // index in owed_; 0: no lookahead is owed
    auto operator<=>(const Place&) const = default;
  };
  struct Key {
    Side before;
    std::vector<Place> places;  // sorted
    auto operator<=>(const Key&) const = default;
  };
  // Stands for the places of a search (Extent::kSearch) that has found a match. They stay the same,
  // whatever text follows.
  inline static const std::vector<Place> kMatched{{-1, 0}};

  int32_t owed_id(const Owed& owed) {
    const auto [found, is_new] = owed_ids_.emplace(owed, static_cast<int32_t>(owed_.size()));
    if (is_new) owed_.push_back(owed);
    return found->second;
  }

  // Returns whether the automaton accepts every text from `state` on.
  static bool takes_all(const Automaton& automaton, int32_t state) {
    const Automaton::State& at = automaton.states()[state];
    const CodeSet all = any_code();
    return at.accepts && at.edges.size() == all.size() &&
           std::equal(at.edges.begin(), at.edges.end(), all.begin(),
                      [&](const Automaton::Edge& edge, const CodeRange& range) {
                        return edge.range == range && edge.target == state;
                      });
  }

  [[nodiscard]] bool is_paid(int32_t owed) const {
    return std::all_of(owed_[owed].begin(), owed_[owed].end(), [&](const auto& one) {
      return nfa_.aheads[one.first].states()[one.second].accepts;
    });
  }

  // Adds the lookahead `ahead`, which starts at the present place of the text, to the lookaheads
  // with the index `owed`. Returns the index of the result in owed_, or nothing if no text
  // satisfies the lookahead.
  std::optional<int32_t> owing(int32_t owed, int32_t ahead) {
    if (nfa_.aheads[ahead].is_empty()) return std::nullopt;
    if (takes_all(nfa_.aheads[ahead], 0)) return owed;
    Owed more = owed_[owed];
    more.emplace_back(ahead, 0);
    std::sort(more.begin(), more.end());
    more.erase(std::unique(more.begin(), more.end()), more.end());
    return owed_id(more);
  }

  // Returns the index in owed_ of the lookaheads that are still to be satisfied behind the
  // character `code`, given those in front of it. Returns nothing if the character violates one of
  // them.
  std::optional<int32_t> owed_behind(int32_t owed, CodePoint code) {
    Owed rest;
    for (const auto& [ahead, state] : owed_[owed]) {
      const int32_t next = nfa_.aheads[ahead].next(state, code);
      if (next < 0) return std::nullopt;
      if (!takes_all(nfa_.aheads[ahead], next)) rest.emplace_back(ahead, next);
    }
    std::sort(rest.begin(), rest.end());
    rest.erase(std::unique(rest.begin(), rest.end()), rest.end());
    return owed_id(rest);
  }

  [[nodiscard]] std::vector<Place> closure(const Key& key, Side behind) {
    using Condition = Nfa::Condition;
    const bool is_boundary = (key.before == Side::kWord) != (behind == Side::kWord);
    std::vector<bool> is_in(nfa_.states.size());  // states found with no lookahead owed
    std::set<Place> others;
    std::vector<Place> stack = key.places;
    std::vector<Place> found;
    while (!stack.empty()) {
      const Place at = stack.back();
      stack.pop_back();
      if (at.owed == 0 ? is_in[at.state] : !others.insert(at).second) continue;
      if (at.owed == 0) is_in[at.state] = true;
      found.push_back(at);
      for (const Nfa::Empty& empty : nfa_.states[at.state].empties) {
        const bool holds = empty.condition == Condition::kNone ||
                           empty.condition == Condition::kAhead ||
                           (empty.condition == Condition::kStart && key.before == Side::kNothing) ||
                           (empty.condition == Condition::kEnd && behind == Side::kNothing) ||
                           (empty.condition == Condition::kBoundary && is_boundary) ||
                           (empty.condition == Condition::kNoBoundary && !is_boundary);
        if (!holds) continue;
        const auto owed = empty.ahead < 0 ? std::optional(at.owed) : owing(at.owed, empty.ahead);
        if (owed) stack.push_back({empty.target, *owed});
      }
    }
    std::sort(found.begin(), found.end());
    work_ += static_cast<int64_t>(nfa_.states.size() / 16 + found.size());
    if (work_ > kMaxWork) refuse("needs an automaton of too many states: simplify it");
    return found;
  }

  void add_edges(const Key& key, Side behind, const CodeSet& codes,
                 std::vector<Automaton::Edge>& edges) {
    struct Part {
      CodeSet set;
      Place next;  // its `owed` is still the one in front of the character
    };
    const std::vector<Place> from = closure(key, behind);
    std::vector<Part> parts;
    std::vector<CodePoint> starts;
    const auto add_starts = [&](const CodeRange& range) {
      starts.push_back(range.first);
      starts.push_back(range.last + 1);
    };
    std::for_each(codes.begin(), codes.end(), add_starts);
    for (const Place& place : from) {
      if (extent_ == Extent::kSearch && place.state == end_) {
        parts.push_back({codes, place});
      } else if (nfa_.states[place.state].target >= 0) {
        parts.push_back({intersection(nfa_.states[place.state].set, codes),
                         {nfa_.states[place.state].target, place.owed}});
      } else {
        continue;
      }
      std::for_each(parts.back().set.begin(), parts.back().set.end(), add_starts);
      for (const auto& [ahead, state] : owed_[place.owed])
        for (const Automaton::Edge& edge : nfa_.aheads[ahead].states()[state].edges)
          add_starts(edge.range);
    }
    const bool is_matched =
        extent_ == Extent::kSearch && std::binary_search(from.begin(), from.end(), Place{end_, 0});
    std::sort(starts.begin(), starts.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    // For each part, the index of the range of its set that has been reached while the loop goes
    // through the ascending `starts`.
    std::vector<size_t> ranges(parts.size());
    size_t range_of_all = 0;
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      const CodePoint code = starts[i];
      while (range_of_all < codes.size() && codes[range_of_all].last < code)
        ++range_of_all;
      if (range_of_all == codes.size()) break;
      if (codes[range_of_all].first > code) continue;
      Key next{nfa_.has_boundaries ? behind : Side::kOther, {}};
      for (size_t p = 0; p < parts.size(); ++p) {
        const CodeSet& set = parts[p].set;
        while (ranges[p] < set.size() && set[ranges[p]].last < code)
          ++ranges[p];
        if (ranges[p] == set.size() || set[ranges[p]].first > code) continue;
        const auto owed = owed_behind(parts[p].next.owed, code);
        if (owed) next.places.push_back({parts[p].next.state, *owed});
      }
      std::sort(next.places.begin(), next.places.end());
      next.places.erase(std::unique(next.places.begin(), next.places.end()), next.places.end());
      if (is_matched) next = {Side::kOther, kMatched};
      if (next.places.empty()) continue;
      const auto [found, is_new] = ids_.emplace(next, static_cast<int32_t>(keys_.size()));
      if (is_new) keys_.push_back(next);
      edges.push_back({{code, starts[i + 1] - 1}, found->second});
    }
  }

  const Nfa& nfa_;
  const int32_t end_;
  const Extent extent_;
  std::map<Owed, int32_t> owed_ids_;
  std::vector<Owed> owed_;
  std::map<Key, int32_t> ids_;
  std::vector<Key> keys_;
  int64_t work_ = 0;
};

Automaton determinized(const RegexNode& node, Extent extent) {
  Nfa nfa;
  const int32_t start = nfa.add();
  int32_t from = start;
  if (extent == Extent::kSearch) {
    const int32_t skip = nfa.add();
    nfa.link(start, skip);
    nfa.states[skip].set = any_code();
    nfa.states[skip].target = start;
    from = nfa.add();
    nfa.link(start, from);
  }
  const int32_t end = nfa.build(node, from);
  return Determinizer(nfa, start, end, extent).run();
}

}  // namespace

Automaton pattern_automaton(std::string_view pattern, Extent extent) {
  return determinized(RegexParser(pattern).parse(), extent);
}

void check_pattern(std::string_view pattern) {
  (void)RegexParser(pattern).parse();
}

bool needs_automaton(std::string_view pattern) {
  for (const std::string_view part : {"\\p", "\\P", "\\b", "\\B", "(?=", "(?!"})
    if (pattern.find(part) != std::string_view::npos) return true;
  return false;
}

}  // namespace encore::grammar
