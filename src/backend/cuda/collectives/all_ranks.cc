#include "backend/cuda/collectives/all_ranks.h"

#include <algorithm>

#include "backend/cuda/device/context.h"

namespace encore::cuda {
namespace {

constexpr LaunchAttributes kTuning{.label = "tuning", .id = -1, .after = {}};

}  // namespace

AllRanks::~AllRanks() {
  for (const auto& rank : ranks_) {
    try {
      rank->stream->synchronize();
    } catch (const Error&) {  // the next rank that meets finds the failure
    }
  }
  use_device(first_.ordinal());
}

BoundLaunch AllRanks::bind(const std::string& form, const Bind& bind) {
  if (ranks_.empty()) {
    add_rank(first_);
    for (const std::shared_ptr<Device>& peer : first_.peers())
      add_rank(static_cast<CudaDevice&>(*peer));
  }
  for (const auto& rank : ranks_) {
    std::unique_ptr<Recording>& recording = rank->recordings[form];
    if (recording == nullptr) recording = record(*rank, bind);
  }
  use_device(first_.ordinal());
  return [this, form](Stream& stream, const StepLengths&) {
    for (size_t peer = 1; peer < ranks_.size(); ++peer)
      ranks_[peer]->stream->replay(*ranks_[peer]->recordings.at(form));
    stream.replay(*ranks_.front()->recordings.at(form));
  };
}

void AllRanks::add_rank(CudaDevice& device) {
  // Earlier work of the rank, such as another program's last collective, must end before the
  // launches that are recorded here begin.
  use_device(device.ordinal());
  synchronize_device();
  auto rank = std::make_unique<OnRank>(OnRank{device, device.create_stream(), {}, args_, {}});
  for (Views* const views : {&rank->args.inputs, &rank->args.outputs}) {
    for (TensorView& view : views->values()) {
      const int64_t elements = std::max(view.num_rows() * view.row_stride, view.row_elements());
      rank->memory.push_back(device.allocate(std::max<int64_t>(elements, 1) * size_of(view.dtype)));
      view.data = rank->memory.back().data();
    }
  }
  ranks_.push_back(std::move(rank));
}

std::unique_ptr<Recording> AllRanks::record(const OnRank& rank, const Bind& bind) {
  constexpr int kCalls = 32;  // an even number, so that a replay's first buffer follows its last
  use_device(rank.device.ordinal());
  std::vector<BoundLaunch> bound;
  for (const int buffer : {0, 1}) {
    KernelArgs args = rank.args;
    args.exchange_buffer = buffer;
    bound.push_back(bind(rank.device, args));
  }
  RecordingScope scope(*rank.stream);
  for (int i = 0; i < kCalls; ++i)
    rank.stream->launch(kTuning, bound[static_cast<size_t>(i % 2)], {});
  return scope.finish();
}

}  // namespace encore::cuda
