// Litmus tests of the GPU's memory model. A test is a small program in which threads hand messages
// over. Some tests are correct, and some are broken on purpose. Each runs many times under stress
// while its outcomes are counted.
//
// A round is one message: words are written, handed over and read. A round is stale when a word
// that was read is not the word that was written for it. It is unseen when thousands of loads of
// the flag, plain or of too narrow a scope, did not find a value that a strong load of the right
// scope then found. A correct form has no stale and no unseen rounds. A twin is a form that breaks
// one rule of the model; whether the violation shows depends on the chip.
//
// Source: PTX ISA, "Memory Consistency Model"; docs/memory-model.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace encore::litmus {

// Says between which threads a message is handed over: between warps of a block, blocks of a
// cluster, any blocks on the GPU, or the GPU and the host.
enum class Scope : uint8_t { kBlock, kCluster, kDevice, kSystem };
inline constexpr Scope kScopes[] = {Scope::kBlock, Scope::kCluster, Scope::kDevice, Scope::kSystem};

// Returns the name of a scope: "block", "cluster", "device" or "system".
std::string_view name(Scope scope);

// A litmus test. A name occurs only once in each scope.
struct Form {
  Scope scope;
  std::string_view name;
  std::string ptx;            // the instructions of the writer / of the reader
  std::string_view teaches;   // one sentence; for a twin, the rule that it breaks
  std::string_view section;   // of PTX ISA's "Memory Consistency Model"
  std::string_view twin_of;   // the correct form that this one breaks; empty: this one is correct
  std::string_view baseline;  // unordered form whose price is subtracted; empty for a twin

  [[nodiscard]] bool is_correct() const { return twin_of.empty(); }
};

// Returns all tests, ordered by scope. In each scope, a correct form is followed by its twins.
std::span<const Form> forms();
// Returns the form of that name in a scope, or null when there is none.
const Form* find_form(Scope scope, std::string_view name);

// The number of rounds, and how many of them were stale or unseen.
struct Counts {
  int64_t rounds = 0;
  int64_t stale = 0;
  int64_t unseen = 0;

  [[nodiscard]] int64_t violations() const { return stale + unseen; }
};

// The cost of one round of a form when nothing else runs. For messages, a round is one handoff,
// which is half of a round trip: four words and a flag or an arrival in one direction, and a bare
// flag or arrival back; for bulk_copy and st_async, 512 bytes in one direction. For work_queue it
// is a batch of four claims, for exchange one exchange of two threads, for same_address one look,
// for places an exchange of two words, and for lock one critical section of four contenders. Units:
// nanoseconds, and clock cycles of a multiprocessor.
struct Price {
  double ns = 0;
  double cycles = 0;
};

// Runs the litmus tests on one GPU.
class Suite {
 public:
  virtual ~Suite() = default;
  // Returns the name of the chip, such as "NVIDIA H200".
  [[nodiscard]] virtual std::string chip() const = 0;
  // Runs the form under stress until `rounds` are done or `seconds` have passed. Errors: kDevice,
  // also when a round does not end.
  virtual Counts stress(const Form& form, int64_t rounds, double seconds) = 0;
  // Measures the price of a form in several launches, which run at different places on the chip,
  // and returns the median. Errors: as stress().
  virtual Price price(const Form& form) = 0;
};

// Opens the suite on this machine's GPU. Errors: kDevice naming what is missing (a GPU, a build
// with CUDA) and the remedy.
std::unique_ptr<Suite> open_suite();

}  // namespace encore::litmus
