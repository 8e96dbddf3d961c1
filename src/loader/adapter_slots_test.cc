#include "loader/adapter_slots.h"

#include <future>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore::loader {
namespace {

using State = ResidentAdapter::State;
using Resident = std::shared_ptr<const ResidentAdapter>;

// Tests AdapterSlots with loads that copy nothing. Each load notes its adapter and its adapter
// slot. The load of an adapter that is held back waits, and the load of a broken adapter fails.
class AdapterSlotsTest : public ::testing::Test {
 protected:
  void make(int64_t num_slots) {
    slots_ =
        std::make_unique<AdapterSlots>(num_slots, [this](const Adapter& adapter, int32_t slot) {
          std::unique_lock lock(mutex_);
          loads_.emplace_back(adapter.name, slot);
          changed_.notify_all();
          changed_.wait(lock, [&] { return !held_back_.contains(adapter.name); });
          if (broken_.contains(adapter.name)) fail(ErrorKind::kModel, "{} is broken", adapter.name);
        });
    slots_->resume();
  }
  std::shared_ptr<const Adapter> adapter(const std::string& name) {
    auto& adapter = adapters_[name];
    if (!adapter)
      adapter = std::make_shared<const Adapter>(Adapter{name, {}, std::ssize(adapters_)});
    return adapter;
  }
  Resident take(const std::string& name) { return slots_->take(adapter(name), {0, next_order_++}); }
  // Waits until the adapter is in an adapter slot or its load has failed.
  Resident ready(const Resident& resident) {
    while (resident->state() == State::kAwaited) {
      slots_->wait(std::chrono::milliseconds(10));
      slots_->hand_out();
    }
    return resident;
  }
  void hold_back(const std::string& name) {
    const std::lock_guard lock(mutex_);
    held_back_.insert(name);
  }
  void let_go(const std::string& name) {
    const std::lock_guard lock(mutex_);
    held_back_.erase(name);
    changed_.notify_all();
  }
  std::vector<std::pair<std::string, int32_t>> loads() {
    const std::lock_guard lock(mutex_);
    return std::exchange(loads_, {});
  }

