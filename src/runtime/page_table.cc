#include "runtime/page_table.h"

#include <algorithm>

namespace encore::runtime {

PageTable::PageTable(HostLaunch& launch, const TensorView& table)
    : launch_(launch), width_(table.row_elements()), rows_(static_cast<size_t>(table.num_rows())) {}

void PageTable::set(int64_t row, std::span<const int32_t> pages, int64_t num_unseen) {
  ENCORE_CHECK(row < std::ssize(rows_) && std::ssize(pages) <= width_);
  std::vector<int32_t>& old = rows_[static_cast<size_t>(row)];
  const auto from =
      static_cast<std::ptrdiff_t>(std::min({num_unseen, std::ssize(old), std::ssize(pages)}));
  const auto differ =
      std::ranges::mismatch(pages.begin() + from, pages.end(), old.begin() + from, old.end());
  const bool ends_alike =
      differ.in1 == pages.end() &&
      (std::ssize(pages) == width_ || (differ.in2 != old.end() && *differ.in2 == -1));
  if (ends_alike) return;
  if (listener_) listener_(row, pages, num_unseen);

  const auto first = static_cast<int32_t>(differ.in1 - pages.begin());
  old.resize(static_cast<size_t>(first));  // entries that stay as they are
  old.insert(old.end(), differ.in1, pages.end());
  if (std::ssize(old) < width_) old.push_back(-1);
  launch_.begin();
  WrittenRange& change = launch_.operand<WrittenRange>("changes")[static_cast<size_t>(row)];
  change.first = change.count == 0 ? first : std::min(change.first, first);
  change.count = static_cast<int32_t>(old.size()) - change.first;
  std::copy(old.begin() + change.first, old.end(),
            launch_.operand<int32_t>("pages").begin() + row * width_ + change.first);
}

}  // namespace encore::runtime
