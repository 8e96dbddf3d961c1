// Turns a model's name into something that steps: graph, program, weights, executor.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/device.h"
#include "kv/window_group.h"
#include "loader/adapters.h"
#include "loader/memory_amount.h"
#include "model/format/weight_formats.h"
#include "model/graph.h"
#include "model/source.h"
#include "model/weights.h"
#include "passes/pipeline.h"
#include "runtime/executor.h"
#include "runtime/prompt_scorer.h"

namespace encore::loader {

// The limit that decides how many tokens the KV pool holds.
enum class KvBound : uint8_t {
  kWanted,        // it holds what was asked for, or the longest sequences of the largest step
  kMemory,        // what is free, less the reserve
  kFraction,      // LoadOptions::free_memory_fraction
  kHostFraction,  // LoadOptions::host_fraction
};

// The options of an executor, and of everything that is loaded before and after it.
struct LoadOptions : runtime::ExecutorOptions {
  // Capacity of the KV pool; absent: max_batch_size sequences of max_seq_len, or what fits.
  std::optional<int64_t> kv_tokens;
  // The share of the memory that is free once weights, arena and recordings lie in it, less the
  // reserve, that the KV pool may fill. Absent: all, or, for a host's memory, `host_fraction`,
  // unless `kv_tokens` asks for more.
  std::optional<double> free_memory_fraction;
  double host_fraction = 1;
  MemoryAmount memory_reserve;
  int64_t page_size = 32;  // 16, 32 or 64
  // Layers with a window have pages of their own, which hold a window of each sequence, not all its tokens.
  // Whoever runs steps gives them those pages then (engine::Engine does).
  bool window_pages = false;
  std::optional<DType> dtype;     // absent: the checkpoint's
  std::optional<DType> kv_dtype;  // of K and V as they are kept; absent: dtype
  model::FormatOptions formats;   // of weights
  AdapterOptions adapters;        // LoRA
  model::LogitsRows logits = model::LogitsRows::kLast;
  // Tokens by which drafts are looked up at most; Limits::num_drafts says how many drafts there are.
  int64_t max_match = model::kMaxMatch;
  // The model that guesses the drafts; absent: they are looked up. It is compiled into the same program, in
  // the model's dtypes, and shares its pages.
  std::optional<model::ModelSource> draft = {};
  model::Acceptance acceptance = model::Acceptance::kCoupled;  // of drafts
  // Requests may ask for log probabilities of their prompts. REQUIRES: LogitsRows::kLast.
  bool scores_prompts = false;
  // Requests may have grammars. Unless the halves of steps that token masks need are recorded at start
  // (`halves`), they are when they are first needed, so what recordings take is kept free once more.
  bool masks_tokens = false;
  // Passes left out or from outside the library, where the program is split; its sizes are those of
  // `limits`.
  passes::CompileOptions compile;
  const ir::OpSet* ops = nullptr;  // with ops from outside that passes write; null: the library's
  // The rank whose share a program without a device is; a model on a device takes the device's rank.
  Rank rank = {};
  // As GraphOptions. A model on a device goes by the device: GPUs gather all logits.
  bool merges_candidates = true;
  // Called, by another rank's thread, where rank 0 has been given up by the others and has not noticed for as
  // long again: its own thread, which would end the requests, has stopped. Null: nobody is told.
  std::function<void(const Error& error)> on_stopped_rank0;
};

// The memory that a sleeping model gives back.
enum class SleepDepth : uint8_t { kKv, kKvAndWeights };

class RankThreads;

// A model ready to step. Immovable: its parts refer to each other.
//
// On a device that has peers, it is rank 0's share: the peers load theirs at the same time, each on a
// thread, and run what this one's executor and prompt scorer run.
class LoadedModel {
 public:
  // Errors: those of every part, on any rank; kUsage when limits and model do not fit (page size,
  // sliding window), and where the ranks of the device compute another model.
  LoadedModel(Device& device, const model::ModelSource& source, const LoadOptions& options);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;
  // Waits for the steps in flight.
  ~LoadedModel();

