#include "loader/loaded_model.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/log.h"
#include "base/rounding.h"
#include "loader/lockstep.h"
#include "loader/rank_threads.h"
#include "model/kv_scales.h"
#include "model/shard.h"
#include "ops/ops.h"

namespace encore::loader {
namespace {

void check_limits(const model::ModelConfig& config, const LoadOptions& options) {
  const runtime::Limits& limits = options.limits;
  if (std::min({limits.max_batch_size, limits.max_q, limits.max_seq_len, limits.mixed_tokens()}) <
      1) {
    fail(ErrorKind::kUsage, "limits of sequences and tokens are 1 or more");
  }
  if (limits.max_num_tokens < limits.max_batch_size) {
    fail(ErrorKind::kUsage,
         "--max-num-tokens {} is less than --max-batch-size {}, and a decode step has a token for "
         "each sequence: raise the first to {}, or lower the second",
         limits.max_num_tokens, limits.max_batch_size, limits.max_batch_size);
  }
  if (limits.num_drafts > 0 && limits.max_q > 1) {
    fail(ErrorKind::kUsage, "--speculative-tokens needs uniform steps of one token without drafts");
  }
  if (limits.max_num_tokens < limits.max_batch_size * (1 + limits.num_drafts)) {
    fail(ErrorKind::kUsage,
         "--max-num-tokens {} is less than --max-batch-size {} times 1 + --speculative-tokens {}, "
         "and a step checks all drafts at once: raise the first to {}, or lower one of the others",
         limits.max_num_tokens, limits.max_batch_size, limits.num_drafts,
         limits.max_batch_size * (1 + limits.num_drafts));
  }
  if (options.page_size != 16 && options.page_size != 32 && options.page_size != 64) {
    fail(ErrorKind::kUsage, "the page size is 16, 32 or 64 tokens, not {}", options.page_size);
  }
  const int64_t longest = options.limits.max_seq_len;
  if (longest > model::longest_sequence(config)) {
    fail(ErrorKind::kUsage, "sequences of {} tokens: the model was made for at most {}", longest,
         model::longest_sequence(config));
  }
}

// Throws where the draft model of the options cannot guess tokens of the model.
void check_draft(const model::ModelConfig& config, const LoadOptions& options) {
  const model::ModelConfig& draft = options.draft->config;
  if (options.limits.num_drafts == 0) {
    fail(ErrorKind::kUsage,
         "a draft model without --speculative-tokens: say how many tokens it guesses in a step, 1 "
         "to 8");
  }
  if (draft.vocab_size > config.vocab_size) {
    fail(ErrorKind::kUsage,
         "--draft-model has a vocabulary of {} tokens, and the model one of {}: take a draft model "
         "made "
         "for this model, with its tokenizer",
         draft.vocab_size, config.vocab_size);
  }
  if (options.limits.max_seq_len > model::longest_sequence(draft)) {
    fail(ErrorKind::kUsage,
         "sequences of {} tokens: the draft model was made for at most {}; lower --max-seq-len, or "
         "take "
         "another draft model",
         options.limits.max_seq_len, model::longest_sequence(draft));
  }
}

// Logs that the RoPE table depends on the longest sequence, where it does: shorter sequences use
// the same table.
void log_ropes(const model::ModelConfig& config, int64_t max_seq_len) {
  for (const model::Rope& rope : config.ropes) {
    if (rope.scaling != model::RopeScaling::kLongrope &&
        rope.scaling != model::RopeScaling::kDynamic)
      continue;
    const int64_t original = rope.original_max_position_embeddings;
    if (max_seq_len <= original) continue;
    log::info(
        "RoPE: the table for sequences of {} tokens turns shorter ones too; --max-seq-len {} "
        "takes the model's first one",
        max_seq_len, original);
  }
}

// The options with which a model's graphs are built, and the checkpoint and weight formats that
// these refer to. Immovable: the formats refer to the checkpoint, and the options to the formats.
struct GraphInputs {
  GraphInputs(const model::ModelSource& source, const LoadOptions& options)
      : checkpoint(opened(source, options)),
        formats(source.config, options.formats, checkpoint ? &*checkpoint : nullptr),
        graph{.dtype = options.dtype.value_or(source.config.dtype),
              .kv_dtype = options.kv_dtype,
              .page_size = options.page_size,
              .max_seq_len = options.limits.max_seq_len,
              .max_batch_size = options.limits.max_batch_size,
              .logits = options.logits,
              .num_drafts = options.limits.num_drafts,
              .max_match = options.max_match,
              .acceptance = options.acceptance,
              .merges_candidates = options.merges_candidates,
              .formats = &formats,
              .rank = options.rank,
              .lora = lora_shape(options.adapters),
              .bursts = options.bursts} {
    if (options.kv_dtype != DType::kFP8 || !checkpoint) return;
    graph.kv_scales = model::read_kv_scales(*checkpoint);
    if (const auto missing = model::missing_kv_scales(*checkpoint)) log::warning("{}", *missing);
    if (options.rank.size > 1 || graph.lora) model::drop_shares(graph.kv_scales);
  }
  static std::optional<model::Checkpoint> opened(const model::ModelSource& source,
                                                 const LoadOptions& options) {
    const bool asks = source.config.quantization || options.kv_dtype == DType::kFP8;
    if (!asks || !source.checkpoint) return std::nullopt;
    return std::optional<model::Checkpoint>(*source.checkpoint);
  }
  GraphInputs(const GraphInputs&) = delete;
  GraphInputs& operator=(const GraphInputs&) = delete;

