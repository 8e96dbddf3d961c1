// The web page at `/`: a chat and live charts, in files that are part of the executable.
#pragma once

#include <span>

#include "base/embedded_file.h"
#include "server/api.h"

namespace encore::server {

// The files of src/server/page/, and those of the libraries that show Markdown.
std::span<const EmbeddedFile> embedded_files();

// `/` is index.html. The page may load and call nothing but this server.
Prepared show_page(const HttpRequest& request, const ApiContext& context);

}  // namespace encore::server
