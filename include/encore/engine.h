// This header is Encore's C++ interface: it opens a model, submits prompts and reads tokens as they
// come.
//
//   encore::Engine engine({{"model", "stories"}});
//   encore::Request request = engine.submit("Once upon a time", {{"max_tokens", 100}, {"temperature", 0.8}});
//   while (auto update = request.next()) std::cout << update->text << std::flush;
//
// These inline functions call the C functions of libencore.so. encore/c_api.h documents the
// options, the parameters and the statistics. No C++ type crosses the border of libencore.so, so a
// program may be built with another compiler, standard (C++17 or later) or C++ library than Encore.
//
// Errors: functions throw encore::Error unless their comments say otherwise.
// Threads: any threads may use an Engine at once. Request::next() and Request::wait() belong to one
// thread at a time; any thread may call Request::abort(). Only the owner of an object may move or
// destroy it.
// Lifetime: a Request may outlive its Engine. The Engine's destructor aborts the request.
#pragma once

#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <encore/c_api.h>

namespace encore {

// Tells what went wrong and what to do about it, in one line.
class Error : public std::runtime_error {
 public:
  Error(encore_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  // Returns the C function's status. After ENCORE_QUEUE_FULL, the same call may succeed later.
  encore_status status() const noexcept { return status_; }

 private:
  encore_status status_;
};

// Holds an option of an engine or a parameter of a request. The value is a text, a number, or a
// bool, which is written as "on" or "off".
struct Setting {
  Setting(std::string setting_name, std::string text)
      : name(std::move(setting_name)), value(std::move(text)) {}
  Setting(std::string setting_name, const char* text)
      : Setting(std::move(setting_name), std::string(text)) {}
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Setting(std::string setting_name, Number number)
      : Setting(std::move(setting_name), text_of(number)) {}

  std::string name;
  std::string value;

 private:
  // Converts a number to text, in the same way in every locale.
  template <typename Number>
  static std::string text_of(Number number) {
    if constexpr (std::is_same_v<Number, bool>) {
      return number ? "on" : "off";
    } else {
      char text[64];
      return {text, std::to_chars(text, text + sizeof(text), number).ptr};
    }
  }
};
using Settings = std::vector<Setting>;

// Holds the log probability of a generated token, its rank among all tokens by probability, and the
// likeliest tokens at its position.
struct Logprobs {
  float logprob = 0;
  int32_t rank = 0;  // 1 where no token was likelier
  std::vector<encore_candidate> top;
};

// Holds the part of a request's answer that one call of next() returns.
struct Update {
  std::string text;                     // UTF-8; no character is cut
  std::vector<int32_t> tokens;          // includes tokens that show no text
  std::vector<Logprobs> logprobs;       // one for each token, if the request has `logprobs`
  int64_t num_cached_tokens = 0;        // prompt tokens that were found in the prefix cache
  std::optional<encore_finish> finish;  // set in the last update
  std::string error;                    // set where `finish` is ENCORE_FINISH_ERROR
};

// Represents a prompt and the answer that is generated behind it. The destructor aborts the request
// if it has not ended.
class Request {
 public:
  static constexpr std::chrono::milliseconds kForever{-1};

  // Waits for an update, at most for `timeout`. Returns nullopt when the time is over, or when an
  // earlier call has returned the last update.
  std::optional<Update> next(std::chrono::milliseconds timeout = kForever);
  // Waits for the end of the request. Returns everything that next() has not returned, as one
  // update.
  Update wait();
  // Returns whether the last update was returned.
  bool has_ended() const noexcept { return has_ended_; }
  // Ends the request soon, with ENCORE_FINISH_ABORTED.
  void abort() noexcept { encore_abort(handle_.get()); }

 private:
  friend class Engine;
  struct Release {
    void operator()(encore_request* request) const noexcept { encore_release(request); }
  };
  explicit Request(encore_request* request) : handle_(request) {}

  std::unique_ptr<encore_request, Release> handle_;
  bool has_ended_ = false;
};

// Represents a loaded model that takes requests. The destructor aborts all requests that have not
// ended.
class Engine {
 public:
  // Loads a model and waits until it takes requests.
  explicit Engine(const Settings& options = {});

