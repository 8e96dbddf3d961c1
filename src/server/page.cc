#include "server/page.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace encore::server {
namespace {

std::string_view content_type(std::string_view name) {
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".txt")) return "text/plain; charset=utf-8";
  return "text/html; charset=utf-8";
}

constexpr std::string_view kPolicy =
    "default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace

Prepared show_page(const HttpRequest& request, const ApiContext& /*context*/) {
  const std::string_view name =
      request.path == "/" ? "index.html" : std::string_view(request.path).substr(1);
  const auto files = embedded_files();
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&](const EmbeddedFile& row) { return row.name == name; });
  ENCORE_CHECK(file != files.end());
  HttpResponse response = text_response(std::string(file->content), content_type(name));
  response.headers.emplace_back("Content-Security-Policy", kPolicy);
  response.headers.emplace_back("X-Content-Type-Options", "nosniff");
  response.headers.emplace_back("Referrer-Policy", "no-referrer");
  response.headers.emplace_back("Cache-Control", "no-cache");
  return {std::move(response), {}};
}

}  // namespace encore::server
