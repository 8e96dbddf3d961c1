#include "runtime/prompt_scorer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/sampling.h"
#include "backend/tuning.h"
#include "base/log.h"

namespace encore::runtime {
namespace {

TensorView ring_of(const ir::Graph& graph, const PersistentBuffers& persistent) {
  const auto ring = graph.find_value("logprob_ring");
  ENCORE_CHECK(ring.has_value(), "a score graph has a logprob_ring");
  return persistent.view(*ring);
}

}  // namespace

// The host fills the inputs of as many runs as the ring has entries without waiting for the device.
PromptScorer::PromptScorer(Device& device, Stream& stream, const passes::Program& program,
                           std::vector<TensorView> weights)
    : device_(device),
      stream_(stream),
      key_(StepKey::uniform(program.max_sizes.sequences)),
      no_kv_(device, program.graph),
      persistent_(device, stream, program.graph),
      ring_(ring_of(program.graph, persistent_)),
      inputs_(device, program.graph, program.max_sizes, ring_.shape[0]),
      addresses_(device, program, std::move(weights), inputs_, no_kv_, persistent_),
      tables_(device, program, addresses_) {
  addresses_.set_workspace(device, stream, workspace_of(program, key_, device, addresses_));
}

void PromptScorer::warm_up() {
  {
    const Tuner::Phase tuning(device_.tuner());
    tables_.lower_all(key_);
  }
  run({});
  stream_.synchronize();
}

void PromptScorer::record(RecordingErrors policy) {
  warm_up();
  try {
    RecordingScope scope(stream_);
    tables_.launch_all(stream_, {key_, {}});
    recording_ = scope.finish();
  } catch (const Error& error) {
    if (policy == RecordingErrors::kStop) {
      fail(error.kind(), "recording the scores of prompts: {}; {}", error.what(),
           recording_remedy(error.kind()));
    }
    log::warning("recording the scores of prompts: {}; going on without this recording",
                 error.what());
    return;
  }
  run({});
  stream_.synchronize();
}

PromptScorer::InFlight PromptScorer::launch(std::span<const Row> rows) {
  const auto most = static_cast<size_t>(key_.sequences);
  ENCORE_CHECK(2 * rows.size() <= static_cast<size_t>(ring_.shape[0]) * most);
  InFlight scores{next_run_, device_.create_event()};
  for (size_t first = 0; first < rows.size(); first += most)
    run(rows.subspan(first, std::min(most, rows.size() - first)));
  stream_.record(*scores.done);
  return scores;
}

void PromptScorer::run(std::span<const Row> rows) {
  const ir::Sizes real{0, static_cast<int64_t>(rows.size())};
  inputs_.begin(real, key_.sizes());
  const auto write = [&](const char* name, auto field) {
    std::ranges::transform(rows, inputs_.host<int32_t>(name).begin(), field);
  };
  write("rows", &Row::row);
  write("tokens", &Row::token);
  const auto sampling = inputs_.host<int32_t>("sampling");
  for (size_t i = 0; i < rows.size(); ++i) {
    const SamplingRow row{.params = {.num_logprobs = rows[i].num_top}};
    std::memcpy(&sampling[i * kSamplingWords], &row, sizeof(row));
  }
  inputs_.host<int32_t>("clock")[0] = static_cast<int32_t>(next_run_++);
  inputs_.copy(stream_);
  recording_ ? stream_.replay(*recording_) : tables_.launch_all(stream_, {key_, {}});
}

const LogprobRow& PromptScorer::score(const InFlight& scores, int64_t i) const {
  const int64_t most = ring_.shape[1];
  const uint32_t run = scores.first_run + static_cast<uint32_t>(i / most);
  return ring_.as<const LogprobRow>()[run % ring_.shape[0] * most + i % most];
}

int64_t PromptScorer::bytes() const {
  return inputs_.bytes() + persistent_.bytes() + addresses_.arena().bytes() +
         addresses_.workspace_bytes();
}

}  // namespace encore::runtime