  std::map<std::string, std::shared_ptr<const Adapter>> adapters_;
  int64_t next_order_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> held_back_;
  std::set<std::string> broken_;
  std::vector<std::pair<std::string, int32_t>> loads_;
  std::unique_ptr<AdapterSlots> slots_;  // last, since its threads use the members above
};

TEST_F(AdapterSlotsTest, ShareTheSlotOfAnAdapter) {
  make(2);
  const Resident a = ready(take("a"));
  EXPECT_EQ(a->state(), State::kThere);
  EXPECT_EQ(take("a"), a);
  const Resident b = ready(take("b"));
  EXPECT_NE(a->slot(), b->slot());
  EXPECT_EQ(loads().size(), 2U);
  EXPECT_EQ(slots_->stats().num_resident, 2);
}

TEST_F(AdapterSlotsTest, KeepAdaptersThatNobodyHasUntilTheirSlotIsNeeded) {
  make(2);
  (void)ready(take("a"));
  (void)ready(take("b"));
  const int32_t slot_of_a = take("a")->slot();  // now b is the least recently used
  EXPECT_EQ(take("a")->state(), State::kThere);
  const Resident c = ready(take("c"));
  EXPECT_NE(c->slot(), slot_of_a);
  EXPECT_EQ(take("a")->state(), State::kThere);
  EXPECT_EQ(slots_->stats().num_evictions, 1);
  (void)loads();
  (void)ready(take("b"));
  EXPECT_EQ(loads(), (std::vector<std::pair<std::string, int32_t>>{{"b", slot_of_a}}));
}

TEST_F(AdapterSlotsTest, GoToThoseWhoWaitInTheirOrder) {
  make(1);
  Resident a = ready(take("a"));
  next_order_ = 10;
  const Resident c = take("c");
  next_order_ = 5;
  const Resident b = take("b");
  EXPECT_EQ(take("b"), b);
  EXPECT_EQ(b->state(), State::kAwaited);
  a.reset();
  (void)ready(b);
  EXPECT_EQ(c->state(), State::kAwaited);
  EXPECT_EQ(slots_->stats().num_awaited, 1);
}

TEST_F(AdapterSlotsTest, TakeNoMoreUsersWhereOthersWait) {
  make(2);
  Resident a = ready(take("a"));
  const Resident b = ready(take("b"));
  Resident c = take("c");
  EXPECT_EQ(take("a"), nullptr);  // a was last taken before b
  EXPECT_EQ(take("b"), b);
  a.reset();
  (void)ready(c);
  EXPECT_EQ(take("b"), b);  // nobody waits any more
  c.reset();
  EXPECT_EQ(ready(take("a"))->state(), State::kThere);
}

TEST_F(AdapterSlotsTest, FewSlotsTakeNoMoreUsersHoweverManyWait) {
  make(3);
  const Resident a = ready(take("a"));
  const Resident b = ready(take("b"));
  const Resident c = ready(take("c"));
  const Resident d = take("d");
  const Resident e = take("e");
  EXPECT_EQ(take("a"), nullptr);
  EXPECT_EQ(take("b"), b);
  EXPECT_EQ(take("c"), c);
}

TEST_F(AdapterSlotsTest, ForgetThoseWhoWaitNoMore) {
  make(1);
  Resident a = ready(take("a"));
  take("b").reset();
  EXPECT_EQ(slots_->stats().num_awaited, 0);
  a.reset();
  slots_->hand_out();
  EXPECT_EQ(take("a")->state(), State::kThere);
  EXPECT_EQ(loads().size(), 1U);
}

TEST_F(AdapterSlotsTest, LoadsDoNotWaitForSlowOnes) {
  make(2);
  hold_back("slow");
  const Resident slow = take("slow");
  EXPECT_EQ(ready(take("fast"))->state(), State::kThere);
  EXPECT_EQ(slow->state(), State::kAwaited);
  let_go("slow");
  EXPECT_EQ(ready(slow)->state(), State::kThere);
}

TEST_F(AdapterSlotsTest, TellThoseWhoWaitWhyALoadFailed) {
  make(1);
  broken_.insert("a");
  hold_back("a");
  const Resident a = take("a");
  EXPECT_EQ(take("a"), a);
  let_go("a");
  EXPECT_EQ(ready(a)->state(), State::kFailed);
  EXPECT_EQ(a->problem(), "a is broken");
  EXPECT_EQ(slots_->num_failures(), 1);
  {
    const std::lock_guard lock(mutex_);
    broken_.clear();
  }
  EXPECT_EQ(ready(take("a"))->state(), State::kThere);  // a new request tries the load again
}

TEST_F(AdapterSlotsTest, LoadAgainWhatSomebodyHasWhenTheMemoryIsBack) {
  make(3);
  const Resident a = ready(take("a"));
  (void)ready(take("b"));
  const Resident broken = ready(take("broken"));
  slots_->pause();
  {
    const std::lock_guard lock(mutex_);
    loads_.clear();
    broken_.insert("broken");
  }
  const Resident c = take("c");
  EXPECT_EQ(c->state(), State::kAwaited);
  slots_->resume();
  EXPECT_EQ(a->state(), State::kThere);
  EXPECT_EQ(broken->state(), State::kFailed);
  (void)ready(c);
  const auto loaded = loads();
  ASSERT_EQ(loaded.size(), 3U);
  EXPECT_EQ(loaded[0], (std::pair<std::string, int32_t>{"a", a->slot()}));
  EXPECT_EQ(loaded[1].first, "broken");
  EXPECT_EQ(loaded[2].first, "c");
  EXPECT_EQ(ready(take("b"))->state(), State::kThere);
}

TEST_F(AdapterSlotsTest, EndWhileLoadsGoOn) {
  make(2);
  hold_back("a");
  const Resident a = take("a");
  const Resident b = take("b");
  const auto ends = std::async(std::launch::async, [&] { slots_.reset(); });
  let_go("a");
  ends.wait();
}

}  // namespace
}  // namespace encore::loader
