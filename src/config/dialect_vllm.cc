// The dialect of vLLM: its engine arguments, as the flags of `vllm serve` or the YAML of its
// --config. Source: docs, "CUDA Graphs" and "Engine Arguments". Where a default depends on the GPU,
// the table has the default for GPUs with at least 70 GiB of memory.
#include <algorithm>
#include <cmath>

#include "config/dialect.h"
#include "runtime/ladder.h"

namespace encore::config {
namespace {

constexpr std::string_view kOwnCompiler = "Encore compiles by itself, without torch.compile";

constexpr std::string_view kHubCache = "models of a name are found in HF_HUB_CACHE";

constexpr ForeignKey kVllmKeys[] = {
    {.name = "model", .type = Type::kText, .native = "model"},
    {.name = "dtype",
     .type = Type::kText,
     .fallback = "auto",
     .choices = "auto|half|float16|bfloat16|float|float32"},
    {.name = "max_num_seqs",
     .type = Type::kInt,
     .fallback = "1024",
     .min = 1,
     .max = 4096,
     .like = "max_batch_size"},
    {.name = "max_num_batched_tokens",
     .type = Type::kInt,
     .fallback = "8192",
     .native = "max_num_tokens",
     .min = 1,
     .max = 65536},
    {.name = "max_model_len", .type = Type::kInt, .native = "max_seq_len", .min = 1},
    {.name = "block_size",
     .type = Type::kInt,
     .fallback = "16",
     .native = "page_size",
     .accepts = "16|32|64",
     .why = "a page has 16, 32 or 64 tokens",
     .min = 1},
    {.name = "gpu_memory_utilization",
     .type = Type::kNumber,
     .fallback = "0.9",
     .min = 0,
     .max = 1,
     .like = "memory_reserve"},
    {.name = "num_gpu_blocks_override",
     .type = Type::kInt,
     .min = 1,
     .max = 1 << 24,
     .like = "kv_tokens"},
    {.name = "enable_chunked_prefill",
     .type = Type::kBool,
     .fallback = "true",
     .accepts = "*",
     .why = "prompts longer than max_num_tokens always go in chunks"},
    {.name = "enforce_eager", .type = Type::kBool, .fallback = "false", .like = "graphs"},
    {.name = "optimization_level", .type = Type::kInt, .min = 0, .max = 3},
    {.name = "compilation_config", .type = Type::kSection},
    {.name = "compilation_config.cudagraph_mode",
     .type = Type::kText,
     .fallback = "FULL_AND_PIECEWISE",
     .choices = "NONE|PIECEWISE|FULL|FULL_DECODE_ONLY|FULL_AND_PIECEWISE"},
    {.name = "compilation_config.cudagraph_capture_sizes",
     .type = Type::kSizes,
     .like = "decode_ladder"},
    {.name = "cuda_graph_sizes", .type = Type::kSizes, .like = "decode_ladder"},
    {.name = "compilation_config.max_cudagraph_capture_size",
     .type = Type::kInt,
     .min = 0,
     .max = 65536},
    {.name = "compilation_config.use_cudagraph", .type = Type::kBool, .fallback = "true"},
    {.name = "compilation_config.full_cuda_graph", .type = Type::kBool, .fallback = "false"},
    {.name = "compilation_config.cudagraph_num_of_warmups",
     .type = Type::kInt,
     .accepts = "*",
     .why = "each kernel is warmed up once",
     .min = 0},
    {.name = "compilation_config.cudagraph_copy_inputs",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "*",
     .why = "inputs always lie at fixed addresses, and are copied there once a step"},
    {.name = "compilation_config.mode",
     .type = Type::kText,
     .accepts = "0|3|NONE|VLLM_COMPILE",
     .why = kOwnCompiler},
    {.name = "compilation_config.level", .type = Type::kInt, .accepts = "0|3", .why = kOwnCompiler},
    {.name = "compilation_config.backend", .type = Type::kAny, .why = kOwnCompiler},
    {.name = "compilation_config.use_inductor",
     .type = Type::kBool,
     .accepts = "false",
     .why = kOwnCompiler},
    {.name = "compilation_config.compile_sizes", .type = Type::kAny, .why = kOwnCompiler},
    {.name = "compilation_config.splitting_ops", .type = Type::kNames},
    {.name = "compilation_config.custom_ops", .type = Type::kAny, .why = kOwnKernels},
    {.name = "compilation_config.pass_config",
     .type = Type::kAny,
     .why = "name passes to leave out with --disable-pass"},

    {.name = "enable_prefix_caching",
     .type = Type::kBool,
     .fallback = "true",
     .native = "prefix_cache"},
    {.name = "async_scheduling", .type = Type::kBool, .like = "overlap"},
    {.name = "tensor_parallel_size",
     .type = Type::kInt,
     .fallback = "1",
     .native = "tensor_parallel"},
    {.name = "pipeline_parallel_size",
     .type = Type::kInt,
     .fallback = "1",
     .accepts = "1",
     .why = kOnlyShares},
    {.name = "data_parallel_size",
     .type = Type::kInt,
     .fallback = "1",
     .accepts = "1",
     .why = kOneCopy},
    {.name = "enable_expert_parallel",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "false",
     .why = kOnlyShares},
    {.name = "kv_cache_dtype",
     .type = Type::kText,
     .fallback = "auto",
     .accepts = "auto|bfloat16|fp8|fp8_e4m3",
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
    {.name = "speculative_config", .type = Type::kSection},
    {.name = "speculative_config.method",
     .type = Type::kText,
     .accepts = "ngram|ngram_gpu|draft_model",
     .why = kOnlyLookup,
     .like = "speculative_method"},
    {.name = "speculative_config.model", .type = Type::kText, .like = "draft_model"},
    {.name = "speculative_config.num_speculative_tokens",
     .type = Type::kInt,
     .fallback = "0",
     .min = 0,
     .max = 16,
     .like = "speculative_tokens"},
    {.name = "speculative_config.prompt_lookup_max",
     .type = Type::kInt,
     .min = 1,
     .max = 64,
     .like = "speculative_ngram"},
    {.name = "speculative_config.prompt_lookup_min",
     .type = Type::kInt,
     .accepts = "*",
     .why = "a step checks as many drafts whether a match was long or short"},
    {.name = "speculative_config.rejection_sample_method",
     .type = Type::kText,
     .accepts = "standard",
     .why =
         "drafts are decided on one by one, by what the models say; encore bench serve and bench "
         "speculate have synthetic acceptance",
     .like = "speculative_acceptance"},
    {.name = "speculative_config.draft_sample_method",
     .type = Type::kText,
     .accepts = "*",
     .why =
         "drafts are sampled by the parameters of their sequence, as the model's own tokens are"},
    {.name = "speculative_config.num_speculative_tokens_per_batch_size",
     .type = Type::kAny,
     .why = kMeasuredDrafts},
    {.name = "speculative_config.disable_by_batch_size",
     .type = Type::kInt,
     .why = kMeasuredDrafts},
    {.name = "enable_lora", .type = Type::kBool, .fallback = "false", .like = "max_loras"},
    {.name = "cpu_offload_gb",
     .type = Type::kNumber,
     .fallback = "0",
     .accepts = "0",
     .why = "weights stay on the device"},
    {.name = "trust_remote_code",
     .type = Type::kBool,
     .fallback = "false",
     .accepts = "false",
     .why = "a checkpoint's code is never run"},
    {.name = "host", .type = Type::kText, .native = "host"},
    {.name = "port", .type = Type::kInt, .fallback = "8000", .native = "port", .min = 0},
    {.name = "served_model_name", .type = Type::kTexts, .native = "served_model_name"},
    {.name = "api_key", .type = Type::kTexts, .native = "api_key"},
    {.name = "chat_template", .type = Type::kText, .native = "chat_template"},
    {.name = "ssl_keyfile", .type = Type::kText, .native = "tls_key"},
    {.name = "ssl_certfile", .type = Type::kText, .native = "tls_certificate"},
    {.name = "ssl_ca_certs",
     .type = Type::kText,
     .why = "clients are known by keys, not by certificates"},
    {.name = "allowed_origins", .type = Type::kTexts, .native = "allowed_origins"},
    {.name = "allow_credentials",
     .type = Type::kBool,
     .accepts = "*",
     .why = "no cookies are read"},
    {.name = "allowed_methods",
     .type = Type::kTexts,
     .accepts = "*",
     .why = "pages may call every route"},
    {.name = "allowed_headers",
     .type = Type::kTexts,
     .accepts = "*",
     .why = "pages may send the headers that are read"},
    {.name = "root_path",
     .type = Type::kText,
     .why = "routes begin at /: have the proxy take the path off"},
    {.name = "uvicorn_log_level", .type = Type::kText, .accepts = "*", .why = kOwnLog},
    {.name = "disable_uvicorn_access_log", .type = Type::kBool, .accepts = "*", .why = kOwnLog},
    {.name = "disable_log_requests", .type = Type::kBool, .accepts = "*", .why = kOwnLog},
    {.name = "enable_log_requests", .type = Type::kBool, .accepts = "*", .why = kOwnLog},
    {.name = "max_log_len",
     .type = Type::kInt,
     .accepts = "*",
     .why = "the log has nothing of what was said"},
    {.name = "disable_log_stats",
     .type = Type::kBool,
     .accepts = "*",
     .why = "/metrics counts; the log has no figures"},
    {.name = "enable_request_id_headers",
     .type = Type::kBool,
     .accepts = "*",
     .why = "answers always have X-Request-Id"},
    {.name = "enable_prompt_tokens_details",
     .type = Type::kBool,
     .accepts = "*",
     .why = "usage always tells cached tokens"},
    {.name = "enable_force_include_usage",
     .type = Type::kBool,
     .accepts = "false",
     .why = "requests ask for usage by stream_options"},
    {.name = "disable_fastapi_docs",
     .type = Type::kBool,
     .accepts = "*",
     .why = "/openapi.json lists the routes"},
    {.name = "api_server_count",
     .type = Type::kInt,
     .accepts = "*",
     .why = "one thread has all sockets"},

    {.name = "enable_auto_tool_choice",
     .type = Type::kBool,
     .accepts = "*",
     .why = kFoundFromTemplate},
    {.name = "tool_call_parser", .type = Type::kText, .accepts = "*", .why = kFoundFromTemplate},
    {.name = "tool_parser_plugin", .type = Type::kText, .why = kFoundFromTemplate, .alters = true},
    {.name = "enable_reasoning", .type = Type::kBool, .accepts = "*", .why = kFoundFromTemplate},
    {.name = "reasoning_parser", .type = Type::kText, .accepts = "*", .why = kFoundFromTemplate},
    {.name = "chat_template_content_format",
     .type = Type::kText,
     .accepts = "*",
     .why = kFoundFromTemplate},
    {.name = "response_role",
     .type = Type::kText,
     .accepts = "assistant",
     .why = "answers are the assistant's",
     .alters = true},
    {.name = "guided_decoding_backend",
     .type = Type::kText,
     .accepts = "*",
     .why = "grammars are compiled by xgrammar"},
    {.name = "structured_outputs_config",
     .type = Type::kAny,
     .accepts = "*",
     .why = "grammars are compiled by xgrammar"},
    {.name = "generation_config",
     .type = Type::kText,
     .accepts = "auto",
     .why = "where requests do not say, the model's generation_config.json says how to sample",
     .alters = true},
    {.name = "override_generation_config",
     .type = Type::kAny,
     .why = "write it into the model's generation_config.json",
     .alters = true},
    {.name = "max_logprobs", .type = Type::kInt, .accepts = "*", .why = "requests may ask for 20"},
    {.name = "logits_processors",
     .type = Type::kAny,
     .why = "logits are changed by requests' parameters alone",
     .alters = true},
    {.name = "seed",
     .type = Type::kInt,
     .accepts = "*",
     .why = "a request without a seed gets a random one"},

    {.name = "tokenizer",
     .type = Type::kText,
     .why = "a model's tokenizer lies beside its weights",
     .alters = true},
    {.name = "tokenizer_mode",
     .type = Type::kText,
     .accepts = "auto|hf",
     .why = "tokenizer.json is read, and nothing else",
     .alters = true},
    {.name = "skip_tokenizer_init",
     .type = Type::kBool,
     .accepts = "false",
     .why = "a tokenizer that is there is read"},
    {.name = "load_format",
     .type = Type::kText,
     .accepts = "auto|safetensors",
     .why = "weights come from safetensors, or from a GGUF file as the model",
     .alters = true},
    {.name = "download_dir", .type = Type::kText, .accepts = "*", .why = kHubCache},
    {.name = "revision",
     .type = Type::kText,
     .accepts = "main",
     .why = "models of a name are those of refs/main",
     .alters = true},
    {.name = "tokenizer_revision",
     .type = Type::kText,
     .accepts = "main",
     .why = "models of a name are those of refs/main",
     .alters = true},
    {.name = "code_revision",
     .type = Type::kText,
     .accepts = "*",
     .why = "a checkpoint's code is never run"},
    {.name = "hf_token", .type = Type::kAny, .accepts = "*", .why = "`encore pull` reads HF_TOKEN"},
    {.name = "hf_overrides",
     .type = Type::kAny,
     .why = "write it into the model's config.json",
     .alters = true},
    {.name = "rope_scaling",
     .type = Type::kAny,
     .why = "write it into the model's config.json",
     .alters = true},
    {.name = "rope_theta",
     .type = Type::kAny,
     .why = "write it into the model's config.json",
     .alters = true},
    {.name = "disable_hybrid_kv_cache_manager",
     .type = Type::kBool,
     .fallback = "false",
     .like = "window_pages"},
    {.name = "disable_sliding_window",
     .type = Type::kBool,
     .accepts = "false",
     .why = "layers keep their windows: max_seq_len shortens sequences"},
    {.name = "model_impl", .type = Type::kText, .accepts = "*", .why = "models are Encore's own"},
    {.name = "task",
     .type = Type::kText,
     .accepts = "auto|generate",
     .why = "models generate, and do nothing else",
     .alters = true},
    {.name = "runner",
     .type = Type::kText,
     .accepts = "auto|generate",
     .why = "models generate, and do nothing else",
     .alters = true},
    {.name = "limit_mm_per_prompt",
     .type = Type::kAny,
     .accepts = "*",
     .why = "there are no images"},
    {.name = "mm_processor_kwargs",
     .type = Type::kAny,
     .accepts = "*",
     .why = "there are no images"},
    {.name = "lora_modules", .type = Type::kTexts, .native = "lora"},
    {.name = "max_loras",
     .type = Type::kInt,
     .fallback = "1",
     .min = 1,
     .max = 4096,
     .like = "max_loras"},
    {.name = "max_cpu_loras", .type = Type::kInt, .native = "max_cpu_loras", .min = 1, .max = 4096},
    {.name = "max_lora_rank", .type = Type::kInt, .native = "max_lora_rank", .min = 1, .max = 512},

    {.name = "swap_space",
     .type = Type::kNumber,
     .accepts = "*",
     .why = "a sequence that loses its pages is computed again"},
    {.name = "kv_transfer_config", .type = Type::kAny, .why = "KV stays where it was computed"},
    {.name = "calculate_kv_scales",
     .type = Type::kBool,
     .accepts = "false",
     .why = "scales of KV are the checkpoint's",
     .alters = true},
    {.name = "max_seq_len_to_capture",
     .type = Type::kInt,
     .accepts = "*",
     .why = "recordings take sequences of any length"},
    {.name = "num_scheduler_steps",
     .type = Type::kInt,
     .accepts = "*",
     .why = "burst_steps has the GPU run steps by itself"},
    {.name = "scheduling_policy",
     .type = Type::kText,
     .accepts = "fcfs|priority",
     .why = "sequences come in the order of their priority"},
    {.name = "max_num_partial_prefills",
     .type = Type::kInt,
     .accepts = "*",
     .why = "chunks of any prompts share a step"},
    {.name = "max_long_partial_prefills",
     .type = Type::kInt,
     .accepts = "*",
     .why = "chunks of any prompts share a step"},
    {.name = "long_prefill_token_threshold",
     .type = Type::kInt,
     .accepts = "*",
     .why = "chunks of any prompts share a step"},
    {.name = "distributed_executor_backend",
     .type = Type::kText,
     .accepts = "*",
     .why = kRanksAreThreads},
    {.name = "disable_custom_all_reduce",
     .type = Type::kBool,
     .accepts = "*",
     .why = kOwnCollectives},
    {.name = "device",
     .type = Type::kText,
     .accepts = "auto|cuda",
     .why = "name a device with device"},
    {.name = "enable_sleep_mode",
     .type = Type::kBool,
     .accepts = "*",
     .why = "a model can always sleep: give admin_key_file"},
};

constexpr Alias kVllmAliases[] = {
    {"cudagraph_capture_sizes", "compilation_config.cudagraph_capture_sizes"},
    {"max_cudagraph_capture_size", "compilation_config.max_cudagraph_capture_size"},
    {"cudagraph_mode", "compilation_config.cudagraph_mode"},
    {"O", "compilation_config"},
    {"cc", "compilation_config"},
    {"model_tag", "model"},
    {"tp", "tensor_parallel_size"},
    {"pp", "pipeline_parallel_size"},
    {"dp", "data_parallel_size"},
    {"q", "quantization"},
    {"tensor_parallel", "tensor_parallel_size"},
    {"speculative_model", "speculative_config.model"},
    {"num_speculative_tokens", "speculative_config.num_speculative_tokens"},
    {"ngram_prompt_lookup_max", "speculative_config.prompt_lookup_max"},
    {"ngram_prompt_lookup_min", "speculative_config.prompt_lookup_min"},
    {"ssl_key_file", "ssl_keyfile"},
    {"ssl_cert_file", "ssl_certfile"},
};

constexpr std::string_view kLevel = "optimization_level";
constexpr std::string_view kMode = "compilation_config.cudagraph_mode";
constexpr std::string_view kSizesKey = "compilation_config.cudagraph_capture_sizes";
constexpr std::string_view kOldSizesKey = "cuda_graph_sizes";
constexpr std::string_view kMaxSize = "compilation_config.max_cudagraph_capture_size";
constexpr std::string_view kFullGraph = "compilation_config.full_cuda_graph";
constexpr std::string_view kUseGraphs = "compilation_config.use_cudagraph";

std::string vllm_mode(Draft& draft) {
  std::string mode = draft.text(kMode);
  if (draft.given(kLevel) && !draft.given(kMode) && draft.count(kLevel) < 2)
    mode = draft.count(kLevel) == 0 ? "NONE" : "PIECEWISE";
  if (draft.flag(kFullGraph)) {
    if (draft.given(kMode) && mode != "FULL")
      draft.fail_key(kFullGraph, "full_cuda_graph and cudagraph_mode contradict each other");
    mode = "FULL";
  }
  const bool is_eager = draft.flag("enforce_eager") || !draft.flag(kUseGraphs);
  if (is_eager) {
    if (draft.given(kMode) && mode != "NONE") {
      draft.fail_key(kMode, fmt::format("cudagraph_mode {} contradicts {}", mode,
                                        draft.cite(draft.flag("enforce_eager") ? "enforce_eager"
                                                                               : kUseGraphs)));
    }
    mode = "NONE";
  }
  std::string native;
  for (const char c : mode)
    native += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return native;
}

// Returns the key under which the document gives a list of sizes: today's key, or the flag of older
// versions of vLLM.
std::string_view sizes_key(Draft& draft) {
  if (draft.given(kSizesKey) && draft.given(kOldSizesKey)) {
    draft.fail_key(kOldSizesKey, fmt::format("cuda_graph_sizes and {} are one thing; give one",
                                             draft.cite(kSizesKey)));
  }
  return draft.given(kOldSizesKey) ? kOldSizesKey : kSizesKey;
}

// Returns the sizes to record that the document gives. A single number in --cuda-graph-sizes is the
// largest of 1, 2, 4, 8 and further multiples of 8, as in older versions of vLLM.
std::optional<std::vector<int64_t>> given_sizes(Draft& draft) {
  const std::string_view key = sizes_key(draft);
  const auto sizes = draft.sizes(key);
  if (!sizes || key == kSizesKey || sizes->size() != 1) return sizes;
  const int64_t max = sizes->front();
  return runtime::sizes_in(std::vector<runtime::SizeRange>{{1, 4, 0}, {8, max, 8}}, max);
}

// Returns the sizes to record. One list serves decode steps and mixed steps.
std::vector<int64_t> capture_sizes(Draft& draft) {
  const auto sizes = given_sizes(draft);
  if (sizes) {
    if (draft.given(kMaxSize) && draft.count(kMaxSize) != sizes->back()) {
      draft.fail_key(kMaxSize, fmt::format("max_cudagraph_capture_size {} is not the largest of "
                                           "cudagraph_capture_sizes, {}; give one of them",
                                           draft.count(kMaxSize), sizes->back()));
    }
    return *sizes;
  }
  const int64_t max = draft.given(kMaxSize)
                          ? draft.count(kMaxSize)
                          : std::min<int64_t>(2 * draft.count("max_num_seqs"), 512);
  if (max == 0) return {};
  return runtime::Ladder::sequences(max).sizes();
}

// Sets where drafts come from: a lookup, or a draft model. A model without a method is a draft
// model.
void put_speculation(Draft& draft) {
  constexpr std::string_view kMethod = "speculative_config.method";
  constexpr std::string_view kModel = "speculative_config.model";
  constexpr std::string_view kTokens = "speculative_config.num_speculative_tokens";
  constexpr std::string_view kLookup = "speculative_config.prompt_lookup_max";
  constexpr std::string_view kRule = "speculative_config.rejection_sample_method";
  const auto is_ngram = [&](std::string_view key) {
    return draft.given(key) && draft.text(key).find("ngram") != std::string::npos;
  };
  const bool looks_up = is_ngram(kMethod) || is_ngram(kModel);
  const bool has_model = draft.given(kModel) && !looks_up && !draft.refuses(kMethod);
  if (!looks_up && !has_model) return;
  if (has_model) draft.put("draft_model", draft.text(kModel), {kModel});
  draft.put("speculative_tokens", fmt::format("{}", draft.count(kTokens)), {kTokens});
  if (draft.given(kRule) && !draft.refuses(kRule))
    draft.put("speculative_acceptance", "rejection", {kRule});
  if (draft.given(kLookup))
    draft.put("speculative_ngram", fmt::format("{}", draft.count(kLookup)), {kLookup});
}

void derive_vllm(Draft& draft) {
  std::string mode = vllm_mode(draft);
  const std::vector<int64_t> sizes = capture_sizes(draft);
  if (sizes.empty()) mode = "none";
  draft.put("graphs", mode, {kMode, kLevel, "enforce_eager", kUseGraphs, kFullGraph, kMaxSize});
  const int64_t max_tokens = draft.count("max_num_batched_tokens");
  if (draft.given("max_num_seqs") && draft.count("max_num_seqs") > max_tokens) {
    draft.fail_key("max_num_seqs", fmt::format("max_num_seqs {} is more than "
                                               "max_num_batched_tokens {}",
                                               draft.count("max_num_seqs"), max_tokens));
  }
  const int64_t max_batch = std::min(draft.count("max_num_seqs"), max_tokens);
  const std::string_view list_key = sizes_key(draft);
  const std::string_view size_key = draft.given(list_key) ? list_key : kMaxSize;
  draft.put("max_batch_size", fmt::format("{}", max_batch), {"max_num_seqs"});
  if (mode != "none") {
    draft.put("decode_ladder", draft.cut(sizes, max_batch, size_key, "max_num_seqs"),
              {list_key, kMaxSize, "max_num_seqs"});
  }
  if (mode != "none" && mode != "full-decode-only") {
    draft.put("token_ladder", draft.cut(sizes, max_tokens, size_key, "max_num_batched_tokens"),
              {list_key, kMaxSize, "max_num_batched_tokens"});
    if (sizes.back() < max_tokens) {
      draft.note(list_key, fmt::format("mixed steps of {} to {} tokens run eager, as the largest "
                                       "captured size is below max_num_batched_tokens; "
                                       "above_ladder: split has none",
                                       sizes.back() + 1, max_tokens));
    }
  }
  const double share = draft.number("gpu_memory_utilization");
  draft.put("memory_reserve", fmt::format("{}%", std::round((1 - share) * 1e6) / 1e4),
            {"gpu_memory_utilization"});
  if (draft.given("num_gpu_blocks_override")) {
    draft.put("kv_tokens",
              fmt::format("{}", draft.count("num_gpu_blocks_override") * draft.count("block_size")),
              {"num_gpu_blocks_override", "block_size"});
  }
  if (draft.given("disable_hybrid_kv_cache_manager")) {
    draft.put("window_pages", draft.flag("disable_hybrid_kv_cache_manager") ? "off" : "on",
              {"disable_hybrid_kv_cache_manager"});
  }
  if (draft.given("async_scheduling"))
    draft.put("overlap", draft.flag("async_scheduling") ? "on" : "off", {"async_scheduling"});
  if (draft.flag("enable_lora"))
    draft.put("max_loras", fmt::format("{}", draft.count("max_loras")),
              {"enable_lora", "max_loras"});
  put_speculation(draft);
  draft.put_split_at("compilation_config.splitting_ops");
  draft.put_default("above_ladder", "eager", "vLLM runs larger steps eager");
  draft.put_dtype();
  draft.put_kv_dtype("kv_cache_dtype");
  draft.put_quantization("quantization");
}

}  // namespace

const DialectTable kVllm{Dialect::kVllm, "vLLM", kVllmKeys, kVllmAliases, derive_vllm};

}  // namespace encore::config
