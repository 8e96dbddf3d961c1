#include "planning/step_log_writer.h"

#include <cerrno>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "base/error.h"

namespace encore::planning {

std::string to_line(const LoggedStep& step) {
  std::string line = fmt::format(R"({{"step": {}, "context_tokens": {}, "generation_requests": {})",
                                 step.step, step.context_tokens, step.generation_requests);
  const auto out = std::back_inserter(line);
  if (step.tokens) fmt::format_to(out, R"(, "tokens": {})", *step.tokens);
  if (step.sequences) fmt::format_to(out, R"(, "sequences": {})", *step.sequences);
  if (step.kv_tokens) fmt::format_to(out, R"(, "kv_tokens": {})", *step.kv_tokens);
  if (!step.mode.empty()) fmt::format_to(out, R"(, "mode": "{}")", step.mode);
  if (step.bucket) fmt::format_to(out, R"(, "bucket": {})", *step.bucket);
  if (step.padding) fmt::format_to(out, R"(, "padding": {})", *step.padding);
  if (!step.reason.empty()) fmt::format_to(out, R"(, "reason": "{}")", step.reason);
  if (step.host_us) fmt::format_to(out, R"(, "host_us": {:.1f})", *step.host_us);
  if (step.gpu_us) fmt::format_to(out, R"(, "gpu_us": {:.1f})", *step.gpu_us);
  return line + '}';
}

StepLogWriter::StepLogWriter(const std::filesystem::path& path)
    : path_(path), file_(std::fopen(path.c_str(), "w")) {
  if (!file_) {
    fail(ErrorKind::kUsage, "cannot write {}: {}", path_.string(), std::strerror(errno));
  }
}

void StepLogWriter::write(LoggedStep step) {
  step.step = num_steps_++;
  const std::string line = to_line(step) + '\n';
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size()) {
    fail(ErrorKind::kUsage, "cannot write {}: {}", path_.string(), std::strerror(errno));
  }
}

void StepLogWriter::flush() {
  if (std::fflush(file_.get()) != 0) {
    fail(ErrorKind::kUsage, "cannot write {}: {}", path_.string(), std::strerror(errno));
  }
}

}  // namespace encore::planning
