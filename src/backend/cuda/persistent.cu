// Which launches are chains for the persistent kernel of persistent_chain.cuh, and how one is
// bound.
#include "backend/cuda/persistent.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "backend/cuda/gemv.h"
#include "backend/cuda/persistent_chain.cuh"

namespace encore::cuda {
namespace {

using namespace persistent;  // NOLINT(google-build-using-namespace): one kernel in two files
using gemv::gemv_args;
using gemv::kColumnsPerLoad;
using gemv::weight_map;

bool is_attention(const Stage& stage) {
  return decode::accepts_attention_stage(*stage.kernel, *stage.args);
}

int64_t widest_x(std::span<const Stage> chain) {
  int64_t columns = 0;
  for (const Stage& stage : chain) {
    if (!is_attention(stage))
      columns = std::max(columns, linear_operands(*stage.args).weight->row_elements());
  }
  return gemv::x_bytes(1, columns);
}

int64_t head_size(const KernelArgs& attention) {
  return attention.inputs[6].shape[3];
}

int64_t attention_bytes(std::span<const Stage> chain, int num_blocks) {
  int64_t bytes = 0;
  for (const Stage& stage : chain) {
    if (!is_attention(stage)) continue;
    const auto sizes = decode::attention_stage_sizes(*stage.args, num_blocks,
                                                     tiles_of_head(head_size(*stage.args)));
    bytes = std::max(bytes, sizes.shared_bytes);
  }
  return round_up(bytes, 1024);
}

int64_t num_slots(std::span<const Stage> chain, int num_blocks) {
  const auto args = static_cast<int64_t>(chain.size() * sizeof(StageArgs<__half>) +
                                         sizeof(decode::AttentionStageArgs<__half>));
  return (kSharedBytes - attention_bytes(chain, num_blocks) - widest_x(chain) -
          gemv::kMostSumsBytes - args) /
         gemv::Ring::bytes(1);
}

// Which input of a launch is an operand?
size_t input_of(const KernelArgs& args, const TensorView* operand) {
  return static_cast<size_t>(operand - args.inputs.data());
}

// The output that the next stage reads.
size_t passed_on(const Stage& stage) {
  return is_attention(stage) ? 0 : stage.args->outputs.size() - 1;
}
const TensorView& row_of(const Stage& stage) {
  return stage.args->outputs[passed_on(stage)];
}

// Of q, k and v of attention: parts of what the stage before has made, a linear; all else is from
// before the chain.
bool follows(const Stage& attention, int s, const Stage& before) {
  if (is_attention(before) || !decode::are_parts_of(row_of(before), *attention.args)) return false;
  for (size_t i = 0; i < attention.inputs.size(); ++i) {
    const bool is_part = i < 3 && attention.inputs[i] == Stage::Origin{s - 1, -1};
    if (!is_part && (i < 3 || attention.inputs[i].stage >= 0)) return false;
  }
  return true;
}

// Every stage's x is what the stage before it has made, and its residual either from before the
// chain, or the last sum in it.
bool is_chain(std::span<const Stage> chain) {
  int last_sum = -1;  // stage
  for (int s = 0; s < static_cast<int>(chain.size()); ++s) {
    if (is_attention(chain[s])) {
      if (s == 0 || !follows(chain[s], s, chain[s - 1])) return false;
      continue;
    }
    const KernelArgs& args = *chain[s].args;
    const LinearOperands o = linear_operands(args);
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const Stage::Origin& origin = chain[s].inputs[i];
      const bool is_x = i == 0;
      if (is_x && s > 0) {
        const auto made = static_cast<int>(passed_on(chain[s - 1]));
        if (origin != Stage::Origin{s - 1, made}) return false;
      } else if (origin.stage >= 0) {
        const bool is_kept = o.residual != nullptr && i == input_of(args, o.residual) &&
                             origin.stage == last_sum && origin.output == 0;
        if (!is_kept) return false;
      }
    }
    if (o.residual != nullptr) last_sum = s;
  }
  return !is_attention(chain.back());
}

bool accepts_stage(const Kernel& kernel, const KernelArgs& args) {
  constexpr int64_t kMaxColumns = int64_t{kMaxLoads} * gemv::kWorkers * kColumnsPerLoad;
  if (kernel.bind != bind_gemv) return decode::accepts_attention_stage(kernel, args);
  const LinearOperands o = linear_operands(args);
  return o.x->num_rows() == 1 && (o.norm == nullptr || o.weight->row_elements() <= kMaxColumns);
}

bool accepts(std::span<const Stage> chain) {
  constexpr int kMostBlocks = 144;  // multiprocessors of a Hopper chip
  const DType dtype = chain.front().args->inputs[0].dtype;
  const bool same_type = std::all_of(chain.begin(), chain.end(), [&](const Stage& stage) {
    return stage.args->inputs[0].dtype == dtype;
  });
  const auto first = std::find_if(chain.begin(), chain.end(), is_attention);
  const bool same_heads = std::all_of(chain.begin(), chain.end(), [&](const Stage& stage) {
    return !is_attention(stage) || head_size(*stage.args) == head_size(*first->args);
  });
  return same_type && same_heads && is_chain(chain) && num_slots(chain, kMostBlocks) >= kMinSlots;
}

// What the launches of a chain share, on the device: counts, in lines of their own; the arguments
// of stages; counters and parts of attention; the words of all stages. All but the arguments are
// zero before the first launch.
class ChainMemory {
 public:
  explicit ChainMemory(Device& device) : device_(device) {}

