#include "planning/step_log_reader.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/blame_user.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace encore::planning {
namespace {

// Counts in a log may not exceed this number. It is far above any step's, and low enough that a sum
// over a log cannot overflow.
constexpr int64_t kMaxCount = int64_t{1} << 24;
constexpr int64_t kMaxKvTokens = int64_t{1} << 40;
constexpr const char* kNested = "inflightBatchingStats";
constexpr std::string_view kWhitespace = " \t\r\n";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Holds the keys of the two counts, prompt tokens and generating requests, in one kind of log.
struct Names {
  const char* context_tokens;
  const char* generation_requests;
};
constexpr Names kOurs{"context_tokens", "generation_requests"};
constexpr Names kTrtllm{"numCtxTokens", "numGenRequests"};

void check_count(int64_t count, const char* key, const std::string& where,
                 int64_t most = kMaxCount) {
  if (count < 0 || count > most) {
    fail(ErrorKind::kUsage, "{}: {} is {}; it is 0 to {}", where, key, count, most);
  }
}

int64_t count_at(const json::Object& object, const char* key, int64_t most = kMaxCount) {
  const int64_t count = object.int_at(key);
  check_count(count, key, object.where(), most);
  return count;
}

std::optional<int64_t> optional_count(const json::Object& object, const char* key,
                                      int64_t most = kMaxCount) {
  if (!object.has(key)) return std::nullopt;
  return count_at(object, key, most);
}

std::optional<double> optional_us(const json::Object& object, const char* key, double unit = 1) {
  if (!object.has(key)) return std::nullopt;
  const double us = object.double_at(key) * unit;
  if (us < 0 || us > 1e12) {
    fail(ErrorKind::kUsage, "{}: {} is {}; it is a time", object.where(), key, us / unit);
  }
  return us;
}

void read_counts(const json::Object& object, const Names& names, LoggedStep& step) {
  step.context_tokens = count_at(object, names.context_tokens);
  step.generation_requests = count_at(object, names.generation_requests);
}

LoggedStep read_trtllm(const json::Object& object, const json::Object& counts, int64_t number) {
  LoggedStep step;
  step.step = object.int_or("iter", number);
  read_counts(counts, kTrtllm, step);
  step.iteration_us = optional_us(object, "iterLatencyMS", 1e3);
  return step;
}

LoggedStep read_object(const json::value& value, int64_t number, const std::string& where) {
  const json::Object object(value, where);
  const auto is_trtllm = [](const json::Object& counts) {
    return counts.has(kTrtllm.context_tokens) || counts.has(kTrtllm.generation_requests);
  };
  if (is_trtllm(object)) return read_trtllm(object, object, number);
  if (object.has(kNested)) return read_trtllm(object, object.object_at(kNested), number);
  if (!object.has(kOurs.context_tokens) && !object.has(kOurs.generation_requests)) {
    fail(ErrorKind::kUsage, "{}: no '{}' and '{}', nor TensorRT-LLM's '{}' and '{}'", where,
         kOurs.context_tokens, kOurs.generation_requests, kTrtllm.context_tokens,
         kTrtllm.generation_requests);
  }
  LoggedStep step;
  step.step = object.int_or("step", number);
  read_counts(object, kOurs, step);
  step.tokens = optional_count(object, "tokens");
  step.sequences = optional_count(object, "sequences");
  step.kv_tokens = optional_count(object, "kv_tokens", kMaxKvTokens);
  step.mode = object.string_or("mode", "");
  step.bucket = optional_count(object, "bucket");
  step.padding = optional_count(object, "padding");
  step.reason = object.string_or("reason", "");
  step.host_us = optional_us(object, "host_us");
  step.gpu_us = optional_us(object, "gpu_us");
  return step;
}

// Returns the number after `'key': ` in a line that TensorRT-LLM prints, or nullopt if the line
// lacks the key.
std::optional<int64_t> printed_count(std::string_view line, const char* key,
                                     const std::string& where) {
  const std::string quoted = fmt::format("'{}': ", key);
  const size_t place = line.find(quoted);
  if (place == std::string_view::npos) return std::nullopt;
  const char* const begin = line.data() + place + quoted.size();
  int64_t count = 0;
  if (std::from_chars(begin, line.data() + line.size(), count).ec != std::errc()) {
    fail(ErrorKind::kUsage, "{}: '{}' is not followed by a number", where, key);
  }
  check_count(count, key, where);
  return count;
}

std::optional<LoggedStep> read_printed(std::string_view line, int64_t number,
                                       const std::string& where) {
  static constexpr Names kPrinted{"num_ctx_tokens", "num_generation_tokens"};
  const auto context = printed_count(line, kPrinted.context_tokens, where);
  const auto generation = printed_count(line, kPrinted.generation_requests, where);
  if (!context && !generation) return std::nullopt;
  if (!context || !generation) {
    fail(ErrorKind::kUsage, "{}: has only one of '{}' and '{}'", where, kPrinted.context_tokens,
         kPrinted.generation_requests);
  }
  LoggedStep step;
  step.step = number;
  step.context_tokens = *context;
  step.generation_requests = *generation;
  return step;
}

enum class Format { kLines, kArray, kPrinted };

// Recognizes a log's format by its beginning. TensorRT-LLM's printed logs may begin with a
// bracketed date.
Format format_of(std::string_view text, const std::string& where) {
  const size_t first = text.find_first_not_of(kWhitespace);
  if (first == std::string_view::npos || text[first] == '{') return Format::kLines;
  if (text[first] != '[') {
    if (text.find("'num_ctx_tokens'") != std::string_view::npos) return Format::kPrinted;
    fail(ErrorKind::kUsage,
         "{}: is not a step log: give a JSON object a line with '{}' and '{}', as --step-log "
         "writes it, or TensorRT-LLM's iteration log",
         where, kOurs.context_tokens, kOurs.generation_requests);
  }
  const size_t second = text.find_first_not_of(kWhitespace, first + 1);
  const bool is_array =
      second == std::string_view::npos || text[second] == '{' || text[second] == ']';
  return is_array ? Format::kArray : Format::kPrinted;
}

std::vector<LoggedStep> parse_array(std::string_view text, const std::string& where) {
  const json::value value = json::parse(text, where);
  std::vector<LoggedStep> steps;
  for (const json::value& entry : value.as_array()) {
    const auto number = static_cast<int64_t>(steps.size());
    steps.push_back(read_object(entry, number, fmt::format("{}: entry {}", where, number)));
  }
  return steps;
}

std::vector<LoggedStep> parse_lines(std::string_view text, const std::string& where,
                                    Format format) {
  std::vector<LoggedStep> steps;
  int64_t line_number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++line_number;
    if (line.find_first_not_of(kWhitespace) == std::string_view::npos) continue;
    const std::string here = fmt::format("{}:{}", where, line_number);
    const auto number = static_cast<int64_t>(steps.size());
    if (format == Format::kPrinted) {
      if (const auto step = read_printed(line, number, here)) steps.push_back(*step);
    } else {
      steps.push_back(read_object(json::parse(line, here), number, here));
    }
  }
  return steps;
}

}  // namespace

std::vector<LoggedStep> parse_step_log(std::string_view text, const std::string& where) {
  return blame_user([&] {
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    const Format format = format_of(text, where);
    auto steps =
        format == Format::kArray ? parse_array(text, where) : parse_lines(text, where, format);
    if (steps.empty()) fail(ErrorKind::kUsage, "{}: no steps in it", where);
    return steps;
  });
}

std::vector<LoggedStep> read_step_log(const std::filesystem::path& path) {
  return parse_step_log(read_text_file(path), path.string());
}

}  // namespace encore::planning
