// Requests that generate text: from prompts to the engine, and from its tokens to an answer.
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

// Everything that a request asks for.
struct GenerationPlan {
  struct Prompt {
    std::vector<int32_t> ids;
    std::string echo;  // text that the answer begins with
  };
  std::vector<Prompt> prompts;
  int64_t n = 1;           // choices for each
  int64_t max_tokens = 0;  // 0: the prompt alone is of interest
  // Asks for log probabilities of each prompt's tokens but the first, with so many of the likeliest
  // tokens; -1: none.
  int32_t num_prompt_logprobs = -1;
  sample::SamplingParams sampling;  // the seed is that of the first choice of each prompt
  std::vector<TokenBias> token_bias;
  text::StopRules stops;
  text::AnswerRules answer;  // what each text is divided into
  int32_t priority = 0;      // lower numbers come first
  std::string adapter;       // by name; empty: the model as it is
  std::string cache_salt;    // requests with different ones share no pages of the prefix cache
  std::optional<AnswerFormat> answer_format;  // to be compiled to `grammar`
  std::shared_ptr<const sample::TokenGrammar> grammar = nullptr;
  std::chrono::steady_clock::time_point arrived;
  std::optional<std::chrono::milliseconds> timeout;  // from then to the end of the answer
  Reply::Options reply;
  std::vector<std::string> warnings = {};  // what of the request has no effect, for its client

  [[nodiscard]] int64_t num_choices() const { return std::ssize(prompts) * n; }
};

// Threads: the server's. Lifetime: everything it refers to must outlive it, and the generator must
// have ended all requests before it goes.
class GenerationService {
 public:
  GenerationService(engine::Generator& generator, const ServedModel& model, Metrics& metrics,
                    Post post, Time time);

  // Generates what the plan asks for and answers with it, or with an error.
  void start(GenerationPlan plan, std::unique_ptr<ReplyFormat> format,
             std::unique_ptr<Responder> responder);

 private:
  using Clock = std::chrono::steady_clock;
  using GenerationId = int64_t;

  struct ChoiceState {
    explicit ChoiceState(const text::AnswerRules& rules) : parser(rules) {}

    engine::RequestId request = 0;
    std::optional<text::OutputText> text;  // nothing without a tokenizer
    text::AnswerParser parser;
    int64_t num_tokens = 0;
    int64_t num_reasoning = 0;  // of them
    int64_t num_drafted = 0;    // of them
    // The last ones, while they may be content or reasoning.
    struct Undecided {
      int64_t num_tokens = 0;
      std::vector<TokenLogprobs> logprobs;
    } undecided;
    int64_t num_cached = 0;
    int32_t num_top = 0;  // alternatives in log probabilities
    int32_t num_prompt_top = 0;
    std::optional<GenerationPlan::Prompt> scored_prompt;  // until its log probabilities come
    bool omits_tokens = false;                            // the prompt alone is of interest
    std::string finish_reason;                            // once it has ended
    bool has_ended = false;
    std::optional<Clock::time_point> last_token;
  };
  struct Generation {
    std::unique_ptr<Reply> reply;
    std::vector<ChoiceState> choices;
    int64_t prompt_tokens = 0;
    int64_t n = 1;
    int64_t num_going = 0;     // choices without an end
    bool shows_usage = false;  // in every event
    Clock::time_point start;
    std::optional<Clock::time_point> admitted;     // the first of its choices
    std::optional<Clock::time_point> first_token;  // of all choices
    std::optional<Clock::time_point> deadline;
  };
  // An update on its way from the engine's thread to the server's.
  struct Delivery {
    GenerationId generation = 0;
    int64_t choice = 0;
    std::vector<int32_t> tokens;
    std::optional<engine::Ending> ending;
    int64_t num_cached = 0;
    int64_t num_drafted = 0;
    std::optional<Clock::time_point> admitted;
    std::vector<LogprobRow> logprobs;  // one a token, or none
    std::vector<LogprobRow> prompt_logprobs;
    Clock::time_point collected;
  };

  [[nodiscard]] engine::Sink sink(GenerationId generation, int64_t choice);
  [[nodiscard]] std::vector<engine::Submission> submissions(const GenerationPlan& plan,
                                                            GenerationId id);
  void receive_all();
  void receive(Delivery& delivery);
  void measure(Generation& generation, ChoiceState& choice, int64_t num_tokens);
  // Returns the new part of a choice and, where this is its end, why it ended.
  Choice piece_of(ChoiceState& choice, const Delivery& delivery);
  // Adds the prompt that was held back for its log probabilities.
  void read_prompt(ChoiceState& choice, const Delivery& delivery, Choice& piece) const;
  // Adds the text of tokens to the new part.
  void read_tokens(ChoiceState& choice, const Delivery& delivery, Choice& piece) const;
  // Counts tokens as reasoning, or adds their log probabilities to the content's, once it is clear
  // which of the two they are.
  static void decide(ChoiceState& choice, Choice& piece);
  [[nodiscard]] static Usage usage_of(const Generation& generation);
  void finish(GenerationId id, Generation& generation);
  void client_left(GenerationId id);
  // Ends a request that goes on, with an error.
  void fail(GenerationId id, const ApiError& error, std::string_view end);
  // Removes a generation from those that go on, counts it by how it ended, and tells its responder.
  Generation take(GenerationId id, std::string_view end);
  [[nodiscard]] static GenerationOutcome outcome_of(const Generation& generation,
                                                    std::string_view end);
  // Sets the timer for the next deadline.
  void watch_deadlines();
  void end_late();
  // Aborts the sequences of the request that still run.
  void abort(const Generation& generation);
  // The metric that counts requests which ended so.
  double& ended(std::string_view end);

  engine::Generator& generator_;
  const ServedModel& model_;
  Metrics& metrics_;
  Post post_;
  Time time_;
  GenerationId next_id_ = 1;
  std::unordered_map<GenerationId, Generation> generations_;

  std::set<std::pair<Clock::time_point, GenerationId>> deadlines_;  // of those that go on
  // The next time at which deadlines are looked at; timers for later times may be set, too.
  Clock::time_point next_look_ = Clock::time_point::max();

  Histogram& queue_s_;
  Histogram& first_token_s_;
  Histogram& between_tokens_s_;
  Histogram& total_s_;
  Histogram& delivery_s_;

  std::mutex mutex_;  // of the mailbox
  std::vector<Delivery> mailbox_;
};

}  // namespace encore::server
