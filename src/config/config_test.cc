// Tests native options, the reading of files, and the errors in files.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "config/read.h"
#include "config/settings.h"
#include "config/speculative_tokens.h"
#include "config/testing/read_text.h"

namespace encore::config {
namespace {

using testing::problem;
using testing::read;
using Keys = std::vector<std::string>;

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
  EXPECT_EQ(config.options.get<std::string>("graphs"), "full-decode-only");
  EXPECT_EQ(config.options.get<Sizes>("decode_ladder"), (Sizes{"", {1, 2, 4, 8}}));
  EXPECT_EQ(config.options.get<Sizes>("token_ladder"), (Sizes{"pow2", {}}));
  EXPECT_EQ(config.options.get<bool>("padding"), false);
  EXPECT_EQ(config.options.get<Amount>("memory_reserve"), (Amount{int64_t{512} << 20, 0}));
  EXPECT_FALSE(config.options.get<int64_t>("max_num_tokens").has_value());
  EXPECT_EQ(config.origins.at("padding").line, 6);
}

TEST(Config, NamesAdaptersByTheirOptionInAllSpellings) {
  Options options;
  options.put(*find_option("lora"),
              Texts{{"poet=/a/b=c", "/d", R"({"name": "x", "path": "/e", "base_model_name": "m"})",
                     R"({"lora_name": "y", "lora_path": "/f", "pinned": true})"}});
  const auto adapters = make_settings(options).load.adapters.adapters;
  ASSERT_EQ(adapters.size(), 4U);
  EXPECT_EQ(adapters[0].name, "poet");
  EXPECT_EQ(adapters[0].path, "/a/b=c");
  EXPECT_EQ(adapters[1].name, "/d");
  EXPECT_EQ(adapters[2].path, "/e");
  EXPECT_EQ(adapters[3].name, "y");
}

TEST(Options, SayWhatKindOfValueTheyTake) {
  const std::pair<const char*, const char*> rows[] = {
      {"padding", "on|off"},       {"max_batch_size", "N"},         {"max_num_tokens", "TOKENS"},
      {"decode_ladder", "LADDER"}, {"speculative_tokens", "K,..."}, {"split_at", "NAME,..."}};
  for (const auto& [name, kind] : rows)
    EXPECT_EQ(find_option(name)->kind(), kind) << name;
}

TEST(Suggestion, IsTheNameThatIsNearest) {
  const std::vector<std::string_view> names = {"graphs", "ab"};
  EXPECT_EQ(suggestion("graph", names), "; did you mean 'graphs'?");
  EXPECT_EQ(suggestion("xab", names), "; did you mean 'ab'?");  // a letter in front
  EXPECT_EQ(suggestion("overlap", names), "");
}

TEST(Config, ReadsBackWhatItPrints) {
  Options options;
  options.put(*find_option("model"), std::string{"a \"model\" with: signs\nand a line"});
  options.put(*find_option("device"), std::string{"cpu"});
  options.put(*find_option("threads"), int64_t{2});
  options.put(*find_option("tensor_parallel"), int64_t{2});
  options.put(*find_option("rank_timeout"), 2.5);
  options.put(*find_option("collective_timeout"), 0.5);
  options.put(*find_option("dtype"), std::string{"bf16"});
  options.put(*find_option("kv_dtype"), std::string{"fp8"});
  options.put(*find_option("quantize"), std::string{"fp8"});
  options.put(*find_option("activations"), std::string{"16-bit"});
  options.put(*find_option("lora"), Texts{{"a=/x, y", "/z"}});
  options.put(*find_option("max_lora_rank"), int64_t{64});
  options.put(*find_option("max_loras"), int64_t{8});
  options.put(*find_option("max_cpu_loras"), int64_t{16});
  options.put(*find_option("graphs"), std::string{"full-and-piecewise"});
  options.put(*find_option("decode_ladder"), Sizes{"step:4", {}});
  options.put(*find_option("token_ladder"), Sizes{"", {1, 16, 4096}});
  options.put(*find_option("padding"), false);
  options.put(*find_option("above_ladder"), std::string{"eager"});
  options.put(*find_option("eager_steps"), std::string{"forbid"});
  options.put(*find_option("recording_errors"), std::string{"drop"});
  options.put(*find_option("record_order"), std::string{"ascending"});
  options.put(*find_option("record_halves"), std::string{"start"});
  options.put(*find_option("graphs_debug"), true);
  options.put(*find_option("split_at"), Names{"silu_mul", "rms_norm"});
  options.put(*find_option("memory_reuse"), false);
  options.put(*find_option("batch_invariant"), true);
  options.put(*find_option("trace"), Names{"l0.x", "a:b"});
  options.put(*find_option("save_programs"), std::string{"/tmp/programs"});
  options.put(*find_option("verbose"), true);
  options.put(*find_option("overlap"), std::string{"off"});
  options.put(*find_option("burst_steps"), int64_t{16});
  options.put(*find_option("speculative_tokens"), Names{"2", "4"});
  options.put(*find_option("speculative_acceptance"), std::string{"rejection"});
  options.put(*find_option("speculative_slowdown"), 1.5);
  options.put(*find_option("speculative_method"), std::string{"ngram"});
  options.put(*find_option("draft_model"), std::string{"/drafts"});
  options.put(*find_option("speculative_ngram"), int64_t{3});
  options.put(*find_option("max_batch_size"), int64_t{4096});
  options.put(*find_option("max_num_tokens"), int64_t{65536});
  options.put(*find_option("max_seq_len"), int64_t{1 << 20});
  options.put(*find_option("page_size"), int64_t{64});
  options.put(*find_option("kv_tokens"), int64_t{123456});
  options.put(*find_option("window_pages"), false);
  options.put(*find_option("free_gpu_memory_fraction"), 0.875);
  options.put(*find_option("memory_reserve"), Amount{0, 0.1});
  options.put(*find_option("step_log"), std::string{"/tmp/a file.jsonl"});
  options.put(*find_option("tune"), std::string{"fresh"});
  options.put(*find_option("tuning_cache"), std::string{"off"});
  options.put(*find_option("disable_pass"), Names{"fuse_rope_kv_write"});
  options.put(*find_option("prefix_cache"), false);
  options.put(*find_option("prefix_cache_key"), std::string{"of the routers"});
  options.put(*find_option("target_step_ms"), 12.5);
  options.put(*find_option("prompt_share"), 0.25);
  options.put(*find_option("preempt_by_priority"), true);
  options.put(*find_option("host"), std::string{"::1"});
  options.put(*find_option("port"), int64_t{0});
  options.put(*find_option("served_model_name"), Texts{{"a, b", "c"}});
  options.put(*find_option("chat_template"), std::string{"t.jinja"});
  options.put(*find_option("api_key"), Texts{{"one,two", "\"three\""}});
  options.put(*find_option("api_key_file"), std::string{"keys"});
  options.put(*find_option("lora_dir"), std::string{"/adapters"});
  options.put(*find_option("admin_key_file"), std::string{"operators"});
  options.put(*find_option("tls_certificate"), std::string{"server.pem"});
  options.put(*find_option("tls_key"), std::string{"server.key"});
  options.put(*find_option("allowed_hosts"), Texts{{"llm.example"}});
  options.put(*find_option("allowed_origins"), Texts{{"https://chat.example"}});
  options.put(*find_option("other_tools"), std::string{"refuse"});
  options.put(*find_option("unknown_parameters"), std::string{"warn"});
  options.put(*find_option("metric_aliases"), Names{"vllm", "trtllm"});
  options.put(*find_option("log_format"), std::string("json"));
  options.put(*find_option("log_requests"), false);
  options.put(*find_option("max_queue"), int64_t{0});
  options.put(*find_option("keep_alive_timeout"), int64_t{600});
  options.put(*find_option("request_timeout"), int64_t{60});
  options.put(*find_option("drain_delay"), int64_t{5});
  options.put(*find_option("drain_timeout"), int64_t{1});
  for (const Option& option : all_options())
    EXPECT_NE(options.find(option), nullptr) << option.name << " is not in this test";
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
    EXPECT_FALSE(option.fallback.text.empty()) << option.name;
    EXPECT_FALSE(option.range_text().empty()) << option.name;
    EXPECT_FALSE(group_text(option.group).doc.empty()) << option.name;
    EXPECT_EQ(find_option(option.name), &option);
    const std::string fallback(option.fallback.text);
    EXPECT_TRUE(!option.fallback.is_value || problem(option, fallback).empty()) << option.name;
  }
  for (const Idle& idle : idle_options()) {
    EXPECT_NE(find_option(idle.option), nullptr) << idle.option;
    EXPECT_NE(find_option(idle.when), nullptr) << idle.when;
  }
}

