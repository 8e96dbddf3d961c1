// The table of all options of Encore. A row holds an option's YAML key, which also gives its flag,
// its setter, unit, default, range and doc. Whoever adds an option adds a row; files, flags, help
// texts and the output of `encore config explain` follow.
#include <algorithm>
#include <chrono>

#include "base/json.h"
#include "config/options.h"
#include "config/settings.h"
#include "config/speculative_tokens.h"

namespace encore::config {
namespace {

constexpr double kMaxSequences = 4096;
constexpr double kMaxStepTokens = 65536;
constexpr double kMaxTokens = int64_t{1} << 30;
constexpr double kMaxLoraRank = 512;
constexpr double kMaxLoras = 4096;

// value() and otherwise() make the default of an option: a value, or a text for people that says
// what holds instead.
constexpr Default value(std::string_view text) {
  return {text, true};
}
constexpr Default otherwise(std::string_view text) {
  return {text, false};
}

// The functions from any() to between() make the range of values that an option accepts.
constexpr Range any() {
  return {};
}
constexpr Range on_or_off() {
  return {};
}
constexpr Range given_or_not() {
  return {.is_switch = true};
}
constexpr Range one_of(std::string_view choices, double min = 0, double max = 0) {
  return {choices, min, max};
}
constexpr Range between(double min, double max) {
  return {.min = min, .max = max};
}

using Text = std::string;

void put_drafts(Settings& settings, std::vector<int64_t> counts, bool is_auto = false) {
  settings.auto_drafts = is_auto;
  runtime::Limits& limits = settings.load.limits;
  limits.num_drafts = counts.empty() ? 0 : counts.back();
  if (!counts.empty()) counts.pop_back();
  limits.fewer_drafts = std::move(counts);
}

// An option that names the source of drafts also asks for drafts. Their number is then chosen
// automatically.
void put_auto_drafts(Settings& settings, const Text& source) {
  if (!source.empty()) put_drafts(settings, draft_counts({"auto"}), true);
}

// Parses a text that the range of option `graphs` allows.
runtime::Graphs parse_graphs(const Text& text) {
  using enum runtime::Graphs;
  if (text == "none") return kNone;
  if (text == "piecewise") return kPiecewise;
  if (text == "full") return kFull;
  if (text == "full-decode-only") return kFullDecodeOnly;
  return text == "full-and-piecewise" ? kFullAndPiecewise : kAuto;
}

model::Activations parse_activations(std::string_view text) {
  if (text == "fp8") return model::Activations::kFp8;
  if (text == "static") return model::Activations::kStatic;
  return text == "16-bit" ? model::Activations::k16Bit : model::Activations::kAsMade;
}

// Parses an adapter given as NAME=PATH, as PATH alone, or as a JSON object in the form of vLLM and
// SGLang.
loader::AdapterOptions::Named parse_adapter(const Text& text) {
  if (text.starts_with('{')) {
    const json::value value = json::parse(text, "--lora");
    const json::Object object(value, "--lora");
    const bool is_sglang = object.has("lora_name");
    return {object.string_at(is_sglang ? "lora_name" : "name"),
            object.string_at(is_sglang ? "lora_path" : "path")};
  }
  const size_t end = text.find('=');
  if (end == Text::npos) return {text, text};
  return {text.substr(0, end), text.substr(end + 1)};
}

constexpr Option kOptions[] = {
    {"model", Group::kModel, [](Settings& s, const Text& v) { s.model = v; }, "MODEL",
     otherwise("stories"), any(),
     "A Hugging Face checkpoint directory, ORG/NAME of one in its cache (`encore pull`), a bundled "
     "model (stories, stories-draft), or random weights: synthetic:llama-3.1-8b, "
     "synthetic:llama-3.1-8b:fp8, synthetic:PATH/config.json"},
    {"dtype", Group::kModel, [](Settings& s, const Text& v) { s.load.dtype = parse_dtype(v); }, "",
     value("auto"), one_of("auto|f32|f16|bf16"),
     "Element type of weights and activations: auto is the checkpoint's"},
    {"kv_dtype", Group::kModel,
     [](Settings& s, const Text& v) { s.load.kv_dtype = parse_dtype(v); }, "", value("auto"),
     one_of("auto|f32|f16|bf16|fp8"),
     "What K and V are kept in: auto is the dtype of the activations, fp8 is e4m3, with a "
     "checkpoint's scales where it has some, in half the memory of 16 bits"},
    {"quantize", Group::kModel,
     [](Settings& s, const Text& v) { s.load.formats.quantize = v == "fp8"; }, "", value("none"),
     one_of("none|fp8"),
     "What becomes of a checkpoint's projections in floats as they are loaded: fp8 is e4m3 with a "
     "scale for each row, and activations in FP8; those that are stored in FP8 stay as they are"},
    {"activations", Group::kModel,
     [](Settings& s, const Text& v) { s.load.formats.activations = parse_activations(v); }, "",
     value("auto"), one_of("auto|fp8|static|16-bit"),
     "What weights in FP8 are multiplied with in steps of 33 tokens or more: auto is what the "
     "checkpoint was made for, fp8 rounds activations to e4m3 by a scale for each token and 128 "
     "columns, static by the scales in the checkpoint, 16-bit never does"},
    {"lora", Group::kModel,
     [](Settings& s, const Texts& v) {
       for (const std::string& text : v.texts)
         s.load.adapters.adapters.push_back(parse_adapter(text));
     },
     "NAME=PATH", otherwise("none"), any(),
     "An adapter (LoRA, as PEFT saves it) and the name that requests call it by, or the path "
     "alone; may "
     "be given several times"},
    {"max_lora_rank", Group::kModel, [](Settings& s, int64_t v) { s.load.adapters.max_rank = v; },
     "", value("16"), between(1, kMaxLoraRank),
     "The largest rank of an adapter: all take as much memory as if they had it"},
    {"max_loras", Group::kModel, [](Settings& s, int64_t v) { s.load.adapters.num_slots = v; },
     "adapters", otherwise("as many as --lora names"), between(0, kMaxLoras),
     "Adapters that there is room for on the device; those of requests come and go"},
    {"max_cpu_loras", Group::kModel, [](Settings& s, int64_t v) { s.load.adapters.max_images = v; },
     "adapters", value("32"), between(1, kMaxLoras),
     "Adapters of which a copy is kept in host memory; further ones are read from their files "
     "again when "
     "they are needed"},

    {"device", Group::kDevice, [](Settings& s, const Text& v) { s.device = v; }, "", value("auto"),
     one_of("auto|cpu|cuda|cuda:N"),
     "Where to run: cuda:N is GPU N of those that the environment's CUDA_VISIBLE_DEVICES shows, "
     "cuda the first that Encore can use, auto that or, where there is none, the CPU"},
    {"threads", Group::kDevice, [](Settings& s, int64_t v) { s.threads = static_cast<int>(v); },
     "threads", otherwise("one per processor"), between(1, 1024), "Threads of the CPU device"},
    {"tune", Group::kDevice, [](Settings& s, const Text& v) { s.tune = parse_tune(v); }, "",
     value("on"), one_of("on|off|fresh"),
     "At start, on measures kernel choices that the tuning cache lacks, for 15 s at most (the next "
     "start "
     "goes on), fresh measures all of them again (after others used the GPU meanwhile), off takes "
     "the "
     "first guess"},
    {"tuning_cache", Group::kDevice, [](Settings& s, const Text& v) { s.tuning_cache = v; }, "DIR",
     otherwise("$ENCORE_CACHE_DIR, $XDG_CACHE_HOME/encore or ~/.cache/encore"), any(),
     "Directory that remembers measured kernel choices between starts; off remembers none"},

    {"tensor_parallel", Group::kParallel,
     [](Settings& s, int64_t v) { s.load.rank.size = static_cast<int>(v); }, "ranks", value("1"),
     between(1, 64),
     "Devices that compute the model together, each with a share of its weights, heads and KV: as "
     "many GPUs from the one of --device on, or, on the CPU, groups of threads; the sizes of the "
     "model must "
     "divide by it"},
    {"rank_timeout", Group::kParallel, [](Settings& s, double v) { s.rank_timeout_s = v; },
     "seconds", value("30"), between(0.1, 3600),
     "How long a rank may do nothing while the others wait for it, before all requests end with an "
     "error"},
    {"collective_timeout", Group::kParallel,
     [](Settings& s, double v) { s.collective_timeout_s = v; }, "seconds", value("2"),
     between(0.1, 3600),
     "How long a GPU waits in a collective for another one, before all requests end with an error"},

    {"graphs", Group::kGraphs, [](Settings& s, const Text& v) { s.graphs = parse_graphs(v); }, "",
     otherwise("auto"), one_of("auto|none|piecewise|full|full-decode-only|full-and-piecewise"),
     "How steps run: none launches everything, piecewise replays the recorded segments between "
     "attention, full replays one recording where there is one, full-decode-only leaves steps with "
     "prompts in them eager, full-and-piecewise replays those in pieces, auto replays one "
     "recording "
     "where the device can record the whole step, else pieces"},
    {"padding", Group::kGraphs, [](Settings& s, bool v) { s.load.pad_uniform = v; }, "",
     value("on"), on_or_off(),
     "on pads decode steps up to the next recorded size, off replays exact sizes only"},
    {"above_ladder", Group::kGraphs,
     [](Settings& s, const Text& v) {
       s.above_ladder = v == "split" ? AboveLadder::kSplit : AboveLadder::kEager;
     },
     "", value("split"), one_of("split|eager"),
     "What becomes of a step above the largest recorded size: the scheduler splits it, so that "
     "every step is covered, or it runs eager"},
    {"eager_steps", Group::kGraphs,
     [](Settings& s, const Text& v) {
       s.load.eager_steps =
           v == "allow" ? runtime::EagerSteps::kAllow : runtime::EagerSteps::kForbid;
     },
     "", value("allow"), one_of("allow|forbid"),
     "What a step without a recording is: allowed and counted, or an error, at start where one may "
     "come"},

    {"decode_ladder", Group::kLadders,
     [](Settings& s, const Sizes& v) { s.decode_ladder = flag_text(v); }, "sequences",
     otherwise("encore-decode"), between(1, kMaxSequences),
     "Sizes of decode steps that are recorded: a list such as 1,2,4,8, or a schedule: "
     "encore-decode, encore, pow2, "
     "step:N, vllm-old, vllm, trtllm-decode, sglang-decode, trtllm, sglang, or lru:N, which "
     "records exact sizes when they first come and keeps the N used last"},
    {"token_ladder", Group::kLadders,
     [](Settings& s, const Sizes& v) { s.token_ladder = flag_text(v); }, "tokens",
     otherwise("encore"), between(1, kMaxStepTokens),
     "Sizes of steps with prompts in them that are recorded: a list or a schedule, as for decode "
     "steps, but not lru:N"},

    {"recording_errors", Group::kRecording,
     [](Settings& s, const Text& v) {
       s.load.recording_errors =
           v == "stop" ? runtime::RecordingErrors::kStop : runtime::RecordingErrors::kDrop;
     },
     "", value("stop"), one_of("stop|drop"),
     "What a recording that fails does: it stops the start, or is left out, and its steps fall "
     "back, counted"},
    {"record_order", Group::kRecording,
     [](Settings& s, const Text& v) {
       s.load.record_order =
           v == "descending" ? runtime::RecordOrder::kDescending : runtime::RecordOrder::kAscending;
     },
     "", value("descending"), one_of("descending|ascending"),
     "Which size is recorded first; for diagnosis, as the memory taken is the same"},
    {"record_halves", Group::kRecording,
     [](Settings& s, const Text& v) { s.load.halves = v == "start"; }, "", value("first-use"),
     one_of("first-use|start"),
     "When the two halves of whole steps are recorded, as which steps with grammars are launched: "
     "when a size first needs them, which then takes longer once, or at start, which takes up to "
     "twice as long"},

    {"overlap", Group::kLoop,
     [](Settings& s, const Text& v) {
       s.serving.engine.overlap = v == "auto" ? std::nullopt : std::optional(v == "on");
     },
     "", value("auto"), one_of("auto|on|off"),
     "Launch a step before the tokens of the last one are read, so that the GPU never waits for "
     "the host; auto: on a GPU"},
    {"burst_steps", Group::kLoop,
     [](Settings& s, int64_t v) {
       s.serving.engine.burst_steps = v;
       s.load.bursts = v > 1;
     },
     "steps", value("1"), between(1, 64),
     "Where all sequences decode, launch once and let the GPU run up to so many steps ahead of "
     "what the host has read, watching stop tokens and lengths itself; the host reads every 25 ms, "
     "or every quarter of these steps; 1: no bursts, whose recordings take eight times the memory"},

    // The order of the options about drafts matters: each later option that sets the number of
    // drafts overrides the earlier ones.
    {"draft_model", Group::kSpeculation,
     [](Settings& s, const Text& v) {
       s.draft_model = v;
       put_auto_drafts(s, v);
     },
     "MODEL", otherwise("none: guesses are looked up"), any(),
     "A small model with the tokenizer of the model, which guesses the tokens (named as --model "
     "is): "
     "stories-draft for stories. It runs in the same recordings, without adapters, and its K and V "
     "lie in the same pages"},
    {"speculative_method", Group::kSpeculation,
     [](Settings& s, const Text& v) {
       s.speculative_method = v;
       put_auto_drafts(s, v);
     },
     "", otherwise("draft_model where there is one, else ngram"), one_of("ngram|draft_model"),
     "Where guesses come from: draft_model has --draft-model make them; ngram looks for the "
     "sequence's last tokens further up in it, and repeats what followed them there (prompt "
     "lookup)"},
    {"speculative_acceptance", Group::kSpeculation,
     [](Settings& s, const Text& v) {
       const bool rejects = v == "rejection";
       s.load.acceptance = rejects ? model::Acceptance::kRejection : model::Acceptance::kCoupled;
       if (rejects) put_drafts(s, {kRejectionDrafts});
     },
     "", value("coupled"), one_of("coupled|rejection"),
     "Which guesses count: coupled takes those that are the token which is chosen without guesses, "
     "so texts are the same; rejection takes a guess with probability min(1, p/q), the model's "
     "over "
     "that of who guessed, and else draws from what p has above q: more guesses count at "
     "temperatures above 0, and texts are as likely as without guesses, but not the same"},
    {"speculative_tokens", Group::kSpeculation,
     [](Settings& s, const Names& v) { put_drafts(s, draft_counts(v), is_auto(v)); }, "tokens",
     otherwise("auto with --draft-model or --speculative-method; 5 with --speculative-acceptance "
               "rejection; else 0"),
     any(),
     "Tokens that a step guesses behind the next one of each sequence that generates, "
     "and checks at once: texts are the same, and come sooner where guesses are right, as with "
     "code, summaries and lists; 0: none. 2 to 5 do for most, 16 are the most; each makes a step "
     "longer, "
     "the more so the more sequences it has. Of several, such as 2,4 (three at most), each step "
     "takes the one, or "
     "none, by which most tokens come in a time, as measured. auto: of 1 to 4, those that may gain "
     "on this device, by the "
     "cost of the model's steps, up to the largest steps where any may; the start says which"},
    {"speculative_slowdown", Group::kSpeculation,
     [](Settings& s, double v) { s.serving.engine.most_draft_slowdown = v; }, "", value("1.25"),
     between(1, 100),
     "Where steps choose among several numbers of drafts: how much longer than a step without "
     "drafts one "
     "may be in which some request takes none (it has a grammar), as a "
     "factor"},
    {"speculative_ngram", Group::kSpeculation, [](Settings& s, int64_t v) { s.load.max_match = v; },
     "tokens", value("4"), between(1, 64),
     "Tokens that are looked for at most; the longest match counts, and the last of several"},

    {"max_batch_size", Group::kSizes, [](Settings& s, int64_t v) { s.max_batch_size = v; },
     "sequences", otherwise("what the request needs; serving: 256"), between(1, kMaxSequences),
     "Sequences in one step at most; recordings are made for the sizes up to it"},
    {"max_num_tokens", Group::kSizes, [](Settings& s, int64_t v) { s.max_num_tokens = v; },
     "tokens", otherwise("what the request needs; serving: 2048"), between(1, kMaxStepTokens),
     "Tokens in one step at most; longer prompts go in chunks"},
    {"max_seq_len", Group::kSizes, [](Settings& s, int64_t v) { s.max_seq_len = v; }, "tokens",
     otherwise("what the request needs; serving: as the model takes"), between(1, kMaxTokens),
     "Tokens of one sequence at most, prompt and generated"},
    {"page_size", Group::kSizes, [](Settings& s, int64_t v) { s.load.page_size = v; }, "tokens",
     value("32"), one_of("16|32|64", 16, 64), "Tokens in a page of KV"},
    {"kv_tokens", Group::kSizes, [](Settings& s, int64_t v) { s.load.kv_tokens = v; }, "tokens",
     otherwise("what the longest sequences need, or what fits"), between(1, kMaxTokens),
     "Tokens that the KV pool holds"},
    {"window_pages", Group::kSizes, [](Settings& s, bool v) { s.window_pages = v; }, "",
     value("on"), on_or_off(),
     "Keep of each sequence, in layers with a sliding window, only the pages that its window "
     "holds"},
    {"free_gpu_memory_fraction", Group::kSizes,
     [](Settings& s, double v) { s.load.free_memory_fraction = v; }, "",
     otherwise("1; serving on the CPU: 0.25, unless --kv-tokens needs more"), between(0, 1),
     "Share of the memory that is free once weights, arena and recordings lie in it, for KV"},
    {"memory_reserve", Group::kSizes,
     [](Settings& s, const Amount& v) { s.load.memory_reserve = v; }, "bytes, or % of the device's",
     value("0"), any(), "Device memory that stays free"},

    {"disable_pass", Group::kCompiler,
     [](Settings& s, const Names& v) { s.load.compile.disabled = v; }, "", otherwise("none"), any(),
     "Compiler passes to leave out, or all (`encore inspect` lists them)"},
    {"split_at", Group::kCompiler,
     [](Settings& s, const Names& v) {
       for (const Text& op : v)
         s.load.compile.add_split_op(op);
     },
     "", otherwise("none"), any(),
     "Ops at which the program is split, besides those that it must be split at (attention): each "
     "is kept from fusion and launched by itself between the pieces that are replayed"},
    {"memory_reuse", Group::kCompiler, [](Settings& s, bool v) { s.load.compile.reuse_memory = v; },
     "", value("on"), on_or_off(),
     "off gives every intermediate value memory of its own, to find out whether a fault comes from "
     "reuse (`encore inspect --arena` says what that takes)"},
    {"batch_invariant", Group::kCompiler,
     [](Settings& s, bool v) { s.load.compile.batch_invariant = v; }, "", value("off"), on_or_off(),
     "on computes each token from the tokens before it and its request's parameters alone, bit for "
     "bit, whatever runs beside it and however its prompt is cut: kernels whose sums depend on the "
     "size of a step are left out, which costs speed"},

    {"graphs_debug", Group::kDiagnosis, [](Settings& s, bool v) { s.debug.check_recordings = v; },
     "", value("off"), on_or_off(),
     "Check every recording before it is used, and its addresses and padding in every step"},
    {"trace", Group::kDiagnosis, [](Settings& s, const Names& v) { s.debug.trace = v; }, "",
     otherwise("none"), any(),
     "Log range, mean and number of non-finite elements of every value whose name, or whose op's, "
     "contains one of these words, in each step; values then share no memory"},
    {"save_programs", Group::kDiagnosis,
     [](Settings& s, const Text& v) { s.debug.save_programs = v; }, "DIR", otherwise("none"), any(),
     "Directory to write the compiled program to, with a line a recording made of it"},
    {"verbose", Group::kDiagnosis, [](Settings& s, bool v) { s.verbose = v; }, "", value("off"),
     given_or_not(),
     "Log what a start does, with a line a size when its kernels are chosen and when it is "
     "recorded"},
    {"step_log", Group::kDiagnosis, [](Settings& s, const Text& v) { s.step_log = v; }, "FILE",
     otherwise("none"), any(),
     "File to write one JSON object a step to, for `encore graphs` and `encore tune`"},

    {"prefix_cache", Group::kServing,
     [](Settings& s, bool v) {
       s.serving.engine.prefix_cache.reset();
       if (v) s.serving.engine.prefix_cache.emplace();
     },
     "", value("on"), on_or_off(),
     "Keep the KV of prompts, so that requests that begin alike compute it once"},
    {"prefix_cache_key", Group::kServing,
     [](Settings& s, const Text& v) {
       if (s.serving.engine.prefix_cache) s.serving.engine.prefix_cache->key = v;
     },
     "TEXT", otherwise("random"), any(),
     "Key of the hashes of KV pages, for routers that compute the same ones (src/kv/page_hash.h) "
     "from the first served name, the dtype of KV, a request's cache_salt and the tokens"},
    {"target_step_ms", Group::kServing,
     [](Settings& s, double v) {
       s.serving.engine.target_step_ms = v > 0 ? std::optional(v) : std::nullopt;
     },
     "milliseconds", value("25"), between(0, 1e6),
     "Time that a step may take while prompts run beside requests that generate: it takes as much "
     "of the prompts as keeps to that; 0: as much as fits"},
    {"prompt_share", Group::kServing,
     [](Settings& s, double v) { s.serving.engine.prompt_share = v; }, "", value("0.5"),
     between(0.01, 1),
     "Part of a step's tokens for prompts that a long prompt gets at most while short ones of its "
     "priority wait, which are those that fit this part; 1: they wait for it"},
    {"preempt_by_priority", Group::kServing,
     [](Settings& s, bool v) { s.serving.engine.preempts_by_priority = v; }, "", value("off"),
     on_or_off(),
     "Let a request take the place and the KV of running ones of a lower priority, which are "
     "computed again later, where there is none free"},

    {"host", Group::kServer, [](Settings& s, const Text& v) { s.http.host = v; }, "ADDRESS",
     value("127.0.0.1"), any(),
     "Address to listen at; 0.0.0.0 lets other machines in, so give --api-key-file too"},
    {"port", Group::kServer, [](Settings& s, int64_t v) { s.http.port = static_cast<uint16_t>(v); },
     "", value("8000"), between(0, 65535), "Port to listen at; 0: any that is free"},
    {"served_model_name", Group::kServer,
     [](Settings& s, const Texts& v) { s.served_model_names = v.texts; }, "NAME",
     otherwise("its directory's"), any(),
     "Names that requests may call the model by; the first is its own"},
    {"chat_template", Group::kServer, [](Settings& s, const Text& v) { s.chat_template = v; },
     "FILE", otherwise("the checkpoint's"), any(),
     "A file with the Jinja template of conversations"},
    {"api_key", Group::kServer, [](Settings& s, const Texts& v) { s.api_keys = v.texts; }, "KEY",
     otherwise("none"), any(),
     "A key that requests must bring, any of several; other users of this machine can read it in "
     "the process's arguments, so better take a file"},
    {"api_key_file", Group::kServer, [](Settings& s, const Text& v) { s.api_key_file = v; }, "FILE",
     otherwise("none"), any(),
     "A file of keys, one a line, of which requests must bring one; a line may be a key's hash "
     "instead: sha256: and what `printf %s KEY | sha256sum` prints, and a name in front of either "
     "is what the log calls it. Behind the key, adapters=NAME,... lets it use those adapters alone "
     "(NAME* stands for all that begin so), and load-adapters lets it load and unload some. Take "
     "long random keys (openssl rand -hex 32), as this hash is a fast one, which costs a request "
     "no "
     "time"},
    {"lora_dir", Group::kServer, [](Settings& s, const Text& v) { s.lora_dir = v; }, "DIR",
     otherwise("anywhere"), any(),
     "The directory in which adapters must lie that are loaded while serving (POST "
     "/v1/load_lora_adapter), and that their paths begin from; links lead out of it for nobody"},
    {"admin_key_file", Group::kServer, [](Settings& s, const Text& v) { s.admin_key_file = v; },
     "FILE", otherwise("none"), any(),
     "A file of keys as that of --api-key-file, of which those bring one who have the model sleep "
     "and wake (POST /sleep, POST /wake_up, GET /is_sleeping) and load adapters (POST "
     "/v1/load_lora_adapter, /v1/unload_lora_adapter); without it nobody may"},
    {"tls_certificate", Group::kServer,
     [](Settings& s, const Text& v) { s.http.tls_certificate = v; }, "FILE",
     otherwise("none, and plain HTTP"), any(),
     "Certificates in PEM, the server's first, which make it speak HTTPS; it, its key and the "
     "files "
     "of keys are read anew when they change"},
    {"tls_key", Group::kServer, [](Settings& s, const Text& v) { s.http.tls_key = v; }, "FILE",
     otherwise("none"), any(), "The certificate's key in PEM, without a password"},
    {"allowed_hosts", Group::kServer,
     [](Settings& s, const Texts& v) { s.allowed_hosts = v.texts; }, "HOST",
     otherwise("this machine's names on loopback, else all"), any(),
     "Names that requests may have as their Host, such as llm.example, besides localhost and those "
     "under .localhost, .local and .internal, which are let through; *: all"},
    {"allowed_origins", Group::kServer,
     [](Settings& s, const Texts& v) { s.allowed_origins = v.texts; }, "ORIGIN", otherwise("none"),
     any(), "Web pages that may call the server, such as https://chat.example; *: all"},
    {"unknown_parameters", Group::kServer,
     [](Settings& s, const Text& v) { s.refuses_unknown_parameters = v == "refuse"; }, "",
     value("refuse"), one_of("refuse|warn"),
     "What a parameter that is not known is: an error, or a warning in the log"},
    {"other_tools", Group::kServer,
     [](Settings& s, const Text& v) { s.refuses_other_tools = v == "refuse"; }, "",
     value("leave-out"), one_of("leave-out|refuse"),
     "What becomes of tools that are no functions, such as a search of the web that clients offer "
     "beside their own: left out with the header X-Encore-Warning, or an error"},
    {"metric_aliases", Group::kServer, [](Settings& s, const Names& v) { s.metric_aliases = v; },
     "", otherwise("none"), any(),
     "Systems (vllm, trtllm) under whose names, for routers that read those, /metrics also gives "
     "what Encore counts as they do"},
    {"log_format", Group::kServer,
     [](Settings& s,
        const Text& v) { s.log_format = v == "json" ? log::Format::kJson : log::Format::kText; },
     "", value("text"), one_of("text|json"),
     "What stderr gets: lines for people, or an object a line for programs"},
    {"log_requests", Group::kServer, [](Settings& s, bool v) { s.logs_requests = v; }, "",
     value("on"), on_or_off(),
     "Log a line for each request that has ended, but for probes and the page: who asked, what "
     "came of it, its tokens and times, and nothing that was said. On, as whoever looks into a "
     "complaint needs the line afterwards; none is waited for where nobody reads stderr"},
    {"max_queue", Group::kServer, [](Settings& s, int64_t v) { s.serving.max_queue = v; },
     "sequences", value("1024"), between(0, 1 << 20),
     "Sequences that may wait beyond those that fit a step; more are refused with 429"},
    {"keep_alive_timeout", Group::kServer,
     [](Settings& s, int64_t v) { s.http.idle_timeout = std::chrono::seconds(v); }, "seconds",
     value("75"), between(1, 86400),
     "Time that a connection may rest between two requests; behind a proxy, take more than the "
     "proxy does, which may else send a request on a connection that was just closed"},
    {"request_timeout", Group::kServer, [](Settings& s, int64_t v) { s.request_timeout_s = v; },
     "seconds", value("0"), between(0, 86400),
     "Time that a request may take, from its arrival, the queue included, to the end of its "
     "answer; then it fails with 504, or its stream with an error. A request may ask for less, by "
     "its parameter timeout; 0: as much as it takes"},
    {"drain_delay", Group::kServer, [](Settings& s, int64_t v) { s.drain_delay_s = v; }, "seconds",
     value("0"), between(0, 86400),
     "Time after SIGTERM in which the port stays open at least, for those who do not know yet: new "
     "requests and /health get 503, /live 200. Without it, until the requests in hand have ended"},
    {"drain_timeout", Group::kServer, [](Settings& s, int64_t v) { s.drain_timeout_s = v; },
     "seconds", value("30"), between(0, 86400),
     "Time that requests in hand may take after SIGTERM"},
};

// The options that people need first. --help shows them first, in verbs that have them.
constexpr std::string_view kFirst[] = {"model",          "dtype", "device", "max_seq_len",
                                       "max_batch_size", "host",  "port",   "served_model_name",
                                       "api_key_file"};

constexpr Idle kIdle[] = {
    {"recording_errors", "graphs", "none"},
    {"record_order", "graphs", "none"},
    {"record_halves", "graphs", "none|piecewise"},
    {"burst_steps", "graphs", "none|piecewise"},
    {"speculative_acceptance", "speculative_tokens", "0"},
    {"speculative_method", "speculative_tokens", "0"},
    {"speculative_ngram", "speculative_tokens", "0"},
    {"speculative_slowdown", "speculative_tokens", "0"},
    {"threads", "device", "cuda|cuda:N"},
    {"tune", "device", "cpu"},
    {"tuning_cache", "device", "cpu"},
    {"tuning_cache", "tune", "off"},
    {"prefix_cache_key", "prefix_cache", "off"},
};

}  // namespace

std::span<const Option> all_options() {
  return kOptions;
}

bool is_first(const Option& option) {
  return std::ranges::find(kFirst, option.name) != std::end(kFirst);
}

std::span<const Idle> idle_options() {
  return kIdle;
}

GroupText group_text(Group group) {
  switch (group) {
    case Group::kModel:
      return {"Model", "which weights, and the numbers they are computed in"};
    case Group::kDevice:
      return {"Device", "where to run, and how its kernels are chosen"};
    case Group::kParallel:
      return {"Parallel", "how many devices compute a model together"};
    case Group::kGraphs:
      return {"Graphs",
              "whether a step is replayed from a recording, whole or in pieces, or runs eager"};
    case Group::kLadders:
      return {"Ladders", "the sizes of steps that are recorded; a step is padded to the next one"};
    case Group::kRecording:
      return {"Recording", "how the recordings are made at start"};
    case Group::kLoop:
      return {"Loop", "how far the device runs ahead of the host"};
    case Group::kSpeculation:
      return {"Speculation", "tokens that are guessed, and checked together with the next one"};
    case Group::kSizes:
      return {"Sizes", "how much a step takes at once, and the memory of K and V"};
    case Group::kCompiler:
      return {"Compiler", "how the model's graph becomes a program"};
    case Group::kDiagnosis:
      return {"Diagnosis", "what happened, and whether it is right"};
    case Group::kServing:
      return {"Serving", "how requests share steps and KV"};
    case Group::kServer:
      return {"Server", "who may ask, where, and for how much"};
  }
  return {};
}

}  // namespace encore::config
