// Finds the subschemas of a JSON schema, and the subschemas that references point to.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/json.h"

namespace encore::grammar {

// Holds a JSON schema. Errors: kUnsupported, which names the place, for a reference that leads to
// no place within the document.
class SchemaDocument {
 public:
  explicit SchemaDocument(json::value root);
  SchemaDocument(const SchemaDocument&) = delete;
  SchemaDocument& operator=(const SchemaDocument&) = delete;

  [[nodiscard]] const json::value& root() const { return root_; }
  // Returns the place of a subschema in the document, such as `schema.properties.a`.
  [[nodiscard]] const std::string& path(const json::value& schema) const;
  // Returns the subschema that `reference`, a URI such as `#/$defs/a`, refers to where it occurs
  // within `schema`.
  const json::value& resolve(const json::value& schema, std::string_view reference);
  // Stores a schema that was derived from the one at `path` of the document, and returns the stored
  // copy. Messages name `path` as its place.
  const json::value& add(json::value schema, const std::string& path);

 private:
  struct Place {
    std::string path;
    std::string base;  // the base URI of relative references
  };

  void visit(const json::value& schema, const std::string& path, std::string base);
  void visit_members(const json::value& member, std::string_view key, const std::string& path,
                     const std::string& base);
  const json::value& follow(const json::value& resource, std::string_view pointer,
                            const std::string& where);

  json::value root_;
  std::deque<json::value> added_;
  std::unordered_map<const json::value*, Place> places_;
  // Holds the document and its subschemas that have an $id, by URI.
  std::map<std::string, const json::value*, std::less<>> resources_;
  // Holds the subschemas that have an anchor, by the base URI and the anchor's name.
  std::map<std::pair<std::string, std::string>, const json::value*> anchors_;
};

}  // namespace encore::grammar
