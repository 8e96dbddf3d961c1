// Logs the values that steps compute: for each value that a filter names, a line with its range,
// its mean, and how much of it is not finite. It helps to find where a NaN comes from, and waits
// for every step.
#pragma once

#include <string>
#include <vector>

#include "runtime/executor.h"

namespace encore::diagnose {

// Lifetime: copies what it needs of the program.
class ValueTrace {
 public:
  // Values whose name, or whose op's, contains one of `filter`; those that lie in states are left
  // out. Errors: kUsage for an entry that names nothing.
  ValueTrace(const passes::Program& program, const std::vector<std::string>& filter);

  // Logs the step that was launched last, its real rows alone.
  void operator()(runtime::Executor& executor) const;

 private:
  std::vector<ir::ValueId> values_;
};

}  // namespace encore::diagnose
