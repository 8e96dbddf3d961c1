// Matrix products by cuBLASLt, opened at run time.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "backend/cuda/device/library.h"
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

  // NOLINTNEXTLINE(modernize-use-nullptr): sees its 0
  friend auto operator<=>(const MatmulShape&, const MatmulShape&) = default;
};

struct MatmulOperands {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* out = nullptr;
  void* workspace = nullptr;
};

// The library, with one handle for one device. Threads: any.
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

  // A shape with the algorithm that runs it; shared by all launches of that shape.
  struct Plan {
    int64_t workspace_bytes = 0;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t weight;
    cublasLtMatrixLayoutOpaque_t x;
    cublasLtMatrixLayoutOpaque_t out;
    cublasLtMatmulAlgo_t algorithm;
  };

  // A product that is ready to be launched. Lifetime: until its CublasLt is destroyed.
  class Matmul {
   public:
    Matmul(const CublasLt& library, std::shared_ptr<const Plan> plan,
           const MatmulOperands& operands);
    // Capture: yes. Errors: kDevice.
    void launch(cudaStream_t stream) const;

   private:
    const CublasLt* library_;
    std::shared_ptr<const Plan> plan_;
    MatmulOperands operands_;
    cublasLtMatmulDescOpaque_t operation_;  // the plan's, with this product's bias
  };

  // Algorithms that give the same bits on every run, at most `most` of them, in the order of the
  // library's own guess; as text, which this version of the library reads back. None when the
  // library does not do the shape.
  [[nodiscard]] std::vector<std::string> algorithms(const MatmulShape& shape, int most) const;
  // Null when the text is no algorithm of this library that runs the shape.
  [[nodiscard]] std::shared_ptr<const Plan> plan(const MatmulShape& shape,
                                                 const std::string& algorithm) const;
  // Names the kernel that an algorithm runs for such a shape.
  [[nodiscard]] std::string code(const MatmulShape& shape, const std::string& algorithm) const;
  // The plan of a shape, made at its first launch; null when `make` says so.
  std::shared_ptr<const Plan> plan_once(const MatmulShape& shape,
                                        const std::function<std::shared_ptr<const Plan>()>& make);

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
    decltype(&cublasLtMatmulAlgoCheck) check_algorithm = nullptr;
    decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_attribute = nullptr;
    decltype(&cublasLtMatmulDescInit_internal) init_operation = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
    decltype(&cublasLtMatrixLayoutInit_internal) init_layout = nullptr;
    decltype(&cublasLtMatmulPreferenceInit_internal) init_preference = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  };

  void check(cublasStatus_t status, const char* what) const;
  [[nodiscard]] Plan describe(const MatmulShape& shape) const;

  Library library_;
  Functions functions_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;  // guards plans_
  std::map<MatmulShape, std::shared_ptr<const Plan>> plans_;
};

}  // namespace encore::cuda
