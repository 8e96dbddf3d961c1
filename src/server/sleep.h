// Serves the routes by which an operator puts the model to sleep, which frees its device memory,
// and wakes it.
#pragma once

#include <memory>

#include "engine/generator.h"
#include "server/background.h"
#include "server/http.h"

namespace encore::server {

// Each of the three handlers below answers {"is_sleeping": ...} when the change is done, or says why
// it is impossible. Threads: called on the server's thread. The generator may finish a change on
// another thread; `post` then runs the answer on the server's thread.

// Serves POST /sleep?level=1|2&tags=kv_cache. Both levels free the device memory of the KV cache
// and of the weights. Pages of the KV cache that are in use are kept in host memory; the weights
// are read from the checkpoint again at waking. With tags=kv_cache, the weights stay.
void answer_sleep(const HttpRequest& request, engine::Generator& generator, const Post& post,
                  std::unique_ptr<Responder> responder);
// Serves POST /wake_up.
void answer_wake_up(const HttpRequest& request, engine::Generator& generator, const Post& post,
                    std::unique_ptr<Responder> responder);
// Serves GET /is_sleeping.
void answer_is_sleeping(const HttpRequest& request, engine::Generator& generator, const Post& post,
                        std::unique_ptr<Responder> responder);

// Returns whether the model is asleep.
bool is_sleeping(const engine::Generator& generator);

}  // namespace encore::server
