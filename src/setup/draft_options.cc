#include "setup/draft_options.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/log.h"
#include "planning/draft_list.h"

namespace encore::setup {
namespace {

// The length of sequences, in tokens, for which the numbers of drafts are chosen. Half of
// max_seq_len is used instead if it is less.
constexpr int64_t kContext = 1024;

// Returns the numbers of sequences in a decode step for which the costs of drafting are estimated:
// the powers of two in the ladder of sequences, and its largest size. Sizes above max_batch_size
// are left out.
std::vector<int64_t> batches(const loader::LoadOptions& load) {
  const runtime::Coverage coverage = runtime::wanted_coverage(load);
  std::vector<int64_t> sizes;
  for (const int64_t size : coverage.sequences.sizes()) {
    if (size <= load.limits.max_batch_size && (std::has_single_bit(static_cast<uint64_t>(size)) ||
                                               size == coverage.sequences.sizes().back()))
      sizes.push_back(size);
  }
  if (sizes.empty()) sizes.push_back(load.limits.max_batch_size);
  return sizes;
}

planning::Rates rates_of(Device& device, const passes::Program& program) {
  if (device.kind() == DeviceKind::kCuda)
    return planning::rates(device, device.read_bandwidth(), std::nullopt);
  return planning::rates(device, 0, planning::step_cost(program.graph, {1, 1, 1}).bytes);
}

}  // namespace

void choose_drafts(Device& device, const model::ModelSource& source, loader::LoadOptions& load) {
  runtime::Limits& limits = load.limits;
  if (limits.num_drafts == 0) return;
  loader::LoadOptions tried = load;
  tried.rank = device.rank();
  tried.compile.dump = {};
  const passes::Program program = loader::compile_model(source, tried, 1);
  const planning::DraftList list = planning::choose_draft_list(
      program, batches(load), std::min(limits.max_seq_len / 2, kContext),
      rates_of(device, program));
  log::info("{}", to_text(list));
  limits.num_drafts = list.counts.empty() ? 0 : list.counts.back();
  limits.fewer_drafts = list.counts;
  if (list.counts.empty()) {
    load.draft.reset();
    return;
  }
  limits.fewer_drafts.pop_back();
  limits.max_drafting_sequences = list.max_sequences;
}

}  // namespace encore::setup
