#include "server/generation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace encore::server {
namespace {

// Bounds of the histograms of times per token. Units: seconds.
const std::vector<double> kTokenTimes = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                         0.1,   0.25,   0.5,   1,    2.5};
const std::vector<double> kRequestTimes = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                           1,     2.5,   5,    10,    30,   60,  300};

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string ids_text(const std::vector<int32_t>& ids, bool is_first) {
  std::string text;
  for (const int32_t id : ids)
    text += fmt::format("{}{}", std::exchange(is_first, false) ? "" : " ", id);
  return text;
}

json::value stop_reason_json(const text::OutputText& text) {
  if (const auto* string = std::get_if<std::string>(&text.stop_reason()))
    return json::value(*string);
  if (const auto* token = std::get_if<int32_t>(&text.stop_reason())) return json::value(*token);
  return nullptr;
}

// Values of the metrics' label `end`, for a request that completed and for one that its deadline
// ended.
constexpr std::string_view kFinished = "finished";
constexpr std::string_view kTimedOut = "timed_out";
constexpr std::string_view kEnds[] = {kFinished, kTimedOut, "disconnected", "error"};

ApiError timeout_error() {
  return {
      .status = 504,
      .message = "the request's time has passed: its timeout, or the server's --request-timeout",
      .code = "request_timeout"};
}

ApiError ending_error(const engine::Ending& ending) {
  if (ending.reason == engine::EndReason::kError)
    return {.status = 500, .message = ending.message, .code = "device_error"};
  if (ending.reason == engine::EndReason::kGrammar)
    return {.status = 400, .message = ending.message, .code = "grammar_failed"};
  return {.status = 503,
          .message = "the server ended before the answer was complete",
          .code = "stopped"};
}

}  // namespace

GenerationService::GenerationService(engine::Generator& generator, const ServedModel& model,
                                     Metrics& metrics, Post post, Time time)
    : generator_(generator),
      model_(model),
      metrics_(metrics),
      post_(std::move(post)),
      time_(std::move(time)),
      queue_s_(metrics.histogram("encore_queue_seconds",
                                 "From a request's arrival until it first takes part in a step",
                                 kRequestTimes)),
      first_token_s_(metrics.histogram("encore_time_to_first_token_seconds",
                                       "From a request's arrival to its first token",
                                       kRequestTimes)),
      between_tokens_s_(metrics.histogram("encore_inter_token_latency_seconds",
                                          "Between two tokens of a sequence", kTokenTimes)),
      total_s_(metrics.histogram("encore_request_seconds",
                                 "From a request's arrival to the end of its answer",
                                 kRequestTimes)),
      delivery_s_(metrics.histogram("encore_delivery_seconds",
                                    "From the collection of tokens to their hand-over to the "
                                    "client's socket",
                                    kTokenTimes)) {
  for (const std::string_view end : kEnds)
    (void)ended(end);
}

void GenerationService::start(GenerationPlan plan, std::unique_ptr<ReplyFormat> format,
                              std::unique_ptr<Responder> responder) {
  const GenerationId id = next_id_++;
  Generation generation;
  generation.start = plan.arrived;
  if (plan.timeout) generation.deadline = plan.arrived + *plan.timeout;
  if (generation.deadline && *generation.deadline <= time_.now()) {
    ++ended(kTimedOut);
    return responder->respond(format->error(timeout_error()));
  }
  for (const GenerationPlan::Prompt& prompt : plan.prompts) {
    generation.prompt_tokens += std::ssize(prompt.ids);
    for (int64_t i = 0; i < plan.n; ++i) {
      ChoiceState& choice = generation.choices.emplace_back(plan.answer);
      // If more alternatives are asked for than the vocabulary has tokens, the device returns all
      // tokens.
      const auto most = static_cast<int32_t>(std::min<int64_t>(model_.vocab_size, INT32_MAX));
      choice.num_top = std::clamp(plan.sampling.num_logprobs, 0, most);
      choice.num_prompt_top = std::min(plan.num_prompt_logprobs, most);
      if (plan.num_prompt_logprobs >= 0) choice.scored_prompt = prompt;
      choice.omits_tokens = plan.max_tokens == 0;
      if (model_.tokenizer != nullptr)
        choice.text.emplace(*model_.tokenizer, prompt.ids, plan.stops);
    }
  }
  generation.n = plan.n;
  generation.shows_usage = plan.reply.usage == StreamUsage::kInEveryEvent;
  generation.num_going = plan.num_choices();
  auto submitted = generator_.submit(submissions(plan, id));
  if (const auto* refusal = std::get_if<engine::Refusal>(&submitted))
    return responder->respond(format->error(server::to_error(*refusal)));
  const auto& requests = std::get<std::vector<engine::RequestId>>(submitted);
  for (size_t i = 0; i < requests.size(); ++i)
    generation.choices[i].request = requests[i];
  generation.reply =
      std::make_unique<Reply>(std::move(responder), std::move(format), plan.reply.streams);
  Reply& reply = *generation.reply;
  const Usage of_prompts{.prompt_tokens = generation.prompt_tokens};
  reply.begin(plan.num_choices(), of_prompts);
  if (generation.deadline) deadlines_.emplace(*generation.deadline, id);
  generations_.emplace(id, std::move(generation));
  watch_deadlines();
  for (int64_t i = 0; plan.num_prompt_logprobs < 0 && i < plan.num_choices(); ++i) {
    Choice echo{.index = i};
    echo.usage = of_prompts;
    append(echo.parts, text::AnswerPart::Kind::kContent, plan.prompts[i / plan.n].echo);
    reply.add(std::move(echo));
  }
  // The call of on_closed() comes last. If the client has left already, client_left() runs at once
  // and destroys the reply.
  reply.responder().on_closed([this, id] { client_left(id); });
}

