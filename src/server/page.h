// Serves the web page at `/`, which has a chat and live charts. Its files are part of the
// executable.
#pragma once

#include <span>

#include "base/embedded_file.h"
#include "server/api.h"

namespace encore::server {

// Returns the files of src/server/page/ and of the JavaScript libraries with which the web page
// shows Markdown.
std::span<const EmbeddedFile> embedded_files();

// Serves a file of the web page; `/` is index.html. The response's headers forbid the page to load
// from, or to connect to, any other server.
Prepared show_page(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
