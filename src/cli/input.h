// Reads files and standard input for the verbs.
#pragma once

#include <cstdint>
#include <string>

namespace encore::cli {

// Reads a whole file; "-" is standard input. Errors: those of read_text_file().
std::string read_input(const std::string& path);
// Does standard input hold something for this process: a pipe or a file?
bool is_input_piped();

// Reads the lines of standard input. Threads: one reader a process.
class LineReader {
 public:
  LineReader();

  // Appends the next line, without its end; false behind the last.
  // Errors: kUsage where `text` would become longer than 256 MiB.
  bool append(std::string& text);
  // The number of the line that was appended last, from 1.
  [[nodiscard]] int64_t number() const { return number_; }

 private:
  int64_t number_ = 0;
};

}  // namespace encore::cli
