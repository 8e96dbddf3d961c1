// Kernels that move whole rows: embedding, gather_rows, kv_write.
#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"

namespace encore::cpu {
namespace {

constexpr int64_t kRowsPerPiece = 32;

void copy_row(std::byte* to, const std::byte* from, const TensorView& rows) {
  std::memcpy(to, from, static_cast<size_t>(rows.row_elements() * size_of(rows.dtype)));
}

}  // namespace

void convert(const std::byte* from, DType from_dtype, int64_t n, std::byte* to, DType to_dtype) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, static_cast<size_t>(n * size_of(to_dtype)));
    return;
  }
  float* wide = thread_buffer(Buffer::kSecond, n);
  simd().load(from, from_dtype, n, wide);
  simd().store(wide, n, to_dtype, to);
}

namespace {

// Writes a row of the dtype of `rows`, multiplied by `scale` and rounded. Uses Buffer::kSecond.
void scaled_row(const std::byte* from, float scale, std::byte* to, const TensorView& rows) {
  const int64_t n = rows.row_elements();
  float* wide = thread_buffer(Buffer::kSecond, n);
  simd().load(from, rows.dtype, n, wide);
  for (int64_t i = 0; i < n; ++i)
    wide[i] *= scale;
  simd().store(wide, n, rows.dtype, to);
}

void embedding(Pool& pool, const KernelArgs& args) {
  const auto* ids = args.inputs["ids"].as<int32_t>();
  const TensorView& table = args.inputs["table"];
  const float fill = *args.inputs["fill"].as<float>();
  const TensorView* last_tokens = args.inputs.find("last_tokens");
  const TensorView& y = args.outputs["x"];
  const int64_t n = y.shape[1];
  const bool scales = args.attrs.find("scale") != nullptr;
  const float scale = scales ? static_cast<float>(args.attrs.get_double("scale")) : 1.0F;
  const bool is_share = args.attrs.find("first_row") != nullptr;
  const int64_t first_row = is_share ? args.attrs.get_int("first_row") : 0;
  pool.parallel_for(y.shape[0], kRowsPerPiece, [&](int64_t first, int64_t last) {
    float* filled = thread_buffer(Buffer::kFirst, n);
    std::fill_n(filled, n, fill);
    for (int64_t t = first; t < last; ++t) {
      int32_t id = ids[t];
      if (id <= -2 && last_tokens != nullptr && -2 - int64_t{id} < last_tokens->shape[0])
        id = last_tokens->as<int32_t>()[-2 - int64_t{id}];
      const int64_t row = id - first_row;
      if (id >= 0 && row >= 0 && row < table.shape[0]) {
        if (scales) {
          scaled_row(row_bytes(table, row), scale, row_bytes(y, t), y);
        } else {
          copy_row(row_bytes(y, t), row_bytes(table, row), y);
        }
      } else if (is_share && id >= 0) {
        std::memset(row_bytes(y, t), 0, static_cast<size_t>(n * size_of(y.dtype)));
      } else {
        simd().store(filled, n, y.dtype, row_bytes(y, t));
      }
    }
  });
}

void gather_rows(Pool& pool, const KernelArgs& args) {
  const auto* rows = args.inputs["rows"].as<int32_t>();
  const std::pair<const char*, const char*> gathered[] = {{"x", "y"}, {"residual", "residual_y"}};
  for (const auto& [from, to] : gathered) {
    if (args.inputs.find(from) == nullptr) continue;
    const TensorView& x = args.inputs[from];
    const TensorView& y = args.outputs[to];
    pool.parallel_for(y.shape[0], kRowsPerPiece, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        if (rows[b] >= 0 && rows[b] < x.shape[0]) {
          copy_row(row_bytes(y, b), row_bytes(x, rows[b]), y);
        } else {
          std::memset(row_bytes(y, b), 0, static_cast<size_t>(y.shape[1] * size_of(y.dtype)));
        }
      }
    });
  }
}

void kv_write(Pool& pool, const KernelArgs& args) {
  const auto* slots = args.inputs["slots"].as<int32_t>();
  const std::pair<const char*, const char*> writes[] = {{"k", "k_cache"}, {"v", "v_cache"}};
  for (const auto& [from, to] : writes) {
    const TensorView& cache = args.outputs[to];
    const TensorView& x = args.inputs[from];
    const int64_t num_heads = cache.shape[1];
    const int64_t page_size = cache.shape[2];
    const int64_t head_size = cache.shape[3];
    pool.parallel_for(x.shape[0], kRowsPerPiece, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        const int64_t page = slots[t] / page_size;
        if (slots[t] < 0 || page >= cache.shape[0]) continue;
        for (int64_t head = 0; head < num_heads; ++head) {
          const int64_t place = (page * num_heads + head) * page_size + slots[t] % page_size;
          convert(row_bytes(x, t, head * head_size), x.dtype, head_size,
                  cache.as<std::byte>() + place * head_size * size_of(cache.dtype), cache.dtype);
        }
      }
    });
  }
}

}  // namespace

std::span<const Kernel> row_kernels() {
  static constexpr std::array kRows = {
      row<"embedding.cpu", embedding>("embedding", {"last_tokens"}),
      row<"gather_rows.cpu", gather_rows>("gather_rows", {"residual"}),
      row<"kv_write.cpu", kv_write>("kv_write"),
  };
  return kRows;
}

}  // namespace encore::cpu
