// The routes by which an operator has the model sleep, which gives its device memory back, and wake.
#pragma once

#include <memory>

#include "engine/generator.h"
#include "server/background.h"
#include "server/http.h"

namespace encore::server {

// Each answers {"is_sleeping": ...}, once that is so, or why it cannot be. Threads: the server's,
// where `post` runs functions; the generator may be done on another.

// POST /sleep?level=1|2&tags=kv_cache. Both levels give back KV, whose pages in use are kept on the
// host, and weights, which waking reads from the checkpoint; tags=kv_cache leaves the weights.
void answer_sleep(const HttpRequest& request, engine::Generator& generator, const Post& post,
                  std::unique_ptr<Responder> responder);
// POST /wake_up
void answer_wake_up(const HttpRequest& request, engine::Generator& generator, const Post& post,
                    std::unique_ptr<Responder> responder);
// GET /is_sleeping
void answer_is_sleeping(const HttpRequest& request, engine::Generator& generator, const Post& post,
                        std::unique_ptr<Responder> responder);

// Does the model sleep?
bool is_sleeping(const engine::Generator& generator);

}  // namespace encore::server
