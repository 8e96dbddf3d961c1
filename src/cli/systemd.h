// Tells systemd that a service of Type=notify is ready, and when it is about to end.
#pragma once

#include <string>
#include <string_view>

namespace encore::cli {

// Represents the supervising process, which may want to be notified.
class Supervisor {
 public:
  // `address` is the value of NOTIFY_SOCKET, a path or "@name". If it is empty, nobody is notified.
  explicit Supervisor(std::string address) : address_(std::move(address)) {}

  // Sends a state such as "READY=1" or "STOPPING=1\nSTATUS=..."; sd_notify(3) lists them. A failure
  // only logs a warning.
  void notify(std::string_view state) const;

 private:
  std::string address_;
};

}  // namespace encore::cli
