#include "reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/random.h"

namespace encore::conformance {

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<float>(value);
    case DType::kF16:
      return static_cast<float>(Float16(static_cast<float>(value)));
    case DType::kBF16:
      return static_cast<float>(BFloat16(static_cast<float>(value)));
    case DType::kFP8:
      return static_cast<float>(Float8(static_cast<float>(value)));
    default:
      return value;
  }
}

namespace reference {
namespace {

HostTensor like(const HostTensor& x) {
  HostTensor y = x;
  y.row_gap = 0;
  return y;
}

HostTensor rows_of(const HostTensor& x, int64_t num_rows, int64_t num_columns) {
  HostTensor y;
  y.type = x.type;
  y.shape = {num_rows, num_columns};
  y.values.resize(static_cast<size_t>(num_rows * num_columns));
  return y;
}

template <typename F>
HostTensor zip(const HostTensor& a, const HostTensor& b, F f) {
  HostTensor y = like(a);
  for (size_t i = 0; i < y.values.size(); ++i)
    y.values[i] = f(a.values[i], b.values[i]);
  return y;
}

}  // namespace

HostTensor embedding(const HostTensor& ids, const HostTensor& table, double fill, double scale) {
  HostTensor y = rows_of(table, ids.num_rows(), table.shape[1]);
  for (int64_t t = 0; t < ids.num_rows(); ++t) {
    const int64_t id = ids.integer(t);
    for (int64_t c = 0; c < table.shape[1]; ++c) {
      y.row(t)[c] = id >= 0 && id < table.num_rows() ? table.row(id)[c] * scale : fill;
    }
  }
  return y;
}

HostTensor linear(const HostTensor& x, const HostTensor& weight, const HostTensor* bias) {
  HostTensor y = rows_of(x, x.num_rows(), weight.num_rows());
  for (int64_t r = 0; r < x.num_rows(); ++r) {
    for (int64_t o = 0; o < weight.num_rows(); ++o) {
      double sum = bias == nullptr ? 0.0 : bias->values[static_cast<size_t>(o)];
      for (int64_t i = 0; i < x.shape[1]; ++i)
        sum += x.row(r)[i] * weight.row(o)[i];
      y.row(r)[o] = sum;
    }
  }
  return y;
}

HostTensor lora_shrink(const HostTensor& x, const HostTensor& a, const HostTensor& adapters) {
  HostTensor h = rows_of(x, x.num_rows(), a.shape[1]);
  h.type.dtype = DType::kF32;
  for (int64_t r = 0; r < x.num_rows(); ++r) {
    const int64_t slot = adapters.integer(r);
    for (int64_t n = 0; slot >= 0 && n < a.shape[1]; ++n) {
      const double* row = a.row(slot) + n * a.shape[2];
      for (int64_t i = 0; i < a.shape[2]; ++i)
        h.row(r)[n] += x.row(r)[i] * row[i];
    }
  }
  return h;
}

HostTensor lora_expand(const HostTensor& base, const HostTensor& h, const HostTensor& b,
                       const HostTensor& adapters, const std::vector<int64_t>& blocks) {
  HostTensor y = like(base);
  const int64_t rank = b.shape[2];
  for (int64_t r = 0; r < base.num_rows(); ++r) {
    const int64_t slot = adapters.integer(r);
    if (slot < 0) continue;
    int64_t block = 0;
    int64_t end = blocks.empty() ? base.shape[1] : blocks[0];
    for (int64_t o = 0; o < base.shape[1]; ++o) {
      if (o == end) end += blocks[static_cast<size_t>(++block)];
      for (int64_t k = 0; k < rank; ++k)
        y.row(r)[o] += b.row(slot)[o * rank + k] * h.row(r)[block * rank + k];
    }
  }
  return y;
}

HostTensor scaled(const HostTensor& weight, const HostTensor& scale) {
  HostTensor numbers = like(weight);
  for (int64_t o = 0; o < weight.num_rows(); ++o) {
    for (int64_t i = 0; i < weight.shape[1]; ++i)
      numbers.row(o)[i] *= scale.shape.rank() == 1 ? scale.row(o)[0] : scale.row(o / 128)[i / 128];
  }
  return numbers;
}

HostTensor scaled_experts(const HostTensor& weight, const HostTensor& scale, int64_t num_matrices) {
  HostTensor numbers = like(weight);
  const int64_t rows = weight.shape[1] / num_matrices;
  const int64_t columns = weight.shape[2];
  const bool by_row = scale.shape.rank() == 2;
  for (int64_t expert = 0; expert < weight.num_rows(); ++expert) {
    for (int64_t i = 0; i < weight.row_elements(); ++i) {
      const int64_t row = i / columns;
      const int64_t block = row / rows * ((rows + 127) / 128) + row % rows / 128;
      numbers.row(expert)[i] *=
          scale.row(expert)[by_row ? row : block * scale.shape[2] + i % columns / 128];
    }
  }
  return numbers;
}

HostTensor in_fp8(const HostTensor& x, float static_scale) {
  HostTensor y = like(x);
  for (int64_t r = 0; r < x.num_rows(); ++r) {
    for (int64_t first = 0; first < x.shape[1]; first += 128) {
      const int64_t end = std::min(first + 128, x.shape[1]);
      double largest = 0;
      for (int64_t i = first; i < end; ++i)
        largest = std::fmax(largest, std::fabs(x.row(r)[i]));
      float scale = static_cast<float>(largest) / 448.0F;
      if (!std::isnormal(scale)) scale = 1;
      if (static_scale != 0) scale = static_scale;
      const float inverse = 1 / scale;
      for (int64_t i = first; i < end; ++i) {
        const float scaled_down = static_cast<float>(x.row(r)[i]) * inverse;
        y.row(r)[i] = round_to(DType::kFP8, scaled_down) * scale;
      }
    }
  }
  return y;
}

Routed route(const HostTensor& logits, const HostTensor& live, const HostTensor* bias,
             const Routing& routing) {
  const int64_t top_k = routing.top_k;
  Routed routed{rows_of(logits, logits.num_rows(), top_k),
                rows_of(logits, logits.num_rows(), top_k)};
  constexpr double kLargest = std::numeric_limits<float>::max();
  const auto num_experts = static_cast<int>(logits.shape[1]);
  for (int64_t r = 0; r < logits.num_rows(); ++r) {
    std::vector<double> row(logits.row(r), logits.row(r) + num_experts);
    for (double& value : row)
      value = std::isnan(value) ? -kLargest : std::clamp(value, -kLargest, kLargest);
    const double largest = *std::max_element(row.begin(), row.end());
    double total = 0;
    for (const double value : row)
      total += std::exp(value - largest);
    std::vector<double> scores;
    for (const double value : row)
      scores.push_back(routing.sigmoid ? 1 / (1 + std::exp(-value))
                                       : std::exp(value - largest) / total);
    std::vector<double> choices = scores;
    for (int e = 0; e < num_experts && bias != nullptr; ++e)
      choices[e] += bias->values[e];
    const auto by_choice = [](const std::vector<double>& of, int count) {
      std::vector<int> ids(of.size());
      std::iota(ids.begin(), ids.end(), 0);
      std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return of[a] > of[b]; });
      ids.resize(count);
      return ids;
    };
    const int size = num_experts / static_cast<int>(routing.groups);
    std::vector<double> group_scores;
    for (auto first = choices.begin(); first != choices.end(); first += size) {
      std::vector<double> group(first, first + size);
      std::sort(group.rbegin(), group.rend());
      group_scores.push_back(size > 1 ? group[0] + group[1] : group[0]);
    }
    std::vector<int> kept = by_choice(group_scores, static_cast<int>(routing.groups_kept));
    for (int e = 0; e < num_experts; ++e) {
      if (std::ranges::count(kept, e / size) == 0)
        choices[e] = -std::numeric_limits<double>::infinity();
    }
    // With a plain softmax, experts are chosen by their logits, because different logits may round
    // to equal scores.
    const bool by_logit =
        !routing.sigmoid && bias == nullptr && routing.groups == routing.groups_kept;
    const std::vector<int> ids = by_choice(by_logit ? row : choices, static_cast<int>(top_k));
    double sum = 1e-20;
    for (const int id : ids)
      sum += scores[id];
    for (int64_t k = 0; k < top_k; ++k) {
      const bool is_live = live.integer(r) >= routing.least;
      routed.experts.row(r)[k] = is_live ? ids[k] : -1;
      routed.weights.row(r)[k] =
          is_live ? scores[ids[k]] / (routing.renormalize ? sum : 1) * routing.factor : 0;
    }
  }
  return routed;
}

