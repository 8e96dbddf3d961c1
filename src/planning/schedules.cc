#include "planning/schedules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/rounding.h"

namespace encore::planning {
namespace {

using runtime::Ladder;

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

using Parts = std::vector<runtime::SizeRange>;

constexpr int64_t kVllmEnd = 512;
constexpr int64_t kTrtllmEnd = 3072;

Parts parts_of(std::span<const runtime::SizeRange> sizes) {
  return {sizes.begin(), sizes.end()};
}

// Lists all schedules. The rows of other engines are the default capture sizes that vLLM,
// TensorRT-LLM and SGLang document.
constexpr std::array kSchedules = {
    Schedule{"encore",
             "4 to 32 by 4, 48 to 256 by 16, 288 to 512 by 32, 640 to 1024 by 128, 1280 to 4096 by "
             "256, then by 512",
             Counts::kTokens, std::nullopt,
             [](int64_t) { return parts_of(runtime::default_token_sizes()); }},
    Schedule{"encore-decode", "1, 2, 4, 8 to 256 by 8, then by 16", Counts::kSequences,
             std::nullopt, [](int64_t) { return parts_of(runtime::default_sequence_sizes()); }},
    Schedule{"pow2", "1, 2, 4, 8, ...", Counts::kEither, std::nullopt,
             [](int64_t) {
               return Parts{{1, kNoEnd, 0}};
             }},
    Schedule{"step:N", "1 to N - 1, then by N", Counts::kEither, std::nullopt,
             [](int64_t step) {
               return Parts{{1, step - 1, 1}, {step, kNoEnd, step}};
             }},
    Schedule{"vllm-old", "1, 2, 4, 8 to 512 by 8", Counts::kEither, kVllmEnd,
             [](int64_t) {
               return Parts{{1, 4, 0}, {8, kVllmEnd, 8}};
             }},
    Schedule{"vllm", "1, 2, 4, 8 to 256 by 8, 272 to 512 by 16", Counts::kEither, kVllmEnd,
             [](int64_t) {
               return Parts{{1, 4, 0}, {8, 256, 8}, {272, kVllmEnd, 16}};
             }},
    Schedule{"trtllm", "1, 2, 4, ... 128, then 256 to 3072 by 256", Counts::kTokens, kTrtllmEnd,
             [](int64_t) {
               return Parts{{1, 128, 0}, {256, kTrtllmEnd, 256}};
             }},
    Schedule{"sglang",
             "4 to 32 by 4, 48 to 256 by 16, 288 to 512 by 32, 576 to 1024 by 64, 1280 to 4096 by "
             "256, then by 512",
             Counts::kTokens, std::nullopt,
             [](int64_t) {
               return Parts{{4, 32, 4},      {48, 256, 16},     {288, 512, 32},
                            {576, 1024, 64}, {1280, 4096, 256}, {4608, kNoEnd, 512}};
             }},
    Schedule{"trtllm-decode", "1, 2, 4, 8 to 128 by 8, then doubled", Counts::kSequences,
             std::nullopt,
             [](int64_t) {
               return Parts{{1, 4, 0}, {8, 128, 8}, {256, kNoEnd, 0}};
             }},
    Schedule{
        "sglang-decode", "1, 2, 4, 8, 12, 16 to 256 by 8, 272 to 512 by 16, then by 32",
        Counts::kSequences, std::nullopt,
        [](int64_t) {
          return Parts{{1, 8, 0}, {12, 12, 1}, {16, 256, 8}, {272, 512, 16}, {544, kNoEnd, 32}};
        }},
};

// Holds the schedule that a text names, and the N in the text.
struct Named {
  const Schedule* schedule = nullptr;
  int64_t step = 0;
};

std::optional<Named> find_named(std::string_view text) {
  constexpr std::string_view kParameter = "N";
  for (const Schedule& row : kSchedules) {
    if (row.name == text)
      return text.ends_with(kParameter) ? std::nullopt : std::optional<Named>({&row, 0});
    if (!row.name.ends_with(kParameter)) continue;
    const std::string_view prefix = row.name.substr(0, row.name.size() - kParameter.size());
    if (!text.starts_with(prefix)) continue;
    int64_t step = 0;
    const auto [end, error] =
        std::from_chars(text.data() + prefix.size(), text.data() + text.size(), step);
    if (error == std::errc() && end == text.data() + text.size() && step > 0) return {{&row, step}};
  }
  return std::nullopt;
}

constexpr std::string_view kLru = "lru:";
constexpr int kMaxLru = 4096;

std::string names() {
  std::string text;
  for (const Schedule& row : kSchedules)
    text.append(row.name).append(", ");
  return text.append(kLru).append("N");
}

// Returns the N of "lru:N", or nullopt for a text that does not begin with "lru:". Errors: kUsage
// for an N out of range.
std::optional<int> find_lru(std::string_view text) {
  if (!text.starts_with(kLru)) return std::nullopt;
  int count = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data() + kLru.size(), end, count);
  if (error != std::errc() || next != end || count < 1 || count > kMaxLru) {
    fail(ErrorKind::kUsage, "'{}': the N of lru:N is 1 to {} recordings", text, kMaxLru);
  }
  return count;
}

Ladder parse_list(const std::string& text) {
  std::vector<int64_t> sizes;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || (next != end && *next != ',')) {
      fail(ErrorKind::kUsage, "'{}' is not a list of sizes such as 1,2,4,8", text);
    }
    sizes.push_back(size);
    at = next == end ? end : next + 1;
  }
  return Ladder(std::move(sizes));
}

}  // namespace

std::span<const Schedule> schedules() {
  return kSchedules;
}

Ladder Schedule::ladder(int64_t step, int64_t max) const {
  std::vector<int64_t> sizes = runtime::sizes_in(parts(step), max);
  const bool is_capped = !end || max < *end;
  if (is_capped && (sizes.empty() || sizes.back() != max)) sizes.push_back(max);
  return Ladder(std::move(sizes));
}

int64_t Schedule::bucket(int64_t step, int64_t size) const {
  for (const runtime::SizeRange& part : parts(step)) {
    if (part.last < size) continue;
    int64_t bucket = part.first;
    while (bucket < size && part.step == 0)
      bucket *= 2;
    if (bucket < size) bucket += round_up(size - bucket, part.step);
    return bucket;
  }
  return size;
}

bool is_list(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789,") == std::string_view::npos;
}

Ladder named_or_list(const std::string& text, int64_t max) {
  if (max < 1) fail(ErrorKind::kUsage, "a ladder's maximum is positive, got {}", max);
  if (const auto named = find_named(text)) return named->schedule->ladder(named->step, max);
  if (const auto lru = find_lru(text)) return Ladder::on_demand(*lru, max);
  if (!is_list(text)) {
    fail(ErrorKind::kUsage,
         "'{}' is neither a list of sizes such as 1,2,4,8 nor a schedule: there are {}", text,
         names());
  }
  Ladder ladder = parse_list(text);
  if (ladder.empty()) fail(ErrorKind::kUsage, "'{}' has no sizes", text);
  if (ladder.sizes().back() > max) {
    fail(ErrorKind::kUsage, "the size {} is above the largest step of {}", ladder.sizes().back(),
         max);
  }
  return ladder;
}

}  // namespace encore::planning
