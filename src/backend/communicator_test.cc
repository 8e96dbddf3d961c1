#include "backend/communicator.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "base/testing/message_of.h"

namespace encore {
namespace {

using std::chrono::milliseconds;

// A timeout that no machine is slow enough to reach. Tests with a silent rank use a short timeout.
constexpr milliseconds kNever{600000};

// Runs the body on a thread for each rank, and returns the message that each threw, or "".
template <typename Body>
std::vector<std::string> run_ranks(Communicator& communicator, const Body& body) {
  std::vector<std::string> errors(static_cast<size_t>(communicator.size()));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

TEST(Communicator, GivesEveryRankTheTextsOfAllInRankOrder) {
  Communicator communicator(3, kNever);
  std::vector<std::vector<std::string>> got(3);
  run_ranks(communicator, [&](int rank) {
    for (int round = 0; round < 200; ++round) {
      const std::string text =
          fmt::format("{}{}", rank, std::string(static_cast<size_t>(round), '.'));
      got[static_cast<size_t>(rank)] =
          communicator.exchange(rank, fmt::format("round {}", round), text);
    }
  });
  const std::string dots(199, '.');
  for (const auto& texts : got)
    EXPECT_EQ(texts, (std::vector<std::string>{"0" + dots, "1" + dots, "2" + dots}));
}

TEST(Communicator, EndsEveryWaitOnceARankFails) {
  Communicator communicator(3, kNever);
  const auto errors = run_ranks(communicator, [&](int rank) {
    communicator.exchange(rank, "the start", "");
    if (rank == 1) return communicator.fail(rank, ErrorKind::kMemory, "no page is left");
    communicator.exchange(rank, "layer 5", "");
  });
  EXPECT_EQ(errors[1], "");
  for (const int rank : {0, 2}) {
    EXPECT_EQ(errors[static_cast<size_t>(rank)],
              "rank 1 of 3 failed: behind the start, no page is left; the others were at layer 5");
  }
  EXPECT_THROW(communicator.check(), Error);
}

TEST(Communicator, HasOneModelAtATimeAndNoneBehindAFailure) {
  Communicator communicator(2, kNever);
  {
    const Communicator::Use use(communicator);
    const std::string message =
        message_of(ErrorKind::kUsage, [&] { const Communicator::Use other(communicator); });
    EXPECT_NE(message.find("the 2 ranks of this device compute another model"), std::string::npos)
        << message;
  }
  { const Communicator::Use again(communicator); }
  EXPECT_FALSE(communicator.failed_rank().has_value());
  communicator.fail(1, ErrorKind::kDevice, "injected");
  EXPECT_EQ(communicator.failed_rank(), 1);
  EXPECT_NE(message_of(ErrorKind::kDevice, [&] { const Communicator::Use late(communicator); })
                .find("rank 1 of 2 failed: injected"),
            std::string::npos);
}

TEST(Communicator, NamesARankThatDoesNothing) {
  Communicator communicator(3, milliseconds(1000));
  const auto errors = run_ranks(communicator, [&](int rank) {
    communicator.exchange(rank, "the start", "");
    if (rank != 2) communicator.exchange(rank, "layer 5", "");
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(errors[static_cast<size_t>(rank)],
              "rank 2 of 3 failed: it has done nothing for 1 s, and the others wait for it at "
              "layer 5");
  }
}

TEST(Communicator, WaitsLongerForARankThatIsAtWork) {
  Communicator communicator(2, milliseconds(1500));
  const auto errors = run_ranks(communicator, [&](int rank) {
    // Rank 1 takes longer than the timeout in all, but beats in between, so rank 0 goes on waiting.
    for (int i = 0; rank == 1 && i < 20; ++i) {
      std::this_thread::sleep_for(milliseconds(100));
      communicator.beat(rank);
    }
    communicator.exchange(rank, "layer 5", "");
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
}

TEST(Communicator, NamesBothPlacesWhereRanksHaveParted) {
  Communicator communicator(2, kNever);
  const auto errors = run_ranks(communicator, [&](int rank) {
    communicator.exchange(rank, rank == 0 ? "layer 5" : "layer 6", "");
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("layer 5"), std::string::npos) << error;
    EXPECT_NE(error.find("layer 6"), std::string::npos) << error;
  }
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(Communicator, NamesTheRankThatAnotherGaveUp) {
  Communicator communicator(2, std::chrono::minutes(10));
  communicator.give_up(1, "op 'all_reduce' of layer 3", std::chrono::milliseconds(2000));
  EXPECT_EQ(
      message_of(ErrorKind::kDevice, [&] { communicator.check(); }),
      "rank 1 of 2 failed: it has not come to op 'all_reduce' of layer 3 for 2 s, and the others "
      "waited for it there");
}

}  // namespace
}  // namespace encore