HostTensor expert_mlp(const HostTensor& x, const Routed& routed, const HostTensor& gate_up,
                      const HostTensor& down) {
  HostTensor y = rows_of(x, x.num_rows(), x.shape[1]);
  const int64_t inner = down.shape[2];
  const auto dot = [](const double* a, const double* b, int64_t n) {
    return std::inner_product(a, a + n, b, 0.0);
  };
  for (int64_t r = 0; r < x.num_rows(); ++r) {
    for (int64_t k = 0; k < routed.experts.shape[1]; ++k) {
      const auto expert = static_cast<int64_t>(routed.experts.row(r)[k]);
      if (expert < 0 || expert >= gate_up.num_rows()) continue;
      const double* const rows = gate_up.row(expert);
      std::vector<double> hidden(static_cast<size_t>(inner));
      for (int64_t f = 0; f < inner; ++f) {
        const double gate = dot(x.row(r), rows + f * x.shape[1], x.shape[1]);
        const double up = dot(x.row(r), rows + (inner + f) * x.shape[1], x.shape[1]);
        hidden[f] = round_to(x.type.dtype, gate / (1 + std::exp(-gate)) * up);
      }
      for (int64_t i = 0; i < x.shape[1]; ++i)
        y.row(r)[i] +=
            routed.weights.row(r)[k] * dot(hidden.data(), down.row(expert) + i * inner, inner);
    }
  }
  return y;
}

