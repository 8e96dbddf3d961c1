// Times one launch of decode attention, over copies of the KV that no cache holds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"

namespace encore::measure {

// The dtypes and sizes that all launches share. `rope`: times fused_attention, which rotates.
struct AttentionShape {
  DType dtype = DType::kBF16;
  DType kv_dtype = DType::kBF16;
  int64_t heads = 32;
  int64_t kv_heads = 8;
  int64_t head_dim = 128;
  int64_t query_tokens = 1;
  int64_t page_size = 32;
  int64_t max_context = 131072;
  int64_t rotation_mb = 512;
  bool rope = false;
  std::optional<int64_t> window = {};  // tokens that a token sees at most
};

// A case to time: the tokens of each sequence.
struct AttentionCase {
  std::string name;
  std::vector<int64_t> lengths;
};

// Times of one launch, where launches follow each other, and where a small fill is between them,
// whose own time is subtracted. Units: microseconds per launch.
struct AttentionTiming {
  std::string kernel;
  double kv_bytes = 0;
  double chain_us = 0;
  double alone_us = 0;
};

// Memory for the largest case, filled once, in which each case is timed.
class AttentionTimer {
 public:
  AttentionTimer(const AttentionShape& shape, Device& device,
                 const std::vector<AttentionCase>& cases);

  // Times a case: the median of `runs` replays of one recording.
  AttentionTiming time(const AttentionCase& c, int runs);

 private:
  struct Recorded {
    bool fill;
    bool launch;
  };
  // Where the step's inputs lie, which are the same for every copy of the KV. Units: elements of 4
  // bytes.
  struct Inputs {
    int64_t page_table = 0;
    int64_t kv_lens = 0;
    int64_t query_starts = 0;
    int64_t positions = 0;
    int64_t slots = 0;
    int64_t inv_freq = 0;
    int64_t count = 0;
  };

  [[nodiscard]] int64_t num_pages(int64_t length) const;
  [[nodiscard]] int64_t num_pages(const AttentionCase& c) const;
  [[nodiscard]] int64_t page_bytes() const;  // of K and V each
  [[nodiscard]] int64_t copy_bytes(const AttentionCase& c) const;
  [[nodiscard]] int64_t num_copies(const AttentionCase& c) const;
  [[nodiscard]] double kv_bytes(const AttentionCase& c) const;
  [[nodiscard]] StepKey step_key(const AttentionCase& c) const;
  [[nodiscard]] Inputs inputs(const AttentionCase& c) const;
  void upload(const AttentionCase& c);
  [[nodiscard]] KernelArgs kernel_args(const AttentionCase& c, int64_t copy) const;
  double replay_us(const std::vector<BoundLaunch>& launches, Recorded recorded);

  AttentionShape shape_;
  int runs_ = 1;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  Memory kv_;
  Memory qkv_;
  Memory out_;
  Memory inputs_;
  Memory scratch_;
  Memory counters_;
};

}  // namespace encore::measure
