#include "runtime/tables.h"

#include <algorithm>
#include <ranges>

#include <fmt/ranges.h>

namespace encore::runtime {

Tables::Tables(Device& device, const passes::Program& program, const Addresses& addresses)
    : device_(device), program_(program), addresses_(addresses) {
  for (const passes::Segment& segment : program.segments)
    used_sizes_.push_back(used_sizes(segment));
}

passes::UsedSizes Tables::used_sizes(const passes::Segment& segment) const {
  passes::UsedSizes used;
  for (int i = segment.first; i < segment.last; ++i) {
    const ir::Node& node = program_.graph.nodes()[i];
    const auto counts_rows = [&](ir::ValueId id) {
      return program_.graph.value(id).type.rows() != ir::Symbol::kNone;
    };
    // The address of a value in the arena does not depend on its number of rows, so a launch does
    // not depend on the rows of values that other nodes made. A launch depends on the rows of its
    // outputs. Where its outputs have no rows that a step counts, such as the caches that kv_write
    // fills, it depends on the rows of its inputs.
    const bool by_outputs = std::ranges::any_of(node.outputs, counts_rows);
    for (const ir::ValueId id : node.outputs)
      used.add(program_.graph.value(id).type);
    for (const ir::ValueId id : node.inputs) {
      const ir::Value& input = program_.graph.value(id);
      if (input.kind == ir::ValueKind::kInput || !by_outputs) used.add(input.type);
    }
  }
  return used;
}

Tables::Key Tables::key(int segment, const StepKey& step) const {
  const auto [by_tokens, by_sequences, by_logits, by_guesses] = used_sizes_[segment];
  const ir::Sizes& most = program_.max_sizes;
  const bool has_own_logits = step.logits_each() > 1;
  const bool by_q =
      !program_.segments[segment].in_pieces || by_guesses || (by_logits && has_own_logits);
  return {segment,
          {.tokens = by_tokens ? step.tokens : most.tokens,
           .sequences = by_sequences ? step.sequences : most.sequences,
           .q = by_q ? step.q : std::nullopt,
           .drafts = by_q ? step.drafts : 0}};
}

const std::vector<Launch>& Tables::at(int segment, const StepKey& step) {
  const Key wanted = key(segment, step);
  if (const auto kept = tables_.find(wanted); kept != tables_.end()) return kept->second;
  if (const auto passing = passing_.find(wanted); passing != passing_.end()) return passing->second;
  std::vector<Launch> table = lower_segment(wanted);
  if (passing_.size() == kMaxPassing) passing_.clear();
  return passing_.emplace(wanted, std::move(table)).first->second;
}

std::vector<Launch> Tables::lower_segment(const Key& key) const {
  const passes::Segment& range = program_.segments[key.first];
  return lower(program_, range.first, range.last, key.second, device_, addresses_);
}

void Tables::lower_all(const StepKey& step) {
  for (int segment = 0; segment < num_segments(); ++segment) {
    const Key wanted = key(segment, step);
    if (!tables_.contains(wanted)) tables_.emplace(wanted, lower_segment(wanted));
  }
}

std::set<std::string_view> Tables::slow_reasons(const StepKey& step) {
  std::set<std::string_view> reasons;
  for (int segment = 0; segment < num_segments(); ++segment) {
    for (const Launch& launch : at(segment, step))
      if (!launch.kernel->slow.empty()) reasons.insert(launch.kernel->slow);
  }
  return reasons;
}

std::string Tables::to_text() const {
  std::string text;
  for (const auto& [key, table] : tables_) {
    const auto& [segment, step] = key;
    for (const Launch& launch : table) {
      text += fmt::format("launch of {} tokens, {} sequences, q {}, segment {}, node {}: {}",
                          step.tokens, step.sequences, step.q.value_or(0), segment, launch.node,
                          launch.kernel->name);
      for (const auto* views : {&launch.args.inputs, &launch.args.outputs}) {
        for (const TensorView& view : *views)
          text += fmt::format(" {}[{}]", name(view.dtype), fmt::join(view.shape, ","));
      }
      text += fmt::format(" buffer {}\n", launch.args.exchange_buffer);
    }
  }
  return text;
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
