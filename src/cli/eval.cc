// Implements `encore eval`, which measures how well a model predicts a text, and how far it is from
// another model.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backend/tuning.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rounding.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "diagnose/probe.h"
#include "measure/eval_text.h"
#include "measure/logits_comparison.h"
#include "measure/prompt_step.h"
#include "measure/report_page.h"
#include "measure/weight_errors.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr std::string_view kFloat32 = "float32";
constexpr double kMaxReferenceBytes = 8e9;
constexpr size_t kWorstTensors = 10;
constexpr int64_t kLayerTokens = 64;  // tokens of the text on which errors by layer are measured

constexpr const char* kEvalFooter =
    R"(The text is cut into windows, each of which is a sequence of its own, with the begin token where the tokenizer adds
one. Perplexity is of every token but the first of a window. With --against, logits of the reference are kept in memory, in
float32. Errors by layer are of the residual stream behind it, on the first 64 tokens; errors of tensors are of the numbers
that weights stand for.

    encore eval --model DIR-FP8 --against DIR                            what a checkpoint in fewer bits lost
    encore eval --model DIR --quantize fp8 --against DIR                 what --quantize would cost
    encore eval --model DIR-FP8 --activations 16-bit --against float32   what is lost beside the weights as stored
    encore eval --model FILE.gguf --against DIR                          what blocks of few bits lost)";

struct EvalOptions {
  config::Settings settings;
  std::string against;  // empty: no reference
  std::string text;     // path of a file; empty: the bundled text
  std::string html;
  int64_t tokens = 2048;
  int64_t window = 512;
  bool json = false;
};

// Holds the results of one of the two compared models.
struct Evaluated {
  std::string name;
  // Holds the logits of each window, [tokens, vocabulary]. Only the reference's logits are kept.
  std::vector<std::vector<float>> logits;
  std::vector<measure::Residual> residuals;
  std::set<std::string> tensors;  // names of the tensors that its weights were made from
  double tokens_per_second = 0;
  int64_t weight_bytes = 0;
};

struct Evaluation {
  std::string model;
  std::string numbers;  // how options change the model's numbers
  std::string against;
  measure::LogitsFigures figures;
  double tokens_per_second = 0;
  double reference_tokens_per_second = 0;
  int64_t weight_bytes = 0;
  int64_t reference_weight_bytes = 0;
  // Holds the name of each layer, and the error of the residual stream behind it.
  std::vector<std::pair<std::string, double>> layers;
  std::vector<measure::WeightError> tensors;  // ordered by error, largest first
};

using Windows = std::vector<std::vector<int32_t>>;

// Returns how options change the model's numbers, such as ", quantized to fp8".
std::string numbers_text(const model::FormatOptions& formats) {
  const std::string weights = formats.quantize ? ", quantized to fp8" : "";
  switch (formats.activations) {
    case model::Activations::kAsMade:
      return weights;
    case model::Activations::kFp8:
      return weights + ", activations in fp8";
    case model::Activations::kStatic:
      return weights + ", activations in fp8 by static scales";
    case model::Activations::k16Bit:
      return weights + ", activations in 16 bits";
  }
  return weights;
}

// Returns the text of a file, or the bundled text if the path is empty.
std::string read_text(const std::string& path) {
  if (path.empty()) return std::string(measure::kEvalText);
  try {
    return json::read_file(path);
  } catch (const Error& error) {  // the error's own kind would blame the model
    fail(ErrorKind::kUsage, "--text {}", error.what());
  }
}

Windows read_windows(const EvalOptions& options, const model::ModelSource& source) {
  const auto tokenizer = setup::open_tokenizer(source);
  if (!tokenizer) {
    fail(ErrorKind::kUsage, "eval needs a tokenizer beside the model: give a checkpoint with one");
  }
  std::vector<int32_t> ids = tokenizer->encode(read_text(options.text));
  // The begin token, which the tokenizer puts in front of a text, is repeated in front of each
  // window.
  std::vector<int32_t> begin;
  if (!ids.empty() && ids.front() == tokenizer->bos_id()) {
    begin.push_back(ids.front());
    ids.erase(ids.begin());
  }
  ids.resize(std::min(ids.size(), static_cast<size_t>(options.tokens)));
  Windows windows;
  const size_t of_text = static_cast<size_t>(options.window) - begin.size();
  for (size_t first = 0; first < ids.size(); first += of_text) {
    std::vector<int32_t> window = begin;
    const size_t last = std::min(first + of_text, ids.size());
    window.insert(window.end(), ids.begin() + static_cast<std::ptrdiff_t>(first),
                  ids.begin() + static_cast<std::ptrdiff_t>(last));
    if (window.size() > 1) windows.push_back(std::move(window));
  }
  if (windows.empty()) fail(ErrorKind::kUsage, "the text has no two tokens: give a longer one");
  return windows;
}

