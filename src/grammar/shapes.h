// Computes the values that a JSON schema allows, as alternatives that each hold for one type of
// JSON.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/schema_document.h"

namespace encore::grammar {

// A schema and whether a value must fit it (`holds`) or must not fit it.
struct Literal {
  const json::value* schema = nullptr;
  bool holds = true;

  auto operator<=>(const Literal&) const = default;
};

// A value must fit all of these; without any, every value fits. They stand in the order in which
// they were met, as that is the order of properties.
using Conjunction = std::vector<Literal>;

Conjunction joined(const Conjunction& a, const Conjunction& b);

enum class JsonType : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };

using SharedAutomaton = std::shared_ptr<const Automaton>;

// properties, patternProperties and additionalProperties of one schema.
struct KeyRule {
  struct Pattern {
    SharedAutomaton keys;
    Conjunction value;
  };

  bool evaluates = true;  // for unevaluatedProperties: not within `not`
  std::vector<std::pair<std::string, Conjunction>> properties = {};
  std::vector<Pattern> patterns = {};
  std::optional<Conjunction> rest = {};  // of the other keys
};

// prefixItems and items of one schema.
struct ItemRule {
  bool evaluates = true;
  std::vector<Conjunction> prefix = {};
  std::optional<Conjunction> rest = {};
};

struct Contains {
  Conjunction item;
  int64_t least = 1;
  std::optional<int64_t> most = {};
};

// Values of one type. What is not of the type is unused.
struct Shape {
  JsonType type = JsonType::kNull;
  bool may_be_false = true;
  bool may_be_true = true;
  bool is_whole = false;  // of numbers: integers
  std::optional<std::vector<json::value>> values =
      {};  // the only ones, but for null and booleans; of arrays and objects, one
  std::vector<SharedAutomaton> automata =
      {};             // all of which accept the decimal text, or the string
  int64_t least = 0;  // characters, items or properties
  std::optional<int64_t> most = {};
  std::vector<KeyRule> keys = {};
  std::vector<std::string> required = {};
  std::vector<std::string> absent = {};
  std::vector<Conjunction> names = {};  // that every key fits
  std::vector<ItemRule> items = {};
  std::vector<Contains> contains = {};
  bool has_unique_items = false;
};

// The strings or numbers that a shape allows, with all its rules combined.
struct Texts {
  std::optional<std::vector<json::value>> values = {};  // or these
  std::optional<Automaton> automaton = {};              // neither: any
};

// Errors: kUnsupported where an automaton grows too large.
Texts texts_of(const Shape& shape);

// The schemas that a key's value must fit, as far as the shape's rules tell.
Conjunction value_of(const Shape& shape, const std::string& key);
// The schemas that the item at an index must fit.
Conjunction item_of(const Shape& shape, size_t index);

// Takes schemas apart. Errors: kUnsupported, naming the keyword and its place, for a schema that
// JSON Schema does not allow, or that cannot be enforced.
class Shapes {
 public:
  explicit Shapes(SchemaDocument& document) : document_(document) {}

  // The alternatives: a value fits the conjunction if it fits any of these.
  const std::vector<Shape>& of(const Conjunction& conjunction);
  // Does nothing fit, as far as is seen within `depth` properties? May be false where nothing fits.
  bool is_empty(const Conjunction& conjunction, int depth);
  // May `key` be a key, as far as is known of keys?
  bool may_be_key(const Conjunction& names, const std::string& key);
  // The strings that may be keys.
  Automaton keys_of(const Conjunction& names);
  // Schemas of which no two share a value: they sort strings by their last character, numbers by
  // their last digit. None where an item may be an array or an object.
  std::vector<Literal> classes(const Conjunction& item);
  // A schema that this value alone fits.
  Literal constant(const json::value& value, const std::string& path);

 private:
  using List = std::vector<Shape>;

  const List& of_literal(const Literal& literal);
  List positive(const json::value& schema);
  List negative(const json::value& schema);
  void check_members(const json::value& schema) const;
  List types(const json::value& schema);
  List value_in(const json::value& schema, const json::array& values, std::string_view keyword);
  List value_not_in(const json::value& schema, const json::array& values, std::string_view keyword);
  List one_of(const json::value& schema, const json::array& options);
  List conditional(const json::value& schema, bool holds);
  List dependencies(const json::value& schema, std::string_view keyword, bool holds);
  std::optional<KeyRule> key_rule(const json::value& schema);
  std::optional<ItemRule> item_rule(const json::value& schema);
  std::optional<Contains> contains(const json::value& schema);
  void add_unevaluated(const json::value& schema, List& shapes);
  List meet(const List& a, const List& b, const std::string& where);
  [[noreturn]] void refuse(const json::value& schema, std::string_view keyword,
                           const std::string& why) const;
  template <class Make>
  auto at(const json::value& schema, std::string_view keyword, const Make& make) const;

  SchemaDocument& document_;
  std::map<Literal, List> literals_;
  std::set<Literal> in_progress_;
  std::map<Conjunction, List> conjunctions_;  // by sorted literals... kept in the order first met
  std::map<std::string, SharedAutomaton> patterns_;
  int64_t num_shapes_ = 0;
};

}  // namespace encore::grammar
