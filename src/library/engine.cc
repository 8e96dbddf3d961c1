#include "library/engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/serving_loop.h"
#include "grammar/compiler.h"
#include "setup/open.h"
#include "setup/serving.h"

namespace encore::library {

// Holds the loaded model and its loop. The thread that runs the steps owns it.
struct Engine::Model {
  explicit Model(const config::Settings& settings)
      : source(setup::open_source(settings)),
        tokenizer(setup::open_tokenizer(source)),
        chat_template(tokenizer ? std::optional(setup::open_chat_template(*source.checkpoint,
                                                                          settings.chat_template))
                                : std::nullopt),
        end_tokens(setup::end_tokens(source, tokenizer ? &*tokenizer : nullptr)),
        step_log(setup::open_step_log(settings)),
        device(setup::open_device(settings)),
        loaded(setup::open_model(*device, source,
                                 setup::serving_load_options(settings, source.config), settings)),
        longest_text(
            std::min(loaded->limits().max_seq_len, loaded->num_pages() * loaded->page_size())),
        loop(*loaded, setup::serving_options(settings, step_log.get())),
        grammars([this] { return vocabulary(); }) {}

  [[nodiscard]] grammar::Vocabulary vocabulary() const {
    if (!tokenizer) fail(ErrorKind::kUnsupported, "the model has no tokenizer.json");
    return {*tokenizer, source.config.vocab_size, end_tokens};
  }

  model::ModelSource source;
  std::optional<text::Tokenizer> tokenizer;
  std::optional<text::ChatTemplate> chat_template;  // set if there is a tokenizer; may have no text
  std::vector<int32_t> end_tokens;
  std::unique_ptr<planning::StepLogWriter> step_log;  // may be null
  std::unique_ptr<Device> device;
  std::unique_ptr<engine::LoadedModel> loaded;
  int64_t longest_text;  // most tokens of a prompt and its answer together
  engine::ServingLoop loop;
  grammar::Compiler grammars;
};

Engine::Engine(const config::Settings& settings) {
  // stderr belongs to the program that uses libencore.so, so Encore only writes warnings there by
  // default.
  static std::once_flag is_quiet;
  std::call_once(is_quiet, [] { log::set_level(log::Level::kWarning); });
  std::promise<void> opened;
  std::future<void> is_open = opened.get_future();
  steps_ = std::thread([&] { run_steps(settings, opened); });
  try {
    is_open.get();
  } catch (...) {
    steps_.join();
    throw;
  }
  texts_ = std::thread([this] { make_texts(); });
}

void Engine::run_steps(const config::Settings& settings, std::promise<void>& opened) {
  std::unique_ptr<Model> model;
  try {
    model = std::make_unique<Model>(settings);
  } catch (...) {
    return opened.set_exception(std::current_exception());
  }
  model_ = model.get();
  opened.set_value();
  try {
    model->loop.run();
  } catch (const std::exception&) {
    // The loop has already ended every request with the exception's message, and submit() refuses
    // further requests with that message. So nothing is left to report.
  }
  if (model->step_log) model->step_log->flush();
  {
    const std::lock_guard lock(mutex_);
    has_run_ = true;
  }
  ends_.notify_all();
  closes_.get_future().wait();
}

std::vector<int32_t> Engine::tokens_of(const Prompt& prompt, const Parameters& parameters) const {
  if (const auto* tokens = std::get_if<std::vector<int32_t>>(&prompt)) return *tokens;
  if (!model_->tokenizer) {
    fail(ErrorKind::kUsage,
         "the prompt is text, and the model has no tokenizer.json: submit token ids");
  }
  const text::Tokenizer& tokenizer = *model_->tokenizer;
  if (const auto* text = std::get_if<std::string>(&prompt)) return tokenizer.encode(*text);
  text::Conversation conversation{.messages = std::get<Chat>(prompt).messages,
                                  .variables = parameters.template_variables};
  model_->chat_template->fit_contents(conversation.messages);
  const text::ChatPrompt rendered = model_->chat_template->render(conversation);
  if (const auto* error = std::get_if<text::ChatError>(&rendered))
    fail(ErrorKind::kUsage, "messages: {}", error->message);
  // The template has already written the special tokens, so encode() adds none.
  return tokenizer.encode(std::get<std::string>(rendered), false);
}

std::variant<std::shared_ptr<Request>, engine::Refusal> Engine::submit(
    const Prompt& prompt, const Parameters& parameters) {
  const Model& model = *model_;
  engine::Request request{.prompt = tokens_of(prompt, parameters),
                          .sampling = parameters.sampling,
                          .priority = parameters.priority,
                          .cache_salt = parameters.cache_salt,
                          .adapter = parameters.adapter};
  if (parameters.grammar) {
    const grammar::Compiler::Result compiled = model_->grammars.compile(*parameters.grammar);
    if (const auto* refusal = std::get_if<grammar::Refusal>(&compiled)) {
      if (refusal->kind == grammar::Refusal::Kind::kBusy)
        return engine::Refusal{engine::RefusalKind::kQueueFull, refusal->why};
      fail(ErrorKind::kUsage, "{}", refusal->why);
    }
    request.grammar =
        std::make_shared<const grammar::Grammar>(std::get<grammar::Grammar>(compiled));
  }
  request.max_tokens = parameters.max_tokens.value_or(
      setup::default_max_tokens(std::ssize(request.prompt), model.longest_text));
  text::StopRules stops = parameters.stops;
  if (!parameters.ignores_eos) stops.end_tokens = model.end_tokens;
  request.min_tokens = stops.min_tokens;
  request.stop_tokens = stops.end_tokens;
  request.stop_tokens.insert(request.stop_tokens.end(), stops.tokens.begin(), stops.tokens.end());
  std::optional<text::OutputText> output;
  if (model.tokenizer) {
    output.emplace(*model.tokenizer, request.prompt, std::move(stops));
  } else if (!stops.strings.empty()) {
    fail(ErrorKind::kUsage,
         "stop is text, and the model has no tokenizer.json: give stop_token_ids");
  }
  auto taken = std::make_shared<Request>(std::move(output));  // shared by the caller and the sink
  taken->num_top =
      std::clamp<int64_t>(request.sampling.num_logprobs, 0, model.source.config.vocab_size);
  std::vector<engine::Submission> submissions;
  submissions.push_back({std::move(request), sink(taken)});
  count_live(1);
  const std::lock_guard lock(submit_mutex_);
  auto submitted = model_->loop.submit(std::move(submissions));
  if (auto* refusal = std::get_if<engine::Refusal>(&submitted)) {
    count_live(-1);
    return std::move(*refusal);
  }
  taken->id = std::get<std::vector<engine::RequestId>>(submitted).front();
  return taken;
}

void Engine::count_live(int64_t change) {
  {
    const std::lock_guard lock(mutex_);
    num_live_ += change;
  }
  ends_.notify_all();
}

engine::Sink Engine::sink(std::shared_ptr<Request> request) {
  return [this, request = std::move(request)](const engine::Update& update) {
    {
      const std::lock_guard lock(mutex_);
      deliveries_.push_back({request,
                             {update.tokens.begin(), update.tokens.end()},
                             {update.logprobs.begin(), update.logprobs.end()},
                             update.num_cached,
                             update.ending});
    }
    arrives_.notify_one();
  };
}

void Engine::make_texts() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrives_.wait(lock, [this] { return !deliveries_.empty() || (is_closing_ && num_live_ == 0); });
    if (deliveries_.empty()) return;
    const std::vector<Delivery> deliveries = std::exchange(deliveries_, {});
    lock.unlock();
    for (const Delivery& delivery : deliveries)
      deliver(delivery);
    lock.lock();
  }
}

