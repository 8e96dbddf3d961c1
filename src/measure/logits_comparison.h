// Measures how well a model predicts a text (perplexity), and how its distributions over the next
// token differ from those of a reference model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace encore::measure {

// Holds the results of a comparison. Logarithms are natural, so their unit is the nat. Source:
// Kullback and Leibler, "On Information and Sufficiency", 1951.
struct LogitsFigures {
  int64_t num_tokens = 0;
  double perplexity = 0;            // exp of the mean of -log p(token of the text)
  double reference_perplexity = 0;  // perplexity of the reference model
  // The KL divergence of the model (p) from the reference (q) is the sum of q log(q / p). Units:
  // nats.
  double mean_kl = 0;
  double kl_99 = 0;  // 99th percentile over tokens
  double max_kl = 0;
  double same_top = 0;         // share of positions where both models find the same token likeliest
  double rms_probability = 0;  // RMS difference of the two models' p(token of the text)
};

// Accumulates the comparison over rows of logits. Threads: one.
class LogitsComparison {
 public:
  // Adds one position: the model's logits, the reference's logits, and the token of the text that
  // follows. `reference` is empty without a reference.
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

// Returns the root mean square of the difference divided by that of the reference; 0 where both are
// zero.
double relative_error(std::span<const float> found, std::span<const float> reference);

}  // namespace encore::measure
