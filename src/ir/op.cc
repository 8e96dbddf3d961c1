#include "ir/op.h"

namespace encore::ir {

std::string_view name(Capture capture) {
  switch (capture) {
    case Capture::kNever:
      return "never";
    case Capture::kFull:
      return "full recordings";
    case Capture::kAlways:
      return "always";
  }
  return "?";
}

const Op& OpSet::add(Op op) {
  if (op.infer == nullptr) {
    fail(ErrorKind::kCompile, "op '{}' has no shape function: give its row an `infer`", op.name);
  }
  const std::string key = op.name;
  const auto [place, added] = rows_.emplace(key, std::move(op));
  if (!added) fail(ErrorKind::kCompile, "op '{}' is already in the set", key);
  return place->second;
}

const Op* OpSet::find(std::string_view name) const {
  const auto place = rows_.find(name);
  return place == rows_.end() ? nullptr : &place->second;
}

std::vector<std::string> OpSet::names() const {
  std::vector<std::string> names;
  for (const auto& [name, row] : rows_)
    names.push_back(name);
  return names;
}

}  // namespace encore::ir
