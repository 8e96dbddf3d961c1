// Tests that each system's documented configurations give the native options that they stand for.
#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"
#include "config/testing/read_text.h"
#include "planning/schedules.h"

namespace encore::config {
namespace {

using testing::problem;
using testing::read;
using testing::refused;
using Keys = std::vector<std::string>;

// The tests that follow read configurations of TensorRT-LLM.

TEST(Trtllm, MapsTheDocumentedExample) {
  const Config config = read(R"(
cuda_graph_config:
  enable_padding: true
  max_batch_size: 1024 # Specify max capture batch size for generation only cuda graph.
torch_compile_config:
  capture_num_tokens: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072]
  enable_userbuffers: false
  enable_piecewise_cuda_graph: true
)");
  EXPECT_EQ(config.dialect, Dialect::kTrtllm);
  EXPECT_EQ(config.options.get<std::string>("graphs"), "full-and-piecewise");
  EXPECT_EQ(config.options.get<bool>("padding"), true);
  EXPECT_EQ(config.options.get<Sizes>("decode_ladder")->sizes,
            (std::vector<int64_t>{1,  2,  4,  8,  16,  24,  32,  40,  48,  56,  64,
                                  72, 80, 88, 96, 104, 112, 120, 128, 256, 512, 1024}));
  EXPECT_EQ(config.options.get<Sizes>("token_ladder")->sizes.back(), 3072);
  EXPECT_EQ(config.options.get<int64_t>("max_num_tokens"), 8192);
  EXPECT_TRUE(config.refused.empty());
  EXPECT_EQ(config.origins.at("token_ladder").from,
            "torch_compile_config.capture_num_tokens, line 6");
}

TEST(Trtllm, HasItsOwnDefaults) {
  const Config config = read("", Dialect::kTrtllm);
  EXPECT_EQ(config.options.get<std::string>("graphs"), "full-decode-only");
  EXPECT_EQ(config.options.get<bool>("padding"), false);
  EXPECT_EQ(config.options.get<int64_t>("max_batch_size"), 2048);
  std::vector<int64_t> sizes(32);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {64, 128});
  EXPECT_EQ(config.options.get<Sizes>("decode_ladder")->sizes, sizes);
  EXPECT_EQ(config.options.get<double>("free_gpu_memory_fraction"), 0.9);
  EXPECT_FALSE(config.options.get<Sizes>("token_ladder").has_value());
  EXPECT_TRUE(config.refused.empty());
  const Config pieces = read("torch_compile_config: {enable_piecewise_cuda_graph: true}");
  EXPECT_EQ(pieces.options.get<Sizes>("token_ladder")->sizes,
            planning::named_or_list("trtllm", 3072).sizes());
  EXPECT_EQ(pieces.options.get<Sizes>("token_ladder")->sizes.size(), 20U);
}

TEST(Trtllm, ReadsNewerAndOlderSpellings) {
  const Config newer = read(R"(
prefill_cuda_graph_backend: breakable
prefill_capture_num_tokens: [8, 64]
max_num_tokens: 64
max_batch_size: 64
)");
  EXPECT_EQ(newer.options.get<std::string>("graphs"), "full-and-piecewise");
  EXPECT_EQ(newer.options.get<Sizes>("token_ladder"), (Sizes{"", {8, 64}}));
  const Config older = read("use_cuda_graph: false\ncuda_graph_padding_enabled: true\n");
  EXPECT_EQ(older.options.get<std::string>("graphs"), "none");
  EXPECT_NE(problem("prefill_capture_num_tokens: [1]\n"
                    "torch_compile_config:\n  capture_num_tokens: [1]\n")
                .find("c.yml:3: torch_compile_config.capture_num_tokens is given twice"),
            std::string::npos);
}

TEST(Trtllm, SwitchesASectionOffWithNull) {
  EXPECT_EQ(read("cuda_graph_config: null").options.get<std::string>("graphs"), "none");
  const Config pieces =
      read("cuda_graph_config:\ntorch_compile_config: {enable_piecewise_cuda_graph: true}");
  EXPECT_EQ(pieces.options.get<std::string>("graphs"), "piecewise");
  EXPECT_EQ(pieces.notes.size(), 2U);
  EXPECT_EQ(read("cuda_graph_config: {}").options.get<std::string>("graphs"), "full-decode-only");
}

