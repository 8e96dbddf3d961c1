#include "traffic/step_cost.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/blame_user.h"
#include "base/error.h"
#include "base/file.h"
#include "base/statistics.h"

namespace encore::traffic {
namespace {

// The numbers of tokens in a step above which each further token may cost more.
constexpr std::array<int64_t, 5> kKnees = {0, 16, 64, 256, 1024};
constexpr size_t kFirstKnee = 4;  // index of the first knee's term
constexpr size_t kNumTerms = kFirstKnee + kKnees.size();
using Terms = std::array<double, kNumTerms>;

// The fewest steps of a kind (decode or mixed) from which the terms of that kind are fitted. Fewer
// steps say too little about the kind.
constexpr size_t kFewestSteps = 16;

constexpr double kMaxUs = 1e12;

double above(int64_t tokens, int64_t knee) {
  return static_cast<double>(std::max<int64_t>(0, tokens - knee));
}

// Returns the amounts of a step, such as its sequences, by which the terms of a cost are
// multiplied.
Terms features(const StepShape& step) {
  Terms terms{1, static_cast<double>(step.sequences), static_cast<double>(step.kv_tokens),
              step.experts};
  for (size_t i = 0; i < kKnees.size(); ++i)
    terms[kFirstKnee + i] = above(step.tokens, kKnees[i]);
  return terms;
}

CostTerms to_terms(const Terms& factors) {
  CostTerms terms{.constant_us = factors[0],
                  .us_per_sequence = factors[1],
                  .us_per_kv_token = factors[2],
                  .us_per_expert = factors[3]};
  for (size_t i = 0; i < kKnees.size(); ++i) {
    const double price = factors[kFirstKnee + i];
    if (price > 0) terms.us_per_token_above.emplace_back(kKnees[i], price);
  }
  return terms;
}

struct Sample {
  StepShape step;
  double us = 0;
};

// Returns the terms, none negative, that minimize the sum of squares of `weight x error`. The
// method is coordinate descent on the normal equations, with features scaled to length one.
Terms least_squares(const std::vector<Sample>& samples, const std::vector<double>& weights) {
  constexpr int kMaxSweeps = 100'000;
  constexpr double kTolerance = 1e-10;
  std::array<Terms, kNumTerms> products{};
  Terms targets{};
  for (size_t s = 0; s < samples.size(); ++s) {
    const Terms row = features(samples[s].step);
    const double weight = weights[s] * weights[s];
    for (size_t i = 0; i < kNumTerms; ++i) {
      targets[i] += weight * row[i] * samples[s].us;
      for (size_t j = 0; j < kNumTerms; ++j)
        products[i][j] += weight * row[i] * row[j];
    }
  }
  Terms lengths{};
  for (size_t i = 0; i < kNumTerms; ++i)
    lengths[i] = std::sqrt(products[i][i]);
  Terms scaled{};
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    double change = 0;
    for (size_t i = 0; i < kNumTerms; ++i) {
      if (lengths[i] == 0) continue;
      double gradient = targets[i] / lengths[i];
      for (size_t j = 0; j < kNumTerms; ++j) {
        if (lengths[j] > 0) gradient -= products[i][j] / (lengths[i] * lengths[j]) * scaled[j];
      }
      const double next = std::max(0.0, scaled[i] + gradient);
      change = std::max(change, std::abs(next - scaled[i]));
      scaled[i] = next;
    }
    if (change < kTolerance) break;
  }
  for (size_t i = 0; i < kNumTerms; ++i)
    scaled[i] = lengths[i] > 0 ? scaled[i] / lengths[i] : 0;
  return scaled;
}

// Fits terms in two rounds, each of which minimizes relative errors. In the first round, errors are
// relative to the measured time, which favours steps that were short by chance. Therefore errors
// are relative to the prediction of the first round in the second.
CostTerms fit_terms(const std::vector<Sample>& samples) {
  std::vector<double> weights;
  for (const Sample& sample : samples)
    weights.push_back(1 / sample.us);
  const CostTerms first = to_terms(least_squares(samples, weights));
  for (size_t i = 0; i < samples.size(); ++i)
    weights[i] = 1 / std::max(first(samples[i].step), 1e-3);
  return to_terms(least_squares(samples, weights));
}

// Returns the host's time for a step. Where the device computes while the host launches, as the CPU
// does, the measured time of the host includes the device's time, which is then subtracted.
double fit_host_us(std::span<const planning::LoggedStep> steps) {
  std::vector<double> times;
  std::vector<double> times_beside;
  for (const planning::LoggedStep& step : steps) {
    if (!step.host_us || !step.gpu_us) continue;
    times.push_back(*step.host_us);
    times_beside.push_back(*step.host_us - *step.gpu_us);
  }
  if (times.empty()) return 0;
  const bool is_within = quantile(times_beside, 0.01) >= 0;
  return median(is_within ? times_beside : times);
}

json::object terms_json(const CostTerms& terms) {
  json::object above;
  for (const auto& [size, us] : terms.us_per_token_above)
    above[std::to_string(size)] = us;
  return {{"us", terms.constant_us},
          {"us_per_token_above", std::move(above)},
          {"us_per_sequence", terms.us_per_sequence},
          {"us_per_kv_token", terms.us_per_kv_token},
          {"us_per_expert", terms.us_per_expert}};
}

double check_us(double us, const std::string& where, std::string_view key) {
  if (!(us >= 0 && us <= kMaxUs))
    fail(ErrorKind::kUsage, "{}: {} is {}; it is microseconds, 0 or more", where, key, us);
  return us;
}

double us_of(const json::Object& object, const char* key) {
  return check_us(object.double_or(key, 0), object.where(), key);
}

CostTerms read_terms(const json::Object& object) {
  CostTerms terms{.constant_us = us_of(object, "us"),
                  .us_per_sequence = us_of(object, "us_per_sequence"),
                  .us_per_kv_token = us_of(object, "us_per_kv_token"),
                  .us_per_expert = us_of(object, "us_per_expert")};
  if (!object.has("us_per_token_above")) return terms;
  const json::Object above = object.object_at("us_per_token_above");
  for (const auto& [key, value] : above.raw()) {
    const std::string_view text = key;
    int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || end != text.data() + text.size() || size < 0) {
      fail(ErrorKind::kUsage, "{}: us_per_token_above: sizes are numbers of tokens", above.where());
    }
    terms.us_per_token_above.emplace_back(size,
                                          check_us(above.double_at(text), above.where(), text));
  }
  std::sort(terms.us_per_token_above.begin(), terms.us_per_token_above.end());
  return terms;
}

