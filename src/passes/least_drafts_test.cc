#include "passes/least_drafts.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "listing/listing.h"
#include "ops/ops.h"

namespace encore::passes {
namespace {

// Holds two passes of a draft model and the beginning of a third. Each pass writes K and V and
// makes a draft from the same row. A launch over all tokens follows them.
constexpr const char* kPasses = R"(graph g {
  input %ids: i32[T]
  input %last: i32[G]
  input %places: i32[G]
  input %slots: i32[G]
  input %lens: i32[G]
  input %rows: i32[L]
  input %lengths: i32[L]
  input %sampling: i32[B,16]
  input %fill: f32[1]
  persistent %table: i32[4,8]
  state %k: f32[8,2,16,4]
  state %v: f32[8,2,16,4]
  weight %embed: f32[16,8] = "embed"
  weight %keys: f32[8,8] = "keys"
  weight %head: f32[16,8] = "head"
  %x: f32[G,8] = embedding(%last, %embed, %fill)
  %key: f32[G,8] = linear(%x, %keys)
  %kv: f32[8,2,16,4], %kv.1: f32[8,2,16,4] = kv_write(%k, %v, %key, %key, %slots)
  %logits: f32[G,16] = linear(%x, %head)
  %next: i32[G] = sample(%logits, %logits, %sampling, %lens)
  %draft: i32[T], %draft.1: i32[G], %draft.2: i32[G], %draft.3: i32[G], %draft.4: i32[G] = extend_drafts(%next, %places, %lens, %table, %rows, %lengths, %ids) {place=1, page_size=16}
  %x.1: f32[G,8] = embedding(%draft.1, %embed, %fill)
  %key.1: f32[G,8] = linear(%x.1, %keys)
  %kv.2: f32[8,2,16,4], %kv.3: f32[8,2,16,4] = kv_write(%kv, %kv.1, %key.1, %key.1, %draft.3)
  %logits.1: f32[G,16] = linear(%x.1, %head)
  %next.1: i32[G] = sample(%logits.1, %logits.1, %sampling, %draft.4)
  %draft.5: i32[T], %draft.6: i32[G], %draft.7: i32[G], %draft.8: i32[G], %draft.9: i32[G] = extend_drafts(%next.1, %draft.2, %draft.4, %table, %rows, %lengths, %draft) {place=2, page_size=16}
  %x.2: f32[G,8] = embedding(%draft.6, %embed, %fill)
  %kv.4: f32[8,2,16,4], %kv.5: f32[8,2,16,4] = kv_write(%kv.2, %kv.3, %x.2, %x.2, %draft.8)
  %y: f32[T,8] = embedding(%draft.5, %embed, %fill)
  output %y
}
)";

TEST(LeastDrafts, AreThoseInFrontOfAPassAndOneMoreWhereADraftIsMade) {
  const ir::Graph graph = listing::parse(kPasses, ops::standard());
  const std::vector<int64_t> least = least_drafts(graph);
  std::map<std::string, int64_t> by_name;
  for (int i = 0; i < graph.num_nodes(); ++i) {
    const ir::ValueId first = *graph.nodes()[static_cast<size_t>(i)].outputs.begin();
    by_name[graph.value(first).name] = least[static_cast<size_t>(i)];
  }
  const std::map<std::string, int64_t> expected{
      {"x", 0},      {"key", 0},     {"kv", 0},    {"logits", 1}, {"next", 1},
      {"draft", 1},  {"x.1", 1},     {"key.1", 1}, {"kv.2", 1},   {"logits.1", 2},
      {"next.1", 2}, {"draft.5", 2}, {"x.2", 2},   {"kv.4", 2},   {"y", 0}};
  EXPECT_EQ(by_name, expected);
}

}  // namespace
}  // namespace encore::passes