void GenerationService::client_left(GenerationId id) {
  if (generations_.contains(id)) abort(take(id, "disconnected"));
}

GenerationService::Generation GenerationService::take(GenerationId id, std::string_view end) {
  Generation taken = std::move(generations_.extract(id).mapped());
  if (taken.deadline) deadlines_.erase({*taken.deadline, id});
  ++ended(end);
  taken.reply->responder().describe(outcome_of(taken, end));
  return taken;
}

GenerationOutcome GenerationService::outcome_of(const Generation& generation,
                                                std::string_view end) {
  const Usage usage = usage_of(generation);
  GenerationOutcome outcome{.prompt_tokens = usage.prompt_tokens,
                            .cached_tokens = usage.cached_tokens,
                            .completion_tokens = usage.completion_tokens,
                            .queued = {},
                            .first_token = {},
                            .finish = std::string(end)};
  if (generation.admitted) outcome.queued = *generation.admitted - generation.start;
  if (generation.first_token) outcome.first_token = *generation.first_token - generation.start;
  if (end != kFinished) return outcome;
  std::set<std::string> reasons;
  for (const ChoiceState& choice : generation.choices)
    reasons.insert(choice.finish_reason);
  outcome.finish = fmt::format("{}", fmt::join(reasons, ","));
  return outcome;
}

void GenerationService::fail(GenerationId id, const ApiError& error, std::string_view end) {
  const Generation failed = take(id, end);
  abort(failed);
  failed.reply->fail(error);
}

void GenerationService::watch_deadlines() {
  if (deadlines_.empty() || next_look_ <= deadlines_.begin()->first) return;
  next_look_ = deadlines_.begin()->first;
  const auto delay = std::chrono::ceil<std::chrono::milliseconds>(next_look_ - time_.now());
  time_.after(delay, [this] { end_late(); });
}

void GenerationService::end_late() {
  next_look_ = Clock::time_point::max();
  while (!deadlines_.empty() && deadlines_.begin()->first <= time_.now())
    fail(deadlines_.begin()->second, timeout_error(), kTimedOut);
  watch_deadlines();
}

double& GenerationService::ended(std::string_view end) {
  return metrics_.counter("encore_requests_total", "Requests that generate, by how they ended",
                          {{"end", std::string(end)}});
}

std::vector<engine::Submission> GenerationService::submissions(const GenerationPlan& plan,
                                                               GenerationId id) {
  std::vector<engine::Submission> list;
  for (const GenerationPlan::Prompt& prompt : plan.prompts) {
    for (int64_t i = 0; i < plan.n; ++i) {
      engine::Request request{.prompt = prompt.ids,
                              .max_tokens = std::max<int64_t>(plan.max_tokens, 1),
                              .min_tokens = plan.stops.min_tokens,
                              .sampling = plan.sampling,
                              .token_bias = plan.token_bias,
                              .stop_tokens = plan.stops.end_tokens,
                              .grammar = plan.grammar,
                              .num_prompt_logprobs = plan.num_prompt_logprobs,
                              .priority = plan.priority,
                              .cache_salt = plan.cache_salt,
                              .adapter = plan.adapter};
      request.sampling.seed = static_cast<int64_t>(static_cast<uint64_t>(plan.sampling.seed) + i);
      request.stop_tokens.insert(request.stop_tokens.end(), plan.stops.tokens.begin(),
                                 plan.stops.tokens.end());
      list.push_back({std::move(request), sink(id, std::ssize(list))});
    }
  }
  return list;
}

