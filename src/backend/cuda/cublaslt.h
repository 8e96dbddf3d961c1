// Matrix products by cuBLASLt, opened at run time.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "backend/cuda/library.h"
#include "base/dtype.h"

namespace encore::cuda {

// Everything that decides which algorithm runs: out [rows, outputs] = x [rows, columns] weight^T +
// bias. Units: strides in elements, alignments in bytes.
struct MatmulShape {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t outputs = 0;
  int64_t x_stride = 0;
  int64_t weight_stride = 0;
  int64_t out_stride = 0;
  DType in_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  bool has_bias = false;
  uint32_t x_alignment = 16;
  uint32_t weight_alignment = 16;
  uint32_t out_alignment = 16;

  friend auto operator<=>(const MatmulShape&, const MatmulShape&) = default;
};

struct MatmulOperands {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* out = nullptr;
  void* workspace = nullptr;
};

// The library, with one handle for one device. Threads: any; calls are cheap after a shape's first.
class CublasLt {
 public:
  // Scratch that algorithms for such an output may use: up to 16 partial sums of each element in
  // float, at most 32 MB. Units: bytes.
  static int64_t workspace_bytes(int64_t rows, int64_t outputs);

  // Errors: kDevice when the library is not found or does not start.
  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // A product that is ready to be launched. Lifetime: until its CublasLt is destroyed.
  class Matmul {
   public:
    // Capture: yes. Errors: kDevice.
    void launch(cudaStream_t stream) const;

   private:
    friend class CublasLt;
    const CublasLt* library_ = nullptr;
    MatmulOperands operands_;
    int64_t workspace_bytes_ = 0;
    cublasLtMatmulDescOpaque_t operation_;
    cublasLtMatrixLayoutOpaque_t weight_;
    cublasLtMatrixLayoutOpaque_t x_;
    cublasLtMatrixLayoutOpaque_t out_;
    cublasLtMatmulAlgo_t algorithm_;
  };

  // Chooses an algorithm that gives the same bits on every run. Null when there is none for the
  // shape.
  std::unique_ptr<Matmul> plan(const MatmulShape& shape, const MatmulOperands& operands);

  [[nodiscard]] std::string version() const { return version_text(functions_.get_version()); }
  // "13.1.0" for 130100, as the library numbers its versions.
  static std::string version_text(size_t number);
  [[nodiscard]] const std::string& path() const { return library_.path(); }

 private:
  struct Functions {
    decltype(&cublasLtCreate) create = nullptr;
    decltype(&cublasLtDestroy) destroy = nullptr;
    decltype(&cublasLtGetVersion) get_version = nullptr;
    decltype(&cublasLtGetStatusString) get_status_string = nullptr;
    decltype(&cublasLtMatmul) matmul = nullptr;
    decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
    decltype(&cublasLtMatmulDescInit_internal) init_operation = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
    decltype(&cublasLtMatrixLayoutInit_internal) init_layout = nullptr;
    decltype(&cublasLtMatmulPreferenceInit_internal) init_preference = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  };

  void check(cublasStatus_t status, const char* what) const;
  void describe(Matmul& matmul, const MatmulShape& shape, const MatmulOperands& operands) const;
  std::optional<cublasLtMatmulAlgo_t> choose(Matmul& matmul, const MatmulShape& shape) const;

  Library library_;
  Functions functions_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;  // guards algorithms_
  std::map<MatmulShape, std::optional<cublasLtMatmulAlgo_t>> algorithms_;
};

}  // namespace encore::cuda
