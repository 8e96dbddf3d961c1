// Traces of requests that real users made: when each came, and how long it was.
//
//   Azure LLM inference, CSV       TIMESTAMP,ContextTokens,GeneratedTokens
//                                  2023-11-16 18:15:46.6805900,374,44
//   Mooncake, a JSON object a line {"timestamp": 27482, "input_length": 6955, "output_length": 52,
//                                   "hash_ids": [46, 47, 2353]}
//
// A CSV file may have its columns in any order, and further columns beside them. Mooncake's times
// are milliseconds, and each of its ids stands for the next kBlockTokens tokens of the prompt:
// equal ids stand for equal tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace encore::traffic {

inline constexpr int64_t kBlockTokens = 512;

struct TracedRequest {
  double arrival_s = 0;  // seconds after the first request
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<int64_t> blocks;  // ids of the prompt's blocks; empty: the trace has none
  int64_t line = 0;             // line in the file, from 1; 0: not from a file
};

// Reads a trace and sorts its requests by time of arrival; requests of equal time keep the file's
// order. Errors: kUsage, naming the file and the line.
std::vector<TracedRequest> read_trace(const std::filesystem::path& path);
std::vector<TracedRequest> parse_trace(std::string_view text, const std::string& where);

}  // namespace encore::traffic
