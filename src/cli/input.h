// Reads files and standard input for the verbs.
#pragma once

#include <cstdint>
#include <string>

namespace encore::cli {

// Reads a whole file; the path "-" means standard input. Errors: those of read_text_file().
std::string read_input(const std::string& path);
// Returns whether standard input is a pipe or a file.
bool is_input_piped();

// Reads the lines of standard input. Threads: one reader a process.
class LineReader {
 public:
  LineReader();

  // Appends the next line to `text`, without the line end. Returns false behind the last line.
  // Errors: kUsage where `text` would become longer than 256 MiB.
  bool append(std::string& text);
  // Returns the number of the line that was appended last, counted from 1.
  [[nodiscard]] int64_t number() const { return number_; }

 private:
  int64_t number_ = 0;
};

}  // namespace encore::cli
