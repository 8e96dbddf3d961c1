// Logs a line for each request that has ended.
#pragma once

#include <cstdint>
#include <memory>

#include "server/http.h"

namespace encore::server {

// Says which answers are logged: all, or only errors.
enum class LoggedAnswers : uint8_t { kAll, kErrors };

// Logs requests as they end. Threads: the server's. Lifetime: must outlive the responders that it
// returns.
class RequestLog {
 public:
  // Wraps `responder` in one that logs a line when the answer ends, or when it is destroyed because
  // the client has left.
  std::unique_ptr<Responder> watch(const HttpRequest& request, LoggedAnswers answers,
                                   std::unique_ptr<Responder> responder);

 private:
  class Watch;
  struct Line;

  void write(const Line& line);

  // The number of lines dropped since the last written one. A line is dropped if stderr would
  // block, so that the server's thread never waits for whoever reads it.
  int64_t num_unwritten_ = 0;
};

}  // namespace encore::server
