// Tests sample_draft and accept: tokens of steps whose drafts are accepted by rejection sampling
// have the same distribution as tokens of steps without drafts.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>

#include "backend/random.h"
#include "backend/sampling.h"
#include "base/testing/chi_square.h"
#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

constexpr int64_t kVocabulary = 16;
constexpr int64_t kDrafts = 2;
constexpr int64_t kEach = 1 + kDrafts;  // rows of logits per sequence
// Holds counts in the format of token_counts: token 1 is in the prompt, token 2 was generated
// twice, and token 3 is in the prompt and was generated once.
const std::vector<int32_t> kCounted = {0, kInPrompt, 2, kInPrompt + 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                       0, 0,         0};

// Describes how a sequence chooses tokens, and how drafts are made.
struct Choosing {
  const char* name;
  SamplingParams params = {};
  int64_t draft_vocabulary = kVocabulary;  // 0: drafts are looked up
  bool is_adjusted = false;                // true: tokens are chosen from adjusted logits
  // The probabilities that the model and the draft model give to the first tokens of the
  // vocabulary, at each place. If a list is empty, its logits are random.
  std::vector<double> model = {};
  std::vector<double> draft = {};
};
const std::vector<Choosing> kChoosings = {
    Choosing{"temperature 1", {.temperature = 1}},
    Choosing{"temperature 0.6", {.temperature = 0.6F}},
    Choosing{"top_k", {.temperature = 1, .top_k = 5}},
    Choosing{"top_p", {.temperature = 1, .top_p = 0.8F}},
    Choosing{"min_p", {.temperature = 1, .min_p = 0.1F}},
    Choosing{"typical_p", {.temperature = 1, .typical_p = 0.7F}},
    Choosing{"all of them",
             {.temperature = 1.4F, .top_k = 12, .top_p = 0.9F, .min_p = 0.02F, .typical_p = 0.9F}},
    Choosing{"adjusted logits", {.temperature = 1}, kVocabulary, true},
    Choosing{"a draft model of fewer tokens", {.temperature = 1}, 11},
    // This case finds the bug of vLLM issues 47386 and 54282, where a draft and the token in its
    // place shared noise.
    Choosing{"a draft model that takes the likeliest for the least",
             {.temperature = 1},
             kVocabulary,
             false,
             {0.4, 0.3, 0.2, 0.1},
             {0.1, 0.2, 0.3, 0.4}},
    Choosing{"drafts that are looked up", {.temperature = 1}, 0},
    Choosing{"drafts that are looked up, top_p", {.temperature = 0.8F, .top_p = 0.7F}, 0},
};

// Returns logits of one row: the logs of the given probabilities, or, if none are given, random
// logits flat enough that any token may come.
std::vector<double> some_logits(Random& random, int64_t count, const std::vector<double>& given) {
  std::vector<double> logits;
  if (!given.empty()) {
    for (const double p : given)
      logits.push_back(round_to(DType::kF32, std::log(p)));
    logits.resize(static_cast<size_t>(count), -std::numeric_limits<double>::infinity());
    return logits;
  }
  for (int64_t i = 0; i < count; ++i)
    logits.push_back(round_to(DType::kF32, 1.5 * random.normal()));
  return logits;
}

// Returns the distribution over tokens that one row of logits gives with the sampling parameters
// `params`.
std::vector<double> distribution(const std::vector<double>& logits, const SamplingParams& params) {
  const reference::SampleRow row{.logits = logits.data(),
                                 .num_logits = std::ssize(logits),
                                 .temperature = params.temperature,
                                 .top_k = params.top_k,
                                 .top_p = params.top_p,
                                 .min_p = params.min_p,
                                 .typical_p = params.typical_p};
  std::vector<double> p = reference::probabilities(row);
  const std::vector<bool> kept = reference::kept_tokens(row, 1e-6);
  for (size_t i = 0; i < p.size(); ++i)
    p[i] = kept[i] ? p[i] : 0;
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& each : p)
    each /= sum;
  return p;
}

