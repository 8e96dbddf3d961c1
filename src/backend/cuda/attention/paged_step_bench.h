// The steps that attention_varlen_bench checks and times.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "backend/kernel.h"
#include "base/dtype.h"

namespace encore::bench {

struct Sequence {
  int64_t tokens;  // new ones, the last of `length`
  int64_t length;
};

struct Case {
  std::string name;
  std::vector<Sequence> sequences;
  int64_t heads = 32;
  int64_t kv_heads = 8;
  int64_t head_size = 128;
  int64_t page_size = 16;
  DType dtype = DType::kBF16;
  int64_t padding_tokens = 0;
  int uniform_q = 0;

  [[nodiscard]] int64_t num_tokens() const {
    int64_t tokens = padding_tokens;
    for (const Sequence& s : sequences)
      tokens += s.tokens;
    return tokens;
  }
  [[nodiscard]] StepLengths lengths() const {
    StepLengths longest;
    for (const Sequence& s : sequences) {
      longest.max_query_len = std::max(longest.max_query_len, s.tokens);
      longest.max_kv_len = std::max(longest.max_kv_len, s.length);
    }
    return longest;
  }
  [[nodiscard]] double flops() const {
    double pairs = 0;
    for (const Sequence& s : sequences) {
      const auto tokens = static_cast<double>(s.tokens);
      pairs += tokens * (static_cast<double>(s.length) - tokens / 2);
    }
    return 4.0 * pairs * static_cast<double>(heads * head_size);
  }
};

inline Case prompt(int64_t tokens) {
  return {.name = fmt::format("prompt {}", tokens), .sequences = {{tokens, tokens}}};
}
// Log-uniform lengths from 16 to 8192.
inline std::vector<Sequence> uneven(int count) {
  std::vector<Sequence> sequences;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> log2(4, 13);
  for (int i = 0; i < count; ++i) {
    const auto length = static_cast<int64_t>(std::exp2(log2(random)));
    sequences.push_back({length, length});
  }
  return sequences;
}
inline Case mixed(int64_t prompt, int decodes, int64_t context, int64_t tokens) {
  Case c{.name = fmt::format("mixed {} + {} of {} at {}", prompt, decodes, tokens, context)};
  if (prompt > 0) c.sequences.push_back({prompt, prompt});
  for (int i = 0; i < decodes; ++i)
    c.sequences.push_back({tokens, context});
  return c;
}

inline std::vector<Case> checks() {
  std::vector<Case> cases;
  for (const int64_t tokens : {1, 31, 64, 127, 128, 129, 300, 1024, 2048, 5000})
    cases.push_back(prompt(tokens));
  const std::vector<Sequence> batch{{5, 5},     {1, 70},    {1, 1},     {17, 17},  {20, 64},
                                    {33, 1033}, {300, 900}, {1, 2049},  {2, 31},   {130, 131},
                                    {9, 4000},  {64, 128},  {100, 100}, {3, 0},    {2, 9},
                                    {1, 20001}, {3, 2500},  {2, 513},   {16, 600}, {1, 512}};
  for (const int64_t page_size : {16, 32, 64}) {
    cases.push_back({.name = fmt::format("batch, pages of {}", page_size),
                     .sequences = batch,
                     .page_size = page_size,
                     .padding_tokens = 9});
  }
  for (const auto& [heads, kv_heads] : {std::pair{8, 8}, {14, 2}, {6, 2}, {16, 1}, {5, 1}}) {
    cases.push_back({.name = fmt::format("batch, heads {}/{}", heads, kv_heads),
                     .sequences = batch,
                     .heads = heads,
                     .kv_heads = kv_heads});
  }
  for (const int64_t head_size : {64, 96, 256}) {
    for (const int64_t page_size : {16, 64}) {
      cases.push_back({.name = fmt::format("batch, heads of {}, pages of {}", head_size, page_size),
                       .sequences = batch,
                       .heads = 8,
                       .kv_heads = 2,
                       .head_size = head_size,
                       .page_size = page_size,
                       .padding_tokens = 3});
    }
    cases.push_back({.name = fmt::format("prompt 1500, heads of {}", head_size),
                     .sequences = {{1500, 1500}},
                     .heads = 8,
                     .kv_heads = 2,
                     .head_size = head_size});
  }
  cases.push_back({.name = "batch, f16", .sequences = batch, .dtype = DType::kF16});
  cases.push_back({.name = "uniform 40",
                   .sequences = {{40, 40}, {40, 700}, {40, 0}, {40, 64}},
                   .uniform_q = 40});
  cases.push_back({.name = "uneven 64", .sequences = uneven(64)});
  std::mt19937_64 random(3);
  for (int i = 0; i < 20; ++i) {
    Case c{.name = fmt::format("random {}", i), .page_size = int64_t{16} << random() % 3};
    for (uint64_t n = 1 + random() % 12; n > 0; --n) {
      const auto tokens = static_cast<int64_t>(1 + random() % (random() % 2 == 0 ? 4 : 400));
      c.sequences.push_back({tokens, tokens + static_cast<int64_t>(random() % 900)});
    }
    c.padding_tokens = static_cast<int64_t>(random() % 40);
    cases.push_back(c);
  }
  return cases;
}

inline std::vector<Case> timings() {
  std::vector<Case> cases;
  for (const int64_t tokens : {512, 1024, 2048, 4096, 8192, 16384})
    cases.push_back(prompt(tokens));
  cases.push_back(prompt(4096));
  cases.back().name = "prompt 4096, pages of 64";
  cases.back().page_size = 64;
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

}  // namespace encore::bench
