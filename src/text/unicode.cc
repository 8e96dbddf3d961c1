#include "text/unicode.h"

#include <array>
#include <cstring>
#include <memory>

namespace encore::text {

namespace {

std::unique_ptr<uint8_t[]> build_char_classes() {
  auto table = std::make_unique<uint8_t[]>(kNumCodePoints);
  for (int i = 0; i < kNumCharClassRanges; ++i) {
    const uint32_t start = kCharClassRanges[i] >> 8U;
    const uint32_t end =
        i + 1 < kNumCharClassRanges ? kCharClassRanges[i + 1] >> 8U : kNumCodePoints;
    std::memset(table.get() + start, static_cast<int>(kCharClassRanges[i] & 0xffU), end - start);
  }
  return table;
}

// The alphabet of byte-level vocabularies: a printable character of Latin-1 stands for its own
// byte, and U+0100 and up stand for the other bytes in order.
struct ByteAlphabet {
  std::array<uint16_t, 256> char_of_byte{};
  std::array<int16_t, 324> byte_of_char{};

  constexpr ByteAlphabet() {
    for (auto& byte : byte_of_char)
      byte = -1;
    uint16_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
      char_of_byte[byte] = printable ? static_cast<uint16_t>(byte) : next++;
      byte_of_char[char_of_byte[byte]] = static_cast<int16_t>(byte);
    }
  }
};

constexpr ByteAlphabet kByteAlphabet;

}  // namespace

const uint8_t* char_classes() {
  static const std::unique_ptr<uint8_t[]> table = build_char_classes();
  return table.get();
}

void append_utf8(uint32_t code_point, std::string& out) {
  const auto tail = [&](uint32_t shift) {
    out.push_back(static_cast<char>(0x80U | (code_point >> shift & 0x3fU)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xc0U | code_point >> 6U));
    tail(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xe0U | code_point >> 12U));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xf0U | code_point >> 18U));
    tail(12);
    tail(6);
    tail(0);
  }
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  size_t i = 0;
  while (i < bytes.size()) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (num_missing_ > 0) {
      if (byte < lowest_ || byte > highest_) {
        out += kReplacementCharacter;
        num_pending_ = num_missing_ = 0;
        continue;  // `byte` may begin a character of its own
      }
      pending_[num_pending_++] = byte;
      lowest_ = 0x80;
      highest_ = 0xbf;
      if (--num_missing_ == 0) {
        out.append(reinterpret_cast<const char*>(pending_), num_pending_);
        num_pending_ = 0;
      }
    } else if (byte < 0x80) {
      out.push_back(static_cast<char>(byte));
    } else if (byte < 0xc2 || byte > 0xf4) {
      out += kReplacementCharacter;
    } else {
      pending_[num_pending_++] = byte;
      num_missing_ = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
      // lowest_ and highest_ bound the second byte of the character. They refuse overlong forms,
      // surrogates and all code points above U+10FFFF.
      lowest_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
      highest_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    }
    ++i;
  }
}

void Utf8Stream::finish(std::string& out) {
  if (num_missing_ > 0) out += kReplacementCharacter;
  num_pending_ = num_missing_ = 0;
}

bool is_valid_utf8(std::string_view bytes) {
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  const auto* end = p + bytes.size();
  while (p < end) {
    uint64_t block = 0;
    if (end - p >= 8) {
      std::memcpy(&block, p, 8);
      if ((block & 0x8080808080808080U) == 0) {
        p += 8;
        continue;
      }
    }
    const uint8_t lead = *p;
    if (lead < 0x80) {
      ++p;
      continue;
    }
    const int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (lead < 0xc2 || lead > 0xf4 || end - p < length) return false;
    const uint8_t lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < lowest || p[1] > highest) return false;
    for (int i = 2; i < length; ++i) {
      if ((p[i] & 0xc0U) != 0x80) return false;
    }
    p += length;
  }
  return true;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  Utf8Stream stream;
  stream.push(bytes, out);
  stream.finish(out);
  return out;
}

bool append_byte_level_bytes(std::string_view token, std::string& out) {
  const size_t size_before = out.size();
  const char* end = token.data() + token.size();
  for (const char* p = token.data(); p < end;) {
    const CodePoint c = decode_utf8(p);
    if (c.value >= kByteAlphabet.byte_of_char.size() || kByteAlphabet.byte_of_char[c.value] < 0) {
      out.resize(size_before);
      return false;
    }
    out.push_back(static_cast<char>(kByteAlphabet.byte_of_char[c.value]));
    p += c.num_bytes;
  }
  return true;
}

void append_byte_level_text(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    append_utf8(kByteAlphabet.char_of_byte[static_cast<uint8_t>(byte)], out);
  }
}

}  // namespace encore::text
