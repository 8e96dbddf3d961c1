#include "text/sequence.h"

#include "base/error.h"

namespace encore::text {
namespace {

void append(const json::value& json, std::string_view list, const std::string& where,
            std::vector<SequenceStep>& steps) {
  const json::Object object(json, where);
  std::string type = object.string_at("type");
  if (type != "Sequence") {
    steps.push_back({&json, std::move(type)});
    return;
  }
  const json::value& items = object.at(list);
  if (!items.is_array()) fail(ErrorKind::kModel, "{}: '{}' is not a list", where, list);
  for (const json::value& item : items.get_array())
    append(item, list, where, steps);
}

}  // namespace

std::vector<SequenceStep> steps_of(const json::value& json, std::string_view list,
                                   const std::string& where) {
  std::vector<SequenceStep> steps;
  if (!json.is_null()) append(json, list, where, steps);
  return steps;
}

}  // namespace encore::text