// Posts one call to the server's thread for all updates that arrive until it runs, rather than one
// call for each update.
engine::Sink GenerationService::sink(GenerationId generation, int64_t choice) {
  return [this, generation, choice](const engine::Update& update) {
    bool was_empty = false;
    {
      const std::lock_guard lock(mutex_);
      was_empty = mailbox_.empty();
      mailbox_.push_back({generation,
                          choice,
                          {update.tokens.begin(), update.tokens.end()},
                          update.ending,
                          update.num_cached,
                          update.num_drafted,
                          update.admitted,
                          {update.logprobs.begin(), update.logprobs.end()},
                          {update.prompt_logprobs.begin(), update.prompt_logprobs.end()},
                          time_.now()});
    }
    if (was_empty) post_([this] { receive_all(); });
  };
}

void GenerationService::receive_all() {
  std::vector<Delivery> deliveries;
  {
    const std::lock_guard lock(mutex_);
    deliveries.swap(mailbox_);
  }
  for (Delivery& delivery : deliveries)
    receive(delivery);
}

void GenerationService::receive(Delivery& delivery) {
  const auto found = generations_.find(delivery.generation);
  // The generation may have been removed, for instance because its client left.
  if (found == generations_.end()) return;
  Generation& generation = found->second;
  ChoiceState& choice = generation.choices[delivery.choice];
  if (choice.has_ended) return;
  if (delivery.ending && delivery.ending->reason >= engine::EndReason::kAborted) {
    return fail(delivery.generation, ending_error(*delivery.ending), "error");
  }
  if (choice.omits_tokens) {
    delivery.tokens.clear();
    delivery.logprobs.clear();
    if (delivery.ending) delivery.ending->reason = engine::EndReason::kLength;
  }
  measure(generation, choice, std::ssize(delivery.tokens));
  choice.num_cached = std::max(choice.num_cached, delivery.num_cached);
  choice.num_drafted += delivery.num_drafted;
  if (!generation.admitted && delivery.admitted) {
    generation.admitted = delivery.admitted;
    queue_s_.observe(seconds(*delivery.admitted - generation.start));
  }
  Choice piece = piece_of(choice, delivery);
  if (generation.shows_usage) piece.usage = usage_of(generation);
  choice.finish_reason = piece.finish_reason;
  choice.has_ended = !piece.finish_reason.empty();
  if (choice.has_ended) {
    --generation.num_going;
    if (!delivery.ending) generator_.abort(choice.request);
  }
  // The call of add() may find that the client has left, and then destroys the generation. So the
  // id is copied first.
  const GenerationId id = delivery.generation;
  generation.reply->add(std::move(piece));
  delivery_s_.observe(seconds(time_.now() - delivery.collected));
  const auto still = generations_.find(id);
  if (still != generations_.end() && still->second.num_going == 0) finish(id, still->second);
}

Choice GenerationService::piece_of(ChoiceState& choice, const Delivery& delivery) {
  Choice piece{.index = delivery.choice};
  if (choice.scored_prompt) read_prompt(choice, delivery, piece);
  if (!choice.text) {
    append(piece.parts, text::AnswerPart::Kind::kContent,
           ids_text(delivery.tokens, choice.num_tokens == 0));
    choice.num_tokens += std::ssize(delivery.tokens);
    for (size_t i = 0; i < delivery.logprobs.size(); ++i) {
      piece.logprobs.push_back(
          read_logprobs(nullptr, delivery.tokens[i], delivery.logprobs[i], choice.num_top));
      piece.logprobs.back().part = 0;
    }
  } else {
    read_tokens(choice, delivery, piece);
    if (choice.text->is_stopped() || choice.parser.has_ended()) {
      piece.finish_reason = "stop";
      piece.stop_reason = stop_reason_json(*choice.text);
      return piece;
    }
  }
  if (delivery.ending) piece.finish_reason = name(delivery.ending->reason);
  return piece;
}

