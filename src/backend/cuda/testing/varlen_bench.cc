// Times the attention of prompts and mixed steps with a kernel that the user chooses. (`encore
// bench attention` times uniform steps with the kernel that serves them.)
//   attention_varlen_bench [--kernel NAME] [PART]
// PART: only cases whose name contains it. NAME: attention.varlen, or another row of the kernel
// table, for the cases that it takes. Operations are counted as is usual: half of the products of
// all queries with all keys. The time of a launch is its share of a recording of many launches on
// the same memory. Build it with `ninja attention_varlen_bench` (it is not part of `all`).
#include <cmath>
#include <cstdio>
#include <random>
#include <string_view>

#include <fmt/core.h>

#include "backend/cuda/testing/paged_steps.h"
#include "backend/replay_time.h"
#include "base/error.h"

namespace encore {
namespace {

using bench::Case;
using bench::Sequence;

Case prompt(int64_t tokens) {
  return {.name = fmt::format("prompt {}", tokens), .sequences = {{tokens, tokens}}};
}
// Returns `count` sequences with lengths from 16 to 8192, log-uniformly distributed.
std::vector<Sequence> uneven(int count) {
  std::vector<Sequence> sequences;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> log2(4, 13);
  for (int i = 0; i < count; ++i) {
    const auto length = static_cast<int64_t>(std::exp2(log2(random)));
    sequences.push_back({length, length});
  }
  return sequences;
}
Case mixed(int64_t prompt, int decodes, int64_t context, int64_t tokens) {
  Case c{.name = fmt::format("mixed {} + {} of {} at {}", prompt, decodes, tokens, context)};
  if (prompt > 0) c.sequences.push_back({prompt, prompt});
  for (int i = 0; i < decodes; ++i)
    c.sequences.push_back({tokens, context});
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const int64_t tokens : {512, 1024, 2048, 4096, 8192, 16384})
    cases.push_back(prompt(tokens));
  cases.push_back(prompt(4096));
  cases.back().name = "prompt 4096, pages of 64";
  cases.back().page_size = 64;
  cases.push_back(prompt(4096));
  cases.back().name = "prompt 4096, KV in FP8";
  cases.back().kv_dtype = DType::kFP8;
  cases.push_back({.name = "uneven 64", .sequences = uneven(64)});
  cases.push_back({.name = "4 prompts of 2048", .sequences = {4, Sequence{2048, 2048}}});
  cases.push_back({.name = "512 after 7680", .sequences = {{512, 8192}}});
  for (const int64_t head_size : {64, 256}) {
    cases.push_back(prompt(4096));
    cases.back().name += fmt::format(", heads of {}", head_size);
    cases.back().head_size = head_size;
  }
  for (const int tokens : {1, 9}) {
    for (const auto& [decodes, context] :
         {std::pair{31, 4096}, {2, 65536}, {1, 4096}, {200, 1024}, {230, 1235}}) {
      cases.push_back(mixed(480, decodes, context, tokens));
      cases.push_back(mixed(0, decodes, context, tokens));
      cases.push_back(mixed(0, decodes, context, tokens));
      cases.back().name = fmt::format("uniform, {} of {} at {}", decodes, tokens, context);
      cases.back().uniform_q = tokens;
    }
    if (tokens == 1) cases.push_back(mixed(480, 0, 0, 1));
  }
  return cases;
}

const Kernel& find_kernel(Device& device, std::string_view name) {
  for (const Kernel& row : device.kernels().rows()) {
    if (row.name == name) return row;
  }
  fail(ErrorKind::kUsage, "no kernel is called {}", name);
}

// Returns the time of one launch. Units: microseconds.
double time(Device& device, Stream& stream, const BoundLaunch& bound, const Case& c) {
  constexpr int kLaunches = 16;
  constexpr int kReplays = 11;
  RecordingScope scope(stream);
  for (int i = 0; i < kLaunches; ++i)
    stream.launch({.label = "attention", .id = -1, .after = {}}, bound, c.lengths());
  const auto recording = scope.finish();
  return median_replay_us(device, stream, *recording, kReplays) / kLaunches;
}

void time_all(std::string_view name, std::string_view part) {
  const auto device = create_cuda_device();
  const auto stream = device->create_stream();
  const Kernel& kernel = find_kernel(*device, name);
  uint64_t seed = 0;
  for (const Case& c : cases()) {
    if (c.name.find(part) == std::string_view::npos) continue;
    bench::PagedStep step(*device, *stream, c, ++seed);
    if (!kernel.takes("attention", step.args())) continue;
    const double us = time(*device, *stream, step.bind(kernel), c);
    fmt::print("{:<40} {:9.1f} us {:7.1f} TFLOP/s\n", c.name, us, c.flops() / us * 1e-6);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace encore

int main(int argc, char** argv) {
  std::string_view kernel = "attention.varlen";
  std::string_view part;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--kernel" && i + 1 < argc) {
      kernel = argv[++i];
    } else {
      part = argument;
    }
  }
  try {
    encore::time_all(kernel, part);
    return 0;
  } catch (const encore::Error& error) {
    fmt::print(stderr, "attention_varlen_bench: {}\n", error.what());
    return encore::exit_code(error.kind());
  }
}
