#include "setup/open.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <link.h>
#include <set>

#include <fmt/ranges.h>

#include "backend/tuning.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/table.h"
#include "hub/cache.h"
#include "loader/memory_plan.h"
#include "model/end_tokens.h"
#include "model/gguf/metadata.h"
#include "planning/coverage.h"
#include "setup/draft_options.h"

namespace encore::setup {
namespace {

// The time, in milliseconds, after which a phase of the start-up counts as slow. For a slow phase,
// the log suggests a remedy.
constexpr double kSlowMs = 3000;

namespace fs = std::filesystem;

constexpr std::string_view kBundledModel = "stories";
constexpr std::string_view kBundledDraft = "stories-draft";

fs::path value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

bool is_model(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "config.json", ignored);
}

// Returns the file that this code was loaded from: the executable, or a shared library.
fs::path own_file() {
  std::error_code ignored;
  Dl_info info{};
  link_map* file = nullptr;
  const int found =
      dladdr1(&kBundledModel, &info, reinterpret_cast<void**>(&file), RTLD_DL_LINKMAP);
  // In the dynamic linker's list of loaded files, the executable has an empty name; a shared
  // library has its path.
  if (found != 0 && file->l_name[0] != '\0') return fs::canonical(file->l_name, ignored);
  return fs::read_symlink("/proc/self/exe", ignored);
}

// Finds a bundled model by name: installed beside this code, or in the source tree around it.
std::optional<fs::path> find_bundled(const std::string& name) {
  const fs::path own = own_file();
  const fs::path installed = own.parent_path() / ".." / "share" / "encore" / "models" / name;
  if (is_model(installed)) return installed.lexically_normal();
  for (fs::path dir = own.parent_path(); dir.has_relative_path(); dir = dir.parent_path()) {
    if (is_model(dir / "models" / name)) return dir / "models" / name;
  }
  return std::nullopt;
}

// Returns the text that says what limited the size of the KV cache: ", a quarter of the memory that
// is free (...)".
std::string bound_text(loader::KvBound bound) {
  switch (bound) {
    case loader::KvBound::kWanted:
      return "";
    case loader::KvBound::kMemory:
      return ", all that is free";
    case loader::KvBound::kFraction:
      return ", the share of --free-gpu-memory-fraction";
    case loader::KvBound::kHostFraction:
      return ", a quarter of the memory that is free (--free-gpu-memory-fraction or --kv-tokens "
             "take more)";
  }
  return "";
}

// Logs how many matrix products have weights in FP8, and the least number of rows of activations
// with which these are rounded to FP8 too.
void log_fp8(const loader::LoadedModel& model) {
  int num_products = 0;
  int num_fp8 = 0;
  std::optional<int64_t> rows;  // least rows of the products that round activations
  bool is_static = false;
  for (const ir::Node& node : model.program().graph.nodes()) {
    if (node.inputs.find("weight") == nullptr || node.op->name == "rms_norm") continue;
    ++num_products;
    if (node.inputs.find("scale") == nullptr) continue;
    ++num_fp8;
    if (node.attrs.find("fp8_rows") != nullptr) rows = node.attrs.get_int("fp8_rows");
    is_static |= node.attrs.find("x_scale") != nullptr;
  }
  if (num_fp8 == 0) {
    if (const auto& quantization = model.config().quantization) {
      log::warning("{} says that weights are quantized, but the files hold floats: those are used",
                   quantization->where);
    }
    return;
  }
  if (rows && model.program().batch_invariant) rows = 1;
  log::info("weights of {} in {} products are in FP8; activations are {}", num_fp8, num_products,
            !rows ? "in 16 bits"
                  : fmt::format("in FP8{} in steps of {} rows or more (--activations)",
                                is_static ? " by static scales" : "", *rows));
}

// Logs how much memory a GGUF file's weights take, if the file has them in a block format that is
// widened when it is loaded.
void log_widened(const fs::path& path, const loader::LoadedModel& model, int64_t weight_bytes) {
  const model::gguf::File file(path);
  std::set<std::string_view> formats;
  int64_t bytes = 0;
  bool has_blocks = false;
  for (const auto& [name, tensor] : file.tensors()) {
    formats.insert(tensor.format->name);
    bytes += tensor.num_bytes();
    has_blocks = has_blocks || tensor.format->num_elements > 1;
  }
  if (!has_blocks) return;
  log::info("weights of {} in {} are widened to {} in {}", bytes_text(bytes),
            fmt::join(formats, ", "), bytes_text(weight_bytes), name(model.dtype()));
}

void log_adapters(const loader::LoadedModel& model) {
  const loader::Adapters* const adapters = model.adapters();
  if (adapters == nullptr) return;
  const loader::AdapterStats stats = adapters->stats();
  log::info("adapters (LoRA): {}, of which {} are in {} slots of {} in all", stats.num_registered,
            stats.slots.num_resident, stats.num_slots, bytes_text(adapters->bytes()));
}

void log_start_up(loader::LoadedModel& model, Device& device) {
  const loader::MemoryPlan plan = loader::memory_plan(model);
  const int num_ranks = device.rank().size;
  const std::string window = model.window_rule()
                                 ? fmt::format(", of {} in layers with a window",
                                               model.num_window_pages() * model.page_size())
                                 : "";
  log::info("{} on {}{}: weights {}, KV {} for {} tokens{}{}; ready in {:.2f} s",
            model.config().model_type,
            num_ranks == 1 ? "" : fmt::format("{} ranks, each with its share: ", num_ranks),
            device.info().name, bytes_text(plan.weights), bytes_text(plan.kv),
            model.num_pages() * model.page_size(), window, bound_text(model.kv_bound()),
            model.load_seconds());
  log_fp8(model);
  log_adapters(model);
  runtime::Executor& executor = model.executor();
  const auto decode = StepKey::uniform(executor.coverage().sequences.sizes().front());
  for (const std::string_view reason : executor.loaded().tables.slow_reasons(decode))
    log::warning("decode steps are slow: {}", reason);
  log::debug("arena {}; {}", bytes_text(plan.arena), to_text(model.recording_stats()));
  const TuningStats tuning = device.tuner().stats();
  if (tuning.postponed > 0) {
    log::info("{}: those run as guessed until then; --tune fresh measures all at once",
              to_text(tuning));
  } else if (tuning.cached + tuning.measured > 0) {
    log::debug("{}", to_text(tuning));
  }
  if (plan.context > 0) {
    log::debug("memory: {} of recordings and {} in all by plan, {} by the driver's count",
               bytes_text(plan.recordings), bytes_text(plan.total()),
               bytes_text(device.used_bytes().value_or(0)));
  }
  const runtime::RecordingStats& stats = model.recording_stats();
  if (stats.lower_ms + stats.warm_up_ms > kSlowMs) {
    log::info(
        "choosing and warming up kernels took long: a second start takes what the first one "
        "measured from the tuning cache (`encore doctor` shows it)");
  }
  if (stats.ms() > kSlowMs) {
    log::info(
        "recording took long: `encore tune LOG --budget K` finds the K sizes that pad a "
        "workload least, and --decode-ladder lru:N records decode steps when they come");
  }
}

}  // namespace

