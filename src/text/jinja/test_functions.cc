// Implements the tests of the `is` operator.
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text_functions.h"

namespace encore::text::jinja {
namespace {

using Kind = Value::Kind;

template <bool (*holds)(const Value&)>
Value check(Evaluator& /*evaluator*/, const Value& self, Arguments& arguments) {
  const Bound bound("test", arguments, {});
  return Value(holds(self));
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is(Kind::kBool);
}
bool is_true(const Value& value) {
  return value.is(Kind::kBool) && value.as_bool();
}
bool is_false(const Value& value) {
  return value.is(Kind::kBool) && !value.as_bool();
}
bool is_integer(const Value& value) {
  return value.is(Kind::kInt);
}
bool is_float(const Value& value) {
  return value.is(Kind::kFloat);
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.is(Kind::kText);
}
bool is_mapping(const Value& value) {
  return value.is(Kind::kMapping);
}
bool is_callable(const Value& value) {
  return value.is(Kind::kFunction);
}
bool is_escaped(const Value& value) {
  return value.if_text() != nullptr && value.if_text()->markup;
}

bool is_iterable(const Value& value) {
  return value.is(Kind::kText) || value.is(Kind::kSequence) || value.is(Kind::kMapping) ||
         value.is(Kind::kLoop) || value.is_undefined();
}

// Returns whether the value is a sequence: it has a length and items.
bool is_sequence(const Value& value) {
  if (const Sequence* sequence = value.if_sequence())
    return sequence->kind == Sequence::Kind::kList || sequence->kind == Sequence::Kind::kTuple ||
           sequence->kind == Sequence::Kind::kRange;
  return value.is(Kind::kText) || value.is(Kind::kMapping) || value.is_undefined();
}

template <ast::CompareOp op>
Value compare_test(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("test", arguments, {"other"}, 1);
  return Value(compare(op, self, bound.at(0), evaluator.heap()));
}

Value sameas_test(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  const Value& other = bound.at(0);
  if (self.kind() != other.kind()) return Value(false);
  if (self.identity() != nullptr) return Value(self.identity() == other.identity());
  return Value(equal(self, other, evaluator.budget()));
}

Value modulo(const Value& self, const Value& divisor, Heap& heap) {
  return apply(ast::BinaryOp::kModulo, self, divisor, heap);
}

Value divisibleby_test(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  return Value(
      equal(modulo(self, bound.at(0), evaluator.heap()), Value(Int{0}), evaluator.budget()));
}

template <int rest>
Value parity_test(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound(rest == 0 ? "even" : "odd", arguments, {});
  return Value(
      equal(modulo(self, Value(Int{2}), evaluator.heap()), Value(Int{rest}), evaluator.budget()));
}

template <bool upper>
Value case_test(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound(upper ? "upper" : "lower", arguments, {});
  return Value(has_case(str(self, evaluator.heap()), upper, evaluator.budget()));
}

template <Builtin (*find)(std::string_view)>
Value name_test(Evaluator& /*evaluator*/, const Value& self, Arguments& arguments) {
  const Bound bound("test", arguments, {});
  return Value(self.if_text() != nullptr && find(self.if_text()->bytes) != nullptr);
}

constexpr NamedBuiltin kTests[] = {
    {"!=", compare_test<ast::CompareOp::kNe>},
    {"<", compare_test<ast::CompareOp::kLt>},
    {"<=", compare_test<ast::CompareOp::kLe>},
    {"==", compare_test<ast::CompareOp::kEq>},
    {">", compare_test<ast::CompareOp::kGt>},
    {">=", compare_test<ast::CompareOp::kGe>},
    {"boolean", check<is_boolean>},
    {"callable", check<is_callable>},
    {"defined", check<is_defined>},
    {"divisibleby", divisibleby_test},
    {"eq", compare_test<ast::CompareOp::kEq>},
    {"equalto", compare_test<ast::CompareOp::kEq>},
    {"escaped", check<is_escaped>},
    {"even", parity_test<0>},
    {"false", check<is_false>},
    {"filter", name_test<find_filter>},
    {"float", check<is_float>},
    {"ge", compare_test<ast::CompareOp::kGe>},
    {"greaterthan", compare_test<ast::CompareOp::kGt>},
    {"gt", compare_test<ast::CompareOp::kGt>},
    {"in", compare_test<ast::CompareOp::kIn>},
    {"integer", check<is_integer>},
    {"iterable", check<is_iterable>},
    {"le", compare_test<ast::CompareOp::kLe>},
    {"lessthan", compare_test<ast::CompareOp::kLt>},
    {"lower", case_test<false>},
    {"lt", compare_test<ast::CompareOp::kLt>},
    {"mapping", check<is_mapping>},
    {"ne", compare_test<ast::CompareOp::kNe>},
    {"none", check<is_none>},
    {"number", check<is_number>},
    {"odd", parity_test<1>},
    {"sameas", sameas_test},
    {"sequence", check<is_sequence>},
    {"string", check<is_string>},
    {"test", name_test<find_test>},
    {"true", check<is_true>},
    {"undefined", check<is_undefined>},
    {"upper", case_test<true>},
};

}  // namespace

Builtin find_test(std::string_view name) {
  return find_in(kTests, name);
}

}  // namespace encore::text::jinja
