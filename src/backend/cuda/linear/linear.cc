// The table of kernels of linear and fused_linear, the kernel that calls cuBLASLt, and the choice
// between cuBLASLt and our kernels.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/device/device.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/deciding.h"
#include "backend/cuda/linear/gemm.h"
#include "backend/cuda/linear/gemm_fp8.h"
#include "backend/cuda/linear/gemv.h"
#include "backend/cuda/linear/skinny_gemm.h"
#include "backend/expand.h"
#include "backend/fused_linear.h"

namespace encore::cuda {
namespace {

// Returns the largest power of two, at most 16, that divides the address of every row.
uint32_t alignment_of(const TensorView& view) {
  uint32_t alignment = 16;
  while (!is_aligned(view, alignment))
    alignment /= 2;
  return alignment;
}

// Accepts products that cuBLASLt computes fast. Inputs must be aligned to 16 bytes; others would
// get slow kernels of cuBLASLt that are seldom used.
bool accepts_cublaslt(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& weight = args.inputs["weight"];
  const DType out = args.outputs["y"].dtype;
  const bool is_plain = weight.dtype == x.dtype;
  const bool is_sized = x.num_rows() > 0 && weight.num_rows() > 0 && x.row_elements() > 0;
  // A single row has no stride of its own, but cuBLASLt checks the stride that it is given.
  return !args.batch_invariant && is_plain && is_sized && is_aligned(x) && is_aligned(weight) &&
         x.row_stride * size_of(x.dtype) % 16 == 0 && (out == x.dtype || out == DType::kF32);
}

Workspace cublaslt_workspace(const KernelArgs& args) {
  return {.scratch_bytes = CublasLt::workspace_bytes(args.inputs["x"].num_rows(),
                                                     args.inputs["weight"].num_rows())};
}

MatmulShape matmul_shape(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& weight = args.inputs["weight"];
  const TensorView& out = args.outputs["y"];
  MatmulShape shape;
  shape.rows = x.num_rows();
  shape.columns = x.row_elements();
  shape.outputs = weight.num_rows();
  shape.x_stride = x.row_stride;
  shape.weight_stride = weight.row_stride;
  shape.out_stride = out.row_stride;
  shape.in_dtype = x.dtype;
  shape.out_dtype = out.dtype;
  shape.has_bias = args.inputs.find("bias") != nullptr;
  shape.out_alignment = alignment_of(out);
  return shape;
}

BoundLaunch bind_plan(const CublasLt& library, std::shared_ptr<const CublasLt::Plan> plan,
                      const KernelArgs& args) {
  MatmulOperands operands;
  operands.x = args.inputs["x"].data;
  operands.weight = args.inputs["weight"].data;
  if (const TensorView* bias = args.inputs.find("bias")) operands.bias = bias->data;
  operands.out = args.outputs["y"].data;
  operands.workspace = args.scratch;
  // The product is shared by all copies of the returned launch function.
  auto matmul = std::make_shared<const CublasLt::Matmul>(library, std::move(plan), operands);
  return [matmul](Stream& stream, const StepLengths&) { matmul->launch(handle(stream)); };
}

// Returns cuBLASLt's plan with the algorithm that the tuner chose, or null when cuBLASLt has no
// algorithm for the shape.
std::shared_ptr<const CublasLt::Plan> tuned_plan(Device& device, const CublasLt& library,
                                                 const MatmulShape& shape, const KernelArgs& args) {
  std::map<std::string, std::shared_ptr<const CublasLt::Plan>> plans;  // by algorithm
  const auto plan_of = [&](const std::string& algorithm) {
    auto known = plans.find(algorithm);
    if (known == plans.end())
      known = plans.emplace(algorithm, library.plan(shape, algorithm)).first;
    return known->second;
  };
  const auto algorithm = device.tuner().choose(
      {.launch = tuning_text("linear.cublaslt " + library.version(), args),
       .args = args,
       .workspace = cublaslt_workspace(args),
       .candidates = [&](int most) { return library.algorithms(shape, most); },
       .bind = [&](const std::string& config, const KernelArgs& on) -> BoundLaunch {
         auto plan = plan_of(config);
         return plan == nullptr ? nullptr : bind_plan(library, std::move(plan), on);
       },
       .code = [&](const std::string& config) { return library.code(shape, config); }});
  return algorithm ? plan_of(*algorithm) : nullptr;
}

std::shared_ptr<const CublasLt::Plan> plan_for(Device& device, const KernelArgs& args) {
  CublasLt& library = static_cast<CudaDevice&>(device).cublaslt();
  const MatmulShape shape = matmul_shape(args);
  return library.plan_once(shape, [&] { return tuned_plan(device, library, shape, args); });
}

BoundLaunch bind_cublaslt(Device& device, const KernelArgs& args) {
  auto plan = plan_for(device, args);
  if (plan == nullptr) return bind_plain_linear(device, args);
  return bind_plan(static_cast<CudaDevice&>(device).cublaslt(), std::move(plan), args);
}

// Returns one launch that runs all of a linear's parts (see backend/parts.h): first the product
// with cuBLASLt, by the given plan of it, then each other part with the kernel that the device
// chooses for it.
BoundLaunch bind_plan_and_rest(Device& device, std::shared_ptr<const CublasLt::Plan> plan,
                               const Parts& parts) {
  const CublasLt& library = static_cast<CudaDevice&>(device).cublaslt();
  BoundLaunch product = bind_plan(library, std::move(plan), parts.parts.front().args);
  std::vector<OpLaunch> others;
  for (size_t i = 1; i < parts.parts.size(); ++i) {
    const auto& [op, args] = parts.parts[i];
    others.push_back({op, &device.kernels().choose(op, args), args});
  }
  if (others.empty()) return product;
  return [product = std::move(product), rest = bind_all(device, others)](
             Stream& stream, const StepLengths& lengths) {
    product(stream, lengths);
    rest(stream, lengths);
  };
}

// The smallest number of rows for which our kernel and cuBLASLt are compared. With fewer rows our
// kernel was faster for every shape that was tried.
constexpr int64_t kMinComparedRows = 33;
// The microseconds that a launch of cuBLASLt costs a step beside the launch's own time: our kernels
// fetch their weights while the launch before them ends, and cuBLASLt's do not. The value was found
// in chains of the launches of an 8B's layer with 64 and 96 rows. Compared by launch time alone,
// cuBLASLt won the product of gate and up, SiLU included, by 2 to 4 %, but the layer took 5 %
// longer with it.
constexpr double kNoOverlapUs = 3;

// Returns the names of the kernels to compare, the one that is likely to be faster first. Our
// kernel writes f32 outputs in single words. From 193 rows on, this makes it 8 to 35 % slower than
// cuBLASLt.
std::vector<std::string> kernels_by_guess(const KernelArgs& args) {
  constexpr int64_t kManyRows = 193;
  if (args.outputs["y"].dtype == DType::kF32 && args.inputs["x"].num_rows() >= kManyRows)
    return {"cublaslt", "ours"};
  return {"ours", "cublaslt"};
}

// Returns the function that binds our kernel: the skinny GEMM or, where x has more rows than the
// skinny GEMM takes, the GEMM for many rows. The product is cut into tiles as the tuner found best
// for `args`.
std::function<BoundLaunch(const KernelArgs& args)> binder_of_ours(Device& device,
                                                                  const KernelArgs& args) {
  if (accepts_skinny_gemm(args)) {
    return [&device, tiling = skinny_gemm_tiling(device, args)](const KernelArgs& on) {
      return bind_skinny_gemm(device, on, tiling);
    };
  }
  return [&device, tile_rows = gemm_tile_rows(device, args)](const KernelArgs& on) {
    return bind_gemm(device, on, tile_rows);
  };
}

// Accepts launches with 33 rows or more that both cuBLASLt and one of our kernels accept. The
// kernel of these two that the tuner found to be faster runs. For fused_linear, the time of
// cuBLASLt includes the launch of silu_mul behind the product.
bool accepts_fastest(const KernelArgs& args) {
  return args.inputs["x"].num_rows() >= kMinComparedRows &&
         (accepts_skinny_gemm(args) || accepts_gemm(args)) && accepts_cublaslt(args);
}

Workspace fastest_workspace(const KernelArgs& args) {
  return {.scratch_bytes =
              linear_parts(args).between_bytes + cublaslt_workspace(args).scratch_bytes};
}

BoundLaunch bind_fastest(Device& device, const KernelArgs& args) {
  const KernelArgs decides = deciding_launch(args);
  const auto plan = plan_for(device, linear_parts(decides).parts.front().args);
  const auto bind_ours = binder_of_ours(device, decides);
  const auto bind = [&](const std::string& winner, const KernelArgs& on) -> BoundLaunch {
    if (winner == "ours") return bind_ours(on);
    if (winner != "cublaslt" || plan == nullptr) return nullptr;
    return bind_plan_and_rest(device, plan, linear_parts(on));
  };
  const std::string version = static_cast<CudaDevice&>(device).cublaslt().version();
  const auto winner = device.tuner().choose(
      {.launch = tuning_text("linear.fastest " + version, decides),
       .args = decides,
       .workspace = fastest_workspace(decides),
       .candidates =
           [&](int most) {
             std::vector<std::string> names = kernels_by_guess(decides);
             names.resize(std::min<size_t>(names.size(), static_cast<size_t>(most)));
             return names;
           },
       .bind = bind,
       .code = nullptr,
       .beside =
           [num_launches = linear_parts(decides).parts.size()](const std::string& name) {
             return name == "cublaslt" ? kNoOverlapUs * static_cast<double>(num_launches) : 0;
           }});
  const BoundLaunch fastest = winner ? bind(*winner, args) : nullptr;
  return fastest != nullptr ? fastest : bind("ours", args);
}

// Accepts products of 8-bit codes with codes that both of our GEMMs (the skinny GEMM and the GEMM
// for many rows) accept. The GEMM of these two that the tuner found to be faster runs.
bool accepts_faster_fp8(const KernelArgs& args) {
  return accepts_gemm_fp8(args) && args.inputs["x"].num_rows() <= kMaxSkinnyRows &&
         accepts_skinny_gemm(args);
}

BoundLaunch bind_faster_fp8(Device& device, const KernelArgs& args) {
  const KernelArgs decides = deciding_launch(args);
  const std::vector<std::string> names = {"gemm_fp8", "skinny_gemm"};
  const GemmFp8Tiling gemm = gemm_fp8_tiling(device, decides);
  const SkinnyGemmTiling skinny = skinny_gemm_tiling(device, decides);
  const auto bind = [&](const std::string& name, const KernelArgs& on) {
    return name == "gemm_fp8" ? bind_gemm_fp8(device, on, gemm)
                              : bind_skinny_gemm(device, on, skinny);
  };
  const std::string faster =
      choose_way<std::string>(device.tuner(), {.launch = tuning_text("linear.faster_fp8", decides),
                                               .args = decides,
                                               .workspace = gemm_fp8_workspace(decides),
                                               .ways = names,
                                               .text = [](const std::string& name) { return name; },
                                               .bind = bind});
  return bind(faster, args);
}

// Returns whether `accepts` accepts deciding_launch(args), the launch by which a product's kernel
// is chosen.
template <bool (*accepts)(const KernelArgs&)>
bool accepts_decided(const KernelArgs& args) {
  return accepts(deciding_launch(args));
}

}  // namespace

KernelArgs deciding_launch(const KernelArgs& args) {
  if (args.attrs.find(kChosenWithSiluMul) == nullptr) return args;
  KernelArgs fused = with_silu_mul(args);
  const bool is_taken = accepts_gemv(fused) || accepts_fastest(fused) || accepts_gemm(fused) ||
                        accepts_gemm_fp8(fused) || accepts_skinny_gemm(fused);
  return is_taken ? fused : args;
}

std::span<const Kernel> linear_kernels() {
  static constexpr std::array<Kernel, 8> kRows = {{
      {"linear",
       "linear.gemv",
       accepts_decided<accepts_gemv>,
       nullptr,
       bind_gemv,
       {"scale", "bias", "lora_h", "lora_b", "adapters"}},
      {"linear",
       "linear.fastest",
       accepts_decided<accepts_fastest>,
       fastest_workspace,
       bind_fastest,
       {"bias"}},
      {"linear", "linear.gemm", accepts_decided<accepts_gemm>, nullptr, bind_gemm, {"bias"}},
      {"linear",
       "linear.faster_fp8",
       accepts_decided<accepts_faster_fp8>,
       gemm_fp8_workspace,
       bind_faster_fp8,
       {"scale", "bias"}},
      {"linear",
       "linear.gemm_fp8",
       accepts_decided<accepts_gemm_fp8>,
       gemm_fp8_workspace,
       bind_gemm_fp8,
       {"scale", "bias"}},
      {"linear",
       "linear.skinny_gemm",
       accepts_decided<accepts_skinny_gemm>,
       skinny_gemm_workspace,
       bind_skinny_gemm,
       {"scale", "bias"}},
      {"linear", "linear.cublaslt", accepts_cublaslt, cublaslt_workspace, bind_cublaslt, {"bias"}},
      {"linear", "linear.plain", nullptr, nullptr, bind_plain_linear, {"scale", "bias"}},
  }};
  return kRows;
}

// The kernels of fused_linear. With a norm in front of the product, they take up to four rows of 16
// bits, or any number of rows that are rounded to codes, where accepts_quantized_norm() accepts
// them. Without a norm they take more rows of 16 bits, too, where silu_mul follows the product. All
// other launches are split into the ops that fused_linear stands for.
std::span<const Kernel> fused_linear_kernels() {
  static constexpr std::array<Kernel, 6> kRows = {{
      {"fused_linear",
       "fused_linear.gemv",
       accepts_decided<accepts_gemv>,
       nullptr,
       bind_gemv,
       {"residual", "norm", "scale", "bias", "lora_h", "lora_b", "adapters"}},
      {"fused_linear",
       "fused_linear.fastest",
       accepts_decided<accepts_fastest>,
       fastest_workspace,
       bind_fastest,
       {"bias"}},
      {"fused_linear",
       "fused_linear.gemm",
       accepts_decided<accepts_gemm>,
       nullptr,
       bind_gemm,
       {"bias"}},
      {"fused_linear",
       "fused_linear.faster_fp8",
       accepts_decided<accepts_faster_fp8>,
       gemm_fp8_workspace,
       bind_faster_fp8,
       {"residual", "norm", "scale", "bias"}},
      {"fused_linear",
       "fused_linear.gemm_fp8",
       accepts_decided<accepts_gemm_fp8>,
       gemm_fp8_workspace,
       bind_gemm_fp8,
       {"residual", "norm", "scale", "bias"}},
      {"fused_linear",
       "fused_linear.skinny_gemm",
       accepts_decided<accepts_skinny_gemm>,
       skinny_gemm_workspace,
       bind_skinny_gemm,
       {"residual", "norm", "scale", "bias"}},
  }};
  return kRows;
}

}  // namespace encore::cuda
