#include "loader/lockstep.h"

#include <thread>

#include <gtest/gtest.h>

#include "model/testing/small_config.h"

namespace encore::loader {
namespace {

LoadOptions load_options() {
  LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 64};
  return options;
}

std::string text_of(int rank, LoadOptions options,
                    const model::ModelConfig& config = model::small_config("LlamaForCausalLM", 2)) {
  options.rank = {rank, 2};
  const passes::Program program = compile_model({config, std::nullopt}, options, 8);
  return lockstep_text(program, options, runtime::wanted_coverage(options));
}

// Returns the message with which two ranks with these texts end. Expects that both end with the
// same message.
std::string difference(const std::string& first, const std::string& second) {
  Communicator communicator(2, std::chrono::minutes(10));
  std::array<std::string, 2> errors;
  std::vector<std::jthread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      try {
        require_lockstep(communicator, rank, rank == 0 ? first : second);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  threads.clear();
  EXPECT_EQ(errors[0], errors[1]);
  return errors[0];
}

TEST(Lockstep, HoldsBetweenTheSharesOfAModel) {
  const std::string text = text_of(0, load_options());
  EXPECT_EQ(text, text_of(1, load_options()));
  EXPECT_EQ(difference(text, text_of(1, load_options())), "");
}

TEST(Lockstep, NamesTheFirstLineThatDiffers) {
  const std::string first = text_of(0, load_options());
  const auto expect_named = [&](const LoadOptions& options, const std::string& line) {
    const std::string message = difference(first, text_of(1, options));
    EXPECT_NE(message.find("rank 1 has \"" + line), std::string::npos) << message;
    EXPECT_NE(message.find("nothing was recorded"), std::string::npos) << message;
  };
  LoadOptions size = load_options();
  size.sequences = runtime::Ladder({1, 3, 4});
  expect_named(size, "sizes of decode steps: 1 3 4\"");
  LoadOptions order = load_options();
  order.record_order = runtime::RecordOrder::kAscending;
  expect_named(order, "options: ");
  LoadOptions option = load_options();
  option.compile.batch_invariant = true;
  expect_named(option, "options: ");
  LoadOptions limits = load_options();
  limits.limits.max_seq_len = 32;
  expect_named(limits, "limits: ");
  LoadOptions nodes = load_options();
  nodes.compile.disabled = {"fuse_silu_mul"};
  expect_named(nodes, "");
  LoadOptions layout = load_options();
  layout.compile.reuse_memory = false;
  expect_named(layout, "node ");
}

TEST(Lockstep, NamesAWeightThatDiffers) {
  model::ModelConfig config = model::small_config("LlamaForCausalLM", 2);
  config.intermediate_size = 128;
  const std::string message =
      difference(text_of(0, load_options()), text_of(1, load_options(), config));
  EXPECT_NE(message.find("weight model.layers.0.mlp"), std::string::npos) << message;
  EXPECT_EQ(message.find("self_attn"), std::string::npos) << "other lines: " << message;
}

TEST(Lockstep, NamesALaunchThatDiffers) {
  const std::string first =
      "launch of 4 tokens, node 7: linear.gemv\nlaunch of 4 tokens, node 8: add.packed\n";
  const std::string second =
      "launch of 4 tokens, node 7: linear.gemv\nlaunch of 4 tokens, node 8: add.scalar\n";
  const std::string message = difference(first, second);
  EXPECT_NE(message.find("rank 1 has \"launch of 4 tokens, node 8: add.scalar\", where rank 0 has "
                         "\"launch of 4 tokens, node 8: add.packed\""),
            std::string::npos)
      << message;
}

TEST(Lockstep, NamesASliceThatIsNotTheRanks) {
  const auto slices_of = [](int rank) {
    LoadOptions options = load_options();
    options.rank = {rank, 2};
    return slices_text(
        compile_model({model::small_config("LlamaForCausalLM", 2), std::nullopt}, options, 8));
  };
  EXPECT_NE(slices_of(0), slices_of(1));
  const auto compare = [&](const std::string& first, const std::string& second) {
    Communicator communicator(2, std::chrono::minutes(10));
    std::string message;
    std::jthread other([&] { require_slices(communicator, 1, second, nullptr); });
    try {
      require_slices(communicator, 0, first, slices_of);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCompile);
      message = error.what();
    }
    return message;
  };
  EXPECT_EQ(compare(slices_of(0), slices_of(1)), "");
  // Both ranks have the slices of rank 0, which are as large as those of rank 1 and would load
  // without an error.
  const std::string message = compare(slices_of(0), slices_of(0));
  EXPECT_NE(message.find("rank 1 has \"weight model."), std::string::npos) << message;
  EXPECT_NE(message.find("where its share is \"weight model."), std::string::npos) << message;
}

TEST(Lockstep, DoesSomethingOnAllRanksOrOnNone) {
  for (const int failing : {-1, 0, 1, 2}) {
    Communicator communicator(3, std::chrono::minutes(10));
    std::array<int, 3> done{};
    std::array<std::string, 3> errors;
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        int& own = done[static_cast<size_t>(rank)];
        const auto error = do_on_all(
            communicator, rank, "a test",
            [&] {
              if (rank == failing) fail(ErrorKind::kMemory, "no room");
              own = 1;
            },
            [&] { own = 0; });
        if (error) errors[static_cast<size_t>(rank)] = error->what();
      });
    }
    threads.clear();
    const int expected = failing < 0 ? 1 : 0;
    const std::string message = failing < 0 ? "" : fmt::format("rank {}: no room", failing);
    for (size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(done[rank], expected);
      EXPECT_EQ(errors[rank], message);
    }
  }
}

TEST(Lockstep, KeepsAsManyPagesAsTheRankWithTheLeastRoom) {
  Communicator communicator(3, std::chrono::minutes(10));
  std::array<int64_t, 3> pages = {90, 70, 80};
  std::vector<std::jthread> threads;
  for (const int rank : {0, 1, 2}) {
    threads.emplace_back([&, rank] {
      int64_t& own = pages[static_cast<size_t>(rank)];
      own = fewest_pages(communicator, rank, own);
    });
  }
  threads.clear();
  EXPECT_EQ(pages, (std::array<int64_t, 3>{70, 70, 70}));
}

}  // namespace
}  // namespace encore::loader
