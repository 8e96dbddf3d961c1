// A limit on the work of the library's calls. An ambiguous grammar makes one call take seconds, and
// nothing else stops it.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>

namespace xgrammar {

// Thrown by a call that is out of work. The object that it was called on is of no more use.
struct OutOfWork : std::runtime_error {
  OutOfWork() : std::runtime_error("the grammar takes too much work") {}
};

inline thread_local int64_t work_left = std::numeric_limits<int64_t>::max();

// Called for each state that the parser looks at, with the time that takes in units of 5 ns or so.
inline void SpendWork(int64_t work) {
  work_left -= work;
  if (work_left < 0) throw OutOfWork();
}

// While it lives, calls on this thread spend at most so much work together.
class WorkLimit {
 public:
  explicit WorkLimit(int64_t work) { work_left = work; }
  ~WorkLimit() { work_left = std::numeric_limits<int64_t>::max(); }
  WorkLimit(const WorkLimit&) = delete;
  WorkLimit& operator=(const WorkLimit&) = delete;
};

}  // namespace xgrammar