HostTensor rms_norm(const HostTensor& x, const HostTensor& weight, double eps, double offset) {
  HostTensor y = like(x);
  const int64_t group = weight.num_rows();
  for (int64_t first = 0; first < x.shape.num_elements(); first += group) {
    double squares = 0;
    for (int64_t i = 0; i < group; ++i) {
      const double value = x.values[static_cast<size_t>(first + i)];
      squares += value * value;
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(group) + eps);
    for (int64_t i = 0; i < group; ++i) {
      y.values[static_cast<size_t>(first + i)] *=
          scale * (weight.values[static_cast<size_t>(i)] + offset);
    }
  }
  return y;
}

HostTensor add(const HostTensor& a, const HostTensor& b) {
  return zip(a, b, [](double x, double y) { return x + y; });
}

HostTensor mul(const HostTensor& a, const HostTensor& b) {
  return zip(a, b, [](double x, double y) { return x * y; });
}

HostTensor silu(const HostTensor& x) {
  return zip(x, x, [](double value, double) { return value / (1.0 + std::exp(-value)); });
}

HostTensor gelu_tanh(const HostTensor& x) {
  return zip(x, x, [](double value, double) {
    const double inner = std::sqrt(2 / M_PI) * (value + 0.044715 * value * value * value);
    return value * (1 + std::tanh(inner)) / 2;
  });
}

HostTensor softcap(const HostTensor& x, double cap) {
  return zip(x, x, [&](double value, double) { return cap * std::tanh(value / cap); });
}

HostTensor rope(const HostTensor& x, const HostTensor& positions, const HostTensor& inv_freq) {
  HostTensor y = like(x);
  const int64_t half = inv_freq.num_rows();
  for (int64_t t = 0; t < x.num_rows(); ++t) {
    for (int64_t head = 0; head < x.shape[1]; head += 2 * half) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            positions.values[static_cast<size_t>(t)] * inv_freq.values[static_cast<size_t>(i)];
        const double x1 = x.row(t)[head + i];
        const double x2 = x.row(t)[head + half + i];
        y.row(t)[head + i] = x1 * std::cos(angle) - x2 * std::sin(angle);
        y.row(t)[head + half + i] = x2 * std::cos(angle) + x1 * std::sin(angle);
      }
    }
  }
  return y;
}

HostTensor gather_rows(const HostTensor& x, const HostTensor& rows) {
  HostTensor y = rows_of(x, rows.num_rows(), x.shape[1]);
  for (int64_t b = 0; b < rows.num_rows(); ++b) {
    std::copy_n(x.row(rows.integer(b)), x.shape[1], y.row(b));
  }
  return y;
}

