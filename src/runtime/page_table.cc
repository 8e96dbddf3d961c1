#include "runtime/page_table.h"

#include <algorithm>
#include <array>

namespace encore::runtime {

PageTable::PageTable(Device& device, const ir::Graph& graph, const PersistentBuffers& persistent) {
  const auto id = graph.find_value("page_table");
  if (!id || graph.value(*id).kind != ir::ValueKind::kPersistent) return;
  const TensorView table = persistent.view(*id);
  width_ = table.row_elements();
  rows_.resize(static_cast<size_t>(table.num_rows()));
  KernelArgs args;
  args.inputs = {{"page_table", table},
                 {"changes", TensorView(nullptr, DType::kI32, {table.num_rows(), 2})},
                 {"pages", TensorView(nullptr, DType::kI32, table.shape)}};
  args.outputs = {{"page_table", table}};
  launch_ = HostLaunch(device, "write_pages", std::move(args), {"changes", "pages"});
}

std::span<PageTable::Range> PageTable::changes() {
  const bool is_new = launch_.begin();
  const std::span<Range> changes = launch_.operand<Range>("changes");
  if (is_new) std::ranges::fill(changes, Range{});
  return changes;
}

void PageTable::warm_up(Stream& stream) {
  if (rows_.empty()) return;
  (void)changes();
  write(stream);
}

void PageTable::set(int64_t row, std::span<const int32_t> pages) {
  ENCORE_CHECK(row < std::ssize(rows_) && std::ssize(pages) <= width_);
  std::vector<int32_t>& old = rows_[static_cast<size_t>(row)];
  const auto differ = std::ranges::mismatch(pages, old);
  const bool ends_alike =
      differ.in1 == pages.end() &&
      (std::ssize(pages) == width_ || (differ.in2 != old.end() && *differ.in2 == -1));
  if (ends_alike) return;

  const auto first = static_cast<int32_t>(differ.in1 - pages.begin());
  old.assign(pages.begin(), pages.end());
  if (std::ssize(old) < width_) old.push_back(-1);
  Range& change = changes()[static_cast<size_t>(row)];
  change.first = change.count == 0 ? first : std::min(change.first, first);
  change.count = static_cast<int32_t>(old.size()) - change.first;
  num_changed_ += change.count;
  std::copy(old.begin() + change.first, old.end(),
            launch_.operand<int32_t>("pages").begin() + row * width_ + change.first);
}

}  // namespace encore::runtime
