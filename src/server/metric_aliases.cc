#include "server/metric_aliases.h"

#include "base/error.h"

namespace encore::server {
namespace {

// vLLM's names for those metrics of Encore that measure the same quantity in the same unit.
constexpr MetricAlias kVllm[] = {
    {"vllm:num_requests_running", "encore_sequences_running"},
    {"vllm:num_requests_waiting", "encore_sequences_waiting"},
    {"vllm:kv_cache_usage_perc", "encore_kv_used_ratio"},
    {"vllm:gpu_cache_usage_perc", "encore_kv_used_ratio"},  // the name in older versions of vLLM
    {"vllm:num_preemptions_total", "encore_preemptions_total"},
    {"vllm:prefix_cache_queries_total", "encore_prefix_cache_query_tokens_total"},
    {"vllm:prefix_cache_hits_total", "encore_prefix_cache_hit_tokens_total"},
    {"vllm:prompt_tokens_total", "encore_prompt_tokens_total"},
    {"vllm:generation_tokens_total", "encore_generated_tokens_total"},
    {"vllm:spec_decode_num_drafts_total", "encore_drafts_total"},
    {"vllm:spec_decode_num_draft_tokens_total", "encore_draft_tokens_total"},
    {"vllm:spec_decode_num_accepted_tokens_total", "encore_accepted_draft_tokens_total"},
    {"vllm:spec_decode_num_accepted_tokens_per_pos_total",
     "encore_accepted_draft_tokens_by_position_total"},
    {"vllm:lora_requests_info", "encore_lora_requests_info"},
    {"vllm:time_to_first_token_seconds", "encore_time_to_first_token_seconds"},
    {"vllm:inter_token_latency_seconds", "encore_inter_token_latency_seconds"},
    {"vllm:e2e_request_latency_seconds", "encore_request_seconds"},
};

constexpr MetricAlias kTrtllm[] = {
    {"trtllm_num_requests_running", "encore_sequences_running"},
    {"trtllm_num_requests_waiting", "encore_sequences_waiting"},
    {"trtllm_kv_cache_utilization", "encore_kv_used_ratio"},
    {"trtllm_time_to_first_token_seconds", "encore_time_to_first_token_seconds"},
    {"trtllm_e2e_request_latency_seconds", "encore_request_seconds"},
};

std::span<const MetricAlias> aliases_of(const std::string& system) {
  if (system == "vllm") return kVllm;
  if (system == "trtllm") return kTrtllm;
  fail(ErrorKind::kUsage, "--metric-aliases {}: there are those of vllm and trtllm", system);
}

}  // namespace

std::vector<MetricAlias> find_metric_aliases(std::span<const std::string> systems) {
  std::vector<MetricAlias> aliases;
  for (const std::string& system : systems) {
    const auto more = aliases_of(system);
    aliases.insert(aliases.end(), more.begin(), more.end());
  }
  return aliases;
}

}  // namespace encore::server
