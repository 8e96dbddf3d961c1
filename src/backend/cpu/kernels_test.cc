#include "backend/cpu/kernels.h"

#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "backend/device.h"
#include "base/testing/message_of.h"

namespace encore {
namespace {

// Returns the bytes of y = x weight^T from a device of `num_threads` threads, for rows [0,
// num_rows).
std::vector<std::byte> linear_bits(int num_threads, int64_t num_rows, DType dtype) {
  constexpr int64_t kIn = 200;
  constexpr int64_t kOut = 333;
  const auto device = create_cpu_device({.num_threads = num_threads, .shuffle_seed = {}});
  const auto stream = device->create_stream();
  const Memory x = device->allocate(300 * kIn * size_of(dtype));
  const Memory weight = device->allocate(kOut * kIn * size_of(dtype));
  const Memory y = device->allocate(num_rows * kOut * size_of(dtype));
  device->fill_random(*stream, TensorView(x.data(), dtype, {300, kIn}), 1, 1.0F);
  device->fill_random(*stream, TensorView(weight.data(), dtype, {kOut, kIn}), 2, 1.0F);
  KernelArgs args;
  args.inputs = {{"x", TensorView(x.data(), dtype, {num_rows, kIn})},
                 {"weight", TensorView(weight.data(), dtype, {kOut, kIn})}};
  args.outputs = {{"y", TensorView(y.data(), dtype, {num_rows, kOut})}};
  const Kernel& kernel = device->kernels().choose("linear", args);
  const Memory scratch = device->allocate(kernel.workspace(args).scratch_bytes);
  args.scratch = scratch.data();
  stream->launch({.label = "linear", .id = 0, .after = {}}, kernel.bind(*device, args), {});
  stream->synchronize();
  return {y.data(), y.data() + y.bytes()};
}

TEST(CpuKernels, GiveTheSameBitsOnAnyNumberOfThreads) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::vector<std::byte> one = linear_bits(1, 270, dtype);
    EXPECT_TRUE(linear_bits(2, 270, dtype) == one);
    EXPECT_TRUE(linear_bits(5, 270, dtype) == one);
  }
}

TEST(CpuKernels, GiveARowTheSameBitsAmongAnyNumberOfRows) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::vector<std::byte> all = linear_bits(2, 270, dtype);
    for (const int64_t num_rows : {1, 2, 3, 4, 5, 17}) {
      const std::vector<std::byte> some = linear_bits(2, num_rows, dtype);
      EXPECT_EQ(std::memcmp(some.data(), all.data(), some.size()), 0) << num_rows << " rows";
    }
  }
}

// Only the pages of the window have memory. The window's 1024 tokens begin inside a page of 32
// tokens, so they lie in 33 pages, which have 1.03 times the bytes of 1024 tokens.
TEST(CpuKernels, AttentionWithAWindowReadsThePagesOfItsWindowAlone) {
  constexpr int64_t kLength = 8199;
  constexpr int64_t kWindow = 1024;
  constexpr int64_t kPage = 32;
  constexpr int64_t kNumPages = 1000;
  constexpr int64_t kPages = 257;  // pages of the sequence
  constexpr int64_t kFirst = (kLength - kWindow) / kPage;
  const auto device = create_cpu_device({.num_threads = 1, .shuffle_seed = {}});
  const auto stream = device->create_stream();
  const int64_t page_bytes = kPage * 64 * static_cast<int64_t>(sizeof(float));
  std::vector<std::unique_ptr<AddressRange>> caches;
  for (int i = 0; i < 2; ++i) {
    caches.push_back(device->reserve(kNumPages * page_bytes));
    caches.back()->map((kPages - kFirst) * page_bytes);
    EXPECT_LE(caches.back()->mapped_bytes(), kWindow * page_bytes / kPage * 11 / 10);
    device->fill_random(
        *stream, TensorView(caches.back()->data(), DType::kF32, {(kPages - kFirst) * kPage, 64}),
        static_cast<uint64_t>(i), 1.0F);
  }
  std::vector<int32_t> table(kPages, kNumPages - 1);  // a page without memory
  for (int64_t i = kFirst; i < kPages; ++i)
    table[static_cast<size_t>(i)] = static_cast<int32_t>(i - kFirst);
  std::vector<int32_t> starts = {0, 1};
  int32_t length = kLength;
  std::vector<float> q(64, 0.5F);
  std::vector<float> o(64);
  const Shape cache{kNumPages, 1, kPage, 64};
  KernelArgs args;
  args.step = StepKey::uniform(1);
  args.attrs.set("scale", 0.1);
  args.attrs.set("window", kWindow);
  args.inputs = {{"q", TensorView(q.data(), DType::kF32, {1, 64})},
                 {"k_cache", TensorView(caches[0]->data(), DType::kF32, cache)},
                 {"v_cache", TensorView(caches[1]->data(), DType::kF32, cache)},
                 {"page_table", TensorView(table.data(), DType::kI32, {1, kPages})},
                 {"kv_lens", TensorView(&length, DType::kI32, {1})},
                 {"query_starts", TensorView(starts.data(), DType::kI32, {2})}};
  args.outputs = {{"o", TensorView(o.data(), DType::kF32, {1, 64})}};
  const Kernel& kernel = device->kernels().choose("attention", args);
  stream->launch({.label = "attention", .id = 0, .after = {}}, kernel.bind(*device, args), {});
  stream->synchronize();
  EXPECT_NE(o[0], 0);
}

