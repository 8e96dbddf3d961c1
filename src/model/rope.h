// Computes rotary position embeddings: the angle by which each pair of a head's elements turns, and
// the rows of a checkpoint's tensor that make a pair.
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
  kYarn,      // like kLlama3, but beta_fast and beta_slow bound the ramp
  kDynamic,   // the base grows with sequences that are longer than the original context
  kLongrope,  // each frequency has its divisor, from one of two lists for short and long sequences
};

// Describes one rotation. The kernels turn the pairs (i, i + C/2) of a head by position *
// inv_freq[i]. If a checkpoint pairs elements differently, or turns only some of them, the rows of
// q and k are reordered when they are loaded.
struct Rope {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;  // kLinear, kLlama3, kYarn, kDynamic
  // kLlama3 divides frequencies whose wavelengths are above original/low, and keeps those below
  // original/high.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  // The length of the context before scaling. Set for all scalings but kLinear. Units: tokens.
  int64_t original_max_position_embeddings = 0;
  // kYarn keeps frequencies of more than beta_fast turns in the original context, and divides those
  // of less than beta_slow.
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;  // the ramp begins and ends at whole pairs
  // kLongrope divides the frequency of each turned pair by an entry of short_factor for sequences
  // up to the original length, and of long_factor for longer ones.
  std::vector<double> short_factor;
  std::vector<double> long_factor;
  double attention_factor = 1;  // kYarn, kLongrope: the rotation multiplies q and k by it
  int64_t rotary_dim = 0;    // number of elements of a head that turn, from the first; even; 0: all
  bool interleaved = false;  // the checkpoint pairs elements 2i and 2i + 1

  // Returns the number of elements that are rotated in a head of `head_dim` elements.
  [[nodiscard]] int64_t turned(int64_t head_dim) const {
    return rotary_dim == 0 ? head_dim : rotary_dim;
  }

  bool operator==(const Rope&) const = default;
};

// Returns the angle per position of each of a head's C/2 pairs, after scaling, with zeros for pairs
// that do not turn. It is computed in f32 in the same steps as the checkpoints' reference does it,
// so that angles agree far into a long context. For kDynamic and kLongrope, whose frequencies
// depend on a sequence's length, these are the frequencies for sequences of `max_seq_len` tokens,
// and shorter sequences use them too.
// Source: Su et al., "RoFormer", arXiv:2104.09864, section 3.2.2; Llama 3.1's scaling as published
// with its reference code; Peng et al., "YaRN", arXiv:2309.00071; Ding et al., "LongRoPE",
// arXiv:2402.13753.
std::vector<float> inv_freq(const Rope& rope, int64_t head_dim, int64_t max_seq_len);

// Returns the rows of `num_heads` heads, which begin at row `first` of a checkpoint's tensor, in
// the order in which the kernels pair them. Rows that turn are multiplied by `factor`. The result
// is one piece if that order is also the checkpoint's order.
std::vector<ir::WeightPiece> head_rows(const Rope& rope, const std::string& tensor, int64_t first,
                                       int64_t num_heads, int64_t head_dim, double factor = 1);

}  // namespace encore::model