HostTensor kv_write(HostTensor cache, const HostTensor& x, const HostTensor& slots) {
  const int64_t num_heads = cache.shape[1];
  const int64_t page_size = cache.shape[2];
  const int64_t head_size = cache.shape[3];
  const DType from = x.type.dtype;
  const DType to = cache.type.dtype;
  const auto kept = [&](double value) {
    return from == to ? value : round_to(to, round_to(from, value));
  };
  for (int64_t t = 0; t < x.num_rows(); ++t) {
    const int64_t slot = slots.integer(t);
    if (slot < 0) continue;
    for (int64_t head = 0; head < num_heads; ++head) {
      const double* row = x.row(t) + head * head_size;
      std::transform(
          row, row + head_size,
          cache.row(slot / page_size) + (head * page_size + slot % page_size) * head_size, kept);
    }
  }
  return cache;
}

namespace {

// Computes one query head's attention over the first `num_seen` tokens of sequence `b`, or over
// those of them that lie in the window.
void attend(const AttentionInputs& in, int64_t b, int64_t num_seen, int64_t head,
            const double* query, double* result) {
  const int64_t page_size = in.k_cache.shape[2];
  const int64_t head_size = in.k_cache.shape[3];
  const int64_t kv_head = head / (in.q.shape[1] / head_size / in.k_cache.shape[1]);
  const int64_t first = std::max<int64_t>(0, num_seen - in.window.value_or(num_seen));
  const auto token = [&](const HostTensor& cache, int64_t position) {
    const auto page = static_cast<int64_t>(in.page_table.row(b)[position / page_size]);
    return cache.row(page) + (kv_head * page_size + position % page_size) * head_size;
  };
  std::vector<double> weights;
  for (int64_t j = first; j < num_seen; ++j) {
    double score =
        in.scale * std::inner_product(query, query + head_size, token(in.k_cache, j), 0.0);
    if (in.softcap) score = *in.softcap * std::tanh(score / *in.softcap);
    weights.push_back(score);
  }
  double largest = *std::max_element(weights.begin(), weights.end());
  double total = 0;
  if (in.sinks != nullptr) {
    const double sink = in.sinks->values[static_cast<size_t>(head)];
    largest = std::max(largest, sink);
    total = std::exp(sink - largest);
  }
  for (double& weight : weights)
    total += weight = std::exp(weight - largest);
  std::fill_n(result, head_size, 0.0);
  for (int64_t j = first; j < num_seen; ++j) {
    const double weight = weights[static_cast<size_t>(j - first)] / total;
    for (int64_t c = 0; c < head_size; ++c)
      result[c] += weight * token(in.v_cache, j)[c];
  }
}

}  // namespace

std::vector<std::optional<std::vector<double>>> attention(const AttentionInputs& in) {
  const int64_t num_columns = in.q.shape[1];
  const int64_t head_size = in.k_cache.shape[3];
  std::vector<std::optional<std::vector<double>>> rows(static_cast<size_t>(in.q.num_rows()));
  if (in.uniform_q > 0) {
    for (auto& row : rows)
      row.emplace(static_cast<size_t>(num_columns), 0.0);
  }
  for (int64_t b = 0; b < in.kv_lens.num_rows(); ++b) {
    const int64_t q = in.uniform_q;
    const int64_t begin = q > 0 ? b * q : in.query_starts.integer(b);
    const int64_t end = q > 0 ? (b + 1) * q : in.query_starts.integer(b + 1);
    const int64_t kv_len = in.kv_lens.integer(b);
    if (kv_len == 0) continue;
    for (int64_t r = begin; r < end; ++r) {
      auto& row = rows[static_cast<size_t>(r)];
      row.emplace(static_cast<size_t>(num_columns), 0.0);
      for (int64_t head = 0; head < num_columns / head_size; ++head) {
        attend(in, b, kv_len - (end - 1 - r), head, in.q.row(r) + head * head_size,
               row->data() + head * head_size);
      }
    }
  }
  return rows;
}

