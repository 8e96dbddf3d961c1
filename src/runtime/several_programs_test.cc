// Tests several programs on one device, such as those of a model and of its draft model.
#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/device.h"
#include "base/testing/message_of.h"
#include "listing/listing.h"
#include "ops/ops.h"
#include "passes/pipeline.h"
#include "runtime/executor.h"

namespace encore::runtime {
namespace {

// Compiles a program that writes x and 2 x to caches with `columns` values a slot.
passes::Program compile(int columns) {
  const std::string text = fmt::format(R"(graph g {{
  input %x: f32[T,{0}]
  input %slots: i32[T] pad -1
  input %rows: i32[B]
  state %k: f32[64,1,16,{0}]
  state %v: f32[64,1,16,{0}]
  %twice: f32[T,{0}] = add(%x, %x)
  %k1: f32[64,1,16,{0}], %v1: f32[64,1,16,{0}] = kv_write(%k, %v, %x, %twice, %slots)
  %y: f32[B,{0}] = gather_rows(%twice, %rows)
  output %y
}}
)",
                                       columns);
  return passes::compile(listing::parse(text, ops::standard()), ops::standard(),
                         {.max_sizes = {8, 4}});
}

const ExecutorOptions kOptions{.limits = {.max_num_tokens = 8, .max_batch_size = 4}};

struct Loaded {
  Loaded(Device& device, Stream& stream, int columns)
      : columns(columns),
        program(compile(columns)),
        executor(device, stream, program, std::vector<TensorView>(program.graph.num_values()),
                 kOptions) {}
  // Runs a step that gives two sequences a token each. The first token goes to KV slot 0, the
  // second one to KV slot `slot`. The values of x count up from 1.
  Mode run(int32_t slot) {
    const Choice choice = executor.begin(StepKey::uniform(2));
    const auto x = executor.loaded().inputs.host<float>("x");
    std::iota(x.begin(), x.begin() + 2 * columns, 1.0F);
    executor.loaded().inputs.host<int32_t>("slots")[0] = 0;
    executor.loaded().inputs.host<int32_t>("slots")[1] = slot;
    executor.loaded().inputs.host<int32_t>("rows")[0] = 0;
    executor.loaded().inputs.host<int32_t>("rows")[1] = 1;
    executor.run({.max_query_len = 1, .max_kv_len = 1});
    return choice.mode;
  }
  // Returns whether the caches hold K and V of the second sequence's token at KV slot `slot`.
  [[nodiscard]] bool has_written(int32_t slot) {
    executor.loaded().stream.synchronize();
    const ir::Graph& graph = program.graph;
    const float* k = executor.loaded().kv.view(*graph.find_value("k")).as<float>();
    const float* v = executor.loaded().kv.view(*graph.find_value("v")).as<float>();
    for (int i = 0; i < columns; ++i) {
      const auto x = static_cast<float>(columns + 1 + i);
      if (k[slot * columns + i] != x || v[slot * columns + i] != 2 * x) return false;
    }
    return true;
  }

  int columns;
  passes::Program program;
  Executor executor;
};

TEST(SeveralPrograms, AreRecordedFirstAndThenMappedOnceAndRunByTurns) {
  const auto device = create_cpu_device({.num_threads = 1});
  const auto stream = device->create_stream();
  Loaded target(*device, *stream, 256);
  Loaded draft(*device, *stream, 64);
  const std::array programs{&target.executor.loaded().kv, &draft.executor.loaded().kv};

  // A page has the same number in all programs, so each program gets as many pages as fit for all
  // of them.
  const int64_t both = programs[0]->bytes_for({8}) + programs[1]->bytes_for({8});
  const auto one_group = [](int64_t pages) { return GroupRows{pages}; };
  EXPECT_EQ(rows_that_fit(programs, one_group, 64, both), 8);
  EXPECT_EQ(rows_that_fit(programs, one_group, 4, both), 4);
  EXPECT_EQ(rows_that_fit(programs, one_group, 64, programs[0]->bytes_for({1})), 0);
  for (KvMemory* kv : programs) {
    EXPECT_EQ(kv->mapped_bytes(), 0);
    kv->map({8});
  }

  for (const int32_t slot : {7 * 16 + 15, 5}) {
    for (Loaded* program : {&target, &draft})
      EXPECT_EQ(program->run(slot), Mode::kFull);
    for (Loaded* program : {&draft, &target})
      EXPECT_TRUE(program->has_written(slot)) << program->columns << " at " << slot;
  }
}

TEST(SeveralPrograms, ExchangeDataTwiceOrNever) {
  const auto compile = [](int num_sums) {
    std::string text = "graph g {\n  input %x0: f32[T,8]\n";
    for (int i = 0; i < num_sums; ++i) {
      text += fmt::format("  %x{}: f32[T,8] = all_reduce(%x{}) {{of=o_proj}}\n", i + 1, i);
    }
    text += fmt::format("  output %x{}\n}}\n", num_sums);
    return passes::compile(listing::parse(text, ops::standard()), ops::standard(),
                           {.max_sizes = {8, 4}});
  };
  const auto message = [&](int num_sums) {
    const auto device = create_cpu_device({.num_threads = 1});
    const auto stream = device->create_stream();
    const passes::Program program = compile(num_sums);
    return message_of(ErrorKind::kUnsupported, [&] {
      const Executor executor(*device, *stream, program,
                              std::vector<TensorView>(program.graph.num_values()), kOptions);
    });
  };
  EXPECT_EQ(message(2), "");
  EXPECT_EQ(
      message(1),
      "op 'all_reduce' of o_proj is the program's only exchange between ranks, and runs of it "
      "in a row would overwrite each other's data: a program needs two");
}

}  // namespace
}  // namespace encore::runtime
