// Loads a model: builds its graph, compiles its program, loads its weights, and makes its executor.
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
  kWanted,        // the wanted tokens, or the longest sequences of the largest step
  kMemory,        // the free memory, less the reserve
  kFraction,      // LoadOptions::free_memory_fraction
  kHostFraction,  // LoadOptions::host_fraction
};

// The options of an executor, and of everything that is loaded before and after it.
struct LoadOptions : runtime::ExecutorOptions {
  // The capacity of the KV pool. Absent: max_batch_size sequences of max_seq_len tokens, or as many
  // tokens as fit. Units: tokens.
  std::optional<int64_t> kv_tokens;
  // The share of the free memory that the KV pool may fill. Free memory is what weights, arena,
  // recordings and the reserve leave. Absent: all of it, or, where the device's memory is the
  // host's, `host_fraction`, unless `kv_tokens` asks for more.
  std::optional<double> free_memory_fraction;
  double host_fraction = 1;
  MemoryAmount memory_reserve;
  int64_t page_size = 32;  // 16, 32 or 64
  // Gives layers with a sliding window pages of their own, which hold only the window of each
  // sequence. The caller that runs steps, such as engine::Engine, then has to assign those pages.
  bool window_pages = false;
  std::optional<DType> dtype;     // absent: the checkpoint's
  std::optional<DType> kv_dtype;  // the dtype of stored K and V; absent: dtype
  model::FormatOptions formats;   // formats of weights
  AdapterOptions adapters;        // LoRA
  model::LogitsRows logits = model::LogitsRows::kLast;
  // Drafts are looked up where earlier tokens of a sequence equal its last ones. At most this many
  // tokens are compared. Limits::num_drafts says how many drafts there are.
  int64_t max_match = model::kMaxMatch;
  // The draft model, which guesses the drafts. Absent: drafts are looked up in the sequence. The
  // draft model is compiled into the same program, with the dtypes of the model, and uses the same
  // pages.
  std::optional<model::ModelSource> draft = {};
  model::Acceptance acceptance = model::Acceptance::kCoupled;  // how drafts are accepted
  // Lets requests ask for log probabilities of their prompts' tokens. REQUIRES: LogitsRows::kLast.
  bool scores_prompts = false;
  // Lets requests have grammars, whose token masks need the halves of steps. Unless `halves` has
  // them recorded at start-up, halves are recorded when they are first needed, so as much memory as
  // all recordings take is kept free for them.
  bool masks_tokens = false;
  // Options of the compiler, such as passes to leave out or to add, and where the program is split.
  // The sizes in it are set from `limits`.
  passes::CompileOptions compile;
  const ir::OpSet* ops = nullptr;  // may hold a caller's own ops too; null: Encore's ops
  // The rank for which compile_model() compiles a program without a device. A model on a device has
  // the rank of the device.
  Rank rank = {};
  // Has the meaning of GraphOptions::merges_candidates, for compile_model(). A model on a device
  // sets it by the device: ranks merge candidates on CPUs, and gather all logits on GPUs.
  bool merges_candidates = true;
  // Called by the thread of another rank where the other ranks have given rank 0 up, and rank 0 has
  // not noticed it within another timeout. The thread of rank 0, which would end the requests, has
  // then stopped. Null: nothing is called.
  std::function<void(const Error& error)> on_stopped_rank0;
};

// Says which memory a sleeping model gives back.
enum class SleepDepth : uint8_t { kKv, kKvAndWeights };

class RankThreads;

// A loaded model that is ready to run steps. Immovable, since its parts refer to each other.
//
// On a device that has peers, this object is rank 0's share of the model. Each peer loads its share
// at the same time on a thread of its own, and runs the same steps as the executor and the prompt
// scorer of this object.
class LoadedModel {
 public:
  // Loads the model. Errors: those of every part, on any rank; kUsage when the limits do not fit
  // the model (page size, sliding window), and where the ranks of the device already compute
  // another model.
  LoadedModel(Device& device, const model::ModelSource& source, const LoadOptions& options);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;
  // Waits until the device has run all steps in flight.
  ~LoadedModel();

