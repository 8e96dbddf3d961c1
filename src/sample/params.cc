#include "sample/params.h"

#include <cmath>

#include <fmt/format.h>

namespace encore::sample {
namespace {

constexpr Parameter kParameters[] = {
    {"temperature", &SamplingParams::temperature,
     "Divides the logits; 0 takes the most likely token", 0},
    {"top_k", &SamplingParams::top_k, "Sample among the k most likely tokens; 0 or -1: all", -1},
    {"top_p", &SamplingParams::top_p,
     "Sample among the most likely of those tokens that reach p of their probability; 0: the "
     "likeliest alone",
     0, 1},
    {"min_p", &SamplingParams::min_p,
     "Sample among tokens at least p times as likely as the most likely one", 0, 1, false, true},
    {"typical_p", &SamplingParams::typical_p,
     "Sample among tokens of a log probability near the expected one, as many as reach p of them",
     0, 1, true},
    {"repetition_penalty", &SamplingParams::repetition_penalty,
     "Divides the logits of tokens that the prompt or the text has, multiplies negative ones", 0,
     10, true},
    {"presence_penalty", &SamplingParams::presence_penalty,
     "Taken from the logits of tokens that the generated text has", -2, 2},
    {"frequency_penalty", &SamplingParams::frequency_penalty,
     "Taken from the logit of a token as often as the generated text has it", -2, 2},
    {"seed", &SamplingParams::seed, "Seed of the sampling; the same seed gives the same tokens"},
};

constexpr ForeignParameter kForeignParameters[] = {
    {"encoder_repetition_penalty", "1"},
    {"no_repeat_ngram_size", "0"},
    {"epsilon_cutoff", "0"},
    {"eta_cutoff", "0"},
    {"penalty_alpha", "0"},
    {"guidance_scale", "1"},
    {"num_beams", "1"},
    {"num_beam_groups", "1"},
    {"diversity_penalty", "0"},
    {"min_length", "0"},
    {"min_new_tokens", "0"},
    {"bad_words_ids", "[]"},
    {"suppress_tokens", "[]"},
    {"begin_suppress_tokens", "[]"},
    {"forced_bos_token_id", "null"},
    {"forced_eos_token_id", "null"},
};

}  // namespace

std::string Parameter::range() const {
  std::string text;
  if (std::isfinite(min)) text = fmt::format("{} {:g}", is_above_min ? "above" : "at least", min);
  if (std::isfinite(max)) {
    text += fmt::format("{}{} {:g}", text.empty() ? "" : " and ",
                        is_below_max ? "below" : "at most", max);
  }
  return text;
}

bool Parameter::holds(double value) const {
  return std::isfinite(value) && (is_above_min ? value > min : value >= min) &&
         (is_below_max ? value < max : value <= max);
}

std::span<const Parameter> parameters() {
  return kParameters;
}

std::span<const ForeignParameter> foreign_parameters() {
  return kForeignParameters;
}

bool set(const Parameter& parameter, double value, SamplingParams& params) {
  return std::visit(
      [&](auto field) {
        using Number = std::remove_reference_t<decltype(params.*field)>;
        // Converted to a double, the largest int64_t is rounded up to 2^63. So the upper bound kEnd
        // itself is refused.
        constexpr double kEnd = std::numeric_limits<Number>::max();
        if (std::is_integral_v<Number> &&
            (value != std::floor(value) || value < -kEnd || value >= kEnd))
          return false;
        params.*field = static_cast<Number>(value);
        return true;
      },
      parameter.field);
}

std::optional<std::string> problem(const SamplingParams& params) {
  for (const Parameter& parameter : kParameters) {
    const double value =
        std::visit([&](auto field) { return static_cast<double>(params.*field); }, parameter.field);
    if (!parameter.holds(value))
      return fmt::format("{} is {}, not {:g}", parameter.name, parameter.range(), value);
  }
  if (params.num_logprobs < -1 || params.num_logprobs > LogprobRow::kMaxTop) {
    return fmt::format("num_logprobs is at most {}, not {}", LogprobRow::kMaxTop,
                       params.num_logprobs);
  }
  return std::nullopt;
}

}  // namespace encore::sample
