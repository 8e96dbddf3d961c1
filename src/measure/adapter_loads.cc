#include "measure/adapter_loads.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <random>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/statistics.h"
#include "measure/timing.h"
#include "model/lora/slots.h"

namespace encore::measure {
namespace {

namespace fs = std::filesystem;

// Makes a temporary directory, and removes it in the destructor.
class ScratchDir {
 public:
  ScratchDir() {
    std::string pattern = (fs::temp_directory_path() / "encore-adapter-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      fail(ErrorKind::kUsage, "cannot make a directory for an adapter at {}", pattern);
    path_ = pattern;
  }
  ~ScratchDir() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), std::ssize(text));
  file.close();
  if (!file) fail(ErrorKind::kUsage, "cannot write {}", path.string());
}

// Writes an adapter's files in bf16, in the format of the PEFT library.
void write_adapter(const fs::path& dir, const model::LoraSizes& sizes, int64_t rank) {
  json::object header;
  json::array targets;
  int64_t end = 0;
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
    const int64_t first = end;
    end += rows * columns * 2;
    header["base_model.model." + name] = json::object{{"dtype", "BF16"},
                                                      {"shape", json::array{rows, columns}},
                                                      {"data_offsets", json::array{first, end}}};
  };
  for (const auto& [name, size] : sizes) {
    targets.emplace_back(name);
    add(name + std::string(model::kLoraA), rank, size.num_in);
    add(name + std::string(model::kLoraB), size.num_out, rank);
  }
  // The weights are random bf16 numbers between 2^-7 and 2^-6, of either sign.
  std::string numbers(static_cast<size_t>(end), '\0');
  std::minstd_rand random(1);
  for (size_t i = 0; i < numbers.size(); i += 2) {
    const unsigned bits = static_cast<unsigned>(random()) >> 8;
    numbers[i] = static_cast<char>(bits & 0x7FU);
    numbers[i + 1] = static_cast<char>(0x3CU | (bits & 0x80U));
  }
  const std::string head = json::to_text(header);
  std::string size_of_head;
  for (int i = 0; i < 8; ++i)
    size_of_head += static_cast<char>(head.size() >> (8 * i) & 0xFFU);
  write_text(dir / "adapter_model.safetensors", size_of_head + head + numbers);
  write_text(dir / "adapter_config.json",
             json::to_text(json::object{{"peft_type", "LORA"},
                                        {"r", rank},
                                        {"lora_alpha", rank},
                                        {"target_modules", std::move(targets)}}));
}

// Runs decode steps without end and times each as a client sees it: from one token of the last
// sequence to the next.
class TimedSteps {
 public:
  TimedSteps(engine::Engine& engine, const DecodingOptions& options)
      : engine_(engine), options_(options) {
    begin();
  }

  // Runs one step. Returns its time in milliseconds.
  double step_ms() {
    if (left_ <= 0) begin();
    left_ -= decoding_->step();
    const double now = now_seconds();
    const double ms = (now - last_) * 1e3;
    last_ = now;
    return ms;
  }

 private:
  void begin() {
    decoding_.reset();  // ends the old sequences
    decoding_.emplace(engine_, options_);
    left_ = options_.steps;
    last_ = now_seconds();
  }

  engine::Engine& engine_;
  DecodingOptions options_;
  std::optional<Decoding> decoding_;
  int64_t left_ = 0;
  double last_ = 0;
};

AdapterLoads::Load time_load(loader::Adapters& adapters, const fs::path& files,
                             const std::string& name, TimedSteps& steps) {
  AdapterLoads::Load load;
  const double start = now_seconds();
  const auto step = [&] { load.longest_step_ms = std::max(load.longest_step_ms, steps.step_ms()); };
  std::future<void> read = std::async(std::launch::async, [&] { adapters.load(name, files); });
  try {
    while (read.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      step();
  } catch (...) {
    read.wait();
    throw;
  }
  read.get();
  const auto resident = adapters.slots().take(adapters.find(name), {});
  if (!resident) fail(ErrorKind::kUsage, "sequences use all slots: give a smaller --batch");
  using enum loader::ResidentAdapter::State;
  while (resident->state() == kAwaited)
    step();
  if (resident->state() == kFailed) fail(ErrorKind::kModel, "{}", resident->problem());
  load.ms = (now_seconds() - start) * 1e3;
  return load;
}

}  // namespace

AdapterLoads time_adapter_loads(engine::Engine& engine, const DecodingOptions& options,
                                int64_t num_loads, int64_t rank) {
  ENCORE_CHECK(engine.model().adapters() != nullptr);
  loader::Adapters& adapters = *engine.model().adapters();
  const ScratchDir dir;
  write_adapter(dir.path(), model::lora_sizes(engine.model().program().graph), rank);
  AdapterLoads result;
  result.bytes = adapters.bytes() / adapters.num_slots();
  TimedSteps steps(engine, options);
  std::vector<double> without_ms;
  for (int64_t i = 0; i < options.steps; ++i)
    without_ms.push_back(steps.step_ms());
  result.step_ms = median(without_ms);
  result.longest_step_ms = *std::ranges::max_element(without_ms);
  for (int64_t i = 0; i < num_loads; ++i)
    result.loads.push_back(time_load(adapters, dir.path(), fmt::format("loaded-{}", i), steps));
  return result;
}

}  // namespace encore::measure
