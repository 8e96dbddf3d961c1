#include "server/reply.h"

#include <chrono>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

namespace encore::server {

void Events::add(const json::object& data) {
  bytes_ += fmt::format("data: {}\n\n", boost::json::serialize(data));
}

void Events::add(std::string_view type, const json::object& data) {
  bytes_ += fmt::format("event: {}\n", type);
  add(data);
}

void Events::add_done() {
  bytes_ += "data: [DONE]\n\n";
}

HttpResponse ReplyFormat::error(const ApiError& error) const {
  return to_response(error);
}

int64_t seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

Reply::Reply(std::unique_ptr<Responder> responder, std::unique_ptr<ReplyFormat> format,
             bool streams)
    : responder_(std::move(responder)), format_(std::move(format)), streams_(streams) {}

void Reply::begin(int64_t num_choices, const Usage& usage) {
  if (!streams_) {
    choices_.resize(num_choices);
    for (int64_t i = 0; i < num_choices; ++i)
      choices_[i].index = i;
    return;
  }
  responder_->begin_stream(
      {200,
       {{"Content-Type", "text/event-stream; charset=utf-8"}, {"Cache-Control", "no-cache"}},
       ""});
  Events events;
  format_->begin(num_choices, usage, events);
  if (!events.bytes().empty()) responder_->write(events.bytes());
}

void Reply::add(Choice piece) {
  if (streams_) {
    if (piece.parts.empty() && piece.logprobs.empty() && piece.finish_reason.empty()) return;
    Events events;
    format_->add(piece, events);
    return responder_->write(events.bytes());
  }
  Choice& choice = choices_.at(piece.index);
  // The index, in choice.parts, of the part that takes the first part of this piece. Indices in the
  // piece are shifted by it.
  std::optional<size_t> shift;
  for (const text::AnswerPart& part : piece.parts) {
    append(choice.parts, part.kind, part.text);
    if (!shift) shift = choice.parts.size() - 1;
  }
  for (TokenLogprobs& token : piece.logprobs) {
    if (token.part) *token.part += shift.value_or(0);
    choice.logprobs.push_back(std::move(token));
  }
  if (!piece.prompt_logprobs.empty()) choice.prompt_logprobs = std::move(piece.prompt_logprobs);
  choice.finish_reason = std::move(piece.finish_reason);
  choice.stop_reason = std::move(piece.stop_reason);
}

void Reply::finish(const Usage& usage) {
  if (!streams_) return responder_->respond(json_response(format_->reply(choices_, usage)));
  Events events;
  format_->end(usage, events);
  responder_->write(events.bytes());
  responder_->end_stream();
}

void Reply::fail(const ApiError& error) {
  if (!streams_) return responder_->respond(format_->error(error));
  Events events;
  format_->fail(error, events);
  responder_->write(events.bytes());
  responder_->end_stream();
}

}  // namespace encore::server
