// Declares options that force how often drafts are accepted in a benchmark.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace encore::cli {

// Holds how often the user wants drafts to be right: as a rate for each draft (`rates`), or as the
// mean number of tokens that a sequence gets per step (`length`). At most one of the two is given.
struct AcceptanceOptions {
  std::vector<std::string> rates;
  std::string length;

  [[nodiscard]] bool are_given() const { return !rates.empty() || !length.empty(); }
  // Returns the acceptance rates of steps with `num_drafts` drafts, as measure::force_acceptance()
  // takes them.
  // Errors: kUsage where the number of given rates is not `num_drafts`, or where a rate is
  // malformed.
  [[nodiscard]] std::vector<double> rates_for(int64_t num_drafts) const;
};

// Adds --synthetic-acceptance-rates and --synthetic-acceptance-length.
void add_acceptance_options(Command& verb, AcceptanceOptions& options);

// Parses a number from 0 to `most`. `flag` names it in messages. Errors: kUsage.
double parse_share(const std::string& text, const std::string& flag, double most = 1);

}  // namespace encore::cli
