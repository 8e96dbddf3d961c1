#include <array>
#include <cstring>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "backend/device.h"

namespace encore {
namespace {

// Returns the devices of all ranks of a group.
std::vector<Device*> ranks_of(Device& first) {
  std::vector<Device*> ranks{&first};
  for (const auto& peer : first.peers())
    ranks.push_back(peer.get());
  return ranks;
}

// Runs one launch on every rank, each on its own thread, and returns `columns` floats of y of each
// rank.
std::vector<std::vector<float>> run_on_ranks(Device& first, std::string_view op,
                                             std::vector<std::vector<float>> x, int64_t rows,
                                             const ir::Attrs& attrs, bool in_place = false) {
  const std::vector<Device*> ranks = ranks_of(first);
  const int64_t columns = std::ssize(x[0]) / rows;
  const int64_t wide = columns * (op == "all_gather" ? attrs.get_int("ranks") : 1);
  std::vector<std::vector<float>> y(ranks.size(),
                                    std::vector<float>(static_cast<size_t>(rows * wide)));
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      KernelArgs args;
      args.attrs = attrs;
      args.inputs = {{"x", TensorView(x[rank].data(), DType::kF32, {rows, columns})}};
      float* const to = in_place ? x[rank].data() : y[rank].data();
      args.outputs = {{"y", TensorView(to, DType::kF32, {rows, wide})}};
      Device& device = *ranks[rank];
      const auto stream = device.create_stream();
      stream->launch({.label = op, .id = 0, .after = {}},
                     device.kernels().choose(op, args).bind(device, args), {});
      stream->synchronize();
      if (in_place) y[rank] = x[rank];
    });
  }
  threads.clear();
  return y;
}

const ir::Attrs kOf{{"of", std::string("layer 5")}};

TEST(AllReduce, AddsInTheOrderOfTheRanks) {
  const auto device = create_cpu_device({.num_threads = 3, .num_ranks = 3});
  // In any other order of additions, the small number is lost, or the sum is not 1.
  const std::vector<std::vector<float>> x{{1e8F, 3}, {-1e8F, 4}, {1, 5}};
  for (const bool in_place : {false, true}) {
    for (const auto& y : run_on_ranks(*device, "all_reduce", x, 1, kOf, in_place))
      EXPECT_EQ(y, (std::vector<float>{1, 12}));
  }
}

TEST(AllReduce, HasTheSameBitsOnEveryRankEveryTime) {
  const auto device = create_cpu_device({.num_threads = 4, .num_ranks = 4});
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> x(4, std::vector<float>(5 * 700));
  for (auto& of_rank : x) {
    for (float& element : of_rank)
      element = normal(random);
  }
  const auto expected = run_on_ranks(*device, "all_reduce", x, 5, kOf)[0];
  for (int round = 0; round < 25; ++round) {
    for (const auto& y : run_on_ranks(*device, "all_reduce", x, 5, kOf, round % 2 == 1))
      ASSERT_EQ(y, expected);
  }
}

TEST(AllGather, PutsTheColumnsOfTheRanksSideBySide) {
  const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 2});
  ir::Attrs attrs = kOf;
  attrs.set("ranks", int64_t{2});
  for (const auto& y : run_on_ranks(*device, "all_gather", {{1, 2, 3, 4}, {5, 6, 7, 8}}, 2, attrs))
    EXPECT_EQ(y, (std::vector<float>{1, 2, 5, 6, 3, 4, 7, 8}));
}

TEST(AllGather, PutsARanksOwnColumnsFirst) {
  const auto device = create_cpu_device({.num_threads = 3, .num_ranks = 3});
  ir::Attrs attrs = kOf;
  attrs.set("ranks", int64_t{3});
  attrs.set("own_first", int64_t{1});
  const auto y = run_on_ranks(*device, "all_gather", {{1, 2}, {3, 4}, {5, 6}}, 2, attrs);
  EXPECT_EQ(y[0], (std::vector<float>{1, 3, 5, 2, 4, 6}));
  EXPECT_EQ(y[1], (std::vector<float>{3, 5, 1, 4, 6, 2}));
  EXPECT_EQ(y[2], (std::vector<float>{5, 1, 3, 6, 2, 4}));
}

TEST(CpuRanks, ShareThreadsAndMemory) {
  const auto alone = create_cpu_device({.num_threads = 6});
  const auto first = create_cpu_device({.num_threads = 6, .num_ranks = 3});
  EXPECT_EQ(alone->rank(), (Rank{0, 1}));
  EXPECT_EQ(alone->communicator(), nullptr);
  const std::vector<Device*> ranks = ranks_of(*first);
  ASSERT_EQ(ranks.size(), 3U);
  for (int index = 0; index < 3; ++index) {
    const Device& device = *ranks[static_cast<size_t>(index)];
    EXPECT_EQ(device.rank(), (Rank{index, 3}));
    EXPECT_EQ(device.communicator(), first->communicator());
    EXPECT_EQ(device.info().total_bytes, alone->info().total_bytes / 3);
    EXPECT_NE(device.info().name.find("2 threads"), std::string::npos) << device.info().name;
  }
}

}  // namespace
}  // namespace encore
