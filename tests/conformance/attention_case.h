// Makes steps of attention over paged caches, for the tests of attention and of the ops that are
// fused with it.
#pragma once

#include "harness.h"

namespace encore::conformance {

struct Heads {
  int64_t query;
  int64_t kv;
  int64_t size;
  int64_t page_size;
  std::optional<DType> kv_dtype = {};  // dtype of the caches; absent: the queries' dtype
};

// Returns each entry of `all` twice: with caches of the queries' dtype, and with caches of fp8.
std::vector<Heads> with_fp8(const std::vector<Heads>& all);

struct Sequence {
  int64_t query_len;
  int64_t kv_len;
};

// Describes one step: real sequences, then padding. If `uniform_q` is 0, the step is mixed.
struct Batch {
  std::vector<Sequence> sequences;
  int uniform_q = 0;
  int64_t padding_sequences = 0;
  int64_t padding_tokens = 0;
};

std::string describe(const Heads& heads, const Batch& batch);

// Holds features that some models' attention has.
struct Extras {
  std::optional<int64_t> window = {};
  std::optional<double> softcap = {};
  bool sinks = false;
};

// Adds these features to an attention or fused_attention. Entries of the page table whose pages lie
// before every query's window become -1.
void add_extras(Random& random, OpCase& c, const Batch& batch, const Extras& extras);

// Returns the op `attention` for the step that `batch` describes. Pages are shuffled. Slots of the
// caches and rows of the queries that belong to no token are NaN.
OpCase attention_case(Random& random, DType dtype, const Heads& heads, const Batch& batch);

// Holds for each row what the op writes there, or nothing where it leaves the row untouched.
using Rows = std::vector<std::optional<std::vector<double>>>;
Rows expected_rows(const OpCase& attention);

}  // namespace encore::conformance
