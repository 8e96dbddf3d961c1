#include "traffic/trace.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/blame_user.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rounding.h"
#include "traffic/lines.h"

namespace encore::traffic {
namespace {

// The most tokens of a request. It is far above any real request, and low enough that a sum over a
// trace cannot overflow.
constexpr int64_t kMaxTokens = int64_t{1} << 24;
// The latest time that is accepted, in milliseconds. A double holds every integer up to this number
// exactly.
constexpr double kMaxMilliseconds = 9e15;

constexpr const char* kTime = "TIMESTAMP";
constexpr const char* kInput = "ContextTokens";
constexpr const char* kOutput = "GeneratedTokens";

constexpr const char* kFormats =
    "give a CSV file whose first line names TIMESTAMP,ContextTokens,GeneratedTokens, or a JSON "
    "object a line with timestamp, input_length and output_length";

int64_t check_tokens(int64_t tokens, std::string_view name, const std::string& where) {
  if (tokens < 0 || tokens > kMaxTokens)
    fail(ErrorKind::kUsage, "{}: {} is {}; it is 0 to {}", where, name, tokens, kMaxTokens);
  return tokens;
}

// Returns the number that `text` consists of, or nullopt where it is not a number.
template <typename T>
std::optional<T> number_of(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Returns the number in `count` digits from `first` on, or nullopt where other characters are among
// them.
std::optional<int> digits_at(std::string_view text, size_t first, size_t count) {
  if (first + count > text.size()) return std::nullopt;
  const std::string_view digits = text.substr(first, count);
  if (digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return number_of<int>(digits);
}

// Returns the seconds since 1970 of a time such as "2023-11-16 18:15:46.6805900". A T may stand
// between date and time, and Z or +00:00 at the end. Returns nullopt for another text.
std::optional<double> seconds_of(std::string_view text) {
  for (const std::string_view zone : {"Z", "+00:00"}) {
    if (text.ends_with(zone)) text.remove_suffix(zone.size());
  }
  const auto year = digits_at(text, 0, 4);
  const auto month = digits_at(text, 5, 2);
  const auto day = digits_at(text, 8, 2);
  const auto hour = digits_at(text, 11, 2);
  const auto minute = digits_at(text, 14, 2);
  const auto second = digits_at(text, 17, 2);
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  if (text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T')) return std::nullopt;
  if (text[13] != ':' || text[16] != ':') return std::nullopt;
  double fraction = 0;
  if (text.size() > 19) {
    const std::string_view rest = text.substr(19);
    const auto value = number_of<double>(rest);
    if (rest[0] != '.' || !digits_at(rest, 1, rest.size() - 1) || !value) return std::nullopt;
    fraction = *value;
  }
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(((int64_t{days} * 24 + *hour) * 60 + *minute) * 60 + *second) +
         fraction;
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t comma = line.find(',');
    std::string_view field = trimmed(line.substr(0, comma));
    if (field.size() >= 2 && field.front() == '"' && field.back() == '"')
      field = field.substr(1, field.size() - 2);
    fields.push_back(field);
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

// Quotes a text in an error message: its first 40 characters, with '?' for control characters.
std::string in_quotes(std::string_view text) {
  constexpr size_t kMost = 40;
  std::string shown;
  for (const char c : text.substr(0, kMost))
    shown += c < ' ' || c > '~' ? '?' : c;
  return fmt::format("'{}{}'", shown, text.size() > kMost ? "..." : "");
}

// Knows the position of each column in the lines of a CSV file.
class Columns {
 public:
  Columns(std::string_view header, const std::string& where) {
    const std::vector<std::string_view> names = fields_of(header);
    for (size_t i = 0; i < names.size(); ++i)
      places_.emplace(names[i], i);
    num_columns_ = names.size();
    for (const char* name : {kTime, kInput, kOutput}) {
      if (!places_.contains(name))
        fail(ErrorKind::kUsage, "{}: no column {}: {}", where, name, kFormats);
    }
  }

  [[nodiscard]] TracedRequest read(std::string_view line, const std::string& where) const {
    const std::vector<std::string_view> fields = fields_of(line);
    if (fields.size() != num_columns_) {
      fail(ErrorKind::kUsage, "{}: has {} fields where the first line names {}", where,
           fields.size(), num_columns_);
    }
    const auto tokens = [&](const char* name) {
      const std::string_view field = fields[places_.find(name)->second];
      const auto number = number_of<int64_t>(field);
      if (!number) {
        fail(ErrorKind::kUsage, "{}: {} is {}; it is a number of tokens", where, name,
             in_quotes(field));
      }
      return check_tokens(*number, name, where);
    };
    TracedRequest request{.input_tokens = tokens(kInput), .output_tokens = tokens(kOutput)};
    const std::string_view time = fields[places_.find(kTime)->second];
    const auto seconds = seconds_of(time);
    if (!seconds) {
      fail(ErrorKind::kUsage, "{}: {} is {}; it is a time such as 2023-11-16 18:15:46.6805900",
           where, kTime, in_quotes(time));
    }
    request.arrival_s = *seconds;
    return request;
  }

 private:
  std::map<std::string_view, size_t, std::less<>> places_;
  size_t num_columns_ = 0;
};

TracedRequest read_object(const json::value& value, const std::string& where) {
  const json::Object object(value, where);
  TracedRequest request;
  const double milliseconds = object.double_at("timestamp");
  if (!(std::abs(milliseconds) <= kMaxMilliseconds))
    fail(ErrorKind::kUsage, "{}: timestamp is {}; it is in milliseconds", where, milliseconds);
  request.arrival_s = milliseconds / 1e3;
  request.input_tokens = check_tokens(object.int_at("input_length"), "input_length", where);
  request.output_tokens = check_tokens(object.int_at("output_length"), "output_length", where);
  if (!object.has("hash_ids")) return request;
  for (const json::value& id : object.array_at("hash_ids")) {
    if (!id.is_int64() || id.as_int64() < 0) {
      fail(ErrorKind::kUsage, "{}: hash_ids has {}; ids are whole numbers from 0", where,
           in_quotes(json::to_text(id)));
    }
    request.blocks.push_back(id.as_int64());
  }
  const int64_t most = div_up(request.input_tokens, kBlockTokens);
  if (std::ssize(request.blocks) > most) {
    fail(ErrorKind::kUsage, "{}: {} hash_ids for {} tokens; an id stands for {} of them", where,
         request.blocks.size(), request.input_tokens, kBlockTokens);
  }
  return request;
}

std::vector<TracedRequest> parse_lines(std::string_view text, const std::string& where) {
  std::vector<TracedRequest> requests;
  const bool is_json = trimmed(text).starts_with('{');
  std::optional<Columns> columns;
  for_each_line(text, [&](std::string_view line, int64_t number) {
    const std::string here = fmt::format("{}:{}", where, number);
    if (!is_json && !columns) {
      columns.emplace(line, here);
      return;
    }
    requests.push_back(is_json ? read_object(json::parse(line, here), here)
                               : columns->read(line, here));
    requests.back().line = number;
  });
  return requests;
}

}  // namespace

std::vector<TracedRequest> parse_trace(std::string_view text, const std::string& where) {
  return blame_user([&] {
    auto requests = parse_lines(without_mark(text), where);
    if (requests.empty()) fail(ErrorKind::kUsage, "{}: no requests in it: {}", where, kFormats);
    std::stable_sort(requests.begin(), requests.end(),
                     [](const auto& a, const auto& b) { return a.arrival_s < b.arrival_s; });
    const double first = requests.front().arrival_s;
    for (TracedRequest& request : requests)
      request.arrival_s -= first;
    return requests;
  });
}

std::vector<TracedRequest> read_trace(const std::filesystem::path& path) {
  return parse_trace(read_text_file(path), path.string());
}

}  // namespace encore::traffic