void GenerationService::read_prompt(ChoiceState& choice, const Delivery& delivery,
                                    Choice& piece) const {
  const auto prompt = *std::exchange(choice.scored_prompt, std::nullopt);
  append(piece.parts, text::AnswerPart::Kind::kContent, prompt.echo);
  piece.prompt_logprobs = read_prompt_logprobs(model_.tokenizer, prompt.ids,
                                               delivery.prompt_logprobs, choice.num_prompt_top);
}

void GenerationService::read_tokens(ChoiceState& choice, const Delivery& delivery,
                                    Choice& piece) const {
  // Appends parts to `piece`. Returns the index in piece.parts of the part that holds the beginning
  // of the first one.
  const auto add = [&](const text::AnswerParts& parts) {
    std::optional<size_t> first;
    for (const text::AnswerPart& part : parts) {
      append(piece.parts, part.kind, part.text);
      if (!first) first = piece.parts.size() - 1;
    }
    return first;
  };
  ChoiceState::Undecided& undecided = choice.undecided;
  // Tokens are processed one by one, because each is counted for the part that contains it.
  for (size_t i = 0; i < delivery.tokens.size(); ++i) {
    const int32_t token = delivery.tokens[i];
    if (choice.text->is_stopped() || choice.parser.has_ended()) break;
    const std::string text = choice.text->push({&token, 1});
    const auto part = add(choice.parser.push(text));
    ++undecided.num_tokens;
    if (i < delivery.logprobs.size() && !choice.text->hides_last()) {
      undecided.logprobs.push_back(
          read_logprobs(model_.tokenizer, token, delivery.logprobs[i], choice.num_top));
      undecided.logprobs.back().part = part;
    }
    // A token whose text is held back belongs to content or reasoning as the token behind it does,
    // so it stays undecided until then.
    if (choice.parser.is_in_content() || !text.empty()) decide(choice, piece);
  }
  choice.num_tokens = choice.text->num_tokens();
  if (!choice.parser.has_ended()) {
    if (delivery.ending) add(choice.parser.push(choice.text->finish()));
    if (delivery.ending || choice.text->is_stopped()) add(choice.parser.finish());
  }
  if (delivery.ending || choice.text->is_stopped()) decide(choice, piece);
}

void GenerationService::decide(ChoiceState& choice, Choice& piece) {
  const bool is_content = choice.parser.is_in_content();
  if (!is_content && !choice.parser.is_in_reasoning()) return;
  auto undecided = std::exchange(choice.undecided, {});
  if (is_content) {
    std::ranges::move(undecided.logprobs, std::back_inserter(piece.logprobs));
  } else {
    choice.num_reasoning += undecided.num_tokens;
  }
}

void GenerationService::measure(Generation& generation, ChoiceState& choice, int64_t num_tokens) {
  if (num_tokens == 0) return;
  const auto now = time_.now();
  if (choice.last_token) {
    const double each = seconds(now - *choice.last_token) / static_cast<double>(num_tokens);
    between_tokens_s_.observe(each, num_tokens);
  } else {
    first_token_s_.observe(seconds(now - generation.start));
  }
  choice.last_token = now;
  if (!generation.first_token) generation.first_token = now;
}

Usage GenerationService::usage_of(const Generation& generation) {
  Usage usage{.prompt_tokens = generation.prompt_tokens};
  // The choices of a prompt share its tokens. So the prompt's tokens that were found in the prefix
  // cache are counted for its first choice only.
  for (size_t i = 0; i < generation.choices.size(); ++i) {
    const ChoiceState& choice = generation.choices[i];
    usage.completion_tokens += choice.num_tokens;
    usage.reasoning_tokens += choice.num_reasoning;
    usage.drafted_tokens += std::min(choice.num_drafted, choice.num_tokens);
    if (i % generation.n == 0) usage.cached_tokens += choice.num_cached;
  }
  return usage;
}

void GenerationService::finish(GenerationId id, Generation& generation) {
  const Usage usage = usage_of(generation);
  total_s_.observe(seconds(time_.now() - generation.start));
  const Generation finished = take(id, kFinished);
  finished.reply->finish(usage);
}

void GenerationService::abort(const Generation& generation) {
  for (const ChoiceState& choice : generation.choices) {
    if (!choice.has_ended) generator_.abort(choice.request);
  }
}

}  // namespace encore::server
