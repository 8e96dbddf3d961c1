// Checks that a kernel writes the outputs that its op's shape function promises. The conformance
// suite checks the kernels of each device with it.
#pragma once

#include <functional>
#include <vector>

#include "backend/device.h"

namespace encore {

// One launch to check. Lifetime: refers to the op and the kernel.
struct KernelCheck {
  const ir::Op* op = nullptr;
  const Kernel* kernel = nullptr;  // null: the kernels that the device launches for the op
  ir::Types input_types;
  Views inputs;  // in the device's memory; mutated inputs are copied first
  ir::Attrs attrs;
  StepKey step;
  StepLengths lengths;
  std::vector<ir::InPlace> in_place;  // inputs to overwrite, besides those that the op mutates
  int64_t row_gap = 0;                // Units: elements between rows of outputs
  // Returns whether the kernel may leave a row of an output unwritten. Absent: it may leave none.
  std::function<bool(std::string_view output, int64_t row)> may_skip;
};

// The content of an output after the launch.
struct CheckedOutput {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;  // dense, on the host
  std::vector<bool> untouched;   // by row, whether the kernel left it unwritten
};

// Runs the launch twice and returns its outputs. Before the two runs, the memory is filled with
// different poison bytes; guards lie around the outputs, between their rows and after the scratch
// memory. Errors: kCompile naming op, kernel and output when an element of the promised shape was
// not written, something outside it was, the two runs differ, or counters were not left zero.
std::vector<CheckedOutput> check_kernel(Device& device, const KernelCheck& check);

}  // namespace encore
