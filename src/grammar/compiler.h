// Compiles the grammars of requests, on threads of its own, and keeps those that were used last.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "grammar/grammar.h"

namespace encore::grammar {

struct CompilerOptions {
  int num_threads = 2;
  int64_t max_waiting = 64;                 // sources that no thread has begun with
  int64_t max_cache_bytes = 256 << 20;      // of compiled grammars
  std::chrono::milliseconds timeout{2000};  // how long a request waits for its grammar
  SourceLimits limits;
};

// The reason why there is no grammar.
struct Refusal {
  enum class Kind : uint8_t {
    kInvalid,      // the source is at fault
    kUnsupported,  // there are no grammars for the vocabulary
    kBusy,         // there is too much to do: later it may go
  };
  Kind kind = Kind::kInvalid;
  std::string why;
};

// Threads: any. What is asked for by many at once is compiled once.
class Compiler {
 public:
  using Result = std::variant<Grammar, Refusal>;

  // `read`: called once, on a thread of the compiler's, when the first grammar is asked for. Its
  // errors say why there are no grammars.
  explicit Compiler(std::function<Vocabulary()> read, const CompilerOptions& options = {});
  // Finishes what has begun. REQUIRES: nobody waits in compile().
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  // Waits for the grammar, for so long as the options say: not for a thread that serves others. One
  // that takes longer is kept once it is there.
  [[nodiscard]] Result compile(const Source& source);

  [[nodiscard]] int64_t cache_bytes() const;
  // The number of sources that were compiled, rather than found.
  [[nodiscard]] int64_t num_compiled() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace encore::grammar