std::vector<double> probabilities(const SampleRow& row) {
  std::vector<double> p(static_cast<size_t>(row.num_logits));
  double largest = -INFINITY;
  for (int64_t i = 0; i < row.num_logits; ++i)
    largest = std::fmax(largest, row.logits[i]);
  double total = 0;
  for (int64_t i = 0; i < row.num_logits; ++i) {
    const double likelihood = std::exp((row.logits[i] - largest) / row.temperature);
    total += p[static_cast<size_t>(i)] = std::isnan(likelihood) ? 0.0 : likelihood;
  }
  for (double& value : p)
    value /= total;
  return p;
}

namespace {

// Returns the tokens that top_k, top_p and min_p keep.
std::vector<bool> likely_tokens(const SampleRow& row, double slack) {
  const std::vector<double> p = probabilities(row);
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  const size_t k = row.top_k > 0 ? std::min(p.size(), static_cast<size_t>(row.top_k)) : p.size();
  double threshold = p[order[k - 1]];
  double kept_by_k = 0;
  for (const double value : p)
    kept_by_k += value >= threshold ? value : 0;
  double sum = 0;
  for (size_t i = 0; i < p.size() && p[order[i]] >= threshold; ++i) {
    sum += p[order[i]] / kept_by_k;
    if (row.top_p < 1 && sum >= row.top_p + slack) {
      threshold = p[order[i]];
      break;
    }
  }
  const double most = p[order[0]];
  threshold = std::max(threshold, std::min(most, row.min_p * most * (1 - slack)));
  std::vector<bool> kept(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    kept[i] = p[i] >= threshold * (1 - std::max(slack, 0.0)) && !std::isnan(row.logits[i]);
  }
  return kept;
}

// Returns the tokens of `likely` that typical_p keeps: a token is kept if the probabilities of all
// tokens whose -log p is nearer to the entropy sum to less than typical_p.
std::vector<bool> typical_tokens(const SampleRow& row, const std::vector<bool>& likely,
                                 double slack) {
  constexpr double kNothing = 1e-12;  // allows for rounding
  struct Typical {
    double distance;
    double p;
    size_t token;
  };
  const std::vector<double> p = probabilities(row);
  double total = 0;
  for (size_t i = 0; i < p.size(); ++i)
    total += likely[i] ? p[i] : 0;
  std::vector<Typical> tokens;
  double entropy = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (!likely[i] || p[i] == 0) continue;
    tokens.push_back({0, p[i] / total, i});
    entropy -= tokens.back().p * std::log(tokens.back().p);
  }
  for (Typical& token : tokens)
    token.distance = std::abs(-std::log(token.p) - entropy);
  std::sort(tokens.begin(), tokens.end(),
            [](const Typical& a, const Typical& b) { return a.distance < b.distance; });
  std::vector<bool> kept(p.size());
  size_t num_before = 0;
  double before = 0;
  for (const Typical& token : tokens) {
    // With a negative slack, tokens that are farther from the entropy by less than the slack may
    // come first too.
    while (num_before < tokens.size() && tokens[num_before].distance < token.distance - slack)
      before += tokens[num_before++].p;
    kept[token.token] =
        before - (slack < 0 ? token.p : 0) < std::max(row.typical_p + slack, kNothing);
  }
  return kept;
}

}  // namespace

std::vector<bool> kept_tokens(const SampleRow& row, double slack) {
  const std::vector<bool> likely = likely_tokens(row, slack);
  if (row.typical_p >= 1) return likely;
  if (likely == likely_tokens(row, -slack)) return typical_tokens(row, likely, slack);
  return slack > 0 ? likely : std::vector<bool>(likely.size());
}

std::vector<double> scores(const SampleRow& row) {
  std::vector<double> result(static_cast<size_t>(row.num_logits));
  for (int64_t i = 0; i < row.num_logits; ++i) {
    const auto token = static_cast<uint32_t>(i);
    const random::Words words = random::philox(
        static_cast<uint64_t>(row.seed), {{token / 4, static_cast<uint32_t>(row.kv_len), 0, 1}});
    const double u = random::uniform01(words.word[token % 4]);
    result[static_cast<size_t>(i)] = row.logits[i] / row.temperature - std::log(-std::log1p(-u));
  }
  return result;
}

}  // namespace reference
}  // namespace encore::conformance
