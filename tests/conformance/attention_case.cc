#include "attention_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rounding.h"

namespace encore::conformance {
namespace {

using ir::Dim;

// Fills the pages of sequences with random K and V. The pages are drawn from `free_pages_`; slots
// that are not written stay NaN.
class CacheFiller {
 public:
  CacheFiller(Random& random, const Heads& heads, HostTensor& k_cache, HostTensor& v_cache)
      : random_(random), heads_(heads), k_cache_(k_cache), v_cache_(v_cache) {
    free_pages_.resize(static_cast<size_t>(k_cache.num_rows() - 1));
    // Page 0 stays NaN, and the page table's padding points to it.
    std::iota(free_pages_.begin(), free_pages_.end(), 1);
    std::shuffle(free_pages_.begin(), free_pages_.end(), random.engine());
  }

  void write(int64_t kv_len, double* page_table_row) {
    for (int64_t token = 0; token < kv_len; ++token) {
      const int64_t entry = token / heads_.page_size;
      if (token % heads_.page_size == 0) {
        page_table_row[entry] = static_cast<double>(free_pages_.back());
        free_pages_.pop_back();
      }
      const auto page = static_cast<int64_t>(page_table_row[entry]);
      for (HostTensor* cache : {&k_cache_, &v_cache_}) {
        for (int64_t head = 0; head < heads_.kv; ++head) {
          const int64_t place = head * heads_.page_size + token % heads_.page_size;
          double* row = cache->row(page) + place * heads_.size;
          for (int64_t c = 0; c < heads_.size; ++c) {
            row[c] = round_to(cache->type.dtype, random_.normal());
          }
        }
      }
    }
  }

