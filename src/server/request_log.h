// A line in the log for each request that has ended.
#pragma once

#include <cstdint>
#include <memory>

#include "server/http.h"

namespace encore::server {

// Says which answers are logged: for some requests only errors are of interest.
enum class LoggedAnswers : uint8_t { kAll, kErrors };

// Threads: the server's. Lifetime: outlives the responders that it hands out.
class RequestLog {
 public:
  // Wraps `responder` so that a line is written when the answer ends, or when the responder goes
  // because the client has left.
  std::unique_ptr<Responder> watch(const HttpRequest& request, LoggedAnswers answers,
                                   std::unique_ptr<Responder> responder);

 private:
  class Watch;
  struct Line;

  void write(const Line& line);

  // Counts the lines since the last one that stderr would not take at once. The server's thread
  // waits for no reader.
  int64_t num_unwritten_ = 0;
};

}  // namespace encore::server
