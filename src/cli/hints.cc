#include "cli/hints.h"

#include <algorithm>

#include <fmt/format.h>

#include "config/dialect.h"

namespace encore::cli {
namespace {

constexpr size_t kFarthest = 3;  // most edits between a typed word and its suggestion

// Returns the edit distance of two words: the number of insertions, deletions, replacements and
// swaps of neighbours.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    rows[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j)
    rows[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1,
                             rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  }
  return rows[a.size()][b.size()];
}

// Returns the word nearest to `typed`, or an empty text if none is near. A word that begins with
// `typed` counts as near.
std::string_view nearest(std::string_view typed, const std::vector<std::string>& words) {
  std::string_view best;
  size_t least = std::min(kFarthest, typed.size() / 3) + 1;
  for (const std::string& word : words) {
    if (typed.size() > 4 && word.starts_with(typed)) return word;
    const size_t edits = typed.size() > 100 ? least : distance(typed, word);
    if (edits < least) {
      least = edits;
      best = word;
    }
  }
  return best;
}

bool has_flag(const std::vector<std::string>& flags, const std::string& flag) {
  return std::ranges::find(flags, flag) != flags.end();
}

// Returns what a flag of another system is called in Encore, or an empty text where no other system
// has that flag.
std::string foreign_hint(std::string_view typed, const std::vector<std::string>& flags) {
  const std::string_view name = typed.substr(std::min(typed.find_first_not_of('-'), typed.size()));
  std::string why;
  for (const config::ForeignFlag& flag : config::find_foreign_flags(name)) {
    const std::string theirs = fmt::format("{}'s {}", flag.table.title, typed);
    const std::string_view own = flag.key.native.empty() ? flag.key.like : flag.key.native;
    if (!own.empty()) {
      const std::string ours = config::find_option(own)->flag();
      return fmt::format("{} is {} here{}", theirs, ours,
                         has_flag(flags, ours) ? "" : ", which this verb has no use for");
    }
    if (why.empty()) {
      why = flag.key.why.empty()
                ? fmt::format(
                      "{} is read from a file by --config, as `encore config explain FILE` says",
                      theirs)
                : fmt::format("{} is not needed or not there: {}", theirs, flag.key.why);
    }
  }
  return why;
}

}  // namespace

std::string hint_of_word(std::string_view typed, const std::vector<std::string>& words) {
  const std::string_view near = nearest(typed, words);
  return near.empty() ? "" : fmt::format("did you mean {}?", near);
}

std::string hint_of_flag(std::string_view typed, const std::vector<std::string>& flags) {
  typed = typed.substr(0, typed.find('='));
  if (typed.starts_with("--") &&
      config::find_option(config::canonical(std::string(typed.substr(2)))) != nullptr)
    return "it is an option of other verbs";
  if (std::string hint = foreign_hint(typed, flags); !hint.empty()) return hint;
  return hint_of_word(typed, flags);
}

}  // namespace encore::cli
