#include "backend/cuda/linear/cublaslt.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "backend/cuda/device/context.h"
#include "base/rounding.h"

namespace encore::cuda {
namespace {

// A placeholder address for the bias while algorithms are looked up; each launch sets its own bias.
constexpr uintptr_t kAnyBias = 256;

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF32:
      return CUDA_R_32F;
    default:
      fail(ErrorKind::kCompile, "no product of cuBLASLt's is made of {}", name(dtype));
  }
}

// Writes an algorithm as text, word by word. cuBLASLt documents that these words may be stored and
// reused with the same version of cuBLASLt.
std::string to_text(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data)
    text += fmt::format("{}{:x}", text.empty() ? "" : " ", word);
  return text;
}

std::optional<cublasLtMatmulAlgo_t> parse_algorithm(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (uint64_t& word : algorithm.data) {
    if (at != text.data() && (at == end || *at++ != ' ')) return std::nullopt;
    const auto [next, error] = std::from_chars(at, end, word, 16);
    if (error != std::errc()) return std::nullopt;
    at = next;
  }
  if (at != end) return std::nullopt;
  return algorithm;
}

}  // namespace

CublasLt::CublasLt() : library_("libcublasLt.so.13") {
  library_.look_up(functions_.create, "cublasLtCreate");
  library_.look_up(functions_.destroy, "cublasLtDestroy");
  library_.look_up(functions_.get_version, "cublasLtGetVersion");
  library_.look_up(functions_.get_status_string, "cublasLtGetStatusString");
  library_.look_up(functions_.matmul, "cublasLtMatmul");
  library_.look_up(functions_.get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library_.look_up(functions_.check_algorithm, "cublasLtMatmulAlgoCheck");
  library_.look_up(functions_.get_attribute, "cublasLtMatmulAlgoConfigGetAttribute");
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
  return std::clamp(round_up(partial_sums, kLeast), kLeast, kMost);
}

// cuBLASLt takes matrices in column-major order, in which a row-major [R, N] is a [N, R]. So it is
// asked for out^T [O, R] = (weight^T)^T [O, I] x^T [I, R].
CublasLt::Plan CublasLt::describe(const MatmulShape& shape) const {
  Plan plan{};
  plan.workspace_bytes = workspace_bytes(shape.rows, shape.outputs);
  auto* operation = &plan.operation;
  // Products and sums are computed in float: without TF32, and without intermediate sums in 16
  // bits.
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
    check(functions_.set_operation(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &kAnyBias,
                                   sizeof(kAnyBias)),
          "cublasLtMatmulDescSetAttribute");
  }
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto columns = static_cast<uint64_t>(shape.columns);
  const auto outputs = static_cast<uint64_t>(shape.outputs);
  const cudaDataType_t in = cuda_type(shape.in_dtype);
  check(functions_.init_layout(&plan.weight, sizeof(plan.weight), in, columns, outputs,
                               shape.weight_stride),
        "cublasLtMatrixLayoutInit");
  check(functions_.init_layout(&plan.x, sizeof(plan.x), in, columns, rows, shape.x_stride),
        "cublasLtMatrixLayoutInit");
  check(functions_.init_layout(&plan.out, sizeof(plan.out), cuda_type(shape.out_dtype), outputs,
                               rows, shape.out_stride),
        "cublasLtMatrixLayoutInit");
  return plan;
}

