#include "runtime/token_state.h"

#include <algorithm>

namespace encore::runtime {
namespace {

// Returns how many values (tokens and words of biases) one launch of write_token_state has room
// for: enough for the longest sequence, or for several shorter ones.
int64_t num_values(int64_t max_seq_len) {
  constexpr int64_t kOfSeveral = int64_t{1} << 18;
  return std::max(kOfSeveral, max_seq_len + 2 * kMaxTokenBias);
}

}  // namespace

TokenState::TokenState(Device& device, const PersistentBuffers& persistent, int64_t max_seq_len) {
  const TensorView counts = persistent.find("token_counts");
  if (counts.data == nullptr) return;
  num_rows_ = counts.num_rows();
  KernelArgs args;
  args.outputs = {{"token_counts", counts}, {"token_bias", persistent.find("token_bias")}};
  args.inputs = args.outputs;
  args.inputs.add("changes", TensorView(nullptr, DType::kI32, {num_rows_, 4}));
  args.inputs.add("values", TensorView(nullptr, DType::kI32, {num_values(max_seq_len)}));
  launch_ = HostLaunch(device, "write_token_state", std::move(args), {"values"});
}

void TokenState::write(Stream& stream) {
  launch_.launch(stream);
  num_used_ = 0;
}

void TokenState::warm_up(Stream& stream) {
  if (num_rows_ == 0) return;
  launch_.begin();
  write(stream);
}

void TokenState::set(int32_t row, std::span<const int32_t> prompt,
                     std::span<const int32_t> generated, std::span<const TokenBias> biases,
                     Stream& stream) {
  ENCORE_CHECK(row >= 0 && row < num_rows_ && std::ssize(biases) <= kMaxTokenBias);
  if (listener_) listener_(row, prompt, generated, biases);
  const size_t needed = prompt.size() + generated.size() + 2 * biases.size();
  launch_.begin();
  if (num_used_ + needed > launch_.operand<int32_t>("values").size()) {
    write(stream);
    launch_.begin();
  }
  ENCORE_CHECK(num_used_ + needed <= launch_.operand<int32_t>("values").size());
  launch_.operand<TokenStateChange>("changes")[static_cast<size_t>(row)] = {
      static_cast<int32_t>(num_used_), static_cast<int32_t>(prompt.size()),
      static_cast<int32_t>(generated.size()), static_cast<int32_t>(biases.size())};
  const auto append = [&](std::span<const std::byte> bytes) {
    std::ranges::copy(
        bytes,
        std::as_writable_bytes(launch_.operand<int32_t>("values").subspan(num_used_)).begin());
    num_used_ += bytes.size() / sizeof(int32_t);
  };
  append(std::as_bytes(prompt));
  append(std::as_bytes(generated));
  append(std::as_bytes(biases));
}

}  // namespace encore::runtime
