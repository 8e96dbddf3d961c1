#include "model/source.h"

#include <string_view>

#include "base/error.h"

namespace encore::model {
namespace {

constexpr std::string_view kSyntheticPrefix = "synthetic:";

}  // namespace

ModelSource find_model(const std::string& name) {
  if (name.rfind(kSyntheticPrefix, 0) != 0) return {read_config(name), name};
  const std::string shape = name.substr(kSyntheticPrefix.size());
  if (auto config = preset(shape)) return {*config, std::nullopt};
  const std::filesystem::path path(shape);
  if (path.filename() == "config.json") return {read_config(path.parent_path()), std::nullopt};
  std::string known;
  for (const std::string_view preset : preset_names())
    known += fmt::format(" {}", preset);
  fail(ErrorKind::kUsage, "no synthetic model '{}': give a path to a config.json, or one of{}",
       shape, known);
}

}  // namespace encore::model
