// Checks that any bytes are parsed as JSON or refused with an error, and that parsed JSON can be
// written and read again.
#include "base/json.h"

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace encore;
  try {
    // Only the second and third texts are compared, because -0.0 is written as -0, which reads as
    // the integer 0.
    const std::string first =
        json::to_text(json::parse({reinterpret_cast<const char*>(data), size}, "input"));
    const std::string text = json::to_text(json::parse(first, "first"));
    ENCORE_CHECK(json::to_text(json::parse(text, "text")) == text);
  } catch (const Error&) {
  }
  return 0;
}