// Runs a step of sequences that differ only in their seeds. At each place, the model gives the same
// logits in all sequences, whatever tokens stand in front, and so does the draft model.
class Step {
 public:
  Step(Device& device, Random& random, const Choosing& choosing, int64_t num_sequences)
      : device_(device), choosing_(choosing), key_(StepKey::uniform(num_sequences, kEach)) {
    for (int64_t place = 0; place < kEach; ++place)
      target_.push_back(some_logits(random, kVocabulary, choosing.model));
    for (int64_t place = 0; place < kDrafts && choosing.draft_vocabulary > 0; ++place)
      draft_.push_back(some_logits(random, choosing.draft_vocabulary, choosing.draft));
    logits_ = filled_rows(Dim::logits(), target_, kEach);
    adjusted_ = logits_;
    HostTensor& unread = choosing.is_adjusted ? logits_ : adjusted_;
    std::fill(unread.values.begin(), unread.values.end(), kNaN);
    ids_ = filled({Dim::tokens()}, key_.sizes(), 3);
    rows_ = filled({Dim::logits()}, key_.sizes());
    std::iota(rows_.values.begin(), rows_.values.end(), 0);
    kv_lens_ = filled({Dim::logits()}, key_.sizes());
    for (int64_t l = 0; l < kv_lens_.num_rows(); ++l)
      kv_lens_.values[static_cast<size_t>(l)] = length_of(l);
  }

  // Runs one step: makes drafts, samples tokens, and accepts or replaces drafts. Sequence b has the
  // seed first_seed + b.
  void run_with(int64_t first_seed) {
    first_seed_ = first_seed;
    sampling_ = filled({Dim::sequences(), kSamplingWords}, key_.sizes());
    for (int64_t b = 0; b < key_.sequences; ++b) {
      SamplingRow row{.params = choosing_.params};
      row.params.seed = first_seed + b;
      row.min_length = choosing_.is_adjusted ? 1000 : 0;
      row.state = choosing_.params.has_penalties() ? static_cast<int32_t>(b) : -1;
      const auto words = std::bit_cast<std::array<int32_t, kSamplingWords>>(row);
      std::copy(words.begin(), words.end(), sampling_.row(b));
    }
    probs_.reset();
    if (choosing_.draft_vocabulary > 0) {
      probs_ = filled({kDrafts, key_.sequences, choosing_.draft_vocabulary}, key_.sizes());
      probs_->type.dtype = DType::kF32;
    }
    for (int64_t place = 1; place <= kDrafts; ++place)
      guess(place);
    if (choosing_.params.has_penalties()) adjust();
    next_ = filled({Dim::logits()}, key_.sizes());
    next_.values = run(device_, {.op = "sample",
                                 .inputs = {{"logits", logits_},
                                            {"adjusted", adjusted_},
                                            {"sampling", sampling_},
                                            {"kv_lens", kv_lens_}},
                                 .step = key_})[0]
                       .tensor.values;
    HostTensors inputs = {{"next", next_},         {"logits", logits_},   {"adjusted", adjusted_},
                          {"sampling", sampling_}, {"kv_lens", kv_lens_}, {"ids", ids_},
                          {"logits_rows", rows_}};
    if (probs_) inputs.add("draft_probs", *probs_, true);
    next_.values = run(device_, {.op = "accept", .inputs = inputs, .step = key_})[0].tensor.values;
  }

