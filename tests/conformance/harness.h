// Declares what the conformance tests share: devices, fresh random inputs, one checked launch, and
// comparison.
#pragma once

#include <functional>
#include <initializer_list>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "backend/device.h"
#include "backend/testing/check.h"
#include "base/testing/thorough.h"
#include "reference.h"

namespace encore::conformance {

// Names the devices of the suite. The shuffled CPU, on which the OnDevice tests run too, executes
// launches in random legal order.
enum class Target : uint8_t { kCpu, kShuffledCpu, kCuda };

// Returns the device of `target`, which is made once. Returns null, and writes the reason, where
// this machine has none.
Device* device_of(Target target, std::string& reason);

// Returns the cases to try: all of them in a thorough run, or the first and every `step`-th after
// it in a quick run.
template <typename T, size_t N>
std::vector<T> cases(const T (&all)[N], size_t step) {
  std::vector<T> result;
  for (size_t i = 0; i < N; i += is_thorough() ? 1 : step)
    result.push_back(all[i]);
  return result;
}

// Draws random numbers for inputs. The seed is --gtest_random_seed, or a fixed one.
class Random {
 public:
  Random();
  static uint64_t seed();
  int64_t integer(int64_t first, int64_t last);  // from first to last, both included
  double normal() { return normal_(engine_); }
  std::mt19937_64& engine() { return engine_; }

  // Returns a random tensor of `type` at `sizes`. Floats have a normal distribution (0, stddev) and
  // are rounded to the dtype.
  HostTensor tensor(const ir::Type& type, const ir::Sizes& sizes, double stddev = 1);

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;  // kept, because each draw makes two numbers
};

// Returns a tensor with these values.
HostTensor tensor_of(const ir::Type& type, const ir::Sizes& sizes, std::vector<double> values);
// Returns a tensor of i32 whose elements are all `value`.
HostTensor filled(std::initializer_list<ir::Dim> dims, const ir::Sizes& sizes, double value = 0);
// Returns a type whose dims do not depend on the step, such as a weight's.
ir::Type type_of(DType dtype, std::initializer_list<ir::Dim> dims);

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Returns the key of a step of `count` tokens in any number of sequences.
StepKey tokens(int64_t count, int64_t sequences = 0);
// Returns the shape as text for messages: "rows 3, columns 64".
std::string at(int64_t rows, int64_t columns);

using HostTensors = ir::Operands<HostTensor>;

// Describes one launch of one op.
struct OpCase {
  std::string op;
  HostTensors inputs;                       // unnamed inputs are the required ones, in order
  std::set<std::string_view> on_host = {};  // names of the inputs that lie in host memory
  ir::Attrs attrs;
  StepKey step;
  StepLengths lengths;
  std::vector<ir::InPlace> in_place;
  int64_t output_gap = 0;
  std::function<bool(std::string_view output, int64_t row)> may_skip;
};

// Holds an output: its values, its exact bits, and which rows the kernel left untouched.
struct Output {
  HostTensor tensor;
  std::vector<std::byte> bytes;
  std::vector<bool> untouched;

  [[nodiscard]] std::vector<std::byte> row_bits(int64_t row) const;
};

// Uploads the inputs, with NaN in the gaps between rows, and runs the op through check_kernel.
std::vector<Output> run(Device& device, const OpCase& c);

// Says how far from the reference a row may be. The norm of its error must be at most `ulps` units
// in the last place of the dtype, times the row's norm or, if that is larger, `floor_rms` per
// element (for sums that cancel).
struct Tolerance {
  double ulps = 2;
  double floor_rms = 0;
};
void expect_close(const HostTensor& actual, const HostTensor& expected,
                  const Tolerance& tolerance = {});
void expect_row_close(DType dtype, const double* actual, const double* expected, int64_t n,
                      const Tolerance& tolerance = {});
// Expects equal bits in all outputs, whatever numbers they are.
void expect_same_bits(const std::vector<Output>& a, const std::vector<Output>& b);

// Runs every op case on each device with each float dtype.
class Conformance : public testing::TestWithParam<std::tuple<Target, DType>> {
 protected:
  void SetUp() override;
  [[nodiscard]] Device& device() const { return *device_; }
  [[nodiscard]] static DType dtype() { return std::get<1>(GetParam()); }
  [[nodiscard]] static ir::Type tokens_by(int64_t columns) {
    return type_of(dtype(), {ir::Dim::tokens(), columns});
  }
  // Runs the case unchanged, with gaps between rows of floats, and over each input that the op may
  // reuse. Expects the first outputs to agree with `expected` each time.
  void expect_agrees(OpCase c, const std::vector<HostTensor>& expected,
                     const Tolerance& tolerance = {});
  // Changes all rows except `row` of the inputs that have a row per token or sequence. Expects row
  // `row` of the outputs to keep its bits.
  void expect_row_independent(OpCase c, int64_t row);

  Random random_;

 private:
  Device* device_ = nullptr;
  testing::ScopedTrace trace_{__FILE__, __LINE__,
                              "--gtest_random_seed=" + std::to_string(Random::seed())};
};

// Tests properties of each device.
class OnDevice : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override;
  [[nodiscard]] Device& device() const { return *device_; }

  Random random_;

 private:
  Device* device_ = nullptr;
};

// Tests sampling on each device; its logits are always f32.
class Sampling : public OnDevice {};

}  // namespace encore::conformance
