#include "runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include <fmt/ranges.h>

#include "backend/tuning.h"
#include "base/log.h"
#include "runtime/shapes.h"
#include "runtime/timed.h"

namespace encore::runtime {
namespace {

// Outputs up to this size pass through pinned memory, so that reading them does not stage.
constexpr int64_t kPinnedOutputBytes = int64_t{1} << 20;
constexpr double kWorthALine = 1;                // seconds
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
         choice.padded.tokens, choice.padded.sequences, error.what(),
         choice.mode == Mode::kEager
             ? "a kernel failed, not a recording: report this with the output of `encore doctor`"
             : "try --graphs none; if that works, --graphs-debug on checks each recording and its "
               "addresses, and `encore bisect` names the launch");
  }
}

// What tells a launch from those of other layers and sizes that run the same code: one kernel of
// the table may stand for many functions of a library.
std::string signature(const Launch& launch) {
  std::string text(launch.kernel->name);
  for (const auto* views : {&launch.args.inputs, &launch.args.outputs}) {
    for (const TensorView& view : *views)
      text += fmt::format(" {}", fmt::join(view.shape, ","));
  }
  return text;
}

}  // namespace

Executor::Executor(Device& device, const passes::Program& program, std::vector<TensorView> weights,
                   const ExecutorOptions& options)
    : device_(device),
      program_(program),
      options_(options),
      stream_(device.create_stream()),
      states_(device, program.graph),
      inputs_(device, program.graph, options.limits.max_sizes()),
      addresses_(device, program, weights, inputs_, states_),
      tables_(device, program, addresses_),
      recordings_(program, tables_, *stream_) {
  const Limits& limits = options.limits;
  coverage_.graphs = options.graphs;
  coverage_.pad_uniform = options.pad_uniform;
  coverage_.eager_steps = options.eager_steps;
  coverage_.max_num_tokens = limits.max_num_tokens;
  coverage_.sequences =
      options.sequences.empty() ? Ladder::sequences(limits.max_batch_size) : options.sequences;
  coverage_.tokens =
      options.tokens.empty() ? Ladder::tokens(limits.max_num_tokens) : options.tokens;
  if (coverage_.sequences.lru())
    coverage_.mixed_sequences = Ladder::sequences(limits.max_batch_size);
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
  memory_plan_.step_inputs = inputs_.bytes();
  memory_plan_.scratch = addresses_.workspace_bytes();
}

Workspace Executor::largest_workspace() const {
  std::vector<StepShape> shapes = uniform_shapes(coverage_.sequences, options_.limits);
  const std::vector<StepShape> mixed = mixed_shapes(mixed_sequences(), coverage_.tokens);
  shapes.insert(shapes.end(), mixed.begin(), mixed.end());
  // Above the ladders, and where nothing is padded, steps run at any size.
  const Limits& limits = options_.limits;
  shapes.push_back({limits.max_sizes(), 0, 0, 0});
  const int64_t first = options_.pad_uniform ? coverage_.sequences.sizes().back() + 1 : 1;
  for (int64_t size = first; size <= limits.max_batch_size; ++size) {
    for (int64_t q = 1; q <= limits.max_q && size * q <= limits.max_num_tokens; ++q) {
      shapes.push_back({{size * q, size}, static_cast<int>(q), q, 0});
    }
  }
  Workspace most;
  for (const StepShape& shape : shapes) {
    const Workspace workspace = workspace_of(program_, shape, device_, addresses_);
    most.scratch_bytes = std::max(most.scratch_bytes, workspace.scratch_bytes);
    most.num_counters = std::max(most.num_counters, workspace.num_counters);
  }
  return most;
}

