#include "backend/testing/check.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "backend/expand.h"
#include "base/rounding.h"

namespace encore {
namespace {

// The bytes that fill the buffer before the two runs. They are complements of each other, so an
// element that the kernel did not write differs between the runs.
constexpr std::byte kPoisons[2] = {std::byte{0xa5}, std::byte{0x5a}};
constexpr int64_t kPlaceAlignment = 256;

// A region of the buffer that holds all memory which a launch may write.
struct Region {
  int64_t begin = 0;  // bytes from the buffer's start
  int64_t end = 0;
};

struct Output {
  TensorView view;
  Region region;
  std::optional<std::string_view> input;  // the input that the output overwrites
};

// Holds everything that the kernel may write in one buffer, with guards between.
class Bench {
 public:
  Bench(Device& device, const KernelCheck& check);

  void run();
  [[nodiscard]] std::vector<CheckedOutput> outputs() const;

 private:
  void place_outputs();
  void place_workspace();
  Region place(int64_t bytes);
  void give_addresses();
  [[nodiscard]] std::vector<OpLaunch> expanded() const;
  std::vector<std::byte> image(std::byte poison);
  void copy_inputs_under_outputs(std::vector<std::byte>& image);
  void expect_guards_intact(int run) const;
  void expect_intact(int run, int64_t begin, int64_t end, const std::string& what) const;
  void expect_counters_zero(int run) const;
  [[nodiscard]] CheckedOutput read(size_t index) const;
  [[nodiscard]] std::optional<std::string_view> input_under(std::string_view output) const;
  template <typename... Args>
  [[noreturn]] void complain(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kCompile, "op '{}', kernel '{}': {}", check_.op->name,
         launches_.back().kernel->name, fmt::format(format, std::forward<Args>(args)...));
  }
  [[nodiscard]] std::string describe(size_t index) const;

  Device& device_;
  const KernelCheck& check_;
  std::unique_ptr<Stream> stream_;
  std::vector<OpLaunch> launches_;  // launches of the op
  Views inputs_;                    // inputs as the caller gave them
  KernelArgs args_;
  ir::Types types_;
  std::vector<Output> outputs_;
  Region scratch_;
  Region counters_;
  int64_t after_outputs_ = 0;  // where the guard behind the last output ends
  int64_t bytes_ = 0;
  Memory memory_;
  std::vector<std::byte> after_[2];  // the buffer as each run left it
};

Bench::Bench(Device& device, const KernelCheck& check)
    : device_(device), check_(check), stream_(device.create_stream()) {
  inputs_ = named(*check.op, check.inputs);
  args_.inputs = inputs_;
  args_.attrs = check.attrs;
  args_.step = check.step;
  types_ = infer(*check.op, check.input_types, check.attrs);
  place_outputs();
  launches_ = expanded();
  place_workspace();
  memory_ = device.allocate(bytes_);
  give_addresses();
}

std::vector<OpLaunch> Bench::expanded() const {
  if (check_.kernel != nullptr) return {{check_.op->name, check_.kernel, args_}};
  return expand(device_.kernels(), check_.op->name, args_);
}

std::optional<std::string_view> Bench::input_under(std::string_view output) const {
  std::vector<ir::InPlace> pairs = check_.op->mutations();
  pairs.insert(pairs.end(), check_.in_place.begin(), check_.in_place.end());
  const auto pair = std::ranges::find(pairs, output, &ir::InPlace::output);
  return pair == pairs.end() ? std::nullopt : std::optional(pair->input);
}

// Reserves a region of the buffer. The guards around it are wide, so that a kernel which is a few
// rows off does not reach other memory.
Region Bench::place(int64_t bytes) {
  const int64_t guard = round_up(std::clamp<int64_t>(bytes, 4096, 1 << 20), kPlaceAlignment);
  Region region;
  region.begin = round_up(bytes_, kPlaceAlignment) + guard;
  region.end = region.begin + bytes;
  bytes_ = round_up(region.end, kPlaceAlignment) + guard;
  return region;
}

void Bench::place_outputs() {
  for (size_t i = 0; i < types_.size(); ++i) {
    Output output;
    output.view = TensorView(nullptr, types_.values()[i].dtype,
                             types_.values()[i].resolve(check_.step.sizes()));
    output.input = input_under(types_.name(i));
    if (output.input) {
      output.view.row_stride = inputs_[*output.input].row_stride;
    } else if (output.view.shape.rank() > 1) {
      output.view.row_stride += check_.row_gap;
    }
    output.region =
        place(output.view.num_rows() * output.view.row_stride * size_of(output.view.dtype));
    args_.outputs.add(types_.name(i), output.view, types_.is_optional(i));
    outputs_.push_back(output);
  }
}

void Bench::place_workspace() {
  after_outputs_ = bytes_;
  const Workspace workspace = total_workspace(launches_);
  scratch_ = place(workspace.scratch_bytes);
  counters_ = place(workspace.num_counters * int64_t{sizeof(uint32_t)});
}

void Bench::give_addresses() {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    output.view.data = memory_.data() + output.region.begin;
    args_.outputs.values()[i] = output.view;
    if (output.input) args_.inputs[*output.input].data = output.view.data;
  }
  args_.scratch = memory_.data() + scratch_.begin;
  args_.counters = reinterpret_cast<uint32_t*>(memory_.data() + counters_.begin);
  launches_ = expanded();
}

