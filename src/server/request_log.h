// A line in the log for each request that has ended.
#pragma once

#include <cstdint>
#include <memory>

#include "server/http.h"

namespace encore::server {

// What it is asked to write: of some requests only errors are of interest.
enum class LoggedAnswers : uint8_t { kAll, kErrors };

// Threads: the server's. Lifetime: outlives the responders that it hands out.
class RequestLog {
 public:
  // `responder` with a line written as its answer ends, or as it goes: the client has left then.
  std::unique_ptr<Responder> watch(const HttpRequest& request, LoggedAnswers answers,
                                   std::unique_ptr<Responder> responder);

 private:
  class Watch;
  struct Line;

  void write(const Line& line);

  // Since the last line: what stderr would not take at once. The server's thread waits for nobody.
  int64_t num_unwritten_ = 0;
};

}  // namespace encore::server