fs::path model_directory(const std::string& name, std::string_view flag) {
  const std::string wanted = name.empty() ? std::string(kBundledModel) : name;
  std::error_code ignored;
  if (!name.empty() && fs::is_directory(name, ignored)) return name;
  if (wanted.find('/') == std::string::npos) {
    if (auto bundled = find_bundled(wanted)) return *bundled;
  }
  if (wanted == kBundledModel || wanted == kBundledDraft) {
    fail(ErrorKind::kUsage,
         "the bundled model '{}' is not beside {}: in Encore's source tree, `cmake --install "
         "build/PRESET --prefix DIR` installs both; or give {} the directory of a Hugging Face "
         "checkpoint, or synthetic:llama-3.1-8b for random weights",
         wanted, own_file().string(), flag);
  }
  std::error_code problem;
  if (const auto kind = fs::status(name, problem).type(); kind == fs::file_type::none)
    fail(ErrorKind::kUsage, "{} {}: {}", flag, name, problem.message());
  if (model::gguf::is_gguf(name) && fs::exists(name, ignored)) return name;
  if (fs::exists(name, ignored)) {
    fail(ErrorKind::kUsage, "{} {}: give the checkpoint's directory, not a file in it", flag, name);
  }
  if (hub::is_repository(name)) {
    const fs::path cache = hub_cache();
    if (const auto snapshot = hub::find_snapshot(cache, name)) return *snapshot;
    fail(
        ErrorKind::kModel,
        "no directory {}, and no model of that name in the Hugging Face cache {}: `encore pull {}` "
        "fetches it, and so does `hf download {}`",
        name, cache.string(), name, name);
  }
  fail(ErrorKind::kUsage,
       "no model '{}': give the directory of a Hugging Face checkpoint, ORG/NAME of one in its "
       "cache, a bundled model (stories, stories-draft), or synthetic:NAME for random weights",
       name);
}

