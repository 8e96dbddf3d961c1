// Keeps the log of a thread quiet, since another thread does the same work and reports it.
#pragma once

namespace encore::log {

// While the object lives, the log has only errors of its thread, and no progress. Threads: the
// object begins and ends on the same thread.
class QuietThread {
 public:
  QuietThread();
  ~QuietThread();
  QuietThread(const QuietThread&) = delete;
  QuietThread& operator=(const QuietThread&) = delete;
};

}  // namespace encore::log
