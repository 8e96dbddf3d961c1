#include "diagnose/compare.h"

#include <cmath>
#include <cstring>

#include "backend/staged_copy.h"
#include "base/log.h"
#include "diagnose/launches.h"
#include "diagnose/probe.h"
#include "runtime/ladder.h"

namespace encore::diagnose {
namespace {

using runtime::Mode;

constexpr uint64_t kSeed = 20;

// Describes a piece of memory to compare: its elements lie in rows of `columns`.
struct Compared {
  const std::string& name;
  DType dtype;
  int64_t rows = 0;
  int64_t columns = 0;
};

std::optional<Difference> find_difference(const Compared& compared, const std::byte* eager,
                                          const std::byte* other) {
  const int64_t size = size_of(compared.dtype);
  const int64_t count = compared.rows * compared.columns;
  if (std::memcmp(eager, other, count * size) == 0) return std::nullopt;
  Difference found{.value = compared.name};
  for (int64_t i = 0; i < count; ++i) {
    if (std::memcmp(eager + i * size, other + i * size, size) == 0) continue;
    if (found.elements++ > 0) continue;
    found.row = i / compared.columns;
    found.column = i % compared.columns;
    found.eager = element(eager + i * size, compared.dtype);
    found.other = element(other + i * size, compared.dtype);
  }
  return found;
}

bool lies_in(const passes::Program& program, ir::ValueId value, ir::ValueKind kind) {
  const ir::ValueId root = program.arena.placements[value.index].root;
  return program.graph.value(root).kind == kind;
}

// Returns the values that a step leaves for its reader and for the next step: the graph's outputs,
// and the inputs that a node overwrites.
std::vector<ir::ValueId> results(const passes::Program& program) {
  std::vector<ir::ValueId> values = program.graph.outputs();
  for (const ir::Node& node : program.graph.nodes()) {
    for (const ir::ValueId value : node.outputs) {
      if (lies_in(program, value, ir::ValueKind::kInput)) values.push_back(value);
    }
  }
  return values;
}

// Returns the values that one launch writes, without KV and without memory that only launches of
// its node share.
std::vector<ir::ValueId> results(const runtime::LoadedProgram& loaded,
                                 const runtime::Launch& launch, const StepKey& step) {
  const passes::Program& program = loaded.program;
  const ir::Node& node = program.graph.nodes()[launch.node];
  std::vector<ir::ValueId> values;
  for (const std::optional<ir::ValueId>& value :
       operands(program, node, launch.args, step, loaded).outputs) {
    for (const ir::ValueKind kind : {ir::ValueKind::kNode, ir::ValueKind::kInput}) {
      if (value && lies_in(program, *value, kind)) values.push_back(*value);
    }
  }
  return values;
}

// Runs one step several times, each time from the same start: KV is as it was found, and
// intermediate memory holds nothing of an earlier run.
class Rehearsal {
 public:
  // Holds everything that a run of the step leaves.
  struct Outcome {
    std::vector<std::vector<std::byte>> values;
    runtime::SavedRows kv;                 // content of the pages that the step writes to
    uint32_t published = 0;                // steps published
    std::vector<std::byte> logprobs = {};  // log probabilities of the step's rows
  };

  Rehearsal(loader::LoadedModel& model, const TrialStep& step, uint64_t seed)
      : model_(model), step_(step), seed_(seed), copy_(model.executor().loaded().device) {
    model.executor().loaded().stream.synchronize();
    kv_ = model.executor().loaded().kv.save(copy_, written_pages());
  }

  Outcome run(const std::vector<ir::ValueId>& values, const std::function<void()>& launch) {
    runtime::Executor& executor = model_.executor();
    begin(model_, step_, seed_);
    poison(executor, Poison::kNaN);
    const runtime::StepNumber before = executor.output().ring().published();
    poison_logprobs(before);
    launch();
    executor.loaded().stream.synchronize();
    Outcome outcome{{},
                    executor.loaded().kv.save(copy_, kv_.rows),
                    executor.output().ring().published() - before};
    for (const ir::ValueId value : values)
      outcome.values.push_back(read_value(executor, value));
    outcome.logprobs = read_logprobs(before);
    executor.loaded().kv.restore(copy_, kv_);
    return outcome;
  }