  Request submit(std::string_view prompt, const Settings& parameters = {});
  Request submit_tokens(const std::vector<int32_t>& prompt, const Settings& parameters = {});
  // Submits a conversation. `messages` is a JSON array in the form that /v1/chat/completions takes.
  Request submit_chat(std::string_view messages, const Settings& parameters = {});
  // Loads an adapter (LoRA), which requests may name as their parameter `adapter` from then on.
  void load_adapter(const std::string& name, const std::string& path, bool replaces = false);
  void unload_adapter(const std::string& name);
  // Takes no more requests and waits until all have ended, at most for `timeout`. Returns whether
  // all have ended.
  bool drain(std::chrono::milliseconds timeout = Request::kForever);
  encore_statistics statistics() const;

 private:
  struct Close {
    void operator()(encore_engine* engine) const noexcept { encore_close(engine); }
  };

  std::unique_ptr<encore_engine, Close> handle_;
};

namespace detail {

inline void check(encore_status status) {
  if (status != ENCORE_OK) throw Error(status, encore_error_text());
}

// Returns the settings as C structs. Lifetime: the structs point to the texts of `settings`.
inline std::vector<encore_setting> to_c(const Settings& settings) {
  std::vector<encore_setting> list;
  for (const Setting& setting : settings)
    list.push_back({setting.name.c_str(), setting.value.c_str()});
  return list;
}

}  // namespace detail

inline std::optional<Update> Request::next(std::chrono::milliseconds timeout) {
  if (has_ended_) return std::nullopt;
  encore_update update{};
  detail::check(encore_next(handle_.get(), timeout.count(), &update));
  has_ended_ = update.finish != ENCORE_FINISH_NONE;
  if (!has_ended_ && update.num_tokens == 0 && update.text_bytes == 0) return std::nullopt;
  Update result{{update.text, update.text_bytes},
                {update.tokens, update.tokens + update.num_tokens},
                {},
                update.num_cached_tokens,
                std::nullopt,
                update.error};
  for (size_t i = 0; update.logprobs != nullptr && i < update.num_tokens; ++i) {
    const encore_logprobs& row = update.logprobs[i];
    result.logprobs.push_back({row.logprob, row.rank, {row.top, row.top + row.num_top}});
  }
  if (has_ended_) result.finish = update.finish;
  return result;
}

inline Update Request::wait() {
  Update all;
  while (std::optional<Update> update = next()) {
    all.text += update->text;
    all.tokens.insert(all.tokens.end(), update->tokens.begin(), update->tokens.end());
    all.logprobs.insert(all.logprobs.end(), update->logprobs.begin(), update->logprobs.end());
    all.num_cached_tokens = update->num_cached_tokens;
    all.finish = update->finish;
    all.error = std::move(update->error);
  }
  return all;
}

inline Engine::Engine(const Settings& options) {
  const std::vector<encore_setting> list = detail::to_c(options);
  encore_engine* engine = nullptr;
  detail::check(encore_open(list.data(), list.size(), &engine));
  handle_.reset(engine);
}

inline Request Engine::submit(std::string_view prompt, const Settings& parameters) {
  const std::vector<encore_setting> list = detail::to_c(parameters);
  encore_request* request = nullptr;
  detail::check(encore_submit_text(handle_.get(), prompt.data(), prompt.size(), list.data(),
                                   list.size(), &request));
  return Request(request);
}

inline Request Engine::submit_tokens(const std::vector<int32_t>& prompt,
                                     const Settings& parameters) {
  const std::vector<encore_setting> list = detail::to_c(parameters);
  encore_request* request = nullptr;
  detail::check(encore_submit_tokens(handle_.get(), prompt.data(), prompt.size(), list.data(),
                                     list.size(), &request));
  return Request(request);
}

inline Request Engine::submit_chat(std::string_view messages, const Settings& parameters) {
  const std::vector<encore_setting> list = detail::to_c(parameters);
  encore_request* request = nullptr;
  detail::check(encore_submit_chat(handle_.get(), messages.data(), messages.size(), list.data(),
                                   list.size(), &request));
  return Request(request);
}

inline void Engine::load_adapter(const std::string& name, const std::string& path, bool replaces) {
  detail::check(encore_load_adapter(handle_.get(), name.c_str(), path.c_str(), replaces ? 1 : 0));
}

inline void Engine::unload_adapter(const std::string& name) {
  detail::check(encore_unload_adapter(handle_.get(), name.c_str()));
}

inline bool Engine::drain(std::chrono::milliseconds timeout) {
  int has_ended = 0;
  detail::check(encore_drain(handle_.get(), timeout.count(), &has_ended));
  return has_ended != 0;
}

inline encore_statistics Engine::statistics() const {
  encore_statistics statistics{};
  detail::check(encore_get_statistics(handle_.get(), &statistics));
  return statistics;
}

}  // namespace encore
