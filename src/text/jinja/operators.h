// Python's operators.
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
// Python's <.
bool less(const Value& left, const Value& right, Budget& budget);
// Python's `item in container`.
bool contains(const Value& container, const Value& item, Heap& heap);
// Python's len(). Errors: RenderFailure for what has none.
Int length_of(const Value& value);
Int floor_divide(Int dividend, Int divisor);

// object.name: a method or a member, or an item of that key; undefined where there is none.
Value member(const Value& object, std::string_view name, Heap& heap);
// object[index]; undefined where there is none.
Value item(const Value& object, const Value& index, Heap& heap);
// object[start:stop:step]; None stands for what is left out.
Value slice(const Value& object, const Value& start, const Value& stop, const Value& step,
            Heap& heap);

}  // namespace encore::text::jinja
