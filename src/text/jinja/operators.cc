#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/print.h"
#include "text/jinja/string_format.h"

namespace encore::text::jinja {
namespace {

using ast::BinaryOp;
using ast::CompareOp;
using Kind = Value::Kind;

constexpr std::string_view kBinaryNames[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void fail_operands(std::string_view op, const Value& left, const Value& right) {
  if (left.is_undefined()) fail_render("{}", left.why_undefined());
  if (right.is_undefined()) fail_render("{}", right.why_undefined());
  fail_render("unsupported operand types for {}: '{}' and '{}'", op, type_name(left),
              type_name(right));
}

void check_overflow(bool overflows) {
  if (overflows) fail_render("an integer is too large");
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value power(Int base, Int exponent) {
  if (exponent < 0)
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  Int result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0) check_overflow(__builtin_mul_overflow(result, base, &result));
    exponent >>= 1;
    if (exponent > 0) check_overflow(__builtin_mul_overflow(base, base, &base));
  }
  return Value(result);
}

Value apply_integers(BinaryOp op, Int a, Int b) {
  Int result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      check_overflow(__builtin_add_overflow(a, b, &result));
      return Value(result);
    case BinaryOp::kSubtract:
      check_overflow(__builtin_sub_overflow(a, b, &result));
      return Value(result);
    case BinaryOp::kMultiply:
      check_overflow(__builtin_mul_overflow(a, b, &result));
      return Value(result);
    case BinaryOp::kPower:
      if (a == 0 && b < 0) fail_render("zero cannot be raised to a negative power");
      return power(a, b);
    default:
      break;
  }
  if (b == 0) fail_render("division by zero");
  if (op == BinaryOp::kDivide) return Value(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {  // division by -1 is the one that can overflow
    if (op == BinaryOp::kModulo) return Value(Int{0});
    check_overflow(__builtin_sub_overflow(Int{0}, a, &result));
    return Value(result);
  }
  const Int quotient = floor_divide(a, b);
  return Value(op == BinaryOp::kFloorDivide ? quotient : a - quotient * b);
}

Value apply_floats(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value(a + b);
    case BinaryOp::kSubtract:
      return Value(a - b);
    case BinaryOp::kMultiply:
      return Value(a * b);
    case BinaryOp::kPower:
      if (a < 0 && b != std::floor(b)) fail_render("the power is no real number");
      if (a == 0 && b < 0) fail_render("zero cannot be raised to a negative power");
      return Value(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) fail_render("division by zero");
  if (op == BinaryOp::kDivide) return Value(a / b);
  const double rest = float_modulo(a, b);
  if (op == BinaryOp::kModulo) return Value(rest);
  const double quotient = std::round((a - rest) / b);
  return Value(quotient != 0 ? quotient : std::copysign(0.0, a / b));
}

Value concatenate(const Text& left, const Text& right, Heap& heap) {
  const bool markup = left.markup || right.markup;
  TextBuilder out(heap);
  out += markup && !left.markup ? escape_html(left.bytes) : left.bytes;
  out += markup && !right.markup ? escape_html(right.bytes) : right.bytes;
  return out.finish(markup);
}

bool is_joinable(const Sequence& sequence) {
  return sequence.kind == Sequence::Kind::kList || sequence.kind == Sequence::Kind::kTuple;
}

Value concatenate(const Sequence& left, const Sequence& right, Heap& heap) {
  heap.check_items(left.items.size() + right.items.size());
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return heap.sequence(left.kind, std::move(items));
}

Value repeat(const Value& value, Int count, Heap& heap) {
  const auto times = static_cast<size_t>(std::clamp<Int>(count, 0, Int{1} << 32));
  if (const Text* text = value.if_text()) {
    TextBuilder out(heap);
    out.append(times, text->bytes);
    return out.finish(text->markup);
  }
  const Sequence& sequence = *value.if_sequence();
  heap.check_items(sequence.items.size() * times);
  std::vector<Value> items;
  for (size_t i = 0; i < times && !sequence.items.empty(); ++i)
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return heap.sequence(sequence.kind, std::move(items));
}

bool is_repeatable(const Value& value) {
  return value.is(Kind::kText) ||
         (value.if_sequence() != nullptr && is_joinable(*value.if_sequence()));
}

// The items that a slice takes: the index of the first item, the step between items, and their
// number.
struct SliceRange {
  Int start;
  Int step;
  Int count;
};

SliceRange slice_range(const Value& start, const Value& stop, const Value& step, Int size) {
  const auto bound = [](const Value& value) -> std::optional<Int> {
    if (value.is_none()) return std::nullopt;
    if (!value.is_integral())
      fail_render("slice indices must be integers, not {}", type_name(value));
    return value.as_int();
  };
  const Int by = bound(step).value_or(1);
  if (by == 0) fail_render("slice step cannot be zero");
  const Int lowest = by > 0 ? 0 : -1;
  const Int highest = by > 0 ? size : size - 1;
  const auto clamp = [&](std::optional<Int> at, Int fallback) {
    if (!at) return fallback;
    return std::clamp(*at < 0 ? *at + size : *at, lowest, highest);
  };
  const Int from = clamp(bound(start), by > 0 ? lowest : highest);
  const Int to = clamp(bound(stop), by > 0 ? highest : lowest);
  Int count = 0;
  if (by > 0 && from < to) count = (to - from - 1) / by + 1;
  if (by < 0 && from > to) count = (from - to - 1) / -by + 1;
  return {from, by, count};
}

Value slice_text(const Text& text, const SliceRange& range, Heap& heap) {
  heap.budget().spend_bytes(text.bytes.size());
  if (range.step == 1) {
    const size_t begin = byte_of(text.bytes, static_cast<size_t>(range.start));
    const std::string_view rest = std::string_view(text.bytes).substr(begin);
    const size_t size = byte_of(rest, static_cast<size_t>(range.count));
    return heap.text(std::string(rest.substr(0, size)), text.markup);
  }
  std::vector<size_t> starts;  // where each character starts, and where the text ends
  for (size_t at = 0; at <= text.bytes.size(); ++at)
    if (at == text.bytes.size() || (static_cast<uint8_t>(text.bytes[at]) & 0xc0U) != 0x80)
      starts.push_back(at);
  TextBuilder out(heap);
  for (Int i = 0, at = range.start; i < range.count; ++i, at += range.step) {
    const auto index = static_cast<size_t>(at);
    out += std::string_view(text.bytes).substr(starts[index], starts[index + 1] - starts[index]);
  }
  return out.finish(text.markup);
}

}  // namespace

Int floor_divide(Int dividend, Int divisor) {
  const Int quotient = dividend / divisor;
  return dividend % divisor != 0 && (dividend < 0) != (divisor < 0) ? quotient - 1 : quotient;
}

Value apply(ast::UnaryOp op, const Value& operand) {
  if (op == ast::UnaryOp::kNot) return Value(!truthy(operand));
  if (operand.is_undefined()) fail_render("{}", operand.why_undefined());
  if (!operand.is_number()) fail_render("bad operand type for a sign: '{}'", type_name(operand));
  if (op == ast::UnaryOp::kPlus) return operand.is_integral() ? Value(operand.as_int()) : operand;
  if (!operand.is_integral()) return Value(-operand.as_double());
  return apply_integers(BinaryOp::kSubtract, 0, operand.as_int());
}

Value apply(BinaryOp op, const Value& left, const Value& right, Heap& heap) {
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral())
      return apply_integers(op, left.as_int(), right.as_int());
    return apply_floats(op, left.as_double(), right.as_double());
  }
  if (op == BinaryOp::kAdd) {
    if (left.if_text() != nullptr && right.if_text() != nullptr)
      return concatenate(*left.if_text(), *right.if_text(), heap);
    const Sequence* a = left.if_sequence();
    const Sequence* b = right.if_sequence();
    if (a != nullptr && b != nullptr && a->kind == b->kind && is_joinable(*a))
      return concatenate(*a, *b, heap);
  }
  if (op == BinaryOp::kMultiply && is_repeatable(left) && right.is_integral())
    return repeat(left, right.as_int(), heap);
  if (op == BinaryOp::kMultiply && is_repeatable(right) && left.is_integral())
    return repeat(right, left.as_int(), heap);
  if (op == BinaryOp::kModulo && left.is(Kind::kText) && !right.is_undefined())
    return percent_format(*left.if_text(), right, heap);
  fail_operands(kBinaryNames[static_cast<size_t>(op)], left, right);
}

