// encore serve: the protocols of OpenAI and Anthropic over HTTP.
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "server/api_server.h"
#include "server/http_server.h"
#include "server/scripted_generator.h"
#include "setup/open.h"
#include "setup/serving.h"

namespace encore::cli {
namespace {

constexpr std::string_view kScripted = "scripted:";
constexpr int64_t kScriptedMaxSeqLen = 1 << 20;
constexpr auto kLastAnswers = std::chrono::milliseconds(2000);

constexpr const char* kFooter =
    R"(Prints "serving NAME at http://HOST:PORT" on stdout once it takes requests. Try it:
  curl http://127.0.0.1:8000/v1/completions -d '{"prompt": "Once upon a time", "max_tokens": 60}'
GET /metrics is for Prometheus; GET /health says whether requests are taken.
--model scripted:FILE answers from a file, with the bundled model's tokenizer, to test clients:
  {"token_ms": 20, "answers": [{"when": "weather", "text": "It rains."}, {"text": "I do not know."}]}
SIGTERM and Ctrl-C: no more requests are taken, those in hand are finished, and the exit code is 0;
a second one ends at once. SIGHUP: certificates and the files of keys are read anew.)";

server::KeySet read_api_keys(const config::Settings& settings) {
  server::KeySet keys;
  try {
    for (const std::string& key : settings.api_keys)
      keys.add(key);
  } catch (const Error& error) {
    fail(error.kind(), "--api-key: {}", error.what());
  }
  if (!settings.api_key_file.empty())
    server::add_keys_of_file(keys, settings.api_key_file, "--api-key-file");
  return keys;
}

server::KeySet read_admin_keys(const config::Settings& settings) {
  server::KeySet keys;
  if (!settings.admin_key_file.empty())
    server::add_keys_of_file(keys, settings.admin_key_file, "--admin-key-file");
  return keys;
}

// What the model calls itself: its directory, or its name where it has no directory.
std::string model_name(const config::Settings& settings, const model::ModelSource& source) {
  if (!source.checkpoint) return settings.model;
  const std::filesystem::path path = std::filesystem::absolute(*source.checkpoint);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// What answers requests, and all that it refers to.
struct Loaded {
  std::unique_ptr<planning::StepLogWriter> step_log;  // may be null
  std::unique_ptr<Device> device;
  std::unique_ptr<engine::LoadedModel> model;
  std::optional<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  std::unique_ptr<engine::Generator> generator;
  server::ServedModel served;
};

// Fills in what protocols know of a model, but for its length.
void describe(const config::Settings& settings, const model::ModelSource& source,
              const std::string& name, Loaded& loaded) {
  loaded.tokenizer = setup::open_tokenizer(source);
  server::ServedModel& served = loaded.served;
  if (source.checkpoint) {
    loaded.chat_template.emplace(
        setup::open_chat_template(*source.checkpoint, settings.chat_template));
    served.sampling = server::read_sampling_defaults(*source.checkpoint);
    if (!served.sampling.ignored.empty()) {
      log::warning("the model's generation_config.json asks for {}: this has no effect",
                   fmt::join(served.sampling.ignored, ", "));
    }
  }
  served.names = settings.served_model_names;
  if (served.names.empty()) served.names = {name};
  if (loaded.tokenizer) served.tokenizer = &*loaded.tokenizer;
  if (loaded.chat_template) served.chat_template = &*loaded.chat_template;
  served.end_tokens = source.config.eos_token_ids;
  served.vocab_size = source.config.vocab_size;
  served.created = std::time(nullptr);
}

void load_model(const config::Settings& settings, Loaded& loaded) {
  const model::ModelSource source = setup::open_source(settings);
  describe(settings, source, model_name(settings, source), loaded);
  loaded.step_log = setup::open_step_log(settings);
  loaded.device = setup::open_device(settings);
  loaded.model = setup::open_model(*loaded.device, source,
                                   setup::serving_load_options(settings, source.config), settings);
  const engine::LoadedModel& model = *loaded.model;
  loaded.served.max_seq_len =
      std::min(model.limits().max_seq_len, model.num_pages() * model.page_size());
  loaded.generator = std::make_unique<engine::ServingLoop>(
      *loaded.model, setup::serving_options(settings, loaded.step_log.get()));
}

// With the tokenizer and the template of the bundled model.
void load_script(const config::Settings& settings, Loaded& loaded) {
  const std::string path = settings.model.substr(kScripted.size());
  server::Script script = server::Script::load(path);
  const model::ModelSource source = model::find_model(setup::model_directory("").string());
  describe(settings, source, "scripted", loaded);
  loaded.served.max_seq_len = settings.max_seq_len.value_or(kScriptedMaxSeqLen);
  loaded.generator = std::make_unique<server::ScriptedGenerator>(
      std::move(script), *loaded.tokenizer, source.config.eos_token_ids.at(0),
      server::ScriptedGenerator::Limits{
          loaded.served.max_seq_len, settings.max_batch_size.value_or(setup::kServingMaxBatchSize) +
                                         settings.serving.max_queue});
}

// A connection is a file descriptor, and shells allow few.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Runs the engine on this thread and HTTP on another until a signal, or until the device fails.
class Serving {
 public:
  Serving(engine::Generator& generator, server::HttpServer& http, server::ApiServer& api,
          const config::Settings& settings)
      : generator_(generator),
        http_(http),
        api_(api),
        settings_(settings),
        drain_timeout_(std::chrono::seconds(settings.drain_timeout_s)) {}

  // Errors: those of Generator::run(); Interrupted after a second signal.
  void run() {
    http_.on_signals({SIGINT, SIGTERM}, [this] { on_signal(); });
    http_.on_signals({SIGHUP}, [this] { reload(); });
    std::thread thread([this] { http_.run(); });
    try {
      generator_.run();
    } catch (...) {
      http_.post([this] { drain(kLastAnswers); });
      thread.join();
      throw;
    }
    thread.join();
    if (num_signals_ > 1) throw Interrupted();
  }

 private:
  void on_signal() {
    if (++num_signals_ > 1) return end();
    log::info("finishing the requests in hand; a second signal ends at once");
    generator_.drain();
    drain(drain_timeout_);
  }
  // Each file for itself: one that cannot be used leaves what was read before.
  void reload() {
    const auto attempt = [](const auto& read) {
      try {
        read();
        return true;
      } catch (const Error& error) {
        log::warning("{}; what was read before stays", error.what());
        return false;
      }
    };
    const bool has_tls = attempt([this] { http_.reload_tls(); });
    const bool has_keys = attempt([this] { api_.set_api_keys(read_api_keys(settings_)); });
    const bool has_admin_keys =
        attempt([this] { api_.set_admin_keys(read_admin_keys(settings_)); });
    if (has_tls && has_keys && has_admin_keys) log::info("read the keys and certificates anew");
  }
  void drain(std::chrono::milliseconds timeout) {
    http_.after(timeout, [this] {
      generator_.stop();
      http_.after(kLastAnswers, [this] { end(); });
    });
    http_.drain();
  }
  void end() {
    generator_.stop();
    http_.stop();
  }

  engine::Generator& generator_;
  server::HttpServer& http_;
  server::ApiServer& api_;
  const config::Settings& settings_;
  std::chrono::milliseconds drain_timeout_;
  int num_signals_ = 0;
};

void serve(const config::Settings& settings) {
  server::ApiOptions api_options{.version = ENCORE_VERSION};
  api_options.gate.api_keys = read_api_keys(settings);
  api_options.gate.admin_keys = read_admin_keys(settings);
  api_options.gate.allowed_origins = settings.allowed_origins;
  if (settings.request_timeout_s > 0)
    api_options.request_timeout = std::chrono::seconds(settings.request_timeout_s);
  api_options.metric_aliases = server::find_metric_aliases(settings.metric_aliases);
  if (!settings.refuses_unknown_parameters)
    api_options.unknown_parameters = server::UnknownParameters::kWarn;
  // The port first: a large model takes minutes to load.
  server::HttpOptions http_options = settings.http;
  http_options.write_error = server::ApiServer::error_response;
  server::HttpServer http(std::move(http_options));
  api_options.gate.is_loopback = http.is_loopback();
  if (!http.is_loopback() && api_options.gate.api_keys.is_empty())
    log::warning("other machines can reach this server, and --api-key asks nobody for a key");

  Loaded loaded;
  const bool is_script = settings.model.starts_with(kScripted);
  is_script ? load_script(settings, loaded) : load_model(settings, loaded);
  const std::string name = loaded.served.names.front();
  server::ApiServer api(
      *loaded.generator, loaded.served, std::move(api_options),
      [&](std::function<void()> call) { http.post(std::move(call)); },
      [&](std::chrono::milliseconds delay, std::function<void()> call) {
        http.after(delay, std::move(call));
      });

  raise_file_limit();
  std::signal(SIGPIPE, SIG_IGN);
  http.listen([&](server::HttpRequest request, std::unique_ptr<server::Responder> responder) {
    api.handle(std::move(request), std::move(responder));
  });
  print(fmt::format("serving {} at {}\n", name, http.url()));
  Serving(*loaded.generator, http, api, settings).run();
  if (loaded.step_log) loaded.step_log->flush();
}

}  // namespace

void add_serve(Command& app) {
  Command* verb =
      app.add_subcommand("serve", "Serve the protocols of OpenAI and Anthropic over HTTP");
  // Shared by the parser's options and the callback.
  auto settings = std::make_shared<config::Settings>();
  Taken taken = running_options();
  taken.groups.insert(taken.groups.end(), {config::Group::kServing, config::Group::kServer});
  take_options(*verb, *settings, taken);
  verb->footer(kFooter);
  verb->callback([settings] { serve(*settings); });
}

}  // namespace encore::cli
