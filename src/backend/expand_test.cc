#include "backend/expand.h"

#include <gtest/gtest.h>

#include "backend/device.h"
#include "backend/fused_linear.h"
#include "backend/tuning.h"
#include "base/testing/message_of.h"

namespace encore {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kColumns = 40;

BoundLaunch bind_nothing(Device&, const KernelArgs&) {
  return {};
}

// Expands a fused_linear with a norm, a product of 2 * kColumns outputs, and silu_mul.
class ExpandTest : public ::testing::Test {
 protected:
  KernelArgs args(std::byte* scratch = nullptr) {
    const auto view = [&](size_t i, const Shape& shape) {
      return TensorView(memory_.data() + i * 65536, DType::kF32, shape);
    };
    KernelArgs args;
    args.inputs = {{"x", view(0, {kRows, kColumns})},
                   {"norm", std::optional(view(1, {kColumns}))},
                   {"weight", view(2, {2 * kColumns, kColumns})}};
    args.outputs = {{"y", view(3, {kRows, kColumns})}};
    args.attrs = {{"eps", 1e-5}, {"epilogue", std::string("silu_mul")}};
    args.scratch = scratch;
    return args;
  }
  std::vector<std::string> names(const KernelTable& kernels) {
    std::vector<std::string> names;
    for (const OpLaunch& launch : expand(kernels, "fused_linear", args()))
      names.emplace_back(launch.kernel->name);
    return names;
  }

  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  Memory memory_ = device_->allocate(4 * 65536);
};

using Names = std::vector<std::string>;

TEST_F(ExpandTest, LaunchesTheOpsThatAFusedOpStandsForWhereNoKernelTakesIt) {
  EXPECT_EQ(names(device_->kernels()), (Names{"rms_norm.cpu", "linear.cpu", "silu_mul.cpu"}));
}

TEST_F(ExpandTest, TakesAKernelThatKnowsAllThatIsLeft) {
  KernelTable& kernels = device_->kernels();
  kernels.add_first({"fused_linear", "fused.test", nullptr, nullptr, bind_nothing});
  EXPECT_EQ(names(kernels), (Names{"rms_norm.cpu", "fused.test"}));
  kernels.add_first({"fused_linear", "whole.test", nullptr, nullptr, bind_nothing, {"norm"}});
  EXPECT_EQ(names(kernels), Names{"whole.test"});
}

TEST_F(ExpandTest, TakesAKernelFromOutsideForAPart) {
  device_->kernels().add_first({"linear", "linear.test", nullptr, nullptr, bind_nothing});
  EXPECT_EQ(names(device_->kernels()), (Names{"rms_norm.cpu", "linear.test", "silu_mul.cpu"}));
}

TEST_F(ExpandTest, KeepsWhatLiesBetweenPartsApartFromTheScratchOfEach) {
  const Workspace whole = total_workspace(expand(device_->kernels(), "fused_linear", args()));
  const Memory scratch = device_->allocate(whole.scratch_bytes);
  const auto launches = expand(device_->kernels(), "fused_linear", args(scratch.data()));
  ASSERT_EQ(launches.size(), 3U);
  const auto end = [](const TensorView& view) { return view.as<std::byte>() + view.num_bytes(); };
  const TensorView& normed = launches[1].args.inputs["x"];
  const TensorView& product = launches[1].args.outputs["y"];
  const auto* const own = static_cast<const std::byte*>(launches[1].args.scratch);
  EXPECT_EQ(total_workspace(launches).scratch_bytes, whole.scratch_bytes) << "with addresses too";
  EXPECT_EQ(normed.data, launches[0].args.outputs["y"].data);
  EXPECT_EQ(product.data, launches[2].args.inputs["gate"].data);
  EXPECT_LE(end(normed), product.as<std::byte>());
  EXPECT_LE(end(product), own);
  EXPECT_LE(own + launches[1].kernel->workspace(launches[1].args).scratch_bytes,
            scratch.data() + whole.scratch_bytes);
}

// Expands a product with adapters. Each test adds the kernels that the device has for it.
class AdaptersExpandTest : public ExpandTest {
 protected:
  KernelArgs adapted(bool has_norm = true) {
    KernelArgs args = this->args();
    args.attrs.set("fp8_rows", int64_t{33});
    if (!has_norm) args.inputs = args.inputs.without({"norm"});
    const auto view = [&](size_t i, DType dtype, const Shape& shape) {
      return TensorView(memory_.data() + i * 65536, dtype, shape);
    };
    args.inputs.add("lora_a", view(0, DType::kF32, {2, 8, kColumns}), true);
    args.inputs.add("lora_b", view(1, DType::kF32, {2, 2 * kColumns, 4}), true);
    args.inputs.add("adapters", view(2, DType::kI32, {kRows}), true);
    args.attrs.set("lora_blocks", std::vector<int64_t>{kColumns, kColumns});
    return args;
  }
  KernelArgs without_adapters(bool has_norm = true) {
    KernelArgs args = adapted(has_norm);
    args.inputs = args.inputs.without({"lora_a", "lora_b", "adapters"});
    ir::Attrs attrs;
    for (const auto& [name, value] : args.attrs) {
      if (name != "lora_blocks") attrs.set(name, value);
    }
    args.attrs = attrs;
    return args;
  }
  std::vector<OpLaunch> launches(bool has_norm = true) {
    return expand(device_->kernels(), "fused_linear", adapted(has_norm));
  }
  Names names(bool has_norm = true) {
    Names names;
    for (const OpLaunch& launch : launches(has_norm))
      names.emplace_back(launch.kernel->name);
    return names;
  }
};

TEST_F(AdaptersExpandTest, AreAddedByAKernelThatKnowsThem) {
  KernelTable& kernels = device_->kernels();
  kernels.add_first({"fused_linear",
                     "adds.test",
                     nullptr,
                     nullptr,
                     bind_nothing,
                     {"norm", "lora_h", "lora_b", "adapters"}});
  for (const bool has_norm : {false, true}) {
    EXPECT_EQ(names(has_norm), (Names{"lora_shrink.cpu", "adds.test"}));
    const auto launches = this->launches(has_norm);
    EXPECT_EQ(launches[0].args.inputs.find("norm") != nullptr, has_norm);
    EXPECT_EQ(launches[0].args.outputs["h"].data, launches[1].args.inputs["lora_h"].data);
    EXPECT_EQ(launches[1].args.attrs.get_ints("lora_blocks").size(), 2U);
  }
}

// A kernel that takes the whole fused op without adapters is also used for the product of the op
// with adapters. lora_expand then applies silu_mul.
TEST_F(AdaptersExpandTest, StandAroundAKernelThatDoesNotKnowThem) {
  device_->kernels().add_first(
      {"fused_linear", "whole.test", nullptr, nullptr, bind_nothing, {"norm"}});
  EXPECT_EQ(names(), (Names{"lora_shrink.cpu", "whole.test", "lora_expand.cpu"}));
}

TEST_F(AdaptersExpandTest, ReadWhatTheNormGivesWhereThatIsALaunchOfItsOwn) {
  EXPECT_EQ(names(), (Names{"rms_norm.cpu", "lora_shrink.cpu", "linear.cpu", "lora_expand.cpu"}));
  const auto launches = this->launches();
  EXPECT_EQ(launches[1].args.inputs["x"].data, launches[0].args.outputs["y"].data);
  EXPECT_EQ(launches[1].args.inputs.find("norm"), nullptr);
  EXPECT_EQ(launches[3].args.attrs.get_string("epilogue"), "silu_mul");
  EXPECT_EQ(launches[3].args.outputs["y"].row_elements(), kColumns);
}

// Whether a program has room for adapters changes neither the kernel nor the key by which the tuner
// chooses its tiles.
TEST_F(AdaptersExpandTest, AProductBesideThemIsChosenAsTheOneWithSiluMulFusedToIt) {
  device_->kernels().add_first(
      {"fused_linear", "whole.test", nullptr, nullptr, bind_nothing, {"norm"}});
  for (const bool has_norm : {false, true}) {
    const KernelArgs plain = without_adapters(has_norm);
    const OpLaunch base = launches(has_norm)[1];
    EXPECT_EQ(base.op, has_norm ? "fused_linear" : "linear");
    EXPECT_EQ(base.args.outputs["y"].row_elements(), 2 * kColumns);
    const KernelArgs decides = with_silu_mul(base.args);
    EXPECT_EQ(tuning_text("x", decides), tuning_text("x", plain));
    const LinearOperands chosen = linear_operands(decides);
    const LinearOperands expected = linear_operands(plain);
    EXPECT_TRUE(chosen.silu_mul);
    EXPECT_EQ(chosen.norm != nullptr, has_norm);
    EXPECT_EQ(chosen.eps, expected.eps);
    EXPECT_EQ(chosen.fp8_activations, expected.fp8_activations);
    EXPECT_EQ(decides.attrs.find(kChosenWithSiluMul), nullptr);
    // Where a norm is split off, the kernel of the remaining op is chosen in the same way.
    if (!has_norm) continue;
    const Parts rest = linear_parts(base.args);
    EXPECT_NE(rest.parts.back().args.attrs.find(kChosenWithSiluMul), nullptr);
  }
}

// An optional operand of a fused op that belongs to none of its parts in particular goes to the
// main part, whose kernel has to know it.
TEST_F(ExpandTest, DropsNoOperandThatItDoesNotKnow) {
  KernelArgs scaled = args();
  scaled.inputs.add("weight_scale", scaled.inputs["norm"], true);
  EXPECT_THROW((void)expand(device_->kernels(), "fused_linear", scaled), Error);
  device_->kernels().add_first(
      {"linear", "scaled.test", nullptr, nullptr, bind_nothing, {"weight_scale"}});
  EXPECT_EQ(expand(device_->kernels(), "fused_linear", scaled)[1].kernel->name, "scaled.test");
}

TEST_F(ExpandTest, NamesThePartThatHasNoKernel) {
  const std::vector<Kernel> rows = {{"rms_norm", "norm.test", nullptr, nullptr, bind_nothing}};
  const std::string message =
      message_of(ErrorKind::kUnsupported, [&] { (void)names(KernelTable(rows)); });
  EXPECT_NE(message.find("'linear'"), std::string::npos) << message;
}

}  // namespace
}  // namespace encore