  std::optional<model::Checkpoint> checkpoint;
  model::WeightFormats formats;
  model::GraphOptions graph;
};

// Returns the graph's weight that has the same type and the same recipe as `wanted`.
std::optional<ir::ValueId> find_weight(const ir::Graph& graph, const ir::Value& wanted) {
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    const ir::Value& weight = graph.value(id);
    if (weight.type == wanted.type && weight.recipe == wanted.recipe) return id;
  }
  return std::nullopt;
}

// Returns the sizes of the whole model's adapters, of which a rank's program has a share.
model::LoraSizes lora_sizes(const model::ModelSource& source, const LoadOptions& options) {
  LoadOptions whole = options;
  whole.rank = {};
  whole.kv_dtype = {};  // the dtype of K and V does not affect adapters
  const GraphInputs inputs(source, whole);
  return model::lora_sizes(model::build_graph(source.config, inputs.graph));
}

const ir::OpSet& op_set(const LoadOptions& options) {
  return options.ops == nullptr ? ops::standard() : *options.ops;
}

}  // namespace

std::optional<kv::WindowRule> window_rule(const model::ModelConfig& config,
                                          const LoadOptions& options) {
  if (!options.window_pages) return std::nullopt;
  const auto window = model::kept_window(config, options.limits.max_seq_len);
  if (!window) return std::nullopt;
  return kv::WindowRule{.window = *window,
                        .page_size = options.page_size,
                        .step_tokens = options.limits.max_num_tokens,
                        .num_drafts = options.limits.num_drafts};
}

int64_t kv_bytes(const model::ModelConfig& whole, const LoadOptions& options,
                 int64_t num_sequences) {
  const model::ModelConfig config = model::share_of(whole, options.rank);
  const DType dtype = options.kv_dtype.value_or(options.dtype.value_or(config.dtype));
  const runtime::Limits& limits = options.limits;
  const int64_t num_pages =
      num_sequences * div_up(limits.max_seq_len + limits.num_drafts, options.page_size);
  const auto rule = window_rule(config, options);
  const int64_t num_window_pages =
      rule ? rule->pages_beside(num_pages, num_pages, num_sequences) : num_pages;
  const model::KvBytes token = model::kv_bytes_by_group(config, dtype, limits.max_seq_len);
  return options.page_size * (num_pages * token.whole + num_window_pages * token.window);
}

passes::Program compile_model(const model::ModelSource& source, const LoadOptions& options,
                              int64_t num_pages) {
  GraphInputs inputs(source, options);
  inputs.graph.num_pages = num_pages;
  if (const auto rule = window_rule(source.config, options)) {
    inputs.graph.num_window_pages =
        rule->pages_beside(num_pages, num_pages, options.limits.max_batch_size);
  }
  std::optional<GraphInputs> draft;
  if (options.draft) {
    check_draft(source.config, options);
    LoadOptions own = options;
    own.formats = {};  // the draft model is in FP8 only where its checkpoint is
    draft.emplace(*options.draft, own);
    inputs.graph.draft = model::DraftModel{options.draft->config, &draft->formats};
  }
  passes::CompileOptions compile = options.compile;
  compile.max_sizes = options.limits.max_sizes();
  return passes::compile(model::build_graph(source.config, inputs.graph), op_set(options), compile);
}

