// Implements `encore doctor`, which lists the usable devices, what they allow, and what to do about
// problems.
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "backend/device.h"
#include "backend/tuning.h"
#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "model/graph.h"
#include "setup/open.h"

namespace encore::cli {
namespace {

constexpr int64_t kShownTokens = 8192;

struct DoctorOptions {
  bool json = false;
  config::Settings settings;
};

// Holds the result of opening a device: its properties, or the problem.
struct Attempt {
  std::optional<DeviceInfo> info;
  TuningKey tuning_key;
  std::string problem;
};

Attempt try_cuda() {
  try {
    const auto device = create_cuda_device();
    return {device->info(), device->tuner().key(), ""};
  } catch (const Error& error) {
    return {std::nullopt, {}, error.what()};
  }
}

// Reports what the tuning cache holds for this device and build, and what other files lie there.
Finding tuning_cache(const DoctorOptions& options, const TuningKey& key) {
  Finding finding{"tuning cache", "off", ""};
  const auto directory = setup::tuning_directory(options.settings.tuning_cache);
  if (!directory) return finding;
  size_t num_choices = 0;
  int num_others = 0;
  for (const TuningFile& file : tuning_files(*directory)) {
    if (!file.problem.empty()) {
      finding.remedy = fmt::format("delete what cannot be read ({})", file.problem);
    } else if (!key.empty() && file.key == key) {
      num_choices = file.num_choices;
    } else {
      ++num_others;
    }
  }
  finding.found =
      fmt::format("{}: {} choices for this device and build", directory->string(), num_choices);
  if (num_others > 0) finding.found += fmt::format(", {} files of others", num_others);
  if (const auto problem = write_problem(*directory)) {
    finding.found += ", cannot be written";
    finding.remedy = fmt::format(
        "every start on a GPU measures anew ({}): name a directory that can be written with "
        "--tuning-cache or ENCORE_CACHE_DIR",
        *problem);
  }
  if (num_choices > 0 && finding.remedy.empty()) {
    finding.remedy =
        "were they measured while others used the GPU, start once with --tune fresh: it measures "
        "all of them again";
  }
  return finding;
}

int64_t weight_bytes(const model::ModelConfig& config) {
  const ir::Graph graph = model::build_graph(config, {});
  int64_t bytes = 0;
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight))
    bytes += graph.value(id).type.num_bytes({});
  return bytes;
}

// Lists the published models whose bf16 weights fit the free memory together with the KV of one
// long sequence.
Finding models_that_fit(const DeviceInfo& device) {
  std::string fitting;
  std::string others;
  for (const std::string_view name : model::preset_names()) {
    const model::ModelConfig config = *model::preset(name);
    const int64_t weights = weight_bytes(config);
    const int64_t kv = kShownTokens * model::kv_bytes_per_token(config, DType::kBF16);
    std::string& list = weights + kv <= device.free_bytes ? fitting : others;
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", name, bytes_text(weights));
  }
  if (!others.empty()) others = "; too large: " + others;
  return {fmt::format("shapes that fit in {}", bytes_text(device.free_bytes)),
          (fitting.empty() ? "none of the known" : fitting) + others, ""};
}

// Reports where the bundled model is, which users can start with.
Finding bundled_model() {
  try {
    return {"bundled model", setup::model_directory("").string(), ""};
  } catch (const Error& error) {
    return {"bundled model", "not found", error.what()};
  }
}

json::value info_json(const std::optional<DeviceInfo>& info) {
  if (!info) return nullptr;
  return json::object{{"name", info->name},
                      {"detail", info->detail},
                      {"total_bytes", info->total_bytes},
                      {"free_bytes", info->free_bytes}};
}

void print_json(const DeviceInfo& cpu, const Attempt& cuda, const std::vector<Finding>& findings) {
  json::array rows;
  for (const Finding& finding : findings) {
    rows.push_back(json::object{
        {"what", finding.what},
        {"found", finding.found},
        {"remedy", finding.remedy.empty() ? json::value(nullptr) : json::value(finding.remedy)}});
  }
  print(json::to_text(json::object{
            {"version", build_info().version},
            {"commit", build_info().commit},
            {"runs_on", cuda.info ? "cuda" : "cpu"},
            {"cpu", info_json(cpu)},
            {"cuda", info_json(cuda.info)},
            {"cuda_problem", cuda.info ? json::value(nullptr) : json::value(cuda.problem)},
            {"findings", std::move(rows)}}) +
        "\n");
}

std::string device_line(const DeviceInfo& info) {
  return fmt::format("  {}\n    {}\n    {} of {} free\n", info.name, info.detail,
                     bytes_text(info.free_bytes), bytes_text(info.total_bytes));
}

void doctor(const DoctorOptions& options) {
  const DeviceInfo cpu = create_cpu_device()->info();
  const Attempt cuda = try_cuda();
  std::vector<Finding> findings = cuda_findings();
  findings.push_back(tuning_cache(options, cuda.tuning_key));
  findings.push_back(models_that_fit(cuda.info.value_or(cpu)));
  findings.push_back(bundled_model());
  if (options.json) return print_json(cpu, cuda, findings);

  print("Devices\n" + device_line(cpu));
  if (cuda.info) print(device_line(*cuda.info));
  Table table({"looked for", "found"});
  for (const Finding& finding : findings)
    table.add({finding.what, finding.found});
  print("\nFound\n" + table.text());

  print("\nWhat that means\n");
  if (cuda.info) {
    print("  --device auto runs on the GPU.\n");
  } else {
    print(fmt::format("  --device auto runs on the CPU: {}\n", cuda.problem));
  }
  for (const Finding& finding : findings) {
    if (!finding.remedy.empty()) print(fmt::format("  {}: {}\n", finding.what, finding.remedy));
  }
}

}  // namespace

void add_doctor(Command& app) {
  Command* verb = app.add_subcommand(
      "doctor", "Hardware, driver and libraries found, and what to do about them");
  auto options =
      std::make_shared<DoctorOptions>();  // shared by the parser's options and the callback
  add_json_flag(*verb, options->json);
  take_options(*verb, options->settings, {.groups = {}, .also = {"tuning_cache"}});
  verb->callback([options] { doctor(*options); });
}

}  // namespace encore::cli
