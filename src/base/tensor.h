// Views of dense, row-major tensors in some device's memory. A view is copied freely and owns
// nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/dtype.h"
#include "base/error.h"

namespace encore {

// The concrete dimensions of a tensor, at most kMaxRank of them.
class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    for (const int64_t dim : dims)
      push_back(dim);
  }

  void push_back(int64_t dim) {
    ENCORE_CHECK(rank_ < kMaxRank, "rank above {}", kMaxRank);
    dims_[rank_++] = dim;
  }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int64_t operator[](int i) const { return dims_[i]; }
  [[nodiscard]] const int64_t* begin() const { return dims_.data(); }
  [[nodiscard]] const int64_t* end() const { return dims_.data() + rank_; }

  // Returns the product of all dimensions; 1 for a scalar.
  [[nodiscard]] int64_t num_elements() const {
    int64_t product = 1;
    for (const int64_t dim : *this)
      product *= dim;
    return product;
  }
  // Returns the product of the dimensions from `first` on. With first = 1, it is the number of
  // elements of one row.
  [[nodiscard]] int64_t num_elements_from(int first) const {
    int64_t product = 1;
    for (int i = first; i < rank_; ++i)
      product *= dims_[i];
    return product;
  }
  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a.dims_[i] != b.dims_[i]) return false;
    }
    return true;
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// A view of a tensor. Rows (the first dimension) may be further apart than a dense row is long: a
// column slice of a wider tensor is a view with that tensor's row stride. Within a row, elements
// are dense. Lifetime: valid as long as the memory it points to.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t row_stride = 0;  // Units: elements from one row to the next

  TensorView() = default;
  // Makes a view of a dense tensor.
  TensorView(void* data, DType dtype, const Shape& shape)
      : data(data), dtype(dtype), shape(shape), row_stride(shape.num_elements_from(1)) {}

  [[nodiscard]] int64_t num_rows() const { return shape.rank() == 0 ? 1 : shape[0]; }
  [[nodiscard]] int64_t row_elements() const { return shape.num_elements_from(1); }
  [[nodiscard]] bool is_dense() const { return row_stride == row_elements(); }
  // Returns the bytes of the elements themselves, without the gaps between rows.
  [[nodiscard]] int64_t num_bytes() const { return shape.num_elements() * size_of(dtype); }

  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data);
  }
  // Returns the first element of row `i`.
  template <typename T>
  [[nodiscard]] T* row(int64_t i) const {
    return static_cast<T*>(data) + i * row_stride;
  }
};

}  // namespace encore
