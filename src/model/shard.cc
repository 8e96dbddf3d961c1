#include "model/shard.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"

namespace encore::model {
namespace {

constexpr int kMaxRanks = 64;

bool divides(const ModelConfig& config, int64_t ranks) {
  const int64_t kv = config.num_kv_heads;
  const Experts experts = config.experts.value_or(Experts{});
  return config.num_heads % ranks == 0 && (kv % ranks == 0 || ranks % kv == 0) &&
         config.intermediate_size % ranks == 0 && experts.intermediate_size % ranks == 0 &&
         experts.shared_size % ranks == 0 && config.vocab_size % ranks == 0;
}

}  // namespace

ModelConfig share_of(const ModelConfig& config, Rank rank) {
  if (rank.size == 1) return config;
  if (!divides(config, rank.size)) {
    std::vector<int> fitting;
    for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
      if (divides(config, ranks)) fitting.push_back(ranks);
    }
    fail(ErrorKind::kUsage,
         "--tensor-parallel {} does not divide the model: it has {} query heads, {} key/value "
         "heads, "
         "a feed-forward width of {}{} and a vocabulary of {}; take {}",
         rank.size, config.num_heads, config.num_kv_heads, config.intermediate_size,
         config.experts ? fmt::format(", experts of {}", config.experts->intermediate_size) : "",
         config.vocab_size, fmt::join(fitting, ", "));
  }
  ModelConfig share = config;
  share.num_heads /= rank.size;
  share.num_kv_heads = std::max<int64_t>(1, config.num_kv_heads / rank.size);
  share.intermediate_size /= rank.size;
  if (share.experts) {
    share.experts->intermediate_size /= rank.size;
    share.experts->shared_size /= rank.size;
  }
  return share;
}

}  // namespace encore::model
