// Limits the time, memory and output of one rendering, so that no template takes more than its
// share of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace encore::text::jinja {

// The limits of one rendering of a template.
struct Limits {
  int64_t max_steps = 30'000'000;                // a step is a node evaluated or 32 bytes of text
  size_t max_output_bytes = size_t{64} << 20U;   // bytes of the rendered text
  size_t max_memory_bytes = size_t{128} << 20U;  // bytes of all values that are alive at one time
  int max_depth = 1000;                          // how deep the template's nodes nest
  int64_t max_range = 100'000;                   // how many numbers one range() has
};

enum class FailureKind {
  kRefused,  // the template called raise_exception
  kFailed,   // an operation failed, as its values do not allow it
  kLimit,    // a limit is exceeded
};

// The exception that ends a rendering. It does not leave this module: Template::render returns it
// as a value.
class RenderFailure : public std::runtime_error {
 public:
  RenderFailure(FailureKind kind, const std::string& message)
      : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] FailureKind kind() const { return kind_; }

 private:
  FailureKind kind_;
};

// Throws a RenderFailure of kFailed with a formatted message.
template <typename... Args>
[[noreturn]] void fail_render(fmt::format_string<Args...> format, Args&&... args) {
  throw RenderFailure(FailureKind::kFailed, fmt::format(format, std::forward<Args>(args)...));
}

// Counts the steps and the memory that one rendering uses. Threads: one at a time.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), steps_left_(limits.max_steps) {}

  [[nodiscard]] const Limits& limits() const { return limits_; }
  // Counts steps of work. Errors: RenderFailure of kLimit when the steps are used up.
  void spend(int64_t steps = 1) {
    steps_left_ -= steps;
    if (steps_left_ < 0) out_of_steps();
  }
  void spend_bytes(size_t bytes) { spend(1 + static_cast<int64_t>(bytes / 32)); }
  // Counts memory that is in use until release(). Errors: RenderFailure of kLimit where it exceeds
  // the limit; it is then not counted.
  void allocate(size_t bytes) {
    check_room(bytes);
    used_bytes_ += bytes;
  }
  void release(size_t bytes) noexcept { used_bytes_ -= bytes; }
  // Checks that this many more bytes are within the limit. Errors: RenderFailure of kLimit where
  // they are not.
  void check_room(size_t bytes) const {
    if (bytes > limits_.max_memory_bytes - used_bytes_) out_of_memory();
  }

 private:
  [[noreturn]] void out_of_steps() const;
  [[noreturn]] void out_of_memory() const;

  Limits limits_;
  int64_t steps_left_;
  size_t used_bytes_ = 0;
};

// Counts memory in a budget for as long as it lives. It counts nothing where it has no budget, as
// in constants of a template. Lifetime: the budget must outlive it.
class Charge {
 public:
  Charge() = default;
  Charge(Budget* budget, size_t bytes) : budget_(budget) { grow(bytes); }
  Charge(Charge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&&) = delete;
  ~Charge() {
    if (budget_ != nullptr) budget_->release(bytes_);
  }

  // Starts to count `bytes` bytes of memory in `budget`. REQUIRES: nothing is counted yet.
  void count(Budget& budget, size_t bytes) {
    budget_ = &budget;
    grow(bytes);
  }
  void grow(size_t bytes) {
    if (budget_ == nullptr) return;
    budget_->allocate(bytes);
    bytes_ += bytes;
  }

 private:
  Budget* budget_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace encore::text::jinja
