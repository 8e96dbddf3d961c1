// Estimates the cost of a program's recordings from the program alone.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/kernel.h"
#include "passes/program.h"
#include "runtime/dispatch.h"

namespace encore::planning {

// Measured with CUDA 13.0, a node being a launch of the program, which is one to three kernels. Times, on an
// H200 (driver 580): 51 full steps and 1437 pieces of an 8B model, the pieces in 177 executables.
// Memory, on an H100: 35 decode steps (21.0 MB), 67 and 75 whole mixed steps of an 8B model (54.5 and 58.7 MB), and
// its pieces in 84 and in 92 executables (10.5 MB), within 9 %. The driver sets memory aside 2 MB at a time.
inline constexpr double kUsPerRecording = 10;
inline constexpr double kCaptureUsPerNode = 5;
inline constexpr double kInstantiateUsPerNode = 9.5;  // of an executable; and upload
inline constexpr double kSharedUsPerNode = 1.3;  // of a recording that shares another's executable
inline constexpr double kBytesPerExecutable = 36e3;
inline constexpr double kBytesPerNode = 2.7e3;             // of an executable
inline constexpr double kLeastBytesPerExecutable = 115e3;  // be it of a single kernel

// The recordings that one bucket takes.
struct BucketCost {
  int64_t size = 0;  // sequences or tokens
  int recordings = 0;
  int nodes = 0;
  int executables = 0;  // the other recordings share these
  int executable_nodes = 0;
  int64_t bytes = 0;  // of memory

  [[nodiscard]] double milliseconds() const;
  // Adds the recordings of another bucket.
  BucketCost& operator+=(const BucketCost& other);
};

struct RecordingEstimate {
  std::vector<BucketCost> full;    // uniform steps of one token a sequence, by sequences
  std::vector<BucketCost> mixed;   // whole mixed steps, by tokens
  std::vector<BucketCost> tokens;  // pieces that count tokens, by tokens
  std::vector<BucketCost> tails;   // pieces that count sequences, by sequences
  [[nodiscard]] BucketCost total() const;
};

// Estimates the recordings that `coverage` asks for on a device with these kernels; the device need
// not be in this machine. A node is a launch, or as many as the kernel says (Kernel::num_nodes).
// Errors: kUnsupported naming an op without a kernel.
RecordingEstimate estimate_recordings(const passes::Program& program,
                                      const runtime::Coverage& coverage,
                                      const KernelTable& kernels);

}  // namespace encore::planning
