#include "runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/log.h"
#include "runtime/shapes.h"

namespace encore::runtime {
namespace {

// Outputs up to this size pass through pinned memory, so that reading them does not stage.
constexpr int64_t kPinnedOutputBytes = int64_t{1} << 20;
constexpr std::string_view kFillInput = "fill";  // what embedding rows of padding tokens hold

// As a 32-bit pattern that reads as NaN, or as a large number, in every float dtype.
uint32_t pattern(Poison poison) {
  return poison == Poison::kNaN ? 0xffffffffU : 0x71497149U;
}

float fill_value(Poison poison) {
  switch (poison) {
    case Poison::kNaN:
      return std::numeric_limits<float>::quiet_NaN();
    case Poison::kLarge:
      return 3e4F;  // finite in f16 too
    case Poison::kNone:
      break;
  }
  return 0;
}

// Where a step says whether its burst goes on; null for a graph without `advance`.
const int32_t* burst_goes_on(const ir::Graph& graph, const PersistentBuffers& persistent) {
  const auto clock = graph.find_value("step_clock");
  return clock ? persistent.view(*clock).as<const int32_t>() + 1 : nullptr;
}

// A device's errors get the step they came in, and what to do about it.
template <typename Run>
void in_step(const Choice& choice, const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDevice) throw;
    fail(ErrorKind::kDevice, "in {} step of {} tokens and {} sequences: {}; {}",
         choice.mode == Mode::kEager  ? "an eager"
         : choice.mode == Mode::kFull ? "a full"
                                      : "a piecewise",
         choice.key.tokens, choice.key.sequences, error.what(),
         choice.mode == Mode::kEager
             ? "a kernel failed, not a recording: report this with the output of `encore doctor`"
             : "try --graphs none; if that works, --graphs-debug on checks each recording and its "
               "addresses, and `encore bisect` names the launch");
  }
}

}  // namespace

Executor::Executor(Device& device, const passes::Program& program, std::vector<TensorView> weights,
                   const ExecutorOptions& options)
    : device_(device),
      program_(program),
      options_(options),
      stream_(device.create_stream()),
      kv_memory_(device, program.graph),
      persistent_(device, *stream_, program.graph),
      ring_(program.graph, persistent_),
      page_table_(device, program.graph, persistent_),
      token_state_(device, program.graph, persistent_, options.limits.max_seq_len),
      token_masks_(program.graph, persistent_),
      inputs_(device, program.graph, options.limits.max_sizes()),
      addresses_(device, program, weights, inputs_, kv_memory_, persistent_),
      tables_(device, program, addresses_),
      recordings_(program, tables_, *stream_, burst_goes_on(program.graph, persistent_)) {
  const Limits& limits = options.limits;
  coverage_.graphs = options.graphs;
  coverage_.pad_uniform = options.pad_uniform;
  coverage_.eager_steps = options.eager_steps;
  coverage_.max_num_tokens = limits.max_num_tokens;
  // Larger sizes would never be asked for, and what is static has no room for them.
  coverage_.sequences = options.sequences.empty() ? Ladder::sequences(limits.max_batch_size)
                                                  : options.sequences.capped(limits.max_batch_size);
  coverage_.tokens = options.tokens.empty() ? Ladder::tokens(limits.max_num_tokens)
                                            : options.tokens.capped(limits.max_num_tokens);
  coverage_.mixed_sequences = Ladder::mixed_sequences(coverage_.sequences.sizes().back());
  if (const auto capacity = coverage_.sequences.lru())
    on_demand_.emplace(recordings_, *stream_, *capacity);
  for (const ir::ValueId weight : program.graph.values_of_kind(ir::ValueKind::kWeight)) {
    ENCORE_CHECK(weights[weight.index].shape == program.graph.value(weight).type.resolve({}));
    memory_plan_.weights += weights[weight.index].num_bytes();
  }
  addresses_.set_workspace(device, *stream_, largest_workspace());

  int64_t output_bytes = 1;
  for (const ir::ValueId output : program.graph.outputs()) {
    const int64_t bytes = program.graph.value(output).type.num_bytes(limits.max_sizes());
    output_bytes = std::max(output_bytes, std::min(bytes, kPinnedOutputBytes));
  }
  host_output_ = device.allocate_host(output_bytes);

  memory_plan_.arena = program.arena.bytes;
  memory_plan_.arena_without_reuse = program.arena.unshared_bytes;
  memory_plan_.step_inputs = inputs_.bytes() + persistent_.bytes();
  memory_plan_.scratch = addresses_.workspace_bytes();
}

