// Faults on demand: tests make any call to a device fail, or do something bad while it runs.
//
//   fault::Injection injection([&](std::string_view call) {
//     if (++calls == 17) fail(ErrorKind::kMemory, "injected at {}", call);
//   });
#pragma once

#include <functional>
#include <string_view>

namespace encore::fault {

// Every device calls this before each thing that may fail: "allocate", "launch", "end_recording".
// Costs a load when no test listens. Errors: what the test throws.
void checkpoint(std::string_view call);

// Listens to the checkpoints of all threads while it lives. One at a time.
class Injection {
 public:
  using At = std::function<void(std::string_view call)>;
  explicit Injection(At at);
  ~Injection();
  Injection(const Injection&) = delete;
  Injection& operator=(const Injection&) = delete;

 private:
  At at_;
};

}  // namespace encore::fault
