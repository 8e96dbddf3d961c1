#include "backend/cuda/cublaslt.h"

#include <algorithm>

#include <fmt/format.h>

#include "backend/cuda/context.h"

namespace encore::cuda {
namespace {

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

}  // namespace

CublasLt::CublasLt() : library_("libcublasLt.so.13") {
  library_.look_up(functions_.create, "cublasLtCreate");
  library_.look_up(functions_.destroy, "cublasLtDestroy");
  library_.look_up(functions_.get_version, "cublasLtGetVersion");
  library_.look_up(functions_.get_status_string, "cublasLtGetStatusString");
  library_.look_up(functions_.matmul, "cublasLtMatmul");
  library_.look_up(functions_.get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library_.look_up(functions_.init_operation, "cublasLtMatmulDescInit_internal");
  library_.look_up(functions_.set_operation, "cublasLtMatmulDescSetAttribute");
  library_.look_up(functions_.init_layout, "cublasLtMatrixLayoutInit_internal");
  library_.look_up(functions_.init_preference, "cublasLtMatmulPreferenceInit_internal");
  library_.look_up(functions_.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  check(functions_.create(&handle_), "cublasLtCreate");
}

CublasLt::~CublasLt() {
  functions_.destroy(handle_);
}

void CublasLt::check(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  fail(ErrorKind::kDevice, "{}{}: {}", what, in_current_op(), functions_.get_status_string(status));
}

std::string CublasLt::version_text(size_t number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

int64_t CublasLt::workspace_bytes(int64_t rows, int64_t outputs) {
  constexpr int64_t kLeast = 64LL << 10;
  constexpr int64_t kMost = 32LL << 20;
  const int64_t partial_sums = rows * outputs * 16 * int64_t{sizeof(float)};
  return std::clamp((partial_sums + kLeast - 1) / kLeast * kLeast, kLeast, kMost);
}

// cuBLASLt thinks in columns: a row-major [R, N] is its column-major [N, R]. So it is asked for
// out^T [O, R] = (weight^T)^T [O, I] x^T [I, R].
void CublasLt::describe(Matmul& matmul, const MatmulShape& shape,
                        const MatmulOperands& operands) const {
  matmul.library_ = this;
  matmul.operands_ = operands;
  matmul.workspace_bytes_ = workspace_bytes(shape.rows, shape.outputs);
  auto* operation = &matmul.operation_;
  // Products and sums in float: no TF32, no sums in 16 bits.
  check(functions_.init_operation(operation, sizeof(*operation), CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescInit");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check(functions_.set_operation(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                 sizeof(transposed)),
        "cublasLtMatmulDescSetAttribute");
  if (shape.has_bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const auto bias_type = static_cast<int32_t>(cuda_type(shape.in_dtype));
    check(functions_.set_operation(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                   sizeof(epilogue)),
          "cublasLtMatmulDescSetAttribute");
    check(functions_.set_operation(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
                                   sizeof(bias_type)),
          "cublasLtMatmulDescSetAttribute");
    check(functions_.set_operation(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands.bias,
                                   sizeof(operands.bias)),
          "cublasLtMatmulDescSetAttribute");
  }
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto columns = static_cast<uint64_t>(shape.columns);
  const auto outputs = static_cast<uint64_t>(shape.outputs);
  const cudaDataType_t in = cuda_type(shape.in_dtype);
  check(functions_.init_layout(&matmul.weight_, sizeof(matmul.weight_), in, columns, outputs,
                               shape.weight_stride),
        "cublasLtMatrixLayoutInit");
  check(functions_.init_layout(&matmul.x_, sizeof(matmul.x_), in, columns, rows, shape.x_stride),
        "cublasLtMatrixLayoutInit");
  check(functions_.init_layout(&matmul.out_, sizeof(matmul.out_), cuda_type(shape.out_dtype),
                               outputs, rows, shape.out_stride),
        "cublasLtMatrixLayoutInit");
}

std::optional<cublasLtMatmulAlgo_t> CublasLt::choose(Matmul& matmul,
                                                     const MatmulShape& shape) const {
  cublasLtMatmulPreferenceOpaque_t preference;
  check(functions_.init_preference(&preference, sizeof(preference)),
        "cublasLtMatmulPreferenceInit");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(functions_.set_preference(&preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(matmul.workspace_bytes_));
  // Split sums only by way of the workspace, in float: in a fixed order, and rounded once.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.weight_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.x_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.out_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.out_alignment);
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  const cublasStatus_t status =
      functions_.get_heuristic(handle_, &matmul.operation_, &matmul.weight_, &matmul.x_,
                               &matmul.out_, &matmul.out_, &preference, 1, &result, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0 || result.state != CUBLAS_STATUS_SUCCESS) {
    return std::nullopt;  // the library does not do this shape
  }
  return result.algo;
}

std::unique_ptr<CublasLt::Matmul> CublasLt::plan(const MatmulShape& shape,
                                                 const MatmulOperands& operands) {
  auto matmul = std::make_unique<Matmul>();
  describe(*matmul, shape, operands);
  const std::lock_guard lock(mutex_);
  auto known = algorithms_.find(shape);
  if (known == algorithms_.end()) {
    known = algorithms_.emplace(shape, choose(*matmul, shape)).first;
  }
  if (!known->second) return nullptr;
  matmul->algorithm_ = *known->second;
  return matmul;
}

void CublasLt::Matmul::launch(cudaStream_t stream) const {
  const float one = 1;
  const float zero = 0;
  const cublasStatus_t status = library_->functions_.matmul(
      library_->handle_, const_cast<cublasLtMatmulDescOpaque_t*>(&operation_), &one,
      operands_.weight, const_cast<cublasLtMatrixLayoutOpaque_t*>(&weight_), operands_.x,
      const_cast<cublasLtMatrixLayoutOpaque_t*>(&x_), &zero, operands_.out,
      const_cast<cublasLtMatrixLayoutOpaque_t*>(&out_), operands_.out,
      const_cast<cublasLtMatrixLayoutOpaque_t*>(&out_), &algorithm_, operands_.workspace,
      static_cast<size_t>(workspace_bytes_), stream);
  library_->check(status, "cublasLtMatmul");
}

}  // namespace encore::cuda