  // Returns the configuration of the whole model, not of a rank's share.
  [[nodiscard]] const model::ModelConfig& config() const { return config_; }
  // Return the dtype of weights and activations, and the dtype in which K and V are stored.
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] DType kv_dtype() const { return kv_dtype_; }
  [[nodiscard]] const passes::Program& program() const { return *program_; }
  [[nodiscard]] runtime::Executor& executor() { return *executor_; }
  // Return the adapters of the model. Null where the model has no room for adapters, or is not rank
  // 0.
  [[nodiscard]] const Adapters* adapters() const { return adapters_ ? &*adapters_ : nullptr; }
  [[nodiscard]] Adapters* adapters() { return adapters_ ? &*adapters_ : nullptr; }
  // Returns the adapter slots of this rank. Null where the model has no room for adapters.
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
  // Return the number of pages of layers that keep all tokens, and of layers that keep a window and
  // have pages of their own.
  [[nodiscard]] int64_t num_pages() const { return num_rows_.front(); }
  [[nodiscard]] int64_t num_window_pages() const { return num_rows_.size() > 1 ? num_rows_[1] : 0; }
  // Returns the rule by which layers with a window keep pages. Absent where all layers have the
  // same pages.
  [[nodiscard]] const std::optional<kv::WindowRule>& window_rule() const { return window_rule_; }
  // Returns the number of pages of each group.
  [[nodiscard]] const runtime::GroupRows& num_rows() const { return num_rows_; }
  [[nodiscard]] KvBound kv_bound() const { return kv_bound_; }
  [[nodiscard]] int64_t page_size() const { return page_size_; }
  // Return the bytes that were in use on the device before anything was loaded, and the bytes that
  // scoring prompts takes.
  [[nodiscard]] int64_t context_bytes() const { return context_bytes_; }
  [[nodiscard]] int64_t prompt_score_bytes() const { return prompt_score_bytes_; }
  // Returns the bytes that are kept free for recording the halves of steps, which token masks need.
  [[nodiscard]] int64_t half_bytes() const { return half_bytes_; }
  [[nodiscard]] double load_seconds() const { return load_seconds_; }
  [[nodiscard]] Rank rank() const { return executor_->loaded().device.rank(); }

  // Gives device memory back until wake(). Call it between steps. Addresses stay reserved, so
  // recordings stay valid. The content of the pages `pages_in_use`, given for each group, is kept
  // in host memory. A model that is already asleep also gives its weights back where `depth` asks
  // for it, and otherwise stays as it is. Errors: kMemory when the host has too little memory for
  // the pages; nothing was released then.
  void sleep(SleepDepth depth, std::vector<std::vector<int32_t>> pages_in_use);
  // Takes the device memory that sleep() gave back again, and fills it with the pages from host
  // memory and with the weights from their source. Several ranks sleep and wake together. Errors:
  // kMemory, with figures, when others use the memory now; kModel when the checkpoint changed on
  // disk. After an error the model stays asleep, and wake() can be called again.
  void wake();
  [[nodiscard]] bool asleep() const { return saved_.has_value(); }
  // Returns the host memory that holds pages while the model is asleep. Units: bytes.
  [[nodiscard]] int64_t saved_bytes() const { return saved_ ? saved_->content.bytes() : 0; }

 private:
  void load(Device& device, const model::ModelSource& source, const LoadOptions& options);
  // Loads the first adapters to the adapter slots of all ranks. REQUIRES: this is rank 0, and all
  // ranks are loading.
  void load_adapters(const AdapterOptions& options);
  void take_memory_back();
  // Does `work` on all ranks or, where it fails on one rank, on none: the ranks on which it
  // succeeded call `undo`. Returns the first error.
  std::optional<Error> on_all_ranks(const std::string& what, const std::function<void()>& work,
                                    const std::function<void()>& undo);
  void create_prompt_scorer(Device& device, const model::ModelSource& source,
                            const LoadOptions& options);
  // Returns the number of pages of each group, where the layers that keep all tokens have
  // `num_pages` of the `wanted` pages.
  [[nodiscard]] runtime::GroupRows rows_beside(int64_t num_pages, int64_t wanted) const;
  // Returns the most pages, up to `wanted`, that fit into the memory that the options leave for KV.
  int64_t pages_that_fit(const Device& device, const LoadOptions& options, int64_t wanted);

  // The use of the communicator, which rank 0 of several ranks holds. The first member, so that it
  // is released last.
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
  std::optional<Adapters> adapters_;  // only on rank 0
  std::unique_ptr<Stream> stream_;    // all programs use it, so their steps run in order
  // The threads of the other ranks, which rank 0 owns. They outlive the programs, because all ranks
  // take part in the last steps.
  std::unique_ptr<RankThreads> followers_;
  std::unique_ptr<runtime::Executor> executor_;
  std::optional<passes::Program> score_program_;
  std::unique_ptr<runtime::PromptScorer> prompt_scorer_;
  int64_t prompt_score_bytes_ = 0;
  int64_t half_bytes_ = 0;
  int64_t context_bytes_ = 0;
  double load_seconds_ = 0;
  std::optional<runtime::SavedRows> saved_;  // present while the model is asleep
};

// Returns the rule by which layers with a window keep pages. Absent where they have no pages of
// their own.
std::optional<kv::WindowRule> window_rule(const model::ModelConfig& config,
                                          const LoadOptions& options);

// Returns the bytes of the pages that `num_sequences` sequences of the greatest length need on the
// rank that `options` names.
int64_t kv_bytes(const model::ModelConfig& config, const LoadOptions& options,
                 int64_t num_sequences);

// Compiles a model's program alone, without weights or memory, as `encore inspect` shows it. Reads
// from the files of a checkpoint only what affects the program: which tensors are in FP8, and the
// scales of K and V.
passes::Program compile_model(const model::ModelSource& source, const LoadOptions& options,
                              int64_t num_pages);

}  // namespace encore::loader
