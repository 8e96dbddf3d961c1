// Times one launch of decode attention by itself. Successive launches read different copies of the
// KV, so that caches hold none of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"

namespace encore::measure {

// Holds the dtypes and sizes that all launches share. Where `rope` is true, fused_attention, which
// rotates queries and keys, is timed in place of attention.
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
  std::optional<int64_t> window = {};  // the most tokens that a query attends to
};

// Describes a batch to time by the length of each sequence. Units: tokens.
struct AttentionCase {
  std::string name;
  std::vector<int64_t> lengths;
};

// Holds the times of one launch: `chain_us` where launches follow each other directly, `alone_us`
// where a small fill stands between two launches and the fill's own time is subtracted. Units:
// microseconds per launch.
struct AttentionTiming {
  std::string kernel;
  double kv_bytes = 0;
  double chain_us = 0;
  double alone_us = 0;
};

// Owns device memory for the largest case, fills it once, and times each case in it.
class AttentionTimer {
 public:
  AttentionTimer(const AttentionShape& shape, Device& device,
                 const std::vector<AttentionCase>& cases);

  // Returns the times of one case, each the median over `runs` replays of a recording.
  AttentionTiming time(const AttentionCase& c, int runs);

 private:
  struct Recorded {
    bool fill;
    bool launch;
  };
  // Holds the offsets of the step's inputs in `inputs_`. All copies of the KV share these inputs.
  // Units: elements of 4 bytes.
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
  [[nodiscard]] int64_t page_bytes() const;  // bytes of K in a page, and as many of V
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
