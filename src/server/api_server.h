// Declares the API server, which routes requests to the APIs and answers them with an engine.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/answer_grammars.h"
#include "server/api.h"
#include "server/background.h"
#include "server/gate.h"
#include "server/metric_aliases.h"
#include "server/metrics.h"
#include "server/openapi.h"
#include "server/request_counts.h"
#include "server/request_log.h"

namespace encore::server {

struct ApiOptions {
  BuildInfo build;  // describes this build of Encore
  UnknownParameters unknown_parameters = UnknownParameters::kRefuse;
  OtherTools other_tools = OtherTools::kLeaveOut;
  // Limits the time that a request that generates may take. If it is absent, only the request's own
  // timeout counts.
  std::optional<std::chrono::milliseconds> request_timeout;
  GateOptions gate;
  std::string adapter_root;  // see ApiContext::adapter_root
  std::vector<MetricAlias> metric_aliases;
  // The log of requests, and the counters of answers. Other handlers on the server's thread may use
  // these two objects too. Either may be null.
  RequestLog* request_log = nullptr;
  RequestCounts* request_counts = nullptr;
  // Requests with larger bodies are parsed on a background thread, so that streams of other
  // requests are not held up.
  size_t small_body_bytes = 4096;
  uint64_t max_body_bytes = 16 << 20;  // limits a compressed body after decompression
};

// Routes each request to the handler of its API and answers it. Threads: the server's. Lifetime:
// the generator must outlive this object and must have ended all requests before this object is
// destroyed. Everything that `post` and `time` refer to must outlive this object too.
class ApiServer {
 public:
  ApiServer(engine::Generator& generator, ServedModel model, ApiOptions options, Post post,
            Time time);

  // Writes an error in the format of the protocol that the request uses.
  static HttpResponse error_response(const HttpRequest& request, const ApiError& error);
  // Returns which answers to this request are logged. For frequent requests that tell an operator
  // little (probes, metrics, the web page), only errors are logged.
  [[nodiscard]] static LoggedAnswers logged_answers(const HttpRequest& request);
  // Returns the path of the route that serves `path`, such as "/v1/models/*", or "other" if no
  // route does.
  static std::string_view route_of(std::string_view path);
  // Returns the response to a liveness probe.
  static HttpResponse live();

  // Replaces the API keys: from now on each request must carry one of them. If `keys` is empty,
  // requests need no key.
  void set_api_keys(KeySet keys) { gate_.set_api_keys(std::move(keys)); }
  // Replaces the admin keys: from now on each request to an operators' route must carry one of
  // them. If `keys` is empty, all requests to these routes are refused.
  void set_admin_keys(KeySet keys) { gate_.set_admin_keys(std::move(keys)); }

  // Answers a request, either before handle() returns or later. Never throws.
  void handle(HttpRequest request, std::unique_ptr<Responder> responder);

 private:
  using Answer = HttpResponse (*)(ApiServer& server);
  // Puts the generator to sleep or wakes it, and answers the request when the generator sleeps or
  // is awake.
  using Operate = void (*)(const HttpRequest& request, engine::Generator& generator,
                           const Post& post, std::unique_ptr<Responder> responder);
  // Changes what is served, such as the loaded adapters. Runs on a background thread, because it
  // may take long.
  using Change = Prepared (*)(const HttpRequest& request, const ApiContext& context,
                              engine::Generator& generator);
  struct Route : DescribedRoute {
    // Exactly one of `prepare`, `answer`, `operate` and `change` is set; it serves the route.
    Prepare prepare = nullptr;
    Answer answer = nullptr;
    Operate operate = nullptr;
    WriteError write_error = to_response;
    Change change = nullptr;
  };
  // A request that a background thread parses, and the result that it passes back to the server's
  // thread.
  struct Pending;

  static const std::vector<Route>& routes();

  // Finds the route of a request and has it answered. Moves from `responder` only when a handler
  // takes over the answer. If dispatch() throws before, the caller still owns `responder` and can
  // answer with it.
  void dispatch(HttpRequest& request, std::unique_ptr<Responder>& responder);
  [[nodiscard]] std::optional<ApiError> check_access(const Route& route,
                                                     const HttpRequest& request) const;
  // Decompresses and reads the request.
  [[nodiscard]] Prepared prepare(const Route& route, HttpRequest& request);
  void prepare_aside(const Route& route, HttpRequest request, std::unique_ptr<Responder> responder);
  // Compiles the grammar that constrains the answer on a background thread, then starts the
  // generation on the server's thread.
  void start_held(const Route& route, GenerationJob job, std::unique_ptr<Responder> responder);
  void answer(const Route& route, Prepared prepared, std::unique_ptr<Responder> responder);
  void collect_metrics();

  HttpResponse health();
  HttpResponse metrics();
  HttpResponse openapi();

  engine::Generator& generator_;
  ApiOptions options_;
  ApiContext context_;
  Gate gate_;
  Metrics metrics_;
  Histogram& grammar_s_;
  Post post_;
  GenerationService generation_;
  std::set<std::string> warned_;  // names of unknown parameters that a warning was logged for
  AnswerGrammars grammars_;
  // Background threads. These pools must be the last members, because their threads use the members
  // above and are joined first on destruction.
  Background background_;
  Background changes_;       // one thread: changes run one at a time
  Background compilations_;  // threads that block while the grammar compiler works
};

}  // namespace encore::server
