// The server: routes requests to the APIs and answers them with an engine.
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
  BuildInfo build;  // Encore's
  UnknownParameters unknown_parameters = UnknownParameters::kRefuse;
  OtherTools other_tools = OtherTools::kLeaveOut;
  // The time that a request that generates may take; absent: as long as it asks for, or forever.
  std::optional<std::chrono::milliseconds> request_timeout;
  GateOptions gate;
  std::string adapter_root;  // ApiContext has it
  std::vector<MetricAlias> metric_aliases;
  // Objects that other handlers on this thread use as well, or null.
  RequestLog* request_log = nullptr;
  RequestCounts* request_counts = nullptr;
  // Larger requests are read beside the server's thread, so that streams go on meanwhile.
  size_t small_body_bytes = 4096;
  uint64_t max_body_bytes = 16 << 20;  // of one that comes compressed, once it is unpacked
};

// Threads: the server's. Lifetime: the generator must outlive it, and must have ended all requests
// before it goes; what `post` and `time` refer to must outlive it too.
class ApiServer {
 public:
  ApiServer(engine::Generator& generator, ServedModel model, ApiOptions options, Post post,
            Time time);

  // Writes an error as the protocol does that the request is in.
  static HttpResponse error_response(const HttpRequest& request, const ApiError& error);
  // Says which answers are logged. Probes, metrics and the page come often and tell nothing, so
  // only their errors are.
  [[nodiscard]] static LoggedAnswers logged_answers(const HttpRequest& request);
  // The path of the route that a request's path belongs to, "/v1/models/*"; "other" where there is none.
  static std::string_view route_of(std::string_view path);
  // Says that the process answers.
  static HttpResponse live();

  // From now on a request must bring one of these keys; without any, requests need no key.
  void set_api_keys(KeySet keys) { gate_.set_api_keys(std::move(keys)); }
  // From now on requests that operators alone may make must bring one of these keys; without any,
  // nobody may make them.
  void set_admin_keys(KeySet keys) { gate_.set_admin_keys(std::move(keys)); }

  // Answers a request, now or later. Never throws.
  void handle(HttpRequest request, std::unique_ptr<Responder> responder);

 private:
  using Answer = HttpResponse (*)(ApiServer& server);
  // Has the generator sleep or wake, and answers once it is done.
  using Operate = void (*)(const HttpRequest& request, engine::Generator& generator,
                           const Post& post, std::unique_ptr<Responder> responder);
  // Changes what is served, beside the server's thread: it may take long.
  using Change = Prepared (*)(const HttpRequest& request, const ApiContext& context,
                              engine::Generator& generator);
  struct Route : DescribedRoute {
    // One of the four:
    Prepare prepare = nullptr;
    Answer answer = nullptr;
    Operate operate = nullptr;
    WriteError write_error = to_response;
    Change change = nullptr;
  };
  // A request whose reading takes longer, on its way to another thread and back.
  struct Pending;

  static const std::vector<Route>& routes();

  // Takes the responder once it is clear who answers.
  void dispatch(HttpRequest& request, std::unique_ptr<Responder>& responder);
  [[nodiscard]] std::optional<ApiError> check_access(const Route& route,
                                                     const HttpRequest& request) const;
  // Unpacks and reads the request.
  [[nodiscard]] Prepared prepare(const Route& route, HttpRequest& request);
  void prepare_aside(const Route& route, HttpRequest request, std::unique_ptr<Responder> responder);
  // Compiles, beside the server's thread, the grammar that the answer must fit; then starts the
  // generation.
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
  std::set<std::string> warned_;  // of unknown parameters
  AnswerGrammars grammars_;
  // The last members, because their threads use the others.
  Background background_;
  Background changes_;       // one at a time
  Background compilations_;  // which wait for the compiler's threads
};

}  // namespace encore::server
