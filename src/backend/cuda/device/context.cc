#include "backend/cuda/device/context.h"

#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace encore::cuda {
namespace {

struct ThreadState {
  std::string_view op;
  bool recording = false;
  int device = -1;
  std::vector<std::function<void()>> releases;  // releases that wait until the recording is over
};
thread_local ThreadState thread_state;

std::mutex& capture_mutex() {
  static std::mutex mutex;
  return mutex;
}

ErrorKind kind_of(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return ErrorKind::kMemory;
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
      return ErrorKind::kCompile;
    default:
      return ErrorKind::kDevice;
  }
}

}  // namespace

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // clears the error, so that the next call does not report it again
  fail(kind_of(status), "{}{}: {} ({})", what, in_current_op(), cudaGetErrorString(status),
       cudaGetErrorName(status));
}

std::string_view current_op() {
  return thread_state.op;
}

std::string in_current_op() {
  if (thread_state.op.empty()) return "";
  return fmt::format(" while {} '{}'", thread_state.recording ? "recording" : "launching",
                     thread_state.op);
}

OpScope::OpScope(std::string_view label) : outer_(std::exchange(thread_state.op, label)) {}
OpScope::~OpScope() {
  thread_state.op = outer_;
}

CaptureLock::CaptureLock() : lock_(capture_mutex(), std::defer_lock) {
  forbid_while_recording("begin_recording()");
  lock_.lock();
  thread_state.recording = true;
}

CaptureLock::~CaptureLock() {
  thread_state.recording = false;
  lock_.unlock();
  for (const auto& release : std::exchange(thread_state.releases, {}))
    release();
}

bool is_recording() {
  return thread_state.recording;
}

void forbid_while_recording(std::string_view what) {
  if (!thread_state.recording) return;
  const std::string_view op = thread_state.op;
  fail(ErrorKind::kCompile,
       "{} while recording{}: a recording holds launches and copies only; do it when the kernel is "
       "bound, or take memory from the workspace",
       what, op.empty() ? "" : fmt::format(", in op '{}'", op));
}

void when_not_recording(std::function<void()> release) noexcept {
  try {
    if (thread_state.recording) {
      thread_state.releases.push_back(std::move(release));
    } else {
      release();
    }
  } catch (const std::exception&) {
    // The device has failed, or no memory is left to store the release. Leaking the resource is
    // better than ending the process.
  }
}

void use_device(int ordinal) {
  if (thread_state.device == ordinal) [[likely]]
    return;
  check(cudaSetDevice(ordinal), "cudaSetDevice");
  thread_state.device = ordinal;
}

void synchronize_device() {
  forbid_while_recording("the device is synchronised");
  const std::lock_guard lock(capture_mutex());
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

}  // namespace encore::cuda
