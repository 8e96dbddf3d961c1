#include "grammar/schema_document.h"

#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"

namespace encore::grammar {
namespace {

enum class Holds : uint8_t { kNothing, kSchema, kList, kMap };

// Returns whether the value of a JSON Schema keyword holds a schema, a list of schemas, a map of
// schemas, or none of these. `items` may also hold a list, and `dependencies` may also hold lists
// of names.
Holds what_it_holds(std::string_view keyword) {
  struct Row {
    std::string_view keyword;
    Holds holds;
  };
  static constexpr std::array<Row, 22> kRows{{{"$defs", Holds::kMap},
                                              {"additionalItems", Holds::kSchema},
                                              {"additionalProperties", Holds::kSchema},
                                              {"allOf", Holds::kList},
                                              {"anyOf", Holds::kList},
                                              {"contains", Holds::kSchema},
                                              {"contentSchema", Holds::kSchema},
                                              {"definitions", Holds::kMap},
                                              {"dependencies", Holds::kMap},
                                              {"dependentSchemas", Holds::kMap},
                                              {"else", Holds::kSchema},
                                              {"if", Holds::kSchema},
                                              {"items", Holds::kSchema},
                                              {"not", Holds::kSchema},
                                              {"oneOf", Holds::kList},
                                              {"patternProperties", Holds::kMap},
                                              {"prefixItems", Holds::kList},
                                              {"properties", Holds::kMap},
                                              {"propertyNames", Holds::kSchema},
                                              {"then", Holds::kSchema},
                                              {"unevaluatedItems", Holds::kSchema},
                                              {"unevaluatedProperties", Holds::kSchema}}};
  for (const Row& row : kRows)
    if (row.keyword == keyword) return row.holds;
  return Holds::kNothing;
}

std::optional<std::string> text_member(const json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(value->get_string());
}

// Splits a URI into the part before the fragment, and the fragment.
std::pair<std::string, std::string> split_fragment(std::string_view uri) {
  const size_t hash = uri.find('#');
  if (hash == std::string_view::npos) return {std::string(uri), ""};
  return {std::string(uri.substr(0, hash)), std::string(uri.substr(hash + 1))};
}

bool has_scheme(std::string_view uri) {
  const size_t colon = uri.find(':');
  return colon != std::string_view::npos && uri.find_first_of("/?#") > colon;
}

std::string without_dot_segments(const std::string& path) {
  std::vector<std::string> segments{""};
  for (const char c : path) {
    if (c == '/') {
      segments.emplace_back();
    } else {
      segments.back() += c;
    }
  }
  std::vector<std::string> kept;
  for (size_t i = 0; i < segments.size(); ++i) {
    const bool is_last = i + 1 == segments.size();
    if (segments[i] == "..") {
      if (kept.size() > 1) kept.pop_back();
    } else if (segments[i] != ".") {
      kept.push_back(segments[i]);
      continue;
    }
    if (is_last) kept.emplace_back();
  }
  std::string joined;
  for (size_t i = 0; i < kept.size(); ++i)
    joined += (i == 0 ? "" : "/") + kept[i];
  return joined;
}

// Resolves the reference `uri` relative to `base`, which has no query. Source: RFC 3986, 5.2.
std::string resolved(const std::string& base, const std::string& uri) {
  if (uri.empty()) return base;
  if (has_scheme(uri)) return uri;
  const size_t colon = has_scheme(base) ? base.find(':') : std::string::npos;
  size_t path = colon == std::string::npos ? 0 : colon + 1;
  if (uri.starts_with("//")) return base.substr(0, path) + uri;
  if (base.compare(path, 2, "//") == 0) path = std::min(base.find('/', path + 2), base.size());
  if (uri.starts_with('/')) return base.substr(0, path) + without_dot_segments(uri);
  const size_t slash = base.rfind('/');
  const bool has_folder = slash != std::string::npos && slash >= path;
  std::string folder =
      has_folder ? base.substr(path, slash + 1 - path)
      : path > 0 && colon != std::string::npos && base.compare(colon + 1, 2, "//") == 0 ? "/"
                                                                                        : "";
  return base.substr(0, path) + without_dot_segments(folder + uri);
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    int byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 1] + 2, byte, 16).ptr == &text[i + 1] + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

std::string pointer_token(std::string_view token) {
  std::string text;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      text += token[++i] == '0' ? '~' : '/';
    } else {
      text += token[i];
    }
  }
  return text;
}

}  // namespace