void Engine::deliver(const Delivery& delivery) {
  Request& request = *delivery.request;
  Update update = request.read({.tokens = delivery.tokens,
                                .ending = delivery.ending,
                                .num_cached = delivery.num_cached,
                                .logprobs = delivery.logprobs});
  const std::optional<Finish> finish = update.finish;
  // A stop string ended the answer. The thread that runs steps does not search for stop strings, so
  // it would generate on unless the request is aborted.
  if (finish && !delivery.ending) abort(request);
  if (finish) {
    const std::lock_guard lock(mutex_);
    ++finished_.at(static_cast<size_t>(*finish));
  }
  request.give(std::move(update));
  if (finish) count_live(-1);
}

void Engine::abort(const Request& request) {
  const std::lock_guard lock(submit_mutex_);
  if (model_ != nullptr) model_->loop.abort(request.id);
}

std::optional<engine::Refusal> Engine::load_adapter(const std::string& name,
                                                    const std::string& path, bool replaces) {
  return model_->loop.load_adapter(name, path, replaces);
}

std::optional<engine::Refusal> Engine::unload_adapter(const std::string& name) {
  return model_->loop.unload_adapter(name);
}

bool Engine::drain(Timeout timeout) {
  model_->loop.drain();
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return has_run_ && num_live_ == 0; };
  if (timeout) return ends_.wait_for(lock, *timeout, is_done);
  ends_.wait(lock, is_done);
  return true;
}

Statistics Engine::statistics() const {
  Statistics statistics{.generator = model_->loop.statistics()};
  const std::lock_guard lock(mutex_);
  statistics.finished = finished_;
  return statistics;
}

void Engine::close() {
  if (!steps_.joinable()) return;
  model_->loop.stop();
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  arrives_.notify_one();
  texts_.join();
  {
    const std::lock_guard lock(submit_mutex_);
    model_ = nullptr;
  }
  closes_.set_value();
  steps_.join();
}

}  // namespace encore::library
