#include "diagnose/trial_step.h"

#include <algorithm>
#include <limits>
#include <random>

#include "base/rounding.h"
#include "engine/input_writer.h"
#include "model/graph.h"

namespace encore::diagnose {
namespace {

constexpr int64_t kLongestPast = 200;
constexpr int64_t kNoEnd = std::numeric_limits<int32_t>::max();

// Returns the new tokens of sequence `b` in a mixed step. The first half of the sequences has one
// new token each. The others share the remaining tokens of the step about equally.
int64_t mixed_count(const StepKey& key, int64_t b) {
  const int64_t prompts = (key.sequences + 1) / 2;
  const int64_t singles = key.sequences - prompts;
  if (b < singles) return 1;
  const int64_t tokens = key.tokens - singles;
  const int64_t i = b - singles;
  return tokens * (i + 1) / prompts - tokens * i / prompts;
}

// Gives the sequence the pages of a window's group that its new tokens see. The pages are numbered
// downwards from `last`, which is lowered to the next free one. Returns false where too few pages
// are left.
bool take_window_pages(TrialStep::Sequence& sequence, const kv::WindowRule& rule, int64_t& last) {
  kv::WindowPages& held = sequence.window;
  held.pages.assign(sequence.pages.size(), kv::kNoPage);
  held.first = rule.first_place(sequence.past);
  if (held.num_held() > last + 1) return false;
  for (int64_t place = held.first; place < std::ssize(held.pages); ++place)
    held.pages[static_cast<size_t>(place)] = static_cast<int32_t>(last--);
  return true;
}

}  // namespace

StepKey TrialStep::key(const runtime::Limits& limits) const {
  StepKey key{.sequences = std::ssize(sequences)};
  bool is_uniform = true;
  for (const Sequence& sequence : sequences) {
    key.tokens += sequence.count;
    is_uniform &= sequence.count == sequences.front().count;
  }
  if (is_uniform && !sequences.empty()) {
    const int64_t q = sequences.front().count;
    const std::vector<int64_t> qs = limits.uniform_qs(key.sequences);
    if (std::ranges::find(qs, q) != qs.end()) key.q = static_cast<int>(q);
  }
  if (!key.is_uniform()) key.drafts = drafts;
  return key;
}

StepLengths TrialStep::lengths() const {
  StepLengths lengths;
  for (const Sequence& sequence : sequences) {
    lengths.max_query_len = std::max(lengths.max_query_len, sequence.count);
    lengths.max_kv_len = std::max(lengths.max_kv_len, sequence.past + sequence.count);
  }
  return lengths;
}

std::optional<TrialStep> trial_step(const loader::LoadedModel& model, const StepKey& key) {
  const int64_t sequences = key.sequences;
  const int64_t page_size = model.page_size();
  const int64_t most_pages = div_up(model.limits().max_seq_len, page_size);
  const int64_t pages_each = std::min(model.num_pages() / sequences, most_pages);
  const int64_t room = std::min(pages_each * page_size, model.limits().max_seq_len);
  int64_t last_window_page = model.num_window_pages() - 1;
  TrialStep step;
  step.drafts = key.drafts;
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t count = key.q ? *key.q : mixed_count(key, b);
    if (count < 1 || count > room) return std::nullopt;
    TrialStep::Sequence sequence{std::min(room - count, (37 * b + 11) % kLongestPast), count};
    // The pages of a sequence are numbered backwards and `sequences` apart, so that neighbours in a
    // sequence are not neighbours in memory.
    for (int64_t i = 0; i * page_size < sequence.past + count; ++i)
      sequence.pages.push_back(static_cast<int32_t>((pages_each - 1 - i) * sequences + b));
    if (model.window_rule() &&
        !take_window_pages(sequence, *model.window_rule(), last_window_page)) {
      return std::nullopt;
    }
    SamplingParams& params = sequence.sampling.params;
    params.temperature = b % 2 == 0 ? 0.0F : 0.8F;
    params.top_k = b % 3 == 0 ? 40 : 0;
    params.top_p = b % 4 == 0 ? 0.9F : 1.0F;
    params.num_logprobs = b % 2 == 0 ? 3 : -1;
    params.seed = b;
    // A minimal length makes adjust_logits change the logits. Penalties would change them, too, but
    // depend on the steps before.
    sequence.sampling.min_length = b % 3 == 0 ? INT32_MAX : 0;
    // Where the model has adapter slots, sequences take by turns no adapter and the adapter of each
    // slot.
    if (model.adapters() != nullptr)
      sequence.adapter = static_cast<int32_t>(b % (model.adapters()->num_slots() + 1)) - 1;
    step.sequences.push_back(std::move(sequence));
  }
  return step;
}

void fill_kv(loader::LoadedModel& model, uint64_t seed, float stddev) {
  runtime::LoadedProgram& loaded = model.executor().loaded();
  const ir::Graph& graph = loaded.program.graph;
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kState)) {
    const TensorView all = loaded.kv.view(id);
    // A state of integers holds tokens, and random bits are no tokens, so it is left out.
    if (!is_float(all.dtype) && all.dtype != DType::kFP8) continue;
    const bool is_of_window = graph.value(id).group == model::kWindowGroup;
    const int64_t num_mapped = is_of_window ? model.num_window_pages() : model.num_pages();
    const TensorView mapped(all.data, all.dtype,
                            {std::min(all.num_rows(), num_mapped), all.row_elements()});
    loaded.device.fill_random(loaded.stream, mapped, seed++, stddev);
  }
  loaded.stream.synchronize();
}

runtime::Choice begin(loader::LoadedModel& model, const TrialStep& step, uint64_t seed) {
  runtime::Executor& executor = model.executor();
  const runtime::Choice choice = executor.begin(step.key(model.limits()));
  engine::InputWriter writer(executor, model.page_size());
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids;
  for (const TrialStep::Sequence& sequence : step.sequences) {
    ids.resize(sequence.count);
    for (int32_t& id : ids)
      id = static_cast<int32_t>(random() % model.config().vocab_size);
    writer.add({.ids = ids,
                .first = sequence.past,
                .pages = sequence.pages,
                .window_pages = sequence.window.pages,
                .num_unseen_pages = sequence.window.first,
                .sampling = sequence.sampling,
                .max_len = kNoEnd,
                .adapter = sequence.adapter});
  }
  return choice;
}

}  // namespace encore::diagnose
