#include "cli/generate_prompts.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "engine/engine.h"
#include "loader/memory_plan.h"
#include "measure/report.h"
#include "setup/open.h"
#include "setup/options.h"
#include "setup/serving.h"
#include "text/output_text.h"

namespace encore::cli {
namespace {

constexpr double kWorthALine = 1;  // seconds after which progress is worth a line

// Holds one text to generate, and the part of it that has been generated.
struct Text {
  const PromptLine* prompt = nullptr;
  int64_t index = 0;   // position of the prompt in the file
  int64_t number = 0;  // position among the prompt's texts
  std::optional<text::OutputText> output;
  std::vector<int32_t> ids;
  std::string shown;
  std::string finish;  // empty while the text is being generated
};

class Batch {
 public:
  explicit Batch(const GeneratePromptsOptions& options)
      : options_(options),
        source_(setup::open_source(options.settings)),
        tokenizer_(setup::open_tokenizer(source_)),
        where_(options.path == "-" ? "standard input" : options.path),
        prompts_(options.path.empty()
                     ? std::vector{options.defaults}
                     : parse_prompts(read_input(options.path), options.defaults, where_)) {
    for (PromptLine& prompt : prompts_)
      prepare(prompt);
  }

  void run() {
    const auto step_log = setup::open_step_log(options_.settings);
    const std::unique_ptr<Device> device = setup::open_device(options_.settings);
    const auto model = setup::open_model(*device, source_, load(), options_.settings);
    engine::Engine engine(*model, setup::engine_options(options_.settings, step_log.get()));
    add_all(engine);
    log::Progress progress("generating", static_cast<double>(texts_.size()), "texts", kWorthALine);
    const InterruptScope interrupt;
    const auto on_token = [&](const engine::Generated& generated) { take(engine, generated); };
    while (!interrupt.interrupted() && engine.step(on_token)) {
      print_complete();
      progress.update(static_cast<double>(num_done_));
    }
    if (step_log) step_log->flush();
    if (options_.stats) {
      fmt::print(stderr, "\n{}\n{}\n", measure::step_table(engine.step_counts()),
                 measure::memory_table(loader::memory_plan(*model)));
    }
    if (interrupt.interrupted()) throw Interrupted();
  }

 private:
  // Sets the prompt's ids and its length, and refuses a prompt that can never run.
  void prepare(PromptLine& prompt) {
    const std::string place =
        where_.empty() ? "--prompt" : fmt::format("{}:{}", where_, prompt.line);
    if (!tokenizer_ && (prompt.ids.empty() || !prompt.stop.empty())) {
      fail(ErrorKind::kUsage,
           "{}: text needs a tokenizer.json beside the model; give prompt_ids, and no stop", place);
    }
    if (prompt.ids.empty()) prompt.ids = tokenizer_->encode(prompt.text);
    const int64_t vocab = source_.config.vocab_size;
    for (const int32_t id : prompt.ids) {
      if (id >= vocab)
        fail(ErrorKind::kUsage, "{}: token {} is outside the vocabulary of {}", place, id, vocab);
    }
    const auto length = static_cast<int64_t>(prompt.ids.size());
    const int64_t longest = setup::longest_text(options_.settings, source_.config);
    if (!prompt.max_tokens) prompt.max_tokens = setup::default_max_tokens(length, longest);
    if (length + *prompt.max_tokens > longest) {
      fail(ErrorKind::kUsage,
           "{}: a prompt of {} tokens and {} to generate are more than the {} of one sequence",
           place, length, *prompt.max_tokens, longest);
    }
    longest_ = std::max(longest_, length + *prompt.max_tokens);
    num_texts_ += prompt.n;
  }

  // Returns loading options whose sequences are as long as the prompts need.
  [[nodiscard]] loader::LoadOptions load() const {
    loader::LoadOptions load = setup::serving_load_options(
        options_.settings, source_.config, std::min(num_texts_, setup::kServingMaxBatchSize));
    if (!options_.settings.max_seq_len) load.limits.max_seq_len = longest_;
    for (const PromptLine& prompt : prompts_)
      setup::use_adapter(prompt.adapter, load.adapters);
    return load;
  }

  void add_all(engine::Engine& engine) {
    texts_.reserve(num_texts_);
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const PromptLine& prompt = prompts_[i];
      for (int64_t k = 0; k < prompt.n; ++k) {
        engine::Request request{
            .prompt = prompt.ids, .max_tokens = *prompt.max_tokens, .sampling = prompt.sampling};
        request.sampling.seed += k;
        request.adapter = prompt.adapter;
        if (!prompt.ignore_eos) request.stop_tokens = source_.config.eos_token_ids;
        const auto added = engine.add(std::move(request));
        if (const auto* rejection = std::get_if<engine::Rejection>(&added))
          fail(ErrorKind::kUsage, "{}:{}: {}", where_, prompt.line, rejection->why);
        by_sequence_[std::get<engine::SequenceId>(added)] = texts_.size();
        Text& text = texts_.emplace_back(Text{&prompt, static_cast<int64_t>(i), k});
        if (tokenizer_)
          text.output.emplace(*tokenizer_, prompt.ids, text::StopRules{.strings = prompt.stop});
      }
    }
  }

  void take(engine::Engine& engine, const engine::Generated& generated) {
    if (generated.finish == engine::Finish::kNoAdapter)
      fail(ErrorKind::kModel, "{}", generated.problem);
    Text& text = texts_[by_sequence_.at(generated.sequence)];
    text.ids.push_back(generated.token);
    if (text.output) text.shown += text.output->push(std::span(&generated.token, 1));
    const bool is_stopped = text.output && text.output->is_stopped();
    if (!is_stopped && !generated.finish) return;
    if (text.output) text.shown += text.output->finish();
    text.finish = is_stopped ? "stop" : name(*generated.finish);
    if (!generated.finish) engine.abort(generated.sequence);
    ++num_done_;
  }

  void print_complete() {
    for (; num_printed_ < texts_.size() && !texts_[num_printed_].finish.empty(); ++num_printed_) {
      const Text& text = texts_[num_printed_];
      print(json::to_text(
                json::object{{"index", text.index},
                             {"id", text.prompt->id},
                             {"number", text.number},
                             {"prompt_tokens", text.prompt->ids.size()},
                             {"ids", json::array(text.ids.begin(), text.ids.end())},
                             {"text", text.output ? json::value(text.shown) : json::value(nullptr)},
                             {"finish", text.finish}}) +
            "\n");
    }
  }

  const GeneratePromptsOptions& options_;
  model::ModelSource source_;
  std::optional<text::Tokenizer> tokenizer_;
  std::string where_;
  std::vector<PromptLine> prompts_;
  int64_t longest_ = 0;  // most tokens of a prompt and its text together
  int64_t num_texts_ = 0;
  std::vector<Text> texts_;
  std::unordered_map<engine::SequenceId, size_t> by_sequence_;
  size_t num_printed_ = 0;
  int64_t num_done_ = 0;
};

}  // namespace

void generate_prompts(const GeneratePromptsOptions& options) {
  Batch(options).run();
}

}  // namespace encore::cli