TEST(Trtllm, RefusesByNameWhatIsNotThere) {
  const Config config = read(R"(
torch_compile_config:
  enable_fullgraph: true
  enable_inductor: true
  enable_userbuffers: true
  max_num_streams: 3
kv_cache_config:
  enable_block_reuse: true
  free_gpu_memory_fraction: 0.5
  tokens_per_block: 128
speculative_config:
  decoding_type: MTP
enable_chunked_prefill: true
enable_iter_perf_stats: true
print_iter_log: true
)");
  EXPECT_EQ(refused(config),
            (Keys{"torch_compile_config.enable_inductor", "torch_compile_config.max_num_streams",
                  "kv_cache_config.tokens_per_block", "speculative_config.decoding_type"}));
  EXPECT_EQ(config.refused.front().line, 4);
  EXPECT_EQ(config.options.get<double>("free_gpu_memory_fraction"), 0.5);
  EXPECT_EQ(config.options.get<std::string>("step_log"), "/dev/stderr");
  EXPECT_FALSE(config.options.get<int64_t>("page_size").has_value());
}

TEST(Trtllm, ReadsTheFileThatACommandNames) {
  const TempDir folder;
  folder.write("extra.yml", "max_num_tokens: 64\ncuda_graph_config:\n  batch_sizes: [1, 4]\n");
  const std::filesystem::path command =
      folder.write("serve.sh",
                   "trtllm-serve some/model --max_batch_size 4 \\\n --max_num_tokens 128 "
                   "--extra_llm_api_options extra.yml\n");
  const Config config = load(command);
  EXPECT_EQ(config.dialect, Dialect::kTrtllm);
  EXPECT_EQ(config.options.get<std::string>("model"), "some/model");
  EXPECT_EQ(config.options.get<int64_t>("max_batch_size"), 4);
  EXPECT_EQ(config.options.get<int64_t>("max_num_tokens"), 64);  // the file wins
  EXPECT_EQ(config.options.get<Sizes>("decode_ladder"), (Sizes{"", {1, 4}}));
  EXPECT_EQ(config.origins.at("decode_ladder").line, 2);
  folder.write("extra.yml", "max_num_tokens: 64\ncuda_graph_config: 7\n");
  EXPECT_EQ(message_of(ErrorKind::kUsage, [&] { (void)load(command); }),
            (folder.path() / "extra.yml").string() +
                ":2: cuda_graph_config holds keys and values, or null");
}

TEST(Trtllm, NamesImpossibleValues) {
  EXPECT_NE(problem("cuda_graph_config:\n  batch_sizes: [1, 8]\n  max_batch_size: 16\n")
                .find("c.yml:3: cuda_graph_config.max_batch_size 16 is not the largest"),
            std::string::npos);
  EXPECT_NE(problem("torch_compile_config:\n  capture_num_tokens: '${capture_num_tokens}'\n")
                .find("c.yml:2: torch_compile_config.capture_num_tokens is a list of sizes"),
            std::string::npos);
  const Config typo = read("cuda_graph_config:\n  enable_paddng: true\n  batch_sizes: [1]\n");
  ASSERT_EQ(typo.unknown.size(), 1U);
  EXPECT_EQ(typo.unknown[0].line, 2);
  EXPECT_EQ(typo.unknown[0].key, "cuda_graph_config.enable_paddng");
  EXPECT_EQ(typo.unknown[0].hint, "; did you mean 'cuda_graph_config.enable_padding'?");
  EXPECT_EQ(typo.options.get<Sizes>("decode_ladder")->sizes, std::vector<int64_t>{1});
  EXPECT_NE(problem("kv_cache_config:\n  free_gpu_memory_fraction: 2\n").find("c.yml:2: "),
            std::string::npos);
  for (const char* value : {"7", "true", "[1]"}) {
    EXPECT_EQ(problem(fmt::format("torch_compile_config: {}\n", value)),
              "c.yml:1: torch_compile_config holds keys and values, or null");
  }
  EXPECT_NE(problem("max_batch_size: 5000\nkv_cache_config: {}\n")
                .find("c.yml:1: max_batch_size is 1 to 4096"),
            std::string::npos);
}

// The tests that follow read configurations of SGLang.

