#include "engine/input_writer.h"

#include <algorithm>

#include "model/graph.h"

namespace encore::engine {

InputWriter::End::End(runtime::StepInputs& inputs)
    : last_rows(inputs.host<int32_t>("last_rows")),
      stop_tokens(inputs.host<int32_t>("stop_tokens")),
      max_lens(inputs.host<int32_t>("max_lens")),
      temperature(inputs.host<float>("temperature")),
      top_k(inputs.host<int32_t>("top_k")),
      top_p(inputs.host<float>("top_p")),
      min_p(inputs.host<float>("min_p")),
      seed(inputs.host<int64_t>("seed")) {}

InputWriter::InputWriter(runtime::StepInputs& inputs, int64_t page_size)
    : ids_(inputs.host<int32_t>("ids")),
      positions_(inputs.host<int32_t>("positions")),
      slots_(inputs.host<int32_t>("slots")),
      page_table_(inputs.host<int32_t>("page_table")),
      kv_lens_(inputs.host<int32_t>("kv_lens")),
      query_starts_(inputs.host<int32_t>("query_starts")),
      page_size_(page_size),
      max_pages_(page_table_.size() / std::max<size_t>(1, kv_lens_.size())) {
  if (inputs.has("last_rows")) end_.emplace(inputs);
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
  std::copy(rows.pages.begin(), rows.pages.end(),
            page_table_.begin() + static_cast<std::ptrdiff_t>(sequence_ * max_pages_));
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
  end_->temperature[b] = rows.sampling.temperature;
  end_->top_k[b] = rows.sampling.top_k;
  end_->top_p[b] = rows.sampling.top_p;
  end_->min_p[b] = rows.sampling.min_p;
  end_->seed[b] = rows.sampling.seed;
}

}  // namespace encore::engine
