#include "server/responses_format.h"

#include "server/random_id.h"

namespace encore::server {
namespace {

using Kind = text::AnswerPart::Kind;

json::object response_usage(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details",
           json::object{{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", json::object{{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

json::object new_item(const text::AnswerPart& part) {
  switch (part.kind) {
    case Kind::kReasoning:
      return {{"id", random_id("rs_")}, {"type", "reasoning"}, {"summary", json::array{}}};
    case Kind::kContent:
      return {{"id", random_id("msg_")}, {"type", "message"}, {"role", "assistant"}};
    case Kind::kCall:
    case Kind::kArguments:
      break;
  }
  return {{"id", random_id("fc_")},
          {"type", "function_call"},
          {"call_id", random_id("call_")},
          {"name", part.text}};
}

// Returns the content of a text item, as far as it has been generated.
json::object content_part(Kind kind, const std::string& text, const json::array& logprobs) {
  if (kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", json::array{}},
          {"logprobs", logprobs}};
}

// Returns the type of an event, such as "response.output_text.delta" if `what` is "delta".
std::string text_event(Kind kind, std::string_view what) {
  std::string_view subject = "function_call_arguments";
  if (kind == Kind::kReasoning) subject = "reasoning_text";
  if (kind == Kind::kContent) subject = "output_text";
  return fmt::format("response.{}.{}", subject, what);
}

// Returns those fields of a "delta" or "done" event that depend on the kind of its item.
json::object text_data(Kind kind, const json::array& logprobs) {
  if (kind == Kind::kCall) return {};
  json::object data{{"content_index", 0}};
  if (kind == Kind::kContent) data["logprobs"] = logprobs;
  return data;
}

}  // namespace

ResponsesFormat::ResponsesFormat(std::string model, json::object settings)
    : id_(random_id("resp_")),
      model_(std::move(model)),
      created_(seconds_since_1970()),
      settings_(std::move(settings)) {}

json::object ResponsesFormat::response(std::string_view status, const json::value& usage) const {
  json::object response{{"id", id_},        {"object", "response"}, {"created_at", created_},
                        {"status", status}, {"error", nullptr},     {"incomplete_details", nullptr},
                        {"model", model_},  {"output", output_},    {"usage", usage}};
  if (status == "incomplete")
    response["incomplete_details"] = json::object{{"reason", "max_output_tokens"}};
  for (const auto& [key, value] : settings_)
    response[key] = value;
  return response;
}

json::object ResponsesFormat::reply(const std::vector<Choice>& choices, const Usage& usage) {
  Events unsent;
  add(choices.at(0), unsent);
  return response(is_cut_ ? "incomplete" : "completed", response_usage(usage));
}

void ResponsesFormat::send(std::string_view type, json::object data, Events& events) {
  data["type"] = type;
  data["sequence_number"] = num_events_++;
  events.add(type, data);
}

void ResponsesFormat::send_of_item(std::string_view type, json::object data, Events& events) {
  data["item_id"] = item_->object["id"];
  data["output_index"] = output_.size();
  send(type, std::move(data), events);
}

void ResponsesFormat::begin(int64_t /*num_choices*/, const Usage& /*usage*/, Events& events) {
  for (const char* type : {"response.created", "response.in_progress"})
    send(type, {{"response", response("in_progress", nullptr)}}, events);
}

void ResponsesFormat::open_item(const text::AnswerPart& part, Events& events) {
  close_item("completed", events);
  item_ = Item{.kind = part.kind, .object = new_item(part), .text = ""};
  json::object empty = item_->object;
  empty["status"] = "in_progress";
  if (part.kind == Kind::kCall) {
    empty["arguments"] = "";
  } else {
    empty["content"] = json::array{};
  }
  send("response.output_item.added", {{"output_index", output_.size()}, {"item", std::move(empty)}},
       events);
  if (part.kind == Kind::kCall) return;
  send_of_item("response.content_part.added",
               {{"content_index", 0}, {"part", content_part(part.kind, "", {})}}, events);
}

void ResponsesFormat::close_item(std::string_view status, Events& events) {
  if (!item_) return;
  const Kind kind = item_->kind;
  json::object done = text_data(kind, item_->logprobs);
  done[kind == Kind::kCall ? "arguments" : "text"] = item_->text;
  if (kind == Kind::kCall) done["name"] = item_->object["name"];
  send_of_item(text_event(kind, "done"), std::move(done), events);
  json::object object = item_->object;
  object["status"] = status;
  if (kind == Kind::kCall) {
    object["arguments"] = item_->text;
  } else {
    const json::object part = content_part(kind, item_->text, item_->logprobs);
    send_of_item("response.content_part.done", {{"content_index", 0}, {"part", part}}, events);
    object["content"] = json::array{part};
  }
  send("response.output_item.done", {{"output_index", output_.size()}, {"item", object}}, events);
  output_.emplace_back(std::move(object));
  item_.reset();
}

void ResponsesFormat::add_text(const std::string& text, const json::array& logprobs,
                               Events& events) {
  item_->text += text;
  item_->logprobs.insert(item_->logprobs.end(), logprobs.begin(), logprobs.end());
  json::object data = text_data(item_->kind, logprobs);
  data["delta"] = text;
  send_of_item(text_event(item_->kind, "delta"), std::move(data), events);
}

std::vector<json::array> ResponsesFormat::logprobs_by_part(const Choice& piece) {
  std::vector<json::array> lists(piece.parts.size());
  for (const TokenLogprobs& token : piece.logprobs) {
    held_logprobs_.emplace_back(logprobs_of(token));
    if (!token.part) continue;
    json::array& list = lists.at(*token.part);
    std::move(held_logprobs_.begin(), held_logprobs_.end(), std::back_inserter(list));
    held_logprobs_.clear();
  }
  return lists;
}

void ResponsesFormat::add(const Choice& piece, Events& events) {
  const auto logprobs = logprobs_by_part(piece);
  for (size_t i = 0; i < piece.parts.size(); ++i) {
    const text::AnswerPart& part = piece.parts[i];
    if (part.kind == Kind::kCall) {
      open_item(part, events);
      continue;
    }
    if (part.kind != Kind::kArguments && (!item_ || item_->kind != part.kind))
      open_item(part, events);
    add_text(part.text, logprobs[i], events);
  }
  if (piece.finish_reason.empty()) return;
  // Log probabilities that are still held back belong to tokens at the end whose text is not shown.
  const bool shows_held = item_ && item_->kind == Kind::kContent && !held_logprobs_.empty();
  if (shows_held) add_text("", held_logprobs_, events);
  is_cut_ = piece.finish_reason == "length";
  close_item(is_cut_ ? "incomplete" : "completed", events);
}

void ResponsesFormat::end(const Usage& usage, Events& events) {
  const std::string_view status = is_cut_ ? "incomplete" : "completed";
  send(fmt::format("response.{}", status), {{"response", response(status, response_usage(usage))}},
       events);
}

void ResponsesFormat::fail(const ApiError& error, Events& events) {
  close_item("incomplete", events);
  json::object failed = response("failed", nullptr);
  failed["error"] = json::object{{"code", "server_error"}, {"message", error.message}};
  send("response.failed", {{"response", std::move(failed)}}, events);
}

}  // namespace encore::server