TEST(Sglang, MapsTheDocumentedCommand) {
  const Config config = read(R"(python -m sglang.launch_server \
  --model models/qwen3-8b \
  --enable-piecewise-cuda-graph \
  --piecewise-cuda-graph-max-tokens 4096 \
  --piecewise-cuda-graph-compiler eager
)");
  EXPECT_EQ(config.dialect, Dialect::kSglang);
  EXPECT_EQ(config.options.get<std::string>("model"), "models/qwen3-8b");
  EXPECT_EQ(config.options.get<std::string>("graphs"), "full-and-piecewise");
  const auto sizes = config.options.get<Sizes>("token_ladder")->sizes;
  EXPECT_EQ(sizes.size(), 50U);
  EXPECT_TRUE(std::binary_search(sizes.begin(), sizes.end(), 576));
  EXPECT_EQ(sizes.back(), 4096);
  EXPECT_EQ(config.options.get<int64_t>("max_num_tokens"), 8192);
  EXPECT_EQ(config.options.get<int64_t>("max_batch_size"), 256);
  EXPECT_TRUE(config.refused.empty());
  EXPECT_EQ(config.origins.at("token_ladder").line, 4);
}

TEST(Sglang, RefusesTheEnvironmentOfACommand) {
  const Config config =
      read("SGLANG_VIT_ENABLE_CUDA_GRAPH=1 \\\npython -m sglang.launch_server --model m\n");
  EXPECT_EQ(refused(config), Keys{"SGLANG_VIT_ENABLE_CUDA_GRAPH"});
}

TEST(Sglang, HasItsOwnDefaults) {
  const Config config = read("", Dialect::kSglang);
  EXPECT_EQ(config.options.get<std::string>("graphs"), "full-decode-only");
  EXPECT_EQ(config.options.get<bool>("padding"), true);
  EXPECT_EQ(config.options.get<Amount>("memory_reserve"), (Amount{0, 0.1}));
  const auto sizes = config.options.get<Sizes>("decode_ladder")->sizes;
  EXPECT_EQ(sizes.back(), 256);
  EXPECT_EQ(std::vector<int64_t>(sizes.begin(), sizes.begin() + 7),
            (std::vector<int64_t>{1, 2, 4, 8, 12, 16, 24}));
  EXPECT_EQ(read("enable-piecewise-cuda-graph: true\npiecewise-cuda-graph-max-tokens: 2048\n")
                .options.get<Sizes>("token_ladder")
                ->sizes.size(),
            42U);
  const auto larger = read("cuda-graph-max-bs: 600\nmax-running-requests: 4096\n")
                          .options.get<Sizes>("decode_ladder")
                          ->sizes;
  ASSERT_GT(larger.size(), 5U);
  EXPECT_EQ(std::vector<int64_t>(larger.end() - 5, larger.end()),
            (std::vector<int64_t>{480, 496, 512, 544, 576}));
}

TEST(Sglang, ReadsYamlAndListsOfFlags) {
  const std::string yaml =
      "enable-piecewise-cuda-graph: true\n"
      "piecewise-cuda-graph-tokens: [128, 256, 512, 1024, 2048, 4096]\n"
      "cuda-graph-max-bs: 32\ndisable-cuda-graph-padding: true\n";
  const std::string flags =
      "--enable-piecewise-cuda-graph\n--piecewise-cuda-graph-tokens 128 256 512 1024 2048 4096\n"
      "--cuda-graph-max-bs 32\n--disable-cuda-graph-padding\n";
  EXPECT_EQ(read(yaml).options, read(flags).options);
  EXPECT_EQ(read(flags).options.get<Sizes>("token_ladder"),
            (Sizes{"", {128, 256, 512, 1024, 2048, 4096}}));
  EXPECT_EQ(read(flags).options.get<bool>("padding"), false);
  EXPECT_EQ(read(flags).options.get<Sizes>("decode_ladder")->sizes.size(), 32U);
  EXPECT_EQ(read(flags).options.get<int64_t>("max_batch_size"), 32);
}