std::unique_ptr<loader::LoadedModel> load_for_eval(Device& device, const model::ModelSource& source,
                                                   const EvalOptions& options,
                                                   const config::Settings& settings,
                                                   const Windows& windows) {
  loader::LoadOptions load = setup::load_options(settings);
  load.logits = model::LogitsRows::kAll;
  load.graphs = runtime::Graphs::kNone;
  load.limits.max_batch_size = 1;
  load.limits.max_num_tokens = options.window;
  load.limits.max_seq_len = setup::sequence_limit(settings, source.config, options.window);
  load.kv_tokens = round_up(options.window, load.page_size);
  std::vector<int64_t> lengths;
  for (const std::vector<int32_t>& window : windows)
    lengths.push_back(std::ssize(window));
  load.tokens = setup::prompt_sizes(lengths, options.window);
  return setup::open_model(device, source, load, settings);
}

// Runs all windows, and calls `take` with the logits of each.
template <typename Take>
Evaluated evaluate(Device& device, const EvalOptions& options, const config::Settings& settings,
                   const Windows& windows, const Take& take) {
  const model::ModelSource source = setup::open_source(settings);
  const auto loaded = load_for_eval(device, source, options, settings, windows);
  loader::LoadedModel& model = *loaded;
  const Tuner::Phase tuning(device.tuner());
  Evaluated evaluated{.name = model_text(settings)};
  const ir::Graph& graph = model.program().graph;
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    evaluated.weight_bytes += graph.value(id).type.num_bytes({});
    for (const ir::WeightPiece& piece : graph.value(id).recipe.pieces)
      evaluated.tensors.insert(piece.tensor);
  }
  const auto vocabulary = static_cast<size_t>(source.config.vocab_size);
  double seconds = 0;
  int64_t num_tokens = 0;
  for (size_t i = 0; i < windows.size(); ++i) {
    const std::vector<int32_t>& window = windows[i];
    const bool fits = std::ranges::all_of(
        window, [&](int32_t id) { return static_cast<size_t>(id) < vocabulary; });
    if (!fits)
      fail(ErrorKind::kUsage, "{}: the text's tokens are outside its vocabulary", evaluated.name);
    std::vector<float> logits(window.size() * vocabulary);
    const auto start = std::chrono::steady_clock::now();
    measure::run_prompt_step(model, window, 0, static_cast<int64_t>(window.size()));
    diagnose::read_output(model.executor(), 0, logits.data(),
                          static_cast<int64_t>(logits.size() * sizeof(float)));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    // The first window is not timed, because kernels are chosen while it runs.
    if (i > 0 || windows.size() == 1) {
      seconds += took.count();
      num_tokens += static_cast<int64_t>(window.size());
    }
    take(i, std::move(logits));
  }
  evaluated.tokens_per_second = static_cast<double>(num_tokens) / seconds;
  const size_t seen = std::min(windows[0].size(), static_cast<size_t>(kLayerTokens));
  evaluated.residuals = measure::residuals(model, std::span(windows[0]).first(seen));
  return evaluated;
}

// Returns the settings of the reference model: another checkpoint as it is stored, or this one in
// float32.
config::Settings reference_settings(const EvalOptions& options) {
  config::Settings settings = options.settings;
  settings.load.formats = {.activations = model::Activations::k16Bit};
  if (options.against == kFloat32) {
    settings.load.dtype = DType::kF32;
    settings.load.kv_dtype = std::nullopt;
  } else {
    settings.model = options.against;
    settings.load.formats = {};
  }
  return settings;
}

