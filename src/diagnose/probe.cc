#include "diagnose/probe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "diagnose/launches.h"

namespace encore::diagnose {
namespace {

using runtime::LoadedProgram;
using runtime::Mode;

// Returns a 32-bit pattern that reads as NaN, or as a large number, in every float dtype.
uint32_t pattern(Poison poison) {
  return poison == Poison::kNaN ? 0xffffffffU : 0x71497149U;
}

// Returns the bits of an f32 that is NaN, or that is large and still finite in f16.
uint32_t embedding_pattern(Poison poison) {
  return std::bit_cast<uint32_t>(poison == Poison::kNaN ? std::numeric_limits<float>::quiet_NaN()
                                                        : 3e4F);
}

}  // namespace

void poison(runtime::Executor& executor, Poison poison) {
  if (poison == Poison::kNone) return;
  const LoadedProgram& loaded = executor.loaded();
  for (const Memory* memory : {&loaded.arena, &loaded.scratch_memory}) {
    const int64_t bytes = memory->bytes() / 4 * 4;  // whole words only
    if (bytes > 0) loaded.stream.fill(memory->data(), pattern(poison), bytes);
  }
}

void poison_steps(runtime::Executor& executor, Poison poison) {
  executor.hooks().before = [poison](runtime::Executor& executor) {
    diagnose::poison(executor, poison);
    // The input `fill` holds the value of padding tokens' embeddings. The host leaves it at 0.
    const LoadedProgram& loaded = executor.loaded();
    const auto fill = loaded.program.graph.find_value("fill");
    if (poison == Poison::kNone || !fill) return;
    const TensorView view = loaded.view(*fill, executor.choice().key.sizes());
    loaded.stream.fill(view.data, embedding_pattern(poison), view.num_bytes());
  };
}

void check_addresses(runtime::Executor& executor) {
  const auto& [mode, step, padding, reason, rule] = executor.choice();
  if (mode == Mode::kEager) return;
  LoadedProgram& loaded = executor.loaded();
  for (int segment = 0; segment < loaded.tables.num_segments(); ++segment) {
    const StepKey lowered = loaded.tables.key(segment, step).second;
    for (const runtime::Launch& launch : loaded.tables.at(segment, step)) {
      const std::string moved =
          moved_operand(loaded.program, launch, lowered, loaded.device, loaded);
      if (moved.empty()) continue;
      fail(ErrorKind::kCompile,
           "segment {} at {} tokens, {} sequences: {}; a recording made before would use the old "
           "address: serve with --graphs none and report this",
           segment, step.tokens, step.sequences, moved);
    }
  }
}

std::vector<std::byte> read_value(runtime::Executor& executor, ir::ValueId value) {
  const LoadedProgram& loaded = executor.loaded();
  const TensorView view = loaded.view(value, executor.choice().key.sizes());
  const int64_t row_bytes = view.row_elements() * size_of(view.dtype);
  std::vector<std::byte> bytes(view.num_rows() * row_bytes);
  for (int64_t row = 0; row < view.num_rows(); ++row) {
    const std::byte* from = view.as<std::byte>() + row * view.row_stride * size_of(view.dtype);
    loaded.stream.copy_to_host(bytes.data() + row * row_bytes, from, row_bytes);
  }
  loaded.stream.synchronize();
  return bytes;
}

void read_output(runtime::Executor& executor, int index, void* host, int64_t bytes) {
  const LoadedProgram& loaded = executor.loaded();
  const TensorView output =
      loaded.view(loaded.program.graph.outputs()[index], executor.choice().key.sizes());
  ENCORE_CHECK(bytes <= output.num_bytes());
  runtime::in_step(executor.choice(), [&] {
    loaded.stream.copy_to_host(host, output.data, bytes);
    loaded.stream.synchronize();
  });
}

void run_prefix(runtime::Executor& executor, const StepLengths& lengths, Mode mode, size_t count) {
  LoadedProgram& loaded = executor.loaded();
  runtime::Tables& tables = loaded.tables;
  Stream& stream = loaded.stream;
  loaded.inputs.send(stream);
  executor.token_state().write(stream);
  const Step step{executor.choice().key, lengths};
  std::vector<std::unique_ptr<Recording>> made;
  const auto replay_new = [&](const std::function<void()>& run) {
    RecordingScope scope(stream);
    run();
    made.push_back(scope.finish());
    stream.replay(*made.back());
  };
  const auto for_each_segment = [&](const auto& run_segment) {
    size_t left = count;
    for (int segment = 0; left > 0 && segment < tables.num_segments(); ++segment) {
      const size_t taken = std::min(left, tables.at(segment, step.key).size());
      run_segment(segment, taken);
      left -= taken;
    }
  };
  const auto launch = [&](int segment, size_t taken) {
    for (const runtime::Launch& each : std::span(tables.at(segment, step.key)).first(taken))
      stream.launch({each.kernel->op, each.id, each.after}, each.bound, step.lengths);
  };
  if (mode == Mode::kFull) {
    tables.lower_all(step.key);
    replay_new([&] { for_each_segment(launch); });
  } else {
    for_each_segment([&](int segment, size_t taken) {
      if (mode == Mode::kEager || !loaded.program.segments[segment].in_pieces)
        return launch(segment, taken);
      const Recording* piece = loaded.recordings.piece(segment, step.key);
      const bool whole = taken == tables.at(segment, step.key).size();
      if (whole && piece != nullptr) return stream.replay(*piece);
      replay_new([&] { launch(segment, taken); });
    });
  }
  stream.synchronize();
  executor.recount();
}

}  // namespace encore::diagnose