TEST(Sglang, MapsTheRestOfItsFlags) {
  const Config config = read(
      "--mem-fraction-static 0.8 --chunked-prefill-size 2048 --disable-cuda-graph "
      "--max-running-requests 48 --dtype bfloat16");
  EXPECT_EQ(config.options.get<Amount>("memory_reserve"), (Amount{0, 0.2}));
  EXPECT_EQ(config.options.get<int64_t>("max_num_tokens"), 2048);
  EXPECT_EQ(config.options.get<std::string>("graphs"), "none");
  EXPECT_EQ(config.options.get<int64_t>("max_batch_size"), 48);
  EXPECT_EQ(config.options.get<std::string>("dtype"), "bf16");
  EXPECT_FALSE(config.options.get<Sizes>("decode_ladder").has_value());
}

TEST(Sglang, NamesWhatCannotBe) {
  EXPECT_NE(problem("--disable-cuda-graph\n--enable-piecewise-cuda-graph\n")
                .find("c.yml:2: enable_piecewise_cuda_graph and disable_cuda_graph contradict"),
            std::string::npos);
  EXPECT_NE(problem("--piecewise-cuda-graph-tokens 8 4096\n--piecewise-cuda-graph-max-tokens 64\n"
                    "--enable-piecewise-cuda-graph\n")
                .find("c.yml:1: piecewise_cuda_graph_tokens: 4096 is more than"),
            std::string::npos);
  EXPECT_NE(problem("--chunked-prefill-size -1 --mem-fraction-static 0.9").find("always go in"),
            std::string::npos);
  EXPECT_NE(problem("--mem-fraction-static 1.9").find("c.yml:1: mem_fraction_static is 0 to 1"),
            std::string::npos);
  EXPECT_EQ(refused(read("--piecewise-cuda-graph-compiler inductor\n--dp 8\n")),
            (Keys{"piecewise_cuda_graph_compiler", "dp"}));
}

// The tests that follow read configurations of vLLM.

TEST(Vllm, MapsEveryMode) {
  const std::pair<const char*, const char*> rows[] = {
      {"NONE", "none"},
      {"PIECEWISE", "piecewise"},
      {"FULL", "full"},
      {"FULL_DECODE_ONLY", "full-decode-only"},
      {"FULL_AND_PIECEWISE", "full-and-piecewise"},
  };
  for (const auto& [mode, native] : rows) {
    const Config config = read(fmt::format("compilation_config:\n  cudagraph_mode: {}\n", mode));
    EXPECT_EQ(config.dialect, Dialect::kVllm);
    EXPECT_EQ(config.options.get<std::string>("graphs"), native);
    EXPECT_EQ(config.origins.at("graphs").line, 2);
    for (const Note& note : config.notes)
      EXPECT_NE(note.line, 2) << mode << ": " << note.text;
  }
  EXPECT_NE(problem("compilation_config: {cudagraph_mode: ALL}").find("c.yml:1: "),
            std::string::npos);
}

TEST(Vllm, HasItsOwnDefaults) {
  const Config config = read("", Dialect::kVllm);
  EXPECT_EQ(config.options.get<std::string>("graphs"), "full-and-piecewise");
  EXPECT_EQ(config.options.get<Sizes>("decode_ladder")->sizes.size(), 51U);
  EXPECT_EQ(config.options.get<Sizes>("decode_ladder")->sizes,
            runtime::Ladder::sequences(512).sizes());
  EXPECT_EQ(config.options.get<Sizes>("token_ladder"), config.options.get<Sizes>("decode_ladder"));
  EXPECT_EQ(config.options.get<int64_t>("page_size"), 16);
  EXPECT_EQ(config.options.get<Amount>("memory_reserve"), (Amount{0, 0.1}));
  EXPECT_EQ(config.options.get<std::string>("above_ladder"), "eager");
  EXPECT_TRUE(config.refused.empty());
}

