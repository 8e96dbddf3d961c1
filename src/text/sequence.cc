#include "text/sequence.h"

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
  for (const json::value& item : object.array_at(list))
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