TEST(Settings, HoldWhatWasSaidAndElseTheTablesDefaults) {
  const Settings defaults = make_settings(Options());
  EXPECT_EQ(defaults.http.port, 8000);
  EXPECT_EQ(defaults.load.page_size, 32);
  EXPECT_TRUE(defaults.serving.engine.prefix_cache.has_value());
  EXPECT_FALSE(defaults.graphs.has_value());
  const Settings settings =
      make_settings(read("port: 80\nburst_steps: 4\ndecode_ladder: [1, 2]\nprefix_cache: off\n"
                         "overlap: off\nkv_dtype: fp8\nquantize: fp8\nactivations: 16-bit\ngraphs: "
                         "full\napi_key: 'a,b'\nsplit_at: linear,rope\n")
                        .options);
  EXPECT_EQ(settings.http.port, 80);
  EXPECT_EQ(settings.serving.engine.burst_steps, 4);
  EXPECT_TRUE(settings.load.bursts);
  EXPECT_EQ(settings.decode_ladder, "1,2");
  EXPECT_FALSE(settings.serving.engine.prefix_cache.has_value());
  EXPECT_EQ(settings.serving.engine.overlap, false);
  EXPECT_EQ(settings.load.kv_dtype, DType::kFP8);
  EXPECT_TRUE(settings.load.formats.quantize);
  EXPECT_FALSE(defaults.load.formats.quantize);
  EXPECT_EQ(settings.load.formats.activations, model::Activations::k16Bit);
  EXPECT_EQ(settings.graphs, runtime::Graphs::kFull);
  EXPECT_EQ(settings.api_keys, Names{"a,b"});
  EXPECT_EQ(settings.load.compile.split_ops.count("linear"), 1U);
}