TEST(CpuDevice, NamesTheShapesThatNoKernelAccepts) {
  const auto device = create_cpu_device();
  KernelTable& table = device->kernels();
  Kernel picky = {"picky", "picky.test", [](const KernelArgs&) { return false; }, nullptr, nullptr};
  table.add_first(picky);
  KernelArgs args;
  args.inputs = {{"x", TensorView(nullptr, DType::kBF16, {3, 4})}};
  const std::string message =
      message_of(ErrorKind::kUnsupported, [&] { (void)table.choose("picky", args); });
  EXPECT_NE(message.find("x bf16[3,4]"), std::string::npos) << message;
}

// A kernel that ignored a scale would compute a wrong result.
TEST(CpuDevice, TakesNoKernelThatDoesNotKnowAnOptionalOperand) {
  const auto device = create_cpu_device();
  KernelTable& table = device->kernels();
  const TensorView scale(nullptr, DType::kF32, {1});
  KernelArgs args;
  args.inputs = {{"x", TensorView(nullptr, DType::kBF16, {3, 4})},
                 {"weight", TensorView(nullptr, DType::kBF16, {5, 4})},
                 {"weight_scale", &scale}};
  const std::string message =
      message_of(ErrorKind::kUnsupported, [&] { (void)table.choose("linear", args); });
  EXPECT_NE(message.find("op 'linear': no kernel on this device accepts for (x "
                         "bf16[3,4], weight bf16[5,4], weight_scale f32[1])"),
            std::string::npos)
      << message;
  table.add_first({.op = "linear", .name = "linear.scaled", .optional = {"bias", "weight_scale"}});
  EXPECT_EQ(table.choose("linear", args).name, "linear.scaled");
}

// A child process reads the address, because the fault ends it.
TEST(CpuDevice, FaultsOnAddressesThatAreNotMapped) {
  const auto device = create_cpu_device();
  const auto range = device->reserve(1 << 20);
  range->map(range->granularity());
  std::memset(range->data(), 1, static_cast<size_t>(range->granularity()));
  range->unmap();
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);  // without a sanitizer's report
    const volatile std::byte value = *range->data();
    (void)value;
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(CpuDevice, RefusesToRecordALaunchThatDoesNothing) {
  const auto device = create_cpu_device();
  const auto stream = device->create_stream();
  const auto launch_nothing = [&] {
    stream->launch({.label = "idle"}, [](Stream&, const StepLengths&) {}, {});
  };
  EXPECT_NO_THROW(launch_nothing()) << "eagerly, where there may be nothing to do";
  const RecordingScope scope(*stream);
  EXPECT_EQ(message_of(ErrorKind::kCompile, launch_nothing),
            "op 'idle' adds nothing to its recording");
}

TEST(CpuDevice, RefusesToRecordTwiceAtOnce) {
  const auto device = create_cpu_device();
  const auto stream = device->create_stream();
  const auto other = device->create_stream();
  EXPECT_THROW((void)stream->end_recording(nullptr), Error);
  const RecordingScope scope(*stream);
  EXPECT_THROW(stream->begin_recording(), Error);
  EXPECT_THROW(other->begin_recording(), Error);
}

}  // namespace
}  // namespace encore
