#include "measure/logits_comparison.h"

#include <algorithm>
#include <cmath>

namespace encore::measure {
namespace {

// Returns log(sum(exp(logits))), so that a token's log probability is its logit minus this result.
double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits)
    sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

}  // namespace

void LogitsComparison::add(std::span<const float> logits, std::span<const float> reference,
                           int32_t next) {
  const auto token = static_cast<size_t>(next);
  const double total = log_sum_exp(logits);
  surprise_ += total - logits[token];
  ++num_tokens_;
  if (reference.empty()) return;
  const double reference_total = log_sum_exp(reference);
  reference_surprise_ += reference_total - reference[token];
  double kl = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double log_q = reference[i] - reference_total;
    kl += std::exp(log_q) * (log_q - (logits[i] - total));
  }
  kls_.push_back(std::max(kl, 0.0));
  const auto top = [](std::span<const float> row) {
    return std::ranges::max_element(row) - row.begin();
  };
  if (top(logits) == top(reference)) ++same_top_;
  squares_ +=
      std::pow(std::exp(logits[token] - total) - std::exp(reference[token] - reference_total), 2);
}

LogitsFigures LogitsComparison::figures() const {
  LogitsFigures figures{.num_tokens = num_tokens_};
  if (num_tokens_ == 0) return figures;
  const auto count = static_cast<double>(num_tokens_);
  figures.perplexity = std::exp(surprise_ / count);
  if (kls_.empty()) return figures;
  figures.reference_perplexity = std::exp(reference_surprise_ / count);
  figures.same_top = static_cast<double>(same_top_) / count;
  figures.rms_probability = std::sqrt(squares_ / count);
  std::vector<double> sorted = kls_;
  std::ranges::sort(sorted);
  for (const double kl : sorted)
    figures.mean_kl += kl / count;
  figures.kl_99 = sorted[static_cast<size_t>(std::ceil(0.99 * count)) - 1];
  figures.max_kl = sorted.back();
  return figures;
}

double relative_error(std::span<const float> found, std::span<const float> reference) {
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    error += std::pow(static_cast<double>(found[i]) - reference[i], 2);
    size += std::pow(static_cast<double>(reference[i]), 2);
  }
  return error == 0 ? 0 : std::sqrt(error / size);
}

}  // namespace encore::measure
