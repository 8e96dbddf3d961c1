#include "backend/fused_attention.h"

namespace encore {

Parts attention_parts(const KernelArgs& args) {
  const Views& in = args.inputs;
  const Views& out = args.outputs;
  Parts result;
  KernelArgs& write = result.add(
      args, "rope_kv_write", in.without({"page_table", "kv_lens", "query_starts", "sinks"}),
      {{"y", out["o"]}, {"k_cache", out["k_cache"]}, {"v_cache", out["v_cache"]}});
  pass_on(args.attrs, {"eps", "offset"}, write.attrs);
  KernelArgs& attend = result.add(args, "attention",
                                  {{"q", out["o"]},
                                   {"k_cache", out["k_cache"]},
                                   {"v_cache", out["v_cache"]},
                                   {"page_table", in["page_table"]},
                                   {"kv_lens", in["kv_lens"]},
                                   {"query_starts", in["query_starts"]},
                                   {"sinks", in.find("sinks")}},
                                  {{"o", out["o"]}});
  pass_on(args.attrs, {"scale", "window", "softcap"}, attend.attrs);
  return result;
}

}  // namespace encore
