#include "runtime/executor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "runtime/shapes.h"
#include "runtime/timed.h"

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
  coverage_.sequences =
      options.sequences.empty() ? Ladder::sequences(limits.max_batch_size) : options.sequences;
  coverage_.tokens =
      options.tokens.empty() ? Ladder::tokens(limits.max_num_tokens) : options.tokens;
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
  const std::vector<StepShape> mixed = mixed_shapes(coverage_.sequences, coverage_.tokens);
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
  const auto mixed = mixed_shapes(coverage_.sequences, coverage_.tokens);
  RecordingStats& stats = recordings_.stats();
  stats.lower_ms = timed([&] {
    for (const auto* shapes : {&uniform, &mixed}) {
      for (const StepShape& shape : *shapes)
        tables_.lower_all(shape);
    }
  });
  stats.warm_up_ms = timed([&] {
    warm_up(uniform);
    warm_up(mixed);
  });
  for (const StepShape& shape : uniform) {
    if (coverage_.full) recordings_.record_full(shape);
    if (coverage_.uniform_pieces) recordings_.record_pieces(shape);
  }
  if (coverage_.mixed_pieces) {
    for (const StepShape& shape : mixed)
      recordings_.record_pieces(shape);
  }
  return stats;
}

void Executor::warm_up(const std::vector<StepShape>& shapes) {
  // Smallest first: a kernel is warmed where it has least to do.
  for (auto shape = shapes.rbegin(); shape != shapes.rend(); ++shape) {
    bool is_begun = false;
    for (int segment = 0; segment < tables_.num_segments(); ++segment) {
      for (const Launch& launch : tables_.at(segment, *shape)) {
        if (!warm_.insert(launch.kernel->name).second) continue;
        if (!is_begun) {
          inputs_.begin({0, 0}, shape->padded);  // padding rows only
          inputs_.copy(*stream_);
          is_begun = true;
        }
        stream_->launch({launch.op->name, launch.node, std::nullopt}, launch.bound, *shape);
      }
    }
  }
  stream_->synchronize();
}

Choice Executor::begin(const StepRequest& request) {
  choice_ = choose(request, coverage_);
  inputs_.begin({request.tokens, request.sequences}, choice_.padded);
  return choice_;
}

void Executor::launch(const StepLengths& lengths) {
  if (inputs_.has(kFillInput)) {
    inputs_.host<float>(kFillInput)[0] = fill_value(options_.poison);
  }
  inputs_.copy(*stream_);
  poison_arena();
  const StepShape step{choice_.padded, choice_.q, lengths.max_query_len, lengths.max_kv_len};
  if (choice_.mode == Mode::kFull) {
    stream_->replay(*recordings_.full(step.padded.sequences, step.q));
    return;
  }
  for (int segment = 0; segment < tables_.num_segments(); ++segment) {
    if (choice_.mode == Mode::kPiecewise && recordings_.in_pieces(segment)) {
      stream_->replay(*recordings_.piece(segment, step));
    } else {
      tables_.launch(*stream_, segment, step);
    }
  }
}

void Executor::poison_arena() {
  if (options_.poison == Poison::kNone) return;
  stream_->fill(addresses_.arena().data(), pattern(options_.poison), addresses_.arena().bytes());
}

void Executor::read_output(int index, void* host, int64_t bytes) {
  const TensorView output = addresses_.view(program_.graph.outputs()[index], choice_.padded);
  ENCORE_CHECK(bytes <= output.num_bytes());
  if (bytes == 0) return synchronize();
  if (bytes <= host_output_.bytes()) {
    stream_->copy_to_host(host_output_.data(), output.data, bytes);
    stream_->synchronize();
    std::memcpy(host, host_output_.data(), bytes);
  } else {
    stream_->copy_to_host(host, output.data, bytes);
    stream_->synchronize();
  }
}

}  // namespace encore::runtime
