// Compares decode attention on a GPU, at lengths that are too long for the conformance suite, with
// the plain kernel, whose bits do not depend on how work is dealt out.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "backend/cuda/attention/gather_test.h"
#include "backend/cuda/testing/attention_fixture.h"

namespace encore {
namespace {

void expect_close(const std::vector<uint16_t>& got, const std::vector<uint16_t>& want,
                  int64_t head_size) {
  const auto size = static_cast<size_t>(head_size);
  for (size_t row = 0; row < want.size(); row += size) {
    float squares = 0;
    for (size_t i = row; i < row + size; ++i)
      squares += of_bf16(want[i]) * of_bf16(want[i]);
    const float typical = std::sqrt(squares / static_cast<float>(head_size));
    for (size_t i = row; i < row + size; ++i) {
      const float x = of_bf16(want[i]);
      ASSERT_NEAR(of_bf16(got[i]), x, 0.02F * typical + 0.008F * std::abs(x))
          << "head " << row / size << " of all, element " << i - row;
    }
  }
}

constexpr DType kFP8 = DType::kFP8;

// Returns the lengths of a batch with short sequences, empty ones, and one long one.
std::vector<int64_t> uneven_lengths(int q) {
  std::vector<int64_t> lengths(67, 0);
  for (size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = i % 5 == 3 ? 0 : static_cast<int64_t>(q + i * i % 1500);
  lengths[20] = 40000;
  return lengths;
}

TEST_F(AttentionCudaTest, OneLongSequenceBesideShortAndEmptyOnesAgreesWithThePlainKernel) {
  for (const Case& c :
       {Case{{32, 8, 128}, 1}, Case{{32, 8, 128}, 9}, Case{{8, 2, 64}, 3}, Case{{12, 4, 96}, 5},
        Case{{16, 1, 256}, 1}, Case{{4, 2, 256}, 9}, Case{{32, 8, 128}, 1, kFP8},
        Case{{32, 8, 128}, 9, kFP8}, Case{{8, 2, 64}, 3, kFP8}, Case{{12, 4, 96}, 5, kFP8},
        Case{{16, 1, 256}, 1, kFP8}, Case{{4, 2, 256}, 9, kFP8}}) {
    kv_dtype_ = c.kv_dtype;
    std::vector<int64_t> lengths = uneven_lengths(c.q);
    lengths[64] = 9000;
    const KernelArgs args = attention_args(c.heads, c.q, lengths);
    set_lengths(args, lengths);
    const auto want = run(args, bind("attention", args, "attention.plain"));
    const BoundLaunch decode = bind("attention", args, "attention.decode");
    const auto got = run(args, decode);
    SCOPED_TRACE(c.text());
    expect_close(got, want, c.heads.size);
    for (int repeat = 0; repeat < 5; ++repeat)
      EXPECT_TRUE(run(args, decode) == got) << "other bits, repeat " << repeat;
    memory_.clear();
    if (HasFailure()) return;
  }
}

TEST_F(AttentionCudaTest, ASequenceHasTheSameBitsWhateverTheOthersLengthsAre) {
  const Heads heads{32, 8, 128};
  struct Batch {
    size_t size;
    int64_t longest;
    int64_t max_len;
  };
  // With 64 equal sequences, the kv heads divide nearly evenly among an H200's blocks, so none is
  // split.
  for (const Batch& c : {Batch{40, 20000, kMaxLen}, Batch{64, 5000, kMaxLen},
                         Batch{8, 5000, kMaxLen}, Batch{3, 8000, 8192}, Batch{8, 5000, 8192}}) {
    SCOPED_TRACE(std::to_string(c.size) + " sequences of at most " + std::to_string(c.max_len));
    max_len_ = c.max_len;
    const std::vector<int64_t> room(c.size, c.longest);
    const KernelArgs args = attention_args(heads, 1, room);
    const BoundLaunch decode = bind("attention", args, "attention.decode");
    std::mt19937 random(3);
    const auto row = static_cast<std::ptrdiff_t>(heads.query * heads.size);
    const auto chosen = static_cast<std::ptrdiff_t>(c.size / 2);
    for (const int64_t length : {int64_t{1}, int64_t{64}, int64_t{65}, int64_t{1000}, int64_t{1121},
                                 int64_t{4097}, c.longest}) {
      std::vector<uint16_t> first;
      for (int round = 0; round < 7; ++round) {
        std::vector<int64_t> lengths(room.size());
        if (round == 1) lengths.assign(room.size(), c.longest);
        if (round == 2) lengths.assign(room.size(), length);
        for (int64_t& other : lengths) {
          if (round > 2)
            other = std::min(static_cast<int64_t>(random() % (1U << random() % 15)), c.longest);
        }
        lengths[static_cast<size_t>(chosen)] = length;
        set_lengths(args, lengths);
        const auto all = run(args, decode);
        const std::vector<uint16_t> mine(all.begin() + chosen * row,
                                         all.begin() + (chosen + 1) * row);
        if (round == 0) first = mine;
        EXPECT_TRUE(mine == first) << "length " << length << ", round " << round;
      }
    }
    memory_.clear();
  }
}

// Where a step has few kv heads, clusters of blocks take them. Where sequences may be long, single
// blocks take the kv heads, and all chunks have equal length.
TEST_F(AttentionCudaTest, FewSequencesAgreeWithThePlainKernel) {
  for (const auto& [max_len, kv_dtype] : {std::pair{int64_t{8192}, DType::kBF16},
                                          {int64_t{8192}, kFP8},
                                          {kMaxLen, DType::kBF16},
                                          {kMaxLen, kFP8}}) {
    max_len_ = max_len;
    kv_dtype_ = kv_dtype;
    for (const Heads& heads : {Heads{32, 8, 128}, Heads{8, 2, 64}, Heads{12, 4, 96}}) {
      for (const std::vector<int64_t>& lengths :
           {std::vector<int64_t>{225},
            {8192},
            {1, 0, 2049, 64},
            {513, 8000, 7, 300, 1121},
            {1121, 1121, 1152, 1089, 1200, 1121, 1121, 1121}}) {
        const KernelArgs args = attention_args(heads, 1, lengths);
        set_lengths(args, lengths);
        const auto want = run(args, bind("attention", args, "attention.plain"));
        const BoundLaunch decode = bind("attention", args, "attention.decode");
        SCOPED_TRACE("KV " + std::string(name(kv_dtype)) + ", heads of " +
                     std::to_string(heads.size) + ", " + std::to_string(lengths.size()) +
                     " sequences of at most " + std::to_string(max_len));
        const auto got = run(args, decode);
        expect_close(got, want, heads.size);
        for (int repeat = 0; repeat < 5; ++repeat)
          EXPECT_TRUE(run(args, decode) == got) << "other bits, repeat " << repeat;
        memory_.clear();
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(AttentionCudaTest, TheLongestSequenceThereMayBeAgreesWithThePlainKernel) {
  const Heads heads{8, 2, 128};
  const std::vector<int64_t> lengths = {kMaxLen, 0, 1};
  const KernelArgs args = attention_args(heads, 1, lengths);
  set_lengths(args, lengths);
  const auto want = run(args, bind("attention", args, "attention.plain"));
  expect_close(run(args, bind("attention", args, "attention.decode")), want, heads.size);
}

// Where only the first block of a cluster has a part, nothing keeps the blocks in step, however
// often that happens in a row.
TEST_F(AttentionCudaTest, BlocksOfAClusterThatDriftApartAreGathered) {
  for (const int ranks : {2, 4}) {
    const std::vector<int> active = {1, 1, 1, ranks, 1, 1, 2, 1, ranks, ranks, 2, 2, 1, 1, 1, 1};
    const auto count = static_cast<int64_t>(active.size());
    for (int late = 0; late < ranks; ++late) {
      SCOPED_TRACE(late);
      const TensorView sums = allocate({count});
      fill(sums, 0.0F);
      cuda::decode::gather_from_drifting_blocks(*stream_, ranks, active, late, sums.as<float>());
      const std::vector<float> got = read(sums);
      for (size_t i = 0; i < active.size(); ++i) {
        float parts = 0;
        for (int rank = 0; rank < active[i]; ++rank)
          parts = 10 * parts + 1;
        EXPECT_EQ(got[i], 64 * 4 * static_cast<float>(i + 1) * parts) << "gathering " << i;
      }
    }
  }
}

// K and V of a step's new tokens come from the launch before attention. Attention waits for that
// launch only after it has started to read older keys and values.
TEST_F(AttentionCudaTest, OverlappingLaunchesSeeTheKeysAndValuesOfNewTokens) {
  const Heads heads{32, 8, 128};
  for (const auto& [q, max_len] : {std::pair{1, kMaxLen}, {4, kMaxLen}, {1, int64_t{8192}}}) {
    max_len_ = max_len;
    std::vector<int64_t> lengths = {4, 16, 17, 33, 64, 1000, 1024, 5000};
    const KernelArgs args = attention_args(heads, q, lengths);
    set_lengths(args, lengths);
    const std::vector<int32_t> slots = new_slots(args, lengths);
    const auto tokens = static_cast<int64_t>(slots.size());
    const TensorView slots_view = integers({tokens}, slots);
    constexpr int kSteps = 12;
    std::vector<BoundLaunch> writes;
    std::vector<BoundLaunch> attentions;
    std::vector<TensorView> outputs;
    for (int i = 0; i < kSteps; ++i) {
      const Shape row{tokens, heads.kv * heads.size};
      KernelArgs write;
      write.outputs = {{"k_cache", args.inputs["k_cache"]}, {"v_cache", args.inputs["v_cache"]}};
      write.inputs = write.outputs;
      write.inputs.add("k", random(row, DType::kBF16, 10 + i));
      write.inputs.add("v", random(row, DType::kBF16, 50 + i));
      write.inputs.add("slots", slots_view);
      writes.push_back(bind("kv_write", write));
      KernelArgs attention = args;
      outputs.push_back(allocate(args.outputs["o"].shape, DType::kBF16));
      attention.outputs = {{"o", outputs.back()}};
      attentions.push_back(bind("attention", attention, "attention.decode"));
    }
    std::vector<std::vector<uint16_t>> want;
    stream_->synchronize();
    for (int i = 0; i < kSteps; ++i) {
      launch(writes[i]);
      stream_->synchronize();
      launch(attentions[i]);
      want.push_back(read_bits(outputs[i]));
      if (i > 0) {
        EXPECT_FALSE(want[i] == want[i - 1]) << "step " << i;
      }
    }
    RecordingScope scope(*stream_);
    for (int i = 0; i < kSteps; ++i) {
      launch(writes[i]);
      launch(attentions[i]);
    }
    const auto recording = scope.finish();
    for (int repeat = 0; repeat < 10; ++repeat) {
      for (const TensorView& output : outputs)
        stream_->fill(output.data, 0x7fc07fc0U, output.num_bytes());
      stream_->replay(*recording);
      for (int i = 0; i < kSteps; ++i)
        EXPECT_TRUE(read_bits(outputs[i]) == want[i]) << "q " << q << ", step " << i;
    }
    memory_.clear();
  }
}

// With rotation and cache write in the attention launch, the output and the caches have the same
// bits as with separate launches, whatever share of the work a block has.
TEST_F(AttentionCudaTest, RotationAndCacheWriteInTheLaunchLeaveTheBitsOfTheirParts) {
  for (const Case& c :
       {Case{{32, 8, 128}, 1}, Case{{32, 8, 128}, 8}, Case{{8, 2, 64}, 3}, Case{{12, 4, 96}, 5},
        Case{{16, 1, 256}, 1}, Case{{4, 2, 256}, 9}, Case{{32, 8, 128}, 1, kFP8},
        Case{{32, 8, 128}, 8, kFP8}, Case{{8, 2, 64}, 3, kFP8}, Case{{12, 4, 96}, 5, kFP8},
        Case{{16, 1, 256}, 1, kFP8}, Case{{4, 2, 256}, 9, kFP8}}) {
    kv_dtype_ = c.kv_dtype;
    SCOPED_TRACE(c.text());
    std::vector<int64_t> lengths = uneven_lengths(c.q);
    const KernelArgs attention = attention_args(c.heads, c.q, lengths);
    set_lengths(attention, lengths);
    const KernelArgs parts = fused_args(c.heads, attention, lengths, 11, c.q % 2 == 1);
    const auto want = run(parts, bind_parts("fused_attention", parts));
    const auto keys = read_bits(parts.inputs["k_cache"]);
    const auto values = read_bits(parts.inputs["v_cache"]);
    const KernelArgs fused = fused_args(c.heads, attention, lengths, 11, c.q % 2 == 1);
    // Overwrites the keys and values that the separate launches wrote.
    device_->fill_random(*stream_, fused.inputs["k_cache"], 2, 1.0F);
    device_->fill_random(*stream_, fused.inputs["v_cache"], 3, 1.0F);
    const BoundLaunch decode = bind("fused_attention", fused, "fused_attention.decode");
    for (int repeat = 0; repeat < 3; ++repeat)
      EXPECT_TRUE(run(fused, decode) == want) << "repeat " << repeat;
    EXPECT_TRUE(read_bits(fused.inputs["k_cache"]) == keys);
    EXPECT_TRUE(read_bits(fused.inputs["v_cache"]) == values);
    memory_.clear();
    if (HasFailure()) return;
  }
}

// The launches of layers follow each other without a gap, and each layer has its own new tokens at
// the same addresses.
TEST_F(AttentionCudaTest, OverlappingFusedLaunchesUseTheirOwnNewTokens) {
  const Heads heads{32, 8, 128};
  for (const auto& [q, max_len] : {std::pair{1, kMaxLen}, {4, kMaxLen}, {1, int64_t{8192}}}) {
    max_len_ = max_len;
    const std::vector<int64_t> lengths = {4, 16, 17, 33, 64, 1000, 1024, 5000};
    const KernelArgs attention = attention_args(heads, q, lengths);
    set_lengths(attention, lengths);
    constexpr int kLayers = 12;
    std::vector<KernelArgs> layers;
    std::vector<BoundLaunch> launches;
    std::vector<std::vector<uint16_t>> want;
    for (int i = 0; i < kLayers; ++i) {
      layers.push_back(fused_args(heads, attention, lengths, 100 + 10 * i, false));
      want.push_back(run(layers[i], bind_parts("fused_attention", layers[i])));
      launches.push_back(bind("fused_attention", layers[i], "fused_attention.decode"));
    }
    const auto keys = read_bits(attention.inputs["k_cache"]);
    stream_->synchronize();
    RecordingScope scope(*stream_);
    for (int i = 0; i < kLayers; ++i)
      launch(launches[i]);
    const auto recording = scope.finish();
    for (int repeat = 0; repeat < 10; ++repeat) {
      for (const KernelArgs& layer : layers)
        stream_->fill(layer.outputs["o"].data, 0x7fc07fc0U, layer.outputs["o"].num_bytes());
      stream_->replay(*recording);
      for (int i = 0; i < kLayers; ++i)
        EXPECT_TRUE(read_bits(layers[i].outputs["o"]) == want[i]) << "q " << q << ", layer " << i;
      EXPECT_TRUE(read_bits(attention.inputs["k_cache"]) == keys);
    }
    memory_.clear();
  }
}

}  // namespace
}  // namespace encore
