#include "runtime/kv_memory.h"

#include <algorithm>
#include <optional>
#include <ranges>

#include "base/log.h"
#include "base/rounding.h"

namespace encore::runtime {
namespace {

constexpr int64_t kWorthProgress = int64_t{2} << 30;
constexpr double kMegabyte = 1e6;

}  // namespace

KvMemory::KvMemory(Device& device, const ir::Graph& graph) {
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kState)) {
    const ir::Type& type = graph.value(id).type;
    const auto group = static_cast<size_t>(graph.value(id).group);
    states_.push_back({id, type, group, device.reserve(type.num_bytes({}))});
    num_groups_ = std::max(num_groups_, group + 1);
  }
}

TensorView KvMemory::view(ir::ValueId state) const {
  const auto found = std::ranges::find(states_, state, &State::id);
  ENCORE_CHECK(found != states_.end());
  return {found->range->data(), found->type.dtype, found->type.resolve({})};
}

int64_t KvMemory::State::bytes_for(int64_t rows) const {
  const Shape shape = type.resolve({});
  return std::min(rows, shape[0]) * shape.num_elements_from(1) * size_of(type.dtype);
}

void KvMemory::map(const GroupRows& rows) {
  ENCORE_CHECK(rows.size() >= num_groups_);
  const bool had_memory = mapped_bytes() > 0;
  try {
    for (State& state : states_)
      state.range->map(state.bytes_for(rows[state.group]));
  } catch (...) {
    if (!had_memory) unmap();
    throw;
  }
}

void KvMemory::unmap() {
  for (State& state : states_)
    state.range->unmap();
}

void KvMemory::for_each_piece(const SavedRows& saved, const char* what, const Visit& visit) const {
  const int64_t total = saved.content.bytes();
  std::optional<log::Progress> progress;
  if (total >= kWorthProgress) progress.emplace(what, static_cast<double>(total) / kMegabyte, "MB");
  int64_t saved_at = 0;
  for (const State& state : states_) {
    const std::vector<int32_t>& rows = saved.rows[state.group];
    for (size_t first = 0; first < rows.size();) {
      size_t last = first + 1;
      while (last < rows.size() && rows[last] == rows[last - 1] + 1)
        ++last;
      const int64_t bytes = state.row_bytes() * static_cast<int64_t>(last - first);
      visit(state.range->data() + state.row_bytes() * rows[first], saved.content.data() + saved_at,
            bytes);
      saved_at += bytes;
      first = last;
      if (progress) progress->update(static_cast<double>(saved_at) / kMegabyte);
    }
  }
}

SavedRows KvMemory::save(StagedCopy& copy, std::vector<std::vector<int32_t>> rows) const {
  ENCORE_CHECK(rows.size() >= num_groups_);
  for (std::vector<int32_t>& of_group : rows) {
    std::sort(of_group.begin(), of_group.end());
    of_group.erase(std::unique(of_group.begin(), of_group.end()), of_group.end());
  }
  int64_t bytes = 0;
  for (const State& state : states_) {
    const std::vector<int32_t>& own = rows[state.group];
    ENCORE_CHECK(own.empty() || state.bytes_for(own.back() + 1) <= state.range->mapped_bytes());
    bytes += state.row_bytes() * static_cast<int64_t>(own.size());
  }
  SavedRows saved{std::move(rows), allocate_pageable(bytes)};
  for_each_piece(saved, "saving KV", [&](std::byte* device, std::byte* host, int64_t count) {
    copy.to_host(host, device, count);
  });
  copy.finish();
  return saved;
}

void KvMemory::restore(StagedCopy& copy, const SavedRows& saved) const {
  for_each_piece(saved, "restoring KV", [&](std::byte* device, std::byte* host, int64_t count) {
    copy.to_device(device, host, count);
  });
  copy.finish();
}

int64_t KvMemory::bytes_for(const GroupRows& rows) const {
  ENCORE_CHECK(rows.size() >= num_groups_);
  int64_t bytes = 0;
  for (const State& state : states_) {
    bytes += round_up(state.bytes_for(rows[state.group]), state.range->granularity());
  }
  return bytes;
}

int64_t KvMemory::mapped_bytes() const {
  int64_t bytes = 0;
  for (const State& state : states_)
    bytes += state.range->mapped_bytes();
  return bytes;
}

int64_t rows_that_fit(std::span<KvMemory* const> programs,
                      const std::function<GroupRows(int64_t)>& rows_beside, int64_t wanted,
                      int64_t bytes) {
  const auto fits = [&](int64_t rows) {
    int64_t needed = 0;
    for (const KvMemory* kv : programs)
      needed += kv->bytes_for(rows_beside(rows));
    return needed <= bytes;
  };
  const auto counts = std::views::iota(int64_t{1}, wanted + 1);
  return std::ranges::partition_point(counts, fits) - counts.begin();
}

}  // namespace encore::runtime
