// The persistent kernel against the launches that it stands for.
#include <cstring>

#include <gtest/gtest.h>

#include "backend/cuda/cuda_fixture.h"

namespace encore {
namespace {

// Linears from one attention to the next, small and of odd sizes: o_proj, add and norm and gate_up
// and silu_mul, down_proj, add and norm and qkv with a bias.
class CudaPersistentTest : public CudaTest {
 protected:
  static constexpr int64_t kHidden = 1032;
  static constexpr int64_t kFfn = 1496;
  static constexpr int64_t kQkv = 1051;

  void make(DType dtype) {
    const auto weight = [&](int64_t outputs, int64_t columns) {
      const TensorView view = allocate({outputs, columns}, dtype);
      device_->fill_random(*stream_, view, ++seed_, 0.05F);
      return view;
    };
    x_ = random({1, kHidden}, dtype, 101);
    h_ = random({1, kHidden}, dtype, 102);
    sums_ = {allocate({1, kHidden}, dtype), allocate({1, kHidden}, dtype)};
    out_ = allocate({1, kQkv}, dtype);
    const TensorView norm = random({kHidden}, dtype, 103);
    const TensorView o = allocate({1, kHidden}, dtype);
    const TensorView gated = allocate({1, kFfn}, dtype);
    const TensorView down = allocate({1, kHidden}, dtype);
    args_.clear();
    args_.push_back({.inputs = {x_, weight(kHidden, kHidden)}, .outputs = {o}});
    args_.push_back(
        {.inputs = {o, h_, norm, weight(2 * kFfn, kHidden)}, .outputs = {sums_[0], gated}});
    args_.push_back({.inputs = {gated, weight(kHidden, kFfn)}, .outputs = {down}});
    args_.push_back(
        {.inputs = {down, sums_[0], norm, weight(kQkv, kHidden), random({kQkv}, dtype, 104)},
         .outputs = {sums_[1], out_}});
    for (const int fused : {1, 3}) {
      args_[fused].attrs.set("prologue", std::string("add_rms_norm"));
      args_[fused].attrs.set("eps", 1e-5);
    }
    args_[1].attrs.set("epilogue", std::string("silu_mul"));
    stages_ = {stage(0, {{}, {}}, {false}), stage(1, {{0, 0}, {}, {}, {}}, {false, false}),
               stage(2, {{1, 1}, {}}, {false}),
               stage(3, {{2, 0}, {1, 0}, {}, {}, {}}, {true, true})};
    stream_->synchronize();  // weights are constants: launches read them ahead of their turn
  }
  Stage stage(int index, std::vector<Stage::Origin> inputs, std::vector<bool> read_after) {
    const std::string_view op = index % 2 == 0 ? "linear" : "fused_linear";
    return {&device_->kernels().choose(op, args_[index]), &args_[index], std::move(inputs),
            std::move(read_after)};
  }
  [[nodiscard]] const PersistentKernel& kernel() const {
    return device_->persistent_kernels().front();
  }

  void forget() {
    for (const TensorView& view : {sums_[0], sums_[1], out_})
      stream_->fill(view.data, 0xffffffffU, view.num_bytes() / 4 * 4);
  }
  // What is read after the run.
  std::vector<std::byte> results() {
    std::vector<std::byte> bytes(sums_[1].num_bytes() + out_.num_bytes());
    stream_->copy_to_host(bytes.data(), sums_[1].data, sums_[1].num_bytes());
    stream_->copy_to_host(bytes.data() + sums_[1].num_bytes(), out_.data, out_.num_bytes());
    stream_->synchronize();
    return bytes;
  }
  std::vector<std::byte> launched() {
    forget();
    for (const Stage& stage : stages_)
      launch("linear", stage.kernel->bind(*device_, *stage.args));
    return results();
  }

