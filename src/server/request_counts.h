// Counts how many requests were answered, by route and status code, and why others were refused.
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

// Threads: the server's. Lifetime: outlives the responders that it hands out.
class RequestCounts {
 public:
  // Has the metrics show a route's usual answers, and each usual reason, from the start, so that a rate over
  // time misses no first event.
  void expect_route(std::string_view route, bool generates);

  // `responder` that counts its answer as it begins. `route`: as a table has it ("/v1/models/*"), never
  // what a client sent.
  std::unique_ptr<Responder> watch(std::string_view route, std::unique_ptr<Responder> responder);

  void write(Metrics& metrics) const;

 private:
  class Watch;

  void count(const std::string& route, const HttpResponse& response);

  std::map<std::pair<std::string, std::string>, int64_t> answers_;  // by route and code
  std::map<std::string, int64_t> refusals_;                         // by reason
};

}  // namespace encore::server
