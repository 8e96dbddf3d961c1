#include "diagnose/saved_program.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/hash.h"
#include "listing/listing.h"

namespace encore::diagnose {
namespace {

// Returns a line for each recording, in the order of sizes.
std::string print_recordings(const runtime::LoadedProgram& loaded) {
  const runtime::Recordings& recordings = loaded.recordings;
  std::string text;
  for (const auto& [made_of, recording] : recordings.all_full()) {
    const auto& [key, part] = made_of;
    if (part != runtime::StepPart::kWhole) continue;
    text += key.q ? fmt::format("full step of {} sequences, q = {}", key.sequences, *key.q)
                  : fmt::format("mixed step of {} tokens, {} sequences", key.tokens, key.sequences);
    if (key.drafts > 0) text += fmt::format(", up to {} drafts each", key.drafts);
    text += fmt::format(": {} nodes\n", recording->num_nodes());
  }
  for (const auto& [key, recording] : recordings.all_bursts()) {
    text += fmt::format("burst of {} sequences, q = {}: {} nodes\n", key.sequences, *key.q,
                        recording->num_nodes());
  }
  for (const auto& [key, recording] : recordings.all_pieces()) {
    const auto& [segment, step] = key;
    const bool is_tokens = loaded.program.segments[segment].rows == ir::Symbol::kTokens;
    text += fmt::format("segment {} at {} {}: {} nodes\n", segment,
                        is_tokens ? step.tokens : step.sequences,
                        is_tokens ? "tokens" : "sequences", recording->num_nodes());
  }
  return text;
}

}  // namespace

std::filesystem::path save_program(const runtime::Executor& executor,
                                   const std::filesystem::path& directory) {
  const passes::Program& program = executor.loaded().program;
  const std::string text = listing::print(program) + print_recordings(executor.loaded());
  const std::filesystem::path path =
      directory / fmt::format("{}-{:016x}.txt", program.graph.name(), hash(text));
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  std::ofstream file(path);
  if (!error && !(file << text).flush()) error.assign(errno, std::generic_category());
  if (error) {
    fail(ErrorKind::kUsage, "--save-programs: cannot write {}: {}", path.string(), error.message());
  }
  return path;
}

}  // namespace encore::diagnose
