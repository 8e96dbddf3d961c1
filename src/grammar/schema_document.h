// Finds the parts of a JSON schema, as it was sent, and what they refer to.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/json.h"

namespace encore::grammar {

// Errors: kUnsupported, which names the place, for references that lead nowhere within the document.
class SchemaDocument {
 public:
  explicit SchemaDocument(json::value root);
  SchemaDocument(const SchemaDocument&) = delete;
  SchemaDocument& operator=(const SchemaDocument&) = delete;

  [[nodiscard]] const json::value& root() const { return root_; }
  // The place of a schema in the document, such as `schema.properties.a`.
  [[nodiscard]] const std::string& path(const json::value& schema) const;
  // The schema that `reference`, a URI such as `#/$defs/a`, stands for within `schema`.
  const json::value& resolve(const json::value& schema, std::string_view reference);
  // Adds a schema that replaces the one at `path` of the document.
  const json::value& add(json::value schema, const std::string& path);

 private:
  struct Place {
    std::string path;
    std::string base;  // the URI that references are relative to
  };

  void visit(const json::value& schema, const std::string& path, std::string base);
  void visit_members(const json::value& member, std::string_view key, const std::string& path,
                     const std::string& base);
  const json::value& follow(const json::value& resource, std::string_view pointer,
                            const std::string& where);

  json::value root_;
  std::deque<json::value> added_;
  std::unordered_map<const json::value*, Place> places_;
  std::map<std::string, const json::value*, std::less<>> resources_;           // by URI
  std::map<std::pair<std::string, std::string>, const json::value*> anchors_;  // by URI and name
};

}  // namespace encore::grammar
