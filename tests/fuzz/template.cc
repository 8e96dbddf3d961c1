// Checks that any bytes are parsed as a template or refused with an error, and that a template
// renders a conversation, or fails with a message, within its limits.
#include "text/jinja/template.h"

#include "base/error.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace encore;
  static const json::object variables = json::parse(R"({"messages": [{"role": "user", "content":
      "Hi \u00e4"}, {"role": "assistant", "content": [{"type": "text", "text": "Ho"}], "n": 1.5}],
      "tools": [{"name": "f", "parameters": {"type": "object"}}], "add_generation_prompt": true,
      "bos_token": "<s>", "eos_token": "</s>"})",
                                                    "variables")
                                            .as_object();
  try {
    const auto parsed =
        text::jinja::Template::parse({reinterpret_cast<const char*>(data), size}, "input");
    const text::jinja::Limits limits;
    const auto result = parsed.render(variables, limits, {});
    if (const auto* failure = std::get_if<text::jinja::Failure>(&result))
      ENCORE_CHECK(!failure->message.empty());
  } catch (const Error&) {
  }
  return 0;
}
