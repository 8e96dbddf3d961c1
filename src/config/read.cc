#include "config/read.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace encore::config {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// Returns whether the text is, for example, "cuda:12" where the choice is "cuda:N". The number must
// fit an int.
bool is_numbered(std::string_view choice, std::string_view text) {
  const std::string_view prefix = choice.substr(0, choice.size() - 1);
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return !text.empty() && text.size() < 10 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

void fail_type(const Item& item, const std::string& where, std::string_view key,
               std::string_view wanted) {
  std::string found = "nothing";
  if (item.is_scalar()) found = fmt::format("'{}'", item.text);
  if (item.is_list()) found = item.list.empty() ? "an empty list" : "a list";
  if (item.is_map()) found = "keys and values";
  fail_at(where, item.line, "{} is {}, not {}", key, wanted, found);
}

bool read_bool(const Item& item, const std::string& where, std::string_view key) {
  if (item.is_scalar() && !item.quoted) {
    std::string text = item.text;
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (text == "true" || text == "on" || text == "yes") return true;
    if (text == "false" || text == "off" || text == "no") return false;
  }
  fail_type(item, where, key, "true or false");
}

int64_t read_int(const Item& item, const std::string& where, std::string_view key) {
  if (item.is_scalar() && !item.quoted && !item.text.empty()) {
    int64_t value = 0;
    const char* const end = item.text.data() + item.text.size();
    const auto [next, error] = std::from_chars(item.text.data(), end, value);
    if (error == std::errc() && next == end) return value;
  }
  fail_type(item, where, key, "a whole number");
}

double read_number(const Item& item, const std::string& where, std::string_view key) {
  if (item.is_scalar() && !item.quoted && !item.text.empty()) {
    double value = 0;
    const char* const end = item.text.data() + item.text.size();
    const auto [next, error] = std::from_chars(item.text.data(), end, value);
    if (error == std::errc() && next == end && std::isfinite(value)) return value;
  }
  fail_type(item, where, key, "a number");
}

std::string read_text(const Item& item, const std::string& where, std::string_view key) {
  if (!item.is_scalar() || item.text.empty()) fail_type(item, where, key, "one word");
  return item.text;
}

std::vector<std::string> read_names(const Item& item, const std::string& where,
                                    std::string_view key) {
  constexpr std::string_view kWanted = "a list of names such as [linear, silu_mul]";
  std::vector<std::string> names;
  if (item.is_list()) {
    for (const Item& entry : item.list)
      names.push_back(read_text(entry, where, fmt::format("an entry of {}", key)));
  } else {
    const std::string text = read_text(item, where, key);
    for (size_t start = 0; start <= text.size();) {
      const size_t comma = std::min(text.find(',', start), text.size());
      std::string name = text.substr(start, comma - start);
      name.erase(0, name.find_first_not_of(' '));
      name.erase(name.find_last_not_of(' ') + 1);
      names.push_back(std::move(name));
      start = comma + 1;
    }
  }
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty() && sorted.front().empty()) fail_type(item, where, key, kWanted);
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) fail_at(where, item.line, "{}: {} is given twice", key, *twice);
  return names;
}

std::vector<std::string> read_texts(const Item& item, const std::string& where,
                                    std::string_view key) {
  if (!item.is_list()) return {read_text(item, where, key)};
  std::vector<std::string> texts;
  for (const Item& entry : item.list)
    texts.push_back(read_text(entry, where, fmt::format("an entry of {}", key)));
  return texts;
}

std::vector<int64_t> read_list(const Item& item, const std::string& where, std::string_view key) {
  constexpr std::string_view kWanted = "a list of sizes such as [1, 2, 4]";
  std::vector<int64_t> sizes;
  if (item.is_list()) {
    for (const Item& entry : item.list)
      sizes.push_back(read_int(entry, where, fmt::format("an entry of {}", key)));
  } else if (item.is_scalar()) {
    size_t start = 0;
    while (start <= item.text.size()) {
      const size_t comma = std::min(item.text.find(',', start), item.text.size());
      std::string part = item.text.substr(start, comma - start);
      part.erase(0, part.find_first_not_of(' '));
      part.erase(part.find_last_not_of(' ') + 1);
      int64_t size = 0;
      const auto [next, error] = std::from_chars(part.data(), part.data() + part.size(), size);
      if (part.empty() || error != std::errc() || next != part.data() + part.size())
        fail_type(item, where, key, kWanted);
      sizes.push_back(size);
      start = comma + 1;
    }
  }
  if (sizes.empty()) fail_type(item, where, key, kWanted);
  return sizes;
}

std::vector<int64_t> read_sizes(const Item& item, const std::string& where, std::string_view key) {
  std::vector<int64_t> sizes = read_list(item, where, key);
  std::sort(sizes.begin(), sizes.end());
  if (sizes.front() < 1) fail_at(where, item.line, "{}: a size of {}", key, sizes.front());
  const auto twice = std::adjacent_find(sizes.begin(), sizes.end());
  if (twice != sizes.end()) fail_at(where, item.line, "{}: {} is given twice", key, *twice);
  return sizes;
}

std::string choices_text(std::string_view choices) {
  std::string text;
  while (true) {
    const size_t bar = choices.find('|');
    const bool is_last = bar == std::string_view::npos;
    if (!text.empty()) text += is_last ? " or " : ", ";
    text += choices.substr(0, bar);
    if (is_last) return text;
    choices.remove_prefix(bar + 1);
  }
}

bool is_choice(std::string_view choices, std::string_view text) {
  while (true) {
    const size_t bar = choices.find('|');
    const std::string_view choice = choices.substr(0, bar);
    if (choice.ends_with(":N") ? is_numbered(choice, text) : choice == text) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

std::string suggestion(std::string_view wrong, const std::vector<std::string_view>& names) {
  std::string_view nearest;
  size_t least = wrong.size() / 3 + 1;  // a name at this edit distance or more is no likely typo
  for (const std::string_view name : names) {
    const size_t distance = wrong.size() > 100 ? least : edit_distance(wrong, name);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

}  // namespace encore::config
