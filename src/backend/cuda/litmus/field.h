// The parameters and the results of one launch of a litmus test, for kernels and the host.
//
// A group is the few threads that hand messages to each other: one thread per role, each in a warp
// of its own. Its words and flags are cells of 32 bits in lines of 128 bytes. The lines are
// scattered over memory so that a group's lines lie in unrelated slices of L2. A launch runs many
// independent groups at once.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <cuda_runtime.h>

#include "backend/cuda/memory_order.cuh"

namespace encore::cuda::litmus {

// The behaviour of the warps that do not play.
enum class Noise : uint8_t {
  kNone,
  kNeighbours,  // store beside the words, in the same lines
  kHot,         // add to eight lines, which makes their slices of L2 slow
  kStream,      // load and store all over memory
};
inline constexpr int kNumNoises = 4;

inline constexpr uint32_t kCellsPerLine = 32;
inline constexpr uint32_t kLinesPerGroup = 6;  // lines of a group: two for flags, four for words
inline constexpr int kNumWords = 4;            // words of a message
inline constexpr int kMaxRoles = 4;
inline constexpr int kNumPlayingWarps = 16;  // playing warps of a block under stress
inline constexpr int kNumNoisyWarps = 8;

struct Field {
  uint32_t* cells;  // zeros at first; twice num_lines lines, of which the second half is for noise
  uint32_t num_lines;  // a power of 2, at least players * kLinesPerGroup * slots
  uint32_t seed;       // decides where lines lie
  uint32_t players;    // number of groups
  uint32_t slots;      // sets of lines of a group; round r uses set r % slots
  uint32_t rounds;     // rounds of each group
  uint32_t warps;      // warps of a block that play; its other warps make noise
  uint32_t shift;      // device scope: how far apart the blocks of a group are
  uint32_t gpu_role;   // system scope: the role that the GPU plays; the host plays the other
  bool jitter;         // writers pause for random times
  Noise noise;
  bool lingers;  // the reader of deliveries pauses before it reads every other one
};

// Sums over all threads of a launch.
struct Tally {
  unsigned long long rounds;
  unsigned long long stale;
  unsigned long long unseen;
  unsigned long long lost;    // threads that gave up waiting: then the test is broken, not the chip
  unsigned long long ns;      // time of the first group
  unsigned long long cycles;  // cycles of the first group
};

// Returns the address of line `k` in set `slot` of a group's lines. A group has `Field::slots`
// sets, which rounds use by turns. The lines of all groups are permuted over memory.
__host__ __device__ inline uint32_t* line(const Field& field, uint32_t group, uint32_t k,
                                          uint32_t slot) {
  const uint32_t number = (slot * kLinesPerGroup + k) * field.players + group;
  const uint32_t place = (number * 0x9e3779b1U + field.seed) & (field.num_lines - 1);
  return field.cells + static_cast<size_t>(place) * kCellsPerLine;
}

// The numbers of the lines of a group, for the parameter `k` of line().
inline constexpr uint32_t kFlagLine = 0;
inline constexpr uint32_t kReadyLine = 1;
inline constexpr uint32_t kFirstWordLine = 2;

// Returns the address of word `k` where it lies in global or host memory. Two words share a line,
// in different sectors.
__host__ __device__ inline uint32_t* word(const Field& field, uint32_t group, uint32_t k,
                                          uint32_t slot) {
  return line(field, group, kFirstWordLine + k / 2, slot) + k % 2 * (kCellsPerLine / 2);
}

// Returns the content of word `k` in round `round`, which is never 0.
__host__ __device__ inline uint32_t message(uint32_t round, uint32_t k) {
  return round * 8 + k;
}

// Describes how one form of a test is run.
struct Row {
  std::string_view name;  // as in litmus::forms()
  void (*kernel)(Field, Tally*);
  int roles;      // threads of a group, which are in different warps, blocks or machines
  int flags;      // flags of a message; each has its own reader
  int per_round;  // handoffs or critical sections per round
  bool counts;    // word 0 of a group ends as the number of the group's rounds
};

// Return the rows of each scope. Each function has its own source file, so that the files compile
// in parallel.
std::span<const Row> block_rows();
std::span<const Row> cluster_rows();
std::span<const Row> device_rows();
std::span<const Row> system_rows();

}  // namespace encore::cuda::litmus