const RecordingStats& Executor::record() {
  const bool all = options_.record_all_modes;
  if (options_.graphs == Graphs::kNone && !all) return recordings_.stats();
  const bool full_wanted = all || options_.graphs != Graphs::kPiecewise;
  coverage_.full = full_wanted && program_.full_recordable();
  coverage_.uniform_pieces = all || !coverage_.full;
  coverage_.mixed_pieces = all || options_.graphs != Graphs::kFullDecodeOnly;

  const auto uniform = uniform_shapes(coverage_.sequences, options_.limits);
  const auto mixed = mixed_shapes(mixed_sequences(), coverage_.tokens);
  RecordingStats& stats = recordings_.stats();
  stats.segments = tables_.num_segments();
  const int64_t at_start = device_.used_bytes().value_or(0);
  stats.lower_ms = timed([&] {
    const Tuner::Phase tuning(device_.tuner());
    log::Progress progress("choosing kernels for",
                           static_cast<double>(uniform.size() + mixed.size()), "sizes",
                           kWorthALine);
    int done = 0;
    for (const auto* shapes : {&uniform, &mixed}) {
      for (const StepShape& shape : *shapes) {
        tables_.lower_all(shape);
        progress.update(++done);
      }
    }
  });
  stats.warm_up_ms = timed([&] {
    warm_up(uniform);
    warm_up(mixed);
  });
  const int64_t warm = device_.used_bytes().value_or(0);
  memory_plan_.libraries = warm - at_start;
  if (const auto lru = coverage_.sequences.lru()) {
    // As many as there will ever be, so that their memory is taken before KV's: the smallest.
    const auto first = uniform.end() - std::min<int64_t>(*lru, std::ssize(uniform));
    record_shapes({first, uniform.end()}, coverage_.full, coverage_.uniform_pieces);
    for (auto shape = first; shape != uniform.end(); ++shape)
      recent_.emplace_front(shape->padded.sequences, shape->q);
  } else {
    record_shapes(uniform, coverage_.full, coverage_.uniform_pieces);
  }
  record_shapes(mixed, false, coverage_.mixed_pieces);
  // The worst step of each mode, so that nothing is set up later.
  run_on_padding(
      {uniform.front().padded.tokens, uniform.front().padded.sequences, uniform.front().q});
  run_on_padding({mixed.front().padded.tokens, mixed.front().padded.sequences, 0});
  memory_plan_.recordings = device_.used_bytes().value_or(0) - warm;
  return stats;
}

void Executor::record_shapes(std::vector<StepShape> shapes, bool full, bool pieces) {
  if (options_.record_order == RecordOrder::kAscending) std::reverse(shapes.begin(), shapes.end());
  log::Progress progress("recording", static_cast<double>(shapes.size()), "sizes", kWorthALine);
  int done = 0;
  for (const StepShape& shape : shapes) {
    progress.update(done++);
    if (full) {
      record_or_drop([&] { recordings_.record_full(shape); },
                     [&] {
                       coverage_.dropped_full.insert({shape.padded.sequences, shape.q});
                     });
    }
    for (int segment = 0; pieces && segment < tables_.num_segments(); ++segment) {
      if (!recordings_.in_pieces(segment) || recordings_.piece(segment, shape) != nullptr) continue;
      record_or_drop([&] { recordings_.record_piece(segment, shape); },
                     [&] { drop_piece(segment, shape); });
    }
  }
}

void Executor::record_or_drop(const std::function<void()>& record,
                              const std::function<void()>& drop) {
  try {
    record();
  } catch (const Error& error) {
    if (options_.recording_errors == RecordingErrors::kStop)
      fail(error.kind(), "{}; {}", error.what(), recording_remedy(error.kind()));
    log::warning("{}; going on without this recording", error.what());
    drop();
  }
}

void Executor::drop_piece(int segment, const StepShape& step) {
  if (program_.segments[segment].rows == ir::Symbol::kTokens) {
    coverage_.dropped_tokens.insert(step.padded.tokens);
  } else {
    coverage_.dropped_tails.insert(step.padded.sequences);
  }
}

void Executor::warm_up(const std::vector<StepShape>& shapes) {
  // Smallest first: launches that many sizes share have least to do there.
  for (auto shape = shapes.rbegin(); shape != shapes.rend(); ++shape) {
    bool is_begun = false;
    for (int segment = 0; segment < tables_.num_segments(); ++segment) {
      for (const Launch& launch : tables_.at(segment, *shape)) {
        if (!warm_.insert(signature(launch)).second) continue;
        if (!is_begun) copy_padding(*shape);
        is_begun = true;
        stream_->launch({launch.op->name, launch.node, std::nullopt}, launch.bound, *shape);
      }
    }
  }
  stream_->synchronize();
}

void Executor::copy_padding(const StepShape& step) {
  inputs_.begin({0, 0}, step.padded);
  inputs_.copy(*stream_);
}

void Executor::run_on_padding(const StepRequest& request) {
  const Choice choice = choose(request, coverage_);
  const StepShape step{choice.padded, choice.q, choice.q, 0};
  const std::optional<int> lru = coverage_.sequences.lru();
  if (lru && choice.mode == Mode::kFull) record_on_demand(step, *lru);
  copy_padding(step);
  walk(step, choice.mode);
  tables_.launch_all(*stream_, step);
  stream_->synchronize();
}

const Ladder& Executor::mixed_sequences() const {
  return coverage_.mixed_sequences.empty() ? coverage_.sequences : coverage_.mixed_sequences;
}

void Executor::record_on_demand(const StepShape& step, int capacity) {
  const std::pair<int64_t, int> key(step.padded.sequences, step.q);
  recent_.remove(key);
  recent_.push_front(key);
  if (recordings_.full(key.first, key.second) != nullptr) return;
  if (std::ssize(recent_) > capacity) {
    stream_->synchronize();  // it may be running
    recordings_.erase_full(recent_.back().first, recent_.back().second);
    recent_.pop_back();
  }
  try {
    recordings_.record_full(step);
  } catch (const Error& error) {
    log::warning("{}; its steps run eager", error.what());
    coverage_.dropped_full.insert(key);
    recent_.pop_front();
  }
}

