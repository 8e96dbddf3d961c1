#include "grammar/automaton.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace encore::grammar {
namespace {

constexpr CodePoint kLastCode = 0x10ffff;
constexpr CodeRange kSurrogates{0xd800, 0xdfff};
// An automaton may have up to kSlack * kMaxStates states before it is minimized, and kMaxStates
// afterwards.
constexpr int64_t kSlack = 4;

void check_size(size_t num_states, int64_t slack = 1) {
  if (static_cast<int64_t>(num_states) > slack * Automaton::kMaxStates) {
    fail(ErrorKind::kUnsupported,
         "it needs an automaton of more than {} states: use smaller counts or fewer alternatives",
         Automaton::kMaxStates);
  }
}

int32_t target_of(const std::vector<Automaton::Edge>& edges, CodePoint code) {
  const auto found = std::partition_point(edges.begin(), edges.end(),
                                          [&](const auto& edge) { return edge.range.last < code; });
  return found == edges.end() || found->range.first > code ? -1 : found->target;
}

// Joins edges that lead to the same state and whose ranges adjoin.
void join_edges(std::vector<Automaton::Edge>& edges) {
  std::vector<Automaton::Edge> joined;
  for (const Automaton::Edge& edge : edges) {
    if (!joined.empty() && joined.back().target == edge.target &&
        joined.back().range.last + 1 == edge.range.first) {
      joined.back().range.last = edge.range.last;
    } else {
      joined.push_back(edge);
    }
  }
  edges = std::move(joined);
}

// Builds the automaton that runs `a` and `b` on the same text. Its states are pairs of a state of
// `a` and a state of `b`, where -1 stands for no state. `accepts` is given whether each of the two
// states accepts, and returns whether the pair accepts.
template <class Accepts>
Automaton product(const Automaton& a, const Automaton& b, bool needs_both, const Accepts& accepts) {
  using Pair = std::pair<int32_t, int32_t>;
  std::map<Pair, int32_t> ids{{{0, 0}, 0}};
  std::deque<Pair> pairs{{0, 0}};
  std::vector<Automaton::State> states;
  static const std::vector<Automaton::Edge> kNone;
  while (!pairs.empty()) {
    const auto [x, y] = pairs.front();
    pairs.pop_front();
    Automaton::State state{
        accepts(x >= 0 && a.states()[x].accepts, y >= 0 && b.states()[y].accepts), {}};
    const auto& left = x < 0 ? kNone : a.states()[x].edges;
    const auto& right = y < 0 ? kNone : b.states()[y].edges;
    std::vector<CodePoint> starts;
    for (const auto* edges : {&left, &right}) {
      for (const auto& edge : *edges) {
        starts.push_back(edge.range.first);
        starts.push_back(edge.range.last + 1);
      }
    }
    std::sort(starts.begin(), starts.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      const Pair next{target_of(left, starts[i]), target_of(right, starts[i])};
      if (needs_both ? next.first < 0 || next.second < 0 : next.first < 0 && next.second < 0)
        continue;
      const auto [found, is_new] = ids.emplace(next, static_cast<int32_t>(ids.size()));
      if (is_new) {
        check_size(ids.size(), kSlack);
        pairs.push_back(next);
      }
      state.edges.push_back({{starts[i], starts[i + 1] - 1}, found->second});
    }
    join_edges(state.edges);
    states.push_back(std::move(state));
  }
  return Automaton(std::move(states));
}

}  // namespace

CodeSet code_set(std::vector<CodeRange> ranges) {
  std::vector<CodeRange> parts;
  for (const CodeRange& range : ranges) {
    if (range.first > range.last) continue;
    if (range.first < kSurrogates.first)
      parts.push_back({range.first, std::min(range.last, kSurrogates.first - 1)});
    if (range.last > kSurrogates.last)
      parts.push_back(
          {std::max(range.first, kSurrogates.last + 1), std::min(range.last, kLastCode)});
  }
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  CodeSet set;
  for (const CodeRange& part : parts) {
    if (!set.empty() && part.first <= set.back().last + 1) {
      set.back().last = std::max(set.back().last, part.last);
    } else {
      set.push_back(part);
    }
  }
  return set;
}

CodeSet any_code() {
  return code_set({{0, kLastCode}});
}

CodeSet complement(const CodeSet& set) {
  std::vector<CodeRange> rest;
  CodePoint next = 0;
  for (const CodeRange& range : set) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCode) rest.push_back({next, kLastCode});
  return code_set(std::move(rest));
}

CodeSet intersection(const CodeSet& a, const CodeSet& b) {
  CodeSet common;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const CodeRange range{std::max(a[i].first, b[j].first), std::min(a[i].last, b[j].last)};
    if (range.first <= range.last) common.push_back(range);
    a[i].last < b[j].last ? ++i : ++j;
  }
  return common;
}

