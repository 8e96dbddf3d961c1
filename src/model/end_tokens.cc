#include "model/end_tokens.h"

#include "base/json.h"

namespace encore::model {

std::vector<int32_t> config_end_tokens(const std::filesystem::path& dir) {
  const json::value config = json::parse_file(dir / "config.json");
  std::vector<int32_t> ids;
  const auto add = [&](const json::value& id) {
    if (id.is_int64()) ids.push_back(static_cast<int32_t>(id.get_int64()));
  };
  const json::object* keys = config.if_object();
  const json::value* found = keys == nullptr ? nullptr : keys->if_contains("eos_token_id");
  if (found == nullptr) return ids;
  if (const json::array* list = found->if_array()) {
    for (const json::value& id : *list)
      add(id);
  } else {
    add(*found);
  }
  return ids;
}

}  // namespace encore::model
