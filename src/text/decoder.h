// The decoder of a tokenizer file: turns the texts of tokens back into text, piece by piece.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace boost::json {
class value;
}

namespace encore::text {

// One step on the way from token texts to text. A stage holds back the text that later tokens can
// still change.
class DecoderStage {
 public:
  using Emit = std::function<void(std::string_view)>;

  virtual ~DecoderStage() = default;
  virtual void push(std::string_view token, const Emit& emit) = 0;
  // Emits the text that the stage holds back. The stage is not used afterwards.
  virtual void finish(const Emit& emit) { static_cast<void>(emit); }
  // Changes `token` to the bytes into which the stage turns it in the midst of a text. The bytes
  // need not be whole characters.
  virtual void to_bytes(std::string& token) const { static_cast<void>(token); }
};

// Holds the state of decoding the tokens of one sequence. Threads: one at a time.
class DecoderStream {
 public:
  explicit DecoderStream(std::vector<std::unique_ptr<DecoderStage>> stages);

  // Appends to `out` the text that no later token can change.
  void push(std::string_view token, std::string& out);
  // Appends the text that is still held back.
  void finish(std::string& out);

 private:
  void push_from(size_t stage, std::string_view token, std::string& out);

  std::vector<std::unique_ptr<DecoderStage>> stages_;
};

// A decoder is a list of stages. Threads: immutable after parse.
class Decoder {
 public:
  // Parses `json`, the "decoder" of a tokenizer file. A decoder of null joins tokens by spaces.
  // `where` names it in messages. Errors: kModel on a bad entry, kUnsupported on a kind that Encore
  // does not have.
  static Decoder parse(const boost::json::value& json, const std::string& where);

  [[nodiscard]] DecoderStream start() const;
  // Returns the bytes that a token adds in the midst of a text. Errors: kUnsupported where the
  // decoder joins tokens by spaces, so that no token stands for bytes of its own.
  [[nodiscard]] std::string bytes_of(std::string_view token) const;

 private:
  using MakeStage = std::function<std::unique_ptr<DecoderStage>()>;

  std::vector<MakeStage> stages_;
};

}  // namespace encore::text
