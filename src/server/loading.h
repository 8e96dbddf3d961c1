// Answers requests until the model is loaded.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "server/gate.h"
#include "server/http.h"

namespace encore::server {

// Says that the process lives, and answers everything else with 503 and how far the load is. No key
// is asked for, as nothing else is told. Threads: the server's, but for enter().
class Loading {
 public:
  // `gate` has no keys: none is asked for while the model loads.
  explicit Loading(GateOptions gate) : gate_(std::move(gate)) {}

  // From now on the load is at `phase`, such as "loading weights 640 of 16060 MB". Threads: any.
  void enter(std::string phase);
  void handle(const HttpRequest& request, Responder& responder) const;

 private:
  [[nodiscard]] HttpResponse answer(const HttpRequest& request) const;

  Gate gate_;
  mutable std::mutex mutex_;
  std::string phase_ = "reading the configuration";
};

}  // namespace encore::server