bool less(const Value& left, const Value& right, Budget& budget) {
  budget.spend();
  if (left.is_integral() && right.is_integral()) return left.as_int() < right.as_int();
  if (left.is_number() && right.is_number()) return left.as_double() < right.as_double();
  if (left.if_text() != nullptr && right.if_text() != nullptr) {
    budget.spend_bytes(std::min(left.if_text()->bytes.size(), right.if_text()->bytes.size()));
    return left.if_text()->bytes < right.if_text()->bytes;
  }
  const Sequence* a = left.if_sequence();
  const Sequence* b = right.if_sequence();
  if (a != nullptr && b != nullptr && a->kind == b->kind && is_joinable(*a)) {
    for (size_t i = 0; i < a->items.size() && i < b->items.size(); ++i)
      if (!equal(a->items[i], b->items[i], budget)) return less(a->items[i], b->items[i], budget);
    return a->items.size() < b->items.size();
  }
  if (left.is_undefined()) fail_render("{}", left.why_undefined());
  if (right.is_undefined()) fail_render("{}", right.why_undefined());
  fail_render("'{}' and '{}' have no order", type_name(left), type_name(right));
}

bool compare(CompareOp op, const Value& left, const Value& right, Heap& heap) {
  Budget& budget = heap.budget();
  switch (op) {
    case CompareOp::kEq:
      return equal(left, right, budget);
    case CompareOp::kNe:
      return !equal(left, right, budget);
    case CompareOp::kLt:
      return less(left, right, budget);
    case CompareOp::kGt:
      return less(right, left, budget);
    case CompareOp::kLe:
      return less(left, right, budget) || equal(left, right, budget);
    case CompareOp::kGe:
      return less(right, left, budget) || equal(left, right, budget);
    case CompareOp::kIn:
      return contains(right, left, heap);
    case CompareOp::kNotIn:
      return !contains(right, left, heap);
  }
  return false;
}

