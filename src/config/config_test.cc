// Native options, the reading of files, and what goes wrong in them.
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/dialect.h"

namespace encore::config {
namespace {

Config read(const std::string& text, std::optional<Dialect> dialect = {}) {
  return resolve(parse_document(text, "c.yml"), dialect);
}

// The message of the error that reading ends in; empty when there is none.
std::string problem(const std::string& text, std::optional<Dialect> dialect = {}) {
  try {
    (void)read(text, dialect);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

TEST(Config, ReadsNativeKeys) {
  const Config config = read(R"(
model: stories            # a comment
graphs: full-decode-only
decode_ladder: [1, 2, 4, 8]
token_ladder: pow2
padding: off
max_batch_size: 8
free_gpu_memory_fraction: 0.5
memory_reserve: 512MiB
)");
  EXPECT_EQ(config.dialect, Dialect::kNative);
  EXPECT_EQ(config.options.graphs, "full-decode-only");
  EXPECT_EQ(config.options.decode_ladder, (Sizes{"", {1, 2, 4, 8}}));
  EXPECT_EQ(config.options.token_ladder, (Sizes{"pow2", {}}));
  EXPECT_EQ(config.options.padding, false);
  EXPECT_EQ(config.options.memory_reserve, (Amount{int64_t{512} << 20, 0}));
  EXPECT_FALSE(config.options.max_num_tokens.has_value());
  EXPECT_EQ(config.origins.at("padding").line, 6);
}

TEST(Config, ReadsBackWhatItPrints) {
  Options options;
  options.model = "a \"model\" with: signs\nand a line";
  options.device = "cpu";
  options.threads = 2;
  options.dtype = "bf16";
  options.kv_dtype = "fp8";
  options.graphs = "full-and-piecewise";
  options.decode_ladder = Sizes{"step:4", {}};
  options.token_ladder = Sizes{"", {1, 16, 4096}};
  options.padding = false;
  options.above_ladder = "eager";
  options.eager_steps = "forbid";
  options.recording_errors = "drop";
  options.record_order = "ascending";
  options.graphs_debug = true;
  options.persistent = "on";
  options.overlap = "off";
  options.burst_steps = 16;
  options.max_batch_size = 4096;
  options.max_num_tokens = 65536;
  options.max_seq_len = 1 << 20;
  options.page_size = 64;
  options.kv_tokens = 123456;
  options.free_gpu_memory_fraction = 0.875;
  options.memory_reserve = Amount{0, 0.1};
  options.step_log = "/tmp/a file.jsonl";
  options.tune = "fresh";
  options.tuning_cache = "off";
  for (const Option& option : all_options())
    EXPECT_TRUE(is_set(options, option)) << option.name << " is not in this test";
  EXPECT_EQ(read(to_yaml(options)).options, options) << to_yaml(options);
}

TEST(Config, ReadsBackEachOptionAlone) {
  for (const Option& option : all_options()) {
    for (const char* value :
         {"8", "full", "cpu", "bf16", "on", "0.5", "10%", "32", "drop", "lru:8", "split"}) {
      Options one;
      try {
        set(one, option, scalar(value, 1), "t", option.name);
      } catch (const Error&) {
        continue;
      }
      EXPECT_EQ(read(to_yaml(one), Dialect::kNative).options, one) << to_yaml(one);
    }
  }
}

TEST(Config, EveryOptionHasADocADefaultAndARange) {
  for (const Option& option : all_options()) {
    EXPECT_FALSE(option.doc.empty()) << option.name;
    EXPECT_FALSE(option.fallback.empty()) << option.name;
    EXPECT_FALSE(option.range().empty()) << option.name;
    EXPECT_EQ(find_option(option.name), &option);
  }
}

TEST(Config, TakesAnEmptyFile) {
  EXPECT_EQ(read("").options, Options{});
  EXPECT_EQ(read("# only a comment\n---\n").options, Options{});
}

TEST(Config, TakesDashesForUnderscoresAndFlagsForYaml) {
  EXPECT_EQ(read("max-batch-size: 4").options.max_batch_size, 4);
  const Config config = read("--max-batch-size 4 --graphs=none\n# so\n--decode-ladder 1,2,4\n");
  EXPECT_EQ(config.dialect, Dialect::kNative);
  EXPECT_EQ(config.options.graphs, "none");
  EXPECT_EQ(config.options.decode_ladder, (Sizes{"", {1, 2, 4}}));
}

struct Malformed {
  const char* text;
  const char* message;  // the start of it, after "c.yml:"
};

TEST(Config, NamesTheLineOfEveryMistake) {
  const Malformed rows[] = {
      {"max_batch_size: 4\nmax_bach_size: 8\n", "2: there is no option 'max_bach_size'; did you"},
      {"graphs: none\ngraphs: full\n", "2: 'graphs' is given twice, first on line 1"},
      {"max-batch-size: 1\nmax_batch_size: 2\n", "2: max_batch_size is given twice"},
      {"\n\ngraphs: fast\n", "3: graphs is auto, none, piecewise"},
      {"max_batch_size: 0", "1: max_batch_size is 1 to 4096 sequences, not 0"},
      {"max_batch_size: 4097", "1: max_batch_size is 1 to 4096 sequences, not 4097"},
      {"max_batch_size: 99999999999999999999", "1: max_batch_size is a whole number, not '9999"},
      {"max_batch_size: many", "1: max_batch_size is a whole number, not 'many'"},
      {"max_batch_size: 1.5", "1: max_batch_size is a whole number"},
      {"max_batch_size: '4'", "1: max_batch_size is a whole number"},
      {"max_batch_size: [4]", "1: max_batch_size is a whole number, not a list"},
      {"max_batch_size:", "1: max_batch_size is a whole number, not nothing"},
      {"padding: maybe", "1: padding is true or false, not 'maybe'"},
      {"page_size: 20", "1: page_size is 16, 32 or 64 tokens, not 20"},
      {"free_gpu_memory_fraction: 1.5", "1: free_gpu_memory_fraction is 0 to 1, not 1.5"},
      {"free_gpu_memory_fraction: .nan", "1: free_gpu_memory_fraction is a number"},
      {"free_gpu_memory_fraction: nan", "1: free_gpu_memory_fraction is a number"},
      {"memory_reserve: 10 stones", "1: memory_reserve is an amount such as 512MiB"},
      {"memory_reserve: 101%", "1: memory_reserve is at most 100%"},
      {"memory_reserve: -1", "1: memory_reserve is an amount"},
      {"decode_ladder: []", "1: decode_ladder is a list of sizes"},
      {"decode_ladder: [1, x]", "1: an entry of decode_ladder is a whole number, not 'x'"},
      {"decode_ladder:\n  - 1\n  - two\n", "3: an entry of decode_ladder is a whole"},
      {"decode_ladder: [0, 1]", "1: decode_ladder: a size of 0"},
      {"decode_ladder: [1, 2, 2]", "1: decode_ladder: 2 is given twice"},
      {"decode_ladder: [1, 9999]", "1: decode_ladder: sizes are 1 to 4096 sequences, not 9999"},
      {"decode_ladder: fibonacci", "1: decode_ladder: "},
      {"decode_ladder: lru:0", "1: decode_ladder: 'lru:0': the N of lru:N is 1 to 4096"},
      {"token_ladder: lru:8", "1: token_ladder: lru:8 is for decode steps"},
      {"eager_steps: count", "1: eager_steps is allow or forbid, not 'count'"},
      {"above_ladder: [split]", "1: above_ladder is one word, not a list"},
      {"graphs_debug: 2", "1: graphs_debug is true or false, not '2'"},
      {"decode_ladder: {a: 1}", "1: decode_ladder is a list of sizes"},
      {"max_batch_size: 4\ndecode_ladder: [8]", "2: decode_ladder: 8 is more than max_batch_size"},
      {"max_batch_size: 9\nmax_num_tokens: 8", "2: max_batch_size 9 is more than max_num_tokens"},
      {"model: [a]", "1: model is one word, not a list"},
      {"profile: sgl", "1: profile is trtllm, sglang or vllm, not 'sgl'"},
      {"- a\n- b\n", "1: a configuration is keys and values"},
      {"just text", "1: a configuration is keys and values"},
      {"a: [1, 2\nb: 3\n", "2: not YAML"},
      {"\ta: 1\n", "1: not YAML"},
      {"a: 1\n b: 2\n", "2: not YAML"},
      {"a: &x 1\nb: *x\n", "1: anchors and aliases"},
      {"b: *x\n", "1: "},
      {"a: !!python/object:os.system 1\n", "1: the tag "},
      {"a: 1\n---\nb: 2\n", "3: a second document"},
      {"? [a, b]\n: 1\n", "1: a key is one word"},
      {"? {a: 1}\n: 1\n", "1: a key is one word"},
      {"<<: {graphs: none}\n", "1: there is no option '<<'"},
      {"--graphs", "1: graphs is auto"},
      {"--graphs none\n--graphs full\n", "2: --graphs is given twice, first on line 1"},
      {"--graphs 'none\n", "1: a quote that is not closed"},
      {"--a.b 1 --a 2", "1: --a is given twice"},
      {"--a 1 --a.b 2", "1: --a.b: 'a' has a value already"},
      {"--.. 1", "1: a flag without a name"},
      {"words --graphs none", "1: 'words' is neither a flag nor a command"},
  };
  for (const Malformed& row : rows) {
    const std::string wanted = std::string("c.yml:") + row.message;
    EXPECT_EQ(problem(row.text).substr(0, wanted.size()), wanted) << row.text;
  }
}

TEST(Config, BoundsDepthSizeAndAliases) {
  const std::string deep = "a: " + std::string(50000, '[') + std::string(50000, ']');
  EXPECT_NE(problem(deep).find("levels of nesting"), std::string::npos);
  EXPECT_NE(problem("a: " + std::string(100000, '[')), "");
  std::string maps = "a: ";
  for (int i = 0; i < 10000; ++i)
    maps += "{a: ";
  EXPECT_NE(problem(maps).find("levels of nesting"), std::string::npos);
  std::string wide = "a: [";
  for (int i = 0; i < 30000; ++i)
    wide += "1,";
  EXPECT_NE(problem(wide + "1]").find("values"), std::string::npos);
  EXPECT_NE(problem(std::string(300 << 10, '#')).find("bytes"), std::string::npos);
  EXPECT_NE(problem(std::string("a: 1\nb: \0", 9)).find(":2: a zero byte"), std::string::npos);
  EXPECT_NE(problem("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n").find("anchors"),
            std::string::npos);
}

TEST(Config, SaysWhenAFileCannotBeRead) {
  EXPECT_THROW((void)load("/nowhere/c.yml"), Error);
  EXPECT_THROW((void)load("/"), Error);
}

TEST(Config, SurvivesEveryPrefixOfAFile) {
  const std::string text =
      "compilation_config: {cudagraph_mode: FULL, cudagraph_capture_sizes: [1, 2, \"4\"]}\n"
      "max-num-seqs: 8 # eight\n'block-size': 16\n";
  for (size_t length = 0; length < text.size(); ++length)
    (void)problem(text.substr(0, length));
  const std::string flags = "vllm serve m --max-num-seqs 8 \\\n --a.b='{x: 1}' \"--c=d\" # e\n";
  for (size_t length = 0; length < flags.size(); ++length)
    (void)problem(flags.substr(0, length));
}

TEST(Config, TakesAnotherSystemsDefaultsAsAProfile) {
  const Config config = read("profile: vllm\nmax_batch_size: 16\n");
  EXPECT_EQ(config.dialect, Dialect::kNative);
  EXPECT_EQ(config.options.graphs, "full-and-piecewise");
  EXPECT_EQ(config.options.decode_ladder, (Sizes{"", {1, 2, 4, 8, 16}}));
  EXPECT_EQ(config.options.token_ladder->sizes.size(), 51U);
  EXPECT_TRUE(config.origins.at("graphs").is_default());
  EXPECT_EQ(config.origins.at("max_batch_size").line, 2);
}

TEST(Config, AsksForTheDialectWhenItCannotBeTold) {
  EXPECT_NE(problem("tensor_parallel_size: 1").find("--dialect"), std::string::npos);
  EXPECT_EQ(read("tensor_parallel_size: 1", Dialect::kVllm).dialect, Dialect::kVllm);
  EXPECT_EQ(read("max_batch_size: 4", Dialect::kTrtllm).dialect, Dialect::kTrtllm);
  EXPECT_THROW((void)parse_dialect("tgi"), Error);
}

}  // namespace
}  // namespace encore::config