  // Returns the first difference between two outcomes. It compares real rows only, as padding rows
  // may hold anything.
  [[nodiscard]] std::optional<Difference> compare(const std::vector<ir::ValueId>& values,
                                                  const Outcome& eager,
                                                  const Outcome& other) const {
    const passes::Program& program = model_.executor().loaded().program;
    const ir::Graph& graph = program.graph;
    const StepKey key = step_.key(model_.limits());
    for (size_t i = 0; i < values.size(); ++i) {
      const ir::Value& value = graph.value(values[i]);
      const Shape shape = value.type.resolve(key.sizes());
      const int64_t columns = shape.num_elements_from(1);
      if (auto difference = find_difference(
              {value.name, value.type.dtype, shape.num_elements() / columns, columns},
              eager.values[i].data(), other.values[i].data()))
        return difference;
    }
    if (eager.published != other.published) {
      return Difference{"step_clock",
                        0,
                        0,
                        static_cast<double>(eager.published),
                        static_cast<double>(other.published),
                        1};
    }
    const int64_t num_rows = std::ssize(eager.logprobs) / static_cast<int64_t>(sizeof(LogprobRow));
    if (auto difference = find_difference({"logprob_ring", DType::kI32, num_rows, kLogprobWords},
                                          eager.logprobs.data(), other.logprobs.data()))
      return difference;
    return compare_kv(eager.kv.content.data(), other.kv.content.data());
  }

 private:
  // Fills the log probabilities of a step that has not run with bits that no step writes.
  void poison_logprobs(runtime::StepNumber step) const {
    const TensorView ring = model_.executor().loaded().persistent.find("logprob_ring");
    if (ring.data == nullptr) return;
    const int64_t bytes = ring.num_bytes() / ring.shape[0];
    std::memset(ring.as<std::byte>() + step % ring.shape[0] * bytes, 0xff,
                static_cast<size_t>(bytes));
  }
  // Returns the log probabilities of the step's sequences, whether the step has been published or
  // not.
  [[nodiscard]] std::vector<std::byte> read_logprobs(runtime::StepNumber step) const {
    runtime::Executor& executor = model_.executor();
    const auto ring = executor.loaded().program.graph.find_value("logprob_ring");
    if (!ring) return {};
    const std::vector<std::byte> all = read_value(executor, *ring);
    const auto steps = static_cast<size_t>(executor.output().ring().capacity());
    const auto first =
        all.begin() + static_cast<std::ptrdiff_t>(step % steps * (all.size() / steps));
    return {first,
            first + static_cast<std::ptrdiff_t>(step_.sequences.size() * sizeof(LogprobRow))};
  }
  // Returns the pages that the step writes to, by group of layers.
  [[nodiscard]] std::vector<std::vector<int32_t>> written_pages() const {
    std::vector<int32_t> whole;
    std::vector<int32_t> window;
    for (const TrialStep::Sequence& sequence : step_.sequences) {
      const int64_t first = sequence.past / model_.page_size();
      const auto add = [first](std::vector<int32_t>& pages, const std::vector<int32_t>& all) {
        if (!all.empty()) pages.insert(pages.end(), all.begin() + first, all.end());
      };
      add(whole, sequence.pages);
      add(window, sequence.window.pages);
    }
    return {std::move(whole), std::move(window)};
  }
  // Compares the saved KV rows of two runs. Saved rows lie state after state, and within a state
  // page after page.
  [[nodiscard]] std::optional<Difference> compare_kv(const std::byte* eager,
                                                     const std::byte* other) const {
    const ir::Graph& graph = model_.executor().loaded().program.graph;
    for (const ir::ValueId state : graph.values_of_kind(ir::ValueKind::kState)) {
      const ir::Value& value = graph.value(state);
      const std::vector<int32_t>& rows = kv_.rows[static_cast<size_t>(value.group)];
      const auto pages = std::ssize(rows);
      const int64_t columns = value.type.resolve({}).num_elements_from(1);
      auto difference =
          find_difference({value.name, value.type.dtype, pages, columns}, eager, other);
      if (difference) {
        difference->row = rows[difference->row];
        return difference;
      }
      eager += pages * columns * size_of(value.type.dtype);
      other += pages * columns * size_of(value.type.dtype);
    }
    return std::nullopt;
  }

