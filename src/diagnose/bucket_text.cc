#include "diagnose/bucket_text.h"

#include <memory>
#include <vector>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/rounding.h"
#include "diagnose/launches.h"
#include "runtime/lower.h"
#include "runtime/step_inputs.h"

namespace encore::diagnose {
namespace {

constexpr int64_t kAlignment = 256;
// The bytes of addresses to reserve for scratch memory. No kernel asks for as many.
constexpr int64_t kScratchBytes = int64_t{1} << 34;

// Gives every value an address of its own. Only the values in the arena share addresses, as the
// program's memory plan lays them out.
class ReservedAddresses : public runtime::Addresses {
 public:
  ReservedAddresses(const passes::Program& program, Device& device)
      : program_(program),
        inputs_(program.graph, program.max_sizes),
        offsets_(program.graph.num_values()) {
    const ir::Graph& graph = program.graph;
    int64_t bytes = 0;
    const auto add = [&](int64_t size) {
      const int64_t offset = bytes;
      bytes += round_up(size, kAlignment);
      return offset;
    };
    for (const ir::ValueKind kind : {ir::ValueKind::kWeight, ir::ValueKind::kState,
                                     ir::ValueKind::kPersistent, ir::ValueKind::kHostVisible}) {
      for (const ir::ValueId id : graph.values_of_kind(kind)) {
        offsets_[id.index] = add(graph.value(id).type.num_bytes({}));
      }
    }
    arena_ = add(program.arena.bytes);
    step_inputs_ = add(inputs_.bytes());
    scratch_ = add(kScratchBytes);
    counters_ = add(kScratchBytes);
    range_ = device.reserve(bytes);
  }

  [[nodiscard]] TensorView view(ir::ValueId id, const ir::Sizes& sizes) const override {
    const ir::Value& value = program_.graph.value(id);
    if (value.kind == ir::ValueKind::kInput) {
      return {at(step_inputs_ + inputs_.offset(id, sizes)), value.type.dtype,
              value.type.resolve(sizes)};
    }
    if (value.kind != ir::ValueKind::kNode) {
      return {at(offsets_[id.index]), value.type.dtype, value.type.resolve({})};
    }
    return runtime::node_view(program_, id, sizes, at(arena_), *this);
  }

  [[nodiscard]] void* scratch(int64_t bytes) const override {
    ENCORE_CHECK(bytes <= kScratchBytes);
    return at(scratch_);
  }
  [[nodiscard]] uint32_t* counters(int64_t /*count*/) const override {
    return reinterpret_cast<uint32_t*>(at(counters_));
  }

 private:
  [[nodiscard]] std::byte* at(int64_t offset) const { return range_->data() + offset; }

  const passes::Program& program_;
  runtime::StepLayout inputs_;
  // Offsets of weights, states, and persistent and host-visible buffers, by ValueId::index.
  std::vector<int64_t> offsets_;
  int64_t arena_ = 0;
  int64_t step_inputs_ = 0;
  int64_t scratch_ = 0;
  int64_t counters_ = 0;
  std::unique_ptr<AddressRange> range_;
};

std::string_view name(Edge edge) {
  switch (edge) {
    case Edge::kFull:
      return "full";
    case Edge::kProgrammatic:
      return "programmatic";
    case Edge::kNone:
      break;
  }
  return "-";
}

std::vector<runtime::Launch> whole_table(const passes::Program& program, Device& device,
                                         const StepKey& step, const runtime::Addresses& addresses) {
  return runtime::lower(program, 0, program.graph.num_nodes(), step, device, addresses);
}

std::unique_ptr<Recording> record(const std::vector<runtime::Launch>& table, Device& device) {
  const std::unique_ptr<Stream> stream = device.create_stream();
  RecordingScope scope(*stream);
  for (const runtime::Launch& launch : table)
    stream->launch({launch.kernel->op, launch.id, launch.after}, launch.bound, {});
  return scope.finish();
}

}  // namespace

std::string bucket_text(const passes::Program& program, Device& device, const StepKey& step) {
  const ReservedAddresses addresses(program, device);
  const auto table = whole_table(program, device, step, addresses);
  const std::string text = print(program, table, step, addresses);
  return fmt::format("bucket T = {}, B = {}, {}: {} launches, hash {:016x}\n{}", step.tokens,
                     step.sequences, step.q ? fmt::format("q = {}", *step.q) : "mixed",
                     table.size(), hash(text), text);
}

std::string recording_text(const passes::Program& program, Device& device, const StepKey& step) {
  const ReservedAddresses addresses(program, device);
  const auto table = whole_table(program, device, step, addresses);
  const std::vector<RecordedNode> nodes = record(table, device)->nodes();
  std::string text =
      fmt::format("recording of {} launches: {} nodes\n", table.size(), nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    text += fmt::format("{:5} {:7} {:16} {:13} {}\n", i, nodes[i].kind, nodes[i].op,
                        name(nodes[i].edge), nodes[i].kernel);
  }
  return text;
}

std::string recording_dot(const passes::Program& program, Device& device, const StepKey& step) {
  const ReservedAddresses addresses(program, device);
  const auto table = whole_table(program, device, step, addresses);
  (void)record(table, device);  // called for its error where the step cannot be recorded
  std::string text = "digraph recording {\n  node [shape=box, fontname=\"monospace\"];\n";
  for (const runtime::Launch& launch : table) {
    text += fmt::format("  n{} [label=\"{} {}\\n{}\"];\n", launch.id, launch.node,
                        launch.kernel->op, launch.kernel->name);
    for (const int before : launch.after)
      text += fmt::format("  n{} -> n{};\n", before, launch.id);
  }
  return text + "}\n";
}

}  // namespace encore::diagnose
