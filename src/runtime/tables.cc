#include "runtime/tables.h"

#include <algorithm>
#include <ranges>

namespace encore::runtime {

Tables::Tables(Device& device, const passes::Program& program, const Addresses& addresses)
    : device_(device), program_(program), addresses_(addresses) {
  for (const passes::Segment& segment : program.segments)
    dependences_.push_back(dependence(segment));
}

Tables::Dependence Tables::dependence(const passes::Segment& segment) const {
  Dependence found;
  const auto note = [&](ir::ValueId id) {
    const ir::Symbol rows = program_.graph.value(id).type.rows();
    found.on_tokens |= rows == ir::Symbol::kTokens;
    found.on_sequences |= rows == ir::Symbol::kSequences;
  };
  for (int i = segment.first; i < segment.last; ++i) {
    const ir::Node& node = program_.graph.nodes()[i];
    for (const ir::ValueId id : node.outputs)
      note(id);
    for (const ir::ValueId id : node.inputs) {
      // A value in the arena lies where it lies, whatever its number of rows.
      if (program_.graph.value(id).kind == ir::ValueKind::kInput) note(id);
    }
  }
  return found;
}

Tables::Key Tables::key(int segment, const StepKey& step) const {
  const Dependence& on = dependences_[segment];
  const ir::Sizes& most = program_.max_sizes;
  return {segment,
          {.tokens = on.on_tokens ? step.tokens : most.tokens,
           .sequences = on.on_sequences ? step.sequences : most.sequences,
           .q = program_.segments[segment].in_pieces ? std::nullopt : step.q}};
}

const std::vector<Launch>& Tables::at(int segment, const StepKey& step) {
  const Key wanted = key(segment, step);
  const auto place = tables_.find(wanted);
  if (place != tables_.end()) return place->second;
  const passes::Segment& range = program_.segments[segment];
  std::vector<Launch> table =
      lower(program_, range.first, range.last, wanted.second, device_, addresses_);
  return tables_.emplace(wanted, std::move(table)).first->second;
}

void Tables::lower_all(const StepKey& step) {
  for (int segment = 0; segment < num_segments(); ++segment)
    (void)at(segment, step);
}

bool Tables::recordable(const StepKey& step) {
  return std::ranges::all_of(std::views::iota(0, num_segments()),
                             [&](int segment) { return recordable(segment, step); });
}

bool Tables::recordable(int segment, const StepKey& step) {
  return std::ranges::none_of(at(segment, step), &Launch::reads_lengths);
}

void Tables::launch(Stream& stream, int first, int last, const Step& step) {
  for (int segment = first; segment < last; ++segment) {
    for (const Launch& launch : at(segment, step.key))
      stream.launch({launch.kernel->op, launch.id, launch.after}, launch.bound, step.lengths);
  }
}

}  // namespace encore::runtime
