#include "text/answer/call_scanner.h"

#include <optional>
#include <string>
#include <utility>

#include <boost/json/basic_parser_impl.hpp>

namespace encore::text {
namespace {

namespace bj = boost::json;

constexpr size_t kMaxDepth = 64;

bool is_call_key(std::string_view key) {
  return key == "name" || key == "arguments" || key == "parameters" || key == "type" || key == "id";
}

}  // namespace

// Follows the parser's events through the object and picks out the call's name and arguments.
class CallScanner::Handler {
 public:
  // NOLINTBEGIN(readability-identifier-naming): what the parser asks for
  static constexpr size_t max_object_size = size_t(-1);
  static constexpr size_t max_array_size = size_t(-1);
  static constexpr size_t max_key_size = size_t(-1);
  static constexpr size_t max_string_size = size_t(-1);
  // NOLINTEND(readability-identifier-naming)

  explicit Handler(CallRules rules) : rules_(std::move(rules)) {}

  [[nodiscard]] const std::optional<std::string>& name() const { return name_; }
  [[nodiscard]] bool is_complete() const { return is_complete_; }
  // Returns whether the parser is within arguments that are an object.
  [[nodiscard]] bool is_in_arguments() const { return is_in_arguments_; }
  [[nodiscard]] bool has_arguments() const { return has_arguments_; }
  // Returns the content of the arguments where the call writes them as a string.
  [[nodiscard]] const std::string& arguments_text() const { return arguments_text_; }

  bool on_document_begin(bj::error_code& /*ec*/) { return true; }
  bool on_document_end(bj::error_code& /*ec*/) { return true; }
  bool on_object_begin(bj::error_code& ec) {
    if (depth_ == 1 && is_name()) return stop(ec);
    if (depth_ == 1 && is_arguments()) is_in_arguments_ = has_arguments_ = true;
    ++depth_;
    return true;
  }
  bool on_object_end(size_t /*n*/, bj::error_code& ec) {
    --depth_;
    if (depth_ == 1) is_in_arguments_ = false;
    is_complete_ = depth_ == 0;
    return !is_complete_ || name_.has_value() || stop(ec);
  }
  bool on_array_begin(bj::error_code& ec) {
    if (depth_ == 0) return stop(ec);
    if (!takes_value(ec)) return false;
    ++depth_;
    return true;
  }
  bool on_array_end(size_t /*n*/, bj::error_code& /*ec*/) {
    --depth_;
    return true;
  }
  bool on_key_part(bj::string_view part, size_t /*n*/, bj::error_code& /*ec*/) {
    if (depth_ == 1) text_.append(part.data(), part.size());
    return true;
  }
  bool on_key(bj::string_view part, size_t /*n*/, bj::error_code& ec) {
    if (depth_ != 1) return true;
    text_.append(part.data(), part.size());
    key_ = std::exchange(text_, "");
    if (rules_.refuses_other_keys && !is_call_key(key_)) return stop(ec);
    return true;
  }
  bool on_string_part(bj::string_view part, size_t /*n*/, bj::error_code& /*ec*/) {
    if (depth_ == 1) text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(bj::string_view part, size_t /*n*/, bj::error_code& ec) {
    if (depth_ == 0) return stop(ec);
    if (depth_ != 1) return true;
    text_.append(part.data(), part.size());
    std::string text = std::exchange(text_, "");
    if (is_name()) {
      if (!rules_.accepts(text)) return stop(ec);
      name_ = std::move(text);
    } else if (is_arguments()) {
      has_arguments_ = true;
      arguments_text_ = text.empty() ? "{}" : std::move(text);
    }
    return true;
  }
  bool on_number_part(bj::string_view /*part*/, bj::error_code& /*ec*/) { return true; }
  bool on_int64(int64_t /*number*/, bj::string_view /*part*/, bj::error_code& ec) {
    return takes_value(ec);
  }
  bool on_uint64(uint64_t /*number*/, bj::string_view /*part*/, bj::error_code& ec) {
    return takes_value(ec);
  }
  bool on_double(double /*number*/, bj::string_view /*part*/, bj::error_code& ec) {
    return takes_value(ec);
  }
  bool on_bool(bool /*flag*/, bj::error_code& ec) { return takes_value(ec); }
  bool on_null(bj::error_code& ec) { return (depth_ == 1 && !is_name()) || takes_value(ec); }
  bool on_comment_part(bj::string_view /*part*/, bj::error_code& /*ec*/) { return true; }
  bool on_comment(bj::string_view /*part*/, bj::error_code& /*ec*/) { return true; }

 private:
  [[nodiscard]] bool is_name() const { return key_ == "name" && !name_; }
  [[nodiscard]] bool is_arguments() const {
    return (key_ == "arguments" || key_ == "parameters") && !has_arguments_;
  }
  static bool stop(bj::error_code& ec) {
    ec = bj::error::syntax;
    return false;
  }
  // Accepts a value within the arguments or under a key that is not a call's. Stops the parser
  // where the call's name or arguments have this value, since they need a string or an object.
  bool takes_value(bj::error_code& ec) const {
    return depth_ > 1 || (depth_ == 1 && !is_name() && !is_arguments()) || stop(ec);
  }

  CallRules rules_;
  int depth_ = 0;
  std::string text_;  // of an incomplete key or string of the outer object
  std::string key_;   // the key of the outer object whose value is next
  std::optional<std::string> name_;
  bool is_complete_ = false;
  bool is_in_arguments_ = false;
  bool has_arguments_ = false;
  std::string arguments_text_;
};

struct CallScanner::Impl {
  explicit Impl(CallRules rules) : parser(options(), std::move(rules)) {}

  static bj::parse_options options() {
    bj::parse_options options;
    options.max_depth = kMaxDepth;
    return options;
  }

  bj::basic_parser<Handler> parser;
  std::string arguments;  // arguments that wait until the name is known
  bool has_begun = false;
};

CallScanner::CallScanner(CallRules rules) : impl_(std::make_unique<Impl>(std::move(rules))) {}
CallScanner::CallScanner(CallScanner&&) noexcept = default;
CallScanner& CallScanner::operator=(CallScanner&&) noexcept = default;
CallScanner::~CallScanner() = default;

bool CallScanner::has_begun() const {
  return impl_->has_begun;
}

CallScanner::State CallScanner::push(char byte, AnswerParts& out) {
  const Handler& handler = impl_->parser.handler();
  const bool was_in_arguments = handler.is_in_arguments();
  const bool had_arguments = handler.has_arguments();
  bj::error_code ec;
  impl_->parser.write_some(true, &byte, 1, ec);
  if (ec) return State::kBroken;
  if (was_in_arguments || handler.is_in_arguments()) {
    impl_->arguments += byte;
  } else if (!had_arguments && handler.has_arguments()) {
    impl_->arguments = handler.arguments_text();
  }
  if (handler.is_complete() && !handler.has_arguments()) impl_->arguments = "{}";
  if (handler.name() && (handler.has_arguments() || handler.is_complete())) {
    if (!impl_->has_begun) append(out, AnswerPart::Kind::kCall, *handler.name());
    impl_->has_begun = true;
    append(out, AnswerPart::Kind::kArguments, std::exchange(impl_->arguments, ""));
  }
  return handler.is_complete() ? State::kComplete : State::kOpen;
}

}  // namespace encore::text
