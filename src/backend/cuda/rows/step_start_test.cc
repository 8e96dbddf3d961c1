// Tests that the first launch of a step keeps later launches from starting before the last step has
// ended. Kernels rely on this: they read lengths, page tables and old K and V before they wait for
// anything (attention/decode.cuh).
#include "backend/cuda/rows/step_start_test.h"

#include <gtest/gtest.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/testing/cuda_fixture.h"

namespace encore {
namespace {

class StepStartCudaTest : public CudaTest {
 protected:
  // Launches a write of 1 that ends late, then `between`, and then a read of the same value. The
  // read does not wait for its inputs. Returns the value that it found.
  float seen_behind(std::string_view op, const BoundLaunch& between) {
    const TensorView words = allocate({3});
    auto* const floats = words.as<float>();
    const cuda::ReadAhead ahead{.value = floats, .seen = floats + 1, .began = words.as<int>() + 2};
    fill(words, 0.0F);
    stream_->synchronize();
    RecordingScope scope(*stream_);
    launch("write_late", [ahead](Stream& s, const StepLengths&) { cuda::write_late(s, ahead); });
    launch(op, between);
    launch("read_ahead", [ahead](Stream& s, const StepLengths&) { cuda::read_ahead(s, ahead); });
    const auto recording = scope.finish();
    stream_->replay(*recording);
    return read(words)[1];
  }
};

TEST_F(StepStartCudaTest, NoLaunchBehindTheFirstStartsBeforeAllOfTheLastStepHasEnded) {
  if (!cuda::overlap_launches()) GTEST_SKIP() << cuda::kSerialLaunches << " is set";
  const TensorView table = random({4, 64}, DType::kF32, 1);
  const TensorView rows = allocate({2}, DType::kI32);
  const TensorView zero = allocate({1});
  const TensorView out = allocate({2, 64});
  stream_->fill(rows.data, 0, rows.num_bytes());
  fill(zero, 0.0F);
  const BoundLaunch embedding =
      bind("embedding",
           {.inputs = {{"ids", rows}, {"table", table}, {"fill", zero}}, .outputs = {{"x", out}}});
  EXPECT_EQ(seen_behind("embedding", embedding), 1.0F);
  // A read behind a launch from the middle of a step comes too early and finds 0. This shows that
  // the test detects early reads.
  const BoundLaunch gather =
      bind("gather_rows", {.inputs = {{"x", table}, {"rows", rows}}, .outputs = {{"y", out}}});
  EXPECT_EQ(seen_behind("gather_rows", gather), 0.0F);
}

}  // namespace
}  // namespace encore
