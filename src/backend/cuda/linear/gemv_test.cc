// Tests linears of one to four rows under load.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/testing/cuda_fixture.h"

namespace encore {
namespace {

using Case = ProductShape;

// The ring of stages in shared memory goes round many times while launches overlap, and no stage
// may be overwritten before it has been read. With the first two shapes half of each stage is
// zeros, which arrive at once.
TEST_F(CudaTest, LinearOfUpToFourRowsGivesTheSameBitsInEveryLaunchOfManyChains) {
  constexpr int kLaunches = 20;
  constexpr int kReplays = 20;
  for (const Case& c : {Case{4, 40000, 512}, Case{1, 40000, 512}, Case{1, 6144, 4096},
                        Case{2, 28672, 2048}, Case{4, 1024, 14336}}) {
    const TensorView x = random({c.rows, c.columns}, DType::kBF16, 1);
    const TensorView weight = random({c.outputs, c.columns}, DType::kBF16, 2);
    const TensorView out = allocate({kLaunches, c.rows, c.outputs});
    const int64_t elements = c.rows * c.outputs;
    stream_->synchronize();
    RecordingScope scope(*stream_);
    for (int i = 0; i < kLaunches; ++i) {
      const TensorView own(out.as<float>() + i * elements, DType::kF32, {c.rows, c.outputs});
      launch("linear",
             bind("linear", {.inputs = {{"x", x}, {"weight", weight}}, .outputs = {{"y", own}}},
                  "linear.gemv"));
    }
    const auto recording = scope.finish();
    std::vector<float> first;
    for (int replay = 0; replay < kReplays; ++replay) {
      fill(out, NAN);
      stream_->replay(*recording);
      const std::vector<float> all = read(out);
      if (first.empty()) first.assign(all.begin(), all.begin() + elements);
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i], first[i % first.size()]) << c.rows << "x" << c.outputs << "x" << c.columns
                                                   << ", replay " << replay << ", element " << i;
      }
    }
    memory_.clear();
  }
}

}  // namespace
}  // namespace encore
