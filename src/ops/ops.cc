#include "ops/ops.h"

#include <numeric>

#include "ops/shapes.h"

namespace encore::ops {
namespace {

using ir::Attrs;
using ir::Capture;
using ir::Cost;
using ir::Dim;
using ir::Op;
using ir::Sizes;
using ir::Symbol;
using ir::Type;

int64_t columns(const Type& type) {
  return type.dims[1].value;
}

std::vector<Type> infer_embedding(Types in, const Attrs&) {
  require(is_vector(in[0], DType::kI32) && is_matrix(in[1]) && is_vector(in[2], DType::kF32) &&
              in[2].dims[0] == Dim(1) && (in.size() < 4 || is_vector(in[3], DType::kI32)),
          "ids i32[T], table [V,D], fill f32[1], last_tokens i32[M]?", in);
  return {{in[1].dtype, {in[0].dims[0], in[1].dims[1]}}};
}

std::vector<Type> infer_linear(Types in, const Attrs& attrs) {
  require(is_matrix(in[0]) && is_matrix(in[1]) && in[0].dims[1] == in[1].dims[1] &&
              in[0].dtype == in[1].dtype,
          "x [R,I] and weight [O,I] of one dtype", in);
  require(in.size() < 3 || (is_vector(in[2], in[1].dtype) && in[2].dims[0] == in[1].dims[0]),
          "bias [O] of the weight's dtype", in);
  DType out = in[0].dtype;
  if (attrs.find("out") != nullptr) {
    const auto parsed = parse_dtype(attrs.get_string("out"));
    require(parsed.has_value() && is_float(*parsed), "a float dtype in 'out'", in);
    out = *parsed;
  }
  return {{out, {in[0].dims[0], in[1].dims[0]}}};
}

Cost cost_linear(Types in, Types out, const Attrs&, const Sizes& sizes) {
  Cost cost;
  for (const Type& type : in)
    cost.bytes += type.num_bytes(sizes);
  cost.bytes += out[0].num_bytes(sizes);
  cost.flops = 2 * out[0].resolve(sizes).num_elements() * columns(in[0]);
  return cost;
}

// Only the rows that are looked up are read.
Cost cost_row_lookup(Types in, Types out, const Attrs&, const Sizes& sizes) {
  return {2 * out[0].num_bytes(sizes) + in[0].num_bytes(sizes), 0};
}

std::vector<Type> infer_rms_norm(Types in, const Attrs& attrs) {
  (void)attrs.get_double("eps");
  require(is_matrix(in[0]) && is_vector(in[1], in[0].dtype) && in[1].dims[0].value > 0 &&
              columns(in[0]) % in[1].dims[0].value == 0,
          "x [R,N] and weight [G] of one dtype, G dividing N", in);
  return {in[0]};
}

std::vector<Type> infer_elementwise(Types in, const Attrs&) {
  require(is_matrix(in[0]), "float [R,N]", in);
  for (const Type& type : in)
    require(type == in[0], "operands of one type", in);
  return {in[0]};
}

std::vector<Type> infer_add_rms_norm(Types in, const Attrs& attrs) {
  (void)attrs.get_double("eps");
  require(is_matrix(in[0]) && in[1] == in[0] && is_vector(in[2], in[0].dtype) &&
              in[2].dims[0] == in[0].dims[1],
          "x [R,N], residual [R,N], weight [N] of one dtype", in);
  return {in[0], in[0]};
}

// Name of the op fused in front of or behind a linear; empty: none.
std::string_view fused_op(const Attrs& attrs, std::string_view where) {
  return attrs.find(where) == nullptr ? std::string_view() : attrs.get_string(where);
}

// As its parts say, one after the other.
std::vector<Type> infer_fused_linear(Types in, const Attrs& attrs) {
  const std::string_view prologue = fused_op(attrs, "prologue");
  const std::string_view epilogue = fused_op(attrs, "epilogue");
  require(prologue.empty() || prologue == "rms_norm" || prologue == "add_rms_norm",
          "rms_norm or add_rms_norm as 'prologue'", in);
  require(epilogue.empty() || epilogue == "silu_mul", "silu_mul as 'epilogue'", in);
  require(!prologue.empty() || !epilogue.empty(), "a 'prologue' or an 'epilogue'", in);
  const size_t before = prologue.empty() ? 1 : prologue == "rms_norm" ? 2 : 3;
  require(in.size() == before + 1 || in.size() == before + 2,
          "what the prologue takes, weight [O,I], bias [O]?", in);

  std::vector<Type> out{in[0]};
  if (prologue == "rms_norm") {
    out = infer_rms_norm(in.first(before), attrs);
    require(in[1].dims[0] == in[0].dims[1], "a norm [I] of the whole row", in);
  } else if (prologue == "add_rms_norm") {
    out = infer_add_rms_norm(in.first(before), attrs);
  }
  std::vector<Type> operands{out.back()};
  operands.insert(operands.end(), in.begin() + static_cast<std::ptrdiff_t>(before), in.end());
  out.back() = infer_linear(operands, attrs)[0];
  if (epilogue == "silu_mul") {
    Dim& width = out.back().dims[1];
    require(width.value % 2 == 0, "an even number of outputs for silu_mul", in);
    width.value /= 2;
  }
  return out;
}

Cost cost_fused_linear(Types in, Types out, const Attrs&, const Sizes& sizes) {
  Cost cost;
  for (const Type& type : in) {
    cost.bytes += type.num_bytes(sizes);
    if (is_matrix(type) && type.dims[0].is_number()) {  // the weight
      cost.flops = 2 * in[0].dims[0].resolve(sizes) * type.dims[0].value * type.dims[1].value;
    }
  }
  for (const Type& type : out)
    cost.bytes += type.num_bytes(sizes);
  return cost;
}

// x [T,h*C] rotated by positions i32[T] and inv_freq f32[C/2].
bool can_rotate(const Type& x, const Type& positions, const Type& inv_freq) {
  return is_matrix(x) && is_vector(positions, DType::kI32) && positions.dims[0] == x.dims[0] &&
         is_vector(inv_freq, DType::kF32) && inv_freq.dims[0].value > 0 &&
         columns(x) % (2 * inv_freq.dims[0].value) == 0;
}

std::vector<Type> infer_rope(Types in, const Attrs&) {
  require(can_rotate(in[0], in[1], in[2]), "x [T,h*C], positions i32[T], inv_freq f32[C/2]", in);
  return {in[0]};
}

// Caches [P,K,S,C], of any dtype that KV may be kept in.
bool are_caches(const Type& k, const Type& v) {
  return (is_float(k.dtype) || k.dtype == DType::kFP8) && k.dims.size() == 4 && k == v;
}

// Caches that take k and v [T,K*C] at slots i32[T].
bool can_cache(const Type& k_cache, const Type& v_cache, const Type& k, const Type& v,
               const Type& slots) {
  return are_caches(k_cache, v_cache) && is_matrix(k) && k == v &&
         columns(k) == k_cache.dims[1].value * k_cache.dims[3].value &&
         is_vector(slots, DType::kI32) && slots.dims[0] == k.dims[0];
}

std::vector<Type> infer_kv_write(Types in, const Attrs&) {
  require(can_cache(in[0], in[1], in[2], in[3], in[4]),
          "two caches [P,K,S,C], k and v [T,K*C], each pair of one dtype, slots i32[T]", in);
  return {in[0], in[1]};
}

// Read and write of k and v, written as a cache keeps them; the cache itself stays where it is.
int64_t kv_write_bytes(const Type& k, const Type& cache, const Sizes& sizes) {
  return 2 * (k.num_bytes(sizes) + k.resolve(sizes).num_elements() * size_of(cache.dtype));
}

Cost cost_kv_write(Types in, Types, const Attrs&, const Sizes& sizes) {
  return {kv_write_bytes(in[2], in[0], sizes) + in[4].num_bytes(sizes), 0};
}

std::vector<Type> infer_rope_kv_write(Types in, const Attrs& attrs) {
  require(in.size() == 8 || in.size() == 10, "q_norm and k_norm both or neither", in);
  require(can_rotate(in[0], in[3], in[4]) && can_rotate(in[1], in[3], in[4]),
          "q [T,H*C], k [T,K*C], positions i32[T], inv_freq f32[C/2]", in);
  require(can_cache(in[6], in[7], in[1], in[2], in[5]) &&
              in[6].dims[3].value == 2 * in[4].dims[0].value && in[0].dtype == in[1].dtype,
          "k and v [T,K*C], slots i32[T], caches [P,K,S,C]", in);
  if (in.size() == 10) {
    (void)attrs.get_double("eps");
    for (const Type& norm : in.subspan(8)) {
      require(is_vector(norm, in[0].dtype) && norm.dims[0] == in[6].dims[3], "norms [C]", in);
    }
  }
  return {in[0], in[6], in[7]};
}

Cost cost_rope_kv_write(Types in, Types, const Attrs&, const Sizes& sizes) {
  return {2 * in[0].num_bytes(sizes) + kv_write_bytes(in[1], in[6], sizes), 0};
}

std::vector<Type> infer_attention(Types in, const Attrs& attrs) {
  (void)attrs.get_double("scale");
  require(is_matrix(in[0]) && are_caches(in[1], in[2]) &&
              columns(in[0]) % in[1].dims[3].value == 0 &&
              columns(in[0]) / in[1].dims[3].value % in[1].dims[1].value == 0,
          "q [T,H*C], k_cache and v_cache [P,K,S,C] of one dtype, K dividing H", in);
  require(is_table(in[3]) && is_vector(in[4], DType::kI32) && is_vector(in[5], DType::kI32) &&
              in[5].dims[0].symbol == in[4].dims[0].symbol &&
              in[5].dims[0].value == in[4].dims[0].value + 1,
          "page_table i32[M,N], kv_lens i32[B], query_starts i32[B+1]", in);
  return {in[0]};
}

// Without the KV read, which depends on lengths that only the step knows.
Cost cost_attention(Types in, Types out, const Attrs&, const Sizes& sizes) {
  return {in[0].num_bytes(sizes) + out[0].num_bytes(sizes), 0};
}

// As its parts say, one after the other.
std::vector<Type> infer_fused_attention(Types in, const Attrs& attrs) {
  std::vector<Type> write(in.begin(), in.begin() + 8);
  write.insert(write.end(), in.begin() + 11, in.end());
  std::vector<Type> out = infer_rope_kv_write(write, attrs);
  (void)infer_attention(std::vector<Type>{out[0], out[1], out[2], in[8], in[9], in[10]}, attrs);
  return out;
}

Cost cost_fused_attention(Types in, Types out, const Attrs&, const Sizes& sizes) {
  return {in[0].num_bytes(sizes) + out[0].num_bytes(sizes) + kv_write_bytes(in[1], in[6], sizes),
          0};
}

std::vector<Type> infer_gather_rows(Types in, const Attrs&) {
  require(is_matrix(in[0]) && is_vector(in[1], DType::kI32), "x [T,N], rows i32[B]", in);
  return {{in[0].dtype, {in[1].dims[0], in[0].dims[1]}}};
}

std::vector<Type> infer_split(Types in, const Attrs& attrs) {
  const auto& sizes = attrs.get_ints("sizes");
  require(in[0].dims.size() == 2 &&
              std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == columns(in[0]),
          "x [R,N] and sizes that sum to N", in);
  std::vector<Type> out;
  for (const int64_t size : sizes) {
    require(size > 0, "positive sizes", in);
    out.push_back({in[0].dtype, {in[0].dims[0], size}});
  }
  return out;
}

std::vector<Op> rows() {
  return {
      {.name = "embedding",
       .min_inputs = 3,
       .max_inputs = 4,
       .infer = infer_embedding,
       .cost = cost_row_lookup},
      {.name = "linear",
       .min_inputs = 2,
       .max_inputs = 3,
       .infer = infer_linear,
       .cost = cost_linear},
      {.name = "rms_norm",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = infer_rms_norm,
       .may_reuse = {{0, 0}}},
      {.name = "add",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = infer_elementwise,
       .may_reuse = {{0, 0}, {0, 1}}},
      {.name = "mul",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = infer_elementwise,
       .may_reuse = {{0, 0}, {0, 1}}},
      {.name = "silu",
       .min_inputs = 1,
       .max_inputs = 1,
       .infer = infer_elementwise,
       .may_reuse = {{0, 0}}},
      {.name = "rope",
       .min_inputs = 3,
       .max_inputs = 3,
       .infer = infer_rope,
       .may_reuse = {{0, 0}}},
      {.name = "kv_write",
       .min_inputs = 5,
       .max_inputs = 5,
       .infer = infer_kv_write,
       .mutates = {{0, 0}, {1, 1}},
       .cost = cost_kv_write},
      {.name = "attention",
       .min_inputs = 6,
       .max_inputs = 6,
       .infer = infer_attention,
       .capture = Capture::kFull,
       .may_reuse = {{0, 0}},
       .cost = cost_attention},
      {.name = "gather_rows",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = infer_gather_rows,
       .cost = cost_row_lookup},
      {.name = "split", .min_inputs = 1, .max_inputs = 1, .infer = infer_split, .is_view = true},
      {.name = "add_rms_norm",
       .min_inputs = 3,
       .max_inputs = 3,
       .infer = infer_add_rms_norm,
       .may_reuse = {{0, 0}, {1, 1}}},
      {.name = "silu_mul",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = infer_elementwise,
       .may_reuse = {{0, 0}, {0, 1}}},
      {.name = "rope_kv_write",
       .min_inputs = 8,
       .max_inputs = 10,
       .infer = infer_rope_kv_write,
       .mutates = {{1, 6}, {2, 7}},
       .may_reuse = {{0, 0}},
       .cost = cost_rope_kv_write},
      {.name = "fused_attention",
       .min_inputs = 11,
       .max_inputs = 13,
       .infer = infer_fused_attention,
       .capture = Capture::kFull,
       .mutates = {{1, 6}, {2, 7}},
       .may_reuse = {{0, 0}},
       .cost = cost_fused_attention},
      {.name = "fused_linear",
       .min_inputs = 2,
       .max_inputs = 5,
       .infer = infer_fused_linear,
       .cost = cost_fused_linear},
  };
}

}  // namespace

const ir::OpSet& standard() {
  static const ir::OpSet set = [] {
    ir::OpSet set;
    for (const auto& part : {rows(), step_end_rows()}) {
      for (const Op& row : part)
        set.add(row);
    }
    return set;
  }();
  return set;
}

}  // namespace encore::ops
