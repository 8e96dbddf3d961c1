// Sets of texts that a finite automaton knows, and what can be computed with them exactly.
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

// Characters: ranges in order, which neither meet nor touch. No surrogates.
using CodeSet = std::vector<CodeRange>;

CodeSet code_set(std::vector<CodeRange> ranges);  // in any order
CodeSet any_code();
CodeSet complement(const CodeSet& set);
CodeSet intersection(const CodeSet& a, const CodeSet& b);

// The code points of UTF-8. Errors: kUnsupported where it is none.
std::vector<CodePoint> code_points(std::string_view text);
std::string utf8(CodePoint code);

// A minimal deterministic automaton: it begins in state 0, and every state reaches one that accepts, but for the
// only state of the empty set.
// Errors: kUnsupported wherever a result would have more than kMaxStates states.
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
    std::vector<Edge> edges;  // in order
  };

  explicit Automaton(std::vector<State> states);  // any deterministic one

  static Automaton any();
  static Automaton one_of(const std::vector<std::string>& texts);
  // Texts of `least` to `most` characters; of any greater length without `most`.
  static Automaton lengths(int64_t least, std::optional<int64_t> most);
  // Texts whose number of characters leaves `remainder` when it is divided by `divisor`.
  static Automaton lengths_modulo(int64_t remainder, int64_t divisor);

  [[nodiscard]] const std::vector<State>& states() const { return states_; }
  [[nodiscard]] bool is_empty() const { return !states_[0].accepts && states_[0].edges.empty(); }
  [[nodiscard]] bool accepts(std::string_view text) const;
  // The state that a character leads to; -1: none.
  [[nodiscard]] int32_t next(int32_t state, CodePoint code) const;
  // All texts, where there are at most `most`.
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

// The automaton whose states are keys: those that `step` reaches from `start` by a character of `alphabet`.
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
    for (const char c : alphabet) {  // in order
      const std::optional<Key> next = step(key, c);
      if (!next) continue;
      const auto [found, is_new] = ids.emplace(*next, static_cast<int32_t>(keys.size()));
      if (is_new) keys.push_back(*next);
      const auto code = static_cast<CodePoint>(c);
      state.edges.push_back({{code, code}, found->second});
    }
    states.push_back(std::move(state));
  }
  states.resize(keys.size());  // more than there may be: the constructor says so
  return Automaton(std::move(states));
}

}  // namespace encore::grammar