fs::path hub_cache() {
  if (fs::path own = value_of("HF_HUB_CACHE"); !own.empty()) return own;
  if (const fs::path home = value_of("HF_HOME"); !home.empty()) return home / "hub";
  const fs::path user = value_of("XDG_CACHE_HOME");
  const fs::path caches = user.empty() ? value_of("HOME") / ".cache" : user;
  return caches / "huggingface" / "hub";
}

std::optional<fs::path> tuning_directory(const std::string& option) {
  if (option == "off") return std::nullopt;
  if (!option.empty()) return option;
  if (fs::path own = value_of("ENCORE_CACHE_DIR"); !own.empty()) return own;
  if (const fs::path user = value_of("XDG_CACHE_HOME"); !user.empty()) return user / "encore";
  if (const fs::path home = value_of("HOME"); !home.empty()) return home / ".cache" / "encore";
  return std::nullopt;
}

namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

// Opens the GPU that --device names, or the first of several ranks. Returns null if `auto` finds no
// usable GPU.
std::unique_ptr<Device> open_gpu(const config::Settings& settings) {
  try {
    const size_t colon = settings.device.find(':');
    std::optional<int> ordinal;
    if (colon != std::string::npos) ordinal = std::stoi(settings.device.substr(colon + 1));
    auto device = create_cuda_ranks({.first = ordinal,
                                     .num_ranks = settings.load.rank.size,
                                     .rank_timeout = milliseconds(settings.rank_timeout_s),
                                     .wait_timeout = milliseconds(settings.collective_timeout_s)});
    const std::string choice = device->info().choice;
    if (!ordinal && !choice.empty()) log::info("running on {}", choice);
    device->tuner().configure({settings.tune, tuning_directory(settings.tuning_cache)});
    return device;
  } catch (const Error& error) {
    if (settings.device != "auto" || error.kind() == ErrorKind::kUnsupported) throw;
    log::info("running on the CPU: {}", error.what());
    return nullptr;
  }
}

}  // namespace

std::unique_ptr<Device> open_device(const config::Settings& settings) {
  if (settings.verbose) log::set_level(log::Level::kDebug);
  if (settings.device != "cpu") {
    if (auto gpu = open_gpu(settings)) return gpu;
  }
  return create_cpu_device({.num_threads = settings.threads,
                            .num_ranks = settings.load.rank.size,
                            .rank_timeout = milliseconds(settings.rank_timeout_s)});
}

model::ModelSource open_source(const config::Settings& settings) {
  if (settings.model.rfind("synthetic:", 0) == 0) return model::find_model(settings.model);
  return model::find_model(model_directory(settings.model).string());
}

model::ModelSource open_draft_source(const config::Settings& settings) {
  if (settings.draft_model.rfind("synthetic:", 0) == 0)
    return model::find_model(settings.draft_model);
  return model::find_model(model_directory(settings.draft_model, "--draft-model").string());
}

std::optional<text::Tokenizer> open_tokenizer(const model::ModelSource& source) {
  std::error_code ignored;
  if (!source.checkpoint) return std::nullopt;
  if (model::gguf::is_gguf(*source.checkpoint)) {
    const model::gguf::File file(*source.checkpoint);
    if (!file.has("tokenizer.ggml.model")) return std::nullopt;
    return text::Tokenizer::parse(model::gguf::tokenizer_json(file),
                                  model::gguf::tokenizer_config_json(file), file.path().string());
  }
  if (!fs::exists(*source.checkpoint / "tokenizer.json", ignored)) return std::nullopt;
  return text::Tokenizer::load(*source.checkpoint);
}

std::optional<std::string> missing_tokenizer(const model::ModelSource& source) {
  std::error_code ignored;
  if (!source.checkpoint || fs::exists(*source.checkpoint / "tokenizer.json", ignored))
    return std::nullopt;
  if (model::gguf::is_gguf(*source.checkpoint)) {
    if (model::gguf::File(*source.checkpoint).has("tokenizer.ggml.model")) return std::nullopt;
    return fmt::format("{}: no tokenizer in it, so prompts and answers are token ids",
                       source.checkpoint->string());
  }
  const bool has_sentencepiece = fs::exists(*source.checkpoint / "tokenizer.model", ignored);
  return fmt::format(
      "{}: no tokenizer.json, so prompts and answers are token ids{}", source.checkpoint->string(),
      has_sentencepiece ? "; tokenizer.model is not read: AutoTokenizer.from_pretrained(DIRECTORY)"
                          ".save_pretrained(DIRECTORY) of transformers writes a tokenizer.json"
                        : "");
}

