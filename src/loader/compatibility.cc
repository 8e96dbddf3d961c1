#include "loader/compatibility.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/table.h"

namespace encore::loader {
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
                  "ThreeWaysTest.DecodesInFullRecordingsAcrossTheLengthAtWhichDynamicRopeSwitches"},
    Compatibility{"layers with a window, soft caps, sinks", kWhole,
                  "attention has them as values and finds its pages itself",
                  "ThreeWaysTest.LayersOfDifferentKindsAgreeBitForBit"},
    Compatibility{"pages of their own in layers with a window (--window-pages)", kWhole,
                  "they have a page table and slots of their own, which are inputs",
                  "WindowPagesEngineTest.ChangeNoToken"},
    Compatibility{"such pages with a prefix cache, and with preemption", kWhole,
                  "a hit counts as far as the window's pages behind it are there",
                  "RandomSchedules.LayersWithAWindowReadTheirOwnTokensAndLoseNoPage"},
    Compatibility{"such pages with drafts", kWhole,
                  "the tokens that drafts are looked up in are all kept",
                  "WindowPagesEngineTest.ChangeNoTokenWithDrafts"},
    Compatibility{"such pages with a draft model", kWhole,
                  "its layers have the same pages, where these hold what their windows show",
                  "WindowPagesEngineTest.LetADraftModelGuessWhatItGuessesWithoutThem"},
    Compatibility{"such pages with K and V in FP8", kWhole, "a page is bytes, whatever they mean",
                  "WindowPagesEngineTest.ChangeNoTokenWithKvInFp8"},
    Compatibility{"such pages in bursts", kWhole,
                  "a burst is as long as pages of both groups reach",
                  "WindowPagesEngineTest.ChangeNoTokenInBursts"},
    Compatibility{"such pages with sleep and wake", kWhole, "pages of both groups are kept",
                  "WindowPagesEngineTest.AreKeptInSleep"},
    Compatibility{"such pages on several ranks", kWhole,
                  "pages have one number on all ranks, in each group",
                  "WindowPagesOfRanks.ChangeNoToken"},
    Compatibility{"weights in FP8", kWhole, "the rows' scales are made on the device",
                  "ThreeWaysTest.WeightsAndActivationsInFp8AgreeBitForBit"},
    Compatibility{"K and V in FP8", kWhole, "scales are operands of attention",
                  "ThreeWaysTest.StepsAgreeBitForBitWithKvInFp8"},
    Compatibility{
        "speculation (drafts looked up in the text)", kWhole,
        "drafts are made, checked and counted by launches of the step; rows with a grammar take "
        "none",
        "SpeculationTest.RequestsGetToTheBitWhatTheyGetWithoutDrafts"},
    Compatibility{
        "speculation by a draft model", kWhole,
        "its launches are launches of the step, over rows that only steps with drafts have",
        "SpeculationTest.ADraftModelChangesNoBitOfWhatRequestsGet"},
    Compatibility{"drafts that are accepted by rejection sampling", kWhole,
                  "distributions of drafts stay on the device until they are decided on",
                  "ThreeWaysTest.StepsWhoseDraftsAreAcceptedByRejectionSamplingGiveTheSameTokens"},
    Compatibility{
        "drafts with penalties and biases", kWhole,
        "a row of logits counts the drafts in front of it; what is right is counted at the end",
        "RejectionTest.TextsWithPenaltiesAndBiasesAreAsLikelyAsThoseWithoutDrafts"},
    Compatibility{
        "drafts in bursts", kWhole,
        "a burst repeats steps with drafts as others; another number of drafts is another burst",
        "SpeculationTest.BurstsHaveDraftsAndChangeTheirNumberInBetween"},
    Compatibility{"numbers of drafts that each step chooses (auto)", kWhole,
                  "each number, and none, has recordings of its own",
                  "RandomEngineTest."
                  "WhereStepsChooseTheirDraftsEachRequestGetsWhatItGetsAloneWithoutAny"},
    Compatibility{"a draft model with a prefix cache, and with preemption", kWhole,
                  "a page holds K and V of both models",
                  "SpeculationTest.ADraftModelThatIsTheModelIsRightWhereverATextGoesOn"},
    Compatibility{"adapters (LoRA)", kWhole,
                  "an adapter is a slot in fixed buffers, an input of each row",
                  "LoraTest.AMixOfAdaptersGivesEachTheBitsThatItGetsAlone"},
    Compatibility{"experts", kWhole,
                  "work lists are made on the device, for grids of the worst case",
                  "ThreeWaysTest.AnyCompositionOfAStepIsOneReplayAndAgreesBitForBit"},
    Compatibility{"experts in FP8", kWhole, "codes and scales are operands of the same launches",
                  "ThreeWaysTest.WeightsAndActivationsInFp8AgreeBitForBit"},
    Compatibility{"experts with drafts, and in bursts", kWhole,
                  "rows of drafts choose their experts as any others",
                  "ExpertPairs.DraftsAndBurstsChangeNoBitOfWhatExpertsGive"},
    Compatibility{
        "experts with adapters", kWhole,
        "adapters change attention and feed-forward without experts; one that names experts is "
        "refused by the tensor's name",
        "ExpertPairs.AMixOfAdaptersGivesEachTheBitsThatItGetsAlone"},
    Compatibility{"experts with --batch-invariant", kWhole,
                  "products of tiles add all columns in one order",
                  "BatchInvariantTest.ExpertsAreNoException"},
    Compatibility{"experts in FP8 on several ranks", "whole or refused",
                  "where ranks part inside a block of scales, it is refused by the tensor's name",
                  "Shard.CutsBlocksOfScalesOfExpertsAtTheirBordersOnly"},
    Compatibility{"several ranks", kWhole,
                  "collectives are launches, whose buffers are fixed when they are recorded",
                  "TensorParallel.GivesTheTokensOfOneRank"},
    Compatibility{"several ranks with experts, a grammar, penalties, log-probabilities", kWhole,
                  "rank 0 plans, the others launch what it launches",
                  "TensorParallel.GivesTheTokensOfOneRank"},
    Compatibility{"several ranks with weights in FP8", kWhole, "codes and scales are cut together",
                  "TensorParallelFp8.CutsCodesAndScalesAsTheyAreOnOneRank"},
    Compatibility{"several ranks with drafts", kWhole, "all ranks find and check the same drafts",
                  "TensorParallelDrafts.AreThoseOfOneRank"},
    Compatibility{"several ranks with a draft model", kWhole,
                  "each rank runs all of it: equal numbers on equal kernels give equal drafts",
                  "TensorParallelDraftModel.ChangesNoTokenAndIsRightAsOftenAsOnOneRank"},
    Compatibility{"several ranks with adapters", kWhole,
                  "A and B are cut as the product; rank 0 decides the slots of all",
                  "TensorParallelAdapters.GiveEachRequestWhatItGetsOnOneRank"},
    Compatibility{"several ranks with bursts", kWhole,
                  "a step's last collective carries rank 0's word on whether one goes on",
                  "TensorParallelBursts.EndAtOneStepOnAllRanksWheneverTheHostEndsThem"},
    Compatibility{"several ranks with a prefix cache", kWhole, "pages have one number on all ranks",
                  "TensorParallelPrefixCache.SharesPagesOnAllRanks"},
    Compatibility{"several ranks that sleep and wake", kWhole, "all of them or none",
                  "TensorParallelSleep.GivesMemoryBackOnAllRanksAndChangesNoToken"},
    Compatibility{"drafts with a grammar", kWhole,
                  "rows with a grammar take none: they get the token that they get without",
                  "GrammarTest.RowsWithAGrammarTakeNoDraftsOfADraftModelBesideRowsThatDo"},
    Compatibility{"drafts with weights in FP8", kWhole,
                  "the draft model is in FP8 where its own checkpoint is",
                  "ThreeWaysTest.DraftsChangeNoTokenOfAModelInFp8"},
    Compatibility{"a draft model with adapters", kWhole,
                  "it guesses without an adapter, and each row is checked with its own",
                  "LoraTest.DraftsChangeNoBitOfWhatAMixOfAdaptersGives"},
    Compatibility{"drafts with adapters", kWhole, "rows of drafts have the slot of their sequence",
                  "SpeculationTest.RequestsOfAdaptersGetToTheBitWhatTheyGetWithoutDrafts"},
    Compatibility{"more adapters than slots", kWhole,
                  "adapters come to slots between steps; who waits for one holds up nobody",
                  "LoraResidencyTest.RandomTrafficGetsWhatEachRequestGetsAlone"},
    Compatibility{"adapters with a prefix cache", kWhole,
                  "the key of pages has the adapter's digest and its load in it",
                  "LoraTest.AdaptersShareNoPagesOfThePrefixCache"},
    Compatibility{"adapters with weights in FP8", kWhole,
                  "A and B are floats, and what they add is not scaled",
                  "LoraTest.AdaptersAddToProductsOfWeightsInFp8"},
    Compatibility{"adapters with experts", "whole or refused",
                  "projections of attention take them; adapters of experts are refused by name",
                  "LoraTest.AdaptersOfAttentionServeAModelWithExpertsAndThoseOfExpertsAreRefused"},
    Compatibility{"adapters with sleep and wake", kWhole,
                  "slots are filled again before a sequence goes on",
                  "LoraTest.AdaptersAreThereAfterASleepThatGaveWeightsBack"},
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
  for (const auto& [feature, recorded, how, test] : kRows)
    table.add({std::string(feature), std::string(recorded), std::string(how), std::string(test)});
  return table.text();
}

json::array compatibility_json() {
  json::array rows;
  for (const auto& [feature, recorded, how, test] : kRows)
    rows.push_back(
        json::object{{"feature", feature}, {"recorded", recorded}, {"how", how}, {"test", test}});
  return rows;
}

}  // namespace encore::loader
