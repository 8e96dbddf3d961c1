// The parameters and the results of a litmus test's launch, for kernels and the host.
//
// A group is the few threads that hand over among themselves: one per role, in as many warps. Its
// words and flags are cells of 32 bits in lines of 128 bytes, scattered over memory so that those
// of a group lie in unrelated slices of L2. Whole launches of independent groups run at once.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <cuda_runtime.h>

#include "backend/cuda/memory_order.cuh"

namespace encore::cuda::litmus {

// The behaviour of the other warps during a test.
enum class Noise : uint8_t {
  kNone,
  kNeighbours,  // store beside the words, in the same lines
  kHot,         // add to eight lines, which makes their slices of L2 slow
  kStream,      // load and store all over memory
};
inline constexpr int kNumNoises = 4;

inline constexpr uint32_t kCellsPerLine = 32;
inline constexpr uint32_t kLinesPerGroup = 6;  // two for flags, four for words
inline constexpr int kNumWords = 4;            // of a message
inline constexpr int kMaxRoles = 4;
inline constexpr int kNumPlayingWarps = 16;  // of a block under stress
inline constexpr int kNumNoisyWarps = 8;

struct Field {
  uint32_t* cells;     // zeros; twice num_lines lines, the second half for noise
  uint32_t num_lines;  // a power of 2, at least players * kLinesPerGroup * slots
  uint32_t seed;       // where lines lie
  uint32_t players;    // groups
  uint32_t slots;      // the words of round r lie in slot r % slots
  uint32_t rounds;     // per group
  uint32_t warps;      // of a block that play; further ones make noise
  uint32_t shift;      // device scope: how far apart the blocks of a group are
  uint32_t gpu_role;   // system scope: the host plays the other one
  bool jitter;         // writers pause for random times
  Noise noise;
  bool lingers;  // who gets a delivery pauses before reading every other one
};

// Sums over all threads of a launch.
struct Tally {
  unsigned long long rounds;
  unsigned long long stale;
  unsigned long long unseen;
  unsigned long long lost;    // threads that gave up waiting: the test is broken, not the chip
  unsigned long long ns;      // of the first group
  unsigned long long cycles;  // of the first group
};

// Line `k` of a group in a slot: a permutation of all lines.
__host__ __device__ inline uint32_t* line(const Field& field, uint32_t group, uint32_t k,
                                          uint32_t slot) {
  const uint32_t number = (slot * kLinesPerGroup + k) * field.players + group;
  const uint32_t place = (number * 0x9e3779b1U + field.seed) & (field.num_lines - 1);
  return field.cells + static_cast<size_t>(place) * kCellsPerLine;
}

// Lines of a group.
inline constexpr uint32_t kFlagLine = 0;
inline constexpr uint32_t kReadyLine = 1;
inline constexpr uint32_t kFirstWordLine = 2;

// Word `k` where it lies in global or host memory: two share a line, in different sectors.
__host__ __device__ inline uint32_t* word(const Field& field, uint32_t group, uint32_t k,
                                          uint32_t slot) {
  return line(field, group, kFirstWordLine + k / 2, slot) + k % 2 * (kCellsPerLine / 2);
}

// The content of word `k` of round `round`; never 0.
__host__ __device__ inline uint32_t message(uint32_t round, uint32_t k) {
  return round * 8 + k;
}

// Describes how a form is run.
struct Row {
  std::string_view name;  // as in litmus::forms()
  void (*kernel)(Field, Tally*);
  int roles;      // threads of a group, of different warps, blocks or machines
  int flags;      // of a message, each with a reader of its own
  int per_round;  // handoffs or critical sections in what the GPU times as a round
  bool counts;    // word 0 of a group ends as the number of its rounds
};

// The rows of each scope, in their own files so that they compile side by side.
std::span<const Row> block_rows();
std::span<const Row> cluster_rows();
std::span<const Row> device_rows();
std::span<const Row> system_rows();

}  // namespace encore::cuda::litmus
