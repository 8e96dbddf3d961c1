// Applies Python's operators to the values of a template.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/heap.h"

namespace encore::text::jinja {

// Errors of all functions: RenderFailure where the values do not allow the operation.

Value apply(ast::UnaryOp op, const Value& operand);
Value apply(ast::BinaryOp op, const Value& left, const Value& right, Heap& heap);
bool compare(ast::CompareOp op, const Value& left, const Value& right, Heap& heap);
// Returns whether Python's `left < right` holds.
bool less(const Value& left, const Value& right, Budget& budget);
// Returns whether Python's `item in container` holds.
bool contains(const Value& container, const Value& item, Heap& heap);
// Returns Python's len(). Errors: RenderFailure for a value without a length.
Int length_of(const Value& value);
Int floor_divide(Int dividend, Int divisor);

// Returns object.name: a method or a member, or the item of a dict with that key; undefined where
// the object has none of these.
Value member(const Value& object, std::string_view name, Heap& heap);
// Returns object[index]; undefined where the object has no such item.
Value item(const Value& object, const Value& index, Heap& heap);
// Returns object[start:stop:step]. None stands for a bound or step that is left out.
Value slice(const Value& object, const Value& start, const Value& stop, const Value& step,
            Heap& heap);

}  // namespace encore::text::jinja
