// Kernels of rotary position embedding, alone and fused with the norms before it and the KV write
// after it. Source: Su et al., "RoFormer", 2021, section 3.2; halves paired as in GPT-NeoX.
#include <array>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"

namespace encore::cpu {
namespace {

// The cosines and the sines of one token's angles, [C/2] each.
struct Angles {
  const float* cosine;
  const float* sine;
  int64_t half;
};

Angles angles_of(int32_t position, const TensorView& inv_freq) {
  const int64_t half = inv_freq.shape[0];
  float* cosine = thread_buffer(Buffer::kFirst, 2 * half);
  float* sine = cosine + half;
  for (int64_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * inv_freq.as<float>()[i];
    cosine[i] = std::cos(angle);
    sine[i] = std::sin(angle);
  }
  return {cosine, sine, half};
}

void rotate(float* head, const Angles& a) {
  for (int64_t i = 0; i < a.half; ++i) {
    const float x1 = head[i];
    const float x2 = head[i + a.half];
    head[i] = x1 * a.cosine[i] - x2 * a.sine[i];
    head[i + a.half] = x2 * a.cosine[i] + x1 * a.sine[i];
  }
}

// The widened weight and the epsilon of a norm per head. Without a weight, heads are not
// normalized.
struct HeadNorm {
  const float* weight = nullptr;
  float eps = 0;
};

HeadNorm head_norm(const TensorView* weight, const ir::Attrs& attrs, Buffer slot) {
  if (weight == nullptr) return {};
  return {widened_weight(*weight, attrs, slot), static_cast<float>(attrs.get_double("eps"))};
}

// Normalizes and rotates the head at `from`, and writes it to `to`, rounded once.
void rope_head(const std::byte* from, DType dtype, const HeadNorm& norm, const Angles& angles,
               std::byte* to) {
  const int64_t n = 2 * angles.half;
  float* head = thread_buffer(Buffer::kSecond, n);
  simd().load(from, dtype, n, head);
  if (norm.weight != nullptr) normalize(head, norm.weight, n, norm.eps);
  rotate(head, angles);
  simd().store(head, n, dtype, to);
}

void rope(Pool& pool, const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const auto* positions = args.inputs["positions"].as<int32_t>();
  const TensorView& inv_freq = args.inputs["inv_freq"];
  const TensorView& y = args.outputs["y"];
  const int64_t head_size = 2 * inv_freq.shape[0];
  pool.parallel_for(x.shape[0], 4, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const Angles angles = angles_of(positions[t], inv_freq);
      for (int64_t c = 0; c < x.shape[1]; c += head_size) {
        rope_head(row_bytes(x, t, c), x.dtype, {}, angles, row_bytes(y, t, c));
      }
    }
  });
}

void rope_kv_write(Pool& pool, const KernelArgs& args) {
  const TensorView& q = args.inputs["q"];
  const TensorView& k = args.inputs["k"];
  const TensorView& v = args.inputs["v"];
  const auto* positions = args.inputs["positions"].as<int32_t>();
  const TensorView& inv_freq = args.inputs["inv_freq"];
  const auto* slots = args.inputs["slots"].as<int32_t>();
  const TensorView* q_weight = args.inputs.find("q_norm");
  const TensorView* k_weight = args.inputs.find("k_norm");
  const TensorView& y = args.outputs["y"];
  const TensorView& k_cache = args.outputs["k_cache"];
  const TensorView& v_cache = args.outputs["v_cache"];
  const int64_t num_kv_heads = k_cache.shape[1];
  const int64_t page_size = k_cache.shape[2];
  const int64_t head_size = k_cache.shape[3];
  pool.parallel_for(q.shape[0], 4, [&](int64_t first, int64_t last) {
    const HeadNorm q_norm = head_norm(q_weight, args.attrs, Buffer::kThird);
    const HeadNorm k_norm = head_norm(k_weight, args.attrs, Buffer::kFourth);
    for (int64_t t = first; t < last; ++t) {
      const Angles angles = angles_of(positions[t], inv_freq);
      for (int64_t c = 0; c < q.shape[1]; c += head_size) {
        rope_head(row_bytes(q, t, c), q.dtype, q_norm, angles, row_bytes(y, t, c));
      }
      const int64_t page = slots[t] / page_size;
      if (slots[t] < 0 || page >= k_cache.shape[0]) continue;
      for (int64_t head = 0; head < num_kv_heads; ++head) {
        const int64_t place = (page * num_kv_heads + head) * page_size + slots[t] % page_size;
        const int64_t offset = place * head_size * size_of(k_cache.dtype);
        auto* turned = reinterpret_cast<std::byte*>(thread_buffer(Buffer::kFifth, head_size));
        rope_head(row_bytes(k, t, head * head_size), k.dtype, k_norm, angles, turned);
        convert(turned, k.dtype, head_size, k_cache.as<std::byte>() + offset, k_cache.dtype);
        convert(row_bytes(v, t, head * head_size), v.dtype, head_size,
                v_cache.as<std::byte>() + offset, v_cache.dtype);
      }
    }
  });
}

}  // namespace

std::span<const Kernel> rope_kernels() {
  static constexpr std::array kRows = {
      row<"rope.cpu", rope>("rope"),
      row<"rope_kv_write.cpu", rope_kv_write>("rope_kv_write", {"q_norm", "k_norm"}),
  };
  return kRows;
}

}  // namespace encore::cpu
