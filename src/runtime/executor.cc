#include "runtime/executor.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "runtime/recorder.h"

namespace encore::runtime {

// Returns the sizes of the ladders without those above the limits, which no step ever has and for
// which the fixed buffers have no room.
Coverage wanted_coverage(const ExecutorOptions& options) {
  const Limits& limits = options.limits;
  const auto ladder = [](const Ladder& given, const Ladder& usual, int64_t max) {
    return given.empty() ? usual : given.capped(max);
  };
  Coverage coverage;
  coverage.graphs = options.graphs;
  coverage.pad_uniform = options.pad_uniform;
  coverage.eager_steps = options.eager_steps;
  coverage.max_num_tokens = limits.max_num_tokens;
  coverage.sequences =
      ladder(options.sequences, Ladder::sequences(limits.max_batch_size), limits.max_batch_size);
  coverage.tokens =
      ladder(options.tokens, Ladder::tokens(limits.max_num_tokens), limits.max_num_tokens);
  coverage.mixed_sequences = Ladder::mixed_sequences(coverage.sequences.sizes().back());
  return coverage;
}

std::string_view name(StartPoint point) {
  switch (point) {
    case StartPoint::kLowered:
      return "the loading of kernels";
    case StartPoint::kLoaded:
      return "the first steps";
    case StartPoint::kWarm:
      return "the recordings";
    case StartPoint::kRecorded:
      return "the first replays";
  }
  return "";
}

Executor::Executor(Device& device, Stream& stream, const passes::Program& program,
                   std::vector<TensorView> weights, const ExecutorOptions& options)
    : loaded_(device, stream, program, std::move(weights)),
      coverage_(wanted_coverage(options)),
      token_state_(device, loaded_.persistent, options.limits.max_seq_len),
      token_masks_(loaded_.persistent.find("token_masks")),
      output_(loaded_) {
  if (const auto capacity = coverage_.sequences.lru())
    on_demand_.emplace(loaded_.recordings, stream, *capacity);
  record({loaded_, token_state_, coverage_, on_demand_ ? &*on_demand_ : nullptr}, options);
  recount();
}

Executor::~Executor() {
  loaded_.wait_until_idle();  // launches read the host's memory of `token_state_`
}

void Executor::lead(Followers& followers) {
  followers_ = &followers;
  given_tokens_ = GivenTokens(output_.ring().published());
  for (size_t group = 0; group < loaded_.inputs.num_page_tables(); ++group) {
    loaded_.inputs.page_table(group).listen(
        [this, group](int64_t row, std::span<const int32_t> pages, int64_t num_unseen) {
          mirrored_.emplace_back([group, row, pages = std::vector(pages.begin(), pages.end()),
                                  num_unseen](const RankPrograms& rank) {
            rank.executor.loaded().inputs.page_table(group).set(row, pages, num_unseen);
          });
        });
  }
  token_state_.listen([this](int32_t row, std::span<const int32_t> prompt,
                             std::span<const int32_t> generated,
                             std::span<const TokenBias> biases) {
    mirrored_.emplace_back(
        [row, prompt = std::vector(prompt.begin(), prompt.end()),
         generated = std::vector(generated.begin(), generated.end()),
         biases = std::vector(biases.begin(), biases.end())](const RankPrograms& rank) {
          rank.executor.token_state().set(row, prompt, generated, biases,
                                          rank.executor.loaded().stream);
        });
  });
}

void Executor::follow(Followers::Call call) {
  mirrored_.push_back(std::move(call));
  followers_->post([calls = std::exchange(mirrored_, {})](const RankPrograms& rank) {
    for (const Followers::Call& call : calls)
      call(rank);
  });
}

void Executor::mirror_masks() {
  for (const int64_t row : masked_rows_) {
    const std::span<const uint32_t> mask(token_masks_.row<uint32_t>(row),
                                         static_cast<size_t>(token_masks_.shape[1]));
    mirrored_.emplace_back(
        [row, mask = std::vector(mask.begin(), mask.end())](const RankPrograms& rank) {
          std::ranges::copy(mask, rank.executor.token_mask(row).begin());
        });
  }
  masked_rows_.clear();
}

void Executor::mirror_tokens() {
  if (auto steps = given_tokens_.take(output_.ring()); !steps.empty()) {
    mirrored_.emplace_back([steps = std::move(steps)](const RankPrograms& rank) {
      Executor& own = rank.executor;
      own.expected_tokens_.expect(steps, own.output_.ring());
    });
  }
  given_tokens_.launch(next_step_, token_rows_);
}

template <typename Work>
void Executor::lead_through(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    if (followers_ != nullptr) followers_->fail(error);
    throw;
  }
}

