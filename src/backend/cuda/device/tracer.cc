#include "backend/cuda/device/tracer.h"

#include <atomic>

#include "backend/cuda/device/recording.h"

namespace encore::cuda {
namespace {

std::atomic<TraceListener*> listening = nullptr;
thread_local int open_scopes = 0;

}  // namespace

cudaGraphExec_t TraceListener::executable(const CudaRecording& replayed) {
  return replayed.executable();
}

void start_listening(TraceListener& listener) {
  TraceListener* none = nullptr;
  if (!listening.compare_exchange_strong(none, &listener)) {
    fail(ErrorKind::kUsage, "another tracer runs: stop it first");
  }
}

void stop_listening(TraceListener& listener) noexcept {
  TraceListener* expected = &listener;
  listening.compare_exchange_strong(expected, nullptr);
}

bool is_listening(const TraceListener& listener) {
  return listening.load(std::memory_order_acquire) == &listener;
}

TraceScope::TraceScope(int ordinal, const TracedCall& call)
    : call_(call), listener_(listening.load(std::memory_order_acquire)) {
  const bool is_inner = open_scopes++ > 0;
  if (listener_ != nullptr && (is_inner || listener_->ordinal() != ordinal)) listener_ = nullptr;
  if (listener_ != nullptr) listener_->enter(call_);
}

TraceScope::~TraceScope() {
  --open_scopes;
  if (listener_ != nullptr) listener_->leave(call_);
}

cudaGraphExec_t TraceScope::executable() const {
  return listener_ != nullptr ? listener_->executable(*call_.replayed)
                              : call_.replayed->executable();
}

}  // namespace encore::cuda
