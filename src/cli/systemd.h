// What a unit of Type=notify is told: that the service is ready, and that it is about to end.
#pragma once

#include <string>
#include <string_view>

namespace encore::cli {

// The process that started this one, where it wants to be told how that goes.
class Supervisor {
 public:
  // `address`: as NOTIFY_SOCKET has it, a path or "@name"; empty: nobody.
  explicit Supervisor(std::string address) : address_(std::move(address)) {}

  // "READY=1", "STOPPING=1\nSTATUS=...": sd_notify(3) lists what there is. A failure costs a warning.
  void notify(std::string_view state) const;

 private:
  std::string address_;
};

}  // namespace encore::cli
