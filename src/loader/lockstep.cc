#include "loader/lockstep.h"

#include <algorithm>
#include <string_view>

#include <fmt/ranges.h>

#include "base/hash.h"

namespace encore::loader {
namespace {

// The attribute in which the nodes of ranks differ: where a rank's rows of the vocabulary begin.
constexpr std::string_view kOwnAttribute = "first_row";

std::string value_text(const ir::Attrs::Value& value) {
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value))
    return fmt::format("{}", fmt::join(*list, ","));
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const auto* number = std::get_if<int64_t>(&value);
  return number != nullptr ? fmt::format("{}", *number)
                           : fmt::format("{}", std::get<double>(value));
}

void describe(const ir::Graph& graph, std::string& text) {
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    const ir::Value& value = graph.value(id);
    text += fmt::format("weight {} {} of {} pieces", value.name, value.type.to_string(),
                        value.recipe.pieces.size());
    for (const ir::WeightPiece& piece : value.recipe.pieces)
      text += fmt::format(" {}", piece.tensor);
    text += '\n';
  }
}

}  // namespace

std::string lockstep_text(const passes::Program& program, const LoadOptions& options,
                          const runtime::Coverage& coverage) {
  const runtime::Limits& limits = options.limits;
  std::string text =
      fmt::format("limits: {} tokens, {} sequences, q up to {}, sequences of {}\n",
                  limits.max_num_tokens, limits.max_batch_size, limits.max_q, limits.max_seq_len);
  text += fmt::format(
      "options: graphs {}, padding {}, record order {}, batch-invariant {}, page size {}, scores "
      "{}, masks {}\n",
      static_cast<int>(coverage.graphs), coverage.pad_uniform,
      static_cast<int>(options.record_order), program.batch_invariant, options.page_size,
      options.scores_prompts, options.masks_tokens);
  text += fmt::format("sizes of decode steps: {}\n", fmt::join(coverage.sequences.sizes(), " "));
  text += fmt::format("sizes of mixed steps: {} by {}\n", fmt::join(coverage.tokens.sizes(), " "),
                      fmt::join(coverage.mixed_ladder().sizes(), " "));
  describe(program.graph, text);
  for (int index = 0; index < program.graph.num_nodes(); ++index) {
    const ir::Node& node = program.graph.nodes()[static_cast<size_t>(index)];
    text += fmt::format("node {}: {}", index, node.op->name);
    for (const auto& [key, value] : node.attrs)
      if (key != kOwnAttribute) text += fmt::format(" {}={}", key, value_text(value));
    for (const ir::ValueId input : node.inputs)
      text += fmt::format(" %{}", input.index);
    text += " ->";
    for (const ir::ValueId output : node.outputs) {
      const passes::Placement& place = program.arena.placements[static_cast<size_t>(output.index)];
      text += fmt::format(" %{} {} at {}+{}", output.index,
                          program.graph.value(output).type.to_string(), place.offset, place.column);
    }
    text += fmt::format(" after {}\n", fmt::join(program.after[static_cast<size_t>(index)], " "));
  }
  return text;
}

void require_lockstep(Communicator& communicator, int rank, const std::string& text) {
  const auto hashes =
      communicator.exchange(rank, "the comparison of the ranks", fmt::format("{}", hash(text)));
  if (std::ranges::count(hashes, hashes[0]) == std::ssize(hashes)) return;
  const auto texts = communicator.exchange(rank, "the comparison of the ranks by line", text);
  for (size_t other = 1; other < texts.size(); ++other) {
    std::string_view first = texts[0];
    std::string_view own = texts[other];
    while (first != own) {
      const std::string_view first_line = first.substr(0, first.find('\n'));
      const std::string_view own_line = own.substr(0, own.find('\n'));
      if (first_line != own_line) {
        fail(ErrorKind::kCompile,
             "the ranks would not run the same steps, so nothing was recorded: rank {} has \"{}\", "
             "where rank 0 has \"{}\"",
             other, own_line, first_line);
      }
      first.remove_prefix(std::min(first.size(), first_line.size() + 1));
      own.remove_prefix(std::min(own.size(), own_line.size() + 1));
    }
  }
}

int64_t fewest_pages(Communicator& communicator, int rank, int64_t num_pages) {
  for (const std::string& text :
       communicator.exchange(rank, "the size of the KV pool", std::to_string(num_pages)))
    num_pages = std::min<int64_t>(num_pages, std::stoll(text));
  return num_pages;
}

}  // namespace encore::loader
