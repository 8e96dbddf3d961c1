// Attention as a stage of a persistent kernel against the launch that the stage stands for.
#include "backend/cuda/attention_stage_test.h"

#include <algorithm>
#include <array>
#include <utility>

#include <gtest/gtest.h>

#include "backend/cuda/attention_fixture.h"

namespace encore {
namespace {

class AttentionStageCudaTest : public AttentionCudaTest {
 protected:
  // Both on the same new tokens, launch after launch of the stage.
  void expect_stage_as_launch(const Heads& heads, int64_t length);

  // Makes q, k and v parts of one row, as one projection leaves them; the row.
  TensorView merge_new_token(KernelArgs& args) {
    int64_t columns = 0;
    for (int i = 0; i < 3; ++i)
      columns += args.inputs[i].row_elements();
    const TensorView row = allocate({1, columns}, DType::kBF16);
    auto* part = row.as<uint16_t>();
    for (int i = 0; i < 3; ++i) {
      args.inputs[i].data = part;
      part += args.inputs[i].row_elements();
    }
    return row;
  }
  TensorView zeros(int64_t num_words) {
    const TensorView view = allocate({num_words}, DType::kI32);
    stream_->fill(view.data, 0, view.num_bytes());
    return view;
  }
  std::vector<uint32_t> read_words(const TensorView& view) { return read_as<uint32_t>(view); }
};

void AttentionStageCudaTest::expect_stage_as_launch(const Heads& heads, int64_t length) {
  const KernelArgs attention = attention_args(heads, 1, {std::max(length, kPageSize)});
  set_lengths(attention, {length});
  KernelArgs args = fused_args(heads, attention, {length}, 11, length % 2 == 1);
  const TensorView x = merge_new_token(args);
  ASSERT_TRUE(cuda::can_be_stage(args, x));
  const Kernel& kernel = device_->kernels().choose("fused_attention", args);
  const BoundLaunch launched = kernel.bind(*device_, with_workspace(kernel, args));

  const int64_t num_parts = cuda::stage_sizes(args, 128).num_parts;
  const TensorView x_words = zeros(x.row_elements());
  const TensorView out_words = zeros(args.outputs[0].row_elements());
  const TensorView parts = zeros(2 * num_parts + 1);
  const TensorView launches = zeros(1);
  const cuda::StageTestMemory memory{.x = x,
                                     .x_words = x_words.as<uint32_t>(),
                                     .out_words = out_words.as<uint32_t>(),
                                     .parts = parts.as<uint64_t>(),
                                     .launches = launches.as<uint32_t>()};
  const KernelArgs stage_args = with_workspace(kernel, args);
  const auto outputs_of = [&](const BoundLaunch& bound) {
    for (const size_t cache : {6, 7})
      device_->fill_random(*stream_, args.inputs[cache], cache, 1.0F);
    return std::array{run(args, bound), read_bits(args.inputs[6]), read_bits(args.inputs[7])};
  };
  // Fewer blocks have several chunks and kv heads each. Words' tags wrap behind launch 65534.
  for (const auto& [number, num_blocks] :
       {std::pair{0, 128}, {1, 64}, {2, 24}, {65534, 57}, {65535, 128}}) {
    SCOPED_TRACE("launch " + std::to_string(number));
    const BoundLaunch stage = cuda::bind_stage(stage_args, memory, num_blocks);
    device_->fill_random(*stream_, x, 20 + static_cast<uint64_t>(number), 1.0F);
    stream_->copy_to_device(launches.data, &number, sizeof(number));
    const auto want = outputs_of(launched);
    EXPECT_TRUE(outputs_of(stage) == want);
    std::vector<uint32_t> want_words;
    for (const uint16_t bits : want[0])
      want_words.push_back(uint32_t{bits} << 16U | (static_cast<uint32_t>(number + 1) & 0xffffU));
    EXPECT_TRUE(read_words(out_words) == want_words);
    const std::vector<uint32_t> left = read_words(parts);
    EXPECT_EQ(std::count(left.begin(), left.end(), 0U), static_cast<int64_t>(left.size()));
  }
}

TEST_F(AttentionStageCudaTest, LeavesTheBitsOfTheLaunchItStandsFor) {
  for (const int64_t max_len : {int64_t{8192}, kMaxLen}) {
    max_len_ = max_len;
    for (const Heads& heads :
         {Heads{16, 8, 64}, Heads{32, 8, 64}, Heads{16, 8, 128}, Heads{32, 8, 128}}) {
      for (const int64_t length : {0, 1, 63, 225, 1024, 3000, 8000}) {
        const Case c{heads, 1};
        SCOPED_TRACE(c.text() + ", " + std::to_string(length) + " of at most " +
                     std::to_string(max_len) + " tokens");
        expect_stage_as_launch(heads, length);
        memory_.clear();
        if (HasFailure()) return;
      }
    }
  }
}

// Of 8 kv heads of 64 with 4 query heads each; addresses are never used.
KernelArgs stage_candidate(int64_t max_len, const TensorView& row) {
  const auto view = [](const Shape& shape, DType dtype) {
    return TensorView(nullptr, dtype, shape);
  };
  const auto part = [&](int64_t first, int64_t columns) {
    return TensorView(row.as<uint16_t>() + first, row.dtype, {1, columns});
  };
  const TensorView cache = view({64, 8, kPageSize, 64}, DType::kBF16);
  KernelArgs args;
  args.inputs = {part(0, 2048),
                 part(2048, 512),
                 part(2560, 512),
                 view({1}, DType::kI32),
                 view({32}, DType::kF32),
                 view({1}, DType::kI32),
                 cache,
                 cache,
                 view({1, max_len / kPageSize}, DType::kI32),
                 view({1}, DType::kI32),
                 view({2}, DType::kI32)};
  args.outputs = {view({1, 2048}, DType::kBF16), cache, cache};
  args.attrs.set("scale", 0.125);
  args.step = {.padded = {1, 1}, .q = 1, .max_query_len = 1, .max_kv_len = max_len};
  return args;
}

TEST(AttentionStage, TakesOneTokenOfOneSequenceOutOfOneRow) {
  alignas(16) uint16_t memory[2 * 3072] = {};
  const TensorView row(memory, DType::kBF16, {1, 3072});
  const KernelArgs args = stage_candidate(8192, row);
  EXPECT_TRUE(cuda::can_be_stage(args, row));
  EXPECT_FALSE(cuda::can_be_stage(args, {memory + 8, DType::kBF16, {1, 3072}}));
  EXPECT_FALSE(cuda::can_be_stage(args, {memory, DType::kBF16, {1, 3071}}));
  KernelArgs two_tokens = args;
  two_tokens.step.q = 2;
  EXPECT_FALSE(cuda::can_be_stage(two_tokens, row));
  KernelArgs narrow_caches = args;
  for (const int cache : {6, 7})
    narrow_caches.inputs[cache].dtype = DType::kFP8;
  EXPECT_FALSE(cuda::can_be_stage(narrow_caches, row));
}

// No document says what the constant is made of.
TEST_F(AttentionCudaTest, TheConstantForMemoryReadOnceIsWhatTheInstructionMakes) {
  const TensorView made = allocate({2}, DType::kI32);
  cuda::make_evict_first(*stream_, made.as<uint64_t>());
  const std::vector<uint32_t> words = read_as<uint32_t>(made);
  EXPECT_EQ(uint64_t{words[1]} << 32 | words[0], cuda::evict_first());
}

TEST_F(AttentionCudaTest, QuotientsByWayOfFloatsAreExact) {
  const TensorView wrong = allocate({1}, DType::kI32);
  stream_->fill(wrong.data, 0, wrong.num_bytes());
  cuda::count_wrong_quotients(*stream_, wrong.as<uint32_t>());
  EXPECT_EQ(read_as<uint32_t>(wrong)[0], 0U);
}

TEST(AttentionStage, HasAPlaceForWhatEachOtherBlockOfAWorkerSends) {
  alignas(16) uint16_t memory[3072] = {};
  const TensorView row(memory, DType::kBF16, {1, 3072});
  // Eight blocks a kv head, two chunks at most; a part is four rows of 64 columns and a softmax.
  const auto narrow = cuda::stage_sizes(stage_candidate(8192, row), 132);
  EXPECT_EQ(narrow.num_blocks, 128);
  EXPECT_EQ(narrow.num_parts, 8 * 2 * 7 * 4 * 66);
  EXPECT_EQ(cuda::stage_sizes(stage_candidate(8192, row), 100).num_blocks, 96);
  const auto wide = cuda::stage_sizes(stage_candidate(kMaxLen, row), 132);
  EXPECT_EQ(wide.num_blocks, 132);
  EXPECT_EQ(wide.num_parts, 0);
}

}  // namespace
}  // namespace encore
