#include "server/api_server.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/log.h"
#include "server/chat.h"
#include "server/completions.h"
#include "server/content_coding.h"
#include "server/generator_metrics.h"
#include "server/messages.h"
#include "server/messages_format.h"
#include "server/models.h"
#include "server/page.h"
#include "server/process_metrics.h"
#include "server/responses.h"
#include "server/sleep.h"
#include "server/tokenize.h"

namespace encore::server {
namespace {

// Limits on the warnings about unknown parameters: how many are logged, and how many bytes of a
// name are kept. Clients choose the names.
constexpr size_t kMostWarnings = 100;
constexpr size_t kLongestName = 100;
constexpr int kBackgroundThreads = 2;
constexpr int kCompilingThreads = 4;

bool matches(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) return pattern == path;
  pattern.remove_suffix(1);
  return path.starts_with(pattern) && path.size() > pattern.size();
}

// Adds headers to the answer of the responder that it wraps.
class WithHeaders final : public Responder {
 public:
  WithHeaders(std::unique_ptr<Responder> responder, Headers headers)
      : responder_(std::move(responder)), headers_(std::move(headers)) {}

  void respond(HttpResponse response) override {
    responder_->respond(with_headers(std::move(response)));
  }
  void begin_stream(HttpResponse head) override {
    responder_->begin_stream(with_headers(std::move(head)));
  }
  void write(std::string_view part) override { responder_->write(part); }
  void end_stream() override { responder_->end_stream(); }
  void on_closed(std::function<void()> call) override { responder_->on_closed(std::move(call)); }

 private:
  HttpResponse with_headers(HttpResponse response) const {
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    return response;
  }

  std::unique_ptr<Responder> responder_;
  Headers headers_;
};

}  // namespace

struct ApiServer::Pending {
  HttpRequest request;
  std::unique_ptr<Responder> responder;
  Prepared prepared;
};

ApiServer::ApiServer(engine::Generator& generator, ServedModel model, ApiOptions options, Post post,
                     Time time)
    : generator_(generator),
      options_(std::move(options)),
      context_{.model = std::move(model),
               .build = options_.build,
               .capacity = generator.capacity(),
               .unknown_parameters = options_.unknown_parameters,
               .other_tools = options_.other_tools,
               .request_timeout = options_.request_timeout,
               .adapter_root = options_.adapter_root},
      gate_(options_.gate),
      grammar_s_(metrics_.histogram("encore_grammar_seconds",
                                    "To have the grammar of a request's answer, compiled or found",
                                    {0.0001, 0.001, 0.01, 0.1, 0.5, 1, 2})),
      post_(std::move(post)),
      generation_(generator, context_.model, metrics_, post_, std::move(time)),
      grammars_(context_.model),
      background_(kBackgroundThreads),
      changes_(1),
      compilations_(kCompilingThreads) {
  const ServedModel& served = context_.model;
  if (served.chat_template != nullptr && served.tokenizer != nullptr)
    context_.model.markup = text::find_markup(*served.chat_template, *served.tokenizer);
  for (const MetricAlias& alias : options_.metric_aliases)
    metrics_.alias(alias.name, alias.of);
  metrics_.on_collect([this] { collect_metrics(); });
  if (options_.request_counts != nullptr) {
    for (const Route& route : routes())
      options_.request_counts->expect_route(route.path, route.parameters != nullptr);
  }
}

