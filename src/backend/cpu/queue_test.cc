#include "backend/cpu/queue.h"

#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "backend/cpu/stream.h"

namespace encore::cpu {
namespace {

// Makes launches that each write their letter to `order`.
class Order {
 public:
  Entry entry(char letter, int id, std::optional<std::vector<int>> after) {
    Entry entry;
    entry.id = id;
    entry.after = std::move(after);
    entry.tasks.push_back({{"kernel", std::string(1, letter), ""}, [=, this] { text_ += letter; }});
    return entry;
  }
  [[nodiscard]] std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

// Returns all orders that were seen over many seeds.
template <typename F>
std::set<std::string> orders(const F& append) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    ShuffledQueue queue(seed);
    Order order;
    append(queue, order);
    queue.run_all();
    EXPECT_TRUE(queue.empty());
    seen.insert(order.take());
  }
  return seen;
}

TEST(ShuffledQueue, RunsIndependentLaunchesInAnyOrder) {
  const auto seen = orders([](ShuffledQueue& queue, Order& order) {
    queue.append(order.entry('a', 0, std::vector<int>{}));
    queue.append(order.entry('b', 1, std::vector<int>{}));
    queue.append(order.entry('c', 2, std::vector<int>{}));
  });
  EXPECT_EQ(seen.size(), 6U);
}

TEST(ShuffledQueue, KeepsTheOrderThatDependenciesAsk) {
  const auto seen = orders([](ShuffledQueue& queue, Order& order) {
    queue.append(order.entry('a', 0, std::vector<int>{}));
    queue.append(order.entry('b', 1, std::vector<int>{0}));
    queue.append(order.entry('c', 2, std::vector<int>{0}));
    queue.append(order.entry('d', 3, std::vector<int>{1, 2}));
  });
  EXPECT_EQ(seen, (std::set<std::string>{"abcd", "acbd"}));
}

TEST(ShuffledQueue, EndsARoundThatWasLookedAtWhereAnIdComesAgain) {
  const auto seen = orders([](ShuffledQueue& queue, Order& order) {
    queue.append(order.entry('a', 0, std::vector<int>{}));
    queue.run_all();
    queue.append(order.entry('b', 1, std::vector<int>{0}));
    queue.append(order.entry('c', 0, std::vector<int>{}));
  });
  EXPECT_EQ(seen, (std::set<std::string>{"abc"}));
}

TEST(ShuffledQueue, TakesALaunchWithoutAListToWaitForAll) {
  const auto seen = orders([](ShuffledQueue& queue, Order& order) {
    queue.append(order.entry('a', 0, std::vector<int>{}));
    queue.append(order.entry('b', 1, std::vector<int>{}));
    queue.append(order.entry('c', 2, std::nullopt));
    queue.append(order.entry('d', 3, std::vector<int>{}));
  });
  for (const std::string& order : seen) {
    EXPECT_LT(order.find('a'), order.find('c'));
    EXPECT_LT(order.find('b'), order.find('c'));
  }
  EXPECT_TRUE(seen.contains("dabc")) << "d names nobody, so it may come first";
}

TEST(ShuffledQueue, TakesALaunchThatNobodyCanNameForABarrier) {
  const auto seen = orders([](ShuffledQueue& queue, Order& order) {
    queue.append(order.entry('a', 0, std::vector<int>{}));
    queue.append(order.entry('b', -1, std::nullopt));
    queue.append(order.entry('c', 1, std::vector<int>{}));
  });
  EXPECT_EQ(seen, (std::set<std::string>{"abc"}));
}

TEST(ShuffledQueue, EndsAWalkWhereAnIdComesAgain) {
  const auto seen = orders([](ShuffledQueue& queue, Order& order) {
    for (int round = 0; round < 3; ++round) {
      queue.append(order.entry(static_cast<char>('a' + round), 0, std::vector<int>{}));
      queue.append(order.entry(static_cast<char>('p' + round), 1, std::vector<int>{}));
    }
  });
  EXPECT_EQ(seen.size(), 8U);
  for (const std::string& order : seen) {
    EXPECT_TRUE(order.substr(0, 2) == "ap" || order.substr(0, 2) == "pa") << order;
    EXPECT_TRUE(order.substr(2, 2) == "bq" || order.substr(2, 2) == "qb") << order;
  }
}

// A step in pieces consists of a launch, a replay and a launch. The next step begins with the same
// launch.
TEST(ShuffledQueue, EndsAWalkWhereItsFirstLaunchComesAgainBehindABarrier) {
  const auto seen = orders([](ShuffledQueue& queue, Order& order) {
    for (int walk = 0; walk < 2; ++walk) {
      queue.append(order.entry(static_cast<char>('a' + walk), 0, std::vector<int>{}));
      queue.barrier();
      queue.append(order.entry(static_cast<char>('p' + walk), 1, std::vector<int>{0}));
    }
  });
  EXPECT_EQ(seen, (std::set<std::string>{"apbq"}));
}

TEST(ShuffledQueue, IgnoresIdsOfAnEarlierWalk) {
  const auto seen = orders([](ShuffledQueue& queue, Order& order) {
    queue.append(order.entry('a', 0, std::vector<int>{}));
    queue.barrier();
    queue.append(order.entry('b', 1, std::vector<int>{0}));
    queue.append(order.entry('c', 2, std::vector<int>{}));
  });
  EXPECT_EQ(seen, (std::set<std::string>{"abc", "acb"}));
}

TEST(ShuffledQueue, DropsTheRestWhenATaskThrows) {
  ShuffledQueue queue(1);
  Order order;
  Entry entry;
  entry.tasks.push_back({{}, [] { fail(ErrorKind::kDevice, "broken"); }});
  queue.append(std::move(entry));
  queue.append(order.entry('a', 0, std::nullopt));
  EXPECT_THROW(queue.run_all(), Error);
  EXPECT_TRUE(queue.empty());
  queue.append(order.entry('b', 0, std::nullopt));
  queue.run_all();
  EXPECT_EQ(order.take(), "b");
}

class ShuffledStream : public testing::Test {
 protected:
  void launch(CpuStream& stream, char letter, int id, const std::vector<int>& after) {
    const BoundLaunch bound = [this, letter](Stream& s, const StepLengths&) {
      enqueue(s, "letter", [this, letter] { text_ += letter; });
    };
    stream.launch({.label = "letter", .id = id, .after = after}, bound, {});
  }

