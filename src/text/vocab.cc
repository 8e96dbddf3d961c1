#include "text/vocab.h"

#include "base/error.h"

namespace encore::text {

namespace {
constexpr size_t kInitialSlots = 64;
}  // namespace

Vocab::Vocab() : slots_(kInitialSlots) {}

size_t Vocab::slot_of(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  size_t i = hash_bytes(token) & mask;
  while (slots_[i].id >= 0 && slots_[i].token != token)
    i = (i + 1) & mask;
  return i;
}

void Vocab::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.id >= 0) slots_[slot_of(slot.token)] = slot;
  }
}

void Vocab::add(std::string_view token, int32_t id) {
  ENCORE_CHECK(id >= 0 && id < kMaxIds, "id {}", id);
  Slot* slot = &slots_[slot_of(token)];
  if (slot->id < 0) {
    if (static_cast<size_t>(num_tokens_) * 2 >= slots_.size()) {
      grow();
      slot = &slots_[slot_of(token)];
    }
    slot->token = texts_.emplace_back(token);
    ++num_tokens_;
  }
  slot->id = id;
  if (id >= num_ids()) text_of_id_.resize(static_cast<size_t>(id) + 1);
  std::string_view& text = text_of_id_[static_cast<size_t>(id)];
  if (text.data() == nullptr) text = slot->token;
}

int32_t Vocab::find(std::string_view token) const {
  return slots_[slot_of(token)].id;
}

}  // namespace encore::text