const std::vector<ApiServer::Route>& ApiServer::routes() {
  static const std::vector<Route> routes = {
      {{"POST", "/v1/completions", "Text that goes on from prompts", Access::kKey,
        &completion_parameters()},
       prepare_completion},
      {{"POST", "/v1/chat/completions", "The next message of a conversation", Access::kKey,
        &chat_parameters()},
       prepare_chat},
      {{"POST", "/v1/responses", "The answer to a conversation of items; nothing is stored",
        Access::kKey, &response_parameters()},
       prepare_response},
      {{"POST", "/v1/messages", "The next message of a conversation, in Anthropic's protocol",
        Access::kKey, &message_parameters()},
       prepare_message,
       nullptr,
       nullptr,
       messages_error},
      {{"POST", "/v1/messages/count_tokens", "The length of a conversation's prompt", Access::kKey,
        &count_tokens_parameters()},
       prepare_count_tokens,
       nullptr,
       nullptr,
       messages_error},
      {{"GET", "/v1/models", "The model, under each of its names"}, list_models},
      {{"GET", "/v1/models/*", "The model of a name"}, show_model},
      {{"POST", "/v1/load_lora_adapter", "Loads an adapter, a model of requests from then on",
        Access::kAdapterKey, &load_adapter_parameters()},
       nullptr,
       nullptr,
       nullptr,
       to_response,
       load_adapter},
      {{"POST", "/v1/unload_lora_adapter", "Takes an adapter's name away", Access::kAdapterKey,
        &unload_adapter_parameters()},
       nullptr,
       nullptr,
       nullptr,
       to_response,
       unload_adapter},
      {{"POST", "/load_lora_adapter", "SGLang's name of /v1/load_lora_adapter", Access::kAdapterKey,
        &load_adapter_parameters()},
       nullptr,
       nullptr,
       nullptr,
       to_response,
       load_adapter},
      {{"POST", "/unload_lora_adapter", "SGLang's name of /v1/unload_lora_adapter",
        Access::kAdapterKey, &unload_adapter_parameters()},
       nullptr,
       nullptr,
       nullptr,
       to_response,
       unload_adapter},
      {{"POST", "/tokenize", "The tokens of a text or a conversation", Access::kKey,
        &tokenize_parameters()},
       prepare_tokenize},
      {{"POST", "/detokenize", "The text of tokens", Access::kKey, &detokenize_parameters()},
       prepare_detokenize},
      {{"GET", "/version", "Encore's version"}, show_version},
      {{"GET", "/model_info", "The model, for routers that know SGLang"}, show_model_info},
      {{"GET", "/get_model_info", "An older name of /model_info"}, show_model_info},
      {{"GET", "/server_info", "The server's limits, for routers that know SGLang"},
       show_server_info},
      {{"GET", "/get_server_info", "An older name of /server_info"}, show_server_info},
      {{"GET", "/live", "Does the process answer?", Access::kOpen},
       nullptr,
       [](ApiServer& /*server*/) { return live(); }},
      {{"GET", "/health", "Are requests taken?", Access::kOpen},
       nullptr,
       [](ApiServer& server) { return server.health(); }},
      {{"GET", "/health_generate", "Does the engine give tokens? Generates one"},
       prepare_health_check},
      {{"POST", "/sleep", "Gives the device's memory back, until /wake_up", Access::kAdminKey},
       nullptr,
       nullptr,
       answer_sleep},
      {{"POST", "/wake_up", "Takes the memory again, and goes on", Access::kAdminKey},
       nullptr,
       nullptr,
       answer_wake_up},
      {{"GET", "/is_sleeping", "Does the model sleep?", Access::kAdminKey},
       nullptr,
       nullptr,
       answer_is_sleeping},
      {{"GET", "/metrics", "Counts and times, for Prometheus"},
       nullptr,
       [](ApiServer& server) { return server.metrics(); }},
      {{"GET", "/openapi.json", "This document"},
       nullptr,
       [](ApiServer& server) { return server.openapi(); }},
      {{"GET", "/", "A page to chat on, with live charts", Access::kOpen}, show_page},
      {{"GET", "/page.js", "The page's script", Access::kOpen}, show_page},
      {{"GET", "/text.js", "How the page shows answers", Access::kOpen}, show_page},
      {{"GET", "/charts.js", "The page's charts", Access::kOpen}, show_page},
      {{"GET", "/libraries.js", "What the page shows Markdown with", Access::kOpen}, show_page},
      {{"GET", "/page.css", "The page's style", Access::kOpen}, show_page},
      {{"GET", "/notices.txt", "Licences of the page's libraries", Access::kOpen}, show_page},
  };
  return routes;
}

std::string_view ApiServer::route_of(std::string_view path) {
  const auto route = std::find_if(routes().begin(), routes().end(),
                                  [&](const Route& one) { return matches(one.path, path); });
  return route == routes().end() ? "other" : route->path;
}

