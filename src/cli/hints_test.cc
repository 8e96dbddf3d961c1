#include "cli/hints.h"

#include <gtest/gtest.h>

namespace encore::cli {
namespace {

const std::vector<std::string> kFlags = {"-m",
                                         "--model",
                                         "--max-seq-len",
                                         "--max-batch-size",
                                         "--max-num-tokens",
                                         "--temperature",
                                         "--memory-reserve",
                                         "--dtype"};

TEST(Hints, NameTheFlagThatIsNear) {
  EXPECT_EQ(hint_of_flag("--modle", kFlags), "did you mean --model?");
  EXPECT_EQ(hint_of_flag("--temprature=0", kFlags), "did you mean --temperature?");
  EXPECT_EQ(hint_of_flag("--max-batch", kFlags), "did you mean --max-batch-size?");
  EXPECT_EQ(hint_of_flag("--nothing-like-it", kFlags), "");
  EXPECT_EQ(hint_of_flag("--", kFlags), "");
  EXPECT_EQ(hint_of_flag("--" + std::string(1000, 'x'), kFlags), "");
}

TEST(Hints, SayWhatFlagsOfOtherSystemsAreHere) {
  EXPECT_EQ(hint_of_flag("--max-model-len", kFlags),
            "vLLM's --max-model-len is --max-seq-len here");
  EXPECT_EQ(hint_of_flag("--max_num_seqs=8", kFlags),
            "vLLM's --max_num_seqs is --max-batch-size here");
  EXPECT_EQ(hint_of_flag("--ctx-size", kFlags), "llama-server's --ctx-size is --max-seq-len here");
  EXPECT_EQ(hint_of_flag("--tensor-parallel-size", kFlags).substr(0, 40),
            "TensorRT-LLM's --tensor-parallel-size is");
  EXPECT_EQ(hint_of_flag("--served-model-name", kFlags), "it is an option of other verbs");
}

TEST(Hints, NameTheVerbThatIsNear) {
  EXPECT_EQ(hint_of_word("genrate", {"generate", "chat"}), "did you mean generate?");
  EXPECT_EQ(hint_of_word("bench decod", {"bench decode", "bench mixed"}),
            "did you mean bench decode?");
  EXPECT_EQ(hint_of_word("xyzzy", {"generate", "chat"}), "");
}

}  // namespace
}  // namespace encore::cli
