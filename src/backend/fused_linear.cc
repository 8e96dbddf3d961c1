#include "backend/fused_linear.h"

#include "base/rounding.h"

namespace encore {
namespace {

constexpr int64_t kPartAlignment = 256;

// Cuts the scratch memory into tensors. Where the scratch memory is null, addresses start at zero.
class Scratch {
 public:
  explicit Scratch(void* data) : start_(reinterpret_cast<uintptr_t>(data)) {}

  TensorView take(DType dtype, int64_t rows, int64_t columns) {
    const TensorView view(end(), dtype, {rows, columns});
    bytes_ += round_up(view.num_bytes(), kPartAlignment);
    return view;
  }
  [[nodiscard]] void* end() const {
    return reinterpret_cast<void*>(start_ + static_cast<uintptr_t>(bytes_));
  }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  uintptr_t start_;
  int64_t bytes_ = 0;
};

TensorView columns_of(const TensorView& view, int64_t first, int64_t count) {
  TensorView part(view.as<std::byte>() + first * size_of(view.dtype), view.dtype,
                  {view.num_rows(), count});
  part.row_stride = view.row_stride;
  return part;
}

std::string_view op_of(const LinearOperands& o) {
  return o.norm != nullptr || o.silu_mul ? "fused_linear" : "linear";
}

KernelArgs without_adapters(const KernelArgs& args) {
  KernelArgs base = args;
  base.inputs = args.inputs.without({"lora_a", "lora_b", "adapters"});
  base.attrs = {};
  for (const auto& [name, value] : args.attrs) {
    if (name != "lora_blocks") base.attrs.set(name, value);
  }
  return base;
}

// Appends the norm to the parts, and returns its result.
TensorView add_norm(const KernelArgs& args, const LinearOperands& o, Scratch& scratch,
                    Parts& result) {
  const TensorView normed = scratch.take(o.x->dtype, o.x->num_rows(), o.x->row_elements());
  KernelArgs& norm =
      result.add(args, "rms_norm", {{"x", *o.x}, {"residual", o.residual}, {"weight", *o.norm}},
                 {{"sum", o.sum}, {"y", normed}});
  pass_on(args.attrs, {"eps", "offset"}, norm.attrs);
  return normed;
}

void end(const Scratch& scratch, Parts& result) {
  for (Parts::Part& part : result.parts)
    part.args.scratch = scratch.end();
  result.between_bytes = scratch.bytes();
}

// Splits the op into the norm and the product with its adapters.
Parts norm_parts(const KernelArgs& args, const LinearOperands& o) {
  Scratch scratch(args.scratch);
  Parts result;
  Views operands = args.inputs.without({"residual", "norm"});
  operands["x"] = add_norm(args, o, scratch, result);
  KernelArgs& product = result.add(args, o.silu_mul ? "fused_linear" : "linear",
                                   std::move(operands), {{"y", *o.out}});
  pass_on(args.attrs, {"fp8_rows", "x_scale", "lora_blocks", "epilogue"}, product.attrs);
  end(scratch, result);
  return result;
}

Parts lora_parts(const KernelArgs& args, const LinearOperands& o, const Takes& takes) {
  const KernelArgs base = without_adapters(args);
  const bool is_whole = takes(op_of(o), base);
  if (!is_whole && o.norm != nullptr) return norm_parts(args, o);

  Scratch scratch(args.scratch);
  Parts result;
  const TensorView h = scratch.take(DType::kF32, o.x->num_rows(), o.lora_a->shape[1]);
  KernelArgs& shrink = result.add(args, "lora_shrink",
                                  {{"x", *o.x},
                                   {"residual", o.residual},
                                   {"norm", o.norm},
                                   {"a", *o.lora_a},
                                   {"adapters", *o.adapters}},
                                  {{"h", h}});
  pass_on(args.attrs, {"eps", "offset"}, shrink.attrs);

  KernelArgs whole = base;
  whole.inputs.add("lora_h", h, true);
  whole.inputs.add("lora_b", *o.lora_b, true);
  whole.inputs.add("adapters", *o.adapters, true);
  pass_on(args.attrs, {"lora_blocks"}, whole.attrs);
  if (is_whole && takes(op_of(o), whole)) {
    result.parts.push_back({op_of(o), std::move(whole)});
    end(scratch, result);
    return result;
  }

  TensorView product = *o.out;
  if (o.silu_mul) product = scratch.take(o.out->dtype, o.x->num_rows(), o.weight->num_rows());
  KernelArgs& without = result.add(args, o.norm != nullptr ? "fused_linear" : "linear", base.inputs,
                                   {{"sum", o.sum}, {"y", product}});
  pass_on(args.attrs, {"eps", "offset", "fp8_rows", "x_scale"}, without.attrs);
  if (o.silu_mul) without.attrs.set(std::string(kChosenWithSiluMul), int64_t{1});
  KernelArgs& expand = result.add(
      args, "lora_expand",
      {{"base", product}, {"h", h}, {"b", *o.lora_b}, {"adapters", *o.adapters}}, {{"y", *o.out}});
  pass_on(args.attrs, {"lora_blocks", "epilogue"}, expand.attrs);
  end(scratch, result);
  return result;
}

}  // namespace

LinearOperands linear_operands(const KernelArgs& args) {
  LinearOperands o;
  o.x = &args.inputs["x"];
  o.residual = args.inputs.find("residual");
  o.norm = args.inputs.find("norm");
  o.weight = &args.inputs["weight"];
  o.scale = args.inputs.find("scale");
  o.bias = args.inputs.find("bias");
  o.lora_a = args.inputs.find("lora_a");
  o.lora_h = args.inputs.find("lora_h");
  o.lora_b = args.inputs.find("lora_b");
  o.adapters = args.inputs.find("adapters");
  o.sum = args.outputs.find("sum");
  o.out = &args.outputs["y"];
  if (o.norm != nullptr) o.eps = args.attrs.get_double("eps");
  if (args.attrs.find("offset") != nullptr) o.norm_offset = args.attrs.get_double("offset");
  o.silu_mul = args.attrs.find("epilogue") != nullptr;
  o.fp8_activations = args.attrs.find("fp8_rows") != nullptr &&
                      (args.batch_invariant || o.x->num_rows() >= args.attrs.get_int("fp8_rows"));
  if (args.attrs.find("x_scale") != nullptr)
    o.x_scale = static_cast<float>(args.attrs.get_double("x_scale"));
  return o;
}

KernelArgs with_silu_mul(const KernelArgs& product) {
  KernelArgs fused = product;
  fused.attrs = {};
  for (const auto& [name, value] : product.attrs) {
    if (name != kChosenWithSiluMul) fused.attrs.set(name, value);
  }
  fused.attrs.set("epilogue", std::string("silu_mul"));
  TensorView& y = fused.outputs["y"];
  y = TensorView(y.data, y.dtype, {y.num_rows(), y.row_elements() / 2});
  return fused;
}

Parts linear_parts(const KernelArgs& args, const Takes& takes) {
  const LinearOperands o = linear_operands(args);
  if (o.lora_a != nullptr) return lora_parts(args, o, takes);
  Scratch scratch(args.scratch);
  Parts result;
  const auto add = [&](std::string_view op, Views inputs, const TensorView& y) -> KernelArgs& {
    return result.add(args, op, std::move(inputs), {{"y", y}});
  };

  Views operands = args.inputs.without({"residual", "norm"});
  if (o.norm != nullptr) operands["x"] = add_norm(args, o, scratch, result);
  const auto add_product = [&](std::string_view op, const TensorView& y) -> KernelArgs& {
    KernelArgs& product = add(op, std::move(operands), y);
    pass_on(args.attrs, {"fp8_rows", "x_scale", kChosenWithSiluMul}, product.attrs);
    return product;
  };
  if (!o.silu_mul) {
    add_product("linear", *o.out);
  } else if (o.norm != nullptr) {
    add_product("fused_linear", *o.out).attrs.set("epilogue", std::string("silu_mul"));
  } else {
    const int64_t half = o.out->row_elements();
    const TensorView product = scratch.take(o.out->dtype, o.x->num_rows(), o.weight->num_rows());
    add_product("linear", product);
    add("silu_mul",
        {{"gate", columns_of(product, 0, half)}, {"up", columns_of(product, half, half)}}, *o.out);
  }
  end(scratch, result);
  return result;
}

}  // namespace encore
