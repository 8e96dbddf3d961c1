// Implements `encore tokenize` and `encore detokenize`, which convert each line of stdin to a line
// of stdout.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "model/gguf/file.h"
#include "setup/open.h"
#include "text/tokenizer.h"

namespace encore::cli {

namespace {

// Sets the size of the pieces in which output is written.
constexpr size_t kFlushBytes = 1 << 16;

struct TokenizeOptions {
  std::string model;
  bool no_special = false;
  bool special = false;
  bool json = false;
};

text::Tokenizer load_tokenizer(const std::string& name) {
  std::filesystem::path path(name);
  if (!std::filesystem::exists(path)) path = setup::model_directory(name);
  if (!model::gguf::is_gguf(path)) return text::Tokenizer::load(path);
  auto tokenizer = setup::open_tokenizer({.config = {}, .checkpoint = path});
  if (!tokenizer) fail(ErrorKind::kModel, "{}: no tokenizer in it", path.string());
  return *std::move(tokenizer);
}

// Calls `convert(line, number, out)` for each line of stdin, and prints `out` with a line end after
// each.
template <typename Convert>
void for_each_line(Convert convert) {
  LineReader lines;
  std::string line;
  std::string out;
  for (; lines.append(line); line.clear()) {
    convert(line, lines.number(), out);
    out.push_back('\n');
    if (out.size() < kFlushBytes) continue;
    print(out);
    out.clear();
  }
  print(out);
}

std::string parse_text(const std::string& line, int64_t number) {
  const std::string where = fmt::format("line {}", number);
  const json::value value = json::parse(line, where);
  if (!value.is_string()) fail(ErrorKind::kUsage, "{}: not a JSON string", where);
  return {value.get_string().data(), value.get_string().size()};
}

void tokenize(const TokenizeOptions& options) {
  const text::Tokenizer tokenizer = load_tokenizer(options.model);
  for_each_line([&](const std::string& line, int64_t number, std::string& out) {
    const std::vector<int32_t> ids =
        tokenizer.encode(options.json ? parse_text(line, number) : line, !options.no_special);
    fmt::format_to(std::back_inserter(out), "[{}]", fmt::join(ids, ","));
  });
}

void detokenize(const TokenizeOptions& options) {
  const text::Tokenizer tokenizer = load_tokenizer(options.model);
  for_each_line([&](const std::string& line, int64_t number, std::string& out) {
    const std::string text =
        tokenizer.decode(parse_ids(line, fmt::format("line {}", number)), !options.special);
    if (options.json) {
      out += boost::json::serialize(boost::json::string_view(text));
    } else {
      out += text;
    }
  });
}

void add_model(Command& verb, TokenizeOptions& options) {
  verb.add_option(
      "--model", options.model,
      "A directory with tokenizer.json, that file itself, or the name of a bundled model");
}

}  // namespace

void add_tokenize(Command& app) {
  Command* verb =
      app.add_subcommand("tokenize", "Token ids of each line of stdin, as a JSON array");
  auto options =
      std::make_shared<TokenizeOptions>();  // shared by the parser's option and the callback
  add_model(*verb, *options);
  verb->add_flag(
      "--no-special", options->no_special,
      "Leave out the tokens that the model expects around a text, such as the begin token");
  verb->add_flag("--json", options->json,
                 "Read each line as a JSON string, so that a text may hold line ends");
  verb->footer("  echo \"Once upon a time\" | encore tokenize");
  verb->callback([options] { tokenize(*options); });
}

void add_detokenize(Command& app) {
  Command* verb =
      app.add_subcommand("detokenize", "The text of each line of stdin, a JSON array of token ids");
  auto options =
      std::make_shared<TokenizeOptions>();  // shared by the parser's option and the callback
  add_model(*verb, *options);
  verb->add_flag("--special", options->special, "Keep special tokens in the text");
  verb->add_flag("--json", options->json,
                 "Write each text as a JSON string, so that it stays on one line");
  verb->footer("  echo \"Once upon a time\" | encore tokenize | encore detokenize");
  verb->callback([options] { detokenize(*options); });
}

}  // namespace encore::cli
