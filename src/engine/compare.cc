#include "engine/compare.h"

#include <cmath>
#include <cstring>

#include "base/log.h"
#include "runtime/shapes.h"

namespace encore::engine {
namespace {

using runtime::Mode;

constexpr uint64_t kSeed = 20;

double element(const std::byte* data, DType dtype) {
  const auto read = [&]<typename T>(T value) {
    std::memcpy(&value, data, sizeof(value));
    return static_cast<double>(value);
  };
  if (dtype == DType::kF32) return read(float{});
  if (dtype == DType::kI32) return read(int32_t{});
  if (dtype == DType::kI64) return read(int64_t{});
  const auto read_narrow = [&]<typename T>(T value) {
    std::memcpy(&value.bits, data, sizeof(value.bits));
    return static_cast<double>(static_cast<float>(value));
  };
  if (dtype == DType::kFP8) return read_narrow(Float8{});
  return dtype == DType::kF16 ? read_narrow(Float16{}) : read_narrow(BFloat16{});
}

// `eager` and `other` hold a value's padded rows, dense. Only the rows of the request are compared:
// nothing is promised about padding.
std::optional<Difference> find_difference(const ir::Value& value,
                                          const runtime::StepRequest& request,
                                          const std::vector<std::byte>& eager,
                                          const std::vector<std::byte>& other) {
  const int64_t size = size_of(value.type.dtype);
  const Shape shape = value.type.resolve({request.tokens, request.sequences});
  const int64_t columns = shape.num_elements_from(1);
  Difference found{.value = value.name};
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    if (std::memcmp(&eager[i * size], &other[i * size], size) == 0) continue;
    if (found.elements++ > 0) continue;
    found.row = i / columns;
    found.column = i % columns;
    found.eager = element(&eager[i * size], value.type.dtype);
    found.other = element(&other[i * size], value.type.dtype);
  }
  if (found.elements == 0) return std::nullopt;
  return found;
}

// States are too large to compare; what was written there shows in what is read from there.
std::vector<ir::ValueId> comparable_outputs(const passes::Program& program, int node) {
  std::vector<ir::ValueId> values;
  for (const ir::ValueId value : program.graph.nodes()[node].outputs) {
    const ir::ValueId root = program.arena.placements[value.index].root;
    if (program.graph.value(root).kind == ir::ValueKind::kNode) values.push_back(value);
  }
  return values;
}

std::vector<std::vector<std::byte>> read_values(runtime::Executor& executor,
                                                const std::vector<ir::ValueId>& values) {
  std::vector<std::vector<std::byte>> contents;
  for (const ir::ValueId value : values)
    contents.push_back(executor.read_value(value));
  return contents;
}

// Walks steps one way while it lives.
class WalkedAs {
 public:
  WalkedAs(runtime::Executor& executor, runtime::Graphs graphs)
      : executor_(executor), before_(executor.coverage().graphs) {
    executor.set_graphs(graphs);
  }
  ~WalkedAs() { executor_.set_graphs(before_); }
  WalkedAs(const WalkedAs&) = delete;
  WalkedAs& operator=(const WalkedAs&) = delete;

 private:
  runtime::Executor& executor_;
  runtime::Graphs before_;
};

}  // namespace

std::string describe(const Difference& difference, Mode mode) {
  return fmt::format("%{} differs in {} elements, first at row {}, column {}: {} eager, {} {}",
                     difference.value, difference.elements, difference.row, difference.column,
                     difference.eager, difference.other, name(mode));
}

std::optional<Difference> compare_outputs(LoadedModel& model, const TrialStep& step,
                                          uint64_t seed) {
  runtime::Executor& executor = model.executor();
  const std::vector<ir::ValueId>& outputs = executor.program().graph.outputs();
  std::vector<std::vector<std::byte>> eager;
  {
    const WalkedAs eagerly(executor, runtime::Graphs::kNone);
    begin(model, step, seed);
    executor.launch(step.lengths());
    eager = read_values(executor, outputs);
  }
  begin(model, step, seed);
  executor.launch(step.lengths());
  const auto served = read_values(executor, outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto difference = find_difference(executor.program().graph.value(outputs[i]),
                                      step.request(model.limits()), eager[i], served[i]);
    if (difference) return difference;
  }
  return std::nullopt;
}

Verification verify_recordings(LoadedModel& model) {
  const runtime::Executor& executor = model.executor();
  const runtime::Coverage& coverage = executor.coverage();
  std::vector<StepShape> shapes = uniform_shapes(coverage.sequences, model.limits());
  for (const StepShape& mixed : mixed_shapes(coverage.mixed_ladder(), coverage.tokens))
    shapes.push_back(mixed);
  fill_kv(model, kSeed);
  Verification verification;
  log::Progress progress("comparing recordings with the eager walk",
                         static_cast<double>(shapes.size()), "steps");
  for (const StepShape& shape : shapes) {
    const runtime::StepRequest request{shape.padded.tokens, shape.padded.sequences, shape.q};
    progress.update(verification.steps + verification.skipped);
    const std::optional<TrialStep> step = trial_step(model, request);
    if (!step) {
      ++verification.skipped;
      continue;
    }
    ++verification.steps;
    if (auto difference = compare_outputs(model, *step, kSeed)) {
      verification.mismatches.push_back(
          {describe(request), choose(request, coverage), std::move(*difference)});
    }
  }
  return verification;
}

void require_equal_recordings(LoadedModel& model) {
  const Verification verification = verify_recordings(model);
  log::info("graphs-debug: {} steps replay as they walk eagerly, {} too large for the KV pool",
            verification.steps - std::ssize(verification.mismatches), verification.skipped);
  if (verification.mismatches.empty()) return;
  const Mismatch& first = verification.mismatches.front();
  fail(ErrorKind::kCompile,
       "{} of {} steps do not replay as they walk eagerly; first {}, {}: {}; `encore bisect` finds "
       "the launch, --graphs none serves meanwhile",
       verification.mismatches.size(), verification.steps, first.step, name(first.choice.mode),
       describe(first.difference, first.choice.mode));
}

Bisection bisect(LoadedModel& model, const TrialStep& step, Mode mode, uint64_t seed) {
  runtime::Executor& executor = model.executor();
  const passes::Program& program = executor.program();
  fill_kv(model, seed);
  const runtime::Choice choice = begin(model, step, seed);
  const StepShape shape{choice.padded, choice.q, 0, 0};
  Bisection bisection;
  for (int segment = 0; segment < executor.tables().num_segments(); ++segment) {
    for (const runtime::Launch& launch : executor.tables().at(segment, shape)) {
      const size_t count = static_cast<size_t>(++bisection.launches);
      const std::vector<ir::ValueId> values = comparable_outputs(program, launch.node);
      if (values.empty()) continue;
      const auto walk = [&](Mode as) {
        begin(model, step, seed);
        executor.launch_prefix(step.lengths(), as, count);
        return read_values(executor, values);
      };
      const auto eager = walk(Mode::kEager);
      const auto other = walk(mode);
      for (size_t i = 0; i < values.size(); ++i) {
        auto difference = find_difference(program.graph.value(values[i]),
                                          step.request(model.limits()), eager[i], other[i]);
        if (!difference) continue;
        bisection.first = {segment,
                           bisection.launches - 1,
                           launch.node,
                           std::string(launch.op->name),
                           std::string(launch.kernel->name),
                           std::move(*difference)};
        return bisection;
      }
    }
  }
  return bisection;
}

}  // namespace encore::engine
