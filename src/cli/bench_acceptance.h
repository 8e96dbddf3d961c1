// How often drafts are right in a benchmark, where that is not left to the models.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace encore::cli {

// At most one of the two is given.
struct AcceptanceOptions {
  std::vector<std::string> rates;
  std::string length;

  [[nodiscard]] bool are_given() const { return !rates.empty() || !length.empty(); }
  // The rates of steps with so many drafts, as measure::force_acceptance() takes them.
  // Errors: kUsage where they are of another number of drafts, or are no such numbers.
  [[nodiscard]] std::vector<double> rates_for(int64_t num_drafts) const;
};

// Adds --synthetic-acceptance-rates and --synthetic-acceptance-length.
void add_acceptance_options(Command& verb, AcceptanceOptions& options);

// A number from 0 to `most`. `flag` names it in messages. Errors: kUsage.
double parse_share(const std::string& text, const std::string& flag, double most = 1);

}  // namespace encore::cli
