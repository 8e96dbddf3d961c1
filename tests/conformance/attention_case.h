// Steps of attention over paged caches, for the tests of attention and of what is fused with it.
#pragma once

#include "harness.h"

namespace encore::conformance {

struct Heads {
  int64_t query;
  int64_t kv;
  int64_t size;
  int64_t page_size;
  std::optional<DType> kv_dtype = {};  // of the caches; absent: that of the queries
};

// Each of them with caches of the queries' dtype, then with caches of fp8.
std::vector<Heads> with_fp8(const std::vector<Heads>& all);

struct Sequence {
  int64_t query_len;
  int64_t kv_len;
};

// One step: real sequences, then padding. `uniform_q` 0 makes it mixed.
struct Batch {
  std::vector<Sequence> sequences;
  int uniform_q = 0;
  int64_t padding_sequences = 0;
  int64_t padding_tokens = 0;
};

std::string describe(const Heads& heads, const Batch& batch);

// Features that a model's attention may have besides.
struct Extras {
  std::optional<int64_t> window = {};
  std::optional<double> softcap = {};
  bool sinks = false;
};

// Gives an attention or fused_attention those extras. Entries of the page table for pages that lie
// before everybody's window become -1.
void add_extras(Random& random, OpCase& c, const Batch& batch, const Extras& extras);

// The `attention` of that step. Pages are shuffled; what no token owns, in the caches and among the
// queries, is NaN.
OpCase attention_case(Random& random, DType dtype, const Heads& heads, const Batch& batch);

// The row that the op writes, for each row; nothing where it leaves the row as it is.
using Rows = std::vector<std::optional<std::vector<double>>>;
Rows expected_rows(const OpCase& attention);

}  // namespace encore::conformance
