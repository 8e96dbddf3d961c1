// What the recordings of a program will cost, from the program alone.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/program.h"
#include "runtime/ladder.h"

namespace encore::runtime {

// Measured on an H200 with CUDA 13.0. Both grow with the nodes: a recording of 5 nodes takes about
// 13 kB, one of 300 nodes 0.82 MB.
inline constexpr double kCaptureUsPerNode = 0.5;
inline constexpr double kInstantiateUsPerNode = 1.5;
inline constexpr double kUploadUsPerNode = 1.1;
inline constexpr double kRecordingBytesPerNode = 0.82e6 / 300;

// The recordings that one bucket takes.
struct BucketCost {
  int64_t size = 0;  // sequences or tokens
  int recordings = 0;
  int nodes = 0;

  [[nodiscard]] double milliseconds() const;
  [[nodiscard]] int64_t bytes() const;
};

struct RecordingEstimate {
  std::vector<BucketCost> full;    // uniform steps of one token a sequence, by sequences
  std::vector<BucketCost> tokens;  // pieces that count tokens, by tokens
  std::vector<BucketCost> tails;   // pieces that count sequences, by sequences
  [[nodiscard]] BucketCost total() const;
};

// The recordings of --graphs auto: full ones for uniform steps, if the program allows, and pieces
// for mixed steps. A node is a launch; kernels that launch more than once are not told apart.
RecordingEstimate estimate_recordings(const passes::Program& program, const Ladder& sequences,
                                      const Ladder& tokens);

}  // namespace encore::runtime