std::vector<std::string> CublasLt::algorithms(const MatmulShape& shape, int most) const {
  Plan plan = describe(shape);
  cublasLtMatmulPreferenceOpaque_t preference;
  check(functions_.init_preference(&preference, sizeof(preference)),
        "cublasLtMatmulPreferenceInit");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(functions_.set_preference(&preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(plan.workspace_bytes));
  // A sum over the columns may be split into partial sums only if these go through the workspace in
  // float. They are then added in a fixed order and rounded once, so that every run gives the same
  // bits.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.weight_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.x_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.out_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.out_alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(most);
  int count = 0;
  const cublasStatus_t status =
      functions_.get_heuristic(handle_, &plan.operation, &plan.weight, &plan.x, &plan.out,
                               &plan.out, &preference, most, results.data(), &count);
  if (status != CUBLAS_STATUS_SUCCESS) return {};  // cuBLASLt does not support this shape
  std::vector<std::string> algorithms;
  for (int i = 0; i < count; ++i) {
    if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(to_text(results[i].algo));
  }
  return algorithms;
}

std::shared_ptr<const CublasLt::Plan> CublasLt::plan(const MatmulShape& shape,
                                                     const std::string& algorithm) const {
  const std::optional<cublasLtMatmulAlgo_t> parsed = parse_algorithm(algorithm);
  if (!parsed) return nullptr;
  auto plan = std::make_shared<Plan>(describe(shape));
  plan->algorithm = *parsed;
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      functions_.check_algorithm(handle_, &plan->operation, &plan->weight, &plan->x, &plan->out,
                                 &plan->out, &plan->algorithm, &result);
  const bool fits = result.workspaceSize <= static_cast<size_t>(plan->workspace_bytes);
  return status == CUBLAS_STATUS_SUCCESS && fits ? plan : nullptr;
}

std::string CublasLt::code(const MatmulShape& shape, const std::string& algorithm) const {
  const std::optional<cublasLtMatmulAlgo_t> parsed = parse_algorithm(algorithm);
  if (!parsed) return "";
  std::string text =
      fmt::format("{} {} {}", name(shape.in_dtype), name(shape.out_dtype), shape.has_bias);
  // Adds a property of the algorithm that appears in names of kernels. The number of partial sums
  // into which a sum over the columns is split does not appear there, because it is an argument of
  // the kernel.
  const auto add = [&]<typename T>(cublasLtMatmulAlgoConfigAttributes_t attribute, T most) {
    T value = 0;
    size_t written = 0;
    check(functions_.get_attribute(&*parsed, attribute, &value, sizeof(value), &written),
          "cublasLtMatmulAlgoConfigGetAttribute");
    text += fmt::format(" {}", std::min(value, most));
  };
  constexpr uint32_t kAny = ~0U;
  add(CUBLASLT_ALGO_CONFIG_ID, kAny);
  add(CUBLASLT_ALGO_CONFIG_TILE_ID, kAny);
  add(CUBLASLT_ALGO_CONFIG_STAGES_ID, kAny);
  add(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, kAny);
  add(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, static_cast<uint16_t>(kAny));
  add(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 2U);
  return text;
}

std::shared_ptr<const CublasLt::Plan> CublasLt::plan_once(
    const MatmulShape& shape, const std::function<std::shared_ptr<const Plan>()>& make) {
  const std::lock_guard lock(mutex_);
  auto known = plans_.find(shape);
  if (known == plans_.end()) known = plans_.emplace(shape, make()).first;
  return known->second;
}

CublasLt::Matmul::Matmul(const CublasLt& library, std::shared_ptr<const Plan> plan,
                         const MatmulOperands& operands)
    : library_(&library),
      plan_(std::move(plan)),
      operands_(operands),
      operation_(plan_->operation) {
  if (operands.bias == nullptr) return;
  library.check(library.functions_.set_operation(&operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                 &operands_.bias, sizeof(operands_.bias)),
                "cublasLtMatmulDescSetAttribute");
}

void CublasLt::Matmul::launch(cudaStream_t stream) const {
  const float one = 1;
  const float zero = 0;
  // cuBLASLt's functions take pointers to descriptors without const, although they do not change
  // the descriptors.
  auto* const operation = const_cast<cublasLtMatmulDescOpaque_t*>(&operation_);
  const auto layout = [](const cublasLtMatrixLayoutOpaque_t& description) {
    return const_cast<cublasLtMatrixLayoutOpaque_t*>(&description);
  };
  const cublasStatus_t status = library_->functions_.matmul(
      library_->handle_, operation, &one, operands_.weight, layout(plan_->weight), operands_.x,
      layout(plan_->x), &zero, operands_.out, layout(plan_->out), operands_.out, layout(plan_->out),
      &plan_->algorithm, operands_.workspace, static_cast<size_t>(plan_->workspace_bytes), stream);
  library_->check(status, "cublasLtMatmul");
}

}  // namespace encore::cuda
