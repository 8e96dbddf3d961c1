#include "server/content_coding.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <variant>

#include <boost/beast/zlib/inflate_stream.hpp>
#include <boost/crc.hpp>
#include <fmt/format.h>

namespace encore::server {
namespace {

namespace zlib = boost::beast::zlib;

enum class GzipProblem : uint8_t { kMalformed, kTooLong };

// Decompresses gzip data, which may consist of several members in a row. Source: RFC 1952.
class GzipReader {
 public:
  GzipReader(std::string_view bytes, uint64_t max_bytes) : rest_(bytes), max_bytes_(max_bytes) {}

  std::variant<std::string, GzipProblem> read() {
    do {
      const size_t start = text_.size();
      if (!skip_header()) return GzipProblem::kMalformed;
      if (const auto problem = inflate()) return *problem;
      if (!check_trailer(std::string_view(text_).substr(start))) return GzipProblem::kMalformed;
    } while (!rest_.empty());
    return std::move(text_);
  }

 private:
  enum Flag : uint8_t { kHeaderCrc = 2, kExtra = 4, kName = 8, kComment = 16, kReserved = 0xe0 };

  [[nodiscard]] uint32_t number(size_t at, size_t num_bytes) const {
    uint32_t value = 0;
    for (size_t i = 0; i < num_bytes; ++i)
      value |= static_cast<uint32_t>(static_cast<uint8_t>(rest_[at + i])) << (8 * i);
    return value;
  }
  bool skip(size_t num_bytes) {
    if (num_bytes > rest_.size()) return false;
    rest_.remove_prefix(num_bytes);
    return true;
  }
  // Skips a text and the zero byte that ends it. Returns false if there is no zero byte.
  bool skip_text() {
    const size_t end = rest_.find('\0');
    return end != std::string_view::npos && skip(end + 1);
  }
  bool skip_header() {
    constexpr std::string_view kMagic = "\x1f\x8b\x08";
    constexpr size_t kFixed = 10;
    if (!rest_.starts_with(kMagic) || rest_.size() < kFixed) return false;
    const auto flags = static_cast<uint8_t>(rest_[kMagic.size()]);
    if ((flags & kReserved) != 0) return false;
    skip(kFixed);
    if ((flags & kExtra) != 0 && (rest_.size() < 2 || !skip(2 + number(0, 2)))) return false;
    if ((flags & kName) != 0 && !skip_text()) return false;
    if ((flags & kComment) != 0 && !skip_text()) return false;
    return (flags & kHeaderCrc) == 0 || skip(2);
  }
  std::optional<GzipProblem> inflate() {
    constexpr size_t kStep = size_t{64} << 10;
    zlib::inflate_stream inflater;
    zlib::z_params state;
    state.next_in = rest_.data();
    state.avail_in = rest_.size();
    boost::system::error_code error;
    while (!error) {
      const size_t size = text_.size();
      text_.resize(std::min(size + kStep, max_bytes_ + 1));
      state.next_out = text_.data() + size;
      state.avail_out = text_.size() - size;
      inflater.write(state, zlib::Flush::none, error);
      text_.resize(text_.size() - state.avail_out);
      if (text_.size() > max_bytes_) return GzipProblem::kTooLong;
    }
    if (error != zlib::error::end_of_stream) return GzipProblem::kMalformed;
    // The low bits of data_type hold the number of bits that the inflater has read but not used.
    // The whole bytes among these bits belong to what follows the deflated data, so they are
    // returned to `rest_`.
    constexpr int kUnusedBits = 63;
    const size_t unused = static_cast<size_t>(state.data_type & kUnusedBits) / 8;
    rest_ = rest_.substr(rest_.size() - state.avail_in - unused);
    return std::nullopt;
  }
  bool check_trailer(std::string_view text) {
    constexpr size_t kTrailer = 8;
    if (rest_.size() < kTrailer) return false;
    boost::crc_32_type crc;
    crc.process_bytes(text.data(), text.size());
    const bool is_whole =
        number(0, 4) == crc.checksum() && number(4, 4) == (text.size() & UINT32_MAX);
    return is_whole && skip(kTrailer);
  }

  std::string_view rest_;
  uint64_t max_bytes_;
  std::string text_;
};

}  // namespace

std::optional<ApiError> decode_body(HttpRequest& request, uint64_t max_bytes) {
  const std::string* coding = request.header("content-encoding");
  const bool is_plain =
      coding == nullptr || coding->empty() || equal_ignoring_case(*coding, "identity");
  if (is_plain || request.body.empty()) return std::nullopt;
  if (!equal_ignoring_case(*coding, "gzip") && !equal_ignoring_case(*coding, "x-gzip")) {
    return ApiError{.status = 415,
                    .message = fmt::format("the Content-Encoding {} is not supported: send the "
                                           "body in gzip, or as it is",
                                           escaped(*coding)),
                    .code = "unsupported_encoding",
                    .headers = {{"Accept-Encoding", "gzip"}}};
  }
  auto text = GzipReader(request.body, max_bytes).read();
  if (auto* whole = std::get_if<std::string>(&text)) {
    request.body = std::move(*whole);
    return std::nullopt;
  }
  if (std::get<GzipProblem>(text) == GzipProblem::kTooLong)
    return ApiError{.status = 413, .message = "the request's body is too large once unpacked"};
  return bad_request("the body is not gzip, as its Content-Encoding says it is", "",
                     "invalid_encoding");
}

}  // namespace encore::server
