// Estimates the cost of a program's recordings from the program alone.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/kernel.h"
#include "passes/program.h"
#include "runtime/dispatch.h"

namespace encore::planning {

// These costs were measured with CUDA 13.0. A node is a launch of the program, which is one to
// three kernels. The times were measured on an H200 (driver 580) with 51 full steps and 1437 pieces
// of an 8B model, where the pieces shared 177 executables. The bytes were measured on an H100 with
// 35 decode steps (21.0 MB), with 67 and 75 whole mixed steps of an 8B model (54.5 and 58.7 MB),
// and with its pieces in 84 and in 92 executables (10.5 MB); they agree within 9 %. The driver sets
// memory aside 2 MB at a time.
inline constexpr double kUsPerRecording = 10;
inline constexpr double kCaptureUsPerNode = 5;
// The time to instantiate and upload an executable, for each of its nodes.
inline constexpr double kInstantiateUsPerNode = 9.5;
// The time of a recording that shares another recording's executable, for each of its nodes.
inline constexpr double kSharedUsPerNode = 1.3;
inline constexpr double kBytesPerExecutable = 36e3;
inline constexpr double kBytesPerNode = 2.7e3;             // per node of an executable
inline constexpr double kLeastBytesPerExecutable = 115e3;  // the minimum, even for a single kernel

// Counts the recordings that one bucket needs, and their executables.
struct BucketCost {
  int64_t size = 0;  // sequences or tokens of the bucket
  int recordings = 0;
  int nodes = 0;
  int executables = 0;  // recordings with a new executable; the others share one
  int executable_nodes = 0;
  int64_t bytes = 0;  // device memory of the executables

  [[nodiscard]] double milliseconds() const;
  // Adds the recordings of another bucket.
  BucketCost& operator+=(const BucketCost& other);
};

struct RecordingEstimate {
  std::vector<BucketCost> full;    // uniform steps of one token per sequence, by sequences
  std::vector<BucketCost> mixed;   // whole mixed steps, by tokens
  std::vector<BucketCost> tokens;  // pieces that count tokens, by tokens
  std::vector<BucketCost> tails;   // pieces that count sequences, by sequences
  [[nodiscard]] BucketCost total() const;
};

// Estimates the cost of the recordings that `coverage` asks for on a device with the kernels
// `kernels`. This machine need not have the device. A launch counts as one node, or as many nodes
// as its kernel says (Kernel::num_nodes).
// Errors: kUnsupported, naming an op without a kernel.
RecordingEstimate estimate_recordings(const passes::Program& program,
                                      const runtime::Coverage& coverage,
                                      const KernelTable& kernels);

}  // namespace encore::planning
