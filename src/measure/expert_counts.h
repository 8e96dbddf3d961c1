// Counts on the device which experts rows choose. Writes and reads files of these counts.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "passes/pipeline.h"
#include "runtime/loaded_program.h"

namespace encore::measure {

// Holds how often each expert was chosen, for each layer that has experts.
struct ExpertCounts {
  struct Layer {
    std::vector<int64_t> rows;   // per expert: rows that chose it
    std::vector<int64_t> steps;  // per expert: steps in which some row chose it
    int64_t num_steps = 0;       // steps in which any row chose any expert

    bool operator==(const Layer&) const = default;
  };
  std::vector<Layer> layers;

  // Returns the number of distinct experts of a layer in a step, as a mean over steps and layers.
  // Returns 0 where nothing was counted.
  [[nodiscard]] double distinct() const;

  bool operator==(const ExpertCounts&) const = default;
};

// Makes each layer count the experts that its router chose. Give the pass as
// CompileOptions::passes.
//     %e, %w = route(%logits, %live)
//   ->
//     %e, %w = route(%logits, %live)
//     %c1, %s1 = count_experts(%e, %expert_counts, %expert_steps) {layer=0}
passes::Pass count_experts_pass();

// Returns the counts since the start, or since the last clear_expert_counts(). Errors: kUsage where
// the program has no experts or does not count them. Threads: the thread of the program's stream,
// between steps.
ExpertCounts read_expert_counts(runtime::LoadedProgram& loaded);
void clear_expert_counts(runtime::LoadedProgram& loaded);

// Returns the counts as JSON: {"layers": [{"steps": N, "rows": [...], "in_steps": [...]}, ...]}.
std::string expert_counts_text(const ExpertCounts& counts);
// Parses the JSON text that expert_counts_text() writes. `where` names the source in messages.
// Errors: kModel, naming the place, where the text does not have that form.
ExpertCounts parse_expert_counts(std::string_view text, const std::string& where);
ExpertCounts read_expert_counts_file(const std::filesystem::path& path);

}  // namespace encore::measure
