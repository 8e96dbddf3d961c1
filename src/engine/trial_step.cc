#include "engine/trial_step.h"

#include <algorithm>
#include <random>

namespace encore::engine {
namespace {

constexpr int64_t kLongestPast = 200;

// A mixed step: single tokens in the first half of the sequences, prompts of about one length in
// the others.
int64_t mixed_count(const runtime::StepRequest& request, int64_t b) {
  const int64_t prompts = (request.sequences + 1) / 2;
  const int64_t singles = request.sequences - prompts;
  if (b < singles) return 1;
  const int64_t tokens = request.tokens - singles;
  const int64_t i = b - singles;
  return tokens * (i + 1) / prompts - tokens * i / prompts;
}

}  // namespace

runtime::StepRequest TrialStep::request(const runtime::Limits& limits) const {
  runtime::StepRequest request{.sequences = static_cast<int64_t>(sequences.size())};
  bool is_uniform = true;
  for (const Sequence& sequence : sequences) {
    request.tokens += sequence.count;
    is_uniform &= sequence.count == sequences.front().count;
  }
  const int64_t q = sequences.empty() ? 0 : sequences.front().count;
  if (is_uniform && q <= limits.max_q) request.q = static_cast<int>(q);
  return request;
}

runtime::StepLengths TrialStep::lengths() const {
  runtime::StepLengths lengths;
  for (const Sequence& sequence : sequences) {
    lengths.max_query_len = std::max(lengths.max_query_len, sequence.count);
    lengths.max_kv_len = std::max(lengths.max_kv_len, sequence.past + sequence.count);
  }
  return lengths;
}

std::optional<TrialStep> trial_step(const LoadedModel& model, const runtime::StepRequest& request) {
  const int64_t sequences = request.sequences;
  const int64_t room =
      std::min(model.num_pages() / sequences * model.page_size(), model.limits().max_seq_len);
  TrialStep step;
  for (int64_t b = 0; b < sequences; ++b) {
    int64_t count = request.q;
    if (count == 0) count = mixed_count(request, b);
    if (count < 1 || count > room) return std::nullopt;
    const int64_t past = std::min(room - count, (37 * b + 11) % kLongestPast);
    step.sequences.push_back({past, count});
  }
  return step;
}

void fill_kv(LoadedModel& model, uint64_t seed, float stddev) {
  runtime::Executor& executor = model.executor();
  const ir::Graph& graph = executor.program().graph;
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kState)) {
    const TensorView all = executor.states().view(id);
    const TensorView mapped(all.data, all.dtype,
                            {std::min(all.num_rows(), model.num_pages()), all.row_elements()});
    executor.device().fill_random(executor.stream(), mapped, seed++, stddev);
  }
  executor.synchronize();
}

runtime::Choice begin(LoadedModel& model, const TrialStep& step, uint64_t seed) {
  runtime::Executor& executor = model.executor();
  const runtime::Choice choice = executor.begin(step.request(model.limits()));
  runtime::StepInputs& inputs = executor.inputs();
  const auto ids = inputs.host<int32_t>("ids");
  const auto positions = inputs.host<int32_t>("positions");
  const auto slots = inputs.host<int32_t>("slots");
  const auto page_table = inputs.host<int32_t>("page_table");
  const auto kv_lens = inputs.host<int32_t>("kv_lens");
  const auto query_starts = inputs.host<int32_t>("query_starts");
  const auto num_sequences = static_cast<int64_t>(step.sequences.size());
  const size_t table_width = page_table.size() / kv_lens.size();
  const int64_t pages_each = std::min(model.num_pages() / std::max<int64_t>(1, num_sequences),
                                      static_cast<int64_t>(table_width));
  const bool samples = inputs.has("last_rows");

  std::mt19937_64 random(seed);
  int32_t row = 0;
  for (int64_t b = 0; b < num_sequences; ++b) {
    const auto [past, count] = step.sequences[b];
    // Every other page backwards, so that no two neighbours in a sequence are neighbours in memory.
    for (int64_t i = 0; i < pages_each; ++i) {
      page_table[b * table_width + i] =
          static_cast<int32_t>((pages_each - 1 - i) * num_sequences + b);
    }
    query_starts[b] = row;
    for (int64_t position = past; position < past + count; ++position, ++row) {
      ids[row] = static_cast<int32_t>(random() % model.config().vocab_size);
      positions[row] = static_cast<int32_t>(position);
      const int32_t page = page_table[b * table_width + position / model.page_size()];
      slots[row] = static_cast<int32_t>(page * model.page_size() + position % model.page_size());
    }
    kv_lens[b] = static_cast<int32_t>(past + count);
    if (!samples) continue;
    inputs.host<int32_t>("last_rows")[b] = row - 1;
    inputs.host<float>("temperature")[b] = b % 2 == 0 ? 0.0F : 0.8F;
    inputs.host<int32_t>("top_k")[b] = b % 3 == 0 ? 40 : 0;
    inputs.host<float>("top_p")[b] = b % 4 == 0 ? 0.9F : 1.0F;
    inputs.host<float>("min_p")[b] = 0;
    inputs.host<int64_t>("seed")[b] = static_cast<int64_t>(seed) + b;
  }
  query_starts[num_sequences] = row;
  return choice;
}

}  // namespace encore::engine