TEST(Vllm, ReadsFlagsYamlAndJsonAlike) {
  const Options expected = read(
                               "compilation_config:\n  cudagraph_mode: FULL_DECODE_ONLY\n"
                               "  cudagraph_capture_sizes: [1, 2, 4, 8]\nmax-num-seqs: 8\n")
                               .options;
  EXPECT_EQ(expected.get<Sizes>("decode_ladder"), (Sizes{"", {1, 2, 4, 8}}));
  const char* const spellings[] = {
      "compilation-config: '{\"cudagraph_mode\": \"FULL_DECODE_ONLY\", "
      "\"cudagraph_capture_sizes\": [1, 2, 4, 8]}'\nmax-num-seqs: 8\n",
      "--max-num-seqs 8 --compilation-config '{\"cudagraph_mode\": \"FULL_DECODE_ONLY\", "
      "\"cudagraph_capture_sizes\": [1, 2, 4, 8]}'",
      "--compilation-config.cudagraph_mode=FULL_DECODE_ONLY --cudagraph-capture-sizes 1 2 4 8 "
      "--max-num-seqs=8",
  };
  for (const char* text : spellings)
    EXPECT_EQ(read(text).options, expected) << text;
  const char* const lines[] = {
      "vllm serve m --compilation-config '{\"cudagraph_mode\": \"PIECEWISE\"}'",
      "vllm serve m --compilation-config='{\"cudagraph_mode\":\"PIECEWISE\"}'",
      "vllm serve m -O.cudagraph_mode=PIECEWISE",
      "vllm serve m -cc.cudagraph_mode=PIECEWISE -O3",
      "-O 1 --model m --max-num-seqs 1024",
      "vllm serve m -O1",
      "vllm serve m --compilation-config 1",
      "VLLM_NO_USAGE_STATS=1 vllm serve m -O1",
  };
  for (const char* text : lines) {
    EXPECT_EQ(read(text).options.get<std::string>("model"), "m") << text;
    EXPECT_EQ(read(text).options.get<std::string>("graphs"), "piecewise") << text;
  }
  EXPECT_EQ(read("vllm serve m -O0").options.get<std::string>("graphs"), "none");
  EXPECT_EQ(read("vllm serve m -O 3").options.get<std::string>("graphs"), "full-and-piecewise");
  EXPECT_TRUE(read("vllm serve m -O.mode=3 -O3").refused.empty());
  EXPECT_EQ(refused(read("vllm serve m -cc.mode=1")), Keys{"compilation_config.mode"});
  EXPECT_EQ(
      read("vllm serve m -cc.cudagraph_capture_sizes='[1, 2]'").options.get<Sizes>("decode_ladder"),
      (Sizes{"", {1, 2}}));
  EXPECT_EQ(read("vllm serve m").options.get<std::string>("model"), "m");
  EXPECT_EQ(read("HF_HOME=/models vllm serve m").options.get<std::string>("model"), "m");
  // Older versions of vLLM took a single number for the largest size.
  EXPECT_EQ(read("vllm serve m --cuda-graph-sizes 24").options.get<Sizes>("decode_ladder"),
            (Sizes{"", {1, 2, 4, 8, 16, 24}}));
  EXPECT_EQ(read("vllm serve m --cuda-graph-sizes 1 24").options.get<Sizes>("decode_ladder"),
            (Sizes{"", {1, 24}}));
  EXPECT_NE(problem("vllm serve m --cuda-graph-sizes 24 --cudagraph-capture-sizes 1 2")
                .find("are one thing; give one"),
            std::string::npos);
  const Config command = read("vllm serve some/model --max-num-seqs 8 --enforce-eager");
  EXPECT_EQ(command.options.get<std::string>("model"), "some/model");
  EXPECT_EQ(command.options.get<std::string>("graphs"), "none");
}

TEST(Dialects, MapTheOpsToSplitAt) {
  const Config vllm = read(R"(
compilation_config:
  splitting_ops: ["vllm::unified_attention_with_output", silu_mul, "vllm.mamba_mixer2"]
)");
  EXPECT_EQ(vllm.options.get<Names>("split_at"), (Names{"silu_mul"}));
  EXPECT_EQ(vllm.origins.at("split_at").from, "compilation_config.splitting_ops, line 3");
  EXPECT_TRUE(refused(vllm).empty());
  const auto has_note = [](const Config& config, std::string_view text) {
    return std::any_of(config.notes.begin(), config.notes.end(), [&](const Note& note) {
      return note.line == 3 && note.text.find(text) != std::string::npos;
    });
  };
  EXPECT_TRUE(has_note(vllm, "no op 'vllm.mamba_mixer2' here"));

  const Config none = read("\ncompilation_config:\n  splitting_ops: []\n");
  EXPECT_EQ(none.options.get<Names>("split_at"), std::nullopt);
  EXPECT_TRUE(has_note(none, "split at attention all the same"));

  const Config sglang =
      read("--enable-mixed-chunk\n--split-ops rms_norm,linear,sglang.unified_attention\n");
  EXPECT_EQ(sglang.options.get<Names>("split_at"), (Names{"rms_norm", "linear"}));
  EXPECT_NE(problem("compilation_config:\n  splitting_ops: [1, [2]]\n").find("2: an entry of"),
            std::string::npos);
}