std::vector<measure::WeightError> worst_tensors(const std::set<std::string>& tensors,
                                                const config::Settings& ours,
                                                const config::Settings& theirs) {
  const model::ModelSource source = setup::open_source(ours);
  const model::ModelSource other = setup::open_source(theirs);
  if (!source.checkpoint || !other.checkpoint) return {};
  const model::Checkpoint checkpoint(*source.checkpoint);
  const model::Checkpoint reference(*other.checkpoint);
  const model::WeightFormats formats(source.config, ours.load.formats, &checkpoint);
  const model::WeightFormats reference_formats(other.config, theirs.load.formats, &reference);
  const std::vector<std::string> names(tensors.begin(), tensors.end());
  std::vector<measure::WeightError> errors =
      measure::weight_errors(names, {checkpoint, formats}, {reference, reference_formats});
  std::erase_if(errors, [](const measure::WeightError& tensor) { return tensor.error == 0; });
  errors.resize(std::min(errors.size(), kWorstTensors));
  return errors;
}

Evaluation evaluation_of(const EvalOptions& options) {
  const std::unique_ptr<Device> device = setup::open_device(options.settings);
  const model::ModelSource source = setup::open_source(options.settings);
  const Windows windows = read_windows(options, source);
  Evaluation report{.model = model_text(options.settings),
                    .numbers = numbers_text(options.settings.load.formats),
                    .against = options.against};
  std::optional<Evaluated> reference;
  if (!options.against.empty()) {
    double bytes = 0;
    for (const auto& window : windows)
      bytes +=
          4.0 * static_cast<double>(window.size()) * static_cast<double>(source.config.vocab_size);
    if (bytes > kMaxReferenceBytes) {
      fail(ErrorKind::kUsage,
           "the reference's logits would take {:.1f} GB of memory: give fewer --tokens",
           bytes * 1e-9);
    }
    std::vector<std::vector<float>> kept(windows.size());
    reference = evaluate(*device, options, reference_settings(options), windows,
                         [&](size_t i, std::vector<float> logits) { kept[i] = std::move(logits); });
    reference->logits = std::move(kept);
  }
  measure::LogitsComparison comparison;
  const auto vocabulary = static_cast<size_t>(source.config.vocab_size);
  const Evaluated ours = evaluate(
      *device, options, options.settings, windows, [&](size_t i, const std::vector<float>& logits) {
        if (reference && reference->logits[i].size() != logits.size())
          fail(ErrorKind::kUsage, "--against {}: its vocabulary is another", options.against);
        for (size_t t = 0; t + 1 < windows[i].size(); ++t) {
          const auto row = [&](const std::vector<float>& of) {
            return std::span(of).subspan(t * vocabulary, vocabulary);
          };
          comparison.add(row(logits),
                         reference ? row(reference->logits[i]) : std::span<const float>(),
                         windows[i][t + 1]);
        }
      });
  report.figures = comparison.figures();
  report.tokens_per_second = ours.tokens_per_second;
  report.weight_bytes = ours.weight_bytes;
  if (!reference) return report;
  report.reference_tokens_per_second = reference->tokens_per_second;
  report.reference_weight_bytes = reference->weight_bytes;
  for (size_t i = 0; i < std::min(ours.residuals.size(), reference->residuals.size()); ++i) {
    // Residuals with an even index stand behind the embedding or behind the second half of a layer.
    const bool is_layer = i % 2 == 0;
    if (!is_layer || ours.residuals[i].value != reference->residuals[i].value) continue;
    report.layers.emplace_back(
        i == 0 ? "embedding" : fmt::format("layer {}", i / 2 - 1),
        measure::relative_error(ours.residuals[i].numbers, reference->residuals[i].numbers));
  }
  report.tensors = worst_tensors(ours.tensors, options.settings, reference_settings(options));
  return report;
}

Table figures_table(const Evaluation& report) {
  const measure::LogitsFigures& f = report.figures;
  const bool compares = !report.against.empty();
  Table table({"", "model", "reference"});
  const auto add = [&](const char* what, std::string ours, std::string theirs) {
    table.add({what, std::move(ours), compares ? std::move(theirs) : "-"});
  };
  add("perplexity", fmt::format("{:.4f}", f.perplexity),
      fmt::format("{:.4f}", f.reference_perplexity));
  add("prefill, tokens/s", fmt::format("{:.0f}", report.tokens_per_second),
      fmt::format("{:.0f}", report.reference_tokens_per_second));
  add("weights", bytes_text(report.weight_bytes), bytes_text(report.reference_weight_bytes));
  if (!compares) return table;
  table.add({"KL divergence, mean (nats)", fmt::format("{:.3e}", f.mean_kl), "-"});
  table.add({"KL divergence, 99 % (nats)", fmt::format("{:.3e}", f.kl_99), "-"});
  table.add({"KL divergence, largest (nats)", fmt::format("{:.3e}", f.max_kl), "-"});
  table.add({"same likeliest token", percent(f.same_top), "-"});
  table.add({"RMS of the difference in p", fmt::format("{:.3e}", f.rms_probability), "-"});
  return table;
}

