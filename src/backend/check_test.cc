#include "backend/testing/check.h"

#include <atomic>
#include <string>

#include <gtest/gtest.h>

#include "backend/cpu/stream.h"
#include "base/testing/message_of.h"

namespace encore {
namespace {

using ir::Dim;
using ir::Type;
using ir::Types;

// The shape function of a test op that Encore does not have: y = 2 x. Each test chooses one.
using Infer = void (*)(const Types&, const ir::Attrs&, Types&);

void same(const Types& in, const ir::Attrs&, Types& out) {
  out = {{"y", in["x"]}};
}
void one_column_more(const Types& in, const ir::Attrs&, Types& out) {
  const Type& x = in["x"];
  out = {{"y", Type{x.dtype, {x.dims[0], x.dims[1].value + 1}}}};
}
void one_column_less(const Types& in, const ir::Attrs&, Types& out) {
  const Type& x = in["x"];
  out = {{"y", Type{x.dtype, {x.dims[0], x.dims[1].value - 1}}}};
}
void one_row_less(const Types& in, const ir::Attrs&, Types& out) {
  const Type& x = in["x"];
  out = {{"y", Type{x.dtype, {x.dims[0].value - 1, x.dims[1]}}}};
}
void wider_dtype(const Types& in, const ir::Attrs&, Types& out) {
  out = {{"y", Type{DType::kF32, in["x"].dims}}};
}
void never(const Types&, const ir::Attrs&, Types&) {
  fail(ErrorKind::kCompile, "needs the impossible");
}

// Writes 2 x for the rows [0, rows) and the columns [0, columns) of the input x, whatever the
// distance between the rows of the output is.
template <typename T>
void twice(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& y = args.outputs["y"];
  for (int64_t r = 0; r < x.shape[0]; ++r) {
    for (int64_t c = 0; c < x.shape[1]; ++c) {
      y.row<T>(r)[c] = T(2 * static_cast<float>(x.row<T>(r)[c]));
    }
  }
}

template <void (*kRun)(const KernelArgs&)>
BoundLaunch bind(Device&, const KernelArgs& args) {
  return [args](Stream& stream, const StepLengths&) {
    cpu::enqueue(stream, "twice", [args] { kRun(args); });
  };
}

constexpr Kernel kTwice = {"twice", "twice.test", nullptr, nullptr, bind<twice<float>>};

class CheckKernel : public testing::Test {
 protected:
  // The input has 6 rows of 5 columns, with the numbers 1 to 30.
  CheckKernel() : x_(device_->allocate(30 * int64_t{sizeof(float)})) {
    for (int i = 0; i < 30; ++i)
      reinterpret_cast<float*>(x_.data())[i] = static_cast<float>(i + 1);
  }

  KernelCheck check(Infer infer, const Kernel& kernel, DType dtype = DType::kF32) {
    op_.name = "twice";
    op_.inputs = "x any[R,N]";
    op_.infer = infer;
    kernel_ = kernel;
    KernelCheck check;
    check.op = &op_;
    check.kernel = &kernel_;
    check.input_types = {{"x", ir::Type{dtype, {6, 5}}}};
    check.inputs = {{"x", TensorView(x_.data(), dtype, {6, 5})}};
    return check;
  }

  // Returns the message with which the check fails.
  std::string complaint(const KernelCheck& check) {
    std::string message =
        message_of(ErrorKind::kCompile, [&] { (void)check_kernel(*device_, check); });
    EXPECT_NE(message.find("op 'twice'"), std::string::npos) << message;
    return message;
  }

  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1, .shuffle_seed = {}});
  Memory x_;
  ir::Op op_;
  Kernel kernel_;
};

TEST_F(CheckKernel, ReturnsWhatAFaithfulKernelWrites) {
  for (const int64_t gap : {0, 3}) {
    KernelCheck c = check(same, kTwice);
    c.row_gap = gap;
    const std::vector<CheckedOutput> y = check_kernel(*device_, c);
    ASSERT_EQ(y.size(), 1U);
    EXPECT_TRUE(y[0].shape == Shape({6, 5}));
    for (int i = 0; i < 30; ++i) {
      EXPECT_EQ(reinterpret_cast<const float*>(y[0].bytes.data())[i],
                static_cast<float>(2 * i + 2));
    }
  }
}

