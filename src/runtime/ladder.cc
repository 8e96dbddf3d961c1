#include "runtime/ladder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/error.h"

namespace encore::runtime {
namespace {

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();
// More recordings than this fit no device, and the list itself would be a burden.
constexpr size_t kMaxSizes = size_t{1} << 16;

using Parts = std::vector<SchedulePart>;

constexpr int64_t kVllmEnd = 512;
constexpr int64_t kVllmStep = 16;
constexpr int64_t kTrtllmEnd = 3072;

// What there is. Sources: vLLM's, TensorRT-LLM's and SGLang's documented default capture sizes.
constexpr std::array kSchedules = {
    Schedule{"pow2", "1, 2, 4, 8, ...", std::nullopt,
             [](int64_t) {
               return Parts{{1, kNoEnd, 0}};
             }},
    Schedule{"step:N", "1 to N - 1, then by N", std::nullopt,
             [](int64_t step) {
               return Parts{{1, step - 1, 1}, {step, kNoEnd, step}};
             }},
    Schedule{"vllm-old", "1, 2, 4, 8 to 512 by 8", kVllmEnd,
             [](int64_t) {
               return Parts{{1, 4, 0}, {8, kVllmEnd, 8}};
             }},
    Schedule{"vllm", "1, 2, 4, 8 to 256 by 8, 272 to 512 by 16", kVllmEnd,
             [](int64_t) {
               return Parts{{1, 4, 0}, {8, 256, 8}, {272, kVllmEnd, kVllmStep}};
             }},
    Schedule{"trtllm", "1, 2, 4, ... 128, then 256 to 3072 by 256", kTrtllmEnd,
             [](int64_t) {
               return Parts{{1, 128, 0}, {256, kTrtllmEnd, 256}};
             }},
    Schedule{"sglang",
             "4 to 32 by 4, 48 to 256 by 16, 288 to 512 by 32, 576 to 1024 by 64, 1280 to 4096 by "
             "256, then by 512",
             std::nullopt,
             [](int64_t) {
               return Parts{{4, 32, 4},      {48, 256, 16},     {288, 512, 32},
                            {576, 1024, 64}, {1280, 4096, 256}, {4608, kNoEnd, 512}};
             }},
};

const Schedule& schedule(std::string_view name) {
  const auto* place = std::find_if(kSchedules.begin(), kSchedules.end(),
                                   [&](const Schedule& row) { return row.name == name; });
  ENCORE_CHECK(place != kSchedules.end());
  return *place;
}

// The schedule that `text` names and the N in it.
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

// The N of lru:N; nothing for what is no such thing. Errors: kUsage for an N out of range.
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

}  // namespace

std::span<const Schedule> schedules() {
  return kSchedules;
}

Ladder Schedule::ladder(int64_t step, int64_t max) const {
  std::vector<int64_t> sizes;
  for (const SchedulePart& part : parts(step)) {
    const int64_t last = std::min(part.last, max);
    for (int64_t size = part.first; size <= last;) {
      sizes.push_back(size);
      if (sizes.size() > kMaxSizes) {
        fail(ErrorKind::kUsage, "'{}' up to {} has more than {} sizes", name, max, kMaxSizes);
      }
      const int64_t increment = part.step == 0 ? size : part.step;
      if (size > last - increment) break;  // and the sum stays in range
      size += increment;
    }
  }
  const bool is_capped = !end || max < *end;
  if (is_capped && (sizes.empty() || sizes.back() != max)) sizes.push_back(max);
  return Ladder(std::move(sizes));
}

Ladder::Ladder(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {
  std::sort(sizes_.begin(), sizes_.end());
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  if (!sizes_.empty() && sizes_.front() <= 0) {
    fail(ErrorKind::kUsage, "a ladder's sizes are positive, got {}", sizes_.front());
  }
}

Ladder Ladder::sequences(int64_t max) {
  std::vector<int64_t> sizes = schedule("vllm").ladder(0, max).sizes();
  for (int64_t size = kVllmEnd + kVllmStep; size <= max; size += kVllmStep)
    sizes.push_back(size);
  sizes.push_back(max);
  return Ladder(std::move(sizes));
}

Ladder Ladder::tokens(int64_t max) {
  return schedule("sglang").ladder(0, max);
}

Ladder Ladder::parse(const std::string& text) {
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

Ladder Ladder::named_or_list(const std::string& text, int64_t max) {
  if (max < 1) fail(ErrorKind::kUsage, "a ladder's maximum is positive, got {}", max);
  if (const auto named = find_named(text)) return named->schedule->ladder(named->step, max);
  if (const auto lru = find_lru(text)) {
    Ladder every = schedule("step:N").ladder(1, max);
    every.lru_ = lru;
    return every;
  }
  const bool is_list = !text.empty() && text.find_first_not_of("0123456789,") == std::string::npos;
  if (!is_list) {
    fail(ErrorKind::kUsage,
         "'{}' is neither a list of sizes such as 1,2,4,8 nor a schedule: there are {}", text,
         names());
  }
  Ladder ladder = parse(text);
  if (ladder.empty()) fail(ErrorKind::kUsage, "'{}' has no sizes", text);
  if (ladder.sizes_.back() > max) {
    fail(ErrorKind::kUsage, "the size {} is above the largest step of {}", ladder.sizes_.back(),
         max);
  }
  return ladder;
}

std::optional<int64_t> Ladder::bucket(int64_t size) const {
  const auto place = std::lower_bound(sizes_.begin(), sizes_.end(), size);
  if (place == sizes_.end()) return std::nullopt;
  return *place;
}

}  // namespace encore::runtime
