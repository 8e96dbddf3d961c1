// The dialect of TensorRT-LLM: its options (`--extra_llm_api_options FILE`), and their older and
// newer spellings. Source: docs, "Torch Compile & Piecewise CUDA Graph"; the LLM API's reference
// for the defaults.
#include <algorithm>

#include "config/dialect.h"
#include "planning/schedules.h"

namespace encore::config {
namespace {

constexpr double kMaxBatch = 4096;
constexpr int64_t kLastSize = 3072;  // tokens; last size of the default capture_num_tokens

constexpr std::string_view kBench = "`encore bench serve` replays a trace of requests";

constexpr ForeignKey kTrtllmKeys[] = {
    {.name = "model", .type = Type::kText, .native = "model"},
    {.name = "dtype",
     .type = Type::kText,
     .fallback = "auto",
     .choices = "auto|float16|bfloat16|float32"},
    {.name = "max_batch_size",
     .type = Type::kInt,
     .fallback = "2048",
     .native = "max_batch_size",
     .min = 1},
    {.name = "max_num_tokens",
     .type = Type::kInt,
     .fallback = "8192",
     .native = "max_num_tokens",
     .min = 1},
    {.name = "max_seq_len", .type = Type::kInt, .native = "max_seq_len", .min = 1},
    {.name = "enable_chunked_prefill",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "*",
     .why = "prompts longer than max_num_tokens always go in chunks"},
    {.name = "enable_iter_perf_stats",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "*",
     .why = "steps are always counted; --stats prints them, step_log writes each"},
    {.name = "print_iter_log", .type = Type::kBool, .fallback = "false"},

    {.name = "cuda_graph_config", .type = Type::kSection},
    {.name = "cuda_graph_config.enable_padding", .type = Type::kBool, .fallback = "false"},
    {.name = "cuda_graph_config.batch_sizes", .type = Type::kSizes},
    {.name = "cuda_graph_config.max_batch_size",
     .type = Type::kInt,
     .fallback = "128",
     .min = 0,
     .max = kMaxBatch},
    {.name = "cuda_graph_config.mode",
     .type = Type::kText,
     .fallback = "decode",
     .choices = "decode|encode",
     .accepts = "decode",
     .why = "Encore runs no encoders"},
    {.name = "use_cuda_graph", .type = Type::kBool, .fallback = "true"},

    {.name = "torch_compile_config", .type = Type::kSection},
    {.name = "torch_compile_config.enable_fullgraph",
     .type = Type::kBool,
     .fallback = "true",
     .accepts = "*",
     .why = "a model is always traced as one graph"},
    {.name = "torch_compile_config.enable_inductor",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "false",
     .why = "Encore has kernels of its own, no Inductor"},
    {.name = "torch_compile_config.enable_piecewise_cuda_graph",
     .type = Type::kBool,
     .fallback = "false"},
    {.name = "torch_compile_config.capture_num_tokens", .type = Type::kSizes},
    {.name = "torch_compile_config.enable_userbuffers",
     .type = Type::kBool,
     .fallback = "true",
     .accepts = "*",
     .why = kOwnCollectives},
    {.name = "torch_compile_config.max_num_streams",
     .type = Type::kInt,
     .fallback = "1",
     .accepts = "1",
     .why = "a program runs on one stream",
     .min = 1},
    {.name = "prefill_cuda_graph_backend",
     .type = Type::kText,
     .choices = "disabled|piecewise|breakable"},

    {.name = "kv_cache_config", .type = Type::kSection},
    {.name = "kv_cache_config.free_gpu_memory_fraction",
     .type = Type::kNumber,
     .fallback = "0.9",
     .native = "free_gpu_memory_fraction",
     .min = 0,
     .max = 1},
    {.name = "kv_cache_config.enable_block_reuse",
     .type = Type::kBool,
     .fallback = "true",
     .native = "prefix_cache"},
    {.name = "kv_cache_config.tokens_per_block",
     .type = Type::kInt,
     .fallback = "32",
     .native = "page_size",
     .accepts = "16|32|64",
     .why = "a page has 16, 32 or 64 tokens",
     .min = 1},
    {.name = "kv_cache_config.max_tokens", .type = Type::kInt, .native = "kv_tokens", .min = 1},
    {.name = "kv_cache_config.dtype",
     .type = Type::kText,
     .fallback = "auto",
     .accepts = "auto|fp8",
     .why = "KV is kept in the model's dtype or in e4m3",
     .alters = true},
    {.name = "kv_cache_config.host_cache_size",
     .type = Type::kInt,
     .fallback = "0",
     .accepts = "0",
     .why = "KV stays on the device"},

    {.name = "tensor_parallel_size",
     .type = Type::kInt,
     .fallback = "1",
     .native = "tensor_parallel",
     .min = 1},
    {.name = "pipeline_parallel_size",
     .type = Type::kInt,
     .fallback = "1",
     .accepts = "1",
     .why = kOnlyShares,
     .min = 1},
    {.name = "moe_expert_parallel_size", .type = Type::kInt, .accepts = "1", .why = kOnlyShares},
    {.name = "enable_attention_dp",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "false",
     .why = kOneCopy},
    {.name = "disable_overlap_scheduler", .type = Type::kBool, .fallback = "false"},
    {.name = "trust_remote_code",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "false",
     .why = "a checkpoint's code is never run"},
    {.name = "attn_backend", .type = Type::kText, .why = "attention has Encore's own kernels"},
    {.name = "moe_config", .type = Type::kAny, .why = "experts have Encore's own kernels"},
    {.name = "speculative_config", .type = Type::kSection},
    {.name = "speculative_config.decoding_type",
     .type = Type::kText,
     .accepts = "NGram|NGRAM|DraftTarget|Draft_Target",
     .why = kOnlyLookup,
     .like = "speculative_method"},
    {.name = "speculative_config.max_draft_len",
     .type = Type::kInt,
     .min = 1,
     .max = 16,
     .like = "speculative_tokens"},
    {.name = "speculative_config.speculative_model", .type = Type::kText, .like = "draft_model"},
    {.name = "speculative_config.max_matching_ngram_size",
     .type = Type::kInt,
     .min = 1,
     .max = 64,
     .like = "speculative_ngram"},
    {.name = "speculative_config.is_keep_all",
     .type = Type::kBool,
     .accepts = "*",
     .why = "the sequence itself is looked through, and nothing is kept beside it"},
    {.name = "speculative_config.is_use_oldest",
     .type = Type::kBool,
     .accepts = "false",
     .why = "of several places with the longest match, the last counts"},
    {.name = "speculative_config.is_public_pool",
     .type = Type::kBool,
     .accepts = "false",
     .why = "drafts are looked up in the sequence itself"},
    {.name = "speculative_config.use_rejection_sampling",
     .type = Type::kBool,
     .fallback = "false",
     .like = "speculative_acceptance"},
    {.name = "speculative_config.draft_len_schedule", .type = Type::kAny, .why = kMeasuredDrafts},
    {.name = "speculative_config.max_concurrency", .type = Type::kInt, .why = kMeasuredDrafts},
    {.name = "lora_config", .type = Type::kSection},
    {.name = "lora_config.lora_dir", .type = Type::kTexts, .native = "lora"},
    {.name = "lora_config.max_lora_rank",
     .type = Type::kInt,
     .native = "max_lora_rank",
     .min = 1,
     .max = 512},
    {.name = "lora_config.max_loras",
     .type = Type::kInt,
     .native = "max_loras",
     .min = 0,
     .max = 4096},
    {.name = "lora_config.max_cpu_loras",
     .type = Type::kInt,
     .native = "max_cpu_loras",
     .min = 1,
     .max = 4096},
    {.name = "lora_config.lora_target_modules",
     .type = Type::kAny,
     .accepts = "*",
     .why = "adapters say themselves what they change"},
    {.name = "quant_config",
     .type = Type::kAny,
     .why = "a checkpoint says itself how its weights are stored",
     .alters = true},
    {.name = "scheduler_config", .type = Type::kAny, .why = "there is one scheduling policy"},
    {.name = "extra_llm_api_options", .type = Type::kText},  // load.cc reads the file in its place
    {.name = "host", .type = Type::kText, .native = "host"},
    {.name = "port", .type = Type::kInt, .fallback = "8000", .native = "port", .min = 0},
    {.name = "guided_decoding_backend",
     .type = Type::kText,
     .accepts = "xgrammar",
     .why = "grammars are compiled by xgrammar"},
    {.name = "backend",
     .type = Type::kText,
     .accepts = "*",
     .why = "there is one backend a device"},
    {.name = "tokenizer",
     .type = Type::kText,
     .why = "a model's tokenizer lies beside its weights",
     .alters = true},
    {.name = "tool_parser",
     .type = Type::kText,
     .accepts = "*",
     .why = "found from the model's chat template"},
    {.name = "reasoning_parser",
     .type = Type::kText,
     .accepts = "*",
     .why = "found from the model's chat template"},
    {.name = "chat_template", .type = Type::kText, .native = "chat_template"},
    {.name = "revision",
     .type = Type::kText,
     .accepts = "main",
     .why = "models of a name are those of refs/main",
     .alters = true},
    {.name = "served_model_name", .type = Type::kTexts, .native = "served_model_name"},
    {.name = "log_level",
     .type = Type::kText,
     .accepts = "*",
     .why = "log_requests and log_format say what the log has"},
    {.name = "num_postprocess_workers",
     .type = Type::kInt,
     .accepts = "*",
     .why = "one thread has all sockets"},
    {.name = "max_beam_width",
     .type = Type::kInt,
     .accepts = "1",
     .why = "there is no beam search",
     .alters = true},
    {.name = "gpus_per_node", .type = Type::kInt, .accepts = "*", .why = kRanksAreThreads},
    {.name = "cluster_size", .type = Type::kInt, .accepts = "*", .why = kRanksAreThreads},
    {.name = "moe_tensor_parallel_size", .type = Type::kInt, .accepts = "1", .why = kOnlyShares},
    {.name = "stream_interval",
     .type = Type::kInt,
     .accepts = "*",
     .why = "tokens are sent as they come"},
    {.name = "enable_iter_req_stats",
     .type = Type::kBool,
     .accepts = "*",
     .why = "the log has a line for each request"},
    {.name = "return_perf_metrics",
     .type = Type::kBool,
     .accepts = "*",
     .why = "/metrics and the log have the times of requests"},
    {.name = "perf_metrics_max_requests",
     .type = Type::kInt,
     .accepts = "*",
     .why = "/metrics and the log have the times of requests"},
    {.name = "batch_wait_timeout_ms",
     .type = Type::kNumber,
     .accepts = "*",
     .why = "a step begins as soon as it can"},
    {.name = "load_format",
     .type = Type::kText,
     .accepts = "auto",
     .why = "weights come from safetensors, or from a GGUF file as the model",
     .alters = true},
    {.name = "allreduce_strategy", .type = Type::kText, .accepts = "*", .why = kOwnCollectives},
    {.name = "nvfp4_gemm_config",
     .type = Type::kAny,
     .why = "there are no weights in FP4",
     .alters = true},
    {.name = "peft_cache_config",
     .type = Type::kAny,
     .accepts = "*",
     .why = "--max-loras slots and --max-cpu-loras copies say how many adapters are where"},
    {.name = "build_config",
     .type = Type::kAny,
     .accepts = "*",
     .why = "no engine is built beforehand"},
    {.name = "cache_transceiver_config",
     .type = Type::kAny,
     .why = "KV stays where it was computed"},
    {.name = "perf_knobs",
     .type = Type::kAny,
     .accepts = "*",
     .why = "there are only Encore's own kernels"},
    {.name = "fail_fast_on_attention_window_too_large",
     .type = Type::kBool,
     .accepts = "*",
     .why = "windows are those of the model, whose sequences may be longer"},
    {.name = "kv_cache_config.enable_partial_reuse",
     .type = Type::kBool,
     .accepts = "*",
     .why = "whole pages of prompts that begin alike are reused"},
    {.name = "kv_cache_config.copy_on_partial_reuse",
     .type = Type::kBool,
     .accepts = "*",
     .why = "whole pages of prompts that begin alike are reused"},
    {.name = "kv_cache_config.event_buffer_max_size",
     .type = Type::kInt,
     .accepts = "*",
     .why = "there are no events of KV"},

    // The rows that follow are flags of trtllm-bench.
    {.name = "dataset", .type = Type::kText, .accepts = "*", .why = kBench},
    {.name = "num_requests", .type = Type::kInt, .accepts = "*", .why = kBench},
    {.name = "concurrency", .type = Type::kInt, .accepts = "*", .why = kBench},
    {.name = "warmup", .type = Type::kInt, .accepts = "*", .why = kBench},
    {.name = "streaming", .type = Type::kBool, .accepts = "*", .why = kBench},
    {.name = "report_json", .type = Type::kText, .accepts = "*", .why = kBench},
    {.name = "iteration_log", .type = Type::kText, .accepts = "*", .why = kBench},
    {.name = "output_json", .type = Type::kText, .accepts = "*", .why = kBench},
    {.name = "request_json", .type = Type::kText, .accepts = "*", .why = kBench},
    {.name = "target_input_len", .type = Type::kInt, .accepts = "*", .why = kBench},
    {.name = "target_output_len", .type = Type::kInt, .accepts = "*", .why = kBench},
    {.name = "workspace",
     .type = Type::kText,
     .accepts = "*",
     .why = "no engine is built beforehand"},
    {.name = "engine_dir",
     .type = Type::kText,
     .why = "no engine is built beforehand: give the checkpoint"},
    {.name = "eos_id", .type = Type::kInt, .accepts = "*", .why = kBench},
    {.name = "num_gpus",
     .type = Type::kInt,
     .accepts = "1",
     .why = "tensor_parallel says how many GPUs compute a model"},
};

constexpr Alias kTrtllmAliases[] = {
    {"prefill_capture_num_tokens", "torch_compile_config.capture_num_tokens"},
    {"cuda_graph_batch_sizes", "cuda_graph_config.batch_sizes"},
    {"cuda_graph_max_batch_size", "cuda_graph_config.max_batch_size"},
    {"cuda_graph_padding_enabled", "cuda_graph_config.enable_padding"},
    {"torch_compile_fullgraph", "torch_compile_config.enable_fullgraph"},
    {"torch_compile_inductor_enabled", "torch_compile_config.enable_inductor"},
    {"torch_compile_piecewise_cuda_graph", "torch_compile_config.enable_piecewise_cuda_graph"},
    {"torch_compile_piecewise_cuda_graph_num_tokens", "torch_compile_config.capture_num_tokens"},
    {"torch_compile_enable_userbuffers", "torch_compile_config.enable_userbuffers"},
    {"torch_compile_max_num_streams", "torch_compile_config.max_num_streams"},
    {"kv_cache_free_gpu_memory_fraction", "kv_cache_config.free_gpu_memory_fraction"},
    {"kv_cache_free_gpu_mem_fraction", "kv_cache_config.free_gpu_memory_fraction"},
    {"free_gpu_memory_fraction", "kv_cache_config.free_gpu_memory_fraction"},
    {"tokens_per_block", "kv_cache_config.tokens_per_block"},
    {"tp_size", "tensor_parallel_size"},
    {"tp", "tensor_parallel_size"},
    {"pp", "pipeline_parallel_size"},
    {"ep", "moe_expert_parallel_size"},
    {"model_path", "model"},
    {"beam_width", "max_beam_width"},
    {"speculative_decoding_config", "speculative_config"},
    {"speculative_config.speculative_model_dir", "speculative_config.speculative_model"},
    {"speculative_config.max_ngram_size", "speculative_config.max_matching_ngram_size"},
    {"pp_size", "pipeline_parallel_size"},
    {"ep_size", "moe_expert_parallel_size"},
};

constexpr std::string_view kPadding = "cuda_graph_config.enable_padding";
constexpr std::string_view kBatchSizes = "cuda_graph_config.batch_sizes";
constexpr std::string_view kGraphMax = "cuda_graph_config.max_batch_size";
constexpr std::string_view kPiecewise = "torch_compile_config.enable_piecewise_cuda_graph";
constexpr std::string_view kNumTokens = "torch_compile_config.capture_num_tokens";
constexpr std::string_view kBackend = "prefill_cuda_graph_backend";

// Returns TensorRT-LLM's default batch sizes to record, up to `max`. Where padding is off, only
// steps of exactly these sizes are replayed, so the list has every size up to 32. Above 128, sizes
// double.
std::vector<int64_t> trtllm_batch_sizes(int64_t max, bool padding) {
  std::vector<int64_t> sizes;
  if (padding) {
    sizes = {1, 2, 4};
    append(sizes, 8, 128, 8);
  } else {
    append(sizes, 1, 31, 1);
    sizes.insert(sizes.end(), {32, 64, 128});
  }
  for (int64_t size = 256; size < max; size *= 2)
    sizes.push_back(size);
  if (sizes.back() < max) sizes.push_back(max);
  return capped(std::move(sizes), max);
}

void derive_decode_ladder(Draft& draft) {
  const bool padding = draft.flag(kPadding);
  draft.put("padding", padding ? "true" : "false", {kPadding});
  const int64_t most = std::min(draft.count("max_batch_size"), draft.count("max_num_tokens"));
  const bool is_few = most < draft.count("max_batch_size");
  const std::string_view limit = is_few ? "max_num_tokens" : "max_batch_size";
  if (const auto sizes = draft.sizes(kBatchSizes)) {
    if (draft.given(kGraphMax) && draft.count(kGraphMax) != 0 &&
        draft.count(kGraphMax) != sizes->back()) {
      draft.fail_key(kGraphMax, fmt::format("cuda_graph_config.max_batch_size {} is not the "
                                            "largest of batch_sizes, {}; give one of them",
                                            draft.count(kGraphMax), sizes->back()));
    }
    draft.put("decode_ladder", draft.cut(*sizes, most, kBatchSizes, limit), {kBatchSizes, limit});
    return;
  }
  const int64_t max = draft.count(kGraphMax) == 0 ? 128 : draft.count(kGraphMax);
  draft.put("decode_ladder", draft.cut(trtllm_batch_sizes(max, padding), most, kGraphMax, limit),
            {kGraphMax, kPadding, limit});
}

void derive_token_ladder(Draft& draft) {
  const int64_t most = draft.count("max_num_tokens");
  auto sizes = draft.sizes(kNumTokens);
  if (!sizes) sizes = planning::named_or_list("trtllm", std::min(most, kLastSize)).sizes();
  if (sizes->back() < most) {
    draft.note(kNumTokens, fmt::format("mixed steps of {} to {} tokens run eager, as the largest "
                                       "of capture_num_tokens is below max_num_tokens; "
                                       "above_ladder: split has none",
                                       sizes->back() + 1, most));
  }
  draft.put("token_ladder", draft.cut(*sizes, most, kNumTokens, "max_num_tokens"),
            {kNumTokens, "max_num_tokens"});
}

// Sets where drafts come from: a lookup, or a draft model. Sets nothing where another method makes
// them.
void put_trtllm_drafts(Draft& draft) {
  constexpr std::string_view kType = "speculative_config.decoding_type";
  constexpr std::string_view kModel = "speculative_config.speculative_model";
  constexpr std::string_view kTokens = "speculative_config.max_draft_len";
  constexpr std::string_view kLookup = "speculative_config.max_matching_ngram_size";
  constexpr std::string_view kRejects = "speculative_config.use_rejection_sampling";
  if (!draft.given(kType) || draft.refuses(kType)) return;
  if (!draft.given(kTokens)) draft.fail_key(kType, "speculative_config needs max_draft_len");
  const bool looks_up = draft.text(kType).starts_with('N');
  if (!looks_up && !draft.given(kModel))
    draft.fail_key(kType, "DraftTarget needs speculative_model");
  if (!looks_up) draft.put("draft_model", draft.text(kModel), {kModel, kType});
  if (looks_up && draft.given(kLookup))
    draft.put("speculative_ngram", fmt::format("{}", draft.count(kLookup)), {kLookup});
  draft.put("speculative_tokens", fmt::format("{}", draft.count(kTokens)), {kTokens});
  if (draft.flag(kRejects)) draft.put("speculative_acceptance", "rejection", {kRejects});
}

void derive_trtllm(Draft& draft) {
  put_trtllm_drafts(draft);
  const bool decode = !draft.is_null("cuda_graph_config") && draft.flag("use_cuda_graph");
  bool pieces = !draft.is_null("torch_compile_config") && draft.flag(kPiecewise);
  if (draft.given(kBackend)) {
    const bool wanted = draft.text(kBackend) != "disabled";
    if (draft.given(kPiecewise) && wanted != pieces) {
      draft.fail_key(kBackend,
                     "prefill_cuda_graph_backend and enable_piecewise_cuda_graph "
                     "contradict each other; give one of them");
    }
    pieces = wanted;
  }
  const char* mode = decode ? (pieces ? "full-and-piecewise" : "full-decode-only")
                            : (pieces ? "piecewise" : "none");
  draft.put("graphs", mode, {"cuda_graph_config", "use_cuda_graph", kPiecewise, kBackend});
  if (pieces && !decode) {
    draft.note("cuda_graph_config", "decode steps are replayed in pieces too, not eager");
  }
  if (decode) derive_decode_ladder(draft);
  if (pieces) {
    derive_token_ladder(draft);
  } else if (draft.given(kNumTokens)) {
    draft.note(kNumTokens, "capture_num_tokens has no effect: piecewise graphs are off");
  }
  if (draft.flag("print_iter_log")) draft.put("step_log", "/dev/stderr", {"print_iter_log"});
  draft.put("overlap", draft.flag("disable_overlap_scheduler") ? "off" : "on",
            {"disable_overlap_scheduler"});
  draft.put_default("above_ladder", "eager", "TensorRT-LLM runs larger steps eager");
  draft.put_dtype();
  draft.put_kv_dtype("kv_cache_config.dtype");
}

}  // namespace

const DialectTable kTrtllm{Dialect::kTrtllm, "TensorRT-LLM", kTrtllmKeys, kTrtllmAliases,
                           derive_trtllm};

}  // namespace encore::config