  // Sets so many bytes aside. Returns where.
  int64_t add(int64_t bytes) {
    const int64_t offset = size_;
    size_ += round_up(bytes, kLine * 4);
    return offset;
  }
  void allocate() {
    memory_ = device_.allocate(size_);
    stream_->fill(memory_.data(), 0, memory_.bytes());
  }
  template <typename U>
  [[nodiscard]] U* at(int64_t offset) const {
    return reinterpret_cast<U*>(memory_.data() + offset);
  }
  template <typename U>
  void upload(int64_t offset, const std::vector<U>& values) const {
    stream_->copy_to_device(at<U>(offset), values.data(),
                            static_cast<int64_t>(values.size() * sizeof(U)));
    stream_->synchronize();
  }

 private:
  Device& device_;
  std::unique_ptr<Stream> stream_ = device_.create_stream();
  Memory memory_;
  int64_t size_ = 0;
};

template <typename T, int C>
auto kernel_for(std::span<const Stage> chain) {
  int64_t columns = 0;
  for (const Stage& stage : chain) {
    if (is_attention(stage)) continue;
    const LinearOperands o = linear_operands(*stage.args);
    if (o.norm != nullptr) columns = std::max(columns, o.weight->row_elements());
  }
  constexpr int64_t kColumns = int64_t{gemv::kWorkers} * kColumnsPerLoad;
  return columns <= kColumns ? persistent_chain<T, 1, C> : persistent_chain<T, kMaxLoads, C>;
}

// Where a stage's part of the chain's memory lies.
struct StageMemory {
  int64_t words = 0;
  int64_t counters = 0;
  int64_t parts = 0;
};

template <typename T>
StageArgs<T> linear_args(const Stage& stage, int num_blocks) {
  const LinearOperands o = linear_operands(*stage.args);
  StageArgs<T> to{};
  to.gemv = gemv_args<T>(*stage.args, num_blocks);
  if (!stage.read_after.back()) to.gemv.out = nullptr;
  if (o.residual != nullptr) {
    if (!stage.read_after.front()) to.gemv.sum = nullptr;
    to.keeps_residual = stage.inputs[input_of(*stage.args, o.residual)].stage >= 0;
  }
  return to;
}

template <typename T>
BoundLaunch bind_for(Device& device, std::span<const Stage> chain) {
  const int num_blocks = chip(device).num_multiprocessors;
  // Shared by the copies of the launch function.
  const auto memory = std::make_shared<ChainMemory>(device);
  const int64_t arrivals = memory->add(4);
  const int64_t launches = memory->add(4);
  const int64_t stages_at = memory->add(static_cast<int64_t>(chain.size() * sizeof(StageArgs<T>)));
  const int64_t attention_at =
      memory->add(static_cast<int64_t>(chain.size() * sizeof(decode::AttentionStageArgs<T>)));
  std::vector<StageMemory> places(chain.size());
  for (size_t s = 0; s < chain.size(); ++s) {
    places[s].words = memory->add(row_of(chain[s]).row_elements() * 4);
    if (!is_attention(chain[s])) continue;
    const KernelArgs& args = *chain[s].args;
    places[s].counters = memory->add(chain[s].kernel->workspace(args).num_counters * 4);
    places[s].parts = memory->add(decode::attention_stage_sizes(args, num_blocks).num_parts * 8);
  }
  const int64_t maps_at = memory->add(static_cast<int64_t>(chain.size() * sizeof(CUtensorMap)));
  memory->allocate();

  std::vector<StageArgs<T>> stages;
  std::vector<CUtensorMap> maps;
  std::vector<decode::AttentionStageArgs<T>> attentions;
  for (size_t s = 0; s < chain.size(); ++s) {
    uint32_t* const out_words = memory->at<uint32_t>(places[s].words);
    const uint32_t* const x_words = s == 0 ? nullptr : memory->at<uint32_t>(places[s - 1].words);
    if (!is_attention(chain[s])) {
      stages.push_back(linear_args<T>(chain[s], num_blocks));
      stages.back().weight = memory->at<CUtensorMap>(maps_at) + maps.size();
      maps.push_back(weight_map(*chain[s].args));
    } else {
      auto args = decode::attention_stage_args<T>(*chain[s].args, num_blocks);
      args.plan.counters = memory->at<uint32_t>(places[s].counters);
      args.x = row_of(chain[s - 1]).template as<const T>();
      args.x_words = x_words;
      args.out_words = out_words;
      args.parts = memory->at<uint64_t>(places[s].parts);
      args.stores_out = chain[s].read_after[0];
      stages.push_back({});
      stages.back().attention =
          memory->at<decode::AttentionStageArgs<T>>(attention_at) + attentions.size();
      attentions.push_back(args);
    }
    stages.back().x_words = x_words;
    if (s + 1 < chain.size()) stages.back().out_words = out_words;
  }
  memory->upload(stages_at, stages);
  memory->upload(attention_at, attentions);
  memory->upload(maps_at, maps);

  const ChainArgs<T> args{.stages = memory->at<StageArgs<T>>(stages_at),
                          .num_stages = static_cast<int>(chain.size()),
                          .num_slots = static_cast<int>(num_slots(chain, num_blocks)),
                          .x_bytes = static_cast<int>(widest_x(chain)),
                          .attention_bytes = static_cast<int>(attention_bytes(chain, num_blocks)),
                          .arrivals = memory->at<uint32_t>(arrivals),
                          .launches = memory->at<uint32_t>(launches)};
  const auto first = std::find_if(chain.begin(), chain.end(), is_attention);
  const bool has_wide_heads = first != chain.end() && head_size(*first->args) == 128;
  const auto kernel = has_wide_heads ? kernel_for<T, 128>(chain) : kernel_for<T, 64>(chain);
  allow_shared_memory(kernel, kSharedBytes);
  const Grid grid{.blocks = static_cast<unsigned>(num_blocks),
                  .threads = Roles::kThreads,
                  .shared_bytes = static_cast<size_t>(kSharedBytes)};
  return [args, grid, kernel, memory](Stream& stream, const StepShape& /*step*/) {
    launch(stream, grid, kernel, args);
  };
}

BoundLaunch bind(Device& device, std::span<const Stage> chain) {
  return chain.front().args->inputs[0].dtype == DType::kF16
             ? bind_for<__half>(device, chain)
             : bind_for<__nv_bfloat16>(device, chain);
}

}  // namespace

std::span<const PersistentKernel> persistent_kernels() {
  static constexpr std::array<PersistentKernel, 1> kRows = {
      {{{.op = "", .name = "persistent.chain"}, accepts_stage, accepts, bind}}};
  return kRows;
}

}  // namespace encore::cuda
