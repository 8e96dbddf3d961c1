// Writes the step log (planning/step_log.h) to a file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "planning/step_log.h"

namespace encore::planning {

// Returns the log line of a step, without its line end.
std::string to_line(const LoggedStep& step);

// Writes a log. After each flush(), the file has whole lines only.
// Threads: one.
class StepLogWriter {
 public:
  // Creates the file. Errors: kUsage when it cannot be created.
  explicit StepLogWriter(const std::filesystem::path& path);

  // Writes the step with the next number. Errors: kUsage when the disk is full.
  void write(LoggedStep step);
  void flush();

 private:
  struct Close {
    void operator()(FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<FILE, Close> file_;
  int64_t num_steps_ = 0;
};

}  // namespace encore::planning