  std::vector<KernelArgs> args_;
  std::vector<Stage> stages_;
  TensorView x_;
  TensorView h_;
  std::array<TensorView, 2> sums_;
  TensorView out_;
  uint64_t seed_ = 0;
};

TEST_F(CudaPersistentTest, GivesTheBitsOfTheLaunchesItStandsFor) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    make(dtype);
    const std::vector<std::byte> want = launched();
    ASSERT_TRUE(kernel().accepts(stages_));
    const BoundLaunch run = kernel().bind(*device_, stages_);
    for (int i = 0; i < 3; ++i) {
      forget();
      launch("persistent", run);
      EXPECT_EQ(results(), want) << "launch " << i;
    }
  }
}

TEST_F(CudaPersistentTest, WritesWhatIsReadInsideTooWhereItIsReadAfter) {
  make(DType::kBF16);
  (void)launched();
  std::vector<std::byte> want(sums_[0].num_bytes());
  stream_->copy_to_host(want.data(), sums_[0].data, sums_[0].num_bytes());
  stages_[1].read_after[0] = true;
  forget();
  launch("persistent", kernel().bind(*device_, stages_));
  std::vector<std::byte> got(want.size());
  stream_->copy_to_host(got.data(), sums_[0].data, sums_[0].num_bytes());
  stream_->synchronize();
  EXPECT_EQ(got, want);
}

// Words carry the number of the launch modulo 65536. x changes from launch to launch, so a word of
// the launch before would show.
TEST_F(CudaPersistentTest, TellsLaunchesApartWhenTheirNumbersWrap) {
  make(DType::kBF16);
  const BoundLaunch run = kernel().bind(*device_, stages_);
  const TensorView other = random({1, kHidden}, DType::kBF16, 105);
  const std::vector<std::byte> first = launched();
  std::vector<KernelArgs> with_other = args_;
  with_other[0].inputs[0] = other;
  std::vector<Stage> other_stages = stages_;
  for (size_t i = 0; i < other_stages.size(); ++i)
    other_stages[i].args = &with_other[i];
  std::swap(stages_, other_stages);
  const std::vector<std::byte> second = launched();
  std::swap(stages_, other_stages);
  ASSERT_NE(first, second);

  constexpr int kPerReplay = 200;
  RecordingScope scope(*stream_);
  for (int i = 0; i < kPerReplay; ++i)
    launch("persistent", run);
  const auto recording = scope.finish();
  const auto copy = [&](const TensorView& from) {
    std::vector<std::byte> host(from.num_bytes());
    stream_->copy_to_host(host.data(), from.data, from.num_bytes());
    stream_->synchronize();
    return host;
  };
  const std::vector<std::byte> xs[2] = {copy(x_), copy(other)};
  for (int replay = 0; replay * kPerReplay < 66000; ++replay) {
    const auto& x = xs[replay % 2];
    stream_->copy_to_device(x_.data, x.data(), x_.num_bytes());
    stream_->replay(*recording);
    if (replay % 50 > 1 && replay * kPerReplay < 65000) continue;
    forget();
    launch("persistent", run);
    ASSERT_EQ(results(), replay % 2 == 0 ? first : second) << "replay " << replay;
  }
}

TEST_F(CudaPersistentTest, LeavesARunAloneThatIsNoChain) {
  make(DType::kBF16);
  const auto is_taken = [&](int stage, size_t input, Stage::Origin origin) {
    std::vector<Stage> run = stages_;
    run[stage].inputs[input] = origin;
    return kernel().accepts(run);
  };
  EXPECT_TRUE(kernel().accepts(stages_));
  EXPECT_FALSE(is_taken(2, 0, {}));       // x from outside
  EXPECT_FALSE(is_taken(2, 0, {1, -1}));  // a part of what the stage before makes
  EXPECT_FALSE(is_taken(3, 1, {0, 0}));   // a residual that no block keeps
  EXPECT_FALSE(is_taken(3, 3, {0, 0}));   // a weight that a stage makes
  EXPECT_TRUE(is_taken(3, 1, {}));        // a residual from before the run
}

}  // namespace
}  // namespace encore
