#include "engine/input_writer.h"

#include <algorithm>
#include <cstring>

#include "model/graph.h"

namespace encore::engine {

InputWriter::End::End(runtime::StepInputs& inputs)
    : last_rows(inputs.host<int32_t>("last_rows")),
      stop_tokens(inputs.host<int32_t>("stop_tokens")),
      max_lens(inputs.host<int32_t>("max_lens")),
      sampling(inputs.host<int32_t>("sampling")) {}

InputWriter::InputWriter(runtime::Executor& executor, int64_t page_size)
    : ids_(executor.inputs().host<int32_t>("ids")),
      positions_(executor.inputs().host<int32_t>("positions")),
      slots_(executor.inputs().host<int32_t>("slots")),
      kv_lens_(executor.inputs().host<int32_t>("kv_lens")),
      query_starts_(executor.inputs().host<int32_t>("query_starts")),
      page_table_(executor.page_table()),
      page_size_(page_size) {
  if (executor.inputs().has("last_rows")) end_.emplace(executor.inputs());
  query_starts_[0] = 0;
}

void InputWriter::add(const StepRows& rows) {
  int64_t position = rows.first;
  for (const int32_t id : rows.ids) {
    ids_[row_] = id;
    positions_[row_] = static_cast<int32_t>(position);
    // Pages first, so that a token's slot is a division away.
    slots_[row_] = static_cast<int32_t>(rows.pages[position / page_size_] * page_size_ +
                                        position % page_size_);
    ++row_;
    ++position;
  }
  page_table_.set(static_cast<int64_t>(sequence_), rows.pages);
  kv_lens_[sequence_] = static_cast<int32_t>(position);
  if (end_) add_end(rows);
  query_starts_[++sequence_] = row_;
}

void InputWriter::add_end(const StepRows& rows) {
  const size_t b = sequence_;
  end_->last_rows[b] = row_ - 1;
  const auto stops = end_->stop_tokens.subspan(b * model::kMaxStopTokens, model::kMaxStopTokens);
  std::fill(stops.begin(), stops.end(), -1);
  std::copy_n(rows.stop_tokens.begin(), std::min(rows.stop_tokens.size(), stops.size()),
              stops.begin());
  end_->max_lens[b] = static_cast<int32_t>(rows.max_len);
  std::memcpy(&end_->sampling[b * kSamplingWords], &rows.sampling, sizeof(rows.sampling));
}

}  // namespace encore::engine
