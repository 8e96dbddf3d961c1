// Represents sets of texts by finite automata, on which unions, intersections and complements of
// sets are computed exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace encore::grammar {

using CodePoint = uint32_t;

struct CodeRange {
  CodePoint first = 0;
  CodePoint last = 0;

  friend bool operator==(const CodeRange&, const CodeRange&) = default;
};

// A set of characters, as ascending ranges that neither overlap nor adjoin. It contains no
// surrogates.
using CodeSet = std::vector<CodeRange>;

CodeSet code_set(std::vector<CodeRange> ranges);  // the ranges may be in any order
CodeSet any_code();
CodeSet complement(const CodeSet& set);
CodeSet intersection(const CodeSet& a, const CodeSet& b);

// Decodes UTF-8 to code points. Errors: kUnsupported for invalid UTF-8.
std::vector<CodePoint> code_points(std::string_view text);
std::string utf8(CodePoint code);

// A minimal deterministic automaton over characters, which represents the set of the texts that it
// accepts. It starts in state 0. An accepting state can be reached from every state, except that
// the automaton of the empty set has one state, which does not accept. Errors: kUnsupported
// wherever a result would have more than kMaxStates states.
class Automaton {
 public:
  static constexpr int64_t kMaxStates = 4096;

  struct Edge {
    CodeRange range;
    int32_t target = 0;

    friend bool operator==(const Edge&, const Edge&) = default;
  };
  struct State {
    bool accepts = false;
    std::vector<Edge> edges;  // sorted by their ranges
  };

  explicit Automaton(std::vector<State> states);  // takes any deterministic automaton

  static Automaton any();
  static Automaton one_of(const std::vector<std::string>& texts);
  // Returns the automaton of the texts with `least` to `most` characters, or with at least `least`
  // characters if `most` is absent.
  static Automaton lengths(int64_t least, std::optional<int64_t> most);
  // Returns the automaton of the texts whose number of characters leaves `remainder` when it is
  // divided by `divisor`.
  static Automaton lengths_modulo(int64_t remainder, int64_t divisor);

  [[nodiscard]] const std::vector<State>& states() const { return states_; }
  [[nodiscard]] bool is_empty() const { return !states_[0].accepts && states_[0].edges.empty(); }
  [[nodiscard]] bool accepts(std::string_view text) const;
  // Returns the state that a character leads to from `state`, or -1 if no edge has the character.
  [[nodiscard]] int32_t next(int32_t state, CodePoint code) const;
  // Returns all texts that the automaton accepts if there are at most `most`, and otherwise
  // nothing.
  [[nodiscard]] std::optional<std::vector<std::string>> all_texts(int64_t most) const;
  [[nodiscard]] Automaton complement() const;

  friend Automaton both(const Automaton& a, const Automaton& b);
  friend Automaton either(const Automaton& a, const Automaton& b);

 private:
  void minimize();
  std::vector<State> states_;
};

Automaton both(const Automaton& a, const Automaton& b);
Automaton either(const Automaton& a, const Automaton& b);

// Builds an automaton whose states are the keys that can be reached from `start`. `step` returns
// the key that a character of `alphabet` leads to, or nothing if that character may not come.
// `accepts` says whether a key's state accepts. REQUIRES: the characters of `alphabet` ascend.
template <class Key>
Automaton explore(const Key& start, std::string_view alphabet,
                  const std::function<std::optional<Key>(const Key&, char)>& step,
                  const std::function<bool(const Key&)>& accepts) {
  std::map<Key, int32_t> ids{{start, 0}};
  std::vector<Key> keys{start};
  std::vector<Automaton::State> states;
  for (size_t i = 0; i < keys.size() && std::ssize(keys) <= 4 * Automaton::kMaxStates; ++i) {
    const Key key = keys[i];
    Automaton::State state{accepts(key), {}};
    for (const char c : alphabet) {  // in ascending order
      const std::optional<Key> next = step(key, c);
      if (!next) continue;
      const auto [found, is_new] = ids.emplace(*next, static_cast<int32_t>(keys.size()));
      if (is_new) keys.push_back(*next);
      const auto code = static_cast<CodePoint>(c);
      state.edges.push_back({{code, code}, found->second});
    }
    states.push_back(std::move(state));
  }
  states.resize(keys.size());  // the constructor fails if there are too many
  return Automaton(std::move(states));
}

}  // namespace encore::grammar
