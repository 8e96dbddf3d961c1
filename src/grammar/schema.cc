#include "grammar/schema.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "grammar/automaton.h"
#include "grammar/decimal.h"
#include "grammar/ebnf.h"
#include "grammar/shapes.h"

namespace encore::grammar {
namespace {

constexpr size_t kMaxNodes = 4000;
constexpr size_t kMaxStates = 4000;  // the most states of one object's or array's Row
// The most patterns (patternProperties) of one object. Each subset of the patterns that a key may
// match gets rules of its own, so their number grows exponentially.
constexpr size_t kMaxPatterns = 5;
constexpr int64_t kMaxValues = 64;        // with uniqueItems: the most values that are listed
constexpr int64_t kMaxOrderedFreely = 5;  // the most unique items that may come in any order

constexpr std::string_view kBasicRules = R"ebnf(ws ::= [ \n\r\t]{0,16}
text ::= "\"" text_rest
text_rest ::= "\"" | [\u0020-\u0021\u0023-\u005b\u005d-\ud7ff\ue000-\U0010ffff] text_rest | "\\" text_escape (=([ \n\r\t]{0,16} [,}\]:]))
text_escape ::= [\"\\/bfnrt] text_rest | "u" [0-9a-cefA-CEF] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] text_rest | "u" [dD] [0-7] [0-9a-fA-F] [0-9a-fA-F] text_rest | "u" [dD] [89abAB] [0-9a-fA-F] [0-9a-fA-F] "\\u" [dD] [c-fC-F] [0-9a-fA-F] [0-9a-fA-F] text_rest (=([ \n\r\t]{0,16} [,}\]:]))
integer ::= "0" | "-"? [1-9] [0-9]*
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+\-]? [0-9]+)?
any ::= number | text | "true" | "false" | "null" | array | object
array ::= "[" ws any (ws "," ws any)* ws "]" | "[" ws "]"
object ::= "{" ws text ws ":" ws any (ws "," ws text ws ":" ws any)* ws "}" | "{" ws "}"
)ebnf";

// An automaton that accepts the sequences of items that an array may have, or of properties that an
// object may have. A state is a place between two items or properties.
struct Row {
  struct Step {
    std::string key;    // the key with its colon, in front of the value; empty in arrays
    int32_t node = -1;  // the node of the value; -1 if the edge generates nothing
    int32_t target = 0;
  };
  struct State {
    bool may_end = false;
    bool is_first = false;  // nothing has come yet
    std::vector<Step> steps = {};
  };
  std::vector<State> states;
};

struct PlainArray {
  std::vector<int32_t> prefix = {};
  std::optional<int32_t> rest = {};
  int64_t least = 0;
  std::optional<int64_t> most = {};
};

// One of the alternatives for the value of a node, before its rules in the grammar are written.
struct Part {
  std::string text = {};  // a rule's name or a literal; empty if one of the members below is set
  std::optional<PlainArray> array = {};
  std::optional<Row> row = {};
  bool is_object = false;  // whether `row` is an object's
  // The text of the only array or object that is allowed, if there is just one. `array` or `row`
  // then tells whether that value fits.
  std::string constant = {};
};

struct Node {
  std::vector<Part> parts = {};
  bool has_value = false;  // whether any value fits
  bool has_rule = false;   // whether its rule has been or will be written
};

class GrammarWriter {
 public:
  GrammarWriter(SchemaDocument& document, bool is_closed)
      : document_(document), shapes_(document), is_closed_(is_closed) {}

  std::string run() {
    const int32_t root = node({{&document_.root(), true}});
    while (!waiting_.empty()) {
      const auto [id, conjunction] = std::move(waiting_.back());
      waiting_.pop_back();
      fill(id, conjunction);
    }
    find_values();
    if (!nodes_[root].has_value) fail(ErrorKind::kUnsupported, "schema: no value fits it");
    std::string grammar = fmt::format("root ::= {}\n", reference(root));
    while (!unwritten_.empty()) {
      const int32_t id = unwritten_.back();
      unwritten_.pop_back();
      write(id);
    }
    return grammar + std::string(kBasicRules) + rules_;
  }

