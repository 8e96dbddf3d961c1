#include "config/yaml.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

namespace encore::config {
namespace {

constexpr int64_t kMaxBytes = int64_t{256} << 10;
constexpr size_t kMaxDepth = 16;
constexpr int kMaxItems = 20000;

// Builds the tree from the events of yaml-cpp's parser. An alias comes as an event that is not
// expanded, and the event of a list or map comes before the parser recurses into it. So the builder
// can refuse aliases, and lists and maps that nest too deep, before they do harm.
class Builder : public YAML::EventHandler {
 public:
  Builder(const std::string& where, int first_line) : where_(where), first_line_(first_line) {}

  [[nodiscard]] Item take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check_anchor(mark, anchor);
    Item item;
    item.line = line(mark);
    add(std::move(item));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { refuse_alias(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_anchor(mark, anchor);
    check_tag(mark, tag);
    Item item = scalar(value, line(mark));
    item.quoted = tag == "!";
    add(std::move(item));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, Item::Kind::kList);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, Item::Kind::kMap);
  }
  void OnMapEnd() override { close(); }

 private:
  // A list or a map that is being read. For a map, it also holds the key that waits for its value.
  struct Open {
    Item item;
    bool has_key = false;
    std::string key;
    int key_line = 0;
  };

  [[nodiscard]] int line(const YAML::Mark& mark) const {
    return std::max(mark.line, 0) + first_line_;
  }
  [[noreturn]] void refuse_alias(const YAML::Mark& mark) const {
    fail_at(where_, line(mark), "anchors and aliases are not read; write the value out");
  }
  void check_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) refuse_alias(mark);
  }
  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") {
      fail_at(where_, line(mark), "the tag {} is not read; write the plain value", tag);
    }
  }
  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            Item::Kind kind) {
    check_anchor(mark, anchor);
    check_tag(mark, tag);
    if (!open_.empty() && open_.back().item.is_map() && !open_.back().has_key) {
      fail_at(where_, line(mark), "a key is one word, not a list or a map");
    }
    if (open_.size() == kMaxDepth) {
      fail_at(where_, line(mark), "more than {} levels of nesting", kMaxDepth);
    }
    Open opened;
    opened.item.kind = kind;
    opened.item.line = line(mark);
    open_.push_back(std::move(opened));
  }
  void close() {
    Item item = std::move(open_.back().item);
    open_.pop_back();
    add(std::move(item));
  }
  void add(Item item) {
    if (++num_items_ > kMaxItems) fail_at(where_, item.line, "more than {} values", kMaxItems);
    if (open_.empty()) {
      root_ = std::move(item);
      return;
    }
    Open& parent = open_.back();
    if (parent.item.is_list()) {
      parent.item.list.push_back(std::move(item));
    } else if (!parent.has_key) {
      take_key(parent, item);
    } else {
      parent.item.members.push_back({std::move(parent.key), parent.key_line, std::move(item)});
      parent.has_key = false;
    }
  }
  void take_key(Open& parent, const Item& item) {
    if (!item.is_scalar() || item.text.empty())
      fail_at(where_, item.line, "a key is one word, not empty");
    for (const Member& member : parent.item.members) {
      if (member.key == item.text) {
        fail_at(where_, item.line, "'{}' is given twice, first on line {}", item.text, member.line);
      }
    }
    parent.key = item.text;
    parent.key_line = item.line;
    parent.has_key = true;
  }

  const std::string& where_;
  int first_line_;
  int num_items_ = 0;
  Item root_;
  std::vector<Open> open_;
};

void check_bytes(const std::string& text, const std::string& where) {
  if (static_cast<int64_t>(text.size()) > kMaxBytes) {
    fail(ErrorKind::kUsage, "{}: {} bytes; a configuration has at most {}", where, text.size(),
         kMaxBytes);
  }
  const size_t zero = text.find('\0');
  if (zero != std::string::npos) {
    const auto line = std::count(text.begin(), text.begin() + static_cast<int64_t>(zero), '\n');
    fail_at(where, static_cast<int>(line) + 1, "a zero byte; this is no text file");
  }
}

}  // namespace

Item scalar(std::string text, int line) {
  Item item;
  item.kind = Item::Kind::kScalar;
  item.line = line;
  item.text = std::move(text);
  return item;
}

Item list(const std::vector<int64_t>& values, int line) {
  Item item;
  item.kind = Item::Kind::kList;
  item.line = line;
  for (const int64_t value : values)
    item.list.push_back(scalar(fmt::format("{}", value), line));
  return item;
}

Document parse_yaml(const std::string& text, const std::string& where, int first_line) {
  check_bytes(text, where);
  Document document{where, {}, {}};
  Builder builder(where, first_line);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      document.root = builder.take();
      Builder second(where, first_line);
      if (parser.HandleNextDocument(second)) {
        fail_at(where, second.take().line, "a second document; a configuration is one");
      }
    }
  } catch (const YAML::Exception& error) {
    fail_at(where, std::max(error.mark.line, 0) + first_line, "not YAML: {}", error.msg);
  }
  if (document.root.is_null()) document.root.kind = Item::Kind::kMap;
  if (!document.root.is_map()) {
    fail_at(where, document.root.line, "a configuration is keys and values (`max_batch_size: 8`)");
  }
  return document;
}

Document parse_document(const std::string& text, const std::string& where) {
  check_bytes(text, where);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t start = line.find_first_not_of(" \t\r");
    if (start == std::string::npos || line[start] == '#') continue;
    const std::string_view rest = std::string_view(line).substr(start);
    const bool is_document_start =
        rest.starts_with("---") && rest.find_first_not_of("- \t\r") == std::string_view::npos;
    // The first line that is not empty or a comment decides. In YAML, it starts with a key, or is
    // in brackets or quotes. In a command, it has a flag or a variable, contains `serve`, or ends
    // with a backslash.
    const bool is_flag = (rest.starts_with("--") && !is_document_start) || rest.starts_with("-O") ||
                         rest.starts_with("-cc");
    const std::string_view first = rest.substr(0, rest.find_first_of(" \t\r"));
    const bool is_yaml = first.back() == ':' || first.find_first_of("{['\"") == 0;
    const bool is_command =
        !is_yaml && (rest.find(" -") != std::string_view::npos || rest.starts_with("python") ||
                     rest.back() == '\\' || rest.find("serve ") != std::string_view::npos ||
                     first.find('=') != std::string_view::npos);
    return is_flag || is_command ? parse_flags(text, where) : parse_yaml(text, where);
  }
  return parse_yaml("", where);
}

Document read_document(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    error = std::make_error_code(std::errc::is_a_directory);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!error && !file) error = {errno, std::generic_category()};
  if (error) {
    fail(ErrorKind::kUsage, "{}: the configuration cannot be read: {}", path.string(),
         error.message());
  }
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), kMaxBytes + 1);
  text.resize(file.gcount());
  return parse_document(text, path.string());
}

}  // namespace encore::config