  // The configuration of the whole model, on every rank.
  [[nodiscard]] const model::ModelConfig& config() const { return config_; }
  // The dtype of weights and activations, and that of K and V as they are kept.
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] DType kv_dtype() const { return kv_dtype_; }
  [[nodiscard]] const passes::Program& program() const { return *program_; }
  [[nodiscard]] runtime::Executor& executor() { return *executor_; }
  // Null: it has no room for any, or is not rank 0.
  [[nodiscard]] const Adapters* adapters() const { return adapters_ ? &*adapters_ : nullptr; }
  [[nodiscard]] Adapters* adapters() { return adapters_ ? &*adapters_ : nullptr; }
  // The rank's slots; null: it has none.
  [[nodiscard]] const std::shared_ptr<AdapterShare>& adapter_share() const {
    return adapter_share_;
  }
  [[nodiscard]] bool scores_prompts() const { return prompt_scorer_ != nullptr; }
  // Scores the tokens of prompts. REQUIRES: LoadOptions::scores_prompts.
  [[nodiscard]] runtime::PromptScorer& prompt_scorer() { return *prompt_scorer_; }
  [[nodiscard]] const runtime::RecordingStats& recording_stats() const {
    return executor_->loaded().recordings.stats();
  }
  [[nodiscard]] const runtime::Limits& limits() const { return limits_; }
  // Pages of layers that keep all tokens, and of those that keep a window, where they have their own.
  [[nodiscard]] int64_t num_pages() const { return num_rows_.front(); }
  [[nodiscard]] int64_t num_window_pages() const { return num_rows_.size() > 1 ? num_rows_[1] : 0; }
  // The rule by which those are handed out; none: all layers have the same pages.
  [[nodiscard]] const std::optional<kv::WindowRule>& window_rule() const { return window_rule_; }
  // All pages, by group.
  [[nodiscard]] const runtime::GroupRows& num_rows() const { return num_rows_; }
  [[nodiscard]] KvBound kv_bound() const { return kv_bound_; }
  [[nodiscard]] int64_t page_size() const { return page_size_; }
  // Bytes in use on the device before anything was loaded, and bytes taken to score prompts.
  [[nodiscard]] int64_t context_bytes() const { return context_bytes_; }
  [[nodiscard]] int64_t prompt_score_bytes() const { return prompt_score_bytes_; }
  // Bytes kept free for the halves of steps that token masks need.
  [[nodiscard]] int64_t half_bytes() const { return half_bytes_; }
  [[nodiscard]] double load_seconds() const { return load_seconds_; }
  [[nodiscard]] Rank rank() const { return executor_->loaded().device.rank(); }

  // Gives device memory back between steps until wake(); addresses stay, so recordings do. The
  // pages in use, by group, are kept on the host. A model that is asleep already goes deeper where asked to,
  // else does nothing. Errors: kMemory when the host has not the memory for the pages; nothing was
  // released.
  void sleep(SleepDepth depth, std::vector<std::vector<int32_t>> pages_in_use);
  // Takes the same memory again and fills it: pages from the host, weights from their source.
  // Errors: kMemory when somebody else took it, with figures; kModel when the checkpoint changed on
  // disk. It stays asleep then, and waking can be tried again. Of several ranks, all sleep and wake
  // together.
  void wake();
  [[nodiscard]] bool asleep() const { return saved_.has_value(); }
  // Host memory that holds pages while asleep. Units: bytes.
  [[nodiscard]] int64_t saved_bytes() const { return saved_ ? saved_->content.bytes() : 0; }

 private:
  void load(Device& device, const model::ModelSource& source, const LoadOptions& options);
  // Brings the first adapters to the slots of all ranks. REQUIRES: rank 0, and that all ranks load.
  void load_adapters(const AdapterOptions& options);
  void take_memory_back();
  // Does it on all ranks or on none; returns the first rank's error.
  std::optional<Error> on_all_ranks(const std::string& what, const std::function<void()>& work,
                                    const std::function<void()>& undo);
  void create_prompt_scorer(Device& device, const model::ModelSource& source,
                            const LoadOptions& options);
  // The pages of each group beside so many of those that keep all tokens, of which `wanted` are wanted.
  [[nodiscard]] runtime::GroupRows rows_beside(int64_t num_pages, int64_t wanted) const;
  // The most pages, up to `wanted`, whose memory the options leave.
  int64_t pages_that_fit(const Device& device, const LoadOptions& options, int64_t wanted);

  // Held by rank 0 of several; the first member to come and the last to go.
  std::optional<Communicator::Use> use_;
  model::ModelConfig config_;
  DType dtype_;
  DType kv_dtype_;
  runtime::Limits limits_;
  int64_t page_size_;
  KvBound kv_bound_ = KvBound::kWanted;
  std::optional<kv::WindowRule> window_rule_;
  runtime::GroupRows num_rows_;  // pages, by group
  std::optional<passes::Program> program_;
  std::optional<model::Weights> weights_;
  std::shared_ptr<AdapterShare>
      adapter_share_;                 // shared with rank 0's adapters; null: no room for any
  std::optional<Adapters> adapters_;  // of rank 0
  std::unique_ptr<Stream> stream_;    // of all programs: their steps run in order
  // The threads of the other ranks, in rank 0 of several. They outlive the programs, whose last steps all take part in.
  std::unique_ptr<RankThreads> followers_;
  std::unique_ptr<runtime::Executor> executor_;
  std::optional<passes::Program> score_program_;
  std::unique_ptr<runtime::PromptScorer> prompt_scorer_;
  int64_t prompt_score_bytes_ = 0;
  int64_t half_bytes_ = 0;
  int64_t context_bytes_ = 0;
  double load_seconds_ = 0;
  std::optional<runtime::SavedRows> saved_;  // asleep
};

// The rule by which layers with a window keep pages, where they have pages of their own.
std::optional<kv::WindowRule> window_rule(const model::ModelConfig& config,
                                          const LoadOptions& options);

// Bytes of the pages that so many sequences of the longest length need, on a rank of the options.
int64_t kv_bytes(const model::ModelConfig& config, const LoadOptions& options,
                 int64_t num_sequences);

// The program alone, without weights or memory: what `inspect` shows. Of a checkpoint's files it
// reads what shapes the program: which tensors are in FP8, and the scales of K and V.
passes::Program compile_model(const model::ModelSource& source, const LoadOptions& options,
                              int64_t num_pages);

}  // namespace encore::loader