LoadedModel::LoadedModel(Device& device, const model::ModelSource& source, const LoadOptions& given)
    : config_(source.config),
      dtype_(given.dtype.value_or(config_.dtype)),
      kv_dtype_(given.kv_dtype.value_or(dtype_)),
      limits_(given.limits),
      page_size_(given.page_size),
      window_rule_(loader::window_rule(config_, given)) {
  LoadOptions options = given;
  options.rank = device.rank();
  options.merges_candidates = device.kind() == DeviceKind::kCpu;
  check_limits(config_, options);
  const auto communicator = device.communicator();
  const bool leads = communicator && options.rank.index == 0;
  if (leads) {
    (void)model::share_of(config_, options.rank);  // refused before anything is begun
    use_.emplace(*communicator);
  }
  try {
    if (leads) followers_ = std::make_unique<RankThreads>(device, source, options);
    load(device, source, options);
    if (adapter_share_ && options.rank.index == 0) load_adapters(options.adapters);
  } catch (const Error& error) {
    if (communicator) communicator->fail(options.rank.index, error.kind(), error.what());
    throw;
  }
  if (!followers_) return;
  executor_->lead(*followers_);
  followers_->watch(executor_->output().ring());
  if (prompt_scorer_) prompt_scorer_->lead(*followers_);
}

LoadedModel::~LoadedModel() {
  if (followers_) followers_->unwatch();
  if (adapter_share_ && !adapters_)
    adapter_share_->close();  // rank 0 fills this rank's slots for adapters
}

void LoadedModel::load_adapters(const AdapterOptions& options) {
  std::vector<std::shared_ptr<AdapterShare>> shares{adapter_share_};
  if (followers_) {
    for (std::shared_ptr<AdapterShare>& share : followers_->adapter_shares())
      shares.push_back(std::move(share));
  }
  adapters_.emplace(std::move(shares), options);
  adapters_->fill();
}

