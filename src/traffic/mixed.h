// Mixes traffic of every kind, under which an engine runs for long to see whether it holds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "traffic/record.h"

namespace encore::traffic {

struct MixedTraffic {
  double seconds = 0;         // requests come for this long
  double requests_per_s = 0;  // mean rate; the times are random
  int64_t max_input_tokens = 0;
  int64_t max_output_tokens = 0;
  int64_t vocab_size = 0;
  std::shared_ptr<const sample::TokenGrammar> grammar;  // some answers must follow it
  uint64_t seed = 1;
};

// Returns the requests in the order of their arrival. The same traffic gives the same requests.
// Lengths range from one token to the most, and each octave of lengths is as likely. One request in
// four shares the beginning of its prompt with others. One request in sixteen becomes two to four
// requests with one prompt and different seeds. One request in sixteen is aborted by its client,
// about a second after it came. Half of the requests choose tokens greedily, the others by a
// temperature and a seed, with or without top-k, top-p, min-p, typical-p and penalties. A few
// requests each have stop tokens, least lengths, biases, log probabilities of answer and prompt,
// priorities, cache salts or the grammar. REQUIRES: max_input_tokens and max_output_tokens of at
// least 1.
std::vector<Request> mixed_requests(const MixedTraffic& traffic);

}  // namespace encore::traffic
