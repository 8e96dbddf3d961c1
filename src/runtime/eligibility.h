// Which steps may be replayed: one table, a row a rule. `choose` (dispatch.h) walks it, messages
// take their words from it, and `encore graphs --eligibility` prints it.
//
// A recording's key is its mode, its padded rows and q, and nothing else: what a step needs beyond
// that is data in fixed buffers. Where the host must act between the launches of a segment, the
// step runs eager.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace encore::runtime {

struct Case;  // dispatch.h

// Why a step was not walked the wanted way.
enum class Reason : uint8_t {
  kNone,
  kDisabled,         // --graphs none
  kAboveLadder,      // larger than the largest bucket
  kNoExactSize,      // padding is off and the size has no recording of its own
  kPolicy,           // --graphs full-decode-only leaves mixed steps eager
  kFeature,          // it needs something that no recording does
  kRecordingFailed,  // the recording was dropped (--recording-errors drop)
  kNotRecorded,      // nothing was recorded for such steps
  kUnsupportedOp,    // full wanted, and an op of the program cannot be recorded
  kMixedStep,        // full wanted; mixed steps have no full recording
};
// "above_ladder", as counted, logged and reported; empty for kNone.
std::string_view name(Reason reason);

// What a step may need beyond computing its tokens.
enum class Feature : uint8_t {
  kPromptLogprobs,
  kMultimodalInput,
  kPooling,
  kDataDependentShapes,
  kCrossAttention,
  kCollectives,
  kLora,
  kStructuredOutput,
  kAllRowsLogits,
  kVerification,
  kDraftModel,
};
inline constexpr int kNumFeatures = static_cast<int>(Feature::kDraftModel) + 1;
std::string_view name(Feature feature);

// A set of them.
class Features {
 public:
  constexpr Features() = default;
  constexpr Features(std::initializer_list<Feature> features) {
    for (const Feature feature : features)
      insert(feature);
  }
  constexpr void insert(Feature feature) { bits_ |= bit(feature); }
  [[nodiscard]] constexpr bool contains(Feature feature) const {
    return (bits_ & bit(feature)) != 0;
  }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  friend constexpr bool operator==(Features, Features) = default;

 private:
  static constexpr uint32_t bit(Feature feature) { return 1U << static_cast<int>(feature); }
  uint32_t bits_ = 0;
};

// One row.
struct Rule {
  std::string_view name;                      // of the feature, else of the reason
  Reason reason = Reason::kNone;              // what a step counts as; kNone: the mode is as wanted
  std::optional<Feature> feature;             // holds for steps that need it, and programs that do
  bool (*holds)(const Case& step) = nullptr;  // of a row that is no feature
  bool full = false;                          // such a step may be one recording
  bool piecewise = false;                     // or be replayed in pieces
  bool served = true;    // requests of this build can ask for it; false: the rule for when
  std::string_view key;  // what of it is part of a recording's key; empty: nothing
  std::string_view why;
  std::string_view remedy;  // empty where full and piecewise are both allowed
};

// The rows. Of those that stand in a step's way the first gives the reason.
std::span<const Rule> rules();
// The row of a feature.
const Rule& rule(Feature feature);
// What requests of this build may need.
Features served_features();

// What the key costs where it grows, as measured: "q: a full recording a size and q, 36 kB and
// 3.2 kB a node"; "-" for a row that adds nothing.
std::string key_cost(const Rule& rule);

}  // namespace encore::runtime
