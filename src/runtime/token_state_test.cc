#include "runtime/token_state.h"

#include <numeric>

#include <gtest/gtest.h>

#include "listing/listing.h"
#include "ops/ops.h"

namespace encore::runtime {
namespace {

using Tokens = std::vector<int32_t>;

constexpr const char* kBuffers = R"(graph g {
  persistent %token_counts: i32[3,6]
  persistent %token_bias: i32[3,1024,2]
})";

class TokenStateTest : public ::testing::TestWithParam<bool> {
 protected:
  void set(int32_t row, const Tokens& prompt, const Tokens& generated,
           const std::vector<TokenBias>& biases = {}) {
    state_.set(row, prompt, generated, biases, *stream_);
  }
  void write() { state_.write(*stream_); }
  Tokens counts(int64_t row) {
    stream_->synchronize();
    const auto* first = view("token_counts").row<int32_t>(row);
    return {first, first + 6};
  }
  std::vector<TokenBias> biases(int64_t row, size_t count) {
    stream_->synchronize();
    const auto* first = view("token_bias").as<TokenBias>() + row * kMaxTokenBias;
    return {first, first + count};
  }
  TensorView view(const char* name) { return persistent_.view(*graph_.find_value(name)); }

  ir::Graph graph_ = listing::parse(kBuffers, ops::standard());
  std::unique_ptr<Device> device_ = create_cpu_device(
      {.num_threads = 1, .shuffle_seed = GetParam() ? std::optional<uint64_t>(7) : std::nullopt});
  std::unique_ptr<Stream> stream_ = device_->create_stream();
  PersistentBuffers persistent_{*device_, *stream_, graph_};
  TokenState state_{*device_, persistent_, 400'000};
};
INSTANTIATE_TEST_SUITE_P(Streams, TokenStateTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Shuffled" : "InOrder"; });

TEST_P(TokenStateTest, CountsWhatWasGeneratedAndMarksThePrompt) {
  set(1, {2, 2, 5}, {0, 5, 5});
  write();
  EXPECT_EQ(counts(1), (Tokens{1, 0, kInPrompt, 0, 0, kInPrompt + 2}));
  EXPECT_EQ(counts(0), (Tokens{0, 0, 0, 0, 0, 0}));
}

TEST_P(TokenStateTest, ForgetsTheSequenceThatHadTheRow) {
  set(2, {1}, {1, 2}, {{3, 0.5F}, {4, -1.5F}});
  write();
  EXPECT_EQ(biases(2, 3), (std::vector<TokenBias>{{3, 0.5F}, {4, -1.5F}, {-1, 0}}));
  set(2, {5}, {}, {{0, 2.0F}});
  write();
  EXPECT_EQ(counts(2), (Tokens{0, 0, 0, 0, 0, kInPrompt}));
  EXPECT_EQ(biases(2, 2), (std::vector<TokenBias>{{0, 2.0F}, {-1, 0}}));
}

TEST_P(TokenStateTest, TakesMoreThanOneWriteHolds) {
  const Tokens many(300'000, 3);
  for (int32_t row = 0; row < 3; ++row)
    set(row, {row}, many);
  write();
  for (int64_t row = 0; row < 3; ++row) {
    Tokens expected(6, 0);
    expected[3] = 300'000;
    expected[static_cast<size_t>(row)] += kInPrompt;
    EXPECT_EQ(counts(row), expected);
  }
}

TEST_P(TokenStateTest, HoldsAsManyBiasesAsThereMayBe) {
  std::vector<TokenBias> all(kMaxTokenBias);
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = {static_cast<int32_t>(i), static_cast<float>(i)};
  set(0, {1}, {}, all);
  write();
  EXPECT_EQ(biases(0, all.size()), all);
}

}  // namespace
}  // namespace encore::runtime
