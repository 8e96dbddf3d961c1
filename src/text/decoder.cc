#include "text/decoder.h"

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "text/normalizer.h"
#include "text/sequence.h"
#include "text/unicode.h"

namespace encore::text {

namespace {

using Emit = DecoderStage::Emit;

// A stage that rewrites each token on its own, by one function.
class PerToken final : public DecoderStage {
 public:
  explicit PerToken(std::function<void(std::string&)> rewrite) : rewrite_(std::move(rewrite)) {}
  void push(std::string_view token, const Emit& emit) override {
    text_ = token;
    rewrite_(text_);
    emit(text_);
  }
  void to_bytes(std::string& token) const override { rewrite_(token); }

 private:
  std::function<void(std::string&)> rewrite_;
  std::string text_;
};

// Runs a stage that needs whole tokens behind a stage that yields all text as a single token: it
// collects the text and passes it on at the end.
class Buffered final : public DecoderStage {
 public:
  explicit Buffered(std::unique_ptr<DecoderStage> stage) : stage_(std::move(stage)) {}
  void push(std::string_view token, const Emit& /*emit*/) override { text_ += token; }
  void finish(const Emit& emit) override {
    stage_->push(text_, emit);
    stage_->finish(emit);
  }
  void to_bytes(std::string& token) const override { stage_->to_bytes(token); }

 private:
  std::unique_ptr<DecoderStage> stage_;
  std::string text_;
};

class JoinBySpaces final : public DecoderStage {
 public:
  void push(std::string_view token, const Emit& emit) override {
    if (!is_first_) emit(" ");
    is_first_ = false;
    emit(token);
  }
  void to_bytes(std::string& /*token*/) const override {
    fail(ErrorKind::kUnsupported,
         "the tokenizer joins tokens by spaces, so that answers cannot be held to a grammar");
  }

 private:
  bool is_first_ = true;
};

class Fuse final : public DecoderStage {
 public:
  void push(std::string_view token, const Emit& emit) override { emit(token); }
};

// Turns the text that Metaspace writes for a space back into a space. Where `drops_first`, it drops
// these spaces from the first token.
class MetaspaceDecoder final : public DecoderStage {
 public:
  MetaspaceDecoder(std::string replacement, bool drops_first)
      : replacement_(std::move(replacement)), is_first_(drops_first) {}
  void push(std::string_view token, const Emit& emit) override {
    text_.clear();
    size_t begin = 0;
    for (size_t at = token.find(replacement_); at != std::string_view::npos;
         at = token.find(replacement_, begin)) {
      text_ += token.substr(begin, at - begin);
      if (!is_first_) text_.push_back(' ');
      begin = at + replacement_.size();
    }
    text_ += token.substr(begin);
    is_first_ = false;
    emit(text_);
  }
  void to_bytes(std::string& token) const override {
    for (size_t at = token.find(replacement_); at != std::string::npos;
         at = token.find(replacement_, at + 1))
      token.replace(at, replacement_.size(), " ");
  }

 private:
  std::string replacement_;
  bool is_first_;
  std::string text_;
};

class ByteLevelDecoder final : public DecoderStage {
 public:
  void push(std::string_view token, const Emit& emit) override {
    bytes_.clear();
    text_.clear();
    stream_.push(append_byte_level_bytes(token, bytes_) ? std::string_view(bytes_) : token, text_);
    emit(text_);
  }
  void finish(const Emit& emit) override {
    text_.clear();
    stream_.finish(text_);
    emit(text_);
  }
  void to_bytes(std::string& token) const override {
    std::string bytes;
    if (append_byte_level_bytes(token, bytes)) token = std::move(bytes);
  }

 private:
  Utf8Stream stream_;
  std::string bytes_;
  std::string text_;
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

// Turns tokens like <0xE2> into bytes. Only the end of a run of such tokens shows whether the run
// is UTF-8; where it is not, every byte of the run becomes U+FFFD.
class ByteFallback final : public DecoderStage {
 public:
  void push(std::string_view token, const Emit& emit) override {
    if (const auto byte = byte_of(token)) {
      run_.push_back(*byte);
      return;
    }
    finish(emit);
    emit(token);
  }
  void finish(const Emit& emit) override {
    if (run_.empty()) return;
    if (is_valid_utf8(run_)) {
      emit(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i)
        emit(kReplacementCharacter);
    }
    run_.clear();
  }
  void to_bytes(std::string& token) const override {
    if (const auto byte = byte_of(token)) token.assign(1, *byte);
  }

 private:
  std::string run_;
};

// Removes the character `content` from both ends of each token, or of the one fused text: up to
// `start` times at the front and up to `stop` times at the back.
class Strip final : public DecoderStage {
 public:
  Strip(std::string content, int64_t start, int64_t stop, bool is_fused)
      : content_(std::move(content)), start_(start), stop_(stop), is_fused_(is_fused) {}