  [[nodiscard]] int64_t num_sequences() const { return key_.sequences; }
  [[nodiscard]] std::vector<double> expected(int64_t place) const {
    return distribution(target_[static_cast<size_t>(place)], choosing_.params);
  }
  // Returns the distribution of the token at `place` where penalties count, in addition to
  // kCounted, the tokens `before`, which the same step chose in front of it.
  [[nodiscard]] std::vector<double> expected(int64_t place, std::span<const int64_t> before) const {
    std::vector<double> logits = target_[static_cast<size_t>(place)];
    std::vector<int32_t> counts = kCounted;
    for (const int64_t token : before)
      ++counts[static_cast<size_t>(token)];
    for (size_t i = 0; i < logits.size(); ++i)
      logits[i] = penalized(static_cast<float>(logits[i]), counts[i], choosing_.params);
    return distribution(logits, choosing_.params);
  }
  [[nodiscard]] std::vector<double> guessed(int64_t place) const {
    return distribution(draft_[static_cast<size_t>(place)], choosing_.params);
  }
  [[nodiscard]] const HostTensor& probs() const { return *probs_; }
  [[nodiscard]] int64_t next(int64_t b, int64_t place) const {
    return next_.integer(b * kEach + place);
  }
  [[nodiscard]] int64_t draft(int64_t b, int64_t place) const {
    return ids_.integer(b * kEach + place + 1);
  }
  // Return the random number by which a draft is accepted, and the noise of a token that may
  // replace the draft.
  [[nodiscard]] float noise(int64_t b, int64_t place) const {
    return random::acceptance_noise(first_seed_ + b, length_of(place));
  }
  [[nodiscard]] float noise(int64_t b, int64_t place, int64_t token) const {
    return random::sample_noise(first_seed_ + b, length_of(place), static_cast<uint32_t>(token),
                                random::Purpose::kResample);
  }

 private:
  static int32_t length_of(int64_t l) { return static_cast<int32_t>(100 + l % kEach); }
  [[nodiscard]] HostTensor filled_rows(Dim rows, const std::vector<std::vector<double>>& places,
                                       int64_t each) const {
    std::vector<double> values;
    for (int64_t b = 0; b < key_.sequences; ++b) {
      for (int64_t place = 0; place < each; ++place) {
        const std::vector<double>& row = places[static_cast<size_t>(place)];
        values.insert(values.end(), row.begin(), row.end());
      }
    }
    return tensor_of(type_of(DType::kF32, {rows, std::ssize(places[0])}), key_.sizes(), values);
  }
  // Adjusts the logits. In every sequence the tokens so far have the counts kCounted.
  void adjust() {
    HostTensor counts = filled({key_.sequences, kVocabulary}, key_.sizes());
    for (int64_t b = 0; b < key_.sequences; ++b)
      std::ranges::copy(kCounted, counts.row(b));
    adjusted_.values =
        run(device_, {.op = "adjust_logits",
                      .inputs = {{"logits", logits_},
                                 {"sampling", sampling_},
                                 {"kv_lens", kv_lens_},
                                 {"stop_tokens", filled({Dim::sequences(), 1}, key_.sizes(), -1)},
                                 {"token_counts", counts},
                                 {"token_bias", filled({key_.sequences, 1, 2}, key_.sizes(), -1)},
                                 {"token_masks", filled({key_.sequences, 1}, key_.sizes(), -1)},
                                 {"ids", ids_},
                                 {"logits_rows", rows_}},
                      .step = key_})[0]
            .tensor.values;
  }
  void guess(int64_t place) {
    HostTensor guesses = filled({Dim::guessing()}, key_.sizes());
    if (probs_) {
      ir::Attrs attrs;
      attrs.set("place", place);
      const auto guessed = run(
          device_,
          {.op = "sample_draft",
           .inputs = {{"logits",
                       filled_rows(Dim::guessing(), {draft_[static_cast<size_t>(place - 1)]}, 1)},
                      {"sampling", sampling_},
                      {"lens", filled({Dim::guessing()}, key_.sizes(), length_of(place - 1))},
                      {"draft_probs", *probs_}},
           .attrs = attrs,
           .step = key_});
      guesses.values = guessed[0].tensor.values;
      probs_->values = guessed[1].tensor.values;
    } else {
      for (int64_t b = 0; b < key_.sequences; ++b)
        guesses.values[static_cast<size_t>(b)] = static_cast<double>((3 * b + place) % kVocabulary);
    }
    for (int64_t b = 0; b < key_.sequences; ++b)
      ids_.values[static_cast<size_t>(b * kEach + place)] = guesses.values[static_cast<size_t>(b)];
  }

