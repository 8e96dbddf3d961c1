#include "backend/fused_attention.h"

namespace encore {

Parts attention_parts(const KernelArgs& args) {
  const Views& in = args.inputs;
  const Views& out = args.outputs;
  Parts result;
  KernelArgs& write =
      result.add(args, "rope_kv_write", in.without({"page_table", "kv_lens", "query_starts"}),
                 {{"y", out["o"]}, {"k_cache", out["k_cache"]}, {"v_cache", out["v_cache"]}});
  if (in.find("q_norm") != nullptr) write.attrs.set("eps", args.attrs.get_double("eps"));
  KernelArgs& attend = result.add(args, "attention",
                                  {{"q", out["o"]},
                                   {"k_cache", out["k_cache"]},
                                   {"v_cache", out["v_cache"]},
                                   {"page_table", in["page_table"]},
                                   {"kv_lens", in["kv_lens"]},
                                   {"query_starts", in["query_starts"]}},
                                  {{"o", out["o"]}});
  attend.attrs.set("scale", args.attrs.get_double("scale"));
  return result;
}

}  // namespace encore
