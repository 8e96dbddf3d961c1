// Makes drafts right as often as a benchmark wants, whatever tokens they are. With random weights
// or artificial text, a draft model would be right too seldom or always.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "passes/pipeline.h"
#include "runtime/loaded_program.h"

namespace encore::measure {

// Makes `advance` draw at random how many drafts of a row are right, after all the work of checking
// them is done. No draft is right until force_acceptance() sets the rates. Give the pass as
// CompileOptions::passes.
//     advance(%next, lengths=%lengths, ...)
//  -> advance(%next, lengths=%lengths, acceptance=%draft_acceptance, ...)
passes::Pass forced_acceptance_pass();

// Sets the acceptance rates from the next step on: in a share rates[j] of the rows, the first j + 1
// drafts are right. Drafts beyond the last rate are wrong. vLLM calls these rates
// synthetic_acceptance_rates.
// Errors: kUsage where a rate is not from 0 to 1 or is above the one before it, or where the
// program was compiled without the pass. Threads: the thread of the program's stream, between
// steps.
void force_acceptance(std::span<const double> rates, runtime::LoadedProgram& loaded);

// Returns the rates for drafts that are each right with the same probability, given that all drafts
// in front of them are right.
std::vector<double> rates_of_probability(double probability, int64_t num_drafts);
// Returns the rates with which a row gets `length` tokens per step on average, from 1 to 1 +
// num_drafts. The tokens of two steps differ by at most one. vLLM computes the same rates for
// synthetic_acceptance_length.
std::vector<double> rates_of_length(double length, int64_t num_drafts);
// Returns E, the expected number of tokens that a row gets per step.
double expected_tokens(std::span<const double> rates);

}  // namespace encore::measure
