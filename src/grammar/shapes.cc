#include "grammar/shapes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "grammar/decimal.h"
#include "grammar/format.h"
#include "grammar/pattern.h"

namespace encore::grammar {
namespace {

constexpr size_t kMaxShapes = 256;           // the most shapes of one conjunction
constexpr int64_t kMaxShapesOfAll = 50'000;  // the most shapes of all conjunctions
// Strings without other restrictions have their length counted by the states of an automaton if
// minLength and maxLength are within this limit. Otherwise a repetition in the grammar counts it.
constexpr int64_t kMaxPlainLength = 128;
// The number of levels of properties that are searched for a difference between two options of
// oneOf, because no value may fit both.
constexpr int kDisjointDepth = 3;

constexpr std::array<JsonType, 6> kTypes = {JsonType::kNull,   JsonType::kBoolean,
                                            JsonType::kNumber, JsonType::kString,
                                            JsonType::kArray,  JsonType::kObject};

// The keywords that restrict numbers. `numbers` returns the automaton of the numbers that the
// keyword allows.
struct NumberKeyword {
  std::string_view name;
  Automaton (*numbers)(const json::value& bound);
};
constexpr NumberKeyword kNumberKeywords[] = {
    {"minimum", [](const json::value& bound) { return decimals_from(bound, false); }},
    {"exclusiveMinimum", [](const json::value& bound) { return decimals_from(bound, true); }},
    {"maximum", [](const json::value& bound) { return decimals_to(bound, false); }},
    {"exclusiveMaximum", [](const json::value& bound) { return decimals_to(bound, true); }},
    {"multipleOf", [](const json::value& bound) { return decimal_multiples(bound); }},
};

// The error for a schema that refers to itself with no property or item in between, so that no
// shape can be computed for it.
struct SelfReference : Error {
  using Error::Error;
};

SharedAutomaton shared(Automaton automaton) {
  return std::make_shared<const Automaton>(std::move(automaton));
}

std::vector<Shape> of_all_types() {
  std::vector<Shape> shapes;
  for (const JsonType type : kTypes)
    shapes.push_back({.type = type});
  return shapes;
}

// Returns one shape for each JSON type: `shape` itself for its type, and for each other type a
// shape that allows all of its values.
std::vector<Shape> of_all_types_but(Shape shape) {
  std::vector<Shape> shapes = of_all_types();
  shapes[static_cast<size_t>(shape.type)] = std::move(shape);
  return shapes;
}

JsonType type_of(const json::value& value) {
  if (value.is_null()) return JsonType::kNull;
  if (value.is_bool()) return JsonType::kBoolean;
  if (value.is_number()) return JsonType::kNumber;
  if (value.is_string()) return JsonType::kString;
  return value.is_array() ? JsonType::kArray : JsonType::kObject;
}

bool is_among(const json::value& value, const std::vector<json::value>& list) {
  return std::any_of(list.begin(), list.end(),
                     [&](const json::value& other) { return json::is_same(value, other); });
}

template <class T>
void append(std::vector<T>& list, const std::vector<T>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

void append_new(std::vector<std::string>& list, const std::vector<std::string>& more) {
  for (const std::string& item : more)
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

std::optional<int64_t> smaller(std::optional<int64_t> a, std::optional<int64_t> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// Returns the shape of the values that both shapes allow. Returns nothing if it is obvious that
// there are none.
std::optional<Shape> met(const Shape& a, const Shape& b) {
  if (a.type != b.type) return std::nullopt;
  Shape both = a;
  both.may_be_false = a.may_be_false && b.may_be_false;
  both.may_be_true = a.may_be_true && b.may_be_true;
  both.is_whole = a.is_whole || b.is_whole;
  if (a.values && b.values) {
    std::erase_if(*both.values,
                  [&](const json::value& value) { return !is_among(value, *b.values); });
  } else if (b.values) {
    both.values = b.values;
  }
  append(both.automata, b.automata);
  both.least = std::max(a.least, b.least);
  both.most = smaller(a.most, b.most);
  append(both.keys, b.keys);
  append_new(both.required, b.required);
  append_new(both.absent, b.absent);
  append(both.names, b.names);
  append(both.items, b.items);
  append(both.contains, b.contains);
  both.has_unique_items = a.has_unique_items || b.has_unique_items;
  const bool is_none =
      (both.type == JsonType::kBoolean && !both.may_be_false && !both.may_be_true) ||
      (both.values && both.values->empty()) || (both.most && *both.most < both.least) ||
      std::any_of(both.required.begin(), both.required.end(), [&](const std::string& key) {
        return std::find(both.absent.begin(), both.absent.end(), key) != both.absent.end();
      });
  return is_none ? std::nullopt : std::optional(std::move(both));
}

// Marks the keys and items of the shapes as not evaluated: a schema under `not` marks none as
// evaluated for unevaluatedProperties and unevaluatedItems.
void forget_evaluation(std::vector<Shape>& shapes) {
  for (Shape& shape : shapes) {
    for (KeyRule& rule : shape.keys)
      rule.evaluates = false;
    for (ItemRule& rule : shape.items)
      rule.evaluates = false;
  }
}

bool is_trivial(const json::value& schema) {
  return schema.is_bool() ? schema.get_bool() : schema.is_object() && schema.get_object().empty();
}

Conjunction holding(const json::value& schema) {
  if (is_trivial(schema)) return {};
  return {{&schema, true}};
}

}  // namespace

Conjunction joined(const Conjunction& a, const Conjunction& b) {
  Conjunction both = a;
  for (const Literal& literal : b)
    if (std::find(both.begin(), both.end(), literal) == both.end()) both.push_back(literal);
  return both;
}

Texts texts_of(const Shape& shape) {
  Texts texts;
  const bool is_number = shape.type == JsonType::kNumber;
  const auto fits = [&](const json::value& value) {
    const std::string text = is_number ? decimal_text(value) : std::string(value.get_string());
    if (is_number && shape.is_whole && text.find('.') != std::string::npos) return false;
    if (!is_number) {
      const auto length = std::ssize(code_points(text));
      if (length < shape.least || (shape.most && length > *shape.most)) return false;
    }
    return std::all_of(shape.automata.begin(), shape.automata.end(),
                       [&](const SharedAutomaton& automaton) { return automaton->accepts(text); });
  };
  if (shape.values) {
    texts.values.emplace();
    for (const json::value& value : *shape.values)
      if (fits(value)) texts.values->push_back(value);
    return texts;
  }
  for (const SharedAutomaton& automaton : shape.automata)
    texts.automaton = texts.automaton ? both(*texts.automaton, *automaton) : *automaton;
  if (is_number) {
    if (texts.automaton && shape.is_whole)
      texts.automaton = both(*texts.automaton, decimals_without_fraction());
    return texts;
  }
  const bool has_length = shape.least > 0 || shape.most;
  if (!has_length ||
      (!texts.automaton && std::max(shape.least, shape.most.value_or(0)) > kMaxPlainLength))
    return texts;
  const Automaton lengths = Automaton::lengths(shape.least, shape.most);
  texts.automaton = texts.automaton ? both(*texts.automaton, lengths) : lengths;
  return texts;
}

Conjunction value_of(const Shape& shape, const std::string& key) {
  Conjunction value;
  for (const KeyRule& rule : shape.keys) {
    bool is_named = false;
    for (const auto& [name, conjunction] : rule.properties) {
      if (name != key) continue;
      is_named = true;
      value = joined(value, conjunction);
    }
    for (const KeyRule::Pattern& pattern : rule.patterns) {
      if (!pattern.keys->accepts(key)) continue;
      is_named = true;
      value = joined(value, pattern.value);
    }
    if (!is_named && rule.rest) value = joined(value, *rule.rest);
  }
  return value;
}

Conjunction item_of(const Shape& shape, size_t index) {
  Conjunction item;
  for (const ItemRule& rule : shape.items) {
    if (index < rule.prefix.size()) {
      item = joined(item, rule.prefix[index]);
    } else if (rule.rest) {
      item = joined(item, *rule.rest);
    }
  }
  return item;
}

void Shapes::refuse(const json::value& schema, std::string_view keyword,
                    const std::string& why) const {
  fail(ErrorKind::kUnsupported, "{}.{}: {}", document_.path(schema), keyword, why);
}

// Calls `make` and returns its result. If it throws an error, throws the error with the keyword's
// place in the schema in front.
template <class Make>
auto Shapes::at(const json::value& schema, std::string_view keyword, const Make& make) const {
  try {
    return make();
  } catch (const Error& error) {
    refuse(schema, keyword, error.what());
  }
}

const std::vector<Shape>& Shapes::of(const Conjunction& conjunction) {
  Conjunction key = conjunction;
  std::sort(key.begin(), key.end());
  if (const auto found = conjunctions_.find(key); found != conjunctions_.end())
    return found->second;
  List shapes = of_all_types();
  for (const Literal& literal : conjunction)
    shapes = meet(shapes, of_literal(literal), document_.path(*literal.schema));
  return conjunctions_.emplace(std::move(key), std::move(shapes)).first->second;
}

const std::vector<Shape>& Shapes::of_literal(const Literal& literal) {
  if (const auto found = literals_.find(literal); found != literals_.end()) return found->second;
  if (!in_progress_.insert(literal).second) {
    throw SelfReference(ErrorKind::kUnsupported,
                        fmt::format("{}: refers to itself, with no property or item between",
                                    document_.path(*literal.schema)));
  }
  List shapes;
  try {
    shapes = literal.holds ? positive(*literal.schema) : negative(*literal.schema);
  } catch (...) {
    in_progress_.erase(literal);
    throw;
  }
  in_progress_.erase(literal);
  return literals_.emplace(literal, std::move(shapes)).first->second;
}

std::vector<Shape> Shapes::meet(const List& a, const List& b, const std::string& where) {
  List shapes;
  for (const Shape& x : a) {
    for (const Shape& y : b) {
      auto both = met(x, y);
      if (!both) continue;
      shapes.push_back(std::move(*both));
      if (shapes.size() > kMaxShapes || ++num_shapes_ > kMaxShapesOfAll)
        fail(ErrorKind::kUnsupported,
             "{}: its anyOf, oneOf and the like combine to too many alternatives", where);
    }
  }
  return shapes;
}

bool Shapes::is_empty(const Conjunction& conjunction, int depth) {
  try {
    const auto is_none = [&](const Shape& shape) {
      if (shape.type == JsonType::kNumber || shape.type == JsonType::kString) {
        const Texts texts = texts_of(shape);
        return (texts.values && texts.values->empty()) ||
               (texts.automaton && texts.automaton->is_empty());
      }
      if (depth == 0) return false;
      if (shape.type == JsonType::kObject) {
        return std::any_of(
            shape.required.begin(), shape.required.end(),
            [&](const std::string& key) { return is_empty(value_of(shape, key), depth - 1); });
      }
      return shape.type == JsonType::kArray && shape.least > 0 &&
             is_empty(item_of(shape, 0), depth - 1);
    };
    const List shapes = of(conjunction);
    return std::all_of(shapes.begin(), shapes.end(), is_none);
  } catch (const SelfReference&) {
    return false;
  }
}

Automaton Shapes::keys_of(const Conjunction& names) {
  std::optional<Automaton> keys;
  for (const Shape& shape : of(names)) {
    if (shape.type != JsonType::kString) continue;
    Texts texts = texts_of(shape);
    std::optional<Automaton> part = std::move(texts.automaton);
    if (texts.values) {
      std::vector<std::string> list;
      for (const json::value& value : *texts.values)
        list.emplace_back(value.get_string());
      part = Automaton::one_of(list);
    } else if (!part) {
      part = Automaton::lengths(shape.least, shape.most);
    }
    keys = keys ? either(*keys, *part) : std::move(*part);
  }
  return keys ? *keys : Automaton::one_of({});
}

bool Shapes::may_be_key(const Conjunction& names, const std::string& key) {
  const List& shapes = of(names);
  return std::any_of(shapes.begin(), shapes.end(), [&](Shape shape) {
    if (shape.type != JsonType::kString) return false;
    const json::value value(key);
    if (shape.values && !is_among(value, *shape.values)) return false;
    shape.values = {value};
    return !texts_of(shape).values->empty();
  });
}

std::vector<Literal> Shapes::classes(const Conjunction& item) {
  // Regular expressions for five classes of strings, by the last character, and of numbers, by the
  // last digit. About as many of the words and numbers that people write fall into each class.
  struct Class {
    std::string_view text;
    std::string_view number;
  };
  static constexpr std::array<Class, 5> kClasses{{{"^$|[^a-zA-Z0-9]$|[eE05]$", "[05]$"},
                                                  {"[sStT16]$", "[16]$"},
                                                  {"[dDnN27]$", "[27]$"},
                                                  {"[yYrRlLaA38]$", "[38]$"},
                                                  {"[b-cB-Cf-kF-Km-qM-Qu-xU-XzZoO49]$", "[49]$"}}};
  for (const Shape& shape : of(item)) {
    if (shape.type == JsonType::kArray || shape.type == JsonType::kObject) return {};
  }
  const SharedAutomaton numbers =
      shared(pattern_automaton(R"(-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?)", Extent::kWhole));
  std::vector<Literal> classes;
  for (const Class& one : kClasses) {
    const Literal literal{&document_.add(json::object{}, "schema.uniqueItems"), true};
    Shape text{.type = JsonType::kString,
               .automata = {shared(pattern_automaton(one.text, Extent::kSearch))}};
    // The automaton `numbers` accepts only one spelling of each number, except for 0 and -0.
    Shape number{.type = JsonType::kNumber,
                 .automata = {numbers, shared(pattern_automaton(one.number, Extent::kSearch))}};
    literals_.emplace(literal, List{text, number});
    classes.push_back(literal);
  }
  return classes;
}

Literal Shapes::constant(const json::value& value, const std::string& path) {
  return {&document_.add(json::object{{"const", value}}, path), true};
}

// --- Keywords -----------------------------------------------------------------------------------

namespace {

struct KeywordCheck {
  enum class Kind : uint8_t {
    kSchema,
    kSchemas,
    kSchemaMap,
    kItems,
    kDependencies,
    kCount,
    kNumber,
    kPositive,
    kText,
    kNames,
    kNameLists,
    kFlag,
    kList,
    kAny,
    kAnnotation,
    kRefused
  };
  std::string_view name;
  Kind kind;
};

constexpr std::array<KeywordCheck, 62> kKeywords{{
    {"$anchor", KeywordCheck::Kind::kText},
    {"$comment", KeywordCheck::Kind::kAnnotation},
    {"$defs", KeywordCheck::Kind::kSchemaMap},
    {"$dynamicAnchor", KeywordCheck::Kind::kText},
    {"$dynamicRef", KeywordCheck::Kind::kRefused},
    {"$id", KeywordCheck::Kind::kText},
    {"$recursiveAnchor", KeywordCheck::Kind::kRefused},
    {"$recursiveRef", KeywordCheck::Kind::kRefused},
    {"$ref", KeywordCheck::Kind::kText},
    {"$schema", KeywordCheck::Kind::kText},
    {"$vocabulary", KeywordCheck::Kind::kAnnotation},
    {"additionalItems", KeywordCheck::Kind::kSchema},
    {"additionalProperties", KeywordCheck::Kind::kSchema},
    {"allOf", KeywordCheck::Kind::kSchemas},
    {"anyOf", KeywordCheck::Kind::kSchemas},
    {"const", KeywordCheck::Kind::kAny},
    {"contains", KeywordCheck::Kind::kSchema},
    {"contentEncoding", KeywordCheck::Kind::kAnnotation},
    {"contentMediaType", KeywordCheck::Kind::kAnnotation},
    {"contentSchema", KeywordCheck::Kind::kAnnotation},
    {"default", KeywordCheck::Kind::kAnnotation},
    {"definitions", KeywordCheck::Kind::kSchemaMap},
    {"dependencies", KeywordCheck::Kind::kDependencies},
    {"dependentRequired", KeywordCheck::Kind::kNameLists},
    {"dependentSchemas", KeywordCheck::Kind::kSchemaMap},
    {"deprecated", KeywordCheck::Kind::kAnnotation},
    {"description", KeywordCheck::Kind::kAnnotation},
    {"else", KeywordCheck::Kind::kSchema},
    {"enum", KeywordCheck::Kind::kList},
    {"examples", KeywordCheck::Kind::kAnnotation},
    {"exclusiveMaximum", KeywordCheck::Kind::kNumber},
    {"exclusiveMinimum", KeywordCheck::Kind::kNumber},
    {"format", KeywordCheck::Kind::kText},
    {"if", KeywordCheck::Kind::kSchema},
    {"items", KeywordCheck::Kind::kItems},
    {"maxContains", KeywordCheck::Kind::kCount},
    {"maxItems", KeywordCheck::Kind::kCount},
    {"maxLength", KeywordCheck::Kind::kCount},
    {"maxProperties", KeywordCheck::Kind::kCount},
    {"maximum", KeywordCheck::Kind::kNumber},
    {"minContains", KeywordCheck::Kind::kCount},
    {"minItems", KeywordCheck::Kind::kCount},
    {"minLength", KeywordCheck::Kind::kCount},
    {"minProperties", KeywordCheck::Kind::kCount},
    {"minimum", KeywordCheck::Kind::kNumber},
    {"multipleOf", KeywordCheck::Kind::kPositive},
    {"not", KeywordCheck::Kind::kSchema},
    {"oneOf", KeywordCheck::Kind::kSchemas},
    {"pattern", KeywordCheck::Kind::kText},
    {"patternProperties", KeywordCheck::Kind::kSchemaMap},
    {"prefixItems", KeywordCheck::Kind::kSchemas},
    {"properties", KeywordCheck::Kind::kSchemaMap},
    {"propertyNames", KeywordCheck::Kind::kSchema},
    {"readOnly", KeywordCheck::Kind::kAnnotation},
    {"required", KeywordCheck::Kind::kNames},
    {"then", KeywordCheck::Kind::kSchema},
    {"title", KeywordCheck::Kind::kAnnotation},
    {"type", KeywordCheck::Kind::kAny},
    {"unevaluatedItems", KeywordCheck::Kind::kSchema},
    {"unevaluatedProperties", KeywordCheck::Kind::kSchema},
    {"uniqueItems", KeywordCheck::Kind::kFlag},
    {"writeOnly", KeywordCheck::Kind::kAnnotation},
}};

bool is_schema(const json::value& value) {
  return value.is_object() || value.is_bool();
}

bool is_count(const json::value& value) {
  if (!value.is_number()) return false;
  const auto number = value.to_number<double>();
  return number >= 0 && number == std::floor(number) && number < 1e15;
}

bool are_names(const json::value& value) {
  const auto* const list = value.if_array();
  return list != nullptr && std::all_of(list->begin(), list->end(),
                                        [](const json::value& name) { return name.is_string(); });
}

template <class Fits>
bool all_members(const json::value& value, const Fits& fits) {
  const auto* const map = value.if_object();
  return map != nullptr && std::all_of(map->begin(), map->end(),
                                       [&](const auto& member) { return fits(member.value()); });
}

bool are_schemas(const json::value& value) {
  const auto* const list = value.if_array();
  return list != nullptr && std::all_of(list->begin(), list->end(), is_schema);
}

// Returns what a keyword's value must be if `value` is something else. Returns an empty text if the
// value is right.
std::string_view wrong_value(KeywordCheck::Kind kind, const json::value& value) {
  using Kind = KeywordCheck::Kind;
  switch (kind) {
    case Kind::kSchema:
      return is_schema(value) ? "" : "is a schema: an object, or true or false";
    case Kind::kSchemas:
      return are_schemas(value) && !value.get_array().empty() ? "" : "is a list of schemas";
    case Kind::kSchemaMap:
      return all_members(value, is_schema) ? "" : "is an object of schemas";
    case Kind::kItems:
      return is_schema(value) || are_schemas(value) ? "" : "is a schema, or a list of them";
    case Kind::kDependencies:
      return all_members(value, [](const json::value& v) { return is_schema(v) || are_names(v); })
                 ? ""
                 : "is an object of schemas and lists of names";
    case Kind::kCount:
      return is_count(value) ? "" : "is a number of 0 or more, without a fraction";
    case Kind::kNumber:
      return value.is_number() ? "" : "is a number";
    case Kind::kPositive:
      return value.is_number() && value.to_number<double>() > 0 ? "" : "is a number of more than 0";
    case Kind::kText:
      return value.is_string() ? "" : "is a string";
    case Kind::kNames:
      return are_names(value) ? "" : "is a list of strings";
    case Kind::kNameLists:
      return all_members(value, are_names) ? "" : "is an object of lists of strings";
    case Kind::kFlag:
      return value.is_bool() ? "" : "is true or false";
    case Kind::kList:
      return value.is_array() ? "" : "is a list";
    case Kind::kRefused:
      return "is not known: write $ref";
    case Kind::kAny:
    case Kind::kAnnotation:
      return "";
  }
  return "";
}

int64_t count_of(const json::object& schema, std::string_view keyword, int64_t fallback) {
  const json::value* const value = schema.if_contains(keyword);
  return value == nullptr ? fallback : static_cast<int64_t>(value->to_number<double>());
}

std::optional<int64_t> count_if(const json::object& schema, std::string_view keyword) {
  return schema.contains(keyword) ? std::optional(count_of(schema, keyword, 0)) : std::nullopt;
}

// A JSON type and the two keywords that bound the size of its values.
struct SizeKeywords {
  JsonType type;
  std::string_view least;
  std::string_view most;
};
constexpr std::array<SizeKeywords, 3> kSizes{
    {{JsonType::kString, "minLength", "maxLength"},
     {JsonType::kArray, "minItems", "maxItems"},
     {JsonType::kObject, "minProperties", "maxProperties"}}};

}  // namespace

void Shapes::check_members(const json::value& schema) const {
  for (const auto& [key, value] : schema.get_object()) {
    const std::string_view name = key;
    const auto row = std::find_if(kKeywords.begin(), kKeywords.end(),
                                  [&](const auto& r) { return r.name == name; });
    if (row == kKeywords.end()) continue;  // JSON Schema gives unknown keywords no meaning
    if (const std::string_view wrong = wrong_value(row->kind, value); !wrong.empty())
      refuse(schema, name, std::string(wrong));
  }
}

std::vector<Shape> Shapes::types(const json::value& schema) {
  const json::value& given = schema.get_object().at("type");
  json::array single{given};
  const json::array& names = given.is_array() ? given.get_array() : single;
  List shapes;
  for (const json::value& name : names) {
    if (!name.is_string()) refuse(schema, "type", "is a name of a type, or a list of them");
    const std::string_view text = name.get_string();
    if (text == "integer") {
      shapes.push_back({.type = JsonType::kNumber, .is_whole = true});
      continue;
    }
    static constexpr std::array<std::string_view, 6> kNames = {"null",   "boolean", "number",
                                                               "string", "array",   "object"};
    const auto found = std::find(kNames.begin(), kNames.end(), text);
    if (found == kNames.end())
      refuse(schema, "type",
             fmt::format(
                 "\"{}\" is no type: null, boolean, integer, number, string, array and object are",
                 text));
    shapes.push_back({.type = kTypes[static_cast<size_t>(found - kNames.begin())]});
  }
  // The type "number" includes integers, so a shape for integers is redundant beside it.
  if (std::any_of(shapes.begin(), shapes.end(),
                  [](const Shape& s) { return s.type == JsonType::kNumber && !s.is_whole; }))
    std::erase_if(shapes, [](const Shape& shape) { return shape.is_whole; });
  return shapes;
}

std::vector<Shape> Shapes::value_in(const json::value& schema, const json::array& values,
                                    std::string_view keyword) {
  List shapes;
  std::map<JsonType, Shape> scalars;
  const std::string path = fmt::format("{}.{}", document_.path(schema), keyword);
  for (const json::value& value : values) {
    const JsonType type = type_of(value);
    if (type == JsonType::kArray) {
      Shape shape{.type = type,
                  .values = {{value}},
                  .least = std::ssize(value.get_array()),
                  .most = std::ssize(value.get_array())};
      ItemRule rule{.evaluates = false};
      for (const json::value& item : value.get_array())
        rule.prefix.push_back({constant(item, path)});
      shape.items.push_back(std::move(rule));
      shapes.push_back(std::move(shape));
    } else if (type == JsonType::kObject) {
      Shape shape{.type = type, .values = {{value}}, .most = std::ssize(value.get_object())};
      KeyRule rule{.evaluates = false};
      for (const auto& [key, member] : value.get_object()) {
        rule.properties.emplace_back(key, Conjunction{constant(member, path)});
        shape.required.emplace_back(key);
      }
      shape.keys.push_back(std::move(rule));
      shapes.push_back(std::move(shape));
    } else {
      Shape& shape =
          scalars
              .try_emplace(type, Shape{.type = type, .may_be_false = false, .may_be_true = false})
              .first->second;
      if (type == JsonType::kBoolean)
        (value.get_bool() ? shape.may_be_true : shape.may_be_false) = true;
      if (type != JsonType::kNumber && type != JsonType::kString) continue;
      if (!shape.values) shape.values.emplace();
      if (!is_among(value, *shape.values)) shape.values->push_back(value);
    }
  }
  List all;
  for (auto& [type, shape] : scalars)
    all.push_back(std::move(shape));
  append(all, shapes);
  if (all.size() > kMaxShapes)
    refuse(schema, keyword, fmt::format("has more than {} arrays and objects", kMaxShapes));
  return all;
}

std::vector<Shape> Shapes::value_not_in(const json::value& schema, const json::array& values,
                                        std::string_view keyword) {
  const std::string path = fmt::format("{}.{}", document_.path(schema), keyword);
  List shapes = of_all_types();
  std::vector<std::string> texts;
  for (const json::value& value : values) {
    const JsonType type = type_of(value);
    Shape& shape =
        *std::find_if(shapes.begin(), shapes.end(), [&](const Shape& s) { return s.type == type; });
    if (type == JsonType::kNull) shape.most = -1;  // marks null as not allowed
    if (type == JsonType::kBoolean)
      (value.get_bool() ? shape.may_be_true : shape.may_be_false) = false;
    if (type == JsonType::kString) texts.emplace_back(value.get_string());
    if (type == JsonType::kNumber)
      at(schema, keyword,
         [&] { shape.automata.push_back(shared(other_decimals(decimals_equal(value)))); });
  }
  for (Shape& shape : shapes) {
    if (shape.type == JsonType::kString && !texts.empty())
      at(schema, keyword,
         [&] { shape.automata.push_back(shared(Automaton::one_of(texts).complement())); });
  }
  std::erase_if(shapes, [](const Shape& s) {
    return (s.most && *s.most < 0) ||
           (s.type == JsonType::kBoolean && !s.may_be_true && !s.may_be_false);
  });
  for (const json::value& value : values) {
    if (!value.is_array() && !value.is_object()) continue;
    List others = of_all_types();
    const JsonType type = type_of(value);
    std::erase_if(others, [&](const Shape& shape) { return shape.type == type; });
    const auto size =
        value.is_array() ? std::ssize(value.get_array()) : std::ssize(value.get_object());
    others.push_back({.type = type, .least = size + 1});
    if (size > 0 && value.is_array()) others.push_back({.type = type, .most = size - 1});
    for (int64_t i = 0; value.is_array() && i < size; ++i) {
      ItemRule rule{.evaluates = false,
                    .prefix = std::vector<Conjunction>(static_cast<size_t>(i) + 1)};
      rule.prefix.back() = {
          {constant(value.get_array()[static_cast<size_t>(i)], path).schema, false}};
      others.push_back({.type = type, .least = i + 1, .items = {std::move(rule)}});
    }
    if (value.is_object()) {
      for (const auto& [key, member] : value.get_object()) {
        others.push_back({.type = type, .absent = {key}});
        KeyRule rule{.evaluates = false,
                     .properties = {{key, {{constant(member, path).schema, false}}}}};
        others.push_back({.type = type, .keys = {std::move(rule)}, .required = {key}});
      }
    }
    shapes = meet(shapes, others, path);
  }
  return shapes;
}

std::optional<KeyRule> Shapes::key_rule(const json::value& schema) {
  const json::object& object = schema.get_object();
  KeyRule rule;
  if (const auto* properties = object.if_contains("properties")) {
    for (const auto& [key, value] : properties->get_object())
      rule.properties.emplace_back(key, holding(value));
  }
  if (const auto* patterns = object.if_contains("patternProperties")) {
    for (const auto& [key, value] : patterns->get_object()) {
      const std::string pattern = key;
      SharedAutomaton& known = patterns_[pattern];
      if (known == nullptr) {
        known = at(schema, "patternProperties",
                   [&] { return shared(pattern_automaton(pattern, Extent::kSearch)); });
      }
      rule.patterns.push_back({known, holding(value)});
    }
  }
  if (const auto* rest = object.if_contains("additionalProperties")) rule.rest = holding(*rest);
  if (rule.properties.empty() && rule.patterns.empty() && !rule.rest &&
      !object.contains("properties"))
    return std::nullopt;
  return rule;
}

std::optional<ItemRule> Shapes::item_rule(const json::value& schema) {
  const json::object& object = schema.get_object();
  ItemRule rule;
  const json::value* const prefix = object.if_contains("prefixItems");
  const json::value* const items = object.if_contains("items");
  // In draft 7, `items` may be a list of schemas, which later drafts call prefixItems.
  const bool is_list = items != nullptr && items->is_array();
  if (prefix != nullptr && is_list) refuse(schema, "items", "is no list beside prefixItems");
  if (prefix != nullptr || is_list) {
    for (const json::value& item : (is_list ? items : prefix)->get_array())
      rule.prefix.push_back(holding(item));
  }
  const json::value* const rest = is_list ? object.if_contains("additionalItems") : items;
  if (rest != nullptr) rule.rest = holding(*rest);
  if (rule.prefix.empty() && !rule.rest) return std::nullopt;
  return rule;
}

std::optional<Contains> Shapes::contains(const json::value& schema) {
  const json::object& object = schema.get_object();
  const json::value* const item = object.if_contains("contains");
  if (item == nullptr) return std::nullopt;
  return Contains{
      {{item, true}}, count_of(object, "minContains", 1), count_if(object, "maxContains")};
}

std::vector<Shape> Shapes::one_of(const json::value& schema, const json::array& options) {
  List shapes;
  for (size_t i = 0; i < options.size(); ++i) {
    Conjunction alone{{&options[i], true}};
    for (size_t j = 0; j < options.size(); ++j) {
      if (i == j || is_empty({{&options[i], true}, {&options[j], true}}, kDisjointDepth)) continue;
      alone.push_back({&options[j], false});
    }
    append(shapes, of(alone));
    if (shapes.size() > kMaxShapes)
      refuse(schema, "oneOf", "its options cannot be told apart in few enough cases");
  }
  return shapes;
}

std::vector<Shape> Shapes::conditional(const json::value& schema, bool holds) {
  const json::object& object = schema.get_object();
  const json::value* const condition = object.if_contains("if");
  List shapes;
  for (const bool is_met : {true, false}) {
    const json::value* const branch = object.if_contains(is_met ? "then" : "else");
    if (branch == nullptr && !holds) continue;
    Conjunction both{{condition, is_met}};
    if (branch != nullptr) both.push_back({branch, holds});
    append(shapes, of(both));
  }
  return shapes;
}

std::vector<Shape> Shapes::dependencies(const json::value& schema, std::string_view keyword,
                                        bool holds) {
  List all = of_all_types();
  List broken;
  for (const auto& [key, value] : schema.get_object().at(keyword).get_object()) {
    const std::string name = key;
    List present;
    if (value.is_array()) {
      std::vector<std::string> names;
      for (const json::value& other : value.get_array())
        names.emplace_back(other.get_string());
      for (const std::string& other : names)
        broken.push_back({.type = JsonType::kObject, .required = {name}, .absent = {other}});
      append_new(names, {name});
      present.push_back({.type = JsonType::kObject, .required = names});
    } else {
      const List has_key = {{.type = JsonType::kObject, .required = {name}}};
      present = meet(has_key, of({{&value, true}}), document_.path(schema));
      if (!holds) append(broken, meet(has_key, of({{&value, false}}), document_.path(schema)));
    }
    List options = of_all_types();
    options.pop_back();  // removes the shape of objects
    append(options, present);
    options.push_back({.type = JsonType::kObject, .absent = {name}});
    all = meet(all, options, document_.path(schema));
  }
  return holds ? all : broken;
}

void Shapes::add_unevaluated(const json::value& schema, List& shapes) {
  const json::object& object = schema.get_object();
  for (Shape& shape : shapes) {
    const bool is_object = shape.type == JsonType::kObject;
    const json::value* const rest =
        object.if_contains(is_object ? "unevaluatedProperties" : "unevaluatedItems");
    if (rest == nullptr || (!is_object && shape.type != JsonType::kArray)) continue;
    if (is_object) {
      KeyRule rule{.rest = holding(*rest)};
      bool is_evaluated = false;
      for (const KeyRule& other : shape.keys) {
        if (!other.evaluates) continue;
        is_evaluated = is_evaluated || other.rest;
        for (const auto& [key, unused] : other.properties)
          rule.properties.emplace_back(key, Conjunction{});
        for (const KeyRule::Pattern& pattern : other.patterns)
          rule.patterns.push_back({pattern.keys, {}});
      }
      if (!is_evaluated) shape.keys.push_back(std::move(rule));
    } else {
      ItemRule rule{.rest = holding(*rest)};
      bool is_evaluated = false;
      for (const ItemRule& other : shape.items) {
        if (!other.evaluates) continue;
        is_evaluated = is_evaluated || other.rest;
        if (other.prefix.size() > rule.prefix.size()) rule.prefix.resize(other.prefix.size());
      }
      if (!is_evaluated) shape.items.push_back(std::move(rule));
    }
  }
}

std::vector<Shape> Shapes::positive(const json::value& schema) {
  if (schema.is_bool()) return schema.get_bool() ? of_all_types() : List{};
  check_members(schema);
  const json::object& object = schema.get_object();
  const std::string& path = document_.path(schema);
  List shapes = of_all_types();
  const auto also = [&](const List& more) { shapes = meet(shapes, more, path); };
  const auto given = [&](std::string_view keyword) { return object.if_contains(keyword); };

  if (given("type") != nullptr) also(types(schema));
  if (const auto* values = given("enum")) also(value_in(schema, values->get_array(), "enum"));
  if (const auto* value = given("const")) also(value_in(schema, {*value}, "const"));
  for (const SizeKeywords& size : kSizes) {
    Shape shape{.type = size.type};
    shape.least = count_of(object, size.least, 0);
    shape.most = count_if(object, size.most);
    if (shape.least > 0 || shape.most) {
      if (shape.most && *shape.most < shape.least) {
        List others = of_all_types();
        std::erase_if(others, [&](const Shape& other) { return other.type == size.type; });
        also(others);
      } else {
        also(of_all_types_but(std::move(shape)));
      }
    }
  }
  for (const NumberKeyword& keyword : kNumberKeywords) {
    if (const auto* bound = given(keyword.name)) {
      SharedAutomaton numbers =
          at(schema, keyword.name, [&] { return shared(keyword.numbers(*bound)); });
      also(of_all_types_but({.type = JsonType::kNumber, .automata = {std::move(numbers)}}));
    }
  }
  if (const auto* pattern = given("pattern")) {
    SharedAutomaton& known = patterns_[std::string(pattern->get_string())];
    if (known == nullptr)
      known = at(schema, "pattern",
                 [&] { return shared(pattern_automaton(pattern->get_string(), Extent::kSearch)); });
    also(of_all_types_but({.type = JsonType::kString, .automata = {known}}));
  }
  if (const auto* name = given("format")) {
    const auto format = format_pattern(name->get_string());
    if (!format) {
      refuse(schema, "format",
             fmt::format("\"{}\" is not known: leave it out, or write a pattern",
                         std::string_view(name->get_string())));
    }
    if (!format->empty()) {
      also(of_all_types_but({.type = JsonType::kString,
                             .automata = {shared(pattern_automaton(*format, Extent::kWhole))}}));
    }
  }
  if (auto rule = key_rule(schema))
    also(of_all_types_but({.type = JsonType::kObject, .keys = {std::move(*rule)}}));
  if (const auto* required = given("required")) {
    Shape shape{.type = JsonType::kObject};
    for (const json::value& name : required->get_array())
      append_new(shape.required, {std::string(name.get_string())});
    also(of_all_types_but(std::move(shape)));
  }
  if (const auto* names = given("propertyNames"))
    also(of_all_types_but({.type = JsonType::kObject, .names = {{{names, true}}}}));
  if (auto rule = item_rule(schema))
    also(of_all_types_but({.type = JsonType::kArray, .items = {std::move(*rule)}}));
  if (auto found = contains(schema))
    also(of_all_types_but({.type = JsonType::kArray, .contains = {std::move(*found)}}));
  if (const auto* is_unique = given("uniqueItems"); is_unique != nullptr && is_unique->get_bool())
    also(of_all_types_but({.type = JsonType::kArray, .has_unique_items = true}));
  for (const char* const keyword : {"dependentRequired", "dependentSchemas", "dependencies"})
    if (given(keyword) != nullptr) also(dependencies(schema, keyword, true));
  if (const auto* reference = given("$ref"))
    also(of({{&document_.resolve(schema, reference->get_string()), true}}));
  if (const auto* all = given("allOf")) {
    for (const json::value& part : all->get_array())
      also(of({{&part, true}}));
  }
  if (const auto* any = given("anyOf")) {
    List options;
    for (const json::value& option : any->get_array())
      append(options, of({{&option, true}}));
    also(options);
  }
  if (const auto* one = given("oneOf")) also(one_of(schema, one->get_array()));
  if (const auto* inner = given("not")) {
    List others = of({{inner, false}});
    forget_evaluation(others);
    also(others);
  }
  if (given("if") != nullptr && (given("then") != nullptr || given("else") != nullptr))
    also(conditional(schema, true));
  add_unevaluated(schema, shapes);
  return shapes;
}

// Returns the shapes of the values that violate at least one keyword of the schema. A keyword that
// cannot be negated is ignored if other keywords yield values of its type.
std::vector<Shape> Shapes::negative(const json::value& schema) {
  if (schema.is_bool()) return schema.get_bool() ? List{} : of_all_types();
  check_members(schema);
  const json::object& object = schema.get_object();
  List shapes;
  std::vector<std::pair<JsonType, std::string_view>> left_out;
  const auto given = [&](std::string_view keyword) { return object.if_contains(keyword); };

  if (given("type") != nullptr) {
    const List allowed = types(schema);
    for (const JsonType type : kTypes) {
      const auto found = std::find_if(allowed.begin(), allowed.end(),
                                      [&](const Shape& s) { return s.type == type; });
      if (found == allowed.end()) {
        shapes.push_back({.type = type});
      } else if (found->is_whole) {
        shapes.push_back({.type = type, .automata = {shared(other_decimals(whole_decimals()))}});
      }
    }
  }
  if (const auto* values = given("enum"))
    append(shapes, value_not_in(schema, values->get_array(), "enum"));
  if (const auto* value = given("const")) append(shapes, value_not_in(schema, {*value}, "const"));
  for (const SizeKeywords& size : kSizes) {
    if (const int64_t least = count_of(object, size.least, 0); least > 0)
      shapes.push_back({.type = size.type, .most = least - 1});
    if (const auto most = count_if(object, size.most))
      shapes.push_back({.type = size.type, .least = *most + 1});
  }
  for (const NumberKeyword& keyword : kNumberKeywords) {
    if (const auto* bound = given(keyword.name)) {
      SharedAutomaton others =
          at(schema, keyword.name, [&] { return shared(other_decimals(keyword.numbers(*bound))); });
      shapes.push_back({.type = JsonType::kNumber, .automata = {std::move(others)}});
    }
  }
  if (const auto* pattern = given("pattern")) {
    shapes.push_back({.type = JsonType::kString,
                      .automata = {at(schema, "pattern", [&] {
                        return shared(
                            pattern_automaton(pattern->get_string(), Extent::kSearch).complement());
                      })}});
  }
  // JSON Schema lets a validator ignore `format`, and a text that violates the format is then
  // valid. So no text violates the keyword for certain, and it cannot be negated.
  if (given("format") != nullptr) left_out.emplace_back(JsonType::kString, "format");
  if (const auto rule = key_rule(schema)) {
    for (const auto& [key, value] : rule->properties) {
      if (value.empty()) continue;
      KeyRule broken{.evaluates = false, .properties = {{key, {{value[0].schema, false}}}}};
      shapes.push_back({.type = JsonType::kObject, .keys = {std::move(broken)}, .required = {key}});
    }
    for (const KeyRule::Pattern& pattern : rule->patterns)
      if (!pattern.value.empty()) left_out.emplace_back(JsonType::kObject, "patternProperties");
    if (rule->rest && !rule->rest->empty())
      left_out.emplace_back(JsonType::kObject, "additionalProperties");
  }
  if (const auto* required = given("required")) {
    for (const json::value& name : required->get_array())
      shapes.push_back({.type = JsonType::kObject, .absent = {std::string(name.get_string())}});
  }
  if (const auto* names = given("propertyNames"); names != nullptr && !is_trivial(*names))
    left_out.emplace_back(JsonType::kObject, "propertyNames");
  if (const auto rule = item_rule(schema)) {
    for (size_t i = 0; i < rule->prefix.size(); ++i) {
      if (rule->prefix[i].empty()) continue;
      ItemRule broken{.evaluates = false, .prefix = std::vector<Conjunction>(i + 1)};
      broken.prefix.back() = {{rule->prefix[i][0].schema, false}};
      shapes.push_back({.type = JsonType::kArray,
                        .least = static_cast<int64_t>(i) + 1,
                        .items = {std::move(broken)}});
    }
    if (rule->rest && !rule->rest->empty()) {
      if (rule->prefix.empty()) {
        shapes.push_back(
            {.type = JsonType::kArray, .contains = {{{{(*rule->rest)[0].schema, false}}}}});
      } else {
        left_out.emplace_back(JsonType::kArray, "items");
      }
    }
  }
  if (const auto found = contains(schema)) {
    if (found->least == 1 && !found->most) {
      ItemRule none{.evaluates = false, .rest = Conjunction{{found->item[0].schema, false}}};
      shapes.push_back({.type = JsonType::kArray, .items = {std::move(none)}});
    } else {
      left_out.emplace_back(JsonType::kArray, "contains");
    }
  }
  if (const auto* is_unique = given("uniqueItems"); is_unique != nullptr && is_unique->get_bool())
    left_out.emplace_back(JsonType::kArray, "uniqueItems");
  for (const char* const keyword : {"dependentRequired", "dependentSchemas", "dependencies"})
    if (given(keyword) != nullptr) append(shapes, dependencies(schema, keyword, false));
  if (const auto* reference = given("$ref"))
    append(shapes, of({{&document_.resolve(schema, reference->get_string()), false}}));
  if (const auto* all = given("allOf")) {
    for (const json::value& part : all->get_array())
      append(shapes, of({{&part, false}}));
  }
  if (const auto* any = given("anyOf")) {
    Conjunction none;
    for (const json::value& option : any->get_array())
      none.push_back({&option, false});
    append(shapes, of(none));
  }
  if (const auto* one = given("oneOf")) {
    const json::array& options = one->get_array();
    Conjunction none;
    for (const json::value& option : options)
      none.push_back({&option, false});
    append(shapes, of(none));
    for (size_t i = 0; i < options.size(); ++i)
      for (size_t j = i + 1; j < options.size(); ++j)
        append(shapes, of({{&options[i], true}, {&options[j], true}}));
  }
  if (const auto* inner = given("not")) append(shapes, of({{inner, true}}));
  if (given("if") != nullptr) append(shapes, conditional(schema, false));
  if (given("unevaluatedProperties") != nullptr)
    left_out.emplace_back(JsonType::kObject, "unevaluatedProperties");
  if (given("unevaluatedItems") != nullptr)
    left_out.emplace_back(JsonType::kArray, "unevaluatedItems");
  forget_evaluation(shapes);
  for (const auto& [type, keyword] : left_out) {
    if (std::none_of(shapes.begin(), shapes.end(),
                     [&, t = type](const Shape& shape) { return shape.type == t; }))
      refuse(schema, keyword, "cannot be turned round: within not, if or oneOf it is not known");
  }
  if (shapes.size() > kMaxShapes)
    fail(ErrorKind::kUnsupported, "{}: has too many ways of not fitting", document_.path(schema));
  return shapes;
}

}  // namespace encore::grammar
