// Implements `encore bench tokenize`, which compares the tokenizer's speed on one thread with that
// of the `tokenizers` package.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/statistics.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "setup/open.h"
#include "text/tokenizer.h"

namespace encore::cli {

namespace {

constexpr size_t kSampleBytes = 4 << 20;

struct BenchTokenizeOptions {
  std::string model;
  std::string file;
  std::string peer;
  std::string peer_script = "tools/tokenizers/peer.py";
  int repeats = 7;
  bool json = false;
};

struct TokenizeSpeed {
  int64_t num_tokens = 0;
  double seconds = 0;  // median over the passes
};

// Returns a text of sentences, code and other scripts, with frequent and rare words as in real
// text.
std::string sample_text() {
  std::mt19937_64 random(1);
  const auto draw = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<std::string> words;
  for (int i = 0; i < 20000; ++i) {
    std::string word;
    for (size_t n = 1 + draw(4); n > 0; --n) {
      static constexpr const char* kSyllables[] = {
          "the", "an",  "in", "er", "re", "st",  "con", "tion", "ing", "al", "to", "men",
          "de",  "pro", "li", "qu", "o",  "ver", "ß",   "é",    "ль",  "но", "の", "中"};
      word += kSyllables[draw(i % 9 == 0 ? std::size(kSyllables) : 18)];
    }
    words.push_back(word);
  }
  std::string text;
  while (text.size() < kSampleBytes) {
    for (size_t n = 4 + draw(16); n > 0; --n) {
      // The cube of a uniform random number chooses the word, so that the first words are the most
      // frequent.
      const double u = static_cast<double>(random() >> 11U) * 0x1p-53;
      text += words[static_cast<size_t>(u * u * u * static_cast<double>(words.size()))];
      static constexpr const char* kGaps[] = {" ",  " ",  " ",      " ",      " ",  " ",
                                              ", ", ". ", "'s ",    "(",      ") ", " = ",
                                              "  ", "\t", " 1024 ", "! 🙂 "};
      text += kGaps[draw(std::size(kGaps))];
    }
    text += '\n';
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

TokenizeSpeed time_encore(const text::Tokenizer& tokenizer,
                          const std::vector<std::string_view>& lines, int repeats) {
  TokenizeSpeed speed;
  std::vector<double> seconds;
  for (int i = 0; i <= repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    speed.num_tokens = 0;
    for (const std::string_view line : lines) {
      speed.num_tokens += static_cast<int64_t>(tokenizer.encode(line, false).size());
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (i > 0) seconds.push_back(elapsed.count());  // the first pass only warms up
  }
  speed.seconds = median(seconds);
  return speed;
}

std::string quoted(const std::string& argument) {
  std::string out = "'";
  for (const char c : argument)
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

TokenizeSpeed time_peer(const BenchTokenizeOptions& options,
                        const std::filesystem::path& tokenizer_json,
                        const std::filesystem::path& text_path) {
  const std::string command =
      fmt::format("{} {} {} {} {}", quoted(options.peer), quoted(options.peer_script),
                  quoted(tokenizer_json.string()), quoted(text_path.string()), options.repeats);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) fail(ErrorKind::kUsage, "could not run {}", command);
  std::string output;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    output.append(buffer, n);
  if (pclose(pipe) != 0) {
    fail(ErrorKind::kUsage, "{} failed; it needs the Python package tokenizers", command);
  }
  const json::value value = json::parse(output, options.peer_script);
  const json::Object result(value, options.peer_script);
  std::vector<double> seconds;
  for (const json::value& item : result.at("seconds").as_array()) {
    seconds.push_back(item.to_number<double>());
  }
  return {result.int_at("tokens"), median(seconds)};
}

// Writes the text to a temporary file, which the `tokenizers` package reads, and removes the file
// in the destructor.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    std::string pattern = (std::filesystem::temp_directory_path() / "encore-text-XXXXXX").string();
    const int descriptor = mkstemp(pattern.data());
    if (descriptor < 0) fail(ErrorKind::kUsage, "could not write to {}", pattern);
    path_ = pattern;
    FILE* file = fdopen(descriptor, "w");
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !written) fail(ErrorKind::kUsage, "could not write {}", pattern);
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void print_speed(std::string_view name, const TokenizeSpeed& speed, size_t num_bytes) {
  fmt::print("{:<12} {:8.2f} MB/s {:8.3f} million tokens/s   {} tokens\n", name,
             static_cast<double>(num_bytes) / speed.seconds / 1e6,
             static_cast<double>(speed.num_tokens) / speed.seconds / 1e6, speed.num_tokens);
}

json::object to_json(const TokenizeSpeed& speed, size_t num_bytes) {
  return {{"mb_per_s", static_cast<double>(num_bytes) / speed.seconds / 1e6},
          {"tokens_per_s", static_cast<double>(speed.num_tokens) / speed.seconds},
          {"tokens", speed.num_tokens},
          {"seconds", speed.seconds}};
}

void bench_tokenize(const BenchTokenizeOptions& options) {
  const std::filesystem::path given(options.model);
  const std::filesystem::path model =
      std::filesystem::exists(given) ? given : setup::model_directory(options.model);
  const std::filesystem::path tokenizer_json =
      std::filesystem::is_directory(model) ? model / "tokenizer.json" : model;
  const text::Tokenizer tokenizer = text::Tokenizer::load(tokenizer_json);
  const std::string text = options.file.empty() ? sample_text() : json::read_file(options.file);
  const std::vector<std::string_view> lines = split_lines(text);
  if (lines.empty()) fail(ErrorKind::kUsage, "{} is empty", options.file);

  const TokenizeSpeed encore = time_encore(tokenizer, lines, options.repeats);
  std::optional<TokenizeSpeed> peer;
  if (!options.peer.empty()) {
    const TemporaryFile file(text);
    peer = time_peer(options, tokenizer_json, file.path());
    if (peer->num_tokens != encore.num_tokens) {
      fail(ErrorKind::kModel, "{}: Encore makes {} tokens of the text, the tokenizers package {}",
           tokenizer_json.string(), encore.num_tokens, peer->num_tokens);
    }
  }
  const double ratio = peer ? peer->seconds / encore.seconds : 0;
  if (options.json) {
    json::object result{{"verb", "bench tokenize"},
                        {"model", tokenizer_json.string()},
                        {"bytes", text.size()},
                        {"lines", lines.size()},
                        {"encore", to_json(encore, text.size())}};
    if (peer) {
      result["peer"] = to_json(*peer, text.size());
      result["ratio"] = ratio;
    }
    print(json::to_text(result) + "\n");
    return;
  }
  fmt::print("{} lines, {:.1f} MB, one thread, median of {}\n", lines.size(),
             static_cast<double>(text.size()) / 1e6, options.repeats);
  print_speed("encore", encore, text.size());
  if (!peer) return;
  print_speed("tokenizers", *peer, text.size());
  fmt::print("ratio        {:8.2f}\n", ratio);
}

}  // namespace

void add_bench_tokenize(Command& bench) {
  Command* verb = bench.add_subcommand("tokenize", "Tokenizer speed, line by line on one thread");
  auto options =
      std::make_shared<BenchTokenizeOptions>();  // shared by the parser's options and the callback
  verb->add_option(
      "--model", options->model,
      "A directory with tokenizer.json, that file itself, or the name of a bundled model");
  verb->add_option("--file", options->file, "The text, UTF-8; 4 MB of generated text when absent");
  verb->add_option("--repeats", options->repeats, "Passes over the text, after one to warm up")
      ->range(1, 1000)
      ->capture_default_str();
  verb->add_option("--peer", options->peer,
                   "A Python that has the package tokenizers, to time on the same text");
  verb->add_option("--peer-script", options->peer_script, "What that Python runs")
      ->capture_default_str();
  verb->add_flag("--json", options->json, "Print the result as JSON");
  verb->callback([options] { bench_tokenize(*options); });
}

}  // namespace encore::cli
