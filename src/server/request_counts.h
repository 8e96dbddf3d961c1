// Counts answered requests by route and status code, and refused requests by reason.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/http.h"
#include "server/metrics.h"

namespace encore::server {

// Counts the answers of all routes for the metrics. Threads: the server's. Lifetime: must outlive
// the responders that it returns.
class RequestCounts {
 public:
  // Creates counters at zero for a route's usual status codes and for the usual reasons of
  // refusals. If a counter appeared only with its first event, Prometheus' rates over time would
  // miss that event.
  void expect_route(std::string_view route, bool generates);

  // Wraps `responder` in one that counts the answer when it begins. `route` is a route's pattern,
  // such as "/v1/models/*", and never a path that a client sent.
  std::unique_ptr<Responder> watch(std::string_view route, std::unique_ptr<Responder> responder);

  void write(Metrics& metrics) const;

 private:
  class Watch;

  void count(const std::string& route, const HttpResponse& response);

  // The number of answers by route and status code.
  std::map<std::pair<std::string, std::string>, int64_t> answers_;
  std::map<std::string, int64_t> refusals_;  // number of refused requests by reason
};

}  // namespace encore::server
