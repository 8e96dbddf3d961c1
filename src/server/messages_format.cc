#include "server/messages_format.h"

#include <utility>

#include "server/random_id.h"

namespace encore::server {
namespace {

using Kind = text::AnswerPart::Kind;

std::string_view anthropic_type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 413) return "request_too_large";
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "overloaded_error";
  if (status == 504) return "timeout_error";
  if (status >= 500) return "api_error";
  return "invalid_request_error";
}

json::object error_json(const ApiError& error) {
  return {{"type", "error"},
          {"error",
           json::object{{"type", anthropic_type_of(error.status)}, {"message", error.message}}}};
}

// Returns a content block without content, as a stream announces it.
json::object empty_block(const text::AnswerPart& part) {
  switch (part.kind) {
    case Kind::kReasoning:
      return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    case Kind::kContent:
      return {{"type", "text"}, {"text", ""}};
    case Kind::kCall:
    case Kind::kArguments:
      break;
  }
  return {{"type", "tool_use"},
          {"id", random_id("toolu_")},
          {"name", part.text},
          {"input", json::object{}}};
}

json::object delta_of(const text::AnswerPart& part) {
  switch (part.kind) {
    case Kind::kReasoning:
      return {{"type", "thinking_delta"}, {"thinking", part.text}};
    case Kind::kContent:
      return {{"type", "text_delta"}, {"text", part.text}};
    case Kind::kCall:
    case Kind::kArguments:
      break;
  }
  return {{"type", "input_json_delta"}, {"partial_json", part.text}};
}

// Returns a tool call's arguments as an object, which the protocol requires, even if the model's
// text is not a JSON object.
json::object input_of(const std::string& arguments) {
  try {
    json::value parsed = json::parse(arguments, "arguments");
    if (parsed.is_object()) return std::move(parsed.get_object());
  } catch (const Error&) {
  }
  return {{"INVALID_JSON", arguments}};
}

json::array blocks_of(const text::AnswerParts& parts) {
  json::array blocks;
  for (const text::AnswerPart& part : parts) {
    if (part.kind != Kind::kArguments) blocks.emplace_back(empty_block(part));
    json::object& block = blocks.back().as_object();
    if (part.kind == Kind::kReasoning) block["thinking"] = part.text;
    if (part.kind == Kind::kContent) block["text"] = part.text;
    if (part.kind == Kind::kArguments) block["input"] = input_of(part.text);
  }
  return blocks;
}

json::object message_usage(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

}  // namespace

HttpResponse messages_error(const ApiError& error) {
  HttpResponse response = to_response(error);
  response.body = json_response(error_json(error)).body;
  return response;
}

MessagesFormat::MessagesFormat(std::string model)
    : id_(random_id("msg_")), model_(std::move(model)) {}

json::object MessagesFormat::message(json::array content, const Usage& usage) const {
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_},
          {"content", std::move(content)},
          {"stop_reason", stop_reason_},
          {"stop_sequence", stop_sequence_},
          {"usage", message_usage(usage)}};
}

json::object MessagesFormat::reply(const std::vector<Choice>& choices, const Usage& usage) {
  const Choice& choice = choices.at(0);
  for (const text::AnswerPart& part : choice.parts)
    has_calls_ = has_calls_ || part.kind == Kind::kCall;
  set_ending(choice);
  return message(blocks_of(choice.parts), usage);
}

void MessagesFormat::set_ending(const Choice& choice) {
  if (choice.finish_reason == "length") {
    stop_reason_ = "max_tokens";
  } else if (choice.stop_reason.is_string()) {
    stop_reason_ = "stop_sequence";
    stop_sequence_ = choice.stop_reason;
  } else {
    stop_reason_ = has_calls_ ? "tool_use" : "end_turn";
  }
}

void MessagesFormat::begin(int64_t /*num_choices*/, const Usage& usage, Events& events) {
  events.add("message_start", {{"type", "message_start"}, {"message", message({}, usage)}});
}

void MessagesFormat::open_block(const text::AnswerPart& part, Events& events) {
  const bool continues = is_open_ && part.kind == open_kind_ && part.kind != Kind::kCall;
  if (continues || part.kind == Kind::kArguments) return;
  close_block(events);
  events.add("content_block_start", {{"type", "content_block_start"},
                                     {"index", num_blocks_},
                                     {"content_block", empty_block(part)}});
  ++num_blocks_;
  is_open_ = true;
  open_kind_ = part.kind;
}

void MessagesFormat::close_block(Events& events) {
  if (std::exchange(is_open_, false)) {
    events.add("content_block_stop", {{"type", "content_block_stop"}, {"index", num_blocks_ - 1}});
  }
}

void MessagesFormat::add(const Choice& piece, Events& events) {
  for (const text::AnswerPart& part : piece.parts) {
    open_block(part, events);
    if (part.kind == Kind::kCall) {
      has_calls_ = true;
      continue;
    }
    events.add(
        "content_block_delta",
        {{"type", "content_block_delta"}, {"index", num_blocks_ - 1}, {"delta", delta_of(part)}});
  }
  if (!piece.finish_reason.empty()) {
    close_block(events);
    set_ending(piece);
  }
}

void MessagesFormat::end(const Usage& usage, Events& events) {
  events.add(
      "message_delta",
      {{"type", "message_delta"},
       {"delta", json::object{{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}}},
       {"usage", message_usage(usage)}});
  events.add("message_stop", {{"type", "message_stop"}});
}

void MessagesFormat::fail(const ApiError& error, Events& events) {
  events.add("error", error_json(error));
}

HttpResponse MessagesFormat::error(const ApiError& error) const {
  return messages_error(error);
}

}  // namespace encore::server
