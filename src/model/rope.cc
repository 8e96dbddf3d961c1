#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace encore::model {
namespace {

// Returns RoPE's frequencies before scaling: 1 / theta^(2i / turned) for each pair i of the
// `turned` elements of a head that turn.
std::vector<float> plain(double theta, int64_t turned) {
  std::vector<float> frequencies(static_cast<size_t>(turned / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(turned);
    frequencies[i] = 1.0F / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
  }
  return frequencies;
}

void scale_llama3(const Rope& rope, std::vector<float>& frequencies) {
  const auto factor = static_cast<float>(rope.factor);
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const auto low_wavelength = static_cast<float>(original / rope.low_freq_factor);
  const auto high_wavelength = static_cast<float>(original / rope.high_freq_factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto ramp = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  for (float& frequency : frequencies) {
    const float wavelength = 1.0F / frequency * static_cast<float>(2 * std::numbers::pi);
    if (wavelength < high_wavelength) continue;
    if (wavelength > low_wavelength) {
      frequency /= factor;
      continue;
    }
    const float smooth = (1.0F / wavelength * static_cast<float>(original) - low) / ramp;
    frequency = (1.0F - smooth) * frequency / factor + smooth * frequency;
  }
}

void scale_yarn(const Rope& rope, int64_t turned, std::vector<float>& frequencies) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const auto size = static_cast<double>(turned);
  // Returns the index i, a fraction, of the pair that would make `turns` turns within the original
  // context.
  const auto pair_of = [&](double turns) {
    return size * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
  };
  double low = pair_of(rope.beta_fast);
  double high = pair_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const auto ramp = static_cast<float>((static_cast<double>(i) - low) / (high - low));
    const float divided = std::clamp(ramp, 0.0F, 1.0F);
    frequencies[i] = frequencies[i] / static_cast<float>(rope.factor) * divided +
                     frequencies[i] * (1.0F - divided);
  }
}

double dynamic_theta(const Rope& rope, int64_t turned, int64_t max_seq_len) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const double length = std::max(static_cast<double>(max_seq_len), original);
  const auto size = static_cast<double>(turned);
  return rope.theta *
         std::pow(rope.factor * length / original - (rope.factor - 1), size / (size - 2));
}

}  // namespace

std::vector<float> inv_freq(const Rope& rope, int64_t head_dim, int64_t max_seq_len) {
  const int64_t turned = rope.turned(head_dim);
  const bool is_dynamic = rope.scaling == RopeScaling::kDynamic;
  std::vector<float> frequencies =
      plain(is_dynamic ? dynamic_theta(rope, turned, max_seq_len) : rope.theta, turned);
  if (rope.scaling == RopeScaling::kLinear) {
    for (float& frequency : frequencies)
      frequency /= static_cast<float>(rope.factor);
  } else if (rope.scaling == RopeScaling::kLlama3) {
    scale_llama3(rope, frequencies);
  } else if (rope.scaling == RopeScaling::kYarn) {
    scale_yarn(rope, turned, frequencies);
  } else if (rope.scaling == RopeScaling::kLongrope) {
    const bool is_long = max_seq_len > rope.original_max_position_embeddings;
    const std::vector<double>& factors = is_long ? rope.long_factor : rope.short_factor;
    for (size_t i = 0; i < frequencies.size(); ++i)
      frequencies[i] = 1.0F / (static_cast<float>(factors.at(i)) * (1.0F / frequencies[i]));
  }
  frequencies.resize(static_cast<size_t>(head_dim / 2));
  return frequencies;
}

std::vector<ir::WeightPiece> head_rows(const Rope& rope, const std::string& tensor, int64_t first,
                                       int64_t num_heads, int64_t head_dim, double factor) {
  const int64_t turned = rope.turned(head_dim);
  if (turned == head_dim && !rope.interleaved)
    return {{tensor, ir::WeightPiece::Range{first, first + num_heads * head_dim}, factor}};
  std::vector<ir::WeightPiece> pieces;
  // For each head, this adds the rows of the first elements of all pairs, then those of the second
  // elements. In each half, rows that turn come before rows that do not.
  for (int64_t head = first; head < first + num_heads * head_dim; head += head_dim) {
    for (int64_t half = 0; half < 2; ++half) {
      const auto add = [&](int64_t begin, int64_t count, double scale) {
        if (count > 0)
          pieces.push_back(
              {tensor, ir::WeightPiece::Range{head + begin, head + begin + count}, scale});
      };
      if (rope.interleaved) {
        for (int64_t i = half; i < turned; i += 2)
          add(i, 1, factor);
      } else {
        add(half * turned / 2, turned / 2, factor);
      }
      const int64_t rest = (head_dim - turned) / 2;
      add(turned + half * rest, rest, 1);
    }
  }
  return pieces;
}

}  // namespace encore::model
