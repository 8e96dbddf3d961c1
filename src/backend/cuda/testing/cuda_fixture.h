// A fixture for tests of the CUDA backend. It has a device and memory, and it can launch single
// kernels.
#pragma once

#include <bit>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/device.h"
#include "backend/expand.h"

namespace encore {

// The numbers of multiprocessors of an H200, an H100 PCIe and an H20.
constexpr int kH200 = 132;
constexpr int kChips[] = {kH200, 114, 78};

inline float of_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16U);
}

// The sizes of a product: x [rows, columns], weight [outputs, columns].
struct ProductShape {
  int64_t rows;
  int64_t outputs;
  int64_t columns;
};

// Returns the first `columns` columns of `wide`.
inline TensorView left_part(TensorView wide, int64_t columns) {
  wide.shape = {wide.num_rows(), columns};
  return wide;
}

// Returns the first `rows` rows of `matrix`.
inline TensorView upper_part(TensorView matrix, int64_t rows) {
  matrix.shape = {rows, matrix.row_elements()};
  return matrix;
}

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = create_cuda_device();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    stream_ = device_->create_stream();
  }

  TensorView allocate(const Shape& shape, DType dtype = DType::kF32) {
    TensorView view(nullptr, dtype, shape);
    memory_.push_back(device_->allocate(view.num_bytes()));
    view.data = memory_.back().data();
    return view;
  }
  TensorView random(const Shape& shape, DType dtype, uint64_t seed) {
    const TensorView view = allocate(shape, dtype);
    device_->fill_random(*stream_, view, seed, 1.0F);
    return view;
  }
  void fill(const TensorView& view, float value) {
    stream_->fill(view.data, std::bit_cast<uint32_t>(value), view.num_bytes());
  }
  // Copies the elements to the host without conversion. T must have their size.
  template <typename T>
  std::vector<T> read_as(const TensorView& view) {
    std::vector<T> host(static_cast<size_t>(view.shape.num_elements()));
    stream_->copy_to_host(host.data(), view.data, view.num_bytes());
    stream_->synchronize();
    return host;
  }
  std::vector<float> read(const TensorView& view) { return read_as<float>(view); }
  std::vector<uint16_t> read_bits(const TensorView& view) { return read_as<uint16_t>(view); }
  // Binds the kernel called `name`, or the one that the kernel table chooses if `name` is empty.
  BoundLaunch bind(std::string_view op, KernelArgs args, std::string_view name = "") {
    const Kernel* kernel = nullptr;
    if (name.empty()) kernel = &device_->kernels().choose(op, args);
    for (const Kernel& row : device_->kernels().rows()) {
      if (row.name == name) kernel = &row;
    }
    if (kernel == nullptr || (kernel->accepts != nullptr && !kernel->accepts(args))) {
      ADD_FAILURE() << "no kernel " << name << " takes this " << op;
      return {};
    }
    return kernel->bind(*device_, with_workspace(*kernel, std::move(args)));
  }
  // Binds the launches of the ops that a fused op stands for, even if a kernel takes the op itself.
  BoundLaunch bind_parts(std::string_view op, KernelArgs args) {
    std::vector<Kernel> rows;
    for (const Kernel& row : device_->kernels().rows()) {
      if (row.op != op) rows.push_back(row);
    }
    const KernelTable others(rows);
    const Workspace workspace = total_workspace(expand(others, op, args));
    return bind_all(*device_, expand(others, op, with_workspace(workspace, std::move(args))));
  }
  KernelArgs with_workspace(const Kernel& kernel, KernelArgs args) {
    if (kernel.workspace == nullptr) return args;
    const Workspace workspace = kernel.workspace(args);
    return with_workspace(workspace, std::move(args));
  }
  KernelArgs with_workspace(const Workspace& workspace, KernelArgs args) {
    const int64_t counter_bytes = workspace.num_counters * 4;
    memory_.push_back(device_->allocate(workspace.scratch_bytes));
    args.scratch = memory_.back().data();
    memory_.push_back(device_->allocate(counter_bytes));
    args.counters = reinterpret_cast<uint32_t*>(memory_.back().data());
    if (counter_bytes > 0) stream_->fill(args.counters, 0, counter_bytes);
    return args;
  }
  void launch(std::string_view label, const BoundLaunch& bound) {
    stream_->launch({.label = label, .id = -1, .after = {}}, bound, {});
  }
  // Records the launch `bound` under `label`, and returns the error that the recording throws. The
  // stream must be usable afterwards.
  Error error_of_recording(std::string_view label, const BoundLaunch& bound) {
    try {
      RecordingScope scope(*stream_);
      launch(label, bound);
      scope.finish();
    } catch (const Error& error) {
      const TensorView probe = allocate({4});
      fill(probe, 3.0F);
      EXPECT_EQ(read(probe), (std::vector<float>{3, 3, 3, 3}));
      return error;
    }
    return {ErrorKind::kUsage, "recorded without an error"};
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<Memory> memory_;
};

}  // namespace encore