std::vector<CodePoint> code_points(std::string_view text) {
  std::vector<CodePoint> codes;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    CodePoint code = size == 1 ? lead : lead & (0xffU >> (size + 1));
    bool is_valid = (lead < 0x80 || lead >= 0xc2) && lead < 0xf5 && i + size <= text.size();
    for (size_t k = 1; is_valid && k < size; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      is_valid = (byte & 0xc0U) == 0x80;
      code = code << 6U | (byte & 0x3fU);
    }
    if (!is_valid || code > kLastCode || (code >= kSurrogates.first && code <= kSurrogates.last))
      fail(ErrorKind::kUnsupported, "a text is not UTF-8");
    codes.push_back(code);
    i += size;
  }
  return codes;
}

std::string utf8(CodePoint code) {
  std::string text;
  if (code < 0x80) {
    text += static_cast<char>(code);
    return text;
  }
  const int num_rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  const uint32_t lead = num_rest == 1 ? 0xc0 : num_rest == 2 ? 0xe0 : 0xf0;
  text += static_cast<char>(lead | code >> (6U * num_rest));
  for (int i = num_rest - 1; i >= 0; --i)
    text += static_cast<char>(0x80U | (code >> (6U * i) & 0x3fU));
  return text;
}

Automaton::Automaton(std::vector<State> states) : states_(std::move(states)) {
  check_size(states_.size(), kSlack);
  minimize();
  check_size(states_.size());
}

Automaton Automaton::any() {
  return lengths(0, std::nullopt);
}

Automaton Automaton::one_of(const std::vector<std::string>& texts) {
  std::vector<std::map<CodePoint, int32_t>> next(1);
  std::vector<bool> ends(1);
  for (const std::string& text : texts) {
    int32_t at = 0;
    for (const CodePoint code : code_points(text)) {
      const auto [found, is_new] = next[at].emplace(code, static_cast<int32_t>(next.size()));
      at = found->second;
      if (is_new) {
        check_size(next.size(), kSlack);
        next.emplace_back();
        ends.push_back(false);
      }
    }
    ends[at] = true;
  }
  std::vector<State> states(next.size());
  for (size_t i = 0; i < next.size(); ++i) {
    states[i].accepts = ends[i];
    for (const auto& [code, target] : next[i])
      states[i].edges.push_back({{code, code}, target});
  }
  return Automaton(std::move(states));
}

Automaton Automaton::lengths(int64_t least, std::optional<int64_t> most) {
  const int64_t last = most.value_or(least);
  check_size(static_cast<size_t>(std::clamp<int64_t>(last, 0, kMaxStates)) + 1);
  if (last < least) return Automaton({State{}});
  std::vector<State> states(static_cast<size_t>(last) + 1);
  for (int64_t i = 0; i <= last; ++i) {
    states[i].accepts = i >= least;
    if (i == last && most) break;
    for (const CodeRange& range : any_code())
      states[i].edges.push_back({range, static_cast<int32_t>(std::min(i + 1, last))});
  }
  return Automaton(std::move(states));
}

Automaton Automaton::lengths_modulo(int64_t remainder, int64_t divisor) {
  std::vector<State> states(static_cast<size_t>(divisor));
  for (int64_t i = 0; i < divisor; ++i) {
    states[i].accepts = i == remainder;
    for (const CodeRange& range : any_code())
      states[i].edges.push_back({range, static_cast<int32_t>((i + 1) % divisor)});
  }
  return Automaton(std::move(states));
}

bool Automaton::accepts(std::string_view text) const {
  int32_t at = 0;
  for (const CodePoint code : code_points(text)) {
    at = target_of(states_[at].edges, code);
    if (at < 0) return false;
  }
  return states_[at].accepts;
}

int32_t Automaton::next(int32_t state, CodePoint code) const {
  return target_of(states_[state].edges, code);
}

std::optional<std::vector<std::string>> Automaton::all_texts(int64_t most) const {
  std::vector<std::string> texts;
  struct Place {
    int32_t state;
    std::string text;
    size_t depth;
  };
  std::vector<Place> places{{0, "", 0}};
  while (!places.empty()) {
    const Place place = std::move(places.back());
    places.pop_back();
    // A path with as many edges as the automaton has states passes through one state twice. The
    // part of the path between these passes can be repeated, so the set of texts is infinite.
    if (place.depth >= states_.size()) return std::nullopt;
    if (states_[place.state].accepts) texts.push_back(place.text);
    for (const Edge& edge : states_[place.state].edges) {
      if (static_cast<int64_t>(edge.range.last - edge.range.first) + std::ssize(places) +
              std::ssize(texts) >=
          most + 64)
        return std::nullopt;
      for (CodePoint code = edge.range.first; code <= edge.range.last; ++code)
        places.push_back({edge.target, place.text + utf8(code), place.depth + 1});
    }
    if (std::ssize(texts) > most) return std::nullopt;
  }
  return texts;
}