ExpertChoice read_experts(const json::Object& cost) {
  if (!cost.has("experts")) return {};
  const json::Object object = cost.object_at("experts");
  const ExpertChoice experts{object.int_at("num_experts"), object.int_at("per_token")};
  if (experts.per_token < 1 || experts.num_experts < experts.per_token) {
    fail(ErrorKind::kUsage, "{}: per_token is a number from 1 to num_experts", object.where());
  }
  return experts;
}

}  // namespace

double CostTerms::operator()(const StepShape& step) const {
  double us = constant_us + us_per_sequence * static_cast<double>(step.sequences) +
              us_per_kv_token * static_cast<double>(step.kv_tokens) + us_per_expert * step.experts;
  for (const auto& [size, price] : us_per_token_above)
    us += price * above(step.tokens, size);
  return us;
}

double ExpertChoice::distinct(int64_t tokens) const {
  if (num_experts == 0) return 0;
  const auto all = static_cast<double>(num_experts);
  const double missed = 1 - std::min(1.0, static_cast<double>(per_token) / all);
  return all * (1 - std::pow(missed, static_cast<double>(tokens)));
}

double StepCost::operator()(const StepShape& step) const {
  return step.is_decode ? decode(step) : mixed(step);
}

std::pair<StepCost, FitQuality> fit_step_cost(std::span<const planning::LoggedStep> steps,
                                              const std::string& where,
                                              const ExpertChoice& experts) {
  std::vector<Sample> all;
  std::vector<Sample> decode;
  std::vector<Sample> mixed;
  for (const planning::LoggedStep& step : steps) {
    if (!step.tokens || !step.sequences || !step.kv_tokens || !step.gpu_us || *step.gpu_us <= 0)
      continue;
    const int64_t tokens = *step.tokens + step.padding.value_or(0);
    const StepShape shape{step.is_decode(), tokens, *step.sequences, *step.kv_tokens,
                          experts.distinct(*step.tokens)};
    all.push_back({shape, *step.gpu_us});
    (step.is_decode() ? decode : mixed).push_back(all.back());
  }
  if (all.size() < kFewestSteps) {
    fail(ErrorKind::kUsage,
         "{}: {} steps with tokens, sequences, kv_tokens and gpu_us are too few to fit: give a log "
         "of `encore bench serve --step-log` with {} or more",
         where, all.size(), kFewestSteps);
  }
  StepCost cost;
  cost.experts = experts;
  cost.decode = fit_terms(decode.size() < kFewestSteps ? all : decode);
  cost.mixed = fit_terms(mixed.size() < kFewestSteps ? all : mixed);
  cost.host_us = fit_host_us(steps);

  std::vector<double> errors;
  double measured = 0;
  double expected = 0;
  for (const Sample& sample : all) {
    errors.push_back(std::abs(cost(sample.step) / sample.us - 1));
    measured += sample.us;
    expected += cost(sample.step);
  }
  return {cost, {std::ssize(all), median(std::move(errors)), expected / measured - 1}};
}

