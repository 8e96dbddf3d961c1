// Implements `encore chat`, a conversation in the terminal.
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/terminal_prompt.h"
#include "cli/verbs.h"
#include "server/sampling_defaults.h"
#include "setup/open.h"
#include "setup/options.h"
#include "setup/serving.h"
#include "text/answer/answer_markup.h"
#include "text/answer/answer_parser.h"
#include "text/output_text.h"

namespace encore::cli {
namespace {

constexpr const char* kCommands =
    "/retry answers the last message anew, /clear begins a new conversation, /quit ends, as does "
    "Ctrl-D;\na line that ends with \\ goes on in the next, as with Alt-Enter; up and down show "
    "earlier messages;\nCtrl-C stops an answer.\n";

constexpr const char* kChatFooter =
    R"(Write a message and press Enter. /retry answers the last message anew, /clear begins a new conversation,
/quit ends, as does Ctrl-D. A line that ends with \ goes on in the next, and so does one that ends with
Alt-Enter; what is pasted may have several lines. Up and down show the messages before, which may be changed and
sent again. Ctrl-C stops an answer and keeps what came, takes back what is written, or ends. Piped in, each line is
a message; stdout has the answers, one after the other. Sampling is the model's own (its generation_config.json)
but for what flags say, as it is on a server. Reasoning of a model that marks it is shown dimmed, on
stderr where stdout is no terminal, and is no part of the conversation that follows.)";

struct ChatOptions {
  config::Settings settings;
  std::string system;
  std::string adapter;
  std::optional<int64_t> max_tokens;
  SamplingFlags sampling;
};

json::object message(std::string_view role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

class Chat {
 public:
  explicit Chat(const ChatOptions& options)
      : options_(options),
        source_(setup::open_source(options.settings)),
        tokenizer_(setup::open_tokenizer(source_)) {
    if (!tokenizer_) fail(ErrorKind::kUsage, "a conversation needs a tokenizer.json");
    template_.emplace(
        setup::open_chat_template(*source_.checkpoint, options.settings.chat_template));
    if (!template_->exists()) fail(ErrorKind::kUsage, "{}", template_->missing());
    markup_ = text::find_markup(*template_, *tokenizer_);
    const server::SamplingDefaults defaults = server::read_sampling_defaults(*source_.checkpoint);
    sampling_ = options.sampling.over(defaults.params);
    max_tokens_ = options.max_tokens ? options.max_tokens : defaults.max_tokens;
    end_tokens_ = setup::end_tokens(source_, &*tokenizer_);
    device_ = setup::open_device(options.settings);
    loader::LoadOptions load = setup::serving_load_options(options.settings, source_.config, 1);
    setup::use_adapter(options.adapter, load.adapters);
    model_ = setup::open_model(*device_, source_, load, options.settings);
    engine::EngineOptions engine_options = setup::engine_options(options.settings, nullptr);
    engine_options.prefix_cache.emplace();  // so the earlier conversation is not computed again
    engine_.emplace(*model_, engine_options);
    clear();
  }

  void run() {
    if (TerminalPrompt::is_possible()) prompt_.emplace();
    if (is_terminal_) fmt::print(stderr, "{}", kCommands);
    while (const auto line = read_message()) {
      if (*line == "/quit") return;
      if (*line == "/clear") {
        clear();
      } else if (*line == "/retry") {
        retry();
      } else if (line->starts_with('/') && line->find(' ') == std::string::npos) {
        fmt::print(stderr, "{}", kCommands);
      } else if (!line->empty()) {
        messages_.emplace_back(message("user", *line));
        answer();
      }
    }
    if (is_terminal_) print("\n");
  }

 private:
  // Reads a message. Returns nothing at the end of the input.
  std::optional<std::string> read_message() {
    if (prompt_) return prompt_->read();
    for (std::string text;;) {
      if (is_terminal_) print(text.empty() ? "> " : ". ");
      if (!lines_.append(text)) return std::nullopt;
      if (!text.ends_with('\\')) return text;
      text.back() = '\n';
    }
  }

  void clear() {
    messages_.clear();
    if (!options_.system.empty()) messages_.emplace_back(message("system", options_.system));
  }

  void retry() {
    const auto role = [&] { return messages_.back().at("role").as_string(); };
    if (!messages_.empty() && role() == "assistant") messages_.pop_back();
    if (!messages_.empty() && role() == "user") return answer();
    fmt::print(stderr, "there is no message to answer\n");
  }

  // Answers the last message. If there is no answer, removes the message from the conversation, so
  // that the next one can follow.
  void answer() {
    text::Conversation conversation{.messages = messages_};
    template_->fit_contents(conversation.messages);
    const text::ChatPrompt rendered = template_->render(conversation);
    if (const auto* error = std::get_if<text::ChatError>(&rendered))
      return take_back(error->message);
    const std::string& prompt = std::get<std::string>(rendered);
    engine::Request request{.prompt = tokenizer_->encode(prompt, false),
                            .sampling = sampling_,
                            .stop_tokens = end_tokens_,
                            .adapter = options_.adapter};
    const auto length = static_cast<int64_t>(request.prompt.size());
    const int64_t room = model_->limits().max_seq_len - length;
    if (room < 1) {
      return take_back(
          fmt::format("the conversation has {} tokens and the model takes {}: /clear begins anew",
                      length, model_->limits().max_seq_len));
    }
    request.max_tokens = std::min(max_tokens_.value_or(room), room);
    request.sampling.seed += num_answers_++;
    text::StopRules stops{.end_tokens = request.stop_tokens};
    text::AnswerRules rules{.has_reasoning = markup_.has_reasoning};
    if (markup_.has_reasoning) {
      stops.shown_tokens = markup_.reasoning_tokens;
      rules.starts_in_reasoning = text::opens_reasoning(prompt);
    }
    text::OutputText output(*tokenizer_, request.prompt, std::move(stops));
    text::AnswerParser parser(rules);
    const auto added = engine_->add(std::move(request));
    if (const auto* rejection = std::get_if<engine::Rejection>(&added))
      return take_back(rejection->why);
    std::string content = stream(std::get<engine::SequenceId>(added), output, parser);
    messages_.emplace_back(message("assistant", std::move(content)));
  }

  // Prints the answer as it is generated. Returns the text that goes into the history.
  std::string stream(engine::SequenceId sequence, text::OutputText& output,
                     text::AnswerParser& parser) {
    std::string content;
    bool has_reasoned = false;
    int64_t num_tokens = 0;
    bool is_cut = false;
    const auto show = [&](const text::AnswerParts& parts) {
      for (const auto& [kind, piece] : parts) {
        if (kind == text::AnswerPart::Kind::kReasoning) {
          has_reasoned = true;
          show_reasoning(piece);
          continue;
        }
        if (content.empty() && has_reasoned) show_reasoning("\n\n");
        content += piece;
        print(piece);
      }
    };
    const InterruptScope interrupt;
    const auto on_token = [&](const engine::Generated& generated) {
      if (generated.finish == engine::Finish::kNoAdapter)
        fail(ErrorKind::kModel, "{}", generated.problem);
      ++num_tokens;
      is_cut = generated.finish == engine::Finish::kLength;
      show(parser.push(output.push(std::span(&generated.token, 1))));
    };
    while (!interrupt.interrupted() && engine_->step(on_token)) {
    }
    engine_->abort(sequence);
    show(parser.push(output.finish()));
    show(parser.finish());
    if (has_reasoned && content.empty()) show_reasoning("\n");
    print("\n");
    if (is_cut && dims_) fmt::print(stderr, "(cut at {} tokens)\n", num_tokens);
    return content;
  }

  // Prints reasoning: dimmed on a terminal, and otherwise to stderr, because stdout gets only
  // answers.
  void show_reasoning(std::string_view piece) const {
    if (dims_) return print(fmt::format("\x1b[2m{}\x1b[22m", piece));
    fmt::print(stderr, "{}", piece);
  }

  void take_back(const std::string& why) {
    fmt::print(stderr, "{}\n", why);
    messages_.pop_back();
  }

  const ChatOptions& options_;
  model::ModelSource source_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> template_;
  text::AnswerMarkup markup_;
  sample::SamplingParams sampling_;
  // The most tokens of an answer; absent: as many as there is room for.
  std::optional<int64_t> max_tokens_;
  std::vector<int32_t> end_tokens_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<loader::LoadedModel> model_;
  std::optional<engine::Engine> engine_;
  json::array messages_;
  int64_t num_answers_ = 0;
  std::optional<TerminalPrompt> prompt_;
  LineReader lines_;  // reads the input where prompt_ is absent
  bool is_terminal_ = isatty(STDIN_FILENO) == 1;
  bool dims_ = isatty(STDOUT_FILENO) == 1;
};

}  // namespace

void add_chat(Command& app) {
  Command* verb = app.add_subcommand("chat", "A conversation in the terminal");
  auto options =
      std::make_shared<ChatOptions>();  // shared by the parser's options and the callback
  verb->add_option("--system", options->system, "What the model is told before the conversation")
      ->type_name("TEXT");
  verb->add_option(
          "--max-tokens", options->max_tokens,
          "Tokens of an answer at most. Default: the model's own limit, or what it has room for")
      ->range(int64_t{1}, int64_t{1} << 30)
      ->type_name("N");
  verb->add_option("--adapter", options->adapter,
                   "The adapter (LoRA) that answers: a name of --lora, or the directory of one")
      ->type_name("NAME|DIR");
  options->sampling.add_to(*verb);
  Taken taken = running_options();
  taken.also = {"chat_template"};
  taken.but = {"step_log"};
  take_options(*verb, options->settings, taken);
  verb->footer(kChatFooter);
  verb->callback([options] { Chat(*options).run(); });
}

}  // namespace encore::cli