TEST(Settings, KnowEachWayToRunSteps) {
  using enum runtime::Graphs;
  const std::pair<const char*, runtime::Graphs> ways[] = {
      {"auto", kAuto},
      {"none", kNone},
      {"piecewise", kPiecewise},
      {"full", kFull},
      {"full-decode-only", kFullDecodeOnly},
      {"full-and-piecewise", kFullAndPiecewise}};
  for (const auto& [text, graphs] : ways)
    EXPECT_EQ(make_settings(read(fmt::format("graphs: {}\n", text)).options).graphs, graphs)
        << text;
  EXPECT_THROW(read("graphs: fast\n"), Error);
}

TEST(Settings, KeyThePrefixCacheWhereThereIsOne) {
  const auto cache = [](const std::string& text) {
    return make_settings(read(text).options).serving.engine.prefix_cache;
  };
  EXPECT_EQ(cache("")->key, std::nullopt);
  EXPECT_EQ(cache("prefix_cache_key: secret")->key, "secret");
  EXPECT_FALSE(cache("prefix_cache_key: secret\nprefix_cache: off").has_value());
}

TEST(Settings, LeaveAloneWhatIsNotTaken) {
  const Option* const taken[] = {find_option("port")};
  const Options options = read("port: 80\npage_size: 16\n").options;
  const Settings settings = make_settings(options, taken);
  EXPECT_EQ(settings.http.port, 80);
  EXPECT_EQ(settings.load.page_size, loader::LoadOptions().page_size);
  EXPECT_FALSE(settings.serving.engine.prefix_cache.has_value());
}

TEST(Config, TakesAnEmptyFile) {
  EXPECT_EQ(read("").options, Options{});
  EXPECT_EQ(read("# only a comment\n---\n").options, Options{});
}

