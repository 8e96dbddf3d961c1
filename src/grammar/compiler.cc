#include "grammar/compiler.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"

namespace encore::grammar {
namespace {

// Returns the key of a source in the cache: a text that differs for different sources.
std::string key_of(const Source& source) {
  std::string key = fmt::format("{} {} ", static_cast<int>(source.kind), source.is_closed);
  const auto add = [&](std::string_view text) { key += fmt::format("{}:{}", text.size(), text); };
  for (const std::string& choice : source.choices)
    add(choice);
  const Calls& calls = source.calls;
  key += fmt::format(" {} {} ", static_cast<int>(calls.format), calls.may_be_several);
  for (const Function& function : calls.functions) {
    add(function.name);
    add(function.schema);
  }
  return key + source.text;
}

}  // namespace

struct Compiler::Impl {
  // A source that was asked for. Its entry stays in the cache if its grammar was compiled and is no
  // larger than max_cache_bytes.
  struct Entry {
    Source source;
    std::optional<Result> result;
    std::condition_variable done;
    int64_t num_bytes = 0;
    // The entry's position in `order`. It is valid only while the entry is in the cache.
    std::list<std::string>::iterator place = {};
  };

  Impl(std::function<Vocabulary()> read_given, const CompilerOptions& options_given)
      : read(std::move(read_given)), options(options_given) {
    for (int i = 0; i < options.num_threads; ++i)
      threads.emplace_back([this] { run(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      is_ending = true;
    }
    has_work.notify_all();
    for (std::thread& thread : threads)
      thread.join();
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      has_work.wait(lock, [&] { return is_ending || !waiting.empty(); });
      if (is_ending) return;
      const std::string key = std::move(waiting.front());
      waiting.pop_front();
      const std::shared_ptr<Entry> entry = entries.at(key);
      lock.unlock();
      Result result = compile_now(entry->source);
      lock.lock();
      ++num_compiled;
      finish(key, *entry, std::move(result));
    }
  }

  // Compiles a source on one of the compiler's threads. The first call reads the vocabulary; calls
  // on other threads wait until it has been read.
  Result compile_now(const Source& source) {
    std::call_once(is_read, [&] {
      try {
        vocabulary.emplace(read());
      } catch (const Error& error) {
        why_none = error.what();
      }
    });
    if (!vocabulary) return Refusal{Refusal::Kind::kUnsupported, why_none};
    auto compiled = Grammar::compile(*vocabulary, source);
    if (auto* const why = std::get_if<std::string>(&compiled))
      return Refusal{Refusal::Kind::kInvalid, std::move(*why)};
    return std::get<Grammar>(std::move(compiled));
  }

  // Passes the result to all callers that wait. A failure is not cached, because the cache is
  // limited by the bytes of its grammars and a failure has none. A later request for the source
  // compiles it again.
  void finish(const std::string& key, Entry& entry, Result result) {
    if (const Grammar* grammar = std::get_if<Grammar>(&result))
      entry.num_bytes = grammar->num_bytes() + static_cast<int64_t>(key.size());
    entry.result = std::move(result);
    entry.done.notify_all();
    if (entry.num_bytes == 0 || entry.num_bytes > options.max_cache_bytes) {
      entries.erase(key);
      return;
    }
    cache_bytes += entry.num_bytes;
    entry.place = order.insert(order.end(), key);
    while (cache_bytes > options.max_cache_bytes) {
      const auto oldest = entries.find(order.front());
      cache_bytes -= oldest->second->num_bytes;
      entries.erase(oldest);
      order.pop_front();
    }
  }

  Result compile(const Source& source) {
    if (auto why = problem(source, options.limits))
      return Refusal{Refusal::Kind::kInvalid, std::move(*why)};
    const std::string key = key_of(source);
    std::unique_lock lock(mutex);
    auto found = entries.find(key);
    if (found == entries.end()) {
      if (std::ssize(waiting) >= options.max_waiting)
        return Refusal{Refusal::Kind::kBusy,
                       "too many grammars wait to be compiled: try again later"};
      found = entries.emplace(key, std::make_shared<Entry>()).first;
      found->second->source = source;
      waiting.push_back(key);
      has_work.notify_one();
    }
    // The entry is shared with the thread that compiles it, because that thread may remove it from
    // `entries` before this thread wakes.
    const std::shared_ptr<Entry> entry = found->second;
    if (entry->result && entry->num_bytes > 0) order.splice(order.end(), order, entry->place);
    if (!entry->done.wait_for(lock, options.timeout, [&] { return entry->result.has_value(); })) {
      return Refusal{Refusal::Kind::kBusy,
                     fmt::format("the grammar is not compiled after {} ms: simplify it, or try "
                                 "again later",
                                 options.timeout.count())};
    }
    return *entry->result;
  }

  const std::function<Vocabulary()> read;
  const CompilerOptions options;
  std::once_flag is_read;
  // The vocabulary. It is absent until it has been read; if reading fails, `why_none` says why.
  std::optional<Vocabulary> vocabulary;
  std::string why_none;
  std::mutex mutex;
  std::condition_variable has_work;
  bool is_ending = false;
  std::deque<std::string> waiting;  // keys of sources that wait for a thread, oldest first
  std::unordered_map<std::string, std::shared_ptr<Entry>> entries;
  std::list<std::string> order;  // keys of the cache, least recently used first
  int64_t cache_bytes = 0;
  int64_t num_compiled = 0;
  std::vector<std::thread> threads;  // the last member, because the threads use the members above
};

Compiler::Compiler(std::function<Vocabulary()> read, const CompilerOptions& options)
    : impl_(std::make_unique<Impl>(std::move(read), options)) {}
Compiler::~Compiler() = default;

Compiler::Result Compiler::compile(const Source& source) {
  return impl_->compile(source);
}

int64_t Compiler::cache_bytes() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->cache_bytes;
}

int64_t Compiler::num_compiled() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->num_compiled;
}

}  // namespace encore::grammar
