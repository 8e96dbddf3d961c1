#include "kv/window_group.h"

#include <algorithm>

#include "base/error.h"
#include "base/rounding.h"

namespace encore::kv {

int64_t WindowRule::first_place(int64_t position) const {
  return std::max<int64_t>(0, position - window + 1) / page_size;
}

// A token may be chosen again, so the position that a sequence computes next may lie up to two
// tokens before the end of its launched tokens. Steps with drafts get pages for three times their
// number of drafts.
int64_t WindowRule::pages_each() const {
  constexpr int64_t kBehind = 2;
  const int64_t tokens = window + kBehind + 1 + 3 * num_drafts;
  // Two pages are added because the tokens of the window, and the tokens that a step fills, may
  // begin and end within a page.
  return div_up(tokens, page_size) + 2 + kMostAhead;
}

int64_t WindowRule::pages_a_step() const {
  return div_up(step_tokens, page_size);
}

int64_t WindowRule::pages_beside(int64_t num_whole, int64_t wanted_whole,
                                 int64_t num_sequences) const {
  const int64_t share =
      div_up(pages_for(num_sequences) * num_whole, std::max<int64_t>(1, wanted_whole));
  return std::min(num_whole, std::max(pages_for(1), share));
}

WindowGroup::WindowGroup(int64_t num_pages, const WindowRule& rule, bool keeps_prefixes)
    : rule_(rule),
      pool_(num_pages, rule.page_size),
      cache_(keeps_prefixes ? std::make_unique<PrefixCache>(pool_) : nullptr) {}

int64_t WindowGroup::num_missing(const WindowPages& held, int64_t end) const {
  return std::max<int64_t>(0, pool_.pages_for(end) - std::ssize(held.pages));
}

bool WindowGroup::grow(WindowPages& held, int64_t end) {
  const auto pages = pool_.allocate(num_missing(held, end));
  if (!pages) return false;
  held.pages.insert(held.pages.end(), pages->begin(), pages->end());
  return true;
}

void WindowGroup::leave_behind(WindowPages& held, int64_t position) {
  const int64_t first = std::min(rule_.first_place(position), std::ssize(held.pages));
  if (first <= held.first) return;
  const auto from = held.pages.begin() + held.first;
  const auto to = held.pages.begin() + first;
  pool_.release({from, to});
  std::fill(from, to, kNoPage);
  held.first = first;
}

void WindowGroup::release(WindowPages& held) {
  pool_.release({held.pages.begin() + held.first, held.pages.end()});
  held = {};
}

int64_t WindowGroup::num_startable(const PageChain& chain, int64_t num_pages) const {
  if (cache_ == nullptr) return 0;
  // A sequence that started anywhere behind a missing page would see that page, so it can start in
  // front of the missing page at most.
  for (int64_t place = num_pages; place > rule_.first_place(num_pages * rule_.page_size);) {
    if (!cache_->find_page(chain.hashes[static_cast<size_t>(--place)])) num_pages = place;
  }
  return num_pages;
}

void WindowGroup::start(WindowPages& held, const PageChain& chain, int64_t num_pages) {
  ENCORE_CHECK(held.pages.empty());
  held.first = rule_.first_place(num_pages * rule_.page_size);
  held.pages.assign(static_cast<size_t>(held.first), kNoPage);
  for (int64_t place = held.first; place < num_pages; ++place) {
    const auto page = cache_->find_page(chain.hashes[static_cast<size_t>(place)]);
    ENCORE_CHECK(page.has_value(), "a sequence starts behind page {}, which is not there", place);
    pool_.share(*page);
    held.pages.push_back(*page);
  }
  held.num_offered = num_pages;
}

void WindowGroup::store(WindowPages& held, const PageChain& chain, int64_t num_pages) {
  if (cache_ == nullptr || num_pages <= held.num_offered) return;
  const int64_t first = std::max(held.first, held.num_offered);
  cache_->store_pages(chain, {}, held.pages, std::min(first, num_pages), num_pages);
  held.num_offered = num_pages;
}

void WindowGroup::forget_idle() {
  if (cache_) cache_->forget_idle();
}

}  // namespace encore::kv
