#include "cli/bench_acceptance.h"

#include <cstdlib>

#include "base/error.h"
#include "measure/forced_acceptance.h"

namespace encore::cli {

double parse_share(const std::string& text, const std::string& flag, double most) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(number >= 0 && number <= most))
    fail(ErrorKind::kUsage, "{} {}: give numbers from 0 to {}", flag, text, most);
  return number;
}

std::vector<double> AcceptanceOptions::rates_for(int64_t num_drafts) const {
  if (!length.empty()) {
    const double tokens =
        parse_share(length, "--synthetic-acceptance-length", 1 + static_cast<double>(num_drafts));
    if (tokens < 1) {
      fail(ErrorKind::kUsage,
           "--synthetic-acceptance-length {}: a step has one token at least, besides drafts that "
           "are "
           "right; give a number from 1 to {}",
           length, 1 + num_drafts);
    }
    return measure::rates_of_length(tokens, num_drafts);
  }
  if (std::ssize(rates) != num_drafts) {
    fail(ErrorKind::kUsage,
         "--synthetic-acceptance-rates has {} numbers, and a step guesses {} tokens: give one for "
         "each, and a single --speculative-tokens",
         rates.size(), num_drafts);
  }
  std::vector<double> numbers;
  for (const std::string& rate : rates)
    numbers.push_back(parse_share(rate, "--synthetic-acceptance-rates"));
  return numbers;
}

void add_acceptance_options(Command& verb, AcceptanceOptions& options) {
  Option* const rates =
      verb.add_option("--synthetic-acceptance-rates", options.rates,
                      "How often drafts are right, whatever they are: of each draft, the share of "
                      "rows in which it and all in front of it are. Between commas, none above the "
                      "one before it")
          ->delimiter(',')
          ->type_name("R,R,...");
  verb.add_option("--synthetic-acceptance-length", options.length,
                  "The same by the mean tokens of a row of a step, the one that is no draft "
                  "included: 1 to 1 + the drafts")
      ->type_name("TOKENS")
      ->excludes(rates);
}

}  // namespace encore::cli
