// Describes the step log. It has one line for each step, and a line is a JSON object.
//
//   {"step": 7, "context_tokens": 480, "generation_requests": 31, "tokens": 511,
//    "sequences": 32, "kv_tokens": 31201, "mode": "piecewise", "bucket": 512, "padding": 1,
//    "host_us": 61.2, "gpu_us": 5120.4}
//
//   key                  what
//   step                 number of the step, from 0
//   context_tokens       tokens of prompts, in sequences with more than one token in the step
//   generation_requests  sequences that generate: all of a uniform step's, else those of one token
//   tokens               of the step, without padding
//   sequences            of the step
//   kv_tokens            tokens that these sequences have with the step: what attention reads
//   mode                 eager, piecewise, full
//   bucket               the size it was padded to: sequences when context_tokens is 0, else
//                        tokens; absent where it ran unpadded, as above the ladder
//   padding              tokens launched for nothing
//   reason               why not the wanted mode; absent when it was
//   host_us              from planning the step to the end of its launch, on the host; the CPU
//                        device computes within it
//   gpu_us               from the launch that writes the inputs to the last kernel, on the device
//
// A step is matched on its sequences when it has no context tokens, on its tokens otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace encore::planning {

// Holds the record of one step in a log. Only context_tokens and generation_requests are in every
// log.
struct LoggedStep {
  int64_t step = 0;
  int64_t context_tokens = 0;
  int64_t generation_requests = 0;
  std::optional<int64_t> tokens;
  std::optional<int64_t> sequences;
  std::optional<int64_t> kv_tokens;
  std::string mode;  // empty where the log has no mode
  std::optional<int64_t> bucket;
  std::optional<int64_t> padding;
  std::string reason;
  std::optional<double> host_us;
  std::optional<double> gpu_us;
  // `iteration_us` is the time of the whole loop, host included. Only TensorRT-LLM's logs have it.
  std::optional<double> iteration_us;

  [[nodiscard]] bool is_decode() const { return context_tokens == 0; }
  // Returns the size that a ladder must hold: the sequences of a decode step, the tokens of any
  // other step, and 0 if the step launched nothing.
  [[nodiscard]] int64_t size() const { return context_tokens + generation_requests; }
  // Returns the time that the step took, or nullopt where the log has no time.
  [[nodiscard]] std::optional<double> step_us() const { return gpu_us ? gpu_us : iteration_us; }
};

}  // namespace encore::planning
