#include "planning/compatibility.h"

#include <array>

#include "base/table.h"

namespace encore::planning {
namespace {

constexpr std::string_view kWhole = "whole";

constexpr std::array kRows = {
    Compatibility{"decode steps", kWhole, "one recording a size, padded up to it",
                  "ThreeWaysTest.UniformStepsAgreeBitForBitAtAndBetweenBuckets"},
    Compatibility{"prompts in chunks, beside those that generate", kWhole,
                  "a recording is for a number of tokens and one of sequences; lengths are inputs",
                  "ThreeWaysTest.AnyCompositionOfAStepIsOneReplayAndAgreesBitForBit"},
    Compatibility{"structured output", kWhole,
                  "a step is cut in two recordings before the sampler, which reads a mask of bits",
                  "GrammarTest.RunsEveryStepAsItWouldRunWithoutAGrammar"},
    Compatibility{"a prefix cache", kWhole,
                  "a hit changes page tables and lengths, which are inputs",
                  "PrefixCacheTest.SequencesGetTheSameTokensAsWithoutIt"},
    Compatibility{"RoPE that depends on the length (dynamic, longrope)", kWhole,
                  "one table of frequencies serves the whole run, by --max-seq-len",
                  "InvFreq.OfDynamicRopeIsThatOfTheLongestSequence"},
    Compatibility{"layers with a window, soft caps, sinks", kWhole,
                  "attention has them as values and finds its pages itself",
                  "ThreeWaysTest.LayersOfDifferentKindsAgreeBitForBit"},
    Compatibility{"weights in FP8", kWhole, "the rows' scales are made on the device",
                  "ThreeWaysTest.WeightsAndActivationsInFp8AgreeBitForBit"},
    Compatibility{"K and V in FP8", kWhole, "scales are operands of attention",
                  "ThreeWaysTest.StepsAgreeBitForBitWithKvInFp8"},
    Compatibility{
        "speculation (drafts looked up in the text)", kWhole,
        "drafts are made, checked and counted by launches of the step; rows with penalties, "
        "biases or a grammar take none",
        "SpeculationTest.RequestsGetToTheBitWhatTheyGetWithoutDrafts"},
    Compatibility{"adapters (LoRA)", kWhole,
                  "an adapter is a slot in fixed buffers, an input of each row",
                  "LoraTest.AMixOfAdaptersGivesEachTheBitsThatItGetsAlone"},
    Compatibility{"experts", kWhole,
                  "work lists are made on the device, for grids of the worst case",
                  "ThreeWaysTest.AnyCompositionOfAStepIsOneReplayAndAgreesBitForBit"},
    Compatibility{
        "several ranks", kWhole,
        "collectives are launches; on the CPU alone, --tensor-parallel on GPUs is refused",
        "TensorParallel.GivesTheTokensOfOneRank"},
    Compatibility{"several ranks with bursts, adapters or drafts", "refused",
                  "each names both options", "TensorParallelRefusals.NameWhatDoesNotGoTogether"},
    Compatibility{"drafts with adapters", "refused", "names both options",
                  "TensorParallelRefusals.NameWhatDoesNotGoTogether"},
    Compatibility{"penalties", kWhole, "the device counts the tokens that it samples",
                  "SamplingTest.AFrequencyPenaltyCountsEveryTokenThatTheDeviceSampled"},
    Compatibility{"log-probabilities", kWhole, "the sampler writes them where a row asks for them",
                  "SamplingTest.LogProbabilitiesAreThoseOfTheModelWhateverIsChosen"},
    Compatibility{"log-probabilities of prompts", kWhole,
                  "they are scored by launches behind the recording, where somebody asks",
                  "PromptLogprobsTest.TheWaysToRunAStepAgreeBitForBit"},
    Compatibility{"a step launched before the last one's tokens are read", kWhole,
                  "a step leaves its inputs as those of the next",
                  "OverlapTest.ASequenceGetsTheSameTokensHoweverFarTheDeviceRunsAhead"},
    Compatibility{"bursts of steps in one launch", kWhole,
                  "the device watches stop tokens and lengths itself",
                  "OverlapTest.ABurstIsOneLaunchAndEndsWithItsSequences"},
    Compatibility{"preemption", kWhole, "a sequence that lost its pages is a prompt again",
                  "OverlapTest.ASequenceThatLosesItsPagesGetsTheSameTokensLater"},
    Compatibility{"sleep and wake", kWhole, "addresses stay, so recordings do",
                  "SleepTest.TwentySleepsBetweenTheStepsOf32SequencesChangeNoToken"},
    Compatibility{
        "--batch-invariant", kWhole, "each op keeps to one order of its sums",
        "BatchInvariantTest.ASequenceGetsTheSameBitsAloneAndInACrowdWhosePromptsComeInChunks"},
    Compatibility{"sizes on demand (lru:N)", kWhole, "a size is recorded when it first comes",
                  "LruTest.RecordsExactSizesAsTheyComeAndKeepsTheNumberAskedFor"},
};

}  // namespace

std::span<const Compatibility> compatibilities() {
  return kRows;
}

std::string compatibility_text() {
  Table table({"with", "recorded", "how", "test"});
  for (const Compatibility& row : kRows) {
    table.add({std::string(row.feature), std::string(row.recorded), std::string(row.how),
               std::string(row.test)});
  }
  return table.text();
}

json::array compatibility_json() {
  json::array rows;
  for (const Compatibility& row : kRows) {
    rows.push_back(json::object{{"feature", std::string(row.feature)},
                                {"recorded", std::string(row.recorded)},
                                {"how", std::string(row.how)},
                                {"test", std::string(row.test)}});
  }
  return rows;
}

}  // namespace encore::planning
