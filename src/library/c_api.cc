// Defines the functions that libencore.so exports. They check arguments and turn exceptions into
// statuses.
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <encore/c_api.h>
#include <fmt/format.h>

#include "base/error.h"
#include "library/engine.h"

namespace library = encore::library;
using encore::Error;
using encore::ErrorKind;
using encore::fail;

struct encore_engine {
  std::shared_ptr<library::Engine> engine;  // shared with the engine's requests
};

struct encore_request {
  std::shared_ptr<library::Engine> engine;  // shared with the handle of the engine; perhaps closed
  std::shared_ptr<library::Request> request;  // shared with the engine
  library::Update update;                     // the last update that encore_next() returned
  std::vector<encore_logprobs> logprobs;      // log probabilities of the last update
};

namespace {

thread_local std::string error_text;

// A wait of more than this many milliseconds (30 years) has no limit.
constexpr int64_t kForeverMs = 1'000'000'000'000;

encore_status fail_with(encore_status status, std::string_view text) noexcept {
  try {
    error_text = text;
  } catch (const std::bad_alloc&) {
    error_text.clear();
  }
  return status;
}

// Calls `call`. Returns its status, or the status that stands for the exception that it throws.
template <typename Call>
encore_status guarded(Call&& call) noexcept {
  try {
    return call();
  } catch (const Error& error) {
    return fail_with(static_cast<encore_status>(exit_code(error.kind())), error.what());
  } catch (const std::bad_alloc&) {
    return fail_with(ENCORE_MEMORY, "memory is exhausted");
  } catch (const std::exception& error) {
    return fail_with(ENCORE_INTERNAL, error.what());
  } catch (...) {
    return fail_with(ENCORE_INTERNAL, "an exception of an unknown type");
  }
}

void need(const void* argument, const char* name) {
  if (argument == nullptr) fail(ErrorKind::kUsage, "{} is null", name);
}

std::vector<library::Setting> to_settings(const encore_setting* settings, size_t count) {
  if (count > 0) need(settings, "the list of settings");
  std::vector<library::Setting> list;
  for (const encore_setting& setting : std::span(settings, count)) {
    need(setting.name, "a setting's name");
    if (setting.value == nullptr) fail(ErrorKind::kUsage, "the value of {} is null", setting.name);
    list.push_back({setting.name, setting.value});
  }
  return list;
}

library::Timeout to_timeout(int64_t timeout_ms) {
  if (timeout_ms < 0 || timeout_ms > kForeverMs) return std::nullopt;
  return std::chrono::milliseconds(timeout_ms);
}

encore_status status_of(encore::engine::RefusalKind kind) {
  switch (kind) {
    case encore::engine::RefusalKind::kInvalid:
      return ENCORE_USAGE;
    case encore::engine::RefusalKind::kQueueFull:
      return ENCORE_QUEUE_FULL;
    case encore::engine::RefusalKind::kDraining:
      return ENCORE_DRAINING;
    case encore::engine::RefusalKind::kAsleep:  // c_api.h cannot put an engine to sleep
    case encore::engine::RefusalKind::kStopped:
    case encore::engine::RefusalKind::kFailed:
      break;
  }
  return ENCORE_DEVICE;
}

encore_finish to_c(library::Finish finish) {
  switch (finish) {
    case library::Finish::kStop:
      return ENCORE_FINISH_STOP;
    case library::Finish::kLength:
      return ENCORE_FINISH_LENGTH;
    case library::Finish::kAborted:
      return ENCORE_FINISH_ABORTED;
    case library::Finish::kError:
      break;
  }
  return ENCORE_FINISH_ERROR;
}

// Callers of the C functions get pointers to the entries of an encore::LogprobRow as
// encore_candidate, so both types must have the same layout.
using Entry = encore::LogprobRow::Entry;
static_assert(sizeof(encore_candidate) == sizeof(Entry) &&
              offsetof(encore_candidate, token) == offsetof(Entry, token) &&
              offsetof(encore_candidate, logprob) == offsetof(Entry, logprob));

encore_logprobs to_c(const encore::LogprobRow& row, size_t num_top) {
  return {.logprob = row.logprob,
          .rank = row.rank,
          .top = reinterpret_cast<const encore_candidate*>(row.top),
          .num_top = num_top};
}

encore_status status_of(const std::optional<encore::engine::Refusal>& refusal) {
  return refusal ? fail_with(status_of(refusal->kind), refusal->why) : ENCORE_OK;
}

encore_status submit(encore_engine* engine, const library::Prompt& prompt,
                     const encore_setting* parameters, size_t num_parameters,
                     encore_request** request) {
  need(engine, "engine");
  need(request, "request");
  auto submitted = engine->engine->submit(
      prompt, library::read_parameters(to_settings(parameters, num_parameters)));
  if (const auto* refusal = std::get_if<encore::engine::Refusal>(&submitted))
    return fail_with(status_of(refusal->kind), refusal->why);
  auto handle = std::make_unique<encore_request>();
  handle->engine = engine->engine;
  handle->request = std::get<std::shared_ptr<library::Request>>(std::move(submitted));
  *request = handle.release();
  return ENCORE_OK;
}

}  // namespace