SchemaDocument::SchemaDocument(json::value root) : root_(std::move(root)) {
  resources_.emplace("", &root_);
  visit(root_, "schema", "");
}

const std::string& SchemaDocument::path(const json::value& schema) const {
  return places_.at(&schema).path;
}

const json::value& SchemaDocument::add(json::value schema, const std::string& path) {
  added_.push_back(std::move(schema));
  places_.insert_or_assign(&added_.back(), Place{path, ""});
  return added_.back();
}

void SchemaDocument::visit(const json::value& schema, const std::string& path, std::string base) {
  if (places_.contains(&schema)) return;
  const json::object* const object = schema.if_object();
  if (object != nullptr) {
    if (const auto id = text_member(*object, "$id")) {
      const auto [uri, fragment] = split_fragment(*id);
      if (!uri.empty()) {
        base = resolved(base, uri);
        resources_.emplace(base, &schema);
      }
      if (!fragment.empty()) anchors_.emplace(std::pair(base, fragment), &schema);
    }
    for (const char* const key : {"$anchor", "$dynamicAnchor"})
      if (const auto anchor = text_member(*object, key))
        anchors_.emplace(std::pair(base, *anchor), &schema);
  }
  places_.emplace(&schema, Place{path, base});
  if (object == nullptr) return;
  for (const auto& [key, member] : *object)
    visit_members(member, key, fmt::format("{}.{}", path, std::string_view(key)), base);
}

void SchemaDocument::visit_members(const json::value& member, std::string_view key,
                                   const std::string& path, const std::string& base) {
  const Holds holds = what_it_holds(key);
  const bool is_schema = member.is_object() || member.is_bool();
  if (holds == Holds::kSchema && is_schema) visit(member, path, base);
  if ((holds == Holds::kList || holds == Holds::kSchema) && member.is_array()) {
    int64_t index = 0;
    for (const json::value& item : member.get_array())
      visit(item, fmt::format("{}[{}]", path, index++), base);
  }
  if (holds == Holds::kMap && member.is_object()) {
    for (const auto& [name, schema] : member.get_object())
      visit(schema, fmt::format("{}.{}", path, std::string_view(name)), base);
  }
}

const json::value& SchemaDocument::follow(const json::value& resource, std::string_view pointer,
                                          const std::string& where) {
  const json::value* at = &resource;
  std::string path = this->path(resource);
  const std::string base = places_.at(&resource).base;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    const std::string token = pointer_token(pointer.substr(0, end));
    pointer.remove_prefix(end);
    const json::value* next = nullptr;
    if (const auto* object = at->if_object()) {
      next = object->if_contains(token);
      path += "." + token;
    } else if (const auto* array = at->if_array()) {
      size_t index = 0;
      const auto [last, error] = std::from_chars(token.data(), token.data() + token.size(), index);
      if (error == std::errc() && last == token.data() + token.size())
        next = array->if_contains(index);
      path += fmt::format("[{}]", token);
    }
    if (next == nullptr) fail(ErrorKind::kUnsupported, "{}: there is nothing at {}", where, path);
    at = next;
  }
  if (!at->is_object() && !at->is_bool())
    fail(ErrorKind::kUnsupported, "{}: there is no schema at {}", where, path);
  visit(*at, path, base);
  return *at;
}

const json::value& SchemaDocument::resolve(const json::value& schema, std::string_view reference) {
  const std::string where = path(schema) + ".$ref";
  const auto [uri, fragment] = split_fragment(reference);
  const std::string base = resolved(places_.at(&schema).base, uri);
  const auto resource = resources_.find(base);
  if (resource == resources_.end())
    fail(ErrorKind::kUnsupported, "{}: \"{}\" is no part of this schema: put it into $defs", where,
         reference);
  const std::string name = percent_decoded(fragment);
  if (name.empty() || name.starts_with('/')) return follow(*resource->second, name, where);
  const auto anchor = anchors_.find({base, name});
  if (anchor == anchors_.end())
    fail(ErrorKind::kUnsupported, "{}: there is no $anchor \"{}\"", where, name);
  return *anchor->second;
}

}  // namespace encore::grammar
