#include "traffic/mixed.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/rounding.h"
#include "sample/params.h"
#include "traffic/arrivals.h"
#include "traffic/prompts.h"

namespace encore::traffic {
namespace {

constexpr int64_t kNumBeginnings = 8;  // shared beginnings; the i-th has up to i blocks

// Draws random numbers that are the same on every machine. The standard library's distributions
// differ between implementations.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}

  [[nodiscard]] bool one_in(int64_t count) { return between(1, count) == 1; }
  [[nodiscard]] int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  [[nodiscard]] double real(double least, double most) {
    return least + (most - least) * static_cast<double>(random_() >> 11) * 0x1p-53;
  }
  // Returns a length from 1 to `most` whose logarithm is uniform, so that each octave is as likely.
  [[nodiscard]] int64_t length(int64_t most) {
    return std::llround(std::exp(real(0, std::log(static_cast<double>(most)))));
  }

 private:
  std::mt19937_64 random_;
};

std::vector<int32_t> prompt(const MixedTraffic& traffic, int64_t number, Draws& draws) {
  TracedRequest traced{.input_tokens = draws.length(traffic.max_input_tokens)};
  if (draws.one_in(4)) {
    const int64_t beginning = draws.between(1, kNumBeginnings);
    const int64_t most = div_up(traced.input_tokens, kBlockTokens);
    for (int64_t block = 0; block < std::min(beginning, most); ++block)
      traced.blocks.push_back(beginning * kNumBeginnings + block);
  }
  return prompt_tokens(traced, number, traffic.vocab_size, traffic.seed);
}

// Chooses parameters of sampling: half of the requests sample with a temperature. Each parameter
// that has a range is set in one request of eight, to any value in the range.
sample::SamplingParams sampling(Draws& draws) {
  sample::SamplingParams params;
  if (draws.one_in(2)) {
    params.temperature = static_cast<float>(draws.real(0.2, 1.5));
    params.seed = draws.between(0, INT32_MAX);
    if (draws.one_in(4)) params.top_k = static_cast<int32_t>(draws.between(1, 100));
  }
  for (const sample::Parameter& parameter : sample::parameters()) {
    const bool has_range = std::isfinite(parameter.min) && std::isfinite(parameter.max);
    if (!has_range || !draws.one_in(8)) continue;
    const double value = draws.real(parameter.min, parameter.max);
    sample::set(parameter, parameter.is_integer() ? std::floor(value) : value, params);
  }
  if (draws.one_in(8))
    params.num_logprobs = static_cast<int32_t>(draws.between(0, LogprobRow::kMaxTop));
  return params;
}

// Chooses how an answer ends. Every answer has a length; one in four also has stop tokens, and in
// half of these a bias makes a stop token likely.
void add_end(engine::Request& request, const MixedTraffic& traffic, Draws& draws) {
  const auto token = [&] { return static_cast<int32_t>(draws.between(0, traffic.vocab_size - 1)); };
  request.max_tokens = draws.length(traffic.max_output_tokens);
  if (draws.one_in(8)) request.token_bias = {{token(), static_cast<float>(draws.real(-5, 5))}};
  if (draws.one_in(4)) {
    for (int64_t i = draws.between(1, 12); i > 0; --i)
      request.stop_tokens.push_back(token());
    const auto likely = static_cast<float>(std::log(static_cast<double>(traffic.vocab_size) / 50));
    if (draws.one_in(2)) request.token_bias = {{request.stop_tokens.front(), likely}};
  }
  if (draws.one_in(8)) request.min_tokens = draws.between(0, request.max_tokens);
}

Request mixed_request(const MixedTraffic& traffic, int64_t number, Draws& draws) {
  Request request{.asked = {.prompt = prompt(traffic, number, draws)}};
  engine::Request& asked = request.asked;
  add_end(asked, traffic, draws);
  asked.sampling = sampling(draws);
  if (draws.one_in(16)) asked.num_prompt_logprobs = static_cast<int32_t>(draws.between(0, 5));
  if (draws.one_in(8)) asked.priority = static_cast<int32_t>(draws.between(-1, 1));
  if (draws.one_in(16)) asked.cache_salt = "another tenant";
  if (draws.one_in(32) && asked.min_tokens == 0) asked.grammar = traffic.grammar;
  if (draws.one_in(16)) request.leaves_after_s = -std::log1p(-draws.real(0, 1));
  return request;
}

}  // namespace

std::vector<Request> mixed_requests(const MixedTraffic& traffic) {
  const auto count = std::max<int64_t>(1, std::llround(traffic.seconds * traffic.requests_per_s));
  Draws draws(traffic.seed);
  std::vector<Request> requests;
  for (const double arrival_s : poisson_arrivals(count, traffic.requests_per_s, traffic.seed)) {
    if (arrival_s > traffic.seconds && !requests.empty()) break;
    Request request = mixed_request(traffic, std::ssize(requests), draws);
    request.arrival_s = arrival_s;
    const int64_t num_answers = draws.one_in(16) ? draws.between(2, 4) : 1;
    for (int64_t i = 0; i < num_answers; ++i) {
      requests.push_back(request);
      request.asked.sampling.seed += 1;
    }
  }
  return requests;
}

}  // namespace encore::traffic