TEST(Vllm, LooksDraftsUpWhereItDoes) {
  const Options options = read(
                              "vllm serve m --max-num-seqs 8 --speculative-config "
                              "'{\"method\": \"ngram\", \"num_speculative_tokens\": 5, "
                              "\"prompt_lookup_max\": 3, \"prompt_lookup_min\": 2}'")
                              .options;
  EXPECT_EQ(options.get<Names>("speculative_tokens"), Names{"5"});
  EXPECT_EQ(options.get<int64_t>("speculative_ngram"), 3);
  const Config eagle = read(
      "vllm serve m --speculative-config '{\"method\": \"eagle3\", \"model\": \"x/y\", "
      "\"num_speculative_tokens\": 3}'");
  EXPECT_EQ(refused(eagle), (Keys{"speculative_config.method"}));
  EXPECT_FALSE(eagle.options.get<Names>("speculative_tokens").has_value());
  EXPECT_FALSE(eagle.options.get<std::string>("draft_model").has_value());
}

TEST(Vllm, HasADraftModelGuessWhereItDoes) {
  for (const char* method : {"", "\"method\": \"draft_model\", "}) {
    const Options options =
        read(fmt::format("vllm serve m --speculative-config '{{{}\"model\": \"x/y\", "
                         "\"num_speculative_tokens\": 3}}'",
                         method))
            .options;
    EXPECT_EQ(options.get<std::string>("draft_model"), "x/y");
    EXPECT_EQ(options.get<Names>("speculative_tokens"), Names{"3"});
  }
}

TEST(Sglang, HasADraftModelGuessWhereItDoes) {
  const std::string start =
      "python -m sglang.launch_server --model-path m --speculative-algorithm STANDALONE "
      "--speculative-draft-model-path x/y ";
  for (const char* count : {"--speculative-num-steps 3 --speculative-eagle-topk 1",
                            "--speculative-num-draft-tokens 4"}) {
    const Options options = read(start + count).options;
    EXPECT_EQ(options.get<std::string>("draft_model"), "x/y");
    EXPECT_EQ(options.get<Names>("speculative_tokens"), Names{"3"}) << count;
  }
  EXPECT_EQ(
      read(start + "--speculative-num-draft-tokens 40").options.get<Names>("speculative_tokens"),
      Names{"16"});
  EXPECT_EQ(refused(read(start + "--speculative-num-steps 3 --speculative-eagle-topk 4")),
            (Keys{"speculative_eagle_topk"}));
}

TEST(Trtllm, GuessesWhereItDoes) {
  const std::string start =
      "max_batch_size: 8\nspeculative_config:\n  max_draft_len: 4\n  decoding_type: ";
  const Options looked_up = read(start + "NGram\n  max_matching_ngram_size: 2\n").options;
  EXPECT_EQ(looked_up.get<Names>("speculative_tokens"), Names{"4"});
  EXPECT_EQ(looked_up.get<int64_t>("speculative_ngram"), 2);
  const Options drafted = read(start + "DraftTarget\n  speculative_model_dir: x/y\n").options;
  EXPECT_EQ(drafted.get<Names>("speculative_tokens"), Names{"4"});
  EXPECT_EQ(drafted.get<std::string>("draft_model"), "x/y");
  EXPECT_FALSE(drafted.get<std::string>("speculative_acceptance").has_value());
  const Config eagle = read(start + "Eagle3\n  speculative_model: x/y\n");
  EXPECT_EQ(refused(eagle), (Keys{"speculative_config.decoding_type"}));
  EXPECT_FALSE(eagle.options.get<Names>("speculative_tokens").has_value());
  EXPECT_FALSE(eagle.options.get<std::string>("draft_model").has_value());
  EXPECT_NE(problem(start + "DraftTarget\n").find("needs speculative_model"), std::string::npos);
}