void ApiServer::handle(HttpRequest request, std::unique_ptr<Responder> responder) {
  if (Headers headers = gate_.cors_headers(request); !headers.empty())
    responder = std::make_unique<WithHeaders>(std::move(responder), std::move(headers));
  if (options_.request_counts != nullptr)
    responder = options_.request_counts->watch(route_of(request.path), std::move(responder));
  if (options_.request_log != nullptr) {
    request.key = gate_.key_name(request);
    responder = options_.request_log->watch(request, logged_answers(request), std::move(responder));
  }
  const std::string id = request.id;
  log::debug("request {:?}: {} {}", id, escaped(request.method), escaped(request.path));
  try {
    dispatch(request, responder);
  } catch (const std::exception& error) {
    log::warning("request {:?} failed: {}", id, escaped(error.what()));
    // If the responder has been moved to the code that failed, the exception has destroyed it, and
    // this has closed the connection. There is nothing left to answer with.
    if (responder) {
      responder->respond(error_response(request, {.status = 500, .message = "this failed"}));
    }
  }
}

LoggedAnswers ApiServer::logged_answers(const HttpRequest& request) {
  const bool is_quiet = std::any_of(routes().begin(), routes().end(), [&](const Route& route) {
    const bool comes_often = route.access == Access::kOpen || route.answer != nullptr;
    return comes_often && matches(route.path, request.path);
  });
  return is_quiet ? LoggedAnswers::kErrors : LoggedAnswers::kAll;
}

HttpResponse ApiServer::error_response(const HttpRequest& request, const ApiError& error) {
  const auto route = std::find_if(routes().begin(), routes().end(), [&](const Route& one) {
    return matches(one.path, request.path);
  });
  if (route != routes().end() && route->write_error != to_response)
    return route->write_error(error);
  // Anthropic's clients also send requests to routes that do not exist. So errors for unknown
  // routes have Anthropic's format too if the client is one of these.
  const bool is_anthropic =
      request.path.starts_with("/v1/messages/") || request.header("anthropic-version") != nullptr;
  return is_anthropic ? messages_error(error) : to_response(error);
}

void ApiServer::dispatch(HttpRequest& request, std::unique_ptr<Responder>& responder) {
  const auto refuse = [&](const ApiError& error) {
    responder->respond(error_response(request, error));
  };
  if (const auto error = gate_.check(request)) return refuse(*error);
  if (request.method == "OPTIONS") return responder->respond(gate_.preflight(request));
  const std::string_view method =
      request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
  std::string allowed;
  for (const Route& route : routes()) {
    if (!matches(route.path, request.path)) continue;
    if (route.method != method) {
      allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", route.method);
      continue;
    }
    if (const auto error = check_access(route, request)) return refuse(*error);
    request.permissions = gate_.permissions(request);
    if (route.answer != nullptr) return responder->respond(route.answer(*this));
    if (route.operate != nullptr)
      return route.operate(request, generator_, post_, std::move(responder));
    const bool is_small =
        route.change == nullptr && request.body.size() <= options_.small_body_bytes;
    if (!is_small || request.header("content-encoding") != nullptr)
      return prepare_aside(route, std::move(request), std::move(responder));
    Prepared prepared = prepare(route, request);
    return answer(route, std::move(prepared), std::move(responder));
  }
  if (allowed.empty()) {
    return refuse({.status = 404,
                   .message = fmt::format("there is no {}; /openapi.json lists what there is",
                                          escaped(request.path)),
                   .code = "not_found"});
  }
  refuse({.status = 405,
          .message = fmt::format("{} takes {}, not {}", escaped(request.path), allowed,
                                 escaped(request.method)),
          .code = "method_not_allowed",
          .headers = {{"Allow", allowed}}});
}

std::optional<ApiError> ApiServer::check_access(const Route& route,
                                                const HttpRequest& request) const {
  if (route.access == Access::kKey) return gate_.check_key(request);
  if (route.access == Access::kAdapterKey) return gate_.check_adapter_key(request);
  if (route.access == Access::kAdminKey) return gate_.check_admin_key(request);
  return std::nullopt;
}

Prepared ApiServer::prepare(const Route& route, HttpRequest& request) {
  if (const auto error = decode_body(request, options_.max_body_bytes))
    return {error_response(request, *error), {}};
  Prepared prepared = route.change != nullptr ? route.change(request, context_, generator_)
                                              : route.prepare(request, context_);
  if (const auto* error = std::get_if<ApiError>(&prepared.answer))
    prepared.answer = error_response(request, *error);
  if (auto* job = std::get_if<GenerationJob>(&prepared.answer)) {
    if (const std::string& adapter = job->plan.adapter;
        !adapter.empty() && !may_use_adapter(request, adapter)) {
      return {error_response(request, not_allowed(adapter, "model")), {}};
    }
    job->plan.arrived = request.arrived;
    const auto& most = context_.request_timeout;
    if (most) job->plan.timeout = std::min(job->plan.timeout.value_or(*most), *most);
  }
  return prepared;
}