  Device& device_;
  const Choosing& choosing_;
  StepKey key_;
  std::vector<std::vector<double>> target_;  // the model's logits, by place
  std::vector<std::vector<double>> draft_;
  HostTensor logits_;
  HostTensor adjusted_;
  HostTensor ids_;
  HostTensor rows_;
  HostTensor kv_lens_;
  HostTensor sampling_;
  HostTensor next_;
  std::optional<HostTensor> probs_;
  int64_t first_seed_ = 0;
};

// Returns how many tokens a test draws from each distribution. ENCORE_ACCEPTED_TOKENS sets another
// number, such as a million.
int64_t wanted_tokens() {
  if (const char* wanted = std::getenv("ENCORE_ACCEPTED_TOKENS")) return std::atoll(wanted);
  return is_thorough() ? 30000 : 10000;
}

// Tests the distribution of the tokens at each place, and of the tokens behind each other token:
// the latter shows whether two decisions share noise.
TEST_P(Sampling, AcceptLeavesTheDistributionOfTheModelWhateverIsGuessed) {
  constexpr int64_t kSequences = 5000;
  for (const Choosing& choosing : kChoosings) {
    SCOPED_TRACE(choosing.name);
    Step step(device(), random_, choosing, kSequences);
    std::array<std::vector<int64_t>, kEach> counts;
    counts.fill(std::vector<int64_t>(kVocabulary));
    std::vector<std::vector<int64_t>> pairs(kDrafts * kVocabulary,
                                            std::vector<int64_t>(kVocabulary));
    int64_t num_tokens = 0;
    int64_t num_accepted = 0;
    for (int64_t turn = 0; num_tokens < wanted_tokens(); ++turn) {
      step.run_with(1 + turn * kSequences);
      for (int64_t b = 0; b < kSequences; ++b) {
        for (int64_t place = 0; place < kEach; ++place) {
          const int64_t token = step.next(b, place);
          ASSERT_TRUE(token >= 0 && token < kVocabulary);
          ++counts[static_cast<size_t>(place)][static_cast<size_t>(token)];
          ++num_tokens;
          if (place > 0) {
            const int64_t before = (place - 1) * kVocabulary + step.next(b, place - 1);
            ++pairs[static_cast<size_t>(before)][static_cast<size_t>(token)];
          }
          if (place == kDrafts || step.draft(b, place) != token) break;
          ++num_accepted;
        }
      }
    }
    ChiSquare alone;
    ChiSquare behind_another;
    for (int64_t place = 0; place < kEach; ++place)
      alone.add(counts[static_cast<size_t>(place)], step.expected(place));
    for (int64_t pair = 0; pair < kDrafts * kVocabulary; ++pair)
      behind_another.add(pairs[static_cast<size_t>(pair)], step.expected(1 + pair / kVocabulary));
    EXPECT_GT(alone.p(), 0.001) << "p " << alone.p() << " of " << num_tokens << " tokens";
    EXPECT_GT(behind_another.p(), 0.001) << "p " << behind_another.p() << ", tokens behind others";
    EXPECT_GT(num_accepted, num_tokens / 100);
    RecordProperty(choosing.name, std::to_string(std::min(alone.p(), behind_another.p())));
  }
}

