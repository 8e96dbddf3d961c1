// Errors as the OpenAI protocol writes them.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/generator.h"
#include "server/http.h"

namespace encore::server {

// Says why a request is not answered as asked. A value, since clients cause it.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param;      // the parameter that is wrong; empty: none
  std::string code;       // for programs; empty: none
  int retry_after_s = 0;  // 0: not worth trying again
  Headers headers = {};   // further ones
};

ApiError bad_request(std::string message, std::string param = "", std::string code = "");
// The error for a request that the generator refuses.
ApiError to_error(const engine::Refusal& refusal);

// {"message": ..., "type": ..., "param": ..., "code": ...}
json::object error_object(const ApiError& error);
HttpResponse to_response(const ApiError& error);
// A JSON string, or null for an empty text.
json::value text_or_null(const std::string& text);
// A response with a JSON body.
HttpResponse json_response(const json::value& value, int status = 200);
HttpResponse text_response(std::string text, std::string_view content_type = "text/plain");

}  // namespace encore::server
