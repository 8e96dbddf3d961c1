#include "diagnose/saved_program.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "runtime/lower.h"

namespace encore::diagnose {

std::filesystem::path save_program(const runtime::Executor& executor,
                                   const std::filesystem::path& directory) {
  const passes::Program& program = executor.loaded().program;
  const std::string text = passes::print(program) + executor.loaded().recordings.print();
  const std::filesystem::path path =
      directory / fmt::format("{}-{:016x}.txt", program.graph.name(), runtime::hash(text));
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