void ApiServer::prepare_aside(const Route& route, HttpRequest request,
                              std::unique_ptr<Responder> responder) {
  // A shared pointer is needed because posted functions must be copyable. Only one thread uses the
  // object at a time.
  const auto pending =
      std::make_shared<Pending>(Pending{std::move(request), std::move(responder), {}});
  Background& thread = route.change != nullptr ? changes_ : background_;
  thread.run([this, &route, pending] {
    try {
      pending->prepared = prepare(route, pending->request);
    } catch (const std::exception& error) {
      log::warning("request {:?} failed: {}", pending->request.id, escaped(error.what()));
      pending->prepared = {ApiError{.status = 500, .message = "this failed"}, {}};
    }
    post_([this, &route, pending] {
      answer(route, std::move(pending->prepared), std::move(pending->responder));
    });
  });
}

void ApiServer::answer(const Route& route, Prepared prepared,
                       std::unique_ptr<Responder> responder) {
  for (const std::string& name : prepared.unknown) {
    if (warned_.size() < kMostWarnings && warned_.insert(name.substr(0, kLongestName)).second)
      log::warning("parameter {} is unknown and has no effect", escaped(name));
  }
  if (const auto* error = std::get_if<ApiError>(&prepared.answer))
    return responder->respond(route.write_error(*error));
  if (auto* response = std::get_if<HttpResponse>(&prepared.answer))
    return responder->respond(std::move(*response));
  auto& job = std::get<GenerationJob>(prepared.answer);
  if (const auto& warnings = job.plan.warnings; !warnings.empty()) {
    responder = std::make_unique<WithHeaders>(
        std::move(responder),
        Headers{{"X-Encore-Warning", fmt::format("{}", fmt::join(warnings, "; "))}});
  }
  if (job.plan.answer_format) return start_held(route, std::move(job), std::move(responder));
  generation_.start(std::move(job.plan), std::move(job.format), std::move(responder));
}

void ApiServer::start_held(const Route& route, GenerationJob job,
                           std::unique_ptr<Responder> responder) {
  struct Held {
    GenerationJob job;
    std::unique_ptr<Responder> responder;
    AnswerGrammars::Result result;
  };
  // A shared pointer is needed because posted functions must be copyable. Only one thread uses the
  // object at a time.
  const auto held = std::make_shared<Held>(Held{std::move(job), std::move(responder), {}});
  compilations_.run([this, &route, held] {
    const auto start = std::chrono::steady_clock::now();
    held->result = grammars_.compile(*held->job.plan.answer_format, held->job.plan.answer);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    post_([this, &route, held, took] {
      grammar_s_.observe(took.count());
      if (const auto* error = std::get_if<ApiError>(&held->result))
        return held->responder->respond(route.write_error(*error));
      held->job.plan.grammar =
          std::get<std::shared_ptr<const sample::TokenGrammar>>(std::move(held->result));
      generation_.start(std::move(held->job.plan), std::move(held->job.format),
                        std::move(held->responder));
    });
  });
}

HttpResponse ApiServer::live() {
  return json_response(json::object{{"status", "live"}});
}

HttpResponse ApiServer::health() {
  if (const auto closed = generator_.closed()) return to_response(to_error(*closed));
  return json_response(json::object{{"status", "ok"}});
}

HttpResponse ApiServer::metrics() {
  return text_response(metrics_.text(), "text/plain; version=0.0.4; charset=utf-8");
}

HttpResponse ApiServer::openapi() {
  const std::vector<DescribedRoute> described(routes().begin(), routes().end());
  return json_response(openapi_document(described, options_.build.version));
}

void ApiServer::collect_metrics() {
  metrics_.gauge("encore_asleep", "1 while the model sleeps, 0 while it is awake") =
      is_sleeping(generator_) ? 1 : 0;
  const BuildInfo& build = options_.build;
  metrics_.gauge("encore_build_info", "1, with what the binary was made of",
                 {{"version", build.version},
                  {"commit", build.commit},
                  {"build", build.build},
                  {"cuda", build.cuda},
                  {"architectures", build.architectures}}) = 1;
  if (options_.request_counts != nullptr) options_.request_counts->write(metrics_);
  write_metrics(generator_.statistics(), metrics_);
  write_process_metrics(metrics_);
}

}  // namespace encore::server