  loader::LoadedModel& model_;
  const TrialStep& step_;
  uint64_t seed_;
  StagedCopy copy_;
  runtime::SavedRows kv_;
};

// Makes the executor run steps in one way while this object lives.
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

std::string describe(const Difference& difference, Mode mode) {
  return fmt::format("%{} differs in {} elements, first at row {}, column {}: {} eager, {} {}",
                     difference.value, difference.elements, difference.row, difference.column,
                     difference.eager, difference.other, name(mode));
}

std::optional<Difference> compare_outputs(loader::LoadedModel& model, const TrialStep& step,
                                          uint64_t seed) {
  runtime::Executor& executor = model.executor();
  const std::vector<ir::ValueId> values = results(executor.loaded().program);
  Rehearsal rehearsal(model, step, seed);
  const auto run = [&] { return rehearsal.run(values, [&] { executor.run(step.lengths()); }); };
  const Rehearsal::Outcome eager = [&] {
    const WalkedAs eagerly(executor, runtime::Graphs::kNone);
    return run();
  }();
  return rehearsal.compare(values, eager, run());
}

Verification verify_recordings(loader::LoadedModel& model) {
  const runtime::Executor& executor = model.executor();
  const runtime::Coverage& coverage = executor.coverage();
  std::vector<StepKey> shapes = uniform_shapes(coverage.sequences, model.limits());
  for (const StepKey& mixed :
       mixed_shapes(coverage.mixed_ladder(), coverage.tokens, model.limits().num_drafts))
    shapes.push_back(mixed);
  fill_kv(model, kSeed);
  Verification verification;
  log::Progress progress("comparing recordings with the eager run",
                         static_cast<double>(shapes.size()), "steps");
  for (const StepKey& shape : shapes) {
    // The key is that of the largest step that is padded to this shape.
    StepKey key = shape;
    if (!key.is_uniform()) key.sequences = std::clamp<int64_t>(key.tokens - 1, 1, key.sequences);
    progress.update(verification.steps + verification.skipped);
    const runtime::Choice choice = choose(key, coverage);
    if (choice.mode == Mode::kEager) continue;
    const std::optional<TrialStep> step = trial_step(model, key);
    if (!step) {
      ++verification.skipped;
      continue;
    }
    ++verification.steps;
    if (auto difference = compare_outputs(model, *step, kSeed)) {
      verification.mismatches.push_back({runtime::describe(key), choice, std::move(*difference)});
    }
  }
  return verification;
}

void require_equal_recordings(loader::LoadedModel& model) {
  const Verification verification = verify_recordings(model);
  log::info("graphs-debug: {} steps replay as they run eagerly, {} too large for the KV pool",
            verification.steps - std::ssize(verification.mismatches), verification.skipped);
  if (verification.mismatches.empty()) return;
  const Mismatch& first = verification.mismatches.front();
  fail(ErrorKind::kCompile,
       "{} of {} steps do not replay as they run eagerly; first {}, {}: {}; `encore bisect` finds "
       "the launch, --graphs none serves meanwhile",
       verification.mismatches.size(), verification.steps, first.step, name(first.choice.mode),
       describe(first.difference, first.choice.mode));
}

Bisection bisect(loader::LoadedModel& model, const TrialStep& step, Mode mode, uint64_t seed) {
  runtime::Executor& executor = model.executor();
  runtime::LoadedProgram& loaded = executor.loaded();
  fill_kv(model, seed);
  const StepKey key = begin(model, step, seed).key;
  Rehearsal rehearsal(model, step, seed);
  Bisection bisection;
  for (int segment = 0; segment < loaded.tables.num_segments(); ++segment) {
    for (const runtime::Launch& launch : loaded.tables.at(segment, key)) {
      const size_t count = static_cast<size_t>(++bisection.launches);
      const std::vector<ir::ValueId> values =
          results(loaded, launch, loaded.tables.key(segment, key).second);
      const auto run = [&](Mode as) {
        return rehearsal.run(values, [&] { run_prefix(executor, step.lengths(), as, count); });
      };
      auto difference = rehearsal.compare(values, run(Mode::kEager), run(mode));
      if (!difference) continue;
      bisection.first = {segment,
                         bisection.launches - 1,
                         launch.node,
                         std::string(launch.kernel->op),
                         std::string(launch.kernel->name),
                         std::move(*difference)};
      return bisection;
    }
  }
  return bisection;
}

}  // namespace encore::diagnose