Workspace Executor::largest_workspace() const {
  std::vector<StepKey> shapes = uniform_shapes(coverage_.sequences, options_.limits);
  const std::vector<StepKey> mixed = mixed_shapes(coverage_.mixed_ladder(), coverage_.tokens);
  shapes.insert(shapes.end(), mixed.begin(), mixed.end());
  // Above the ladders, and where nothing is padded, steps run at any size.
  const Limits& limits = options_.limits;
  const std::vector<StepKey> above = above_shapes(coverage_.sequences, coverage_.tokens, limits);
  shapes.insert(shapes.end(), above.begin(), above.end());
  shapes.push_back(StepKey::mixed(limits.max_num_tokens, limits.max_batch_size));
  const int64_t first = options_.pad_uniform ? coverage_.sequences.sizes().back() + 1 : 1;
  for (int64_t size = first; size <= limits.max_batch_size; ++size) {
    for (int64_t q = 1; q <= limits.max_q && size * q <= limits.max_num_tokens; ++q)
      shapes.push_back(StepKey::uniform(size, q));
  }
  Workspace most;
  for (const StepKey& shape : shapes) {
    const Workspace workspace = workspace_of(program_, shape, device_, addresses_);
    most.scratch_bytes = std::max(most.scratch_bytes, workspace.scratch_bytes);
    most.num_counters = std::max(most.num_counters, workspace.num_counters);
  }
  return most;
}

Choice Executor::begin(const StepKey& step) {
  choice_ = choose(step, coverage_);
  if (on_demand_ && choice_.mode == Mode::kFull && step.is_uniform()) {
    record_on_demand(choice_.key);
    choice_ = choose(step, coverage_);  // not full where the recording failed
  }
  require_replay(step, choice_, coverage_);
  inputs_.begin(step.sizes(), choice_.key.sizes());
  return choice_;
}

void Executor::copy_inputs() {
  if (inputs_.has(kFillInput)) {
    inputs_.host<float>(kFillInput)[0] = fill_value(options_.poison);
  }
  inputs_.copy(*stream_);
}

void Executor::write_changes() {
  page_table_.write(*stream_);
  token_state_.write(*stream_);
}

void Executor::run(const StepLengths& lengths, Until until) {
  copy_inputs();
  run_next(lengths, until);
}

void Executor::run_next(const StepLengths& lengths, Until until) {
  ENCORE_CHECK(!rest_, "a step begins before the last is finished");
  write_changes();
  poison(options_.poison);
  rest_ = {{choice_.key, lengths}};
  if (until == Until::kEnd) return finish();
  if (!has_halves(choice_.key, choice_.mode)) return;
  in_step(choice_, [&] { enqueue(rest_->step, choice_.mode, StepPart::kToLogits); });
  rest_->part = StepPart::kFromLogits;
}

void Executor::finish() {
  const Rest rest = *std::exchange(rest_, std::nullopt);
  in_step(choice_, [&] { enqueue(rest.step, choice_.mode, rest.part); });
  if (after_step_) after_step_(*this);
  ++next_step_;
}

bool Executor::has_halves(const StepKey& step, Mode mode) {
  if (mode != Mode::kFull) return true;
  try {
    recordings_.require_halves(step);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kMemory) throw;
    log::warning("{}; token masks wait for the step before", error.what());
    return false;
  }
}

bool Executor::has_burst() const {
  return choice_.mode == Mode::kFull && choice_.key.q == 1 &&
         recordings_.burst(choice_.key.sequences) != nullptr;
}

void Executor::run_burst(StepNumber end) {
  copy_inputs();
  run_next_burst(end);
}

void Executor::run_next_burst(StepNumber end) {
  write_changes();
  poison(options_.poison);
  ring_.run_until(end);
  in_step(choice_, [&] { replay(*recordings_.burst(choice_.key.sequences)); });
  if (after_step_) after_step_(*this);
}

void Executor::end_burst() {
  next_step_ = ring_.published();
}

void Executor::recount() {
  stream_->synchronize();
  next_step_ = ring_.published();
}

// Polls, because the host has other things to do than to wait in the driver. A device that failed
// will publish nothing.
StepNumber Executor::wait_published(const AwaitedStep& step) {
  // The driver is asked now and then only, as that takes microseconds: never at the first look,
  // which is before the step is due.
  constexpr int kLooksPerCheck = 4;
  int looks = 0;
  bool has_ended = false;
  const auto is_published = [&] { return is_before(step.number, ring_.published()); };
  const StepWaiter::Awaited awaited{step.choice.key.tokens, step.num_steps, step.is_last};
  waiter_.wait(awaited, [&] {
    if (is_published() || has_ended) return true;
    if (looks++ == 0 || looks % kLooksPerCheck > 0) return false;
    in_step(step.choice, [&] {
      stream_->check();
      // What ran to its end has published before: looked at once more.
      has_ended = step.end != nullptr && step.end->done();
    });
    return is_published();
  });
  const StepNumber published = ring_.published();
  // Of a burst. Behind a step that is alone comes one that is awaited by itself.
  if (step.end != nullptr && is_before(step.number + 1, published))
    waiter_.pass(awaited.key, published - (step.number + 1));
  return published;
}

