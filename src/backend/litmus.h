// Litmus tests of the GPU's memory model: small programs in which threads hand messages over, some
// correct and some broken on purpose, run many times under stress while outcomes are counted.
//
// A round is one message: words are written, handed over, read. It is stale when a word read is
// not the one that was written for it, and unseen when thousands of loads of the flag, plain ones
// or of too narrow a scope, did not find what a strong load of the right scope then found. A
// correct form has neither, in any number of rounds. A twin breaks one rule of the model; whether
// that shows is up to the chip.
//
// Source: PTX ISA, "Memory Consistency Model"; docs/memory-model.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace encore::litmus {

// The threads between which a message is handed over: warps of a block, blocks of a cluster, blocks
// anywhere on the GPU, or the GPU and the host.
enum class Scope : uint8_t { kBlock, kCluster, kDevice, kSystem };
inline constexpr Scope kScopes[] = {Scope::kBlock, Scope::kCluster, Scope::kDevice, Scope::kSystem};

// "block", "cluster", "device", "system".
std::string_view name(Scope scope);

// One test; a name occurs once in a scope.
struct Form {
  Scope scope;
  std::string_view name;
  std::string ptx;            // the instructions that make it, writer / reader
  std::string_view teaches;   // a sentence; for a twin, which rule it breaks
  std::string_view section;   // of PTX ISA's "Memory Consistency Model"
  std::string_view twin_of;   // the correct form that this one breaks; empty: this one is correct
  std::string_view baseline;  // the same without any order, whose price is subtracted; none: a twin

  [[nodiscard]] bool is_correct() const { return twin_of.empty(); }
};

// All tests: by scope, each correct form followed by its twins.
std::span<const Form> forms();
// The form of that name; null when there is none.
const Form* find_form(Scope scope, std::string_view name);

// Rounds by outcome.
struct Counts {
  int64_t rounds = 0;
  int64_t stale = 0;
  int64_t unseen = 0;

  [[nodiscard]] int64_t violations() const { return stale + unseen; }
};

// The cost of a round when nothing else runs: for messages one handoff (half of a round trip: four
// words and a flag or an arrival there, a bare one back; for bulk_copy and st_async 512 bytes
// there), for work_queue a batch of four claims, for exchange one exchange of two threads, for
// same_address one look, for places an exchange of two words, for lock one critical section of four contenders. Units: nanoseconds,
// clock cycles of a multiprocessor.
struct Price {
  double ns = 0;
  double cycles = 0;
};

// A GPU that runs the tests.
class Suite {
 public:
  virtual ~Suite() = default;
  // "NVIDIA H200".
  [[nodiscard]] virtual std::string chip() const = 0;
  // Runs the form under stress until `rounds` are done or `seconds` have passed.
  // Errors: kDevice, also when a round never ended.
  virtual Counts stress(const Form& form, int64_t rounds, double seconds) = 0;
  // The median over several places on the chip. Errors: as above.
  virtual Price price(const Form& form) = 0;
};

// Opens the suite. Errors: kDevice naming what is missing (a GPU, a build with CUDA) and the
// remedy.
std::unique_ptr<Suite> open_suite();

}  // namespace encore::litmus