void Executor::set_graphs(Graphs graphs) {
  if (followers_ != nullptr) {
    mirrored_.emplace_back(
        [graphs](const RankPrograms& rank) { rank.executor.set_graphs(graphs); });
  }
  coverage_.graphs = graphs;
  choice_ = {};
}

Choice Executor::begin(const StepKey& step) {
  if (followers_ != nullptr)
    mirrored_.emplace_back([step](const RankPrograms& rank) { rank.executor.begin(step); });
  const int64_t num_drafts = loaded_.program.num_drafts();
  token_rows_.rows_each = num_drafts > 0 ? step.q.value_or(1 + num_drafts) : 1;
  token_rows_.count = step.sequences * token_rows_.rows_each;
  choice_ = choose(step, coverage_);
  if (on_demand_ && choice_.mode == Mode::kFull && step.is_uniform()) {
    on_demand_->require(choice_.key, RecordingErrors::kDrop, coverage_);
    choice_ = choose(step, coverage_);  // no longer full where recording failed
  }
  require_replay(step, choice_, coverage_);
  loaded_.inputs.begin(step.sizes(), choice_.key.sizes());
  return choice_;
}

std::span<uint32_t> Executor::token_mask(int64_t row) {
  ENCORE_CHECK(token_masks_.data != nullptr && row >= 0 && row < token_masks_.shape[0]);
  if (followers_ != nullptr) masked_rows_.push_back(row);
  return {token_masks_.row<uint32_t>(row), static_cast<size_t>(token_masks_.shape[1])};
}

void Executor::send_inputs() {
  if (followers_ != nullptr) {
    const std::span<std::byte> inputs = loaded_.inputs.packed();
    mirrored_.emplace_back(
        [inputs = std::vector(inputs.begin(), inputs.end())](const RankPrograms& rank) {
          StepInputs& own = rank.executor.loaded().inputs;
          ENCORE_CHECK(own.packed().size() == inputs.size());
          std::ranges::copy(inputs, own.packed().begin());
          own.send(rank.executor.loaded().stream);
        });
  }
  loaded_.inputs.send(loaded_.stream);
}

void Executor::run(const StepLengths& lengths, InputsFrom from, StepPart part) {
  if (from == InputsFrom::kHost) send_inputs();
  if (followers_ != nullptr) {
    mirror_masks();
    mirror_tokens();
    follow([lengths, part](const RankPrograms& rank) {
      rank.executor.run(lengths, InputsFrom::kLastStep, part);
    });
  }
  lead_through([&] {
    prepare();
    rest_ = {{choice_.key, lengths}};
    if (part == StepPart::kWhole) return finish_own();
    if (!has_halves()) return;
    in_step(choice_, [&] { loaded_.enqueue(rest_->step, choice_.mode, StepPart::kToLogits); });
    rest_->part = StepPart::kFromLogits;
  });
}

void Executor::finish() {
  if (followers_ != nullptr) {
    mirror_masks();
    follow([](const RankPrograms& rank) { rank.executor.finish(); });
  }
  lead_through([&] { finish_own(); });
}

void Executor::finish_own() {
  const Rest rest = *std::exchange(rest_, std::nullopt);
  in_step(choice_, [&] { loaded_.enqueue(rest.step, choice_.mode, rest.part); });
  if (hooks_.after) hooks_.after(*this);
  ++next_step_;
}

void Executor::prepare() {
  ENCORE_CHECK(!rest_, "a step begins before the last is finished");
  loaded_.inputs.send_pages(loaded_.stream);
  token_state_.write(loaded_.stream);
  if (hooks_.before) hooks_.before(*this);
}

bool Executor::has_halves() {
  if (choice_.mode != Mode::kFull) return true;
  if (coverage_.dropped_halves.contains(choice_.key)) return false;
  try {
    loaded_.recordings.require_halves(choice_.key);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kMemory) throw;
    log::warning("{}; token masks of such steps wait for the step before", error.what());
    coverage_.dropped_halves.insert(choice_.key);
    return false;
  }
}

bool Executor::has_burst() const {
  return choice_.mode == Mode::kFull && loaded_.recordings.burst(choice_.key) != nullptr;
}

void Executor::run_burst(StepNumber end, InputsFrom from) {
  if (from == InputsFrom::kHost) send_inputs();
  if (followers_ != nullptr) {
    mirror_tokens();
    follow(
        [end](const RankPrograms& rank) { rank.executor.run_burst(end, InputsFrom::kLastStep); });
  }
  lead_through([&] {
    prepare();
    output_.ring().run_until(end);
    in_step(choice_, [&] { loaded_.replay(*loaded_.recordings.burst(choice_.key)); });
    if (hooks_.after) hooks_.after(*this);
  });
}

}  // namespace encore::runtime