Choice Executor::begin(const StepRequest& request) {
  choice_ = choose(request, coverage_);
  const std::optional<int> lru = coverage_.sequences.lru();
  if (lru && choice_.mode == Mode::kFull) {
    record_on_demand({choice_.padded, choice_.q, choice_.q, 0}, *lru);
    choice_ = choose(request, coverage_);  // not full where the recording failed
  }
  require_replay(request, choice_, coverage_);
  inputs_.begin({request.tokens, request.sequences}, choice_.padded);
  return choice_;
}

void Executor::ready_inputs() {
  if (inputs_.has(kFillInput)) {
    inputs_.host<float>(kFillInput)[0] = fill_value(options_.poison);
  }
  inputs_.copy(*stream_);
  poison_arena();
}

void Executor::launch(const StepLengths& lengths) {
  ready_inputs();
  in_step(choice_, [&] {
    walk({choice_.padded, choice_.q, lengths.max_query_len, lengths.max_kv_len}, choice_.mode);
  });
}

void Executor::check_addresses(const StepShape& step) {
  for (int segment = 0; segment < tables_.num_segments(); ++segment) {
    const std::string moved = tables_.moved_operand(segment, step);
    if (moved.empty()) continue;
    fail(ErrorKind::kCompile,
         "segment {} at {} tokens, {} sequences: {}; a recording made before would use the old "
         "address: serve with --graphs none and report this",
         segment, step.padded.tokens, step.padded.sequences, moved);
  }
}

void Executor::walk(const StepShape& step, Mode mode) {
  if (options_.check_addresses && mode != Mode::kEager) check_addresses(step);
  if (mode == Mode::kFull) {
    replay(*recordings_.full(step.padded.sequences, step.q));
    return;
  }
  for (int segment = 0; segment < tables_.num_segments(); ++segment) {
    if (mode == Mode::kPiecewise && recordings_.in_pieces(segment)) {
      replay(*recordings_.piece(segment, step));
    } else {
      tables_.launch(*stream_, segment, step);
    }
  }
}

void Executor::replay(const Recording& recording) {
  ++recordings_.stats().replays;
  stream_->replay(recording);
}

void Executor::launch_prefix(const StepLengths& lengths, Mode mode, size_t count) {
  ready_inputs();
  const StepShape step{choice_.padded, choice_.q, lengths.max_query_len, lengths.max_kv_len};
  std::vector<std::unique_ptr<Recording>> made;
  const auto replay_new = [&](const std::function<void()>& walk) {
    RecordingScope scope(*stream_);
    walk();
    made.push_back(scope.finish());
    stream_->replay(*made.back());
  };
  const auto walk_segments = [&](const auto& walk_segment) {
    size_t left = count;
    for (int segment = 0; left > 0 && segment < tables_.num_segments(); ++segment) {
      const size_t taken = std::min(left, tables_.at(segment, step).size());
      walk_segment(segment, taken);
      left -= taken;
    }
  };
  const auto launch = [&](int segment, size_t taken) {
    tables_.launch(*stream_, segment, step, taken);
  };
  if (mode == Mode::kFull) {
    tables_.lower_all(step);
    replay_new([&] { walk_segments(launch); });
  } else {
    walk_segments([&](int segment, size_t taken) {
      if (mode == Mode::kEager || !recordings_.in_pieces(segment)) return launch(segment, taken);
      const Recording* piece = recordings_.piece(segment, step);
      const bool whole = taken == tables_.at(segment, step).size();
      if (whole && piece != nullptr) return stream_->replay(*piece);
      replay_new([&] { launch(segment, taken); });
    });
  }
  stream_->synchronize();
}

std::vector<std::byte> Executor::read_value(ir::ValueId value) {
  const TensorView view = addresses_.view(value, choice_.padded);
  const int64_t row_bytes = view.row_elements() * size_of(view.dtype);
  std::vector<std::byte> bytes(view.num_rows() * row_bytes);
  for (int64_t row = 0; row < view.num_rows(); ++row) {
    const std::byte* from = view.as<std::byte>() + row * view.row_stride * size_of(view.dtype);
    stream_->copy_to_host(bytes.data() + row * row_bytes, from, row_bytes);
  }
  stream_->synchronize();
  return bytes;
}

void Executor::poison_arena() {
  if (options_.poison == Poison::kNone) return;
  stream_->fill(addresses_.arena().data(), pattern(options_.poison), addresses_.arena().bytes());
}

void Executor::read_output(int index, void* host, int64_t bytes) {
  const TensorView output = addresses_.view(program_.graph.outputs()[index], choice_.padded);
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
