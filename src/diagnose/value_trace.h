// Logs the values that steps compute. A line for each value that a filter names shows the value's
// range, its mean, and how many elements are not finite. The log helps to find where a NaN comes
// from. It waits for every step.
#pragma once

#include <string>
#include <vector>

#include "runtime/executor.h"

namespace encore::diagnose {

// Logs the chosen values after each step. Lifetime: copies what it needs of the program.
class ValueTrace {
 public:
  // Chooses the values whose name, or whose op's name, contains an entry of `filter`. Only values
  // in intermediate memory count, not those in inputs or states. Errors: kUsage for an entry that
  // matches nothing.
  ValueTrace(const passes::Program& program, const std::vector<std::string>& filter);

  // Logs the values of the step launched last, without its padding rows.
  void operator()(runtime::Executor& executor) const;

 private:
  std::vector<ir::ValueId> values_;
};

}  // namespace encore::diagnose
