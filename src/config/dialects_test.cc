// Tests properties that every dialect has.
#include <algorithm>

#include <gtest/gtest.h>

#include "config/testing/read_text.h"

namespace encore::config {
namespace {

using testing::read;
using testing::refused;
using Keys = std::vector<std::string>;

std::string notes(const Config& config) {
  std::string all;
  for (const Note& note : config.notes)
    all += fmt::format("{}: {}\n", note.line, note.text);
  return all;
}

TEST(Dialects, EveryTableNamesOptionsAndDefaultsThatExist) {
  for (const DialectTable* table : {&kTrtllm, &kSglang, &kVllm, &kLlama}) {
    for (const ForeignKey& key : table->keys) {
      EXPECT_TRUE(key.native.empty() || find_option(key.native) != nullptr) << key.name;
      EXPECT_TRUE(key.like.empty() || find_option(key.like) != nullptr) << key.name;
      EXPECT_TRUE(key.accepts.empty() || !key.why.empty()) << key.name;
      const size_t dot = key.name.find('.');
      if (dot == std::string_view::npos) continue;
      const auto is_section = [&](const ForeignKey& other) {
        return other.name == key.name.substr(0, dot) && other.type == Type::kSection;
      };
      EXPECT_TRUE(std::any_of(table->keys.begin(), table->keys.end(), is_section)) << key.name;
    }
    for (const Alias& alias : table->aliases) {
      const auto is_named = [&](const ForeignKey& key) { return key.name == alias.name; };
      EXPECT_TRUE(std::any_of(table->keys.begin(), table->keys.end(), is_named)) << alias.spelling;
    }
  }
}

TEST(Dialects, TakeAdaptersByEachSystemsNames) {
  const auto check = [](const char* text, int64_t max_loras, int64_t rank) {
    const Config config = read(text);
    EXPECT_TRUE(config.refused.empty()) << text;
    EXPECT_EQ(config.options.get<Texts>("lora")->texts, (Keys{"a=/x", "b=/y"})) << text;
    EXPECT_EQ(config.options.get<int64_t>("max_loras"), max_loras) << text;
    EXPECT_EQ(config.options.get<int64_t>("max_lora_rank"), rank) << text;
  };
  check("vllm serve m --enable-lora --lora-modules a=/x b=/y --max-loras 4 --max-lora-rank 64", 4,
        64);
  check(
      "python -m sglang.launch_server --model-path m --enable-lora --lora-paths a=/x b=/y "
      "--max-loras-per-batch 3 --max-lora-rank 32",
      3, 32);
  check(
      "max_batch_size: 8\nlora_config:\n  lora_dir: [a=/x, b=/y]\n  max_loras: 5\n"
      "  max_lora_rank: 8\n",
      5, 8);
  EXPECT_EQ(read("vllm serve m --enable-lora").options.get<int64_t>("max_loras"), 1);
}

TEST(Dialects, KnowEveryKeyThatTheirDocumentsName) {
  const std::pair<const char*, Keys> rows[] = {
      {"python -m sglang.launch_server --enable-two-batch-overlap --moe-a2a-backend deepep "
       "--enable-torch-compile --split-ops linear --traced-files a.py --pp-size 2 "
       "--speculative-algorithm EAGLE",
       {"enable_two_batch_overlap", "moe_a2a_backend", "enable_torch_compile", "traced_files",
        "pp_size", "speculative_algorithm"}},
      {"python -m sglang.launch_server --moe-a2a-backend none --enable-debug-mode --compiler eager "
       "--enable-piecewise-cuda-graph --capture-sizes 8 16",
       {}},
      {"speculative_config:\n  decoding_type: Eagle\n  eagle3_one_model: False\n"
       "kv_cache_free_gpu_mem_fraction: 0.9\n",
       {"speculative_config.decoding_type"}},
      {"trtllm-serve m --max_batch_size 8 --tp_size 1 --pp_size 2 --ep_size 2 --port 8000",
       {"pp_size", "ep_size"}},
      {"max_batch_size: 8\nguided_decoding_backend: xgrammar\ntensor_parallel_size: 1\n", {}},
      {"max_batch_size: 8\nguided_decoding_backend: llguidance\ntensor_parallel_size: 1\n",
       {"guided_decoding_backend"}},
  };
  for (const auto& [text, keys] : rows) {
    Keys found = refused(read(text));
    EXPECT_TRUE(std::is_permutation(found.begin(), found.end(), keys.begin(), keys.end()))
        << text << ::testing::PrintToString(found);
  }
  EXPECT_EQ(read("--enable-debug-mode --cuda-graph-max-bs 4").options.get<bool>("graphs_debug"),
            true);
  EXPECT_EQ(read("--enable-deterministic-inference --cuda-graph-max-bs 4")
                .options.get<bool>("batch_invariant"),
            true);
}

TEST(Dialects, SayWhatTheyCutAndSort) {
  EXPECT_EQ(notes(read("cuda_graph_config:\n  enable_padding: true\n  max_batch_size: 4096\n")),
            "3: cuda_graph_config.max_batch_size: sizes above max_batch_size, which is 2048, are "
            "left out\n");
  EXPECT_EQ(notes(read("max_batch_size: 4\ncuda_graph_config:\n  batch_sizes: [8, 2]\n")),
            "3: cuda_graph_config.batch_sizes: the sizes are sorted\n"
            "3: cuda_graph_config.batch_sizes: sizes above max_batch_size, which is 4, are left "
            "out\n");
  EXPECT_EQ(notes(read("--piecewise-cuda-graph-tokens 256 128\n--enable-piecewise-cuda-graph\n"
                       "--cuda-graph-max-bs 512\n--max-running-requests 64\n")),
            "1: piecewise_cuda_graph_tokens: the sizes are sorted\n"
            "3: cuda_graph_max_bs: sizes above the largest batch, which is 64, are left out\n");
  EXPECT_EQ(notes(read("cudagraph_capture_sizes: [1, 64]\nmax_num_seqs: 8\n"
                       "max_num_batched_tokens: 64\n")),
            "1: compilation_config.cudagraph_capture_sizes: sizes above max_num_seqs, which is 8, "
            "are left out\n");
  EXPECT_EQ(notes(read("max_num_seqs: 8\n")).find("left out"), std::string::npos);
}

TEST(Dialects, MapPagesOfLayersWithAWindow) {
  for (const char* text :
       {"vllm serve m --disable-hybrid-kv-cache-manager",
        "python -m sglang.launch_server --model m --disable-hybrid-swa-memory"}) {
    const Config config = read(text);
    EXPECT_EQ(config.options.get<bool>("window_pages"), false) << text;
    EXPECT_TRUE(config.refused.empty()) << text;
  }
  EXPECT_FALSE(read("vllm serve m").options.get<bool>("window_pages").has_value());
}

TEST(Dialects, MapTheServer) {
  struct Row {
    const char* text;
    int64_t port;
    std::vector<std::string> names;
    bool shares_pages;
  };
  const Row rows[] = {
      {"vllm serve m --served-model-name a b --api-key one,,two --no-enable-prefix-caching",
       8000,
       {"a", "b"},
       false},
      {"vllm serve m --port 81 --served-model-name a", 81, {"a"}, true},
      {"python -m sglang.launch_server --model m --served-model-name a --disable-radix-cache",
       30000,
       {"a"},
       false},
      {"python -m sglang.launch_server --model m --served-model-name a --max-queued-requests 7 "
       "--port 82",
       82,
       {"a"},
       true},
  };
  for (const Row& row : rows) {
    const Config config = read(row.text);
    EXPECT_EQ(config.options.get<int64_t>("port"), row.port) << row.text;
    EXPECT_EQ(config.options.get<Texts>("served_model_name"), Texts{row.names}) << row.text;
    EXPECT_EQ(config.options.get<bool>("prefix_cache"), row.shares_pages) << row.text;
    EXPECT_TRUE(config.refused.empty()) << row.text;
  }
  EXPECT_EQ(read(rows[0].text).options.get<Texts>("api_key"), Texts{{"one,,two"}});
  EXPECT_EQ(read(rows[3].text).options.get<int64_t>("max_queue"), 7);
  const Config trtllm = read("trtllm-serve m --host 0.0.0.0 --port 83 --max_batch_size 8");
  EXPECT_EQ(trtllm.options.get<std::string>("host"), "0.0.0.0");
  EXPECT_EQ(trtllm.options.get<int64_t>("port"), 83);
  EXPECT_EQ(trtllm.options.get<bool>("prefix_cache"), true);
}

TEST(Dialects, MapTheDtypeOfKv) {
  EXPECT_EQ(read("kv-cache-dtype: fp8\nmax-num-seqs: 4\n").options.get<std::string>("kv_dtype"),
            "fp8");
  EXPECT_EQ(read("--kv-cache-dtype fp8_e4m3 --max-num-seqs 4").options.get<std::string>("kv_dtype"),
            "fp8");
  EXPECT_EQ(read("--kv-cache-dtype fp8_e4m3 --max-running-requests 4")
                .options.get<std::string>("kv_dtype"),
            "fp8");
  EXPECT_EQ(read("--kv-cache-dtype bfloat16 --max-running-requests 4")
                .options.get<std::string>("kv_dtype"),
            "bf16");
  EXPECT_EQ(read("kv_cache_config:\n  dtype: fp8\n  tokens_per_block: 32\n")
                .options.get<std::string>("kv_dtype"),
            "fp8");
  EXPECT_FALSE(read("kv_cache_dtype: auto\nmax-num-seqs: 4\n")
                   .options.get<std::string>("kv_dtype")
                   .has_value());
}

// Source: vllm-project/vllm issue 21376. A flag that names the format which the checkpoint has does
// not choose another kernel.
TEST(Dialects, QuantizeWhereTheySayFp8AndLeaveTheRestToTheCheckpoint) {
  for (const std::string system : {" --max-num-seqs 4", " --max-running-requests 4"}) {
    const auto quantize = [&](const std::string& method) {
      return read("--quantization " + method + system).options.get<std::string>("quantize");
    };
    EXPECT_EQ(quantize("fp8"), "fp8");
    EXPECT_FALSE(quantize("compressed-tensors").has_value());
    EXPECT_FALSE(quantize("modelopt").has_value());
    EXPECT_EQ(refused(read("--quantization awq" + system)).size(), 1U);
  }
}

}  // namespace
}  // namespace encore::config
