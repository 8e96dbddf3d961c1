// What shape functions are written with.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ir/op.h"

namespace encore::ops {

using Types = std::span<const ir::Type>;

// What a shape function demands; the message says what was given.
inline void require(bool condition, std::string_view demand, Types inputs) {
  if (condition) return;
  std::string given;
  for (const ir::Type& type : inputs)
    given += (given.empty() ? "" : ", ") + type.to_string();
  fail(ErrorKind::kCompile, "needs {}, given {}", demand, given);
}

inline bool is_matrix(const ir::Type& type) {
  return is_float(type.dtype) && type.dims.size() == 2;
}
inline bool is_vector(const ir::Type& type, DType dtype) {
  return type.dtype == dtype && type.dims.size() == 1;
}
// Of integers, with as many rows in every step.
inline bool is_table(const ir::Type& type) {
  return type.dtype == DType::kI32 && type.dims.size() == 2 && type.dims[0].is_number();
}

// The rows of the ops around the choice of tokens and between steps (step_end.cc).
std::vector<ir::Op> step_end_rows();

}  // namespace encore::ops