 private:
  Random& random_;
  const Heads& heads_;
  HostTensor& k_cache_;
  HostTensor& v_cache_;
  std::vector<int64_t> free_pages_;
};

}  // namespace

std::vector<Heads> with_fp8(const std::vector<Heads>& all) {
  std::vector<Heads> result;
  for (const Heads& heads : all) {
    result.push_back(heads);
    result.push_back(heads);
    result.back().kv_dtype = DType::kFP8;
  }
  return result;
}

std::string describe(const Heads& heads, const Batch& batch) {
  std::string text = "heads " + std::to_string(heads.query) + "/" + std::to_string(heads.kv) +
                     " size " + std::to_string(heads.size) + " page " +
                     std::to_string(heads.page_size) + " q " + std::to_string(batch.uniform_q) +
                     ":";
  if (heads.kv_dtype) text += " KV " + std::string(name(*heads.kv_dtype));
  for (const Sequence& s : batch.sequences) {
    text += " " + std::to_string(s.query_len) + "/" + std::to_string(s.kv_len);
  }
  return text;
}

OpCase attention_case(Random& random, DType dtype, const Heads& heads, const Batch& batch) {
  int64_t num_tokens = batch.padding_tokens;
  int64_t num_pages = 3;  // the NaN page, and pages that no sequence uses
  int64_t max_pages = 1;
  StepLengths lengths;
  for (const Sequence& s : batch.sequences) {
    const int64_t pages = div_up(s.kv_len, heads.page_size);
    num_tokens += s.query_len;
    num_pages += pages;
    max_pages = std::max(max_pages, pages);
    lengths.max_query_len = std::max(lengths.max_query_len, s.query_len);
    lengths.max_kv_len = std::max(lengths.max_kv_len, s.kv_len);
  }
  const int64_t num_real = static_cast<int64_t>(batch.sequences.size());
  const int64_t num_sequences = num_real + batch.padding_sequences;
  num_tokens += batch.uniform_q * batch.padding_sequences;
  StepKey step = StepKey::mixed(num_tokens, num_sequences);
  if (batch.uniform_q > 0) step.q = batch.uniform_q;

  const ir::Type cache =
      type_of(heads.kv_dtype.value_or(dtype), {num_pages, heads.kv, heads.page_size, heads.size});
  constexpr int64_t kOtherRows = 2;  // rows of the page table that belong to no sequence
  const ir::Type table = type_of(DType::kI32, {num_sequences + kOtherRows, max_pages + 1});
  HostTensor q =
      random.tensor(type_of(dtype, {Dim::tokens(), heads.query * heads.size}), step.sizes());
  HostTensor k_cache{cache, cache.resolve({}), {}};
  k_cache.values.assign(static_cast<size_t>(k_cache.shape.num_elements()), kNaN);
  HostTensor v_cache = k_cache;
  HostTensor page_table{table, table.resolve(step.sizes()), {}};
  page_table.values.assign(static_cast<size_t>(page_table.shape.num_elements()), 0.0);
  std::vector<double> kv_lens(static_cast<size_t>(num_sequences), 0.0);
  std::vector<double> starts(static_cast<size_t>(num_sequences + 1), 0.0);

  CacheFiller filler(random, heads, k_cache, v_cache);
  for (int64_t b = 0; b < num_sequences; ++b) {
    const Sequence s = b < num_real ? batch.sequences[b] : Sequence{0, 0};
    filler.write(s.kv_len, page_table.row(b));
    kv_lens[b] = static_cast<double>(s.kv_len);
    starts[b + 1] = starts[b] + static_cast<double>(s.query_len);
  }
  // Query rows that belong to no sequence are NaN.
  for (auto t = static_cast<int64_t>(starts.back()); t < num_tokens; ++t) {
    std::fill_n(q.row(t), q.row_elements(), kNaN);
  }
  if (batch.uniform_q > 0) {
    // Attention of a uniform step must not read the query starts, so they are random.
    for (double& start : starts)
      start = static_cast<double>(random.integer(-9, 99));
  }
  return {.op = "attention",
          .inputs = {{"q", q},
                     {"k_cache", k_cache},
                     {"v_cache", v_cache},
                     {"page_table", page_table},
                     {"kv_lens",
                      tensor_of(type_of(DType::kI32, {Dim::sequences()}), step.sizes(), kv_lens)},
                     {"query_starts",
                      tensor_of(type_of(DType::kI32, {Dim::sequences(1)}), step.sizes(), starts)}},
          .attrs = {{"scale", 1.0 / std::sqrt(static_cast<double>(heads.size))}},
          .step = step,
          .lengths = lengths};
}

void add_extras(Random& random, OpCase& c, const Batch& batch, const Extras& extras) {
  const ir::Type& q = c.inputs["q"].type;
  const HostTensor& cache = c.inputs["k_cache"];
  const int64_t page_size = cache.shape[2];
  if (extras.softcap) c.attrs.set("softcap", *extras.softcap);
  if (extras.sinks) {
    const int64_t num_heads = c.inputs["q"].row_elements() / cache.shape[3];
    c.inputs.add("sinks", random.tensor(type_of(q.dtype, {num_heads}), {}, 2), true);
  }
  if (!extras.window) return;
  c.attrs.set("window", *extras.window);
  for (size_t b = 0; b < batch.sequences.size(); ++b) {
    const Sequence& s = batch.sequences[b];
    const int64_t first = std::max<int64_t>(0, s.kv_len - s.query_len + 1 - *extras.window);
    std::fill_n(c.inputs["page_table"].row(static_cast<int64_t>(b)), first / page_size, -1.0);
  }
}

Rows expected_rows(const OpCase& attention) {
  const auto& in = attention.inputs;
  reference::AttentionInputs inputs{in["q"],
                                    in["k_cache"],
                                    in["v_cache"],
                                    in["page_table"],
                                    in["kv_lens"],
                                    in["query_starts"],
                                    attention.attrs.get_double("scale"),
                                    attention.step.q.value_or(0)};
  if (attention.attrs.find("window") != nullptr) inputs.window = attention.attrs.get_int("window");
  if (attention.attrs.find("softcap") != nullptr)
    inputs.softcap = attention.attrs.get_double("softcap");
  inputs.sinks = in.find("sinks");
  return reference::attention(inputs);
}

}  // namespace encore::conformance
