// Does a kernel write what its op's shape function promises? The conformance suite asks it of what
// each device launches for an op.
#pragma once

#include <functional>
#include <vector>

#include "backend/device.h"

namespace encore {

// One launch to try. Lifetime: refers to the op and the kernel.
struct KernelCheck {
  const ir::Op* op = nullptr;
  const Kernel* kernel = nullptr;  // null: what the device launches for it
  ir::Types input_types;
  Views inputs;  // in the device's memory; mutated inputs are copied first
  ir::Attrs attrs;
  StepKey step;
  StepLengths lengths;
  std::vector<ir::InPlace> in_place;  // reuse to try, besides what the op mutates
  int64_t row_gap = 0;                // Units: elements between rows of outputs
  // Rows of an output that the kernel may leave as they are; absent: none.
  std::function<bool(std::string_view output, int64_t row)> may_skip;
};

// An output as the kernel left it.
struct CheckedOutput {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;  // dense, on the host
  std::vector<bool> untouched;   // by row
};

// Runs the launch twice, over two different poisons, with guards around outputs, between their rows
// and behind the scratch, and returns the outputs. Errors: kCompile naming op, kernel and output
// when an element of the promised shape was not written, something outside it was, the two runs
// differ, or counters were not left zero.
std::vector<CheckedOutput> check_kernel(Device& device, const KernelCheck& check);

}  // namespace encore