TEST(Config, TakesDashesForUnderscoresAndFlagsForYaml) {
  EXPECT_EQ(read("max-batch-size: 4").options.get<int64_t>("max_batch_size"), 4);
  const Config config = read("--max-batch-size 4 --graphs=none\n# so\n--decode-ladder 1,2,4\n");
  EXPECT_EQ(config.dialect, Dialect::kNative);
  EXPECT_EQ(config.options.get<std::string>("graphs"), "none");
  EXPECT_EQ(config.options.get<Sizes>("decode_ladder"), (Sizes{"", {1, 2, 4}}));
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
      {"decode_ladder: []", "1: decode_ladder is a list of sizes such as [1, 2, 4], not an empty"},
      {"decode_ladder: [1, x]", "1: an entry of decode_ladder is a whole number, not 'x'"},
      {"decode_ladder:\n  - 1\n  - two\n", "3: an entry of decode_ladder is a whole"},
      {"decode_ladder: [0, 1]", "1: decode_ladder: a size of 0"},
      {"decode_ladder: [1, 2, 2]", "1: decode_ladder: 2 is given twice"},
      {"decode_ladder: [1, 9999]", "1: decode_ladder: sizes are 1 to 4096 sequences, not 9999"},
      {"decode_ladder: fibonacci", "1: decode_ladder: "},
      {"decode_ladder: lru:0", "1: decode_ladder: 'lru:0': the N of lru:N is 1 to 4096"},
      {"token_ladder: lru:8", "1: token_ladder: lru:8 is for decode steps"},
      {"eager_steps: count", "1: eager_steps is allow or forbid, not 'count'"},
      {"split_at: [linear, linear]", "1: split_at: linear is given twice"},
      {"trace: a,,b", "1: trace is a list of names such as [linear, silu_mul], not 'a,,b'"},
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

TEST(Config, SaysWhyAFileCannotBeRead) {
  const auto message = [](const char* path) {
    return message_of(ErrorKind::kUsage, [&] { (void)load(path); });
  };
  EXPECT_EQ(message("/nowhere/c.yml"),
            "/nowhere/c.yml: the configuration cannot be read: No such file or directory");
  EXPECT_EQ(message("/"), "/: the configuration cannot be read: Is a directory");
  EXPECT_EQ(message("/dev/zero"), "/dev/zero: 262145 bytes; a configuration has at most 262144");
}

TEST(Config, SaysWhatItSortsAndWhatHasNoEffect) {
  const auto notes = [](const std::string& text) {
    std::string all;
    for (const Note& note : read(text).notes)
      all += fmt::format("{}: {}\n", note.line, note.text);
    return all;
  };
  EXPECT_EQ(notes("graphs: full\ndecode_ladder: [8, 1, 4]\ntoken_ladder: 16,8\n"),
            "2: decode_ladder: the sizes are sorted\n3: token_ladder: the sizes are sorted\n");
  EXPECT_EQ(notes("graphs: full\ndecode_ladder: pow2\ntoken_ladder: [1, 8]\n"), "");
  EXPECT_EQ(notes("record_order: ascending\ngraphs: none\ntune: off\ntuning_cache: /tmp\n"),
            "1: record_order has no effect: graphs is none\n"
            "4: tuning_cache has no effect: tune is off\n");
  EXPECT_EQ(notes("device: cuda:1\nthreads: 4\n"), "2: threads has no effect: device is cuda:1\n");
  EXPECT_EQ(notes("profile: vllm\nmax_num_tokens: 64\n"),
            "0: max_batch_size: the default of 1024 is cut to max_num_tokens, 64\n"
            "0: decode_ladder: the default of 512 is cut to max_batch_size, 64\n"
            "0: token_ladder: the default of 512 is cut to max_num_tokens, 64\n");
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
  EXPECT_EQ(config.options.get<std::string>("graphs"), "full-and-piecewise");
  EXPECT_EQ(config.options.get<Sizes>("decode_ladder"), (Sizes{"", {1, 2, 4, 8, 16}}));
  EXPECT_EQ(config.options.get<Sizes>("token_ladder")->sizes.size(), 51U);
  EXPECT_TRUE(config.origins.at("graphs").is_default());
  EXPECT_EQ(config.origins.at("max_batch_size").line, 2);
}

TEST(Config, AsksForTheDialectWhenItCannotBeTold) {
  EXPECT_NE(problem("tensor_parallel_size: 1").find("--dialect"), std::string::npos);
  EXPECT_EQ(read("tensor_parallel_size: 1", Dialect::kVllm).dialect, Dialect::kVllm);
  EXPECT_EQ(read("max_batch_size: 4", Dialect::kTrtllm).dialect, Dialect::kTrtllm);
  EXPECT_THROW((void)parse_dialect("tgi"), Error);
}

TEST(Choices, TakeANumberWhereTheySaySo) {
  const Option& device = *find_option("device");
  for (const char* text : {"auto", "cpu", "cuda", "cuda:0", "cuda:12"})
    EXPECT_EQ(problem(device, text), "") << text;
  for (const char* text : {"cuda:", "cuda:N", "cuda:-1", "cuda:1x", "cuda:99999999999", "tpu"}) {
    EXPECT_EQ(problem(device, text),
              fmt::format("device is auto, cpu, cuda or cuda:N, not '{}'", text));
  }
}

TEST(SpeculativeTokens, AreANumberOrUpToThreeOrChosen) {
  EXPECT_EQ(draft_counts({"0"}), std::vector<int64_t>());
  EXPECT_EQ(draft_counts({"4"}), std::vector<int64_t>{4});
  EXPECT_EQ(draft_counts({"4", "2"}), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(draft_counts({"auto"}), (std::vector<int64_t>{1, 2, 4}));
  for (const Names& wrong : {Names{"17"}, Names{"2", "0"}, Names{"1", "2", "3", "4"}, Names{"few"},
                             Names{"auto", "2"}, Names{""}}) {
    EXPECT_NE(message_of(ErrorKind::kUsage, [&] { (void)draft_counts(wrong); })
                  .find("give one number from 1 to 16"),
              std::string::npos);
  }
  const Settings settings = make_settings([] {
    Options options;
    options.put(*find_option("speculative_tokens"), Names{"auto"});
    return options;
  }());
  EXPECT_EQ(settings.load.limits.draft_counts(), (std::vector<int64_t>{1, 2, 4}));
  EXPECT_TRUE(settings.auto_drafts);
}

TEST(Settings, LeaveTheNumberOfDraftsToTheStartWhereTheirSourceIsAllThatIsGiven) {
  const auto settings = [](const char* yaml) {
    return make_settings(read(yaml, Dialect::kNative).options);
  };
  EXPECT_FALSE(settings("page_size: 32\n").auto_drafts);
  for (const char* source : {"draft_model: /drafts\n", "speculative_method: ngram\n"}) {
    EXPECT_TRUE(settings(source).auto_drafts) << source;
    EXPECT_EQ(settings(source).load.limits.num_drafts, 4) << source;
    const Settings fixed = settings(fmt::format("{}speculative_tokens: 3\n", source).c_str());
    EXPECT_FALSE(fixed.auto_drafts) << source;
    EXPECT_EQ(fixed.load.limits.draft_counts(), std::vector<int64_t>{3}) << source;
  }
  const Settings rejecting = settings("draft_model: /drafts\nspeculative_acceptance: rejection\n");
  EXPECT_FALSE(rejecting.auto_drafts);
  EXPECT_EQ(rejecting.load.limits.num_drafts, 5);
}

TEST(Settings, TakeFiveDraftsWithRejectionUnlessANumberIsGiven) {
  const auto drafts = [](const char* yaml) {
    const Settings settings = make_settings(read(yaml, Dialect::kNative).options);
    return std::pair{settings.load.acceptance, settings.load.limits.num_drafts};
  };
  using model::Acceptance;
  EXPECT_EQ(drafts("page_size: 32\n"), std::pair(Acceptance::kCoupled, int64_t{0}));
  EXPECT_EQ(drafts("speculative_acceptance: rejection\n"),
            std::pair(Acceptance::kRejection, int64_t{5}));
  for (const char* order : {"speculative_tokens: 2\nspeculative_acceptance: rejection\n",
                            "speculative_acceptance: rejection\nspeculative_tokens: 2\n"})
    EXPECT_EQ(drafts(order), std::pair(Acceptance::kRejection, int64_t{2}));
  EXPECT_EQ(drafts("speculative_acceptance: rejection\nspeculative_tokens: 0\n").second, 0);
  EXPECT_EQ(drafts("speculative_acceptance: coupled\nspeculative_tokens: 3\n"),
            std::pair(Acceptance::kCoupled, int64_t{3}));
}

}  // namespace
}  // namespace encore::config
