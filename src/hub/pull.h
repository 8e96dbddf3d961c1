// Fetches a model from the hub into the cache, in the layout of Hugging Face's own tools.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace encore::hub {

struct PullOptions {
  std::filesystem::path cache;
  std::string endpoint = "https://huggingface.co";
  std::string token;  // sent only to the endpoint; empty: none
  // `on_progress` is called as bytes arrive, with the file's name, its bytes so far and its size.
  std::function<void(std::string_view file, int64_t done, int64_t total)> on_progress;
};

// Fetches the files that Encore reads of ORG/NAME at refs/main: configuration, tokenizer, templates
// and safetensors. Each is checked by the hash that the hub names. Files in the cache are not
// fetched again, and a file whose transfer broke off continues where it ended. Returns the
// snapshot's directory.
// Errors: kUsage for an invalid name; kModel where the hub cannot be reached (with the command that
// fetches the model elsewhere), has no such model, denies access to it, or sends a file with
// another hash.
std::filesystem::path pull(const std::string& name, const PullOptions& options);

}  // namespace encore::hub
