#include "diagnose/launches.h"

#include <gtest/gtest.h>

#include "diagnose/bucket_text.h"
#include "engine/testing/tiny_model.h"
#include "listing/listing.h"
#include "ops/ops.h"
#include "passes/pipeline.h"

namespace encore::diagnose {
namespace {

constexpr const char* kGraph = R"(graph g {
  input %x: f32[T,4]
  input %rows: i32[B]
  %a: f32[T,4] = add(%x, %x)
  %y: f32[B,4] = gather_rows(%a, %rows)
  output %y
}
)";

TEST(Launches, AreTextWithoutAddresses) {
  const passes::Program program = passes::compile(listing::parse(kGraph, ops::standard()),
                                                  ops::standard(), {.max_sizes = {8, 4}});
  const auto device = create_cpu_device({.num_threads = 1});
  const std::string text = bucket_text(program, *device, StepKey::mixed(4, 2));
  EXPECT_EQ(text.substr(text.find('\n') + 1),
            "   0 add.cpu                          %a f32[4,4] <- %x f32[4,4] %x f32[4,4]\n"
            "   1 gather_rows.cpu                  %y f32[2,4] <- %a f32[4,4] %rows i32[2]\n");
  EXPECT_EQ(text, bucket_text(program, *device, StepKey::mixed(4, 2)));
}

// Places every value 64 bytes behind its address in other addresses.
class MovedAddresses final : public runtime::Addresses {
 public:
  explicit MovedAddresses(const runtime::Addresses& others) : others_(others) {}
  [[nodiscard]] TensorView view(ir::ValueId value, const ir::Sizes& sizes) const override {
    TensorView view = others_.view(value, sizes);
    view.data = view.as<std::byte>() + 64;
    return view;
  }
  [[nodiscard]] void* scratch(int64_t bytes) const override { return others_.scratch(bytes); }
  [[nodiscard]] uint32_t* counters(int64_t count) const override { return others_.counters(count); }

 private:
  const runtime::Addresses& others_;
};

TEST(Launches, TellWhichOperandHasMoved) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
  options.kv_tokens = 512;
  loader::LoadedModel model(*device, engine::testing::tiny_model(engine::testing::Tiny::kQwen3),
                            options);
  runtime::LoadedProgram& loaded = model.executor().loaded();
  const MovedAddresses moved(loaded);
  const auto key = StepKey::uniform(2);
  int num_launches = 0;
  for (int segment = 0; segment < loaded.tables.num_segments(); ++segment) {
    const StepKey step = loaded.tables.key(segment, key).second;
    for (const runtime::Launch& launch : loaded.tables.at(segment, key)) {
      ++num_launches;
      EXPECT_EQ(moved_operand(loaded.program, launch, step, *device, loaded), "");
      const std::string text = moved_operand(loaded.program, launch, step, *device, moved);
      EXPECT_EQ(text.find(fmt::format("op '{}': %", launch.kernel->op)), 0U) << launch.kernel->op;
    }
  }
  EXPECT_GT(num_launches, model.program().graph.num_nodes() / 2);
}

}  // namespace
}  // namespace encore::diagnose
