#include "runtime/prompt_scorer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/tuning.h"

namespace encore::runtime {
namespace {

int64_t num_ring_entries(const ir::Graph& graph) {
  return graph.value(graph.find_value("logprob_ring").value()).type.dims[0].value;
}

}  // namespace

// The inputs have as many host copies as the ring has entries, so the host can fill them for that
// many runs without waiting for the device.
PromptScorer::PromptScorer(Device& device, Stream& stream, const passes::Program& program,
                           std::vector<TensorView> weights)
    : loaded_(device, stream, program, std::move(weights), num_ring_entries(program.graph)),
      key_(StepKey::uniform(program.max_sizes.sequences)),
      ring_(loaded_.persistent.find("logprob_ring")) {
  loaded_.set_workspace({key_});
}

void PromptScorer::warm_up() {
  {
    const Tuner::Phase tuning(loaded_.device.tuner());
    loaded_.tables.lower_all(key_);
  }
  run_on_padding();
}

void PromptScorer::record(RecordingErrors policy) {
  warm_up();
  const auto record_full = [&] { loaded_.recordings.record_full(key_); };
  if (!record_or_drop(policy, record_full, "scores of prompts: ")) return;
  mode_ = Mode::kFull;
  run_on_padding();
}

void PromptScorer::run_on_padding() {
  if (!loaded_.device.sets_up_late()) return;
  run({});
  loaded_.stream.synchronize();
}

PromptScorer::InFlight PromptScorer::launch(std::span<const Row> rows) {
  const auto most = static_cast<size_t>(key_.sequences);
  ENCORE_CHECK(2 * rows.size() <= static_cast<size_t>(ring_.shape[0]) * most);
  if (followers_ != nullptr) {
    followers_->post([rows = std::vector(rows.begin(), rows.end())](const RankPrograms& rank) {
      (void)rank.prompt_scorer->launch(rows);
    });
  }
  InFlight scores{next_run_, loaded_.device.create_event()};
  for (size_t first = 0; first < rows.size(); first += most)
    run(rows.subspan(first, std::min(most, rows.size() - first)));
  loaded_.stream.record(*scores.done);
  return scores;
}

void PromptScorer::run(std::span<const Row> rows) {
  const ir::Sizes real{0, static_cast<int64_t>(rows.size())};
  StepInputs& inputs = loaded_.inputs;
  inputs.begin(real, key_.sizes());
  const auto write = [&](const StepInput& input, auto field) {
    const std::span<int32_t> values = inputs.host(input);
    if (!values.empty()) std::ranges::transform(rows, values.begin(), field);
  };
  write(score_input::kRows, &Row::row);
  write(score_input::kTokens, &Row::token);
  write(score_input::kAdapters, &Row::adapter);
  const auto sampling = inputs.host(score_input::kSampling);
  for (size_t i = 0; i < rows.size(); ++i) {
    const SamplingRow row{.params = {.num_logprobs = rows[i].num_top}};
    std::memcpy(&sampling[i * kSamplingWords], &row, sizeof(row));
  }
  inputs.host(score_input::kClock)[0] = static_cast<int32_t>(next_run_++);
  inputs.send(loaded_.stream);
  loaded_.enqueue({key_, {}}, mode_);
}

const LogprobRow& PromptScorer::score(const InFlight& scores, int64_t i) const {
  const int64_t most = ring_.shape[1];
  const uint32_t run = scores.first_run + static_cast<uint32_t>(i / most);
  return ring_.as<const LogprobRow>()[run % ring_.shape[0] * most + i % most];
}

int64_t PromptScorer::bytes() const {
  return loaded_.program.arena.bytes + loaded_.inputs.bytes() + loaded_.persistent.bytes() +
         loaded_.workspace_bytes();
}

}  // namespace encore::runtime
