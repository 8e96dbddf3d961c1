// Rotary position embedding: which angle each pair of a head's elements turns by, and where a
// checkpoint keeps the rows that make a pair.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/weight.h"

namespace encore::model {

enum class RopeScaling : uint8_t {
  kNone,
  kLinear,    // every frequency divided by `factor`
  kLlama3,    // low frequencies divided, high ones kept, a ramp between
  kYarn,      // likewise, with the ramp between turns that the original context has
  kDynamic,   // the base grows with sequences that are longer than the original context
  kLongrope,  // every frequency divided by a number of its own; two lists, by the longest sequence
};

// The kernels turn pairs (i, i + C/2) of a head, by position * inv_freq[i]. Checkpoints that pair
// elements otherwise, or turn only some of them, are loaded with the rows of q and k reordered.
struct Rope {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;  // kLinear, kLlama3, kYarn, kDynamic
  // kLlama3: wavelengths above original/low are divided, those below original/high are kept.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  // Tokens that the model saw before it was scaled. Set for all scalings but kLinear.
  int64_t original_max_position_embeddings = 0;
  // kYarn: frequencies of more than beta_fast turns in the original context are kept, those of less
  // than beta_slow are divided.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the ramp begins and ends at whole pairs
  // kLongrope: divisors of each turned pair, for sequences up to the original length and beyond.
  std::vector<double> short_factor;
  std::vector<double> long_factor;
  double attention_factor = 1;  // kYarn, kLongrope: q and k are multiplied by it as they turn
  int64_t rotary_dim = 0;       // elements of a head that turn, the first; even; 0: all
  bool interleaved = false;     // the checkpoint pairs elements 2i and 2i + 1

  // The number of a head's `head_dim` elements that are rotated.
  [[nodiscard]] int64_t turned(int64_t head_dim) const {
    return rotary_dim == 0 ? head_dim : rotary_dim;
  }

  bool operator==(const Rope&) const = default;
};

// The angle per position of each of a head's C/2 pairs, scaling applied, and zeros for pairs that
// do not turn; computed in f32 steps as the checkpoints' reference does, so that angles agree far
// into a long context. kDynamic and kLongrope take the table for sequences of `max_seq_len` tokens
// and keep it for shorter ones.
// Source: Su et al., "RoFormer", arXiv:2104.09864, section 3.2.2; Llama 3.1's scaling as published
// with its reference code; Peng et al., "YaRN", arXiv:2309.00071; Ding et al., "LongRoPE",
// arXiv:2402.13753.
std::vector<float> inv_freq(const Rope& rope, int64_t head_dim, int64_t max_seq_len);

// Returns the rows of `num_heads` heads from row `first` of a checkpoint's tensor on, in the order
// in which the kernels pair them. Rows that turn are multiplied by `factor`. The result is one
// piece where the order is the checkpoint's.
std::vector<ir::WeightPiece> head_rows(const Rope& rope, const std::string& tensor, int64_t first,
                                       int64_t num_heads, int64_t head_dim, double factor = 1);

}  // namespace encore::model
