#include "server/openai_format.h"

#include "server/random_id.h"

namespace encore::server {

json::object to_json(const Usage& usage) {
  json::object object{
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"prompt_tokens_details", json::object{{"cached_tokens", usage.cached_tokens}}}};
  json::object details;
  if (usage.reasoning_tokens > 0) details["reasoning_tokens"] = usage.reasoning_tokens;
  if (usage.drafted_tokens > 0) details["accepted_prediction_tokens"] = usage.drafted_tokens;
  if (!details.empty()) object["completion_tokens_details"] = std::move(details);
  return object;
}

OpenAiFormat::OpenAiFormat(const Names& names, std::string model, StreamUsage usage)
    : names_(names),
      id_(random_id(names.id_prefix)),
      model_(std::move(model)),
      created_(seconds_since_1970()),
      usage_(usage) {}

json::object OpenAiFormat::envelope(std::string_view object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

json::object OpenAiFormat::event_of(json::array choices, const Usage& usage) const {
  json::object event = envelope(names_.event_object);
  event["choices"] = std::move(choices);
  if (usage_ == StreamUsage::kAtEnd) event["usage"] = nullptr;
  if (usage_ == StreamUsage::kInEveryEvent) event["usage"] = to_json(usage);
  return event;
}

json::object OpenAiFormat::reply(const std::vector<Choice>& choices, const Usage& usage) {
  json::object reply = envelope(names_.object);
  json::array list;
  for (const Choice& choice : choices)
    list.emplace_back(choice_object(choice));
  reply["choices"] = std::move(list);
  reply["usage"] = to_json(usage);
  add_to_reply(choices, reply);
  return reply;
}

void OpenAiFormat::begin(int64_t num_choices, const Usage& usage, Events& events) {
  for (int64_t i = 0; i < num_choices; ++i) {
    if (auto choice = opening(i)) events.add(event_of({std::move(*choice)}, usage));
  }
}

void OpenAiFormat::add(const Choice& piece, Events& events) {
  for (json::object& choice : choice_events(piece))
    events.add(event_of({std::move(choice)}, piece.usage));
}

void OpenAiFormat::end(const Usage& usage, Events& events) {
  if (usage_ != StreamUsage::kNone) {
    json::object event = event_of({}, usage);
    event["usage"] = to_json(usage);
    events.add(event);
  }
  events.add_done();
}

void OpenAiFormat::fail(const ApiError& error, Events& events) {
  events.add({{"error", error_object(error)}});
  events.add_done();
}

}  // namespace encore::server