Table layer_table(const Evaluation& report) {
  Table table({"residual stream behind", "relative error"});
  for (const auto& [layer, error] : report.layers)
    table.add({layer, fmt::format("{:.3e}", error)});
  return table;
}

Table tensor_table(const Evaluation& report) {
  Table table({"tensor", "relative error"});
  for (const measure::WeightError& tensor : report.tensors)
    table.add({tensor.tensor, fmt::format("{:.3e}", tensor.error)});
  return table;
}

std::string evaluation_title(const Evaluation& report) {
  return fmt::format("{}{}{} on {} tokens", report.model, report.numbers,
                     report.against.empty() ? "" : " against " + report.against,
                     report.figures.num_tokens);
}

std::string evaluation_text(const Evaluation& report) {
  std::string text = evaluation_title(report) + "\n" + figures_table(report).text();
  if (!report.layers.empty()) text += "\n" + layer_table(report).text();
  if (!report.tensors.empty()) text += "\n" + tensor_table(report).text();
  return text;
}

json::object evaluation_json(const Evaluation& report) {
  const measure::LogitsFigures& f = report.figures;
  json::object object{{"model", report.model},
                      {"tokens", f.num_tokens},
                      {"perplexity", f.perplexity},
                      {"tokens_per_second", report.tokens_per_second},
                      {"weight_bytes", report.weight_bytes}};
  if (report.against.empty()) return object;
  object["against"] = report.against;
  object["reference_perplexity"] = f.reference_perplexity;
  object["reference_tokens_per_second"] = report.reference_tokens_per_second;
  object["reference_weight_bytes"] = report.reference_weight_bytes;
  object["kl"] = json::object{{"mean", f.mean_kl}, {"p99", f.kl_99}, {"max", f.max_kl}};
  object["same_top"] = f.same_top;
  object["rms_probability"] = f.rms_probability;
  json::array layers;
  for (const auto& [layer, error] : report.layers)
    layers.push_back(json::object{{"behind", layer}, {"error", error}});
  object["layers"] = std::move(layers);
  json::array tensors;
  for (const measure::WeightError& tensor : report.tensors)
    tensors.push_back(json::object{{"tensor", tensor.tensor}, {"error", tensor.error}});
  object["worst_tensors"] = std::move(tensors);
  return object;
}

void eval(const EvalOptions& options) {
  const Evaluation report = evaluation_of(options);
  const json::object object = evaluation_json(report);
  if (!options.html.empty())
    write_file(options.html, measure::report_page("eval", evaluation_title(report), object));
  print(options.json ? json::to_text(object) + "\n" : evaluation_text(report));
}

}  // namespace

void add_eval(Command& app) {
  Command* verb = app.add_subcommand(
      "eval", "What a model makes of a text, and how far it is from another or from float32");
  // The options are shared by the parser and the callback.
  auto options = std::make_shared<EvalOptions>();
  verb->add_option("--against", options->against,
                   "The reference: another checkpoint, or float32, this one without rounding")
      ->type_name("MODEL");
  verb->add_option("--text", options->text, "A file with the text; else a bundled one")
      ->type_name("FILE");
  verb->add_option("--tokens", options->tokens, "The most tokens of the text")
      ->type_name("N")
      ->range(int64_t{2}, int64_t{1'000'000})
      ->capture_default_str();
  verb->add_option("--window", options->window, "Tokens of a sequence")
      ->type_name("N")
      ->range(int64_t{2}, int64_t{65536})
      ->capture_default_str();
  verb->add_option("--html", options->html, "Also write a page")->type_name("FILE");
  add_json_flag(*verb, options->json);
  using config::Group;
  take_options(*verb, options->settings,
               {.groups = {Group::kModel, Group::kDevice, Group::kCompiler}});
  verb->footer(kEvalFooter);
  verb->callback([options] { eval(*options); });
}

}  // namespace encore::cli
