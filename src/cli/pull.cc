// Implements `encore pull`, which downloads a model from the hub into the cache that Hugging Face's
// tools share.
#include "hub/pull.h"

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "setup/open.h"

namespace encore::cli {
namespace {

constexpr double kMegabyte = 1e6;

constexpr const char* kPullFooter =
    R"(Fetches configuration, tokenizer, templates and safetensors into the cache of Hugging Face's tools (HF_HUB_CACHE,
HF_HOME), each file checked by its hash, and prints the directory. What is there is not fetched again, and what broke
off goes on. --model ORG/NAME takes the model from the cache, whoever put it there. HF_ENDPOINT names another hub;
HF_TOKEN is sent to it alone, for models whose terms ask for one. Certificates are checked against those of the system,
or SSL_CERT_FILE.)";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Prints lines of progress, one for each file.
class PullProgress {
 public:
  void tell(std::string_view file, int64_t done, int64_t total) {
    if (file != file_) {
      progress_.reset();
      file_ = file;
      progress_.emplace("fetching " + file_, static_cast<double>(total) / kMegabyte, "MB", 1);
    }
    progress_->update(static_cast<double>(done) / kMegabyte);
  }

 private:
  std::string file_;
  std::optional<log::Progress> progress_;
};

void pull(const std::string& name) {
  PullProgress progress;
  hub::PullOptions options{.cache = setup::hub_cache(), .token = variable("HF_TOKEN")};
  if (const std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty())
    options.endpoint = endpoint;
  options.on_progress = [&](std::string_view file, int64_t done, int64_t total) {
    progress.tell(file, done, total);
  };
  print(hub::pull(name, options).string() + "\n");
}

}  // namespace

void add_pull(Command& app) {
  Command* verb = app.add_subcommand("pull", "Fetch a model from the Hugging Face hub");
  auto name = std::make_shared<std::string>();  // shared by the parser's option and the callback
  verb->add_option("ORG/NAME", *name, "The model, as the hub names it")->required();
  verb->footer(kPullFooter);
  verb->callback([name] { pull(*name); });
}

}  // namespace encore::cli
