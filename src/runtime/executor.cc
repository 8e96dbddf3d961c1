#include "runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

namespace encore::runtime {
namespace {

// Outputs up to this size pass through pinned memory, so that reading them does not stage.
constexpr int64_t kPinnedOutputBytes = int64_t{1} << 20;
constexpr std::string_view kFillInput = "fill";  // what embedding rows of padding tokens hold

// Milliseconds that `work` takes.
template <typename Work>
double timed(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

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

// Where every value of the program lives.
class Executor::AddressMap : public Addresses {
 public:
  AddressMap(Device& device, const passes::Program& program, std::vector<TensorView> weights,
             const StepInputs& inputs, const States& states)
      : program_(program), weights_(std::move(weights)), inputs_(inputs), states_(states) {
    arena_ = device.allocate(program.arena.bytes);
  }

  void set_workspace(Device& device, Stream& stream, const Workspace& workspace) {
    scratch_ = device.allocate(workspace.scratch_bytes);
    counters_ = device.allocate(workspace.num_counters * static_cast<int64_t>(sizeof(uint32_t)));
    if (counters_.bytes() > 0) stream.fill(counters_.data(), 0, counters_.bytes());
  }

  [[nodiscard]] TensorView view(ir::ValueId id, const ir::Sizes& sizes) const override {
    const ir::Value& value = program_.graph.value(id);
    switch (value.kind) {
      case ir::ValueKind::kInput:
        return inputs_.device_view(id, sizes);
      case ir::ValueKind::kWeight:
        return weights_[id.index];
      case ir::ValueKind::kState:
        return states_.view(id);
      case ir::ValueKind::kNode:
        break;
    }
    const passes::Placement& place = program_.arena.placements[id.index];
    const ir::Value& root = program_.graph.value(place.root);
    if (root.kind != ir::ValueKind::kNode) return view(place.root, sizes);
    const int64_t offset = program_.arena.placements[place.root.index].offset;
    TensorView view(arena_.data() + offset + place.column * size_of(value.type.dtype),
                    value.type.dtype, value.type.resolve(sizes));
    view.row_stride = root.type.resolve(sizes).num_elements_from(1);
    return view;
  }

  [[nodiscard]] void* scratch(int64_t bytes) const override {
    ENCORE_CHECK(bytes <= scratch_.bytes(), "{} bytes of scratch", bytes);
    return scratch_.data();
  }
  [[nodiscard]] uint32_t* counters(int64_t count) const override {
    ENCORE_CHECK(count * 4 <= counters_.bytes(), "{} counters", count);
    return reinterpret_cast<uint32_t*>(counters_.data());
  }

  [[nodiscard]] const Memory& arena() const { return arena_; }
  [[nodiscard]] int64_t workspace_bytes() const { return scratch_.bytes() + counters_.bytes(); }

 private:
  const passes::Program& program_;
  std::vector<TensorView> weights_;
  const StepInputs& inputs_;
  const States& states_;
  Memory arena_;
  Memory scratch_;
  Memory counters_;
};

Executor::Executor(Device& device, const passes::Program& program, std::vector<TensorView> weights,
                   const ExecutorOptions& options)
    : device_(device),
      program_(program),
      options_(options),
      stream_(device.create_stream()),
      states_(device, program.graph) {
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
  for (const passes::Segment& segment : program.segments)
    dependences_.push_back(dependence(segment));
  inputs_ = std::make_unique<StepInputs>(device, program.graph, limits.max_sizes());
  addresses_ = std::make_unique<AddressMap>(device, program, std::move(weights), *inputs_, states_);
  addresses_->set_workspace(device, *stream_, largest_workspace());

  int64_t output_bytes = 1;
  for (const ir::ValueId output : program.graph.outputs()) {
    const int64_t bytes = program.graph.value(output).type.num_bytes(limits.max_sizes());
    output_bytes = std::max(output_bytes, std::min(bytes, kPinnedOutputBytes));
  }
  host_output_ = device.allocate_host(output_bytes);

  memory_plan_.arena = program.arena.bytes;
  memory_plan_.arena_without_reuse = program.arena.unshared_bytes;
  memory_plan_.step_inputs = inputs_->bytes();
  memory_plan_.scratch = addresses_->workspace_bytes();
}

Executor::~Executor() = default;

Executor::Dependence Executor::dependence(const passes::Segment& segment) const {
  Dependence found;
  const auto note = [&](ir::ValueId id) {
    const ir::Symbol rows = program_.graph.value(id).type.rows();
    found.on_tokens |= rows == ir::Symbol::kTokens;
    found.on_sequences |= rows == ir::Symbol::kSequences;
  };
  for (int i = segment.first; i < segment.last; ++i) {
    const ir::Node& node = program_.graph.nodes()[i];
    for (const ir::ValueId id : node.outputs)
      note(id);
    for (const ir::ValueId id : node.inputs) {
      // A value in the arena lies where it lies, whatever its number of rows.
      if (program_.graph.value(id).kind == ir::ValueKind::kInput) note(id);
    }
  }
  found.on_q = segment.capture != ir::Capture::kAlways;
  return found;
}

// Sizes the segment does not depend on are fixed, so that steps which differ only in those share
// its table and its recording.
Executor::Key Executor::key(int segment, const StepShape& step) const {
  const Dependence& on = dependences_[segment];
  const ir::Sizes most = options_.limits.max_sizes();
  return {segment, on.on_tokens ? step.padded.tokens : most.tokens,
          on.on_sequences ? step.padded.sequences : most.sequences, on.on_q ? step.q : 0};
}

const std::vector<Launch>& Executor::table(int segment, const StepShape& step) {
  const Key wanted = key(segment, step);
  const auto place = tables_.find(wanted);
  if (place != tables_.end()) return place->second;
  const auto [index, tokens, sequences, q] = wanted;
  const passes::Segment& range = program_.segments[index];
  return tables_
      .emplace(wanted, lower(program_, range.first, range.last, {{tokens, sequences}, q, q, 0},
                             device_, *addresses_))
      .first->second;
}

void Executor::launch_segment(int segment, const StepShape& step) {
  for (const Launch& launch : table(segment, step)) {
    stream_->launch({launch.op->name, launch.node, launch.after}, launch.bound, step);
  }
}

void Executor::walk_eager(const StepShape& step) {
  for (size_t segment = 0; segment < program_.segments.size(); ++segment) {
    launch_segment(static_cast<int>(segment), step);
  }
}

// Attention stays out of pieces, in uniform steps as well: that is what piecewise means.
bool Executor::in_pieces(int segment) const {
  return program_.segments[segment].capture == ir::Capture::kAlways;
}

std::vector<StepShape> Executor::uniform_shapes() const {
  std::vector<StepShape> shapes;
  const auto& sizes = coverage_.sequences.sizes();
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    for (int64_t q = options_.limits.max_q; q >= 1; --q) {
      if (*size * q > options_.limits.max_num_tokens) continue;
      shapes.push_back({{*size * q, *size}, static_cast<int>(q), q, 0});
    }
  }
  return shapes;
}

// Every bucket of T with the largest B, then every bucket of B with the largest T: between them
// they name every table of a mixed step's recordable segments.
std::vector<StepShape> Executor::mixed_shapes() const {
  std::vector<StepShape> shapes;
  const auto& tokens = coverage_.tokens.sizes();
  const auto& sequences = coverage_.sequences.sizes();
  for (auto size = tokens.rbegin(); size != tokens.rend(); ++size) {
    shapes.push_back({{*size, sequences.back()}, 0, 0, 0});
  }
  for (auto size = sequences.rbegin(); size != sequences.rend(); ++size) {
    shapes.push_back({{tokens.back(), *size}, 0, 0, 0});
  }
  return shapes;
}

Workspace Executor::largest_workspace() const {
  std::vector<StepShape> shapes = uniform_shapes();
  const std::vector<StepShape> mixed = mixed_shapes();
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
    const Workspace workspace = workspace_of(program_, shape, device_, *addresses_);
    most.scratch_bytes = std::max(most.scratch_bytes, workspace.scratch_bytes);
    most.num_counters = std::max(most.num_counters, workspace.num_counters);
  }
  return most;
}

RecordingStats Executor::record() {
  RecordingStats stats;
  if (options_.graphs == Graphs::kNone && !options_.record_all_modes) return stats;
  const bool all = options_.record_all_modes;
  const bool full_wanted = all || options_.graphs != Graphs::kPiecewise;
  coverage_.full = full_wanted && program_.full_recordable();
  coverage_.uniform_pieces = all || !coverage_.full;
  coverage_.mixed_pieces = all || options_.graphs != Graphs::kFullDecodeOnly;

  const auto uniform = uniform_shapes();
  const auto mixed = mixed_shapes();
  stats.lower_ms = timed([&] {
    for (const auto* shapes : {&uniform, &mixed}) {
      for (const StepShape& shape : *shapes) {
        for (size_t s = 0; s < program_.segments.size(); ++s)
          (void)table(static_cast<int>(s), shape);
      }
    }
  });
  // What a device sets up at its first launch must not be set up in a recording.
  warm_up(uniform.back());
  warm_up({{coverage_.tokens.sizes().front(), coverage_.sequences.sizes().front()}, 0, 0, 0});

  if (coverage_.full) {
    for (const StepShape& shape : uniform)
      record_full(shape, stats.full);
  }
  if (coverage_.uniform_pieces) {
    for (const StepShape& shape : uniform)
      record_pieces(shape, stats.pieces);
  }
  if (coverage_.mixed_pieces) {
    for (const StepShape& shape : mixed)
      record_pieces(shape, stats.pieces);
  }
  return stats;
}

void Executor::warm_up(const StepShape& step) {
  inputs_->begin({0, 0}, step.padded);  // padding rows only
  inputs_->copy(*stream_);
  walk_eager(step);
  stream_->synchronize();
}

std::unique_ptr<Recording> Executor::record_walk(const std::string& what,
                                                 RecordingStats::Part& stats,
                                                 const std::function<void()>& walk) {
  try {
    RecordingScope scope(*stream_);
    stats.capture_ms += timed(walk);
    std::unique_ptr<Recording> recording;
    stats.instantiate_ms += timed([&] { recording = scope.finish(); });
    ++stats.recordings;
    stats.nodes += recording->num_nodes();
    return recording;
  } catch (const Error& error) {
    fail(error.kind(), "recording {}: {}", what, error.what());
  }
}

void Executor::record_full(const StepShape& step, RecordingStats::Part& stats) {
  full_[{step.padded.sequences, step.q}] =
      record_walk(fmt::format("a full step of {} sequences", step.padded.sequences), stats,
                  [&] { walk_eager(step); });
}

void Executor::record_pieces(const StepShape& step, RecordingStats::Part& stats) {
  for (size_t i = 0; i < program_.segments.size(); ++i) {
    const int segment = static_cast<int>(i);
    const Key piece = key(segment, step);
    if (!in_pieces(segment) || pieces_.count(piece) != 0) continue;
    pieces_[piece] = record_walk(fmt::format("segment {} at {} tokens, {} sequences", segment,
                                             step.padded.tokens, step.padded.sequences),
                                 stats, [&] { launch_segment(segment, step); });
  }
}

Choice Executor::begin(const StepRequest& request) {
  choice_ = choose(request, coverage_);
  inputs_->begin({request.tokens, request.sequences}, choice_.padded);
  return choice_;
}

void Executor::launch(const StepLengths& lengths) {
  if (inputs_->has(kFillInput)) {
    inputs_->host<float>(kFillInput)[0] = fill_value(options_.poison);
  }
  inputs_->copy(*stream_);
  poison_arena();
  const StepShape step{choice_.padded, choice_.q, lengths.max_query_len, lengths.max_kv_len};
  if (choice_.mode == Mode::kFull) {
    stream_->replay(*full_.at({step.padded.sequences, step.q}));
    return;
  }
  for (size_t i = 0; i < program_.segments.size(); ++i) {
    const int segment = static_cast<int>(i);
    if (choice_.mode == Mode::kPiecewise && in_pieces(segment)) {
      stream_->replay(*pieces_.at(key(segment, step)));
    } else {
      launch_segment(segment, step);
    }
  }
}

void Executor::poison_arena() {
  if (options_.poison == Poison::kNone) return;
  stream_->fill(addresses_->arena().data(), pattern(options_.poison), addresses_->arena().bytes());
}

void Executor::read_output(int index, void* host, int64_t bytes) {
  const TensorView output = addresses_->view(program_.graph.outputs()[index], choice_.padded);
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

const Recording* Executor::full_recording(int64_t sequences, int q) const {
  const auto place = full_.find({sequences, q});
  return place == full_.end() ? nullptr : place->second.get();
}

}  // namespace encore::runtime
