// Tests fused_attention: its results against the reference of the ops that it stands for, and its
// bits against those ops.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention_case.h"

namespace encore::conformance {
namespace {

using ir::Dim;

HostTensor random_frequencies(Random& random, int64_t head_size) {
  HostTensor inv_freq = random.tensor(type_of(DType::kF32, {head_size / 2}), {});
  for (double& frequency : inv_freq.values)
    frequency = round_to(DType::kF32, std::exp(-std::fabs(4 * frequency)));
  return inv_freq;
}

// Returns the step of `attention` before its new tokens are written: their slots in the caches are
// NaN, and the queries are not yet rotated.
OpCase fused_case(Random& random, const Heads& heads, const OpCase& attention, bool with_norms) {
  const DType dtype = attention.inputs["q"].type.dtype;
  const ir::Sizes sizes = attention.step.sizes();
  std::vector<HostTensor> caches{attention.inputs["k_cache"], attention.inputs["v_cache"]};
  const HostTensor& page_table = attention.inputs["page_table"];
  const HostTensor& kv_lens = attention.inputs["kv_lens"];
  const HostTensor& starts = attention.inputs["query_starts"];
  const ir::Type ids = type_of(DType::kI32, {Dim::tokens()});
  std::vector<double> positions(static_cast<size_t>(sizes.tokens));
  std::vector<double> slots(static_cast<size_t>(sizes.tokens), -1.0);
  for (int64_t b = 0; b < sizes.sequences; ++b) {
    const int q = attention.step.q.value_or(0);
    const int64_t begin = q > 0 ? b * q : starts.integer(b);
    const int64_t end = q > 0 ? begin + q : starts.integer(b + 1);
    if (kv_lens.integer(b) == 0) continue;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t key = kv_lens.integer(b) - end + t;
      const auto page = static_cast<int64_t>(page_table.row(b)[key / heads.page_size]);
      positions[t] = static_cast<double>(key);
      slots[t] = static_cast<double>(page * heads.page_size + key % heads.page_size);
      for (HostTensor& cache : caches) {
        for (int64_t head = 0; head < heads.kv; ++head) {
          const int64_t place = head * heads.page_size + key % heads.page_size;
          std::fill_n(cache.row(page) + place * heads.size, heads.size, kNaN);
        }
      }
    }
  }
  const ir::Type row = type_of(dtype, {Dim::tokens(), heads.kv * heads.size});
  OpCase c = attention;
  c.op = "fused_attention";
  c.inputs = {{"q", attention.inputs["q"]},
              {"k", random.tensor(row, sizes)},
              {"v", random.tensor(row, sizes)},
              {"positions", tensor_of(ids, sizes, positions)},
              {"inv_freq", random_frequencies(random, heads.size)},
              {"slots", tensor_of(ids, sizes, slots)},
              {"k_cache", caches[0]},
              {"v_cache", caches[1]},
              {"page_table", page_table},
              {"kv_lens", kv_lens},
              {"query_starts", starts}};
  if (const HostTensor* sinks = attention.inputs.find("sinks")) c.inputs.add("sinks", *sinks, true);
  if (with_norms) {
    for (const char* norm : {"q_norm", "k_norm"})
      c.inputs.add(norm, random.tensor(type_of(dtype, {heads.size}), {}));
    c.attrs.set("eps", 1e-6);
  }
  return c;
}

ir::Attrs only(const ir::Attrs& attrs, std::initializer_list<std::string_view> names) {
  ir::Attrs kept;
  for (const std::string_view name : names) {
    if (const ir::Attrs::Value* value = attrs.find(name)) kept.set(std::string(name), *value);
  }
  return kept;
}

OpCase write_of(const OpCase& fused) {
  OpCase c = fused;
  c.op = "rope_kv_write";
  c.inputs = fused.inputs.without({"page_table", "kv_lens", "query_starts", "sinks"});
  c.attrs = only(fused.attrs, {"eps", "offset"});
  c.may_skip = nullptr;
  return c;
}

// Returns the attention over the written caches, which are outputs of a device or of the reference.
OpCase attention_of(const OpCase& fused, const HostTensor& q, const HostTensor& k_cache,
                    const HostTensor& v_cache) {
  OpCase c = fused;
  c.op = "attention";
  c.inputs = {{"q", q},
              {"k_cache", k_cache},
              {"v_cache", v_cache},
              {"page_table", fused.inputs["page_table"]},
              {"kv_lens", fused.inputs["kv_lens"]},
              {"query_starts", fused.inputs["query_starts"]},
              {"sinks", fused.inputs.find("sinks")}};
  for (const char* name : {"q", "k_cache", "v_cache"})
    c.inputs[name].type = fused.inputs[name].type;
  c.attrs = only(fused.attrs, {"scale", "window", "softcap"});
  return c;
}

HostTensor rounded(HostTensor tensor) {
  for (double& value : tensor.values)
    value = round_to(tensor.type.dtype, value);
  return tensor;
}

Rows expected_of(const OpCase& c) {
  const HostTensors& in = c.inputs;
  const auto turned = [&](HostTensor x, const HostTensor* norm) {
    const double offset = c.attrs.find("offset") == nullptr ? 0 : c.attrs.get_double("offset");
    if (norm != nullptr)
      x = rounded(reference::rms_norm(x, *norm, c.attrs.get_double("eps"), offset));
    return rounded(reference::rope(x, in["positions"], in["inv_freq"]));
  };
  const HostTensor k = turned(in["k"], in.find("k_norm"));
  return expected_rows(attention_of(c, turned(in["q"], in.find("q_norm")),
                                    reference::kv_write(in["k_cache"], k, in["slots"]),
                                    reference::kv_write(in["v_cache"], in["v"], in["slots"])));
}

// Returns a function that tells which rows of the output no sequence owns.
std::function<bool(std::string_view, int64_t)> unowned(const Rows& expected) {
  return [&expected](std::string_view output, int64_t row) {
    return output == "o" && !expected[row].has_value();
  };
}

void expect_same_owned_rows(const Output& a, const Output& b, const Rows& expected) {
  for (size_t row = 0; row < expected.size(); ++row) {
    const auto r = static_cast<int64_t>(row);
    if (!expected[row]) continue;
    EXPECT_TRUE(a.row_bits(r) == b.row_bits(r)) << "row " << row;
  }
}

// Runs the case, also with its output over its queries, and compares the bits with those of the ops
// that it stands for.
void expect_its_parts(Device& device, OpCase c) {
  const Rows expected = expected_of(c);
  const std::vector<Output> written = run(device, write_of(c));
  OpCase attention = attention_of(c, written[0].tensor, written[1].tensor, written[2].tensor);
  attention.may_skip = unowned(expected);
  const std::vector<Output> attended = run(device, attention);
  c.may_skip = unowned(expected);
  OpCase over = c;
  over.in_place = {{"o", "q"}};
  for (const OpCase& each : {c, over}) {
    const std::vector<Output> y = run(device, each);
    expect_same_owned_rows(y[0], attended[0], expected);
    EXPECT_TRUE(y[1].bytes == written[1].bytes) << "keys";
    EXPECT_TRUE(y[2].bytes == written[2].bytes) << "values";
  }
}

const Heads kFusedHeads[] = {{8, 2, 128, 32}, {14, 2, 64, 64}, {8, 1, 96, 16},   {2, 2, 32, 32},
                             {6, 3, 80, 16},  {3, 3, 96, 64},  {4, 2, 256, 32},  {16, 1, 256, 16},
                             {16, 1, 64, 16}, {4, 4, 64, 16},  {32, 2, 128, 16}, {4, 2, 128, 64}};

Batch uniform_batch(int q) {
  Batch batch{.sequences = {}, .uniform_q = q, .padding_sequences = 2, .padding_tokens = 0};
  for (const int64_t len : {1, 16, 17, 33, 64, 65, 100, 0, 330})
    batch.sequences.push_back({q, len == 0 ? 0 : std::max<int64_t>(len, q)});
  return batch;
}

TEST_P(Conformance, FusedAttentionOfUniformStepsIsItsParts) {
  for (const Heads& heads : with_fp8(cases(kFusedHeads, 3))) {
    for (const int q : {1, 2, 4, 8, 9}) {
      if (heads.size != 128 && q % 4 != 1) continue;
      const Batch batch = uniform_batch(q);
      SCOPED_TRACE(describe(heads, batch));
      const OpCase attention = attention_case(random_, dtype(), heads, batch);
      expect_its_parts(device(), fused_case(random_, heads, attention, q % 2 == 1));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, FusedAttentionOfMixedStepsIsItsParts) {
  const Batch batches[] = {
      {.sequences = {{33, 33}}},
      {.sequences = {{20, 64}, {1, 33}, {31, 95}, {1, 32}, {2, 31}},
       .padding_sequences = 3,
       .padding_tokens = 9},
      {.sequences = {{3, 0}, {2, 9}}, .padding_tokens = 2},
      {},
  };
  for (const Heads& heads : with_fp8({kFusedHeads[0], kFusedHeads[3], kFusedHeads[6]})) {
    for (const Batch& batch : batches) {
      SCOPED_TRACE(describe(heads, batch));
      const OpCase attention = attention_case(random_, dtype(), heads, batch);
      expect_its_parts(device(), fused_case(random_, heads, attention, false));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, FusedAttentionWithWindowsCapsAndSinksIsItsParts) {
  const Extras kExtras[] = {
      {.window = 1}, {.window = 20}, {.window = 64, .softcap = 1.5, .sinks = true}};
  Batch uniform = uniform_batch(1);
  uniform.sequences.push_back({1, 1500});
  const Batch batches[] = {uniform,
                           uniform_batch(4),
                           {.sequences = {{20, 64}, {1, 33}, {31, 95}, {2, 31}},
                            .padding_sequences = 3,
                            .padding_tokens = 9}};
  for (const Heads& heads : with_fp8({kFusedHeads[0], kFusedHeads[6]})) {
    for (const Batch& batch : batches) {
      for (const Extras& extras : kExtras) {
        SCOPED_TRACE(describe(heads, batch));
        OpCase attention = attention_case(random_, dtype(), heads, batch);
        OpCase fused = fused_case(random_, heads, attention, true);
        add_extras(random_, fused, batch, extras);
        fused.attrs.set("offset", 1.0);
        expect_its_parts(device(), fused);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Conformance, FusedAttentionAgrees) {
  for (const Heads& heads : with_fp8({kFusedHeads[0], kFusedHeads[1], kFusedHeads[6]})) {
    for (const int q : {1, 4}) {
      const OpCase attention = attention_case(random_, dtype(), heads, uniform_batch(q));
      OpCase c = fused_case(random_, heads, attention, q == 4);
      const Rows expected = expected_of(c);
      for (const int64_t gap : {int64_t{0}, 2 * heads.size, int64_t{7}}) {
        SCOPED_TRACE(describe(heads, uniform_batch(q)) + ", gap " + std::to_string(gap));
        for (const char* rows : {"q", "k", "v"})
          c.inputs[rows].row_gap = gap;
        const std::vector<Output> y = run(device(), c);
        for (size_t row = 0; row < expected.size(); ++row) {
          // An intermediate value may be rounded in the other direction than the reference rounds
          // it. If it is rounded to fp8, the error in the result is as large as that of several
          // roundings to bf16.
          const DType precision = heads.kv_dtype ? DType::kBF16 : dtype();
          expect_row_close(precision, y[0].tensor.row(static_cast<int64_t>(row)),
                           expected[row]->data(), y[0].tensor.row_elements(),
                           {.ulps = precision == DType::kF32 ? 4000.0 : 3.0});
          if (HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace encore::conformance