std::vector<int32_t> end_tokens(const model::ModelSource& source,
                                const text::Tokenizer* tokenizer) {
  std::vector<int32_t> tokens = source.config.eos_token_ids;
  const auto add = [&](int32_t id, std::string_view file) {
    if (std::ranges::find(tokens, id) != tokens.end()) return;
    tokens.push_back(id);
    if (source.config.eos_token_ids.empty()) return;
    const auto text = tokenizer == nullptr ? std::nullopt : tokenizer->token(id);
    log::warning(
        "the model's files disagree on the end of an answer: {} has the end token {} {:?} "
        "besides; answers end at any of them",
        file, id, text.value_or(""));
  };
  if (source.checkpoint && !model::gguf::is_gguf(*source.checkpoint)) {
    for (const int32_t id : model::config_end_tokens(*source.checkpoint))
      add(id, "config.json");
  }
  if (tokenizer != nullptr && tokenizer->eos_id()) add(*tokenizer->eos_id(), "the tokenizer");
  return tokens;
}

std::unique_ptr<planning::StepLogWriter> open_step_log(const config::Settings& settings) {
  if (settings.step_log.empty()) return nullptr;
  return std::make_unique<planning::StepLogWriter>(settings.step_log);
}

int64_t sequence_limit(const config::Settings& settings, const model::ModelConfig& config,
                       int64_t needed) {
  const int64_t longest = model::longest_sequence(config);
  if (needed > longest) {
    fail(ErrorKind::kUsage,
         "a sequence of {} tokens: the model takes at most {}; shorten the prompt or generate less",
         needed, longest);
  }
  if (settings.max_seq_len && needed > *settings.max_seq_len) {
    fail(ErrorKind::kUsage,
         "a sequence of {} tokens is more than --max-seq-len {}: raise it, to at most {}", needed,
         *settings.max_seq_len, longest);
  }
  return settings.max_seq_len.value_or(needed);
}

runtime::Ladder prompt_sizes(std::span<const int64_t> lengths, int64_t most) {
  const runtime::Ladder ladder = runtime::Ladder::tokens(most);
  std::vector<int64_t> sizes;
  for (const int64_t length : lengths) {
    sizes.push_back(*ladder.bucket(std::min(length, most)));
    const int64_t rest = length % most;
    if (length > most && rest > 0) sizes.push_back(*ladder.bucket(rest));
  }
  return runtime::Ladder(std::move(sizes));
}

namespace {

// Refuses a draft model whose tokenizer has another token than the model's tokenizer for some id,
// because its drafts would hardly ever be accepted. The loader refuses a vocabulary larger than the
// model's. If either model has no tokenizer, nothing is checked.
void check_draft_tokenizer(const model::ModelSource& source, const model::ModelSource& draft) {
  const std::optional<text::Tokenizer> tokenizer = open_tokenizer(source);
  const std::optional<text::Tokenizer> drafts = open_tokenizer(draft);
  if (!tokenizer || !drafts || draft.config.vocab_size > source.config.vocab_size) return;
  for (int32_t id = 0; id < draft.config.vocab_size; ++id) {
    const auto token = tokenizer->token(id);
    const auto other = drafts->token(id);
    if (token == other) continue;
    fail(ErrorKind::kUsage,
         "--draft-model {} has another tokenizer than the model: token {} is {:?} there, and {:?} "
         "in the "
         "model; take a draft model made for this model",
         draft.checkpoint->string(), id, other.value_or(""), token.value_or(""));
  }
}

}  // namespace

std::unique_ptr<loader::LoadedModel> open_model(Device& device, const model::ModelSource& source,
                                                const loader::LoadOptions& given,
                                                const config::Settings& settings) {
  if (given.draft) check_draft_tokenizer(source, *given.draft);
  loader::LoadOptions load = given;
  if (settings.auto_drafts) choose_drafts(device, source, load);
  ENCORE_CHECK(!settings.debug.asks() || settings.load_for_debugging);
  auto model = settings.debug.asks() ? settings.load_for_debugging(device, source, load)
                                     : std::make_unique<loader::LoadedModel>(device, source, load);
  if (load.eager_steps == runtime::EagerSteps::kForbid)
    planning::require_coverage(load.limits, model->executor().coverage());
  if (source.checkpoint && model::gguf::is_gguf(*source.checkpoint))
    log_widened(*source.checkpoint, *model, loader::memory_plan(*model).weights);
  log_start_up(*model, device);
  return model;
}

}  // namespace encore::setup
