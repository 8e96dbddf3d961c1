// Computes the set of values that a JSON schema allows, as a union of shapes. Each shape is a set
// of values of one JSON type.
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

// A schema, and whether a value must fit it (`holds`) or must not fit it.
struct Literal {
  const json::value* schema = nullptr;
  bool holds = true;

  auto operator<=>(const Literal&) const = default;
};

// A conjunction of literals: a value must satisfy all of them. An empty conjunction allows every
// value. The literals keep the order in which they were found, because properties are generated in
// this order.
using Conjunction = std::vector<Literal>;

Conjunction joined(const Conjunction& a, const Conjunction& b);

enum class JsonType : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };

using SharedAutomaton = std::shared_ptr<const Automaton>;

// The content of the keywords properties (`properties`), patternProperties (`patterns`) and
// additionalProperties (`rest`) of one schema.
struct KeyRule {
  struct Pattern {
    SharedAutomaton keys;
    Conjunction value;
  };

  bool evaluates = true;  // whether its keys count as evaluated for unevaluatedProperties
  std::vector<std::pair<std::string, Conjunction>> properties = {};
  std::vector<Pattern> patterns = {};
  std::optional<Conjunction> rest = {};  // for keys in neither list above
};

// The content of the keywords prefixItems (`prefix`) and items (`rest`) of one schema.
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

// A set of values of one JSON type. Members that concern other types are unused.
struct Shape {
  JsonType type = JsonType::kNull;
  bool may_be_false = true;
  bool may_be_true = true;
  bool is_whole = false;  // numbers must be integers
  // If present, only these values are allowed. The member is unused for null and booleans; for
  // arrays and objects it has one value.
  std::optional<std::vector<json::value>> values = {};
  // Every automaton must accept the value: the decimal text of a number, or the text of a string.
  std::vector<SharedAutomaton> automata = {};
  int64_t least = 0;  // the least number of characters, items or properties
  std::optional<int64_t> most = {};
  std::vector<KeyRule> keys = {};
  std::vector<std::string> required = {};
  std::vector<std::string> absent = {};
  std::vector<Conjunction> names = {};  // every key must fit all of them
  std::vector<ItemRule> items = {};
  std::vector<Contains> contains = {};
  bool has_unique_items = false;
};

// The strings or numbers that a shape allows, after its values, automata and bounds on length have
// been combined.
struct Texts {
  std::optional<std::vector<json::value>> values = {};  // if present, the list of allowed values
  // If present, accepts the allowed texts. If both are absent, all texts are allowed.
  std::optional<Automaton> automaton = {};
};

// Returns the strings or numbers that a shape allows, given its values and automata combined.
// Errors: kUnsupported if an automaton grows too large.
Texts texts_of(const Shape& shape);

// Returns the schemas that the value of `key` must fit by the shape's rules.
Conjunction value_of(const Shape& shape, const std::string& key);
// Returns the schemas that the item at `index` must fit.
Conjunction item_of(const Shape& shape, size_t index);

// Converts schemas to shapes. Errors: kUnsupported, naming the keyword and its place, for a schema
// that JSON Schema does not allow, or that cannot be enforced.
class Shapes {
 public:
  explicit Shapes(SchemaDocument& document) : document_(document) {}

  // Returns the union of shapes that stands for the conjunction: a value satisfies the conjunction
  // if it fits at least one of the shapes.
  const std::vector<Shape>& of(const Conjunction& conjunction);
  // Returns whether no value satisfies the conjunction. Looks through up to `depth` levels of
  // properties; may return false although no value satisfies it.
  bool is_empty(const Conjunction& conjunction, int depth);
  // Returns whether the string `key` satisfies the schemas `names`, and may thus be a key.
  bool may_be_key(const Conjunction& names, const std::string& key);
  // Returns the set of strings that satisfy the schemas `names`, and may thus be keys.
  Automaton keys_of(const Conjunction& names);
  // Returns schemas of which no value fits two: they divide strings by their last character and
  // numbers by their last digit. With uniqueItems, items of different classes are known to differ.
  // Returns no schemas if an item may be an array or an object.
  std::vector<Literal> classes(const Conjunction& item);
  // Returns a schema that only this value fits.
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
  std::map<Conjunction, List> conjunctions_;  // by the sorted conjunction
  std::map<std::string, SharedAutomaton> patterns_;
  int64_t num_shapes_ = 0;
};

}  // namespace encore::grammar
