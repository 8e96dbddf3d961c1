#include "engine/input_writer.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "model/graph.h"

namespace encore::engine {

std::span<const int32_t> unsent_stops(std::span<const int32_t> stop_tokens) {
  return stop_tokens.subspan(std::min(stop_tokens.size(), static_cast<size_t>(kMaxStopTokens)));
}

InputWriter::InputWriter(runtime::Executor& executor, int64_t page_size)
    : inputs_(executor.loaded().inputs), page_size_(page_size) {
  ids_ = inputs_.host(step_input::kIds);
  positions_ = inputs_.host(step_input::kPositions);
  slots_ = inputs_.host(step_input::kSlots);
  window_slots_ = inputs_.host(step_input::kWindowSlots);
  kv_lens_ = inputs_.host(step_input::kKvLens);
  query_starts_ = inputs_.host(step_input::kQueryStarts);
  query_starts_[0] = 0;
  last_rows_ = inputs_.host(step_input::kLastRows);
  stop_tokens_ = inputs_.host(step_input::kStopTokens);
  max_lens_ = inputs_.host(step_input::kMaxLens);
  sampling_ = inputs_.host(step_input::kSampling);
  token_adapters_ = inputs_.host(step_input::kTokenAdapters);
  adapters_ = inputs_.host(step_input::kAdapters);
}

void InputWriter::add(const StepRows& rows) {
  std::ranges::copy(rows.ids, &ids_[row_]);
  const int64_t num_tokens = std::ssize(rows.ids) + rows.num_drafts;
  std::fill_n(&ids_[row_ + std::ssize(rows.ids)], rows.num_drafts, -1);
  if (!token_adapters_.empty()) std::fill_n(&token_adapters_[row_], num_tokens, rows.adapter);
  if (!adapters_.empty()) {
    const size_t each = adapters_.size() / last_rows_.size();  // rows of logits for each sequence
    std::fill_n(&adapters_[sequence_ * each], each, rows.adapter);
  }
  const int64_t end = rows.first + num_tokens;
  for (int64_t position = rows.first; position < end;) {
    const int64_t page = position / page_size_;
    const int64_t page_end = std::min(end, (page + 1) * page_size_);
    const auto to_slots = [&](std::span<const int32_t> pages) {
      return (pages[static_cast<size_t>(page)] - page) * page_size_;
    };
    const int64_t from_position_to_slot = to_slots(rows.pages);
    if (!window_slots_.empty()) {
      const int64_t first_slot = position + to_slots(rows.window_pages);
      std::iota(&window_slots_[row_], &window_slots_[row_] + (page_end - position),
                static_cast<int32_t>(first_slot));
    }
    for (; position < page_end; ++position, ++row_) {
      positions_[row_] = static_cast<int32_t>(position);
      slots_[row_] = static_cast<int32_t>(position + from_position_to_slot);
    }
  }
  if (!rows.has_sent_pages) {
    const auto table_row = static_cast<int64_t>(sequence_);
    inputs_.page_table().set(table_row, rows.pages);
    if (!window_slots_.empty()) {
      inputs_.page_table(model::kWindowGroup)
          .set(table_row, rows.window_pages, rows.num_unseen_pages);
    }
  }
  kv_lens_[sequence_] = static_cast<int32_t>(end);
  if (!last_rows_.empty()) add_end(rows);
  query_starts_[++sequence_] = row_;
}

void InputWriter::add_end(const StepRows& rows) {
  const size_t b = sequence_;
  last_rows_[b] = row_ - 1;
  const auto stops = stop_tokens_.subspan(b * kMaxStopTokens, kMaxStopTokens);
  std::fill(stops.begin(), stops.end(), -1);
  std::copy_n(rows.stop_tokens.begin(), std::min(rows.stop_tokens.size(), stops.size()),
              stops.begin());
  max_lens_[b] = static_cast<int32_t>(rows.max_len);
  std::memcpy(&sampling_[b * kSamplingWords], &rows.sampling, sizeof(rows.sampling));
}

}  // namespace encore::engine