 private:
  // --- Nodes ---

  int32_t node(const Conjunction& conjunction) {
    Conjunction key = conjunction;
    std::sort(key.begin(), key.end());
    const auto [found, is_new] = ids_.emplace(std::move(key), static_cast<int32_t>(nodes_.size()));
    if (is_new) {
      if (nodes_.size() == kMaxNodes)
        fail(ErrorKind::kUnsupported, "schema: it has too many different values: simplify it");
      nodes_.emplace_back();
      waiting_.emplace_back(found->second, conjunction);
    }
    return found->second;
  }

  void fill(int32_t id, const Conjunction& conjunction) {
    where_ = conjunction.empty() ? "schema" : document_.path(*conjunction.front().schema);
    std::vector<Part> parts;
    const std::vector<Shape> list = shapes_.of(conjunction);
    const bool is_any = list.size() == 6 && std::all_of(list.begin(), list.end(), is_free);
    if (is_any) {
      parts.push_back({.text = "any"});
    } else {
      for (const Shape& shape : list)
        add_parts(shape, parts);
    }
    nodes_[id].parts = std::move(parts);
  }

  static bool is_free(const Shape& shape) {
    return shape.may_be_false && shape.may_be_true && !shape.is_whole && !shape.values &&
           shape.automata.empty() && shape.least <= 0 && !shape.most && shape.keys.empty() &&
           shape.required.empty() && shape.absent.empty() && shape.names.empty() &&
           shape.items.empty() && shape.contains.empty() && !shape.has_unique_items;
  }

  void add_parts(const Shape& shape, std::vector<Part>& parts) {
    switch (shape.type) {
      case JsonType::kNull:
        parts.push_back({.text = "\"null\""});
        break;
      case JsonType::kBoolean:
        if (shape.may_be_true) parts.push_back({.text = "\"true\""});
        if (shape.may_be_false) parts.push_back({.text = "\"false\""});
        break;
      case JsonType::kNumber:
      case JsonType::kString:
        add_texts(shape, parts);
        break;
      case JsonType::kArray:
        parts.push_back(is_free(shape) ? Part{.text = "array"} : array(shape));
        break;
      case JsonType::kObject:
        parts.push_back(is_free(shape) ? Part{.text = "object"} : object(shape));
        break;
    }
    const bool is_nested = shape.type == JsonType::kArray || shape.type == JsonType::kObject;
    if (is_nested && shape.values)
      parts.back().constant = ebnf_literal(compact_text(shape.values->front()));
  }

  // --- Strings and numbers ---

