// Computes how long a step takes from its shape; this stands for the device in a simulation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "planning/step_log.h"

namespace encore::traffic {

// The shape of a step: everything that its time depends on.
struct StepShape {
  bool is_decode = false;  // every sequence of the step generates
  int64_t tokens = 0;      // with padding
  int64_t sequences = 0;
  int64_t kv_tokens = 0;  // tokens in the KV memory of all sequences, after the step
  double experts = 0;     // expected number of distinct experts of a layer
};

// The number of a layer's experts, and how many of them each token chooses. Both are 0 for a model
// without experts.
struct ExpertChoice {
  int64_t num_experts = 0;
  int64_t per_token = 0;

  // Returns how many distinct experts this many tokens are expected to choose, where each token
  // chooses at random. Padding chooses none.
  [[nodiscard]] double distinct(int64_t tokens) const;
  friend bool operator==(const ExpertChoice&, const ExpertChoice&) = default;
};

// The cost of a step as a sum of terms, none of which is negative: a constant; tokens, whose price
// rises at some sizes, since memory limits a device at first and arithmetic later; sequences; KV
// tokens; distinct experts, whose weights are read once. Units: microseconds.
struct CostTerms {
  double constant_us = 0;
  std::vector<std::pair<int64_t, double>> us_per_token_above;  // a size, the price added above it
  double us_per_sequence = 0;
  double us_per_kv_token = 0;
  double us_per_expert = 0;

  [[nodiscard]] double operator()(const StepShape& step) const;
  friend bool operator==(const CostTerms&, const CostTerms&) = default;
};

// The cost of a step of either kind: decode, where every sequence generates, or mixed. Attention of
// a prompt to its own tokens counts under tokens and KV tokens: with chunks of one size it is about
// linear.
struct StepCost {
  CostTerms decode;
  CostTerms mixed;
  double host_us = 0;  // the host's time to plan and launch a step
  ExpertChoice experts;

  // Returns the device's time for a step. Units: microseconds.
  [[nodiscard]] double operator()(const StepShape& step) const;
  friend bool operator==(const StepCost&, const StepCost&) = default;
};

// Tells how well a cost explains the times of the steps from which it was fitted.
struct FitQuality {
  int64_t num_steps = 0;
  double median_error = 0;  // of a step's time, relative to that time
  double total_error = 0;   // of the sum of all times: 0.01 means one percent too long
};

// Fits the terms by least squares of relative errors over the steps that have tokens, sequences,
// kv_tokens and gpu_us. Where a log has too few steps of a kind, both kinds share their terms.
// `where` names the log in messages; `experts` describes the model that ran the steps. Errors:
// kUsage when there are too few steps.
std::pair<StepCost, FitQuality> fit_step_cost(std::span<const planning::LoggedStep> steps,
                                              const std::string& where,
                                              const ExpertChoice& experts = {});

// Writes a cost as JSON:
//  {"decode": {"us": 310.0, "us_per_token_above": {"0": 1.5, "64": 2.5}, "us_per_sequence": 0.5,
//   "us_per_kv_token": 0.004, "us_per_expert": 0}, "mixed": {...}, "host_us": 12.0,
//   "experts": {"num_experts": 128, "per_token": 8}}
json::object cost_json(const StepCost& cost);
// Reads a cost from the JSON that cost_json() writes. Terms that a file leaves out are 0. Errors:
// kUsage, naming the file and the key.
StepCost read_step_cost(const std::filesystem::path& path);
StepCost parse_step_cost(std::string_view text, const std::string& where);

// The time that the ranks of a model take for one all-reduce and the norm behind it: a constant,
// and a price for each byte that a rank contributes.
struct ExchangeCost {
  int64_t ranks = 1;
  double constant_us = 0;
  double us_per_byte = 0;
};
// Reads the results of `encore bench collectives --json` and fits a line to them, by least squares
// of relative errors. Errors: kUsage, naming the file and what it lacks.
ExchangeCost read_exchange_cost(const std::filesystem::path& path);
ExchangeCost parse_exchange_cost(std::string_view text, const std::string& where);

// The all-reduces over all ranks that a step has: their number and their size.
struct StepExchanges {
  int64_t count = 0;
  int64_t bytes_per_token = 0;  // bytes of each sum
};
// Turns the cost of a step on one device into the cost of the step on several ranks: each rank has
// an equal share of what the step costs one device, and all ranks also take part in the all-reduces
// `sums`.
StepCost shared_cost(StepCost cost, const ExchangeCost& exchange, const StepExchanges& sums);

}  // namespace encore::traffic