TEST_F(CheckKernel, RunsInPlaceOnACopyOfTheInput) {
  KernelCheck c = check(same, kTwice);
  c.in_place = {{"y", "x"}};
  const std::vector<CheckedOutput> y = check_kernel(*device_, c);
  EXPECT_EQ(reinterpret_cast<const float*>(y[0].bytes.data())[29], 60.0F);
  EXPECT_EQ(reinterpret_cast<const float*>(x_.data())[29], 30.0F);
}

TEST_F(CheckKernel, CatchesAShapeFunctionThatPromisesTooMuch) {
  EXPECT_NE(complaint(check(one_column_more, kTwice)).find("never written"), std::string::npos);
}

TEST_F(CheckKernel, CatchesAShapeFunctionThatPromisesTooLittle) {
  EXPECT_NE(complaint(check(one_column_less, kTwice)).find("guard"), std::string::npos);
  EXPECT_NE(complaint(check(one_row_less, kTwice)).find("guard"), std::string::npos);
}

TEST_F(CheckKernel, CatchesAShapeFunctionOfAnotherDtype) {
  constexpr Kernel kHalves = {"twice", "twice.test", nullptr, nullptr, bind<twice<BFloat16>>};
  // The shape function promises elements of twice the size, so the kernel writes only half of the
  // promised bytes.
  (void)complaint(check(wider_dtype, kHalves, DType::kBF16));
}

TEST_F(CheckKernel, NamesTheOpWhoseShapeFunctionRefuses) {
  EXPECT_NE(complaint(check(never, kTwice)).find("needs the impossible"), std::string::npos);
}

void skip_last_element(const KernelArgs& args) {
  float* last = args.outputs["y"].row<float>(5) + 4;
  const float before = *last;
  twice<float>(args);
  *last = before;
}
void write_before_the_start(const KernelArgs& args) {
  twice<float>(args);
  args.outputs["y"].as<float>()[-1] = 1;
}
void write_between_rows(const KernelArgs& args) {
  twice<float>(args);
  args.outputs["y"].row<float>(2)[5] = 1;
}
void write_something_new_each_time(const KernelArgs& args) {
  static std::atomic<int> count = 0;
  twice<float>(args);
  args.outputs["y"].as<float>()[7] = static_cast<float>(++count);
}
void leave_a_counter(const KernelArgs& args) {
  twice<float>(args);
  ++args.counters[1];
}
void overrun_the_scratch(const KernelArgs& args) {
  twice<float>(args);
  static_cast<std::byte*>(args.scratch)[100] = std::byte{1};
}
Workspace small_workspace(const KernelArgs&) {
  return {100, 2};
}

TEST_F(CheckKernel, CatchesKernelsThatDoNotKeepTheirWord) {
  const auto kernel = [](auto bind, auto workspace) {
    return Kernel{"twice", "twice.test", nullptr, workspace, bind};
  };
  Workspace (*none)(const KernelArgs&) = nullptr;
  EXPECT_NE(complaint(check(same, kernel(bind<skip_last_element>, none)))
                .find("row 5, column 4 was never written"),
            std::string::npos);
  EXPECT_NE(complaint(check(same, kernel(bind<write_before_the_start>, none))).find("before row 0"),
            std::string::npos);
  KernelCheck apart = check(same, kernel(bind<write_between_rows>, none));
  apart.row_gap = 3;
  EXPECT_NE(complaint(apart).find("between rows"), std::string::npos);
  EXPECT_NE(
      complaint(check(same, kernel(bind<write_something_new_each_time>, none))).find("run to run"),
      std::string::npos);
  EXPECT_NE(
      complaint(check(same, kernel(bind<leave_a_counter>, small_workspace))).find("counter 1"),
      std::string::npos);
  EXPECT_NE(
      complaint(check(same, kernel(bind<overrun_the_scratch>, small_workspace))).find("scratch"),
      std::string::npos);
}

TEST_F(CheckKernel, LetsRowsBeSkippedWhereTheOpSaysSo) {
  KernelCheck c = check(same, kTwice);
  c.inputs["x"].shape = {4, 5};  // the kernel writes four of the six rows
  c.may_skip = [](std::string_view, int64_t row) { return row >= 3; };
  const std::vector<CheckedOutput> y = check_kernel(*device_, c);
  EXPECT_EQ(y[0].untouched, (std::vector<bool>{false, false, false, false, true, true}));
  c.may_skip = [](std::string_view, int64_t row) { return row >= 5; };
  EXPECT_NE(complaint(c).find("row 4"), std::string::npos);
}

}  // namespace
}  // namespace encore
