// Implements `encore serve`, which serves the protocols of OpenAI and Anthropic over HTTP.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/systemd.h"
#include "cli/verbs.h"
#include "hub/cache.h"
#include "measure/expert_counts.h"
#include "model/gguf/file.h"
#include "server/api_server.h"
#include "server/file_watch.h"
#include "server/http_server.h"
#include "server/loading.h"
#include "server/scripted_generator.h"
#include "setup/open.h"
#include "setup/serving.h"

namespace encore::cli {
namespace {

constexpr std::string_view kScripted = "scripted:";
constexpr int64_t kScriptedMaxSeqLen = 1 << 20;
constexpr auto kLastAnswers = std::chrono::milliseconds(2000);
// Sets the interval between two looks at files that may change.
constexpr auto kBetweenLooks = std::chrono::milliseconds(1000);

struct ServeOptions {
  config::Settings settings;
  std::optional<std::string> expert_counts;  // the file to write; absent: experts are not counted
};

constexpr const char* kServeFooter =
    R"(Prints "serving NAME at http://HOST:PORT" on stdout once it takes requests. While the model is being
loaded, GET /live is 200 and all else 503 with how far that is. Try it:
  curl http://127.0.0.1:8000/v1/completions -d '{"prompt": "Once upon a time", "max_tokens": 60}'
GET /metrics is for Prometheus; GET /health says whether requests are taken.
--model scripted:FILE answers from a file, with the bundled model's tokenizer, to test clients:
  {"token_ms": 20, "answers": [{"when": "weather", "text": "It rains."}, {"text": "I do not know."}]}
SIGTERM and Ctrl-C: no more requests are taken, those in hand are finished, and the exit code is 0; a second
one ends at once. Until then, and after SIGTERM for --drain-delay, /health and new requests get 503.
Certificates and files of keys are read anew when they change, and at SIGHUP.)";

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

// Returns the name that the server gives the model: the repository's or preset's name, or the name
// of the directory or GGUF file.
std::string model_name(const config::Settings& settings, const model::ModelSource& source) {
  const bool is_of_hub =
      hub::is_repository(settings.model) && !std::filesystem::is_directory(settings.model);
  if (!source.checkpoint || is_of_hub) return settings.model;
  const std::filesystem::path path = std::filesystem::absolute(*source.checkpoint);
  if (model::gguf::is_gguf(path)) return path.stem().string();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// Owns everything that exists once the model is loaded: the generator that answers requests, and
// all objects that it refers to.
struct Loaded {
  std::unique_ptr<planning::StepLogWriter> step_log;  // null where no log was asked for
  std::unique_ptr<Device> device;
  std::unique_ptr<loader::LoadedModel> model;
  std::optional<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  std::unique_ptr<engine::Generator> generator;
  server::ServedModel served;
};

// Returns why the template fails to render a plain question, or why the question is missing in the
// prompt. Returns nothing where the template works.
std::optional<std::string> failure_of(const text::ChatTemplate& chat_template) {
  constexpr std::string_view kQuestion = "a question";
  json::array messages{json::object{{"role", "user"}, {"content", kQuestion}}};
  chat_template.fit_contents(messages);
  const text::ChatPrompt prompt = chat_template.render({.messages = std::move(messages)});
  if (const auto* error = std::get_if<text::ChatError>(&prompt)) return error->message;
  if (std::get<std::string>(prompt).find(kQuestion) != std::string::npos) return std::nullopt;
  return "the chat template shows nothing of what a user says";
}

// Logs which features clients will miss: text without a tokenizer, conversations without a working
// chat template.
void log_missing(const model::ModelSource& source, const Loaded& loaded) {
  if (const auto why = setup::missing_tokenizer(source)) {
    log::warning("{}: /v1/completions takes them, and every conversation is refused", *why);
  } else if (loaded.chat_template && !loaded.chat_template->exists()) {
    log::warning("{}; until then every conversation is refused, and /v1/completions is not",
                 loaded.chat_template->missing());
  } else if (loaded.chat_template) {
    if (const auto why = failure_of(*loaded.chat_template))
      log::warning("{}: a plain question gets no right answer; --chat-template names another",
                   *why);
  }
}

// Fills in what the server's protocols report about a model, except its max_seq_len.
void describe(const config::Settings& settings, const model::ModelSource& source,
              const std::string& name, Loaded& loaded) {
  loaded.tokenizer = setup::open_tokenizer(source);
  server::ServedModel& served = loaded.served;
  if (source.checkpoint) {
    loaded.chat_template.emplace(
        setup::open_chat_template(*source.checkpoint, settings.chat_template));
    served.path = std::filesystem::absolute(*source.checkpoint).lexically_normal().string();
    served.sampling = server::read_sampling_defaults(*source.checkpoint);
    if (!served.sampling.ignored.empty()) {
      log::warning("the model's generation_config.json asks for {}: this has no effect",
                   fmt::join(served.sampling.ignored, ", "));
    }
  }
  served.names = settings.served_model_names;
  if (served.names.empty()) served.names = {name};
  for (const auto& [adapter, path] : settings.load.adapters.adapters) {
    if (served.has_name(adapter)) {
      fail(ErrorKind::kUsage,
           "--lora {}: the model, or another adapter, has that name: give this one another",
           adapter);
    }
    served.adapters->put({adapter, std::filesystem::absolute(path).lexically_normal().string()});
  }
  if (loaded.tokenizer) served.tokenizer = &*loaded.tokenizer;
  if (loaded.chat_template) served.chat_template = &*loaded.chat_template;
  served.end_tokens = setup::end_tokens(source, served.tokenizer);
  served.vocab_size = source.config.vocab_size;
  served.created = std::time(nullptr);
}

// Makes the program count which experts routers choose, if the options ask for it. Errors: kUsage
// for a model without experts.
void add_expert_counts(const ServeOptions& options, const model::ModelConfig& config,
                       loader::LoadOptions& load) {
  if (!options.expert_counts) return;
  if (!config.experts) {
    fail(ErrorKind::kUsage,
         "the model has no experts that could be counted: leave --expert-counts out");
  }
  load.compile.add_pass(measure::count_experts_pass());
}

// Writes the expert counts since the start to the file that the options name.
void write_expert_counts(const ServeOptions& options, loader::LoadedModel& model) {
  if (!options.expert_counts) return;
  const measure::ExpertCounts counts = measure::read_expert_counts(model.executor().loaded());
  write_file(*options.expert_counts, measure::expert_counts_text(counts));
}

// Ends the process from another rank's thread, where rank 0's thread, which would end the requests,
// has stopped.
[[noreturn]] void end_process(const Error& error) {
  log::error(
      name(error.kind()),
      fmt::format("{}; the thread that ends the requests has stopped, so the process ends as it is",
                  error.what()));
  std::_Exit(exit_code(error.kind()));
}

// Loads the model. Calls `enter` with the name of each phase of the load that reports no progress
// by itself.
void load_model(const ServeOptions& options, const std::string& url,
                const std::function<void(std::string)>& enter, Loaded& loaded) {
  const config::Settings& settings = options.settings;
  const model::ModelSource source = setup::open_source(settings);
  describe(settings, source, model_name(settings, source), loaded);
  loaded.step_log = setup::open_step_log(settings);
  enter("opening the device");
  loaded.device = setup::open_device(settings);
  loader::LoadOptions load = setup::serving_load_options(settings, source.config);
  add_expert_counts(options, source.config, load);
  load.on_stopped_rank0 = end_process;
  log::info("loading the model; {} answers with 503 until that is done", url);
  enter("building the program");
  loaded.model = setup::open_model(*loaded.device, source, load, settings);
  log_missing(source, loaded);
  const loader::LoadedModel& model = *loaded.model;
  loaded.served.max_seq_len =
      std::min(model.limits().max_seq_len, model.num_pages() * model.page_size());
  engine::ServingOptions serving = setup::serving_options(settings, loaded.step_log.get());
  if (serving.engine.prefix_cache) serving.engine.prefix_cache->model = loaded.served.names.front();
  loaded.generator = std::make_unique<engine::ServingLoop>(*loaded.model, serving);
}

// Loads a script in place of a model, with the tokenizer and the chat template of the bundled
// model.
void load_script(const ServeOptions& options, Loaded& loaded) {
  const config::Settings& settings = options.settings;
  if (options.expert_counts)
    fail(ErrorKind::kUsage, "a script has no experts: leave --expert-counts out");
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

// Raises the limit of open files to its maximum: each connection is a file descriptor, and shells
// set a low limit.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

server::ApiOptions api_options(const config::Settings& settings) {
  server::ApiOptions options{.build = build_info()};
  options.adapter_root = settings.lora_dir;
  options.max_body_bytes = server::HttpOptions().max_body_bytes;
  options.gate.allowed_hosts = settings.allowed_hosts;
  options.gate.allowed_origins = settings.allowed_origins;
  if (settings.request_timeout_s > 0)
    options.request_timeout = std::chrono::seconds(settings.request_timeout_s);
  options.metric_aliases = server::find_metric_aliases(settings.metric_aliases);
  if (!settings.refuses_unknown_parameters)
    options.unknown_parameters = server::UnknownParameters::kWarn;
  if (settings.refuses_other_tools) options.other_tools = server::OtherTools::kRefuse;
  return options;
}

// Blocks a signal on this thread, so that another thread handles it and it does not interrupt reads
// on this one.
void leave_to_others(int signal) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// Serves HTTP on a thread of its own, from before the model is loaded until after the last answer.
class Serving {
 public:
  // Opens the port, and answers that the model is being loaded. Errors: those of HttpServer, and
  // those of reading the files of keys.
  Serving(const config::Settings& settings, Supervisor supervisor)
      : settings_(settings),
        supervisor_(std::move(supervisor)),
        api_options_(api_options(settings)),
        watch_(watch()),
        api_keys_(read_api_keys(settings)),
        admin_keys_(read_admin_keys(settings)),
        http_(http_options()),
        loading_(gate_options()) {
    if (settings.logs_requests) api_options_.request_log = &request_log_;
    api_options_.request_counts = &request_counts_;
    if (!http_.is_loopback() && api_keys_.is_empty())
      log::warning("other machines can reach this server, and --api-key asks nobody for a key");
    http_.listen([this](server::HttpRequest request, std::unique_ptr<server::Responder> responder) {
      if (api_ == nullptr) return loading_.handle(request, *watched(request, std::move(responder)));
      api_->handle(std::move(request), std::move(responder));
    });
    http_.on_signals({SIGHUP}, [this] {
      if (watch_.read_all()) log::info("read the keys and certificates anew");
    });
    look_at_files();
    log::Progress::listen([this](const std::string& state) { loading_.enter(state); });
    thread_ = std::thread([this] { http_.run(); });
    leave_to_others(SIGHUP);
  }
  ~Serving() {
    log::Progress::listen(nullptr);
    if (!thread_.joinable()) return;
    http_.post([this] { http_.stop(); });
    thread_.join();
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  [[nodiscard]] std::string url() const { return http_.url(); }
  // Sets the phase of the load that answers report from now on.
  void enter(std::string phase) { loading_.enter(std::move(phase)); }

  // Answers requests with the generator until a signal comes or the device fails. The generator
  // runs on this thread. Errors: those of Generator::run(); Interrupted after a second signal.
  void run(engine::Generator& generator, const server::ServedModel& model) {
    log::Progress::listen(nullptr);
    api_options_.gate = gate_options();
    server::ApiServer api(generator, model, api_options_,
                          [this](std::function<void()> call) { http_.post(std::move(call)); },
                          {std::chrono::steady_clock::now,
                           [this](std::chrono::milliseconds delay, std::function<void()> call) {
                             http_.after(delay, std::move(call));
                           }});
    std::promise<void> is_ready;
    http_.post([&] {
      api.set_api_keys(api_keys_);
      api.set_admin_keys(admin_keys_);
      http_.on_signals({SIGINT}, [this, &generator] { on_signal(generator, 0); });
      http_.on_signals({SIGTERM},
                       [this, &generator] { on_signal(generator, settings_.drain_delay_s); });
      api_ = &api;
      is_ready.set_value();
    });
    is_ready.get_future().wait();
    try {
      print(fmt::format("serving {} at {}\n", model.names.front(), url()));
      supervisor_.notify(
          fmt::format("READY=1\nSTATUS=serving {} at {}", model.names.front(), url()));
      generator.run();
    } catch (...) {
      http_.post([this, &generator] {
        end_after(generator, kLastAnswers);
        http_.drain();
      });
      thread_.join();
      throw;
    }
    http_.post([this] { leave(); });
    thread_.join();
    if (num_signals_ > 1) throw Interrupted();
  }

 private:
  server::HttpOptions http_options() {
    const config::HttpSettings& http = settings_.http;
    server::HttpOptions options{.host = http.host,
                                .port = http.port,
                                .tls = {http.tls_certificate, http.tls_key},
                                .idle_timeout = http.idle_timeout};
    options.refuse = [this](const server::HttpRequest& request, const server::ApiError& error,
                            std::unique_ptr<server::Responder> responder) {
      watched(request, std::move(responder))
          ->respond(server::ApiServer::error_response(request, error));
    };
    return options;
  }
  [[nodiscard]] server::GateOptions gate_options() const {
    server::GateOptions gate = api_options_.gate;
    gate.is_loopback = http_.is_loopback();
    return gate;
  }
  // Returns a responder that counts and logs the answer of a request that was refused before it
  // reached the API, which counts and logs its own answers.
  std::unique_ptr<server::Responder> watched(const server::HttpRequest& request,
                                             std::unique_ptr<server::Responder> responder) {
    responder =
        request_counts_.watch(server::ApiServer::route_of(request.path), std::move(responder));
    if (api_options_.request_log == nullptr) return responder;
    return request_log_.watch(request, server::ApiServer::logged_answers(request),
                              std::move(responder));
  }
  // Stops taking requests. The port stays open until the current requests have ended and the delay
  // has passed, because proxies still send requests for a while. A second signal ends the server at
  // once.
  void on_signal(engine::Generator& generator, int64_t delay_s) {
    if (++num_signals_ > 1) return end(generator);
    log::info("finishing the requests in hand; a second signal ends at once");
    supervisor_.notify("STOPPING=1\nSTATUS=finishing the requests in hand");
    http_.end_connections();
    generator.drain();
    end_after(generator, std::chrono::seconds(std::max(settings_.drain_timeout_s, delay_s)));
    http_.after(std::chrono::seconds(delay_s), [this] { leave(); });
  }
  // Counts the two events after which the port may close: the generator has ended, and the delay
  // after the signal has passed. Closes the port after both.
  void leave() {
    if (++num_reasons_to_leave_ == 2) http_.drain();
  }
  // Returns a watch on the files of certificates and keys. Call it before these files are first
  // read.
  server::FileWatch watch() {
    server::FileWatch watch;
    const config::HttpSettings& http = settings_.http;
    watch.add({http.tls_certificate, http.tls_key}, [this] { http_.reload_tls(); });
    watch.add({settings_.api_key_file}, [this] {
      api_keys_ = read_api_keys(settings_);
      if (api_ != nullptr) api_->set_api_keys(api_keys_);
    });
    watch.add({settings_.admin_key_file}, [this] {
      admin_keys_ = read_admin_keys(settings_);
      if (api_ != nullptr) api_->set_admin_keys(admin_keys_);
    });
    return watch;
  }
  void look_at_files() {
    watch_.look();
    http_.after(kBetweenLooks, [this] { look_at_files(); });
  }
  void end_after(engine::Generator& generator, std::chrono::milliseconds timeout) {
    http_.after(timeout, [this, &generator] {
      generator.stop();
      http_.after(kLastAnswers, [this, &generator] { end(generator); });
    });
  }
  void end(engine::Generator& generator) {
    generator.stop();
    http_.stop();
  }

  const config::Settings& settings_;
  Supervisor supervisor_;
  server::ApiOptions api_options_;
  // Only the server's thread uses the fields below once it runs.
  server::RequestLog request_log_;
  server::RequestCounts request_counts_;
  server::FileWatch watch_;
  server::KeySet api_keys_;
  server::KeySet admin_keys_;
  server::HttpServer http_;
  server::Loading loading_;
  server::ApiServer* api_ = nullptr;  // null until the model is loaded
  int num_signals_ = 0;
  int num_reasons_to_leave_ = 0;
  std::thread thread_;
};

void serve(const ServeOptions& options) {
  const config::Settings& settings = options.settings;
  log::set_format(settings.log_format);
  raise_file_limit();
  std::signal(SIGPIPE, SIG_IGN);
  const char* const supervisor = std::getenv("NOTIFY_SOCKET");
  Serving serving(settings, Supervisor(supervisor == nullptr ? "" : supervisor));
  Loaded loaded;
  const bool is_script = settings.model.starts_with(kScripted);
  const auto enter = [&](std::string phase) { serving.enter(std::move(phase)); };
  is_script ? load_script(options, loaded) : load_model(options, serving.url(), enter, loaded);
  serving.run(*loaded.generator, loaded.served);
  if (loaded.step_log) loaded.step_log->flush();
  if (loaded.model) write_expert_counts(options, *loaded.model);
}

}  // namespace

void add_serve(Command& app) {
  Command* verb =
      app.add_subcommand("serve", "Serve the protocols of OpenAI and Anthropic over HTTP");
  // The options are shared by the parser and the callback.
  auto options = std::make_shared<ServeOptions>();
  Taken taken = running_options();
  taken.groups.insert(taken.groups.end(), {config::Group::kServing, config::Group::kServer});
  take_options(*verb, options->settings, taken);
  verb->add_option("--expert-counts", options->expert_counts,
                   "Write, at the end, how often each expert of each layer was chosen, as JSON, "
                   "for `encore bench decode --routing FILE`. Counting takes a launch a layer")
      ->type_name("FILE");
  verb->group("Diagnosis: what happened, and whether it is right", {"--expert-counts"});
  verb->footer(kServeFooter);
  verb->callback([options] { serve(*options); });
}

}  // namespace encore::cli