void Executor::check_addresses(const StepKey& step) {
  for (int segment = 0; segment < tables_.num_segments(); ++segment) {
    const std::string moved = tables_.moved_operand(segment, step);
    if (moved.empty()) continue;
    fail(ErrorKind::kCompile,
         "segment {} at {} tokens, {} sequences: {}; a recording made before would use the old "
         "address: serve with --graphs none and report this",
         segment, step.tokens, step.sequences, moved);
  }
}

void Executor::enqueue(const Step& step, Mode mode, StepPart part) {
  if (options_.check_addresses && mode != Mode::kEager) check_addresses(step.key);
  if (mode == Mode::kFull) {
    replay(part == StepPart::kWhole ? *recordings_.full(step.key)
                                    : *recordings_.half(step.key, part));
    return;
  }
  const int middle = program_.first_awaiting_host();
  const int first = part == StepPart::kFromLogits ? middle : 0;
  const int last = part == StepPart::kToLogits ? middle : tables_.num_segments();
  for (int segment = first; segment < last; ++segment) {
    if (mode == Mode::kPiecewise && recordings_.in_pieces(segment)) {
      replay(*recordings_.piece(segment, step.key));
    } else {
      tables_.launch(*stream_, segment, step);
    }
  }
}

void Executor::replay(const Recording& recording) {
  ++recordings_.stats().replays;
  stream_->replay(recording);
}

void Executor::run_prefix(const StepLengths& lengths, Mode mode, size_t count) {
  copy_inputs();
  write_changes();
  poison(options_.poison);
  const Step step{choice_.key, lengths};
  std::vector<std::unique_ptr<Recording>> made;
  const auto replay_new = [&](const std::function<void()>& run) {
    RecordingScope scope(*stream_);
    run();
    made.push_back(scope.finish());
    stream_->replay(*made.back());
  };
  const auto for_each_segment = [&](const auto& run_segment) {
    size_t left = count;
    for (int segment = 0; left > 0 && segment < tables_.num_segments(); ++segment) {
      const size_t taken = std::min(left, tables_.at(segment, step.key).size());
      run_segment(segment, taken);
      left -= taken;
    }
  };
  const auto launch = [&](int segment, size_t taken) {
    tables_.launch(*stream_, segment, step, taken);
  };
  if (mode == Mode::kFull) {
    tables_.lower_all(step.key);
    replay_new([&] { for_each_segment(launch); });
  } else {
    for_each_segment([&](int segment, size_t taken) {
      if (mode == Mode::kEager || !recordings_.in_pieces(segment)) return launch(segment, taken);
      const Recording* piece = recordings_.piece(segment, step.key);
      const bool whole = taken == tables_.at(segment, step.key).size();
      if (whole && piece != nullptr) return stream_->replay(*piece);
      replay_new([&] { launch(segment, taken); });
    });
  }
  recount();
}

std::vector<std::byte> Executor::read_value(ir::ValueId value) {
  const TensorView view = addresses_.view(value, choice_.key.sizes());
  const int64_t row_bytes = view.row_elements() * size_of(view.dtype);
  std::vector<std::byte> bytes(view.num_rows() * row_bytes);
  for (int64_t row = 0; row < view.num_rows(); ++row) {
    const std::byte* from = view.as<std::byte>() + row * view.row_stride * size_of(view.dtype);
    stream_->copy_to_host(bytes.data() + row * row_bytes, from, row_bytes);
  }
  stream_->synchronize();
  return bytes;
}

void Executor::poison(Poison poison) {
  if (poison == Poison::kNone) return;
  for (const Memory* memory : {&addresses_.arena(), &addresses_.scratch()}) {
    const int64_t bytes = memory->bytes() / 4 * 4;  // of scratch, all that is used as words
    if (bytes > 0) stream_->fill(memory->data(), pattern(poison), bytes);
  }
}

void Executor::read_output(int index, void* host, int64_t bytes) {
  const TensorView output = addresses_.view(program_.graph.outputs()[index], choice_.key.sizes());
  ENCORE_CHECK(bytes <= output.num_bytes());
  if (bytes == 0) return synchronize();
  const bool is_pinned = bytes <= host_output_.bytes();
  void* const to = is_pinned ? host_output_.data() : host;
  in_step(choice_, [&] {
    stream_->copy_to_host(to, output.data, bytes);
    stream_->synchronize();
  });
  if (is_pinned) std::memcpy(host, to, bytes);
}

}  // namespace encore::runtime