const char* encore_version() {
  return ENCORE_VERSION;
}

const char* encore_error_text() {
  return error_text.c_str();
}

encore_status encore_open(const encore_setting* options, size_t num_options,
                          encore_engine** engine) {
  return guarded([&] {
    need(engine, "engine");
    const auto settings = library::read_options(to_settings(options, num_options));
    auto handle = std::make_unique<encore_engine>();
    handle->engine = std::make_shared<library::Engine>(settings);
    *engine = handle.release();
    return ENCORE_OK;
  });
}

void encore_close(encore_engine* engine) {
  (void)guarded([&] {
    const std::unique_ptr<encore_engine> handle(engine);
    if (handle) handle->engine->close();
    return ENCORE_OK;
  });
}

encore_status encore_submit_text(encore_engine* engine, const char* prompt, size_t prompt_bytes,
                                 const encore_setting* parameters, size_t num_parameters,
                                 encore_request** request) {
  return guarded([&] {
    need(prompt, "prompt");
    return submit(engine, std::string(prompt, prompt_bytes), parameters, num_parameters, request);
  });
}

encore_status encore_submit_tokens(encore_engine* engine, const int32_t* tokens, size_t num_tokens,
                                   const encore_setting* parameters, size_t num_parameters,
                                   encore_request** request) {
  return guarded([&] {
    if (num_tokens > 0) need(tokens, "tokens");
    return submit(engine, std::vector(tokens, tokens + num_tokens), parameters, num_parameters,
                  request);
  });
}

encore_status encore_submit_chat(encore_engine* engine, const char* messages, size_t messages_bytes,
                                 const encore_setting* parameters, size_t num_parameters,
                                 encore_request** request) {
  return guarded([&] {
    need(messages, "messages");
    encore::json::value read = library::parse_argument("messages", {messages, messages_bytes});
    if (!read.is_array()) fail(ErrorKind::kUsage, "messages is a JSON array");
    return submit(engine, library::Chat{std::move(read.as_array())}, parameters, num_parameters,
                  request);
  });
}

encore_status encore_next(encore_request* request, int64_t timeout_ms, encore_update* update) {
  return guarded([&] {
    need(request, "request");
    need(update, "update");
    library::Update& news = request->update;
    news = request->request->next(to_timeout(timeout_ms));
    request->logprobs.clear();
    for (const encore::LogprobRow& row : news.logprobs)
      request->logprobs.push_back(to_c(row, request->request->num_top));
    *update = {.text = news.text.c_str(),
               .text_bytes = news.text.size(),
               .tokens = news.tokens.data(),
               .num_tokens = news.tokens.size(),
               .logprobs = news.logprobs.empty() ? nullptr : request->logprobs.data(),
               .num_cached_tokens = news.num_cached,
               .finish = news.finish ? to_c(*news.finish) : ENCORE_FINISH_NONE,
               .error = news.error.c_str()};
    return ENCORE_OK;
  });
}

void encore_abort(encore_request* request) {
  (void)guarded([&] {
    if (request != nullptr) request->engine->abort(*request->request);
    return ENCORE_OK;
  });
}

void encore_release(encore_request* request) {
  const std::unique_ptr<encore_request> handle(request);
  if (handle && !handle->request->has_ended()) encore_abort(request);
}

encore_status encore_load_adapter(encore_engine* engine, const char* name, const char* path,
                                  int replaces) {
  return guarded([&] {
    need(engine, "engine");
    need(name, "name");
    need(path, "path");
    return status_of(engine->engine->load_adapter(name, path, replaces != 0));
  });
}

encore_status encore_unload_adapter(encore_engine* engine, const char* name) {
  return guarded([&] {
    need(engine, "engine");
    need(name, "name");
    return status_of(engine->engine->unload_adapter(name));
  });
}

encore_status encore_drain(encore_engine* engine, int64_t timeout_ms, int* has_ended) {
  return guarded([&] {
    need(engine, "engine");
    need(has_ended, "has_ended");
    *has_ended = engine->engine->drain(to_timeout(timeout_ms)) ? 1 : 0;
    return ENCORE_OK;
  });
}

encore_status encore_get_statistics(const encore_engine* engine, encore_statistics* statistics) {
  return guarded([&] {
    need(engine, "engine");
    need(statistics, "statistics");
    const library::Statistics counts = engine->engine->statistics();
    const encore::engine::GeneratorStatistics& generator = counts.generator;
    *statistics = {.num_running = generator.num_running,
                   .num_waiting = generator.num_waiting,
                   .num_pages = generator.num_pages,
                   .num_free_pages = generator.num_free_pages,
                   .prompt_tokens = generator.prompt_tokens,
                   .cached_prompt_tokens = generator.prefix_cache.hit_tokens,
                   .generated_tokens = generator.generated_tokens,
                   .num_preemptions = generator.num_preemptions};
    for (const encore::engine::StepCount& count : generator.steps) {
      statistics->num_steps += count.steps;
      statistics->padding_tokens += count.padding;
    }
    for (size_t i = 0; i < counts.finished.size(); ++i)
      statistics->num_finished[to_c(static_cast<library::Finish>(i))] = counts.finished[i];
    return ENCORE_OK;
  });
}
