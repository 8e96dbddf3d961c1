// Answers requests while the model is being loaded.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "server/gate.h"
#include "server/http.h"

namespace encore::server {

// Answers liveness probes, and answers every other request with 503 and the progress of the load.
// Requests need no key, since the answers reveal nothing else. Threads: the server's, except for
// enter().
class Loading {
 public:
  // `gate` must have no keys, because none is asked for while the model loads.
  explicit Loading(GateOptions gate) : gate_(std::move(gate)) {}

  // Sets the phase of the load that answers report, such as "loading weights 640 of 16060 MB".
  // Threads: any.
  void enter(std::string phase);
  void handle(const HttpRequest& request, Responder& responder) const;

 private:
  [[nodiscard]] HttpResponse answer(const HttpRequest& request) const;

  Gate gate_;
  mutable std::mutex mutex_;
  std::string phase_ = "reading the configuration";
};

}  // namespace encore::server