  void add_texts(const Shape& shape, std::vector<Part>& parts) {
    const bool is_number = shape.type == JsonType::kNumber;
    const Texts texts = texts_of(shape);
    if (texts.values) {
      for (const json::value& value : *texts.values)
        parts.push_back({.text = ebnf_literal(compact_text(value))});
      return;
    }
    if (texts.automaton) {
      if (!texts.automaton->is_empty())
        parts.push_back({.text = is_number ? rules_for(*texts.automaton, false)
                                           : rules_for(*texts.automaton, true)});
      return;
    }
    if (is_number) {
      parts.push_back({.text = shape.is_whole ? "integer" : "number"});
    } else if (shape.least == 0 && !shape.most) {
      parts.push_back({.text = "text"});
    } else {
      // If only a string's length is restricted, a repetition {m,n} in xgrammar's syntax counts the
      // characters. It matches unescaped characters only, so the string may contain no escapes.
      parts.push_back(
          {.text = fmt::format(
               R"("\"" [\u0020-\u0021\u0023-\u005b\u005d-\ud7ff\ue000-\U0010ffff]{{{},{}}} "\"")",
               shape.least, shape.most ? fmt::format("{}", *shape.most) : "")});
    }
  }

  // Returns the text by which other rules refer to the rules of an automaton. Writes these rules,
  // unless equal ones have been written.
  std::string rules_for(const Automaton& automaton, bool is_string) {
    std::string rules =
        is_string ? json_string_rules(automaton, "\x01") : text_rules(automaton, "\x01");
    std::string& name = written_[rules];
    if (name.empty()) {
      name = fmt::format("{}{}_", is_string ? "s" : "n", written_.size());
      for (const char c : rules)
        c == '\x01' ? rules_ += name : rules_ += c;
      if (rules_.size() > kMaxRuleText)
        fail(ErrorKind::kUnsupported, "{}: its rules are too long when written out", where_);
    }
    return is_string ? fmt::format(R"("\"" {}0)", name) : name + "0";
  }

  // --- Arrays ---

  Part array(const Shape& shape) {
    size_t num_prefix = 0;
    bool has_rest = false;
    for (const ItemRule& rule : shape.items) {
      num_prefix = std::max(num_prefix, rule.prefix.size());
      has_rest = has_rest || rule.rest;
    }
    Shape bounded = shape;
    const auto size = static_cast<int64_t>(num_prefix);
    if (is_closed_ && !has_rest && size > 0 && shape.least <= size && shape.contains.empty())
      bounded.most = shape.most ? std::min(*shape.most, size) : size;
    if (bounded.has_unique_items && (!bounded.most || *bounded.most > 1))
      return {.row = unique_items(bounded, num_prefix)};
    if (!bounded.contains.empty()) return {.row = containing_items(bounded, num_prefix)};
    PlainArray plain{.least = bounded.least, .most = bounded.most};
    for (size_t i = 0; i < num_prefix && (!plain.most || static_cast<int64_t>(i) < *plain.most);
         ++i)
      plain.prefix.push_back(node(item_of(bounded, i)));
    if (!plain.most || *plain.most > std::ssize(plain.prefix))
      plain.rest = node(item_of(bounded, num_prefix));
    return {.array = std::move(plain)};
  }

  // Returns the Row of an array with the keyword `contains`, which says of several schemas how many
  // items must fit each. A state stands for the next item's index and, for each schema, the number
  // of items that fit it so far. Both are counted only up to the largest number that a bound refers
  // to.
  Row containing_items(const Shape& shape, size_t num_prefix) {
    const size_t num = shape.contains.size();
    if (num > 3)
      fail(ErrorKind::kUnsupported, "{}.contains: more than 3 of them hold at once", where_);
    using Place = std::pair<int64_t, std::vector<int64_t>>;
    std::map<Place, int32_t> ids;
    std::vector<Place> places;
    const auto id_of = [&](const Place& place) {
      const auto [found, is_new] = ids.emplace(place, static_cast<int32_t>(places.size()));
      if (is_new) places.push_back(place);
      if (places.size() > kMaxStates)
        fail(ErrorKind::kUnsupported, "{}.contains: its counts are too large", where_);
      return found->second;
    };
    const int64_t last =
        shape.most ? *shape.most
                   : std::max<int64_t>({1, static_cast<int64_t>(num_prefix), shape.least});
    id_of({0, std::vector<int64_t>(num)});
    Row row;
    for (size_t i = 0; i < places.size(); ++i) {
      const auto [index, counts] = places[i];
      Row::State state{.may_end = index >= shape.least, .is_first = index == 0};
      for (size_t c = 0; c < num; ++c)
        state.may_end = state.may_end && counts[c] >= shape.contains[c].least;
      for (uint32_t subset = 0; subset < 1U << num && !(shape.most && index == last); ++subset) {
        Conjunction item = item_of(shape, static_cast<size_t>(index));
        Place next{std::min(index + 1, last), counts};
        bool is_possible = true;
        for (size_t c = 0; c < num; ++c) {
          const Contains& contains = shape.contains[c];
          const bool fits = (subset >> c & 1U) != 0;
          // Without maxContains, the number of fitting items only has a lower bound, so an item
          // that fits need not be counted. Items that are not counted are then not required to
          // violate the schema.
          if (fits || contains.most) {
            Conjunction part = contains.item;
            if (!fits) part.front().holds = !part.front().holds;
            item = joined(item, part);
          }
          if (!fits) continue;
          ++next.second[c];
          is_possible = is_possible && next.second[c] <= contains.most.value_or(contains.least);
        }
        if (is_possible) state.steps.push_back({"", node(item), id_of(next)});
      }
      row.states.push_back(std::move(state));
    }
    return row;
  }

  // Returns the values that an item may have, if there are at most kMaxValues.
  std::optional<std::vector<json::value>> few_values(const Conjunction& item) {
    std::vector<json::value> values;
    const auto add = [&](const json::value& value) {
      if (std::none_of(values.begin(), values.end(),
                       [&](const json::value& other) { return json::is_same(value, other); }))
        values.push_back(value);
    };
    for (const Shape& shape : shapes_.of(item)) {
      if (shape.type == JsonType::kNull) add(nullptr);
      if (shape.type == JsonType::kBoolean && shape.may_be_true) add(true);
      if (shape.type == JsonType::kBoolean && shape.may_be_false) add(false);
      if (shape.type == JsonType::kArray || shape.type == JsonType::kObject) {
        if (!shape.values) return std::nullopt;
        add(shape.values->front());
      }
      if (shape.type != JsonType::kNumber && shape.type != JsonType::kString) continue;
      const Texts texts = texts_of(shape);
      if (texts.values) {
        for (const json::value& value : *texts.values)
          add(value);
        continue;
      }
      if (!texts.automaton) return std::nullopt;
      auto all = texts.automaton->all_texts(kMaxValues);
      if (!all) return std::nullopt;
      std::sort(all->begin(), all->end(), [](const std::string& a, const std::string& b) {
        return std::pair(a.size(), a) < std::pair(b.size(), b);
      });
      for (const std::string& text : *all)
        add(shape.type == JsonType::kString ? json::value(text) : json::parse(text, "a number"));
    }
    if (std::ssize(values) > kMaxValues) return std::nullopt;
    return values;
  }

  // Returns the Row of an array with uniqueItems. Each option (a value, or a class of values) comes
  // at most once. Up to kMaxOrderedFreely options may come in any order; if there are more, they
  // come in the order of `options` only.
  Row unique_items(const Shape& shape, size_t num_prefix) {
    if (num_prefix > 0 || !shape.contains.empty())
      fail(ErrorKind::kUnsupported, "{}.uniqueItems: is not known beside prefixItems or contains",
           where_);
    const Conjunction item = item_of(shape, 0);
    std::vector<int32_t> options;
    if (const auto values = few_values(item)) {
      for (const json::value& value : *values)
        options.push_back(node({shapes_.constant(value, where_)}));
    } else {
      for (const Literal& one : shapes_.classes(item))
        options.push_back(node(joined(item, {one})));
      if (options.empty()) {
        fail(ErrorKind::kUnsupported,
             "{}.uniqueItems: items that are arrays or objects cannot be kept apart: use an enum, "
             "or leave it out",
             where_);
      }
    }
    const bool is_free_order = std::ssize(options) <= kMaxOrderedFreely;
    // A state of the Row: first, the set of options that have come (any order), or the number of
    // options that may no longer come (fixed order); second, the number of items so far.
    using Place = std::pair<uint64_t, int64_t>;
    std::map<Place, int32_t> ids;
    std::vector<Place> places;
    const auto id_of = [&](const Place& place) {
      const auto [found, is_new] = ids.emplace(place, static_cast<int32_t>(places.size()));
      if (is_new) places.push_back(place);
      return found->second;
    };
    const int64_t last = shape.most.value_or(std::max<int64_t>(1, shape.least));
    id_of({0, 0});
    Row row;
    for (size_t i = 0; i < places.size(); ++i) {
      const auto [came, count] = places[i];
      Row::State state{.may_end = count >= shape.least, .is_first = count == 0};
      for (size_t option = 0; option < options.size() && !(shape.most && count == last); ++option) {
        if (is_free_order ? (came >> option & 1U) != 0 : option < came) continue;
        const uint64_t next = is_free_order ? came | uint64_t{1} << option : option + 1;
        state.steps.push_back({"", options[option], id_of({next, std::min(count + 1, last)})});
      }
      row.states.push_back(std::move(state));
    }
    return row;
  }

  // --- Objects ---

  struct Property {
    std::string key;
    int32_t node = -1;
    bool is_required = false;
  };
  // A set of keys that an object may have although the schema does not name them, with the node of
  // their values.
  struct FreeKeys {
    Automaton keys;
    bool are_any = false;
    int32_t node = -1;
  };

  Part object(const Shape& shape) {
    std::vector<Property> properties;
    std::vector<std::string> names;
    const auto add_name = [&](const std::string& name) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    bool is_open = !is_closed_ || (shape.keys.empty() && shape.required.empty());
    for (const KeyRule& rule : shape.keys) {
      for (const auto& [name, unused] : rule.properties)
        add_name(name);
      is_open = is_open || rule.rest;
    }
    for (const std::string& name : shape.required)
      add_name(name);
    const auto is_in = [](const std::vector<std::string>& list, const std::string& name) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    for (const std::string& name : names) {
      if (is_in(shape.absent, name)) continue;
      const bool is_required = is_in(shape.required, name);
      const bool is_name =
          std::all_of(shape.names.begin(), shape.names.end(),
                      [&](const Conjunction& fits) { return shapes_.may_be_key(fits, name); });
      if (is_name) {
        properties.push_back({name, node(value_of(shape, name)), is_required});
      } else if (is_required) {
        properties.push_back({name, node({{&document_.add(false, where_), true}}), true});
      }
    }
    for (const std::string& name : shape.absent)
      add_name(name);
    is_open = is_open || std::ssize(properties) < shape.least;
    const std::vector<FreeKeys> free_keys = free_keys_of(shape, names, is_open);
    return {.row = properties_in_order(shape, properties, free_keys), .is_object = true};
  }

  std::vector<FreeKeys> free_keys_of(const Shape& shape, const std::vector<std::string>& names,
                                     bool is_open) {
    std::vector<SharedAutomaton> patterns;
    for (const KeyRule& rule : shape.keys) {
      for (const KeyRule::Pattern& pattern : rule.patterns)
        if (std::find(patterns.begin(), patterns.end(), pattern.keys) == patterns.end())
          patterns.push_back(pattern.keys);
    }
    if (patterns.size() > kMaxPatterns)
      fail(ErrorKind::kUnsupported, "{}.patternProperties: more than {} patterns hold at once",
           where_, kMaxPatterns);
    if (patterns.empty() && !is_open) return {};
    std::optional<Automaton> all;
    if (!names.empty()) all = Automaton::one_of(names).complement();
    for (const Conjunction& fits : shape.names)
      all = all ? both(*all, shapes_.keys_of(fits)) : shapes_.keys_of(fits);
    const bool are_any = !all && patterns.empty();
    std::vector<FreeKeys> list;
    for (uint32_t subset = 0; subset < 1U << patterns.size(); ++subset) {
      if (subset == 0 && !is_open) continue;
      Automaton keys = all ? *all : Automaton::any();
      for (size_t p = 0; p < patterns.size(); ++p)
        keys = both(keys, (subset >> p & 1U) != 0 ? *patterns[p] : patterns[p]->complement());
      if (keys.is_empty()) continue;
      Conjunction value;
      for (const KeyRule& rule : shape.keys) {
        bool is_matched = false;
        for (const KeyRule::Pattern& pattern : rule.patterns) {
          const auto p =
              std::find(patterns.begin(), patterns.end(), pattern.keys) - patterns.begin();
          if ((subset >> p & 1U) == 0) continue;
          is_matched = true;
          value = joined(value, pattern.value);
        }
        if (!is_matched && rule.rest) value = joined(value, *rule.rest);
      }
      list.push_back({std::move(keys), are_any, node(value)});
    }
    return list;
  }

  Row properties_in_order(const Shape& shape, const std::vector<Property>& properties,
                          const std::vector<FreeKeys>& free_keys) {
    const auto num_required = std::count_if(properties.begin(), properties.end(),
                                            [](const Property& p) { return p.is_required; });
    // The number of properties so far is counted only if it could violate minProperties or
    // maxProperties. Otherwise it only matters whether any property has come.
    const bool needs_least = shape.least > std::max<int64_t>(1, num_required);
    const bool needs_most =
        shape.most && (!free_keys.empty() || *shape.most < std::ssize(properties));
    const int64_t last = std::max<int64_t>(
        {1, needs_least || needs_most ? shape.least : 0, needs_most ? *shape.most : 0});
    const int64_t least =
        needs_least || needs_most ? shape.least : std::min<int64_t>(shape.least, 1);
    const auto num_properties = static_cast<int64_t>(properties.size());
    Row row;
    std::map<std::pair<int64_t, int64_t>, int32_t> ids;
    std::vector<std::pair<int64_t, int64_t>> places;
    const auto id_of = [&](int64_t index, int64_t count) {
      const auto [found, is_new] =
          ids.emplace(std::pair(index, count), static_cast<int32_t>(places.size()));
      if (is_new) places.emplace_back(index, count);
      if (places.size() > kMaxStates)
        fail(ErrorKind::kUnsupported,
             "{}: minProperties and maxProperties count too many properties", where_);
      return found->second;
    };
    id_of(0, 0);
    for (size_t i = 0; i < places.size(); ++i) {
      const auto [index, count] = places[i];
      Row::State state{.is_first = count == 0};
      const bool may_come = !needs_most || count < *shape.most;
      const int64_t next_count = std::min(count + 1, last);
      if (index < num_properties) {
        const Property& property = properties[static_cast<size_t>(index)];
        if (may_come) {
          state.steps.push_back(
              {ebnf_literal(json::to_text(json::value(property.key))) + R"( ws ":" ws )",
               property.node, id_of(index + 1, next_count)});
        }
        if (!property.is_required) state.steps.push_back({"", -1, id_of(index + 1, count)});
      } else {
        state.may_end = count >= least;
        for (const FreeKeys& free : free_keys) {
          if (!may_come) break;
          // No key may come twice. If minProperties demands several keys that the schema does not
          // name, the grammar keeps them different by demanding a different length modulo `least`
          // of each.
          std::optional<Automaton> part;
          if (count < least && least - num_required > 1)
            part = both(free.keys, Automaton::lengths_modulo(count % least, least));
          if (part && part->is_empty()) continue;
          const std::string key =
              free.are_any && !part ? "text" : rules_for(part ? *part : free.keys, true);
          state.steps.push_back({key + R"( ws ":" ws )", free.node, id_of(index, next_count)});
        }
      }
      row.states.push_back(std::move(state));
    }
    return row;
  }

  // --- Which nodes have values ---

  [[nodiscard]] bool has_value(int32_t id) const { return id < 0 || nodes_[id].has_value; }

  // Says for each state of the Row whether its end can be reached from there.
  [[nodiscard]] std::vector<bool> ending_states(const Row& row) const {
    std::vector<bool> ends(row.states.size());
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (size_t s = row.states.size(); s-- > 0;) {
        const Row::State& state = row.states[s];
        const bool may_end =
            state.may_end ||
            std::any_of(state.steps.begin(), state.steps.end(), [&](const Row::Step& step) {
              return ends[step.target] && has_value(step.node);
            });
        if (!may_end || ends[s]) continue;
        ends[s] = true;
        has_changed = true;
      }
    }
    return ends;
  }

  // Returns the most items that a plain array may have; nothing if their number is unlimited.
  [[nodiscard]] std::optional<int64_t> most_items(const PlainArray& array) const {
    for (size_t i = 0; i < array.prefix.size(); ++i)
      if (!has_value(array.prefix[i])) return static_cast<int64_t>(i);
    if (array.rest && has_value(*array.rest)) return array.most;
    return std::min<int64_t>(std::ssize(array.prefix), array.most.value_or(INT64_MAX));
  }

  [[nodiscard]] bool has_value(const Part& part) const {
    if (part.row) return ending_states(*part.row)[0];
    if (!part.array) return true;
    const auto most = most_items(*part.array);
    return !most || *most >= part.array->least;
  }

  // Sets has_value of the nodes that some finite value fits. Nodes that need no other node's value
  // are found first, and then the nodes that need only values of nodes found before.
  void find_values() {
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (size_t i = nodes_.size(); i-- > 0;) {
        Node& node = nodes_[i];
        if (node.has_value || std::none_of(node.parts.begin(), node.parts.end(),
                                           [&](const Part& part) { return has_value(part); }))
          continue;
        node.has_value = true;
        has_changed = true;
      }
    }
  }

  // --- Rules ---

  static bool is_single_text(const Node& node) {
    return node.parts.size() == 1 && !node.parts[0].text.empty();
  }

  // Returns the text by which other rules refer to a node: its literal, or the name of its rule.
  // The rule is written later.
  std::string reference(int32_t id) {
    Node& node = nodes_[id];
    if (is_single_text(node)) return node.parts[0].text;
    if (!node.has_rule) unwritten_.push_back(id);
    node.has_rule = true;
    return fmt::format("v{}", id);
  }

  void write(int32_t id) {
    std::vector<std::string> options;
    int64_t number = 0;
    for (const Part& part : nodes_[id].parts) {
      if (!has_value(part)) continue;
      const std::string name = fmt::format("v{}_{}", id, number++);
      if (!part.constant.empty()) {
        options.push_back(part.constant);
      } else if (part.array) {
        write_array(*part.array, name, options);
      } else if (part.row) {
        options.push_back(fmt::format("{} ws {}", part.is_object ? "\"{\"" : "\"[\"",
                                      write_row(*part.row, name, part.is_object)));
      } else {
        options.push_back(part.text);
      }
    }
    write_rule(fmt::format("v{}", id), options);
  }

  void write_rule(const std::string& name, const std::vector<std::string>& options) {
    rules_ += fmt::format("{} ::= {}\n", name, fmt::join(options, " | "));
    if (rules_.size() > kMaxRuleText)
      fail(ErrorKind::kUnsupported, "schema: its rules are too long when written out");
  }

  void write_array(const PlainArray& array, const std::string& name,
                   std::vector<std::string>& options) {
    const auto most = most_items(array);
    if (array.least == 0) options.emplace_back(R"("[" ws "]")");
    if (most && *most == 0) return;
    const auto num_prefix = std::min<int64_t>(std::ssize(array.prefix), most.value_or(INT64_MAX));
    std::string behind;  // text for the items behind the prefix
    if ((!most || *most > num_prefix) && array.rest) {
      const int64_t first = std::max<int64_t>(1, num_prefix);
      const int64_t least = std::max<int64_t>(0, array.least - first);
      const std::string count = most         ? fmt::format("{{{},{}}}", least, *most - first)
                                : least == 0 ? "*"
                                             : fmt::format("{{{},}}", least);
      if (!most || *most > first)
        behind = fmt::format(R"( (ws "," ws {}){})", reference(*array.rest), count);
    }
    for (int64_t i = num_prefix; i-- > 1;) {
      behind = fmt::format(R"( ws "," ws {}{})", reference(array.prefix[static_cast<size_t>(i)]),
                           behind);
      if (i < array.least) continue;
      const std::string rule = fmt::format("{}_{}", name, i);
      write_rule(rule, {"\"\"", behind.substr(1)});
      behind = " " + rule;
    }
    const int32_t first = num_prefix > 0 ? array.prefix[0] : *array.rest;
    options.push_back(fmt::format(R"("[" ws {}{} ws "]")", reference(first), behind));
  }

  // Writes the grammar's rules for the states of a Row. Returns the text that stands for the first
  // state in other rules: its only alternative, or the name of its rule.
  std::string write_row(const Row& row, const std::string& name, bool is_object) {
    const std::vector<bool> ends = ending_states(row);
    std::vector<std::vector<std::pair<std::string, int32_t>>> ways(
        row.states.size());  // for each state, pairs of a text and the next state; -1 is the end
    std::vector<bool> is_used(row.states.size());
    // Says for each state whether a later state, or the state itself, leads to it.
    std::vector<bool> is_used_before(row.states.size());
    for (size_t s = 0; s < row.states.size(); ++s) {
      const Row::State& state = row.states[s];
      if (!ends[s]) continue;
      for (const Row::Step& step : state.steps) {
        if (!ends[step.target] || !has_value(step.node)) continue;
        is_used[step.target] = true;
        if (static_cast<size_t>(step.target) <= s) is_used_before[step.target] = true;
        if (step.node < 0) {
          ways[s].emplace_back("", step.target);
        } else {
          ways[s].emplace_back(fmt::format("{}{}{}", state.is_first ? "" : R"(ws "," ws )",
                                           step.key, reference(step.node)),
                               step.target);
        }
      }
      if (state.may_end)
        ways[s].emplace_back(
            fmt::format("{}\"{}\"", state.is_first ? "" : "ws ", is_object ? "}" : "]"), -1);
    }
    // A state with only one outgoing edge gets no rule if neither it nor a later state leads to it.
    // Its text is then inserted where a rule would refer to it.
    std::vector<std::string> texts(row.states.size());
    for (size_t s = row.states.size(); s-- > 0;) {
      if (!ends[s] || (s > 0 && !is_used[s])) continue;
      const std::string rule = fmt::format("{}_{}", name, s);
      std::vector<std::string> options;
      for (const auto& [text, target] : ways[s]) {
        const std::string rest = target < 0               ? ""
                                 : !texts[target].empty() ? texts[target]
                                                          : fmt::format("{}_{}", name, target);
        options.push_back(text.empty() || rest.empty() ? text + rest : text + " " + rest);
      }
      if (options.size() == 1 && !is_used_before[s]) {
        texts[s] = options[0];
      } else {
        write_rule(rule, options);
      }
    }
    return texts[0].empty() ? fmt::format("{}_0", name) : texts[0];
  }

  static constexpr size_t kMaxRuleText = 1U << 20U;

  SchemaDocument& document_;
  Shapes shapes_;
  const bool is_closed_;
  std::string where_;  // the schema's place that is being written, for messages
  std::map<Conjunction, int32_t> ids_;
  std::vector<Node> nodes_;
  std::vector<std::pair<int32_t, Conjunction>> waiting_;
  std::vector<int32_t> unwritten_;              // nodes whose rules must still be written
  std::map<std::string, std::string> written_;  // names of automata's rules, by the rules' text
  std::string rules_;
};

}  // namespace

std::string schema_grammar(const std::string& schema, bool is_closed) {
  SchemaDocument document(json::parse(schema, "schema"));
  return GrammarWriter(document, is_closed).run();
}

}  // namespace encore::grammar