  std::string text_;
};

TEST_F(ShuffledStream, RunsNothingUntilSomeoneLooks) {
  CpuStream stream(3);
  launch(stream, 'a', 0, {});
  EXPECT_EQ(text_, "");
  stream.synchronize();
  EXPECT_EQ(text_, "a");
  launch(stream, 'b', 0, {});
  CpuEvent event;
  stream.record(event);
  EXPECT_EQ(text_, "a");
  event.synchronize();
  EXPECT_EQ(text_, "ab");
  launch(stream, 'c', 0, {});
  char byte = 0;
  stream.copy_to_host(&byte, "x", 1);
  EXPECT_EQ(text_, "abc");
}

TEST_F(ShuffledStream, AnEventHasTheTimeWhenWhatIsInFrontOfItHadRun) {
  CpuEvent first;
  CpuEvent second;
  {
    CpuStream stream(3);
    stream.record(first);
    launch(stream, 'a', 0, {});
    stream.record(second);
    EXPECT_THROW((void)second.milliseconds_since(first), Error);
    CpuStream other(4);
    other.wait(second);
    EXPECT_EQ(text_, "a");
  }
  EXPECT_GE(second.milliseconds_since(first), 0);
  EXPECT_TRUE(second.done()) << "its stream is gone";
}

TEST_F(ShuffledStream, OrdersReplaysAsAWhole) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CpuStream stream(seed);
    stream.begin_recording();
    launch(stream, 'b', 0, {});
    launch(stream, 'c', 1, {});
    const auto recording = stream.end_recording(nullptr);
    launch(stream, 'a', 7, {});
    stream.replay(*recording);
    launch(stream, 'd', 8, {});
    EXPECT_EQ(text_, "") << "a replay is not a look";
    stream.synchronize();
    seen.insert(std::exchange(text_, {}));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"abcd", "acbd"}));
}

TEST_F(ShuffledStream, KeepsTheOrderOfOneLaunchsOwnWork) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CpuStream stream(seed);
    const BoundLaunch two = [this](Stream& s, const StepLengths&) {
      enqueue(s, "first", [this] { text_ += '1'; });
      enqueue(s, "second", [this] { text_ += '2'; });
    };
    stream.launch({.label = "two", .id = 0, .after = {}}, two, {});
    stream.synchronize();
    EXPECT_EQ(std::exchange(text_, {}), "12");
  }
}

}  // namespace
}  // namespace encore::cpu
