#include "cli/open.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "backend/tuning.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/verbs.h"

namespace encore::cli {
namespace {

// A phase of the start-up that takes longer is worth a remedy.
constexpr double kSlowMs = 3000;

namespace fs = std::filesystem;

constexpr std::string_view kBundledModel = "stories";

bool is_model(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "config.json", ignored);
}

// Where a bundled model of that name lies: installed beside the executable, or in the source tree
// around it.
std::optional<fs::path> find_bundled(const std::string& name) {
  std::error_code ignored;
  const fs::path executable = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path installed = executable.parent_path() / ".." / "share" / "encore" / "models" / name;
  if (is_model(installed)) return installed.lexically_normal();
  for (fs::path dir = executable.parent_path(); dir.has_relative_path(); dir = dir.parent_path()) {
    if (is_model(dir / "models" / name)) return dir / "models" / name;
  }
  return std::nullopt;
}

}  // namespace

fs::path model_directory(const std::string& name) {
  const std::string wanted = name.empty() ? std::string(kBundledModel) : name;
  std::error_code ignored;
  if (!name.empty() && fs::is_directory(name, ignored)) return name;
  if (wanted.find('/') == std::string::npos) {
    if (auto bundled = find_bundled(wanted)) return *bundled;
  }
  if (name.empty()) {
    fail(ErrorKind::kUsage,
         "the bundled model is neither in ../share/encore/models nor in models/ above the "
         "executable; "
         "name one with --model");
  }
  if (fs::exists(name, ignored)) {
    fail(ErrorKind::kUsage, "--model {}: give the checkpoint's directory, not a file in it", name);
  }
  fail(ErrorKind::kUsage,
       "no model '{}': give the directory of a Hugging Face checkpoint, a bundled model (stories, "
       "stories-draft), or synthetic:NAME for random weights",
       name);
}

std::optional<fs::path> tuning_directory(const std::string& option) {
  if (option == "off") return std::nullopt;
  if (!option.empty()) return option;
  const auto value_of = [](const char* variable) -> fs::path {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
  };
  if (fs::path own = value_of("ENCORE_CACHE_DIR"); !own.empty()) return own;
  if (const fs::path user = value_of("XDG_CACHE_HOME"); !user.empty()) return user / "encore";
  if (const fs::path home = value_of("HOME"); !home.empty()) return home / ".cache" / "encore";
  return std::nullopt;
}

std::unique_ptr<Device> open_device(const CommonOptions& options) {
  if (options.device != "cpu") {
    try {
      auto device = create_cuda_device();
      device->tuner().configure({parse_tune(options.tune), tuning_directory(options.tuning_cache)});
      return device;
    } catch (const Error& error) {
      if (options.device == "cuda") throw;
      log::info("running on the CPU: {}", error.what());
    }
  }
  return create_cpu_device({.num_threads = options.threads});
}

engine::ModelSource open_source(const CommonOptions& options) {
  if (options.model.rfind("synthetic:", 0) == 0) return engine::find_model(options.model);
  return engine::find_model(model_directory(options.model).string());
}

std::optional<text::Tokenizer> open_tokenizer(const engine::ModelSource& source) {
  std::error_code ignored;
  if (!source.checkpoint || !fs::exists(*source.checkpoint / "tokenizer.json", ignored))
    return std::nullopt;
  return text::Tokenizer::load(*source.checkpoint);
}

int64_t longest_sequence(const model::ModelConfig& config) {
  return std::min(config.max_position_embeddings,
                  config.sliding_window.value_or(config.max_position_embeddings));
}

int64_t sequence_limit(const CommonOptions& options, const model::ModelConfig& config,
                       int64_t needed) {
  const int64_t longest = longest_sequence(config);
  if (needed > longest) {
    fail(ErrorKind::kUsage,
         "a sequence of {} tokens: the model takes at most {}; shorten the prompt or generate less",
         needed, longest);
  }
  if (options.max_seq_len && needed > *options.max_seq_len) {
    fail(ErrorKind::kUsage,
         "a sequence of {} tokens is more than --max-seq-len {}: raise it, to at most {}", needed,
         *options.max_seq_len, longest);
  }
  return options.max_seq_len.value_or(needed);
}

void log_start_up(engine::LoadedModel& model, Device& device) {
  const runtime::MemoryPlan plan = model.memory_plan();
  log::info("{} on {}: weights {}, KV {} for {} tokens, arena {}; {}; ready in {:.2f} s",
            model.config().model_type, device.info().name, bytes_text(plan.weights),
            bytes_text(plan.states), model.num_pages() * model.page_size(), bytes_text(plan.arena),
            recordings_text(model.recording_stats()), model.load_seconds());
  const TuningStats tuning = device.tuner().stats();
  if (tuning.cached + tuning.measured > 0) log::info("{}", to_text(tuning));
  if (plan.context > 0) {
    log::info("memory: {} of recordings and {} in all by plan, {} by the driver's count",
              bytes_text(plan.recordings), bytes_text(plan.total()),
              bytes_text(device.used_bytes().value_or(0)));
  }
  const runtime::RecordingStats& stats = model.recording_stats();
  if (stats.lower_ms + stats.warm_up_ms > kSlowMs) {
    log::info(
        "choosing and warming up kernels took long: a second start takes what the first one "
        "measured from the tuning cache (`encore doctor` shows it)");
  }
  if (stats.full.ms() + stats.pieces.ms() > kSlowMs) {
    log::info(
        "recording took long: `encore tune LOG --budget K` finds the K sizes that pad a "
        "workload least, and --decode-ladder lru:N records decode steps when they come");
  }
}

}  // namespace encore::cli