bool contains(const Value& container, const Value& item, Heap& heap) {
  Budget& budget = heap.budget();
  if (const Text* text = container.if_text()) {
    const Text* part = item.if_text();
    if (part == nullptr)
      fail_render("'in <string>' requires string as left operand, not {}", type_name(item));
    budget.spend_bytes(kSearchCost * text->bytes.size());
    return find_part(text->bytes, part->bytes) != std::string_view::npos;
  }
  if (const Mapping* mapping = container.if_mapping())
    return mapping->find(item, budget) != nullptr;
  if (container.if_sequence() != nullptr &&
      container.if_sequence()->kind != Sequence::Kind::kGenerator) {
    const std::vector<Value>& items = container.if_sequence()->items;
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& other) { return equal(other, item, budget); });
  }
  if (container.is_none()) fail_render("argument of type 'NoneType' is not iterable");
  const std::vector<Value> items = heap.items_of(container);
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Value& other) { return equal(other, item, budget); });
  if (found == items.end()) return false;
  // In Python, `in` takes items from a generator up to the item that it finds. So the generator
  // keeps only the items behind that item.
  if (Sequence* generator = container.if_sequence())
    generator->items.assign(found + 1, items.end());
  return true;
}

Int length_of(const Value& value) {
  if (const Text* text = value.if_text()) return static_cast<Int>(length(text->bytes));
  if (const Mapping* mapping = value.if_mapping())
    return static_cast<Int>(mapping->entries().size());
  if (const Loop* loop = value.if_loop()) return static_cast<Int>(loop->items.size());
  const Sequence* sequence = value.if_sequence();
  if (sequence != nullptr && sequence->kind != Sequence::Kind::kGenerator)
    return static_cast<Int>(sequence->items.size());
  if (value.is_undefined()) return 0;
  fail_render("object of type '{}' has no len()", type_name(value));
}

Value slice(const Value& object, const Value& start, const Value& stop, const Value& step,
            Heap& heap) {
  if (const Text* text = object.if_text()) {
    return slice_text(*text, slice_range(start, stop, step, length_of(object)), heap);
  }
  const Sequence* sequence = object.if_sequence();
  const bool has_places =
      sequence != nullptr && (is_joinable(*sequence) || sequence->kind == Sequence::Kind::kRange);
  if (!has_places) {
    if (object.is_undefined()) fail_render("{}", object.why_undefined());
    fail_render("'{}' object has no slices", type_name(object));
  }
  const SliceRange range = slice_range(start, stop, step, static_cast<Int>(sequence->items.size()));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(range.count));
  for (Int i = 0, at = range.start; i < range.count; ++i, at += range.step)
    items.push_back(sequence->items[static_cast<size_t>(at)]);
  return heap.sequence(is_joinable(*sequence) ? sequence->kind : Sequence::Kind::kList,
                       std::move(items));
}

}  // namespace encore::text::jinja
