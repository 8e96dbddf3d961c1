// Injects faults: tests make any call to a device fail, or run code of their own at it.
//
//   fault::Injection injection([&](std::string_view call) {
//     if (++calls == 17) fail(ErrorKind::kMemory, "injected at {}", call);
//   });
#pragma once

#include <functional>
#include <string_view>

namespace encore::fault {

// Every device calls this before each operation that may fail, with its name: "allocate", "launch",
// "end_recording". It costs one load when no test listens. Errors: the errors that the test throws.
void checkpoint(std::string_view call);

// Calls `at` at the checkpoints of all threads while this object lives. At most one object may
// exist at a time.
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
