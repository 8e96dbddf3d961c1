// The conformance tests share devices, fresh random inputs, one checked launch, and comparison.
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

// The devices of the suite. The shuffled CPU runs launches in random legal order, when somebody
// looks.
enum class Target : uint8_t { kCpu, kShuffledCpu, kCuda };

// That device, made once; null, with the reason, when this machine has none.
Device* device_of(Target target, std::string& reason);

// The cases to try: all, or of a quick run the first and every `step`-th after it.
template <typename T, size_t N>
std::vector<T> cases(const T (&all)[N], size_t step) {
  std::vector<T> result;
  for (size_t i = 0; i < N; i += is_thorough() ? 1 : step)
    result.push_back(all[i]);
  return result;
}

// Numbers for inputs. The seed is --gtest_random_seed, or a fixed one.
class Random {
 public:
  Random();
  static uint64_t seed();
  int64_t integer(int64_t first, int64_t last);  // both included
  double normal() { return normal_(engine_); }
  std::mt19937_64& engine() { return engine_; }

  // A tensor of that type at those sizes: floats normal(0, stddev), rounded to the dtype.
  HostTensor tensor(const ir::Type& type, const ir::Sizes& sizes, double stddev = 1);

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;  // each draw makes two
};

// A tensor with these values.
HostTensor tensor_of(const ir::Type& type, const ir::Sizes& sizes, std::vector<double> values);
// A tensor of i32 whose elements are all `value`.
HostTensor filled(std::initializer_list<ir::Dim> dims, const ir::Sizes& sizes, double value = 0);
// A weight-like tensor: no dim depends on the step.
ir::Type type_of(DType dtype, std::initializer_list<ir::Dim> dims);

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A step of so many tokens, of any sequences.
StepKey tokens(int64_t count, int64_t sequences = 0);
// "rows 3, columns 64", for messages.
std::string at(int64_t rows, int64_t columns);

using HostTensors = ir::Operands<HostTensor>;

// One launch of one op.
struct OpCase {
  std::string op;
  HostTensors inputs;                       // those without a name are the required ones, in order
  std::set<std::string_view> on_host = {};  // inputs in memory of the host
  ir::Attrs attrs;
  StepKey step;
  StepLengths lengths;
  std::vector<ir::InPlace> in_place;
  int64_t output_gap = 0;
  std::function<bool(std::string_view output, int64_t row)> may_skip;
};

// An output: its values, its very bits, and which rows the kernel left alone.
struct Output {
  HostTensor tensor;
  std::vector<std::byte> bytes;
  std::vector<bool> untouched;

  [[nodiscard]] std::vector<std::byte> row_bits(int64_t row) const;
};

// Uploads the inputs, gaps between rows filled with NaN, and runs the op through check_kernel.
std::vector<Output> run(Device& device, const OpCase& c);

// How far from the reference a row may be: its error's norm against `ulps` units in the last place
// of the dtype times its own norm, or `floor_rms` per element where that is larger (sums that
// cancel).
struct Tolerance {
  double ulps = 2;
  double floor_rms = 0;
};
void expect_close(const HostTensor& actual, const HostTensor& expected,
                  const Tolerance& tolerance = {});
void expect_row_close(DType dtype, const double* actual, const double* expected, int64_t n,
                      const Tolerance& tolerance = {});
// Equal bits, whatever the numbers.
void expect_same_bits(const std::vector<Output>& a, const std::vector<Output>& b);

// Every op case runs on each device with each float dtype.
class Conformance : public testing::TestWithParam<std::tuple<Target, DType>> {
 protected:
  void SetUp() override;
  [[nodiscard]] Device& device() const { return *device_; }
  [[nodiscard]] static DType dtype() { return std::get<1>(GetParam()); }
  [[nodiscard]] static ir::Type tokens_by(int64_t columns) {
    return type_of(dtype(), {ir::Dim::tokens(), columns});
  }
  // Runs the case as it is, with gaps between rows of floats, and over each input the op may reuse,
  // and expects the first output(s) to agree with `expected` each time.
  void expect_agrees(OpCase c, const std::vector<HostTensor>& expected,
                     const Tolerance& tolerance = {});
  // Changes every row of the token- or sequence-indexed inputs but `row`, and expects output row
  // `row` to keep its bits.
  void expect_row_independent(OpCase c, int64_t row);

  Random random_;

 private:
  Device* device_ = nullptr;
  testing::ScopedTrace trace_{__FILE__, __LINE__,
                              "--gtest_random_seed=" + std::to_string(Random::seed())};
};

// Properties of the device itself.
class OnDevice : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override;
  [[nodiscard]] Device& device() const { return *device_; }

  Random random_;

 private:
  Device* device_ = nullptr;
};

// Sampling: on each device, its logits always f32.
class Sampling : public OnDevice {};

}  // namespace encore::conformance
