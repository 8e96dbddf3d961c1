// A thread that does what another one does, and tells people of, keeps quiet.
#pragma once

namespace encore::log {

// While it lives, only errors of its thread are written, and no progress. Threads: begins and ends on
// the same one.
class QuietThread {
 public:
  QuietThread();
  ~QuietThread();
  QuietThread(const QuietThread&) = delete;
  QuietThread& operator=(const QuietThread&) = delete;
};

}  // namespace encore::log
