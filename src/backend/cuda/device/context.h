// Tracks what a thread is doing with CUDA: the op it launches, and whether it records.
#pragma once

#include <functional>
#include <mutex>
#include <string_view>

#include <cuda_runtime.h>

#include "base/error.h"

namespace encore::cuda {

// Throws the error of a failed CUDA call, as launch.h says.
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

// " while launching 'x'", or nothing.
std::string in_current_op();

// The right to record. One thread in the process holds it at a time, because CUDA calls that other
// captures forbid are hard to keep apart; it is taken and given back on the same thread.
class CaptureLock {
 public:
  CaptureLock();
  ~CaptureLock();
  CaptureLock(const CaptureLock&) = delete;
  CaptureLock& operator=(const CaptureLock&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
};

// Does this thread record?
bool is_recording();

// Errors: kCompile naming the op when this thread records. CUDA is not called, so the recording
// lives.
void forbid_while_recording(std::string_view what);

// Runs `release` now, or, as a recording thread may not free, once its recording is over. Never
// throws.
void when_not_recording(std::function<void()> release) noexcept;

// Makes `ordinal` this thread's device.
void use_device(int ordinal);

// Waits for all work on this thread's device. Not while another thread records: that would break
// its recording. Errors: kCompile while this thread records.
void synchronize_device();

}  // namespace encore::cuda