TEST(Dialects, SayWhereDraftsAreAcceptedByRejectionSampling) {
  for (const char* text :
       {"max_batch_size: 8\nspeculative_config:\n  decoding_type: NGram\n  max_draft_len: 4\n"
        "  use_rejection_sampling: true\n",
        "python -m sglang.launch_server --model-path m --speculative-algorithm NGRAM "
        "--speculative-use-rejection-sampling --speculative-accept-threshold-acc 1.0",
        "vllm serve m --speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 4, "
        "\"rejection_sample_method\": \"standard\"}'"}) {
    const Config config = read(text);
    EXPECT_EQ(config.options.get<std::string>("speculative_acceptance"), "rejection") << text;
    EXPECT_EQ(refused(config), Keys()) << text;
  }
  const Config other = read(
      "vllm serve m --speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 4, "
      "\"rejection_sample_method\": \"block\"}'");
  EXPECT_EQ(refused(other), (Keys{"speculative_config.rejection_sample_method"}));
  EXPECT_FALSE(other.options.get<std::string>("speculative_acceptance").has_value());
  EXPECT_EQ(refused(read("python -m sglang.launch_server --model-path m --speculative-algorithm "
                         "NGRAM --speculative-accept-threshold-single 0.9")),
            (Keys{"speculative_accept_threshold_single"}));
}

TEST(Llama, HasADraftModelGuessWhereItDoes) {
  const Options options = read("llama-server -m m --model-draft d --draft-max 4").options;
  EXPECT_EQ(options.get<std::string>("draft_model"), "d");
  EXPECT_EQ(options.get<Names>("speculative_tokens"), Names{"4"});
}

TEST(Sglang, LooksDraftsUpWhereItDoes) {
  const Options options = read(
                              "python -m sglang.launch_server --model-path m "
                              "--speculative-algorithm NGRAM --speculative-num-draft-tokens 4")
                              .options;
  EXPECT_EQ(options.get<Names>("speculative_tokens"), Names{"4"});
}

TEST(Vllm, CapsItsSizesAtTheLimits) {
  const Config config = read("max_num_seqs: 100\nmax_num_batched_tokens: 150\n");
  EXPECT_EQ(config.options.get<Sizes>("decode_ladder")->sizes.back(), 100);
  EXPECT_EQ(config.options.get<Sizes>("token_ladder")->sizes.back(), 150);
  const Config few = read("max_cudagraph_capture_size: 8\nmax_num_seqs: 64\n");
  EXPECT_EQ(few.options.get<Sizes>("decode_ladder"), (Sizes{"", {1, 2, 4, 8}}));
}

TEST(Vllm, NamesWhatCannotBe) {
  EXPECT_NE(problem("enforce-eager: true\ncompilation_config: {cudagraph_mode: FULL}\n")
                .find("c.yml:2: cudagraph_mode FULL contradicts enforce_eager, line 1"),
            std::string::npos);
  EXPECT_NE(problem("cudagraph_capture_sizes: [1, 2]\nmax_cudagraph_capture_size: 4\n")
                .find("c.yml:2: max_cudagraph_capture_size 4 is not the largest"),
            std::string::npos);
  EXPECT_EQ(refused(read("kv-cache-dtype: fp8_e5m2\n"
                         "pipeline-parallel-size: 4\nmax-num-seqs: 4\n")),
            (Keys{"kv_cache_dtype", "pipeline_parallel_size"}));
}

TEST(Dialects, ReadHowManyDevicesComputeAModelTogether) {
  for (const char* text :
       {"vllm serve m --tensor-parallel-size 4", "vllm serve m -tp 4", "vllm serve m --tp 4",
        "python -m sglang.launch_server --model-path m --tp-size 4",
        "python -m sglang.launch_server --model-path m --tp 4", "trtllm-serve m --tp_size 4"}) {
    const Config config = read(text);
    EXPECT_EQ(config.options.get<int64_t>("tensor_parallel"), 4) << text;
    EXPECT_EQ(refused(config), Keys{}) << text;
  }
  EXPECT_EQ(read("tensor_parallel_size: 2\nmax_batch_size: 4\ntrust_remote_code: true\n",
                 Dialect::kTrtllm)
                .options.get<int64_t>("tensor_parallel"),
            2);
}

}  // namespace
}  // namespace encore::config
