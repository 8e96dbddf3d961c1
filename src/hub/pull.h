// Fetches a model from the hub into the cache, as Hugging Face's own tools lay it out.
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
  std::string token;  // sent to the endpoint alone; empty: none
  // Called as bytes come: of the file, which is one of so many, and how far it is.
  std::function<void(std::string_view file, int64_t done, int64_t total)> on_progress;
};

// Fetches what Encore reads of ORG/NAME at refs/main: configuration, tokenizer, templates and safetensors, each checked by
// the hash that the hub names. What is in the cache already is not fetched again, and a file that broke off goes on where
// it ended. Returns the snapshot's directory. Errors: kUsage for what is no name; kModel where the hub cannot be
// reached (with the command that fetches the model elsewhere), has no such model, keeps it from others, or gives a file
// with another hash.
std::filesystem::path pull(const std::string& name, const PullOptions& options);

}  // namespace encore::hub