void LoadedModel::load(Device& device, const model::ModelSource& source,
                       const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto communicator = device.communicator();
  const int rank = options.rank.index;
  context_bytes_ = device.used_bytes().value_or(0);
  if (rank == 0) log_ropes(config_, limits_.max_seq_len);
  const int64_t wanted = options.kv_tokens.value_or(limits_.max_batch_size *
                                                    (limits_.max_seq_len + limits_.num_drafts));
  const int64_t wanted_pages = std::max<int64_t>(1, div_up(wanted, page_size_));
  program_ = compile_model(source, options, wanted_pages);
  const auto weights_of = [](const model::ModelSource& from) -> model::WeightSource {
    if (from.checkpoint) return *from.checkpoint;
    return model::RandomWeights{};
  };
  std::optional<model::WeightSource> draft_weights;
  if (options.draft) draft_weights = weights_of(*options.draft);
  weights_.emplace(program_->graph, model::WeightSources(weights_of(source), draft_weights),
                   device);
  if (options.adapters.has_room()) {
    adapter_share_ = std::make_shared<AdapterShare>(program_->graph, weights_->views(),
                                                    lora_sizes(source, options), device);
    if (rank == 0) check_adapters(adapter_share_->layout(), options.adapters);
  }
  stream_ = device.create_stream();
  runtime::ExecutorOptions recorded = options;
  if (communicator) {
    require_lockstep(*communicator, rank,
                     lockstep_text(*program_, options, runtime::wanted_coverage(options)));
    require_slices(*communicator, rank, slices_text(*program_), [&](int other) {
      LoadOptions share = options;
      share.rank.index = other;
      share.compile.dump = {};
      return slices_text(compile_model(source, share, wanted_pages));
    });
    recorded.reached = [&](runtime::StartPoint point, const runtime::LoadedProgram& loaded) {
      if (point == runtime::StartPoint::kLowered)
        return require_lockstep(*communicator, rank, loaded.tables.to_text());
      (void)communicator->exchange(rank, std::string(name(point)), "");
    };
  }
  executor_ =
      std::make_unique<runtime::Executor>(device, *stream_, *program_, weights_->views(), recorded);
  if (communicator) (void)communicator->exchange(rank, "the scores of prompts", "");
  if (options.scores_prompts) create_prompt_scorer(device, source, options);
  if (options.masks_tokens && !options.halves && recording_stats().num_full() > 0)
    half_bytes_ = recording_stats().bytes;
  // CUDA graphs are recorded before the KV cache is allocated, so their memory need not be
  // estimated.
  int64_t num_pages = pages_that_fit(device, options, wanted_pages);
  if (communicator) num_pages = fewest_pages(*communicator, rank, num_pages);
  if (options.kv_tokens && num_pages < wanted_pages) {
    fail(ErrorKind::kMemory,
         "--kv-tokens {} do not fit beside what is loaded and what is to stay free "
         "(--memory-reserve, --free-gpu-memory-fraction): ask for at most {}, or reserve less",
         *options.kv_tokens, num_pages * page_size_);
  }
  num_rows_ = rows_beside(num_pages, wanted_pages);
  executor_->loaded().kv.map(num_rows_);
  if (communicator) (void)communicator->exchange(rank, "the end of loading", "");
  load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void LoadedModel::create_prompt_scorer(Device& device, const model::ModelSource& source,
                                       const LoadOptions& options) {
  const int64_t before = device.used_bytes().value_or(0);
  // Compile with the passes that merge the weights of the model, so that the recipes of the weights
  // are the same.
  passes::CompileOptions compile = options.compile;
  compile.max_sizes = {model::kScoredRows, model::kScoredRows};
  compile.split_ops = {};
  compile.dump = {};
  const GraphInputs inputs(source, options);
  score_program_ =
      passes::compile(model::build_score_graph(config_, inputs.graph, limits_.max_num_tokens),
                      op_set(options), compile);
  const ir::Graph& graph = score_program_->graph;
  std::vector<TensorView> weights(graph.num_values());
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    const ir::Value& weight = graph.value(id);
    const std::string& name = weight.name;
    const auto output = std::ranges::find(model::kScoredOutputs, name, &model::ScoredOutput::name);
    if (output != std::end(model::kScoredOutputs)) {
      weights[id.index] =
          executor_->loaded().view(program_->graph.outputs()[output->index], program_->max_sizes);
      continue;
    }
    const auto of_model = find_weight(program_->graph, weight);
    if (!of_model) {
      fail(
          ErrorKind::kUnsupported,
          "log probabilities of prompts need weight %{}, which a pass has merged in another way in "
          "the model: leave that pass out (--disable-pass), or do without them",
          name);
    }
    weights[id.index] = weights_->views()[of_model->index];
  }
  prompt_scorer_ = std::make_unique<runtime::PromptScorer>(device, *stream_, *score_program_,
                                                           std::move(weights));
  if (options.graphs == runtime::Graphs::kNone) {
    prompt_scorer_->warm_up();
  } else {
    prompt_scorer_->record(options.recording_errors);
  }
  const auto after = device.used_bytes();
  prompt_score_bytes_ = after ? *after - before : prompt_scorer_->bytes();
}

runtime::GroupRows LoadedModel::rows_beside(int64_t num_pages, int64_t wanted) const {
  if (!window_rule_) return {num_pages};
  return {num_pages, window_rule_->pages_beside(num_pages, wanted, limits_.max_batch_size)};
}

int64_t LoadedModel::pages_that_fit(const Device& device, const LoadOptions& options,
                                    int64_t wanted) {
  const DeviceInfo info = device.info();
  const int64_t free = info.free_bytes;
  const int64_t reserve = options.memory_reserve.of(info.total_bytes);
  const bool is_host = !device.used_bytes();
  const bool is_bounded = is_host && !options.kv_tokens;
  const double share =
      options.free_memory_fraction.value_or(is_bounded ? options.host_fraction : 1);
  const auto budget =
      static_cast<int64_t>(share * static_cast<double>(free - reserve - half_bytes_));
  runtime::KvMemory& kv = executor_->loaded().kv;
  const auto beside = [&](int64_t num_pages) { return rows_beside(num_pages, wanted); };
  const int64_t fitting = runtime::rows_that_fit(std::array{&kv}, beside, wanted, budget);
  if (fitting < wanted) {
    kv_bound_ = share == 1                     ? KvBound::kMemory
                : options.free_memory_fraction ? KvBound::kFraction
                                               : KvBound::kHostFraction;
  }
  if (fitting == 0) {
    fail(ErrorKind::kMemory,
         "no memory is left for KV: {:.2f} GB are free, {:.2f} GB are to stay so "
         "(--memory-reserve), "
         "and a page takes {:.3f} GB; reserve less, take a smaller model, fewer --max-num-tokens, "
         "or fewer sizes",
         static_cast<double>(free) * 1e-9, static_cast<double>(reserve) * 1e-9,
         static_cast<double>(kv.bytes_for(beside(1))) * 1e-9);
  }
  return fitting;
}

