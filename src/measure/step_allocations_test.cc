#include "measure/step_allocations.h"

#include <gtest/gtest.h>

#include "model/builder.h"
#include "ops/ops.h"
#include "passes/pipeline.h"

namespace encore::measure {
namespace {

// A buffer lives from the node that writes it to the last node that reads it, so the third buffer
// takes the first one's memory.
TEST(StepAllocations, TakeFromTheDeviceWhatLivesAtOneTimeAndNothingInLaterSteps) {
  ir::Graph graph("chain");
  model::Builder b(graph, ops::standard());
  const ir::ValueId in =
      graph.add_value(ir::ValueKind::kInput, "in", {DType::kF32, {ir::Dim::tokens(), 512}});
  ir::ValueId x = in;
  for (int i = 0; i < 3; ++i)
    x = b.call("silu", {x}, {}, "x")["y"];
  graph.add_output(b.call("add", {x, in}, {}, "y")["y"]);
  passes::CompileOptions options;
  options.max_sizes = {16, 4};
  options.reuse_memory = false;  // so that no value is written over another
  const passes::Program program = passes::compile(std::move(graph), ops::standard(), options);
  const auto device = create_cpu_device({.num_threads = 1});
  StepAllocations allocations(*device, program, {8, 4});
  EXPECT_EQ(allocations.num_buffers(), 4);
  EXPECT_EQ(allocations.device_bytes(), 0);
  allocations.run();
  EXPECT_EQ(allocations.device_bytes(), 2 * 8 * 512 * 4);
  allocations.run();
  EXPECT_EQ(allocations.device_bytes(), 2 * 8 * 512 * 4);
}

}  // namespace
}  // namespace encore::measure
