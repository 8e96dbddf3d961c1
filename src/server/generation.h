// Runs the requests that generate text: submits their prompts to the engine, and turns the
// generated tokens into answers.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/generator.h"
#include "server/answer_format.h"
#include "server/background.h"
#include "server/metrics.h"
#include "server/reply.h"
#include "server/served_model.h"
#include "text/answer/answer_parser.h"
#include "text/output_text.h"

namespace encore::server {

// Everything that a request asks for: the prompts, how the engine generates, and what the answer
// contains.
struct GenerationPlan {
  struct Prompt {
    std::vector<int32_t> ids;
    std::string echo;  // text that is put in front of the generated text
  };
  std::vector<Prompt> prompts;
  int64_t n = 1;           // number of choices for each prompt
  int64_t max_tokens = 0;  // 0: only the prompt is evaluated
  // The number of the likeliest tokens whose log probabilities are returned for each position of a
  // prompt but the first; -1 if no log probabilities of prompts are asked for.
  int32_t num_prompt_logprobs = -1;
  sample::SamplingParams sampling;  // its seed is for the first choice of each prompt
  std::vector<TokenBias> token_bias;
  text::StopRules stops;
  text::AnswerRules answer;  // how each generated text is split into parts
  int32_t priority = 0;      // requests with lower numbers run first
  std::string adapter;       // the adapter's name; empty for the base model
  std::string cache_salt;    // requests with different salts share no pages of the prefix cache
  // The format of the answer. It is compiled to `grammar` before the generation starts.
  std::optional<AnswerFormat> answer_format;
  std::shared_ptr<const sample::TokenGrammar> grammar = nullptr;
  std::chrono::steady_clock::time_point arrived;
  // The most time from `arrived` to the end of the answer. No limit if absent.
  std::optional<std::chrono::milliseconds> timeout;
  Reply::Options reply;
  // Texts that tell the client which parts of its request have no effect.
  std::vector<std::string> warnings = {};

  [[nodiscard]] int64_t num_choices() const { return std::ssize(prompts) * n; }
};

// Runs generations and answers their requests. Threads: the server's. Lifetime: everything that
// this object refers to must outlive it, and the generator must have ended all requests before this
// object is destroyed.
class GenerationService {
 public:
  GenerationService(engine::Generator& generator, const ServedModel& model, Metrics& metrics,
                    Post post, Time time);

  // Runs the generation that `plan` describes, and answers with the generated text or with an
  // error.
  void start(GenerationPlan plan, std::unique_ptr<ReplyFormat> format,
             std::unique_ptr<Responder> responder);

 private:
  using Clock = std::chrono::steady_clock;
  using GenerationId = int64_t;

  struct ChoiceState {
    explicit ChoiceState(const text::AnswerRules& rules) : parser(rules) {}

    engine::RequestId request = 0;
    std::optional<text::OutputText> text;  // empty if the model has no tokenizer
    text::AnswerParser parser;
    int64_t num_tokens = 0;
    int64_t num_reasoning = 0;  // tokens that are reasoning
    int64_t num_drafted = 0;    // tokens that were accepted drafts
    // Holds the latest tokens until the parser of the answer can tell whether they are content or
    // reasoning.
    struct Undecided {
      int64_t num_tokens = 0;
      std::vector<TokenLogprobs> logprobs;
    } undecided;
    int64_t num_cached = 0;
    int32_t num_top = 0;  // number of alternatives in the log probabilities
    int32_t num_prompt_top = 0;
    std::optional<GenerationPlan::Prompt> scored_prompt;  // held until its log probabilities arrive
    bool omits_tokens = false;  // whether generated tokens are dropped, because max_tokens is 0
    std::string finish_reason;  // empty until the choice has ended
    bool has_ended = false;
    std::optional<Clock::time_point> last_token;
  };
  struct Generation {
    std::unique_ptr<Reply> reply;
    std::vector<ChoiceState> choices;
    int64_t prompt_tokens = 0;
    int64_t n = 1;
    int64_t num_going = 0;     // number of choices that have not ended
    bool shows_usage = false;  // whether each event of the stream carries the usage
    Clock::time_point start;
    std::optional<Clock::time_point> admitted;     // when the first of the choices was admitted
    std::optional<Clock::time_point> first_token;  // when the first token of any choice arrived
    std::optional<Clock::time_point> deadline;
  };
  // An update that the engine's thread passes to the server's thread.
  struct Delivery {
    GenerationId generation = 0;
    int64_t choice = 0;
    std::vector<int32_t> tokens;
    std::optional<engine::Ending> ending;
    int64_t num_cached = 0;
    int64_t num_drafted = 0;
    std::optional<Clock::time_point> admitted;
    std::vector<LogprobRow> logprobs;  // one row for each token, or no rows
    std::vector<LogprobRow> prompt_logprobs;
    Clock::time_point collected;
  };

  [[nodiscard]] engine::Sink sink(GenerationId generation, int64_t choice);
  [[nodiscard]] std::vector<engine::Submission> submissions(const GenerationPlan& plan,
                                                            GenerationId id);
  void receive_all();
  void receive(Delivery& delivery);
  void measure(Generation& generation, ChoiceState& choice, int64_t num_tokens);
  // Returns the part that a delivery adds to a choice, with the finish reason if the choice has
  // ended.
  Choice piece_of(ChoiceState& choice, const Delivery& delivery);
  // Adds the prompt and its log probabilities to `piece`, the new part of the choice. The prompt
  // was held back until its log probabilities arrived.
  void read_prompt(ChoiceState& choice, const Delivery& delivery, Choice& piece) const;
  // Adds the text of the delivered tokens to `piece`, the new part of the choice.
  void read_tokens(ChoiceState& choice, const Delivery& delivery, Choice& piece) const;
  // Assigns the undecided tokens of the choice to content or reasoning, once the parser knows which
  // they are. Counts tokens of reasoning, and moves the log probabilities of tokens of content to
  // `piece`, the new part of the choice.
  static void decide(ChoiceState& choice, Choice& piece);
  [[nodiscard]] static Usage usage_of(const Generation& generation);
  void finish(GenerationId id, Generation& generation);
  void client_left(GenerationId id);
  // Ends a running request with an error.
  void fail(GenerationId id, const ApiError& error, std::string_view end);
  // Removes a generation from generations_ and returns it. Counts it in the metrics under the label
  // `end`, and describes its outcome to its responder for the log.
  Generation take(GenerationId id, std::string_view end);
  [[nodiscard]] static GenerationOutcome outcome_of(const Generation& generation,
                                                    std::string_view end);
  // Sets the timer for the earliest deadline.
  void watch_deadlines();
  void end_late();
  // Aborts those sequences of the generation that have not ended.
  void abort(const Generation& generation);
  // Returns the counter of the requests with this value of the label `end`.
  double& ended(std::string_view end);

  engine::Generator& generator_;
  const ServedModel& model_;
  Metrics& metrics_;
  Post post_;
  Time time_;
  GenerationId next_id_ = 1;
  std::unordered_map<GenerationId, Generation> generations_;

  // The deadlines of running generations.
  std::set<std::pair<Clock::time_point, GenerationId>> deadlines_;
  // The earliest time for which a timer is set that checks deadlines. Timers for later times may be
  // set too.
  Clock::time_point next_look_ = Clock::time_point::max();

  Histogram& queue_s_;
  Histogram& first_token_s_;
  Histogram& between_tokens_s_;
  Histogram& total_s_;
  Histogram& delivery_s_;

  std::mutex mutex_;  // guards the mailbox
  std::vector<Delivery> mailbox_;
};

}  // namespace encore::server
