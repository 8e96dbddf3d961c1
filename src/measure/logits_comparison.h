// Measures how well a model predicts a text, and how far another model is from it: perplexity, and
// how the distributions over the next token differ.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace encore::measure {

// Natural logarithms of probabilities are nats. Source: Kullback and Leibler, "On Information and
// Sufficiency", 1951.
struct LogitsFigures {
  int64_t num_tokens = 0;
  double perplexity = 0;            // exp of the mean of -log p(token of the text)
  double reference_perplexity = 0;  // the reference's
  // KL divergence of the model from the reference, sum of q log(q / p). Units: nats.
  double mean_kl = 0;
  double kl_99 = 0;  // 99 % of tokens have no more
  double max_kl = 0;
  double same_top = 0;         // share of tokens whose likeliest is the same
  double rms_probability = 0;  // of the difference of p(token of the text)
};

// Adds up rows of logits. Threads: one.
class LogitsComparison {
 public:
  // The logits of one position, and the token of the text that follows it. Without a reference,
  // `reference` is empty.
  void add(std::span<const float> logits, std::span<const float> reference, int32_t next);
  [[nodiscard]] LogitsFigures figures() const;

 private:
  double surprise_ = 0;
  double reference_surprise_ = 0;
  double squares_ = 0;
  int64_t same_top_ = 0;
  int64_t num_tokens_ = 0;
  std::vector<double> kls_;
};

// Root mean square of the difference over that of the reference; 0 where both are zero.
double relative_error(std::span<const float> found, std::span<const float> reference);

}  // namespace encore::measure
