#include "ops/builder.h"

namespace encore::ops {

std::vector<ValueId> Builder::call(const std::string& op, std::vector<ValueId> inputs,
                                   ir::Attrs attrs, const std::string& name) {
  const ir::Op* row = ops_.find(op);
  if (row == nullptr) {
    fail(ErrorKind::kCompile, "no op '{}' in the set: add its row to the OpSet first", op);
  }
  return graph_.add_node(*row, std::move(inputs), std::move(attrs), name);
}

ValueId Builder::embedding(ValueId ids, ValueId table, ValueId fill,
                           std::optional<ValueId> last_tokens) {
  std::vector<ValueId> inputs = {ids, table, fill};
  if (last_tokens) inputs.push_back(*last_tokens);
  return call("embedding", std::move(inputs), {}, "x")[0];
}

ValueId Builder::linear(ValueId x, ValueId weight, std::optional<ValueId> bias) {
  std::vector<ValueId> inputs{x, weight};
  if (bias) inputs.push_back(*bias);
  return call("linear", std::move(inputs), {}, "y")[0];
}

ValueId Builder::linear_as(DType out, ValueId x, ValueId weight) {
  return call("linear", {x, weight}, {{"out", std::string(name(out))}}, "y")[0];
}

ValueId Builder::rms_norm(ValueId x, ValueId weight, double eps) {
  return call("rms_norm", {x, weight}, {{"eps", eps}}, "h")[0];
}

ValueId Builder::add(ValueId a, ValueId b) {
  return call("add", {a, b}, {}, "x")[0];
}
ValueId Builder::mul(ValueId a, ValueId b) {
  return call("mul", {a, b}, {}, "m")[0];
}
ValueId Builder::silu(ValueId x) {
  return call("silu", {x}, {}, "s")[0];
}

ValueId Builder::rope(ValueId x, ValueId positions, ValueId inv_freq) {
  return call("rope", {x, positions, inv_freq}, {}, "r")[0];
}

Builder::Cache Builder::kv_write(Cache cache, ValueId k, ValueId v, ValueId slots) {
  const auto written = call("kv_write", {cache.k, cache.v, k, v, slots}, {}, "kv");
  return {written[0], written[1]};
}

ValueId Builder::attention(ValueId q, Cache cache, const Batch& batch, double scale) {
  return call("attention",
              {q, cache.k, cache.v, batch.page_table, batch.kv_lens, batch.query_starts},
              {{"scale", scale}}, "o")[0];
}

ValueId Builder::gather_rows(ValueId x, ValueId rows) {
  return call("gather_rows", {x, rows}, {}, "last")[0];
}

void Builder::advance(ValueId next, const Advance& over, int64_t page_size) {
  ir::Attrs attrs;
  attrs.set("page_size", page_size);
  call(
      "advance",
      {next, over.page_table, over.stop_tokens, over.max_lens, over.ids, over.positions, over.slots,
       over.kv_lens, over.last_tokens, over.step_clock, over.token_ring, over.ring_marks},
      attrs, "advanced");
}

ValueId Builder::sample(ValueId logits, const Sampling& over) {
  const ValueId adjusted = call("adjust_logits",
                                {logits, over.rows, over.kv_lens, over.stop_tokens,
                                 over.token_counts, over.token_bias, over.token_masks},
                                {}, "adjusted")[0];
  const ValueId next =
      call("sample", {logits, adjusted, over.rows, over.kv_lens, over.token_counts}, {}, "next")[0];
  log_probs(logits, next, over.rows, over.step_clock, over.logprob_ring);
  return next;
}

void Builder::log_probs(ValueId logits, ValueId next, ValueId sampling, ValueId clock,
                        ValueId ring) {
  call("log_probs", {logits, next, sampling, clock, ring}, {}, "logprobs");
}

}  // namespace encore::ops