// Returns the content of the buffer before a run: poison, the inputs that outputs overwrite, and
// zero counters.
std::vector<std::byte> Bench::image(std::byte poison) {
  std::vector<std::byte> image(static_cast<size_t>(bytes_), poison);
  copy_inputs_under_outputs(image);
  std::fill(image.begin() + counters_.begin, image.begin() + counters_.end, std::byte{0});
  return image;
}

void Bench::copy_inputs_under_outputs(std::vector<std::byte>& image) {
  for (const Output& output : outputs_) {
    if (!output.input) continue;
    const TensorView& input = inputs_[*output.input];
    const int64_t row_bytes = input.row_elements() * size_of(input.dtype);
    const int64_t stride = input.row_stride * size_of(input.dtype);
    for (int64_t row = 0; row < input.num_rows(); ++row) {
      stream_->copy_to_host(image.data() + output.region.begin + row * stride,
                            input.as<std::byte>() + row * stride, row_bytes);
    }
  }
  stream_->synchronize();
}

void Bench::run() {
  const BoundLaunch bound = bind_all(device_, launches_);
  for (int run = 0; run < 2; ++run) {
    after_[run] = image(kPoisons[run]);
    stream_->copy_to_device(memory_.data(), after_[run].data(), bytes_);
    stream_->launch({.label = check_.op->name, .id = -1, .after = {}}, bound, check_.lengths);
    stream_->copy_to_host(after_[run].data(), memory_.data(), bytes_);
    stream_->synchronize();
    expect_guards_intact(run);
    expect_counters_zero(run);
  }
}

std::string Bench::describe(size_t index) const {
  return fmt::format("output {} is {} at T={} B={} by its row", types_.name(index),
                     types_.values()[index].to_string(), check_.step.tokens, check_.step.sequences);
}

// Throws if the kernel has written any of the bytes [begin, end). `what` names the place of the
// bytes in the message.
void Bench::expect_intact(int run, int64_t begin, int64_t end, const std::string& what) const {
  const auto first = after_[run].begin() + begin;
  const auto last = after_[run].begin() + end;
  const auto found =
      std::find_if(first, last, [&](std::byte value) { return value != kPoisons[run]; });
  if (found != last) complain("wrote to byte {} of the guard {}", found - first, what);
}

void Bench::expect_guards_intact(int run) const {
  int64_t done = 0;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    const std::string name = describe(i);
    const int64_t element = size_of(output.view.dtype);
    for (int64_t row = 0; row < output.view.num_rows(); ++row) {
      const int64_t begin = output.region.begin + row * output.view.row_stride * element;
      expect_intact(run, done, begin,
                    fmt::format("{} {}; {}", row == 0 ? "before row" : "between rows, before row",
                                row, name));
      done = begin + output.view.row_elements() * element;
    }
    const int64_t end =
        i + 1 < outputs_.size() ? (done + outputs_[i + 1].region.begin) / 2 : after_outputs_;
    expect_intact(run, done, end, fmt::format("after the last row; {}", name));
    done = end;
  }
  expect_intact(run, done, std::max(done, scratch_.begin), "before the scratch");
  expect_intact(run, scratch_.end, counters_.begin, "after the scratch");
  expect_intact(run, counters_.end, bytes_, "after the counters");
}

void Bench::expect_counters_zero(int run) const {
  for (int64_t i = counters_.begin; i < counters_.end; ++i) {
    if (after_[run][static_cast<size_t>(i)] != std::byte{0}) {
      complain("counter {} is not zero after the launch", (i - counters_.begin) / 4);
    }
  }
}

CheckedOutput Bench::read(size_t index) const {
  const Output& output = outputs_[index];
  const int64_t element = size_of(output.view.dtype);
  const int64_t row_elements = output.view.row_elements();
  CheckedOutput result{output.view.dtype, output.view.shape, {}, {}};
  for (int64_t row = 0; row < output.view.num_rows(); ++row) {
    const int64_t begin = output.region.begin + row * output.view.row_stride * element;
    int64_t num_unwritten = 0;
    for (int64_t i = 0; i < row_elements; ++i) {
      const std::byte* a = after_[0].data() + begin + i * element;
      const std::byte* b = after_[1].data() + begin + i * element;
      if (std::memcmp(a, b, static_cast<size_t>(element)) == 0) continue;
      const auto is = [&](const std::byte* at, std::byte poison) {
        return std::all_of(at, at + element, [&](std::byte value) { return value == poison; });
      };
      if (!is(a, kPoisons[0]) || !is(b, kPoisons[1])) {
        complain("output {}, row {}, column {} differs from run to run", types_.name(index), row,
                 i);
      }
      const bool skippable =
          check_.may_skip && check_.may_skip(types_.name(index), row) && num_unwritten == i;
      if (!skippable) {
        complain("{}, but row {}, column {} was never written", describe(index), row, i);
      }
      ++num_unwritten;
    }
    if (num_unwritten > 0 && num_unwritten < row_elements) {
      complain("output {}, row {}: {} of {} elements written", types_.name(index), row,
               row_elements - num_unwritten, row_elements);
    }
    result.untouched.push_back(num_unwritten > 0);
    result.bytes.insert(result.bytes.end(), after_[0].begin() + begin,
                        after_[0].begin() + begin + row_elements * element);
  }
  return result;
}

std::vector<CheckedOutput> Bench::outputs() const {
  std::vector<CheckedOutput> results;
  for (size_t i = 0; i < outputs_.size(); ++i)
    results.push_back(read(i));
  return results;
}

}  // namespace

std::vector<CheckedOutput> check_kernel(Device& device, const KernelCheck& check) {
  Bench bench(device, check);
  bench.run();
  return bench.outputs();
}

}  // namespace encore
