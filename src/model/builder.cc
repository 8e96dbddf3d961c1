#include "model/builder.h"

namespace encore::model {

Values Builder::call(const std::string& op, const Values& inputs, ir::Attrs attrs,
                     const std::string& name) {
  const ir::Op* row = ops_.find(op);
  if (row == nullptr) {
    fail(ErrorKind::kCompile, "no op '{}' in the set: add its row to the OpSet first", op);
  }
  return graph_.add_node(*row, inputs, std::move(attrs), name).outputs;
}

ValueId Builder::embedding(ValueId ids, ValueId table, ValueId fill,
                           std::optional<ValueId> last_tokens, double scale,
                           std::optional<int64_t> first_row) {
  const Values inputs{{"ids", ids}, {"table", table}, {"fill", fill}, {"last_tokens", last_tokens}};
  ir::Attrs attrs;
  if (scale != 1) attrs.set("scale", scale);
  if (first_row) attrs.set("first_row", *first_row);
  return call("embedding", inputs, attrs, "x")["x"];
}

namespace {

ir::Attrs attrs_of(const Builder::Matrix& matrix) {
  ir::Attrs attrs;
  if (matrix.fp8_rows) attrs.set("fp8_rows", *matrix.fp8_rows);
  if (matrix.x_scale) attrs.set("x_scale", *matrix.x_scale);
  return attrs;
}

}  // namespace

ValueId Builder::linear(ValueId x, const Matrix& matrix, std::optional<ValueId> bias,
                        const std::optional<Lora>& lora) {
  Values inputs{{"x", x}, {"weight", matrix.weight}, {"scale", matrix.scale}, {"bias", bias}};
  if (lora) {
    inputs.add("lora_a", lora->a, true);
    inputs.add("lora_b", lora->b, true);
    inputs.add("adapters", lora->adapters, true);
  }
  return call("linear", inputs, attrs_of(matrix), "y")["y"];
}

ValueId Builder::linear_as(DType out, ValueId x, const Matrix& matrix) {
  ir::Attrs attrs = attrs_of(matrix);
  attrs.set("out", std::string(name(out)));
  const Values inputs{{"x", x}, {"weight", matrix.weight}, {"scale", matrix.scale}};
  return call("linear", inputs, attrs, "y")["y"];
}

ValueId Builder::rms_norm(ValueId x, ValueId weight, double eps, double offset) {
  ir::Attrs attrs{{"eps", eps}};
  if (offset != 0) attrs.set("offset", offset);
  return call("rms_norm", {{"x", x}, {"weight", weight}}, attrs, "h")["y"];
}

ValueId Builder::add(ValueId a, ValueId b) {
  return call("add", {{"a", a}, {"b", b}}, {}, "x")["y"];
}
ValueId Builder::mul(ValueId a, ValueId b) {
  return call("mul", {{"a", a}, {"b", b}}, {}, "m")["y"];
}
ValueId Builder::silu(ValueId x) {
  return call("silu", {{"x", x}}, {}, "s")["y"];
}
ValueId Builder::gelu_tanh(ValueId x) {
  return call("gelu_tanh", {{"x", x}}, {}, "s")["y"];
}
ValueId Builder::softcap(ValueId x, double cap) {
  return call("softcap", {{"x", x}}, {{"cap", cap}}, "capped")["y"];
}

ValueId Builder::rope(ValueId x, ValueId positions, ValueId inv_freq) {
  const Values inputs{{"x", x}, {"positions", positions}, {"inv_freq", inv_freq}};
  return call("rope", inputs, {}, "r")["y"];
}

Builder::Cache Builder::kv_write(Cache cache, ValueId k, ValueId v, ValueId slots) {
  const Values inputs{
      {"k_cache", cache.k}, {"v_cache", cache.v}, {"k", k}, {"v", v}, {"slots", slots}};
  const Values written = call("kv_write", inputs, {}, "kv");
  return {written["k_cache"], written["v_cache"]};
}

ValueId Builder::attention(ValueId q, Cache cache, const Batch& batch, const Scores& scores) {
  const Values inputs{{"q", q},
                      {"k_cache", cache.k},
                      {"v_cache", cache.v},
                      {"page_table", batch.page_table},
                      {"kv_lens", batch.kv_lens},
                      {"query_starts", batch.query_starts},
                      {"sinks", scores.sinks}};
  ir::Attrs attrs{{"scale", scores.scale}};
  if (scores.window) attrs.set("window", *scores.window);
  if (scores.softcap) attrs.set("softcap", *scores.softcap);
  return call("attention", inputs, attrs, "o")["o"];
}

Builder::Routed Builder::route(ValueId logits, ValueId live, const Routing& routing) {
  ir::Attrs attrs{{"top_k", routing.top_k},
                  {"renormalize", static_cast<int64_t>(routing.renormalize)},
                  {"least", routing.least}};
  if (routing.sigmoid) attrs.set("score", std::string("sigmoid"));
  if (routing.groups != routing.groups_kept) {
    attrs.set("groups", routing.groups);
    attrs.set("groups_kept", routing.groups_kept);
  }
  if (routing.factor != 1) attrs.set("factor", routing.factor);
  const Values inputs{{"logits", logits}, {"bias", routing.bias}, {"live", live}};
  const Values routed = call("route", inputs, attrs, "routed");
  return {routed["experts"], routed["weights"]};
}

ValueId Builder::expert_mlp(ValueId x, const Routed& routed, const Matrix& gate_up,
                            const Matrix& down) {
  const Values inputs{{"x", x},
                      {"experts", routed.experts},
                      {"weights", routed.weights},
                      {"gate_up", gate_up.weight},
                      {"gate_up_scale", gate_up.scale},
                      {"down", down.weight},
                      {"down_scale", down.scale}};
  return call("expert_mlp", inputs, {}, "m")["y"];
}

ValueId Builder::all_reduce(ValueId x, const std::string& of, int64_t ranks) {
  return call("all_reduce", {{"x", x}}, {{"of", of}, {"ranks", ranks}}, "sum")["y"];
}
ValueId Builder::all_gather(ValueId x, const std::string& of, int64_t ranks) {
  return call("all_gather", {{"x", x}}, {{"of", of}, {"ranks", ranks}}, "all")["y"];
}
Builder::Gathered Builder::all_gather(ValueId x, const std::string& of, int64_t ranks,
                                      ValueId ring_marks) {
  const Values all = call("all_gather", {{"x", x}, {"ring_marks", ring_marks}},
                          {{"of", of}, {"ranks", ranks}}, "all");
  return {all["y"], all["run_until"]};
}
ValueId Builder::all_gather_own_first(ValueId x, const std::string& of, int64_t ranks) {
  const ir::Attrs attrs{{"of", of}, {"ranks", ranks}, {"own_first", int64_t{1}}};
  return call("all_gather", {{"x", x}}, attrs, "all")["y"];
}

ValueId Builder::first_columns(ValueId x, int64_t count) {
  const int64_t rest = graph_.value(x).type.dims[1].value - count;
  const std::vector<int64_t> sizes{count, rest};
  return *call("split", {{"x", x}}, {{"sizes", sizes}}, "own").begin();
}

std::pair<ValueId, ValueId> Builder::gather_rows(ValueId x, ValueId residual, ValueId rows) {
  const Values inputs{{"x", x}, {"residual", &residual}, {"rows", rows}};
  const Values gathered = call("gather_rows", inputs, {}, "last");
  return {gathered["y"], gathered["residual_y"]};
}

}  // namespace encore::model
