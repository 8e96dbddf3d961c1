// Represents errors of requests, and writes them as the OpenAI protocol does.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/generator.h"
#include "server/http.h"

namespace encore::server {

// Says why a request is refused or has failed. It is a return value and not an exception, because
// any client can cause it.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param;      // the name of the wrong parameter; empty if no single one is wrong
  std::string code;       // a code that client programs compare; empty if there is none
  int retry_after_s = 0;  // seconds after which a retry may succeed; 0 if a retry is pointless
  Headers headers = {};   // additional headers of the response
};

ApiError bad_request(std::string message, std::string param = "", std::string code = "");
// Returns the error for a request that the generator refuses.
ApiError to_error(const engine::Refusal& refusal);

// Returns {"message": ..., "type": ..., "param": ..., "code": ...}.
json::object error_object(const ApiError& error);
HttpResponse to_response(const ApiError& error);
// Returns the text as a JSON string, or JSON null if the text is empty.
json::value text_or_null(const std::string& text);
// Returns a response with a JSON body.
HttpResponse json_response(const json::value& value, int status = 200);
HttpResponse text_response(std::string text, std::string_view content_type = "text/plain");

}  // namespace encore::server
