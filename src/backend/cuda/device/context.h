// Tracks what a thread is doing with CUDA: the op it launches, and whether it records.
#pragma once

#include <functional>
#include <mutex>
#include <string_view>

#include <cuda_runtime.h>

#include "base/error.h"

namespace encore::cuda {

// Throws the error of a failed CUDA call, as described in launch.h.
void check(cudaError_t status, std::string_view what);
std::string_view current_op();

// Names the op that this thread launches, for the messages of errors.
// Lifetime: `label` must outlive the scope.
class OpScope {
 public:
  explicit OpScope(std::string_view label);
  ~OpScope();
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  std::string_view outer_;
};

// Returns " while launching 'x'" with the current op's label, or "" when no op is being launched.
std::string in_current_op();

// The right to record. Only one thread of the process holds it at a time, because a capture forbids
// other threads some CUDA calls, which are hard to keep away from it. The thread that takes the
// lock must also release it.
class CaptureLock {
 public:
  CaptureLock();
  ~CaptureLock();
  CaptureLock(const CaptureLock&) = delete;
  CaptureLock& operator=(const CaptureLock&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
};

// Returns whether this thread is recording.
bool is_recording();

// Throws if this thread is recording. It does so before CUDA is called, so that the recording stays
// valid. Errors: kCompile naming `what` and the op.
void forbid_while_recording(std::string_view what);

// Runs `release` now or, if this thread is recording and must not free anything, once its recording
// is over. Never throws.
void when_not_recording(std::function<void()> release) noexcept;

// Makes `ordinal` this thread's device.
void use_device(int ordinal);

// Waits for all work on this thread's device. It must not be called while another thread records,
// whose recording it would break. Errors: kCompile while this thread records.
void synchronize_device();

}  // namespace encore::cuda
