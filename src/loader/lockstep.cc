#include "loader/lockstep.h"

#include <algorithm>
#include <string_view>

#include <fmt/ranges.h>

#include "base/hash.h"

namespace encore::loader {
namespace {

// The attributes that may differ between the nodes of ranks: the first row of the embedding and the
// first column of the logits of a rank's part of the vocabulary.
constexpr std::string_view kOwnAttributes[] = {"first_row", "first_column"};

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

// Returns the first line in which two texts differ, as each text has it. Absent where the texts are
// equal.
std::optional<std::pair<std::string_view, std::string_view>> first_difference(std::string_view a,
                                                                              std::string_view b) {
  while (a != b) {
    const std::string_view line_of_a = a.substr(0, a.find('\n'));
    const std::string_view line_of_b = b.substr(0, b.find('\n'));
    if (line_of_a != line_of_b) return {{line_of_a, line_of_b}};
    a.remove_prefix(std::min(a.size(), line_of_a.size() + 1));
    b.remove_prefix(std::min(b.size(), line_of_b.size() + 1));
  }
  return std::nullopt;
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
      if (std::ranges::count(kOwnAttributes, key) == 0)
        text += fmt::format(" {}={}", key, value_text(value));
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
    if (const auto lines = first_difference(texts[0], texts[other])) {
      fail(ErrorKind::kCompile,
           "the ranks would not run the same steps, so nothing was recorded: rank {} has \"{}\", "
           "where rank 0 has \"{}\"",
           other, lines->second, lines->first);
    }
  }
}

std::string slices_text(const passes::Program& program) {
  const auto range_text = [](const std::optional<ir::WeightPiece::Range>& range) {
    return range ? fmt::format("[{}, {})", range->first, range->last) : std::string("all");
  };
  std::string text;
  for (const ir::ValueId id : program.graph.values_of_kind(ir::ValueKind::kWeight)) {
    const ir::Value& value = program.graph.value(id);
    for (const ir::WeightPiece& piece : value.recipe.pieces) {
      text +=
          fmt::format("weight {}: {}, rows {}, columns {}, times {}\n", value.name, piece.tensor,
                      range_text(piece.rows), range_text(piece.columns), piece.factor);
    }
  }
  return text;
}

void require_slices(Communicator& communicator, int rank, const std::string& text,
                    const std::function<std::string(int rank)>& expected) {
  const auto texts = communicator.exchange(rank, "the comparison of the ranks' weights", text);
  if (rank != 0) return;
  for (int other = 0; other < std::ssize(texts); ++other) {
    const std::string share = expected(other);
    if (const auto lines = first_difference(share, texts[static_cast<size_t>(other)])) {
      fail(ErrorKind::kCompile,
           "the ranks' weights do not make up the model, so nothing was recorded: rank {} has "
           "\"{}\", "
           "where its share is \"{}\"",
           other, lines->second, lines->first);
    }
  }
}

std::optional<Error> do_on_all(Communicator& communicator, int rank, const std::string& what,
                               const std::function<void()>& work,
                               const std::function<void()>& undo) {
  std::optional<Error> own;
  try {
    work();
  } catch (const Error& error) {
    own = error;
  }
  // The text that a rank gives is empty where `work` succeeded on the rank. Otherwise it is a
  // letter for the kind of the error, and the error's message.
  const auto all = communicator.exchange(
      rank, what,
      own ? static_cast<char>('A' + static_cast<int>(own->kind())) + std::string(own->what()) : "");
  for (int other = 0; other < std::ssize(all); ++other) {
    const std::string& text = all[static_cast<size_t>(other)];
    if (text.empty()) continue;
    if (!own) undo();
    return Error(static_cast<ErrorKind>(text[0] - 'A'),
                 fmt::format("rank {}: {}", other, text.substr(1)));
  }
  return std::nullopt;
}

int64_t fewest_pages(Communicator& communicator, int rank, int64_t num_pages) {
  for (const std::string& text :
       communicator.exchange(rank, "the size of the KV pool", std::to_string(num_pages)))
    num_pages = std::min<int64_t>(num_pages, std::stoll(text));
  return num_pages;
}

}  // namespace encore::loader
