// Implements the functions that every template can call.
#include <algorithm>
#include <chrono>
#include <ctime>

#include "text/jinja/builtins.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace encore::text::jinja {
namespace {

constexpr size_t kMaxTimeFormatBytes = 1000;

Value range_function(Evaluator& evaluator, const Value& /*self*/, Arguments& arguments) {
  const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
  const bool has_start = bound.has(1);
  const Int start = has_start ? bound.int_or(0, 0) : 0;
  const Int stop = has_start ? bound.int_or(1, 0) : bound.int_or(0, 0);
  const Int step = bound.int_or(2, 1);
  if (step == 0) fail_render("range() arg 3 must not be zero");
  const Int span = step > 0 ? stop - start : start - stop;
  const Int size = span <= 0 ? 0 : (span - 1) / (step > 0 ? step : -step) + 1;
  const int64_t most = evaluator.budget().limits().max_range;
  if (size > most) {
    throw RenderFailure(FailureKind::kLimit,
                        fmt::format("makes a range of more than {} numbers", most));
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(size));
  for (Int i = 0; i < size; ++i)
    items.emplace_back(start + i * step);
  std::string label = step == 1 ? fmt::format("range({}, {})", start, stop)
                                : fmt::format("range({}, {}, {})", start, stop, step);
  return evaluator.heap().sequence(Sequence::Kind::kRange, std::move(items), std::move(label));
}

// Returns the entries for dict() and namespace(): the entries of a dict, or the pairs of a list,
// and then the named arguments.
std::vector<Mapping::Entry> entries_of(std::string_view function, const Arguments& arguments,
                                       Heap& heap) {
  std::vector<Mapping::Entry> entries;
  if (arguments.positional.size() > 1)
    fail_render("{}() takes at most 1 argument, not {}", function, arguments.positional.size());
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    if (const Mapping* mapping = source.if_mapping()) {
      heap.budget().spend(static_cast<int64_t>(mapping->entries().size()));
      heap.check_items(2 * mapping->entries().size());
      entries = mapping->entries();
    } else {
      for (const Value& pair : heap.items_of(source)) {
        std::vector<Value> both = heap.items_of(pair);
        if (both.size() != 2) fail_render("{}() needs pairs of key and value", function);
        entries.emplace_back(std::move(both[0]), std::move(both[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named)
    entries.emplace_back(heap.text(name), value);
  return entries;
}

Value dict_function(Evaluator& evaluator, const Value& /*self*/, Arguments& arguments) {
  return evaluator.heap().mapping(entries_of("dict", arguments, evaluator.heap()));
}

Value namespace_function(Evaluator& evaluator, const Value& /*self*/, Arguments& arguments) {
  std::map<std::string, Value, std::less<>> members;
  for (const auto& [name, value] : entries_of("namespace", arguments, evaluator.heap())) {
    const std::string key = str(name, evaluator.heap());
    if (key.starts_with('_'))
      fail_render("a namespace has no names that start with an underscore: '{}'", key);
    members.insert_or_assign(key, value);
  }
  return evaluator.heap().new_namespace(std::move(members));
}

Value raise_exception_function(Evaluator& evaluator, const Value& /*self*/, Arguments& arguments) {
  const Bound bound("raise_exception", arguments, {"message"}, 1);
  std::string message(str(bound.at(0), evaluator.heap()));
  std::replace(message.begin(), message.end(), '\0', ' ');  // the text of an exception ends there
  if (message.empty()) message = "the template refuses the conversation and says no reason";
  throw RenderFailure(FailureKind::kRefused, message);
}

// Returns `format` with its fields of the time zone and of the fraction of a second filled in, as
// Python fills them for a time without a zone.
std::string with_python_fields(std::string_view format, std::chrono::microseconds fraction) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
    } else if (format[++i] == 'f') {
      out += fmt::format("{:06}", fraction.count());
    } else if (format[i] != 'z' && format[i] != 'Z') {
      out += '%';
      out += format[i];
    }
  }
  return out;
}

Value strftime_now_function(Evaluator& evaluator, const Value& /*self*/, Arguments& arguments) {
  using std::chrono::microseconds;
  const Bound bound("strftime_now", arguments, {"format"}, 1);
  if (bound.text(0).size() > kMaxTimeFormatBytes)
    fail_render("strftime_now(): the format has more than {} bytes", kMaxTimeFormatBytes);
  const auto since_epoch = std::chrono::floor<microseconds>(evaluator.now()).time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const std::time_t time = seconds.count();
  std::tm local{};
  localtime_r(&time, &local);
  // strftime returns 0 both for an empty text and for a buffer that is too small. The space in
  // front makes every text non-empty, so 0 means too small.
  const std::string format = " " + with_python_fields(bound.text(0), since_epoch - seconds);
  std::string text(64, '\0');
  size_t size = 0;
  while ((size = std::strftime(text.data(), text.size(), format.c_str(), &local)) == 0) {
    if (text.size() > (size_t{1} << 20U)) fail_render("strftime_now(): the text is too long");
    text.resize(text.size() * 4);
  }
  return evaluator.heap().text(text.substr(1, size - 1));
}

constexpr NamedBuiltin kFunctions[] = {
    {"dict", dict_function},
    {"namespace", namespace_function},
    {"raise_exception", raise_exception_function},
    {"range", range_function},
    {"strftime_now", strftime_now_function},
};

}  // namespace

Builtin find_function(std::string_view name) {
  return find_in(kFunctions, name);
}

}  // namespace encore::text::jinja