json::object cost_json(const StepCost& cost) {
  json::object out{{"decode", terms_json(cost.decode)},
                   {"mixed", terms_json(cost.mixed)},
                   {"host_us", cost.host_us}};
  if (cost.experts.num_experts > 0) {
    out["experts"] = {{"num_experts", cost.experts.num_experts},
                      {"per_token", cost.experts.per_token}};
  }
  return out;
}

StepCost parse_step_cost(std::string_view text, const std::string& where) {
  return blame_user([&] {
    const json::value value = json::parse(text, where);
    const json::Object object(value, where);
    return StepCost{.decode = read_terms(object.object_at("decode")),
                    .mixed = read_terms(object.object_at("mixed")),
                    .host_us = us_of(object, "host_us"),
                    .experts = read_experts(object)};
  });
}

StepCost read_step_cost(const std::filesystem::path& path) {
  return parse_step_cost(read_text_file(path), path.string());
}

ExchangeCost parse_exchange_cost(std::string_view text, const std::string& where) {
  return blame_user([&] {
    const json::value value = json::parse(text, where);
    const json::Object object(value, where);
    // The sums of the normal equations for the line us = constant + us_per_byte x bytes, where the
    // error of each measured case is multiplied by 1 / us. `one`, `x` and `xx` belong to the
    // equations' left side, `y` and `xy` to their right side.
    double one = 0;
    double x = 0;
    double xx = 0;
    double y = 0;
    double xy = 0;
    for (const json::value& entry : object.array_at("cases")) {
      const json::Object measured(entry, where + ": a case");
      const double us = measured.double_at("fused_us");
      const double bytes = measured.double_at("bytes");
      if (!(us > 0 && us <= kMaxUs && bytes > 0))
        fail(ErrorKind::kUsage, "{}: fused_us and bytes are numbers above 0", measured.where());
      one += 1 / (us * us);
      x += bytes / (us * us);
      xx += bytes * bytes / (us * us);
      y += 1 / us;
      xy += bytes / us;
    }
    const double determinant = one * xx - x * x;
    if (!(determinant > 1e-12 * one * xx)) {
      fail(ErrorKind::kUsage,
           "{}: says of fewer than two lengths how long a sum takes: give what `encore bench "
           "collectives --json` prints",
           where);
    }
    return ExchangeCost{.ranks = object.int_at("ranks"),
                        .constant_us = std::max(0.0, (y * xx - xy * x) / determinant),
                        .us_per_byte = std::max(0.0, (one * xy - x * y) / determinant)};
  });
}

ExchangeCost read_exchange_cost(const std::filesystem::path& path) {
  return parse_exchange_cost(read_text_file(path), path.string());
}

StepCost shared_cost(StepCost cost, const ExchangeCost& exchange, const StepExchanges& sums) {
  const auto ranks = static_cast<double>(exchange.ranks);
  const auto count = static_cast<double>(sums.count);
  for (CostTerms* terms : {&cost.decode, &cost.mixed}) {
    terms->constant_us = terms->constant_us / ranks + count * exchange.constant_us;
    terms->us_per_sequence /= ranks;
    terms->us_per_kv_token /= ranks;
    terms->us_per_expert /= ranks;
    for (auto& [size, price] : terms->us_per_token_above)
      price /= ranks;
    const double price = count * exchange.us_per_byte * static_cast<double>(sums.bytes_per_token);
    terms->us_per_token_above.insert(terms->us_per_token_above.begin(), {0, price});
  }
  return cost;
}

}  // namespace encore::traffic
