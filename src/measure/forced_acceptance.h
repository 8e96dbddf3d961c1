// Drafts that are right as often as a benchmark wants, whatever they are: with random weights, or with text
// that is like no real one, a draft model is right too seldom, or always.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "passes/pipeline.h"
#include "runtime/loaded_program.h"

namespace encore::measure {

// Has `advance` draw how many drafts of a row are right, behind all the work of checking them. Nothing is
// right until force_acceptance() says how often. The pass is given as CompileOptions::passes.
//     advance(%next, lengths=%lengths, ...)
//  -> advance(%next, lengths=%lengths, acceptance=%draft_acceptance, ...)
passes::Pass forced_acceptance_pass();

// From the next step on, rates[j] of the rows have their first j + 1 drafts right; drafts behind the last
// rate are wrong. These are the rates that vLLM calls synthetic_acceptance_rates.
// Errors: kUsage where a rate is not from 0 to 1 or is above the one before it, or where the program was
// compiled without the pass. Threads: that of the program's stream, between steps.
void force_acceptance(std::span<const double> rates, runtime::LoadedProgram& loaded);

// The rates where each draft is right with the same probability if those in front of it are.
std::vector<double> rates_of_probability(double probability, int64_t num_drafts);
// The rates by which a step has `length` tokens on average, 1 to 1 + num_drafts, with no two steps more than
// one apart: vLLM's for synthetic_acceptance_length.
std::vector<double> rates_of_length(double length, int64_t num_drafts);
// The tokens of a row of a step, on average: E.
double expected_tokens(std::span<const double> rates);

}  // namespace encore::measure