  void push(std::string_view token, const Emit& emit) override {
    if (!is_fused_) {
      left_ = start_;
      held_ = 0;
    }
    while (left_ > 0 && token.starts_with(content_)) {
      token.remove_prefix(content_.size());
      --left_;
    }
    if (token.empty()) return is_fused_ ? void() : emit(token);
    left_ = 0;
    int64_t trailing = 0;
    while (token.ends_with(content_)) {
      token.remove_suffix(content_.size());
      ++trailing;
    }
    text_.clear();
    // Characters held back from the token before were not at the end of the text if other text
    // follows them. If the token consists of `content` only, the held characters and the token form
    // one longer run.
    const int64_t run = token.empty() ? held_ + trailing : trailing;
    if (!token.empty()) append(held_);
    text_ += token;
    held_ = std::min(run, stop_);
    append(run - held_);
    emit(text_);
  }
  // Strips one token. A fused text is stripped at its own two ends only, so a token in its midst
  // stays as it is.
  void to_bytes(std::string& token) const override {
    if (is_fused_) return;
    for (int64_t i = 0; i < start_ && token.starts_with(content_); ++i)
      token.erase(0, content_.size());
    for (int64_t i = 0; i < stop_ && token.ends_with(content_); ++i)
      token.erase(token.size() - content_.size());
  }

 private:
  void append(int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      text_ += content_;
  }

  std::string content_;
  int64_t start_;
  int64_t stop_;
  bool is_fused_;
  int64_t left_ = start_;
  int64_t held_ = 0;
  std::string text_;
};

std::function<std::unique_ptr<DecoderStage>()> parse_strip(const json::Object& object,
                                                           bool is_fused) {
  std::string content = object.string_at("content");
  const int64_t start = object.int_at("start");
  const int64_t stop = object.int_at("stop");
  if (content.empty() || start < 0 || stop < 0) {
    fail(ErrorKind::kModel, "{}: Strip needs a character and counts", object.where());
  }
  return [=] { return std::make_unique<Strip>(content, start, stop, is_fused); };
}

std::function<std::unique_ptr<DecoderStage>()> parse_metaspace(const json::Object& object) {
  std::string replacement = object.string_at("replacement");
  if (replacement.empty()) fail(ErrorKind::kModel, "{}: an empty replacement", object.where());
  const bool drops_first = object.bool_or("add_prefix_space", true) &&
                           object.string_or("prepend_scheme", "always") != "never";
  return [=] { return std::make_unique<MetaspaceDecoder>(replacement, drops_first); };
}

template <typename Stage>
std::unique_ptr<DecoderStage> make_stage() {
  return std::make_unique<Stage>();
}

}  // namespace

Decoder Decoder::parse(const boost::json::value& json, const std::string& where) {
  Decoder decoder;
  if (json.is_null()) {
    decoder.stages_.emplace_back(make_stage<JoinBySpaces>);
    return decoder;
  }
  bool is_fused = false;  // an earlier stage makes one token of all text
  for (const SequenceStep& step : steps_of(json, "decoders", where)) {
    const json::Object object(*step.json, where);
    MakeStage make;
    bool needs_whole = is_fused;
    if (step.type == "ByteLevel") {
      make = make_stage<ByteLevelDecoder>;
    } else if (step.type == "ByteFallback") {
      make = make_stage<ByteFallback>;
    } else if (step.type == "Replace") {
      make = [rewrite = parse_replace(*step.json, where)] {
        return std::make_unique<PerToken>(rewrite);
      };
    } else if (step.type == "Metaspace") {
      make = parse_metaspace(object);
    } else if (step.type == "Strip") {
      make = parse_strip(object, is_fused);
      needs_whole = false;
    } else if (step.type == "Fuse") {
      make = make_stage<Fuse>;
      needs_whole = false;
    } else {
      fail(ErrorKind::kUnsupported, "{}: decoder '{}'", where, step.type);
    }
    if (needs_whole) make = [make] { return std::make_unique<Buffered>(make()); };
    decoder.stages_.push_back(std::move(make));
    is_fused = is_fused || step.type == "Fuse" || step.type == "ByteLevel";
  }
  return decoder;
}

DecoderStream Decoder::start() const {
  std::vector<std::unique_ptr<DecoderStage>> stages;
  stages.reserve(stages_.size());
  for (const MakeStage& make : stages_)
    stages.push_back(make());
  return DecoderStream(std::move(stages));
}

std::string Decoder::bytes_of(std::string_view token) const {
  std::string bytes(token);
  for (const MakeStage& make : stages_)
    make()->to_bytes(bytes);
  return bytes;
}

DecoderStream::DecoderStream(std::vector<std::unique_ptr<DecoderStage>> stages)
    : stages_(std::move(stages)) {}

void DecoderStream::push_from(size_t stage, std::string_view token, std::string& out) {
  if (stage == stages_.size()) {
    out += token;
    return;
  }
  stages_[stage]->push(token, [&](std::string_view text) { push_from(stage + 1, text, out); });
}

void DecoderStream::push(std::string_view token, std::string& out) {
  push_from(0, token, out);
}

void DecoderStream::finish(std::string& out) {
  for (size_t i = 0; i < stages_.size(); ++i) {
    stages_[i]->finish([&](std::string_view text) { push_from(i + 1, text, out); });
  }
}

}  // namespace encore::text
