// Traffic of every kind, mixed: what an engine is left alone with to see whether it holds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "traffic/record.h"

namespace encore::traffic {

struct MixedTraffic {
  double seconds = 0;         // in which requests come
  double requests_per_s = 0;  // by chance
  int64_t max_input_tokens = 0;
  int64_t max_output_tokens = 0;
  int64_t vocab_size = 0;
  std::shared_ptr<const sample::TokenGrammar> grammar;  // that some answers are held to
  uint64_t seed = 1;
};

// Returns the requests in the order of their arrival, as a function of the traffic alone. Lengths
// from one token to the most are as likely in each octave. One request in four begins as others do;
// one in sixteen is two to four with one prompt and seeds of their own, and one in sixteen is left
// by its client, about a second after it came. Half choose greedily, the others by a temperature
// and a seed, with or without top-k, top-p, min-p, typical-p and penalties. Stop tokens, least
// lengths, biases, log probabilities of answer and prompt, priorities, cache salts and the grammar
// each belong to a few. REQUIRES: max_input_tokens and max_output_tokens of at least 1.
std::vector<Request> mixed_requests(const MixedTraffic& traffic);

}  // namespace encore::traffic
