// Compiles the grammars of requests on separate threads, and caches those that were used most
// recently.
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
  int64_t max_waiting = 64;                 // the most sources that wait for a thread
  int64_t max_cache_bytes = 256 << 20;      // the most bytes of the grammars in the cache
  std::chrono::milliseconds timeout{2000};  // the longest that compile() waits
  SourceLimits limits;
};

// Says why a grammar could not be compiled.
struct Refusal {
  enum class Kind : uint8_t {
    kInvalid,      // the source is not valid
    kUnsupported,  // the vocabulary does not allow grammars
    kBusy,         // too many grammars are being compiled; a retry may succeed
  };
  Kind kind = Kind::kInvalid;
  std::string why;
};

// Compiles grammars and caches them. If several callers ask for the same grammar, it is compiled
// once. Threads: any.
class Compiler {
 public:
  using Result = std::variant<Grammar, Refusal>;

  // `read` returns the vocabulary. It is called once, on one of the compiler's threads, for the
  // first grammar that is asked for. If it throws, every compile() is refused with that error's
  // message.
  explicit Compiler(std::function<Vocabulary()> read, const CompilerOptions& options = {});
  // Waits for compilations that have begun. REQUIRES: no thread waits in compile().
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  // Compiles the grammar, or takes it from the cache. Blocks for up to options.timeout, so it must
  // not be called on a thread that serves other requests. A grammar that takes longer is still put
  // into the cache when it is complete.
  [[nodiscard]] Result compile(const Source& source);

  [[nodiscard]] int64_t cache_bytes() const;
  // Returns the number of sources that were compiled, and not found in the cache.
  [[nodiscard]] int64_t num_compiled() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace encore::grammar
