// Computes matrix products with cuBLASLt, which is opened at run time.
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

// The properties of a product that decide which algorithm runs: out [rows, outputs] = x [rows,
// columns] weight^T + bias. Units: strides in elements, alignments in bytes.
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

// Holds cuBLASLt, opened at run time, with one handle for one device. Threads: any.
class CublasLt {
 public:
  // Returns the scratch that algorithms for an output of this size may use: up to 16 partial sums
  // of each element in float, at most 32 MB. Units: bytes.
  static int64_t workspace_bytes(int64_t rows, int64_t outputs);

  // Opens cuBLASLt. Errors: kDevice when it is not found or does not start.
  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // A product's shape and the cuBLASLt algorithm that runs it. All launches of the shape share one
  // plan.
  struct Plan {
    int64_t workspace_bytes = 0;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t weight;
    cublasLtMatrixLayoutOpaque_t x;
    cublasLtMatrixLayoutOpaque_t out;
    cublasLtMatmulAlgo_t algorithm;
  };

  // A product that is ready to be launched. Lifetime: must not outlive its CublasLt.
  class Matmul {
   public:
    Matmul(const CublasLt& library, std::shared_ptr<const Plan> plan,
           const MatmulOperands& operands);
    // Launches the product. Capture: yes. Errors: kDevice.
    void launch(cudaStream_t stream) const;

   private:
    const CublasLt* library_;
    std::shared_ptr<const Plan> plan_;
    MatmulOperands operands_;
    cublasLtMatmulDescOpaque_t operation_;  // cuBLASLt's descriptor, with this product's bias
  };

  // Returns at most `most` algorithms that give the same bits on every run, in the order in which
  // cuBLASLt rates them. Each is text that plan() accepts with this version of cuBLASLt. The result
  // is empty if cuBLASLt does not support the shape.
  [[nodiscard]] std::vector<std::string> algorithms(const MatmulShape& shape, int most) const;
  // Returns cuBLASLt's plan of a shape with the given algorithm. Returns null if the text is no
  // algorithm of this version of cuBLASLt that runs the shape.
  [[nodiscard]] std::shared_ptr<const Plan> plan(const MatmulShape& shape,
                                                 const std::string& algorithm) const;
  // Returns the name of the kernel that the algorithm runs for a shape.
  [[nodiscard]] std::string code(const MatmulShape& shape, const std::string& algorithm) const;
  // Returns cuBLASLt's plan of a shape, which `make` makes at the shape's first launch. Returns
  // null if `make` returned null.
  std::shared_ptr<const Plan> plan_once(const MatmulShape& shape,
                                        const std::function<std::shared_ptr<const Plan>()>& make);

  [[nodiscard]] std::string version() const { return version_text(functions_.get_version()); }
  // Formats cuBLASLt's version number: "13.1.0" for 130100.
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