// Penalties count all tokens in front of the drawn one, including tokens of the same step.
TEST_P(Sampling, AcceptLeavesTheDistributionOfTheModelWherePenaltiesGoByTheDrafts) {
  constexpr int64_t kSequences = 5000;
  const SamplingParams penalties{.temperature = 1,
                                 .repetition_penalty = 1.5F,
                                 .presence_penalty = 0.8F,
                                 .frequency_penalty = 0.6F};
  for (const Choosing& choosing :
       {Choosing{"a draft model", penalties}, Choosing{"looked up", penalties, 0}}) {
    SCOPED_TRACE(choosing.name);
    Step step(device(), random_, choosing, kSequences);
    std::map<std::vector<int64_t>, std::vector<int64_t>> counts;  // key: the tokens in front
    int64_t num_tokens = 0;
    int64_t num_accepted = 0;
    for (int64_t turn = 0; num_tokens < wanted_tokens(); ++turn) {
      step.run_with(1 + turn * kSequences);
      for (int64_t b = 0; b < kSequences; ++b) {
        std::vector<int64_t> before;
        for (int64_t place = 0; place < kEach; ++place) {
          const int64_t token = step.next(b, place);
          ASSERT_TRUE(token >= 0 && token < kVocabulary);
          auto& behind = counts.try_emplace(before, kVocabulary).first->second;
          ++behind[static_cast<size_t>(token)];
          ++num_tokens;
          before.push_back(token);
          if (place == kDrafts || step.draft(b, place) != token) break;
          ++num_accepted;
        }
      }
    }
    ChiSquare difference;
    int64_t num_compared = 0;
    for (const auto& [before, behind] : counts) {
      const int64_t seen = std::accumulate(behind.begin(), behind.end(), int64_t{0});
      if (seen < 10) continue;
      difference.add(behind, step.expected(std::ssize(before), before));
      ++num_compared;
    }
    EXPECT_GT(num_compared, 10);
    EXPECT_GT(difference.p(), 0.001) << "p " << difference.p() << " of " << num_tokens << " tokens";
    EXPECT_GT(num_accepted, num_tokens / 100);
    RecordProperty(choosing.name, std::to_string(difference.p()));
  }
}

// The noise is defined to the bit. So the test knows whether a draft is accepted, and which token
// replaces it, except where two compared numbers differ by no more than rounding.
TEST_P(Sampling, AcceptTakesDraftsByTheirProbabilitiesAndElseDrawsFromWhatIsLeft) {
  constexpr double kSlack = 1e-4;
  for (const Choosing& choosing : kChoosings) {
    SCOPED_TRACE(choosing.name);
    Step step(device(), random_, choosing, 200);
    step.run_with(77);
    int64_t num_clear = 0;
    for (int64_t b = 0; b < step.num_sequences(); ++b) {
      for (int64_t place = 0; place < kDrafts; ++place) {
        const std::vector<double> p = step.expected(place);
        std::vector<double> q(kVocabulary);
        const auto draft = static_cast<size_t>(step.draft(b, place));
        if (choosing.draft_vocabulary > 0) {
          const std::vector<double> guessed = step.guessed(place);
          std::copy(guessed.begin(), guessed.end(), q.begin());
          const double* const kept = step.probs().values.data() +
                                     (place * step.num_sequences() + b) * choosing.draft_vocabulary;
          for (size_t i = 0; i < guessed.size(); ++i)
            ASSERT_NEAR(kept[i], guessed[i], 1e-5) << "the probability of draft " << i;
        } else {
          q[draft] = 1;
        }
        ASSERT_GT(q[draft], 0);
        const double left_over = p[draft] - step.noise(b, place) * q[draft];
        if (std::abs(left_over) < kSlack) continue;
        ++num_clear;
        if (left_over > 0) {
          ASSERT_EQ(step.next(b, place), draft) << "sequence " << b << ", place " << place;
          continue;
        }
        std::vector<std::pair<double, int64_t>> scores;
        for (int64_t i = 0; i < kVocabulary; ++i) {
          const double rest = p[static_cast<size_t>(i)] - q[static_cast<size_t>(i)];
          if (rest > kSlack) scores.push_back({std::log(rest) + step.noise(b, place, i), i});
        }
        std::ranges::sort(scores, std::greater<>());
        ASSERT_NE(step.next(b, place), draft);
        if (scores.size() > 1 && scores[0].first - scores[1].first > 1e-2) {
          ASSERT_EQ(step.next(b, place), scores[0].second);
        }
      }
    }
    EXPECT_GT(num_clear, 2 * kDrafts * step.num_sequences() / 3);
  }
}

}  // namespace
}  // namespace encore::conformance