void LoadedModel::sleep(SleepDepth depth, std::vector<std::vector<int32_t>> pages_in_use) {
  // Loads to adapter slots must end before any rank gives the memory of its adapter slots back.
  const bool with_adapters = adapters_ && depth == SleepDepth::kKvAndWeights;
  if (with_adapters) adapters_->release();
  if (followers_) {
    followers_->post_to_models(
        [depth, pages_in_use](LoadedModel& model) { model.sleep(depth, pages_in_use); });
  }
  runtime::KvMemory& kv = executor_->loaded().kv;
  if (!asleep()) {
    const auto save = [&] {
      executor_->loaded().stream.synchronize();
      StagedCopy copy(executor_->loaded().device);
      pages_in_use.resize(num_rows_.size());
      saved_ = kv.save(copy, std::move(pages_in_use));
    };
    const auto error = on_all_ranks("sleep", save, [&] { saved_.reset(); });
    if (error && rank().index > 0) return;  // rank 0 reports it
    if (error && error->kind() != ErrorKind::kMemory) throw Error(*error);
    if (error) {
      if (with_adapters) adapters_->fill();
      fail(ErrorKind::kMemory,
           "cannot sleep: {}; the model stays awake: end some sequences or free host memory, and "
           "let it sleep again",
           error->what());
    }
    kv.unmap();
  }
  if (depth != SleepDepth::kKvAndWeights) return;
  weights_->release();
}

void LoadedModel::wake() {
  if (!asleep()) return;
  if (followers_) followers_->post_to_models([](LoadedModel& model) { model.wake(); });
  const bool with_weights = !weights_->is_mapped();
  runtime::KvMemory& kv = executor_->loaded().kv;
  const int64_t needed = kv.bytes_for(num_rows_) + (with_weights ? weights_->bytes() : 0);
  const auto error = on_all_ranks(
      "waking", [&] { take_memory_back(); },
      [&] {
        kv.unmap();
        if (with_weights) weights_->release();
      });
  if (!error) {
    saved_.reset();
    if (with_weights && adapters_) adapters_->fill();
    return;
  }
  if (rank().index > 0) return;  // rank 0 reports it
  if (error->kind() != ErrorKind::kMemory) throw Error(*error);
  fail(ErrorKind::kMemory,
       "cannot wake: {:.2f} GB are needed and {:.2f} GB of the device are free ({}); the model "
       "stays asleep: end what took the memory, and wake it again",
       static_cast<double>(needed) * 1e-9,
       static_cast<double>(executor_->loaded().device.info().free_bytes) * 1e-9, error->what());
}

std::optional<Error> LoadedModel::on_all_ranks(const std::string& what,
                                               const std::function<void()>& work,
                                               const std::function<void()>& undo) {
  const auto communicator = executor_->loaded().device.communicator();
  if (communicator) return do_on_all(*communicator, rank().index, what, work, undo);
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// All memory is allocated before any content is loaded, so that a lack of memory fails at once.
void LoadedModel::take_memory_back() {
  runtime::KvMemory& kv = executor_->loaded().kv;
  const bool with_weights = !weights_->is_mapped();
  try {
    StagedCopy copy(executor_->loaded().device);
    if (with_weights) weights_->map();
    kv.map(num_rows_);
    if (with_weights) weights_->fill(copy);
    copy.finish();
    kv.restore(copy, *saved_);
  } catch (...) {
    kv.unmap();
    if (with_weights) weights_->release();
    throw;
  }
}

}  // namespace encore::loader
