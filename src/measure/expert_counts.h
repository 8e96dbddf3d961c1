// Counts on the device which experts rows choose, and writes and reads such counts as files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "passes/pipeline.h"
#include "runtime/loaded_program.h"

namespace encore::measure {

// How often experts were chosen, by layer, of those that have experts.
struct ExpertCounts {
  struct Layer {
    std::vector<int64_t> rows;   // that chose each expert
    std::vector<int64_t> steps;  // in which some row chose it
    int64_t num_steps = 0;       // in which any row chose any expert

    bool operator==(const Layer&) const = default;
  };
  std::vector<Layer> layers;

  // The distinct experts of a layer in a step: the mean over steps and layers. 0 without any.
  [[nodiscard]] double distinct() const;

  bool operator==(const ExpertCounts&) const = default;
};

// Has each layer count what its router chose. The pass is given as CompileOptions::passes.
//     %e, %w = route(%logits, %live)
//   ->
//     %e, %w = route(%logits, %live)
//     %c1, %s1 = count_experts(%e, %expert_counts, %expert_steps) {layer=0}
passes::Pass count_experts_pass();

// Reads what was counted since the start, or since it was cleared. Errors: kUsage where the program
// has no experts or does not count them. Threads: that of the program's stream, between steps.
ExpertCounts read_expert_counts(runtime::LoadedProgram& loaded);
void clear_expert_counts(runtime::LoadedProgram& loaded);

// The counts as JSON: {"layers": [{"steps": N, "rows": [...], "in_steps": [...]}, ...]}.
std::string expert_counts_text(const ExpertCounts& counts);
// Errors: kModel naming the place, where the text is not of that form.
ExpertCounts parse_expert_counts(std::string_view text, const std::string& where);
ExpertCounts read_expert_counts_file(const std::filesystem::path& path);

}  // namespace encore::measure
