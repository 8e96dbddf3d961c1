// The dialect of SGLang: its server arguments, as flags or as the YAML of `--config`. Source: docs,
// "Piecewise CUDA Graph" and "Server Arguments". Where a default depends on the GPU, the table has
// the default for an H200.
#include <algorithm>
#include <cmath>

#include "config/dialect.h"
#include "planning/schedules.h"

namespace encore::config {
namespace {

constexpr std::string_view kExactRule =
    "which drafts count does not depend on a threshold (speculative_acceptance)";

constexpr ForeignKey kSglangKeys[] = {
    {.name = "model_path", .type = Type::kText, .native = "model"},
    {.name = "device", .type = Type::kText, .native = "device", .choices = "cuda|cpu"},
    {.name = "dtype",
     .type = Type::kText,
     .fallback = "auto",
     .choices = "auto|half|float16|bfloat16|float|float32"},
    {.name = "context_length", .type = Type::kInt, .native = "max_seq_len", .min = 1},
    {.name = "max_running_requests",
     .type = Type::kInt,
     .min = 1,
     .max = 4096,
     .like = "max_batch_size"},
    {.name = "max_total_tokens", .type = Type::kInt, .native = "kv_tokens", .min = 1},
    {.name = "page_size",
     .type = Type::kInt,
     .native = "page_size",
     .accepts = "16|32|64",
     .why = "a page has 16, 32 or 64 tokens",
     .min = 1},
    {.name = "mem_fraction_static",
     .type = Type::kNumber,
     .fallback = "0.9",
     .min = 0,
     .max = 1,
     .like = "memory_reserve"},
    {.name = "chunked_prefill_size",
     .type = Type::kInt,
     .fallback = "8192",
     .min = -1,
     .max = 65536,
     .like = "max_num_tokens"},
    {.name = "enable_mixed_chunk",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "true",
     .why = "a step always mixes chunks and decodes"},

    {.name = "disable_cuda_graph", .type = Type::kBool, .fallback = "false", .like = "graphs"},
    {.name = "disable_cuda_graph_padding", .type = Type::kBool, .fallback = "false"},
    {.name = "cuda_graph_max_bs",
     .type = Type::kInt,
     .fallback = "256",
     .min = 1,
     .max = 4096,
     .like = "decode_ladder"},
    {.name = "cuda_graph_bs", .type = Type::kSizes, .like = "decode_ladder"},
    {.name = "enable_piecewise_cuda_graph", .type = Type::kBool, .fallback = "false"},
    {.name = "disable_piecewise_cuda_graph", .type = Type::kBool, .fallback = "false"},
    {.name = "piecewise_cuda_graph_max_tokens", .type = Type::kInt, .min = 1, .max = 65536},
    {.name = "piecewise_cuda_graph_tokens", .type = Type::kSizes},
    {.name = "split_ops", .type = Type::kNames},
    {.name = "piecewise_cuda_graph_compiler",
     .type = Type::kText,
     .fallback = "eager",
     .choices = "eager|inductor",
     .accepts = "eager",
     .why = "Encore has kernels of its own, no Inductor"},

    {.name = "traced_files", .type = Type::kAny, .why = "models are not traced from files"},
    {.name = "enable_deterministic_inference", .type = Type::kBool, .native = "batch_invariant"},
    {.name = "enable_torch_compile_debug_mode", .type = Type::kBool, .native = "graphs_debug"},
    {.name = "enable_two_batch_overlap",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "false",
     .why = "a step is not run as two batches"},
    {.name = "moe_a2a_backend",
     .type = Type::kText,
     .fallback = "none",
     .accepts = "none",
     .why = kOnlyShares},
    {.name = "enable_torch_compile",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "false",
     .why = "Encore compiles by itself, without torch.compile"},
    {.name = "disable_radix_cache",
     .type = Type::kBool,
     .fallback = "false",
     .like = "prefix_cache"},
    {.name = "disable_hybrid_swa_memory",
     .type = Type::kBool,
     .fallback = "false",
     .like = "window_pages"},
    {.name = "disable_overlap_schedule",
     .type = Type::kBool,
     .fallback = "false",
     .like = "overlap"},
    {.name = "tp_size", .type = Type::kInt, .fallback = "1", .native = "tensor_parallel"},
    {.name = "pp_size", .type = Type::kInt, .fallback = "1", .accepts = "1", .why = kOnlyShares},
    {.name = "dp_size", .type = Type::kInt, .fallback = "1", .accepts = "1", .why = kOneCopy},
    {.name = "ep_size", .type = Type::kInt, .fallback = "1", .accepts = "1", .why = kOnlyShares},
    {.name = "kv_cache_dtype",
     .type = Type::kText,
     .fallback = "auto",
     .accepts = "auto|bfloat16|fp8_e4m3",
     .why = "KV is kept in the model's dtype, bfloat16 or e4m3",
     .alters = true,
     .like = "kv_dtype"},
    {.name = "quantization",
     .type = Type::kText,
     .accepts = "fp8|compressed-tensors|fbgemm_fp8|modelopt",
     .why = "weights are floats or FP8, as the checkpoint has them; GPTQ, AWQ and others are not "
            "read",
     .alters = true},
    {.name = "attention_backend", .type = Type::kAny, .why = kOwnKernels},
    {.name = "sampling_backend", .type = Type::kAny, .why = kOwnKernels},
    {.name = "speculative_algorithm",
     .type = Type::kText,
     .accepts = "NGRAM|STANDALONE",
     .why = kOnlyLookup,
     .like = "speculative_method"},
    {.name = "enable_lora", .type = Type::kBool, .fallback = "false", .like = "max_loras"},
    {.name = "lora_paths", .type = Type::kTexts, .native = "lora"},
    {.name = "max_loaded_loras",
     .type = Type::kInt,
     .native = "max_cpu_loras",
     .min = 1,
     .max = 4096},
    {.name = "max_lora_rank", .type = Type::kInt, .native = "max_lora_rank", .min = 1, .max = 512},
    {.name = "max_loras_per_batch",
     .type = Type::kInt,
     .fallback = "8",
     .min = 1,
     .max = 4096,
     .like = "max_loras"},
    {.name = "trust_remote_code",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "false",
     .why = "a checkpoint's code is never run"},
    {.name = "host", .type = Type::kText, .native = "host"},
    {.name = "port", .type = Type::kInt, .fallback = "30000", .native = "port", .min = 0},
    {.name = "served_model_name", .type = Type::kTexts, .native = "served_model_name"},
    {.name = "api_key", .type = Type::kTexts, .native = "api_key"},
    {.name = "chat_template", .type = Type::kText, .native = "chat_template"},
    {.name = "max_queued_requests", .type = Type::kInt, .native = "max_queue", .min = 0},
    {.name = "schedule_policy",
     .type = Type::kText,
     .fallback = "fcfs",
     .accepts = "fcfs",
     .why = "sequences are served in the order they came"},
    {.name = "tool_call_parser", .type = Type::kText, .accepts = "*", .why = kFoundFromTemplate},
    {.name = "reasoning_parser", .type = Type::kText, .accepts = "*", .why = kFoundFromTemplate},
    {.name = "grammar_backend",
     .type = Type::kText,
     .accepts = "*",
     .why = "grammars are compiled by xgrammar"},
    {.name = "tokenizer_path",
     .type = Type::kText,
     .why = "a model's tokenizer lies beside its weights",
     .alters = true},
    {.name = "tokenizer_mode",
     .type = Type::kText,
     .accepts = "auto",
     .why = "tokenizer.json is read, and nothing else",
     .alters = true},
    {.name = "skip_tokenizer_init",
     .type = Type::kBool,
     .accepts = "false",
     .why = "a tokenizer that is there is read"},
    {.name = "load_format",
     .type = Type::kText,
     .accepts = "auto|safetensors",
     .why = "weights come from safetensors",
     .alters = true},
    {.name = "revision",
     .type = Type::kText,
     .accepts = "main",
     .why = "models of a name are those of refs/main",
     .alters = true},
    {.name = "download_dir",
     .type = Type::kText,
     .accepts = "*",
     .why = "models of a name are found in HF_HUB_CACHE"},
    {.name = "json_model_override_args",
     .type = Type::kAny,
     .why = "write it into the model's config.json",
     .alters = true},
    {.name = "sampling_defaults",
     .type = Type::kText,
     .accepts = "model",
     .why = "where requests do not say, the model's generation_config.json says how to sample",
     .alters = true},
    {.name = "random_seed",
     .type = Type::kInt,
     .accepts = "*",
     .why = "a request without a seed gets a random one"},
    {.name = "is_embedding",
     .type = Type::kBool,
     .accepts = "false",
     .why = "models generate, and do nothing else",
     .alters = true},
    {.name = "enable_multimodal",
     .type = Type::kBool,
     .accepts = "false",
     .why = "there are no images"},
    {.name = "max_prefill_tokens",
     .type = Type::kInt,
     .accepts = "*",
     .why = "a step has at most max_num_tokens tokens"},
    {.name = "schedule_conservativeness",
     .type = Type::kNumber,
     .accepts = "*",
     .why = "pages are granted as sequences grow"},
    {.name = "stream_interval",
     .type = Type::kInt,
     .accepts = "*",
     .why = "tokens are sent as they come"},
    {.name = "watchdog_timeout",
     .type = Type::kNumber,
     .accepts = "*",
     .why = "GET /health_generate tells whether the engine gives tokens"},
    {.name = "log_level", .type = Type::kText, .accepts = "*", .why = kOwnLog},
    {.name = "log_level_http", .type = Type::kText, .accepts = "*", .why = kOwnLog},
    {.name = "log_requests", .type = Type::kBool, .native = "log_requests"},
    {.name = "log_requests_level", .type = Type::kInt, .accepts = "*", .why = kOwnLog},
    {.name = "enable_metrics",
     .type = Type::kBool,
     .accepts = "true",
     .why = "/metrics is always there"},
    {.name = "enable_cache_report",
     .type = Type::kBool,
     .accepts = "*",
     .why = "usage always tells cached tokens"},
    {.name = "decode_log_interval", .type = Type::kInt, .accepts = "*", .why = kOwnLog},
    {.name = "show_time_cost", .type = Type::kBool, .accepts = "*", .why = kOwnLog},
    {.name = "file_storage_path", .type = Type::kText, .accepts = "*", .why = "nothing is stored"},
    {.name = "ssl_keyfile", .type = Type::kText, .native = "tls_key"},
    {.name = "ssl_certfile", .type = Type::kText, .native = "tls_certificate"},
    {.name = "nccl_port", .type = Type::kInt, .accepts = "*", .why = kRanksAreThreads},
    {.name = "dist_init_addr", .type = Type::kText, .accepts = "*", .why = kRanksAreThreads},
    {.name = "nnodes", .type = Type::kInt, .accepts = "1", .why = kRanksAreThreads},
    {.name = "node_rank", .type = Type::kInt, .accepts = "0", .why = kRanksAreThreads},
    {.name = "base_gpu_id",
     .type = Type::kInt,
     .accepts = "*",
     .why = "name a GPU with device: cuda:N"},
    {.name = "disable_custom_all_reduce",
     .type = Type::kBool,
     .accepts = "*",
     .why = kOwnCollectives},
    {.name = "enable_dp_attention", .type = Type::kBool, .accepts = "false", .why = kOneCopy},
    {.name = "disaggregation_mode",
     .type = Type::kText,
     .accepts = "null",
     .why = "prompts and decodes run in one place"},
    {.name = "enable_hierarchical_cache",
     .type = Type::kBool,
     .accepts = "false",
     .why = "KV stays on the device"},
    {.name = "cpu_offload_gb",
     .type = Type::kNumber,
     .accepts = "0",
     .why = "weights stay on the device"},
    {.name = "speculative_num_steps",
     .type = Type::kInt,
     .min = 1,
     .max = 16,
     .like = "speculative_tokens"},
    {.name = "speculative_eagle_topk",
     .type = Type::kInt,
     .fallback = "1",
     .accepts = "1",
     .why = "drafts are one chain of tokens, not a tree"},
    {.name = "speculative_num_draft_tokens",
     .type = Type::kInt,
     .fallback = "12",
     .min = 1,
     .like = "speculative_tokens"},
    {.name = "speculative_draft_model_path", .type = Type::kText, .like = "draft_model"},
    {.name = "speculative_use_rejection_sampling",
     .type = Type::kBool,
     .fallback = "false",
     .like = "speculative_acceptance"},
    {.name = "speculative_accept_threshold_single",
     .type = Type::kNumber,
     .accepts = "1|1.0",
     .why = kExactRule,
     .alters = true},
    {.name = "speculative_accept_threshold_acc",
     .type = Type::kNumber,
     .accepts = "1|1.0",
     .why = kExactRule,
     .alters = true},
    {.name = "torch_compile_max_bs",
     .type = Type::kInt,
     .accepts = "*",
     .why = "Encore compiles by itself, without torch.compile"},
};

constexpr Alias kSglangAliases[] = {
    {"model", "model_path"},
    {"tensor_parallel_size", "tp_size"},
    {"tp", "tp_size"},
    {"pipeline_parallel_size", "pp_size"},
    {"data_parallel_size", "dp_size"},
    {"dp", "dp_size"},
    {"ep", "ep_size"},
    {"pp", "pp_size"},
    {"speculative_algo", "speculative_algorithm"},
    {"speculative_draft_model", "speculative_draft_model_path"},
    {"expert_parallel_size", "ep_size"},
    {"capture_sizes", "piecewise_cuda_graph_tokens"},
    {"compiler", "piecewise_cuda_graph_compiler"},
    {"enable_debug_mode", "enable_torch_compile_debug_mode"},
};

constexpr std::string_view kChunk = "chunked_prefill_size";
constexpr std::string_view kPieces = "enable_piecewise_cuda_graph";
constexpr std::string_view kTokens = "piecewise_cuda_graph_tokens";
constexpr std::string_view kMaxPiecewiseTokens = "piecewise_cuda_graph_max_tokens";
constexpr std::string_view kMaxBs = "cuda_graph_max_bs";

std::vector<int64_t> sglang_batch_sizes(int64_t max, bool padding) {
  std::vector<int64_t> sizes;
  if (!padding) {
    append(sizes, 1, max, 1);
    return sizes;
  }
  sizes = {1, 2, 4, 8, 12};
  append(sizes, 16, 256, 8);
  append(sizes, 272, 496, 16);
  append(sizes, 512, std::max<int64_t>(max, 512), 32);
  return capped(std::move(sizes), max);
}

void derive_decode_ladder(Draft& draft, int64_t max_batch) {
  const bool padding = !draft.flag("disable_cuda_graph_padding");
  draft.put("padding", padding ? "true" : "false", {"disable_cuda_graph_padding"});
  if (const auto sizes = draft.sizes("cuda_graph_bs")) {
    draft.put("decode_ladder", draft.cut(*sizes, max_batch, "cuda_graph_bs", "the largest batch"),
              {"cuda_graph_bs", "max_running_requests"});
    return;
  }
  std::vector<int64_t> sizes = sglang_batch_sizes(draft.count(kMaxBs), padding);
  draft.put("decode_ladder", draft.cut(std::move(sizes), max_batch, kMaxBs, "the largest batch"),
            {kMaxBs, "disable_cuda_graph_padding", "max_running_requests"});
}

void derive_token_ladder(Draft& draft, int64_t max_tokens) {
  if (const auto sizes = draft.sizes(kTokens)) {
    const int64_t max =
        draft.given(kMaxPiecewiseTokens) ? draft.count(kMaxPiecewiseTokens) : sizes->back();
    if (max < sizes->back()) {
      draft.fail_key(kTokens, fmt::format("piecewise_cuda_graph_tokens: {} is more than "
                                          "piecewise_cuda_graph_max_tokens {}",
                                          sizes->back(), max));
    }
    draft.put("token_ladder", draft.cut(*sizes, max_tokens, kTokens, kChunk), {kTokens, kChunk});
    return;
  }
  const int64_t max =
      draft.given(kMaxPiecewiseTokens) ? draft.count(kMaxPiecewiseTokens) : max_tokens;
  std::vector<int64_t> sizes = planning::named_or_list("sglang", max).sizes();
  draft.put("token_ladder", draft.cut(std::move(sizes), max_tokens, kMaxPiecewiseTokens, kChunk),
            {kMaxPiecewiseTokens, kChunk});
}

std::string sglang_mode(Draft& draft) {
  const bool decode = !draft.flag("disable_cuda_graph");
  const bool pieces = draft.flag(kPieces) && !draft.flag("disable_piecewise_cuda_graph");
  if (draft.flag(kPieces) && draft.flag("disable_piecewise_cuda_graph"))
    draft.fail_key(kPieces, "enable_ and disable_piecewise_cuda_graph contradict each other");
  if (!decode && pieces) {
    draft.fail_key(kPieces,
                   "enable_piecewise_cuda_graph and disable_cuda_graph contradict each "
                   "other; for pieces alone use --graphs piecewise");
  }
  return decode ? (pieces ? "full-and-piecewise" : "full-decode-only") : "none";
}

// Sets the source of drafts and the number of drafts per sequence and step. SGLang's NGRAM drafts
// are a tree; Encore's are a chain, the likeliest branch. SGLang's draft model makes a chain of
// speculative_num_steps drafts. Where only speculative_num_draft_tokens is given, the number of
// drafts is one less, since that flag also counts one token that is certain.
void put_sglang_drafts(Draft& draft) {
  constexpr std::string_view kRejects = "speculative_use_rejection_sampling";
  constexpr std::string_view kAlgorithm = "speculative_algorithm";
  constexpr std::string_view kTokens = "speculative_num_draft_tokens";
  constexpr std::string_view kSteps = "speculative_num_steps";
  constexpr std::string_view kModel = "speculative_draft_model_path";
  if (!draft.given(kAlgorithm)) return;
  if (draft.flag(kRejects)) draft.put("speculative_acceptance", "rejection", {kRejects});
  if (draft.text(kAlgorithm) == "STANDALONE") {
    if (!draft.given(kModel))
      draft.fail_key(kAlgorithm, "STANDALONE needs speculative_draft_model_path");
    const int64_t steps = draft.given(kSteps) ? draft.count(kSteps) : draft.count(kTokens) - 1;
    draft.put("draft_model", draft.text(kModel), {kModel, kAlgorithm});
    draft.put("speculative_tokens", fmt::format("{}", std::clamp<int64_t>(steps, 1, 16)),
              {draft.given(kSteps) ? kSteps : kTokens});
    return;
  }
  draft.put("speculative_tokens", fmt::format("{}", std::min<int64_t>(draft.count(kTokens), 16)),
            {kTokens, "speculative_algorithm"});
}

void derive_sglang(Draft& draft) {
  put_sglang_drafts(draft);
  const std::string mode = sglang_mode(draft);
  draft.put("graphs", mode, {"disable_cuda_graph", kPieces, "disable_piecewise_cuda_graph"});
  if (draft.count(kChunk) < 1) {
    draft.fail_key(kChunk,
                   "chunked_prefill_size: prompts always go in chunks; give the most "
                   "tokens of a step");
  }
  const int64_t max_tokens = draft.count(kChunk);
  draft.put("max_num_tokens", fmt::format("{}", max_tokens), {kChunk});
  // Where no flag limits the batch, it has as many sequences as the largest recording.
  int64_t max_batch = draft.count(kMaxBs);
  if (const auto sizes = draft.sizes("cuda_graph_bs")) max_batch = sizes->back();
  if (draft.given("max_running_requests")) max_batch = draft.count("max_running_requests");
  max_batch = std::min(max_batch, max_tokens);
  if (draft.given("max_running_requests")) {
    draft.put("max_batch_size", fmt::format("{}", max_batch), {"max_running_requests"});
  } else {
    draft.put("max_batch_size", fmt::format("{}", max_batch), {kMaxBs, "cuda_graph_bs"});
  }
  if (mode != "none") derive_decode_ladder(draft, max_batch);
  if (mode == "full-and-piecewise") {
    derive_token_ladder(draft, max_tokens);
  } else {
    for (const std::string_view key : {kTokens, kMaxPiecewiseTokens}) {
      if (draft.given(key))
        draft.note(key, fmt::format("{} has no effect: piecewise graphs are off", key));
    }
  }
  const double share = draft.number("mem_fraction_static");
  draft.put("memory_reserve", fmt::format("{}%", std::round((1 - share) * 1e6) / 1e4),
            {"mem_fraction_static"});
  draft.put("overlap", draft.flag("disable_overlap_schedule") ? "off" : "on",
            {"disable_overlap_schedule"});
  if (draft.given("disable_hybrid_swa_memory")) {
    draft.put("window_pages", draft.flag("disable_hybrid_swa_memory") ? "off" : "on",
              {"disable_hybrid_swa_memory"});
  }
  draft.put("prefix_cache", draft.flag("disable_radix_cache") ? "off" : "on",
            {"disable_radix_cache"});
  if (draft.flag("enable_lora")) {
    draft.put("max_loras", fmt::format("{}", draft.count("max_loras_per_batch")),
              {"enable_lora", "max_loras_per_batch"});
  }
  draft.put_split_at("split_ops");
  draft.put_default("above_ladder", "eager", "SGLang runs larger steps eager");
  draft.put_dtype();
  draft.put_kv_dtype("kv_cache_dtype");
  draft.put_quantization("quantization");
}

}  // namespace

const DialectTable kSglang{Dialect::kSglang, "SGLang", kSglangKeys, kSglangAliases, derive_sglang};

}  // namespace encore::config