Automaton Automaton::complement() const {
  std::vector<State> states = states_;
  const auto rest = static_cast<int32_t>(states.size());
  states.push_back({true, {}});
  for (const CodeRange& range : any_code())
    states.back().edges.push_back({range, rest});
  for (int32_t i = 0; i < rest; ++i) {
    State& state = states[i];
    state.accepts = !state.accepts;
    std::vector<CodeRange> known;
    for (const Edge& edge : state.edges)
      known.push_back(edge.range);
    for (const CodeRange& range : grammar::complement(code_set(std::move(known))))
      state.edges.push_back({range, rest});
    std::sort(state.edges.begin(), state.edges.end(),
              [](const Edge& a, const Edge& b) { return a.range.first < b.range.first; });
  }
  return Automaton(std::move(states));
}

Automaton both(const Automaton& a, const Automaton& b) {
  return product(a, b, true, [](bool x, bool y) { return x && y; });
}

Automaton either(const Automaton& a, const Automaton& b) {
  return product(a, b, false, [](bool x, bool y) { return x || y; });
}

// Makes the automaton minimal: drops states that cannot be reached or that reach no accepting
// state, and joins equivalent states by Moore's partition refinement.
void Automaton::minimize() {
  const size_t num_states = states_.size();
  std::vector<std::vector<int32_t>> before(num_states);
  std::vector<bool> is_reached(num_states);
  std::vector<bool> reaches_end(num_states);
  std::vector<int32_t> stack{0};
  is_reached[0] = true;
  while (!stack.empty()) {
    const int32_t at = stack.back();
    stack.pop_back();
    for (const Edge& edge : states_[at].edges) {
      before[edge.target].push_back(at);
      if (!is_reached[edge.target]) stack.push_back(edge.target);
      is_reached[edge.target] = true;
    }
  }
  for (size_t i = 0; i < num_states; ++i) {
    if (!is_reached[i] || !states_[i].accepts) continue;
    reaches_end[i] = true;
    stack.push_back(static_cast<int32_t>(i));
  }
  while (!stack.empty()) {
    const int32_t at = stack.back();
    stack.pop_back();
    for (const int32_t from : before[at]) {
      if (!reaches_end[from]) stack.push_back(from);
      reaches_end[from] = true;
    }
  }
  if (!reaches_end[0]) {
    states_.assign(1, State{});
    return;
  }
  std::vector<int32_t> kept;
  for (size_t i = 0; i < num_states; ++i) {
    if (!is_reached[i] || !reaches_end[i]) continue;
    kept.push_back(static_cast<int32_t>(i));
    std::erase_if(states_[i].edges, [&](const Edge& edge) { return !reaches_end[edge.target]; });
  }
  // Holds the equivalence class of each state. The classes are refined until no class is split any
  // more.
  std::vector<int32_t> classes(num_states, 0);
  for (const int32_t i : kept)
    classes[i] = states_[i].accepts ? 1 : 0;
  size_t num_classes = 0;
  std::vector<int32_t> representatives;
  for (;;) {
    std::map<std::pair<int32_t, std::vector<std::pair<CodePoint, std::pair<CodePoint, int32_t>>>>,
             int32_t>
        ids;
    std::vector<int32_t> refined(num_states, -1);
    representatives.clear();
    for (const int32_t i : kept) {
      std::vector<Edge> edges = states_[i].edges;
      for (Edge& edge : edges)
        edge.target = classes[edge.target];
      join_edges(edges);
      std::vector<std::pair<CodePoint, std::pair<CodePoint, int32_t>>> signature;
      for (const Edge& edge : edges)
        signature.push_back({edge.range.first, {edge.range.last, edge.target}});
      const auto [found, is_new] = ids.emplace(std::pair(classes[i], std::move(signature)),
                                               static_cast<int32_t>(ids.size()));
      if (is_new) representatives.push_back(i);
      refined[i] = found->second;
    }
    classes = std::move(refined);
    if (ids.size() == num_classes) break;
    num_classes = ids.size();
  }
  // The start state stays state 0, because it is the first of the states that are kept.
  std::vector<State> states(representatives.size());
  for (size_t c = 0; c < representatives.size(); ++c) {
    states[c] = states_[representatives[c]];
    for (Edge& edge : states[c].edges)
      edge.target = classes[edge.target];
    join_edges(states[c].edges);
  }
  states_ = std::move(states);
}

}  // namespace encore::grammar
