#include "grammar/reasoning.h"

#include <algorithm>
#include <utility>

namespace encore::grammar {
namespace {

class BehindReasoning final : public sample::TokenGrammar {
 public:
  BehindReasoning(std::shared_ptr<const sample::TokenGrammar> answer, ReasoningMarks marks,
                  int64_t vocab_size)
      : answer_(std::move(answer)), marks_(std::move(marks)), vocab_size_(vocab_size) {}

  [[nodiscard]] std::unique_ptr<sample::TokenMatcher> start() const override {
    return std::make_unique<Matcher>(*this);
  }

 private:
  enum class Place : uint8_t { kStart, kReasoning, kAnswer };

  class Matcher final : public sample::TokenMatcher {
   public:
    explicit Matcher(const BehindReasoning& grammar)
        : vocab_size_(grammar.vocab_size_),
          marks_(grammar.marks_),
          answer_(grammar.answer_->start()),
          place_(marks_.starts_inside ? Place::kReasoning : Place::kStart) {}

    void fill(std::span<uint32_t> mask) override {
      if (place_ != Place::kReasoning) {
        answer_->fill(mask);
        if (place_ == Place::kStart) set(mask, marks_.opening, true);
        return;
      }
      std::ranges::fill(mask, ~uint32_t{0});
      if (const int64_t rest = vocab_size_ % 32; rest != 0) mask.back() = (1U << rest) - 1;
      for (const int32_t token : marks_.end_tokens)
        set(mask, token, false);
    }
    bool accept(int32_t token) override {
      if (place_ == Place::kReasoning) {
        if (std::ranges::find(marks_.end_tokens, token) != marks_.end_tokens.end()) return false;
        if (token == marks_.closing) place_ = Place::kAnswer;
        return true;
      }
      if (place_ == Place::kStart && token == marks_.opening) {
        place_ = Place::kReasoning;
        return true;
      }
      if (!answer_->accept(token)) return false;
      place_ = Place::kAnswer;
      return true;
    }
    [[nodiscard]] bool has_ended() const override { return answer_->has_ended(); }
    [[nodiscard]] bool is_exhausted() const override { return answer_->is_exhausted(); }

   private:
    static void set(std::span<uint32_t> mask, int32_t token, bool may_come) {
      const uint32_t bit = 1U << (token % 32);
      if (may_come) {
        mask[token / 32] |= bit;
      } else {
        mask[token / 32] &= ~bit;
      }
    }

    int64_t vocab_size_;
    ReasoningMarks marks_;
    std::unique_ptr<sample::TokenMatcher> answer_;
    Place place_;
  };

  std::shared_ptr<const sample::TokenGrammar> answer_;
  ReasoningMarks marks_;
  int64_t vocab_size_;
};

}  // namespace

std::shared_ptr<const sample::TokenGrammar> behind_reasoning(
    std::shared_ptr<const sample::TokenGrammar> answer, const ReasoningMarks& marks,
    int64_t vocab_size) {
  return std::make_shared<BehindReasoning>(std::move(answer), marks, vocab_size);
}

}  // namespace encore::grammar
