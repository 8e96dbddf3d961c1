// Tests that ranks compute the same bits and choose the same tokens. Where one rank chooses
// otherwise or stops, all ranks end.
#include <atomic>
#include <cstdlib>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "engine/testing/rank_model.h"

namespace encore::engine::lora {
namespace {

// Makes the device choose another token for one row of logits in one step, as a rank would whose
// choice is not tied to the other ranks' choices. Launches with fewer rows, such as those of a
// draft model, do not count.
class AnotherToken {
 public:
  AnotherToken(Device& device, int64_t row, int step) {
    row_ = row;
    num_left_ = step;
    const auto rows = device.kernels().rows();
    usual_ = *std::ranges::find(rows, "sample", &Kernel::op);
    Kernel kernel = usual_;
    kernel.bind = [](Device& of, const KernelArgs& args) -> BoundLaunch {
      const TensorView next = args.outputs["next"];
      return [usual = usual_.bind(of, args), next](Stream& stream, const StepLengths& lengths) {
        usual(stream, lengths);
        cpu::enqueue(stream, "another token", [next] {
          if (!is_armed || next.shape[0] <= row_ || --num_left_ != 0) return;
          int32_t& token = next.as<int32_t>()[row_];
          token = token == 0 ? 1 : 0;
        });
      };
    };
    device.kernels().add_first(kernel);
  }
  ~AnotherToken() { is_armed = false; }
  AnotherToken(const AnotherToken&) = delete;
  AnotherToken& operator=(const AnotherToken&) = delete;

  // Is false while the model is loaded. The token is changed only while it is true.
  static inline std::atomic<bool> is_armed = false;

 private:
  static inline int64_t row_ = 0;
  static inline int num_left_ = 0;
  static inline Kernel usual_;
};

// Hashes the logits of each row that the devices of several ranks sample and whose log
// probabilities a request asks for. For such a row each rank has all logits.
class SampledLogits {
 public:
  using Hashes = std::vector<size_t>;

  explicit SampledLogits(Device& first) {
    hashes_.clear();
    add(first);
    for (const auto& peer : first.peers())
      add(*peer);
  }
  ~SampledLogits() { is_armed = false; }
  SampledLogits(const SampledLogits&) = delete;
  SampledLogits& operator=(const SampledLogits&) = delete;

  [[nodiscard]] static const Hashes& of(const Device& device) { return hashes_.at(&device); }

  // Is false while the model is loaded. Logits are hashed only while it is true.
  static inline std::atomic<bool> is_armed = false;

 private:
  static void add(Device& device) {
    hashes_[&device] = {};
    const auto rows = device.kernels().rows();
    usual_ = *std::ranges::find(rows, "sample", &Kernel::op);
    Kernel kernel = usual_;
    kernel.bind = [](Device& on, const KernelArgs& args) -> BoundLaunch {
      Hashes* const hashes = &hashes_.at(&on);
      const TensorView logits = args.inputs["logits"];
      const auto* const kv_lens = args.inputs["kv_lens"].as<int32_t>();
      const auto* const sampling = args.inputs["sampling"].as<SamplingRow>();
      const int64_t rows_each = logits.num_rows() / args.inputs["sampling"].num_rows();
      return [usual = usual_.bind(on, args), hashes, logits, kv_lens, sampling, rows_each](
                 Stream& stream, const StepLengths& lengths) {
        usual(stream, lengths);
        cpu::enqueue(stream, "hashes", [hashes, logits, kv_lens, sampling, rows_each] {
          for (int64_t l = 0; is_armed && l < logits.num_rows(); ++l) {
            const SamplingRow& row = sampling[l / rows_each];
            if (kv_lens[l] <= 0 || row.params.num_logprobs < 0) continue;
            const auto* const bytes = reinterpret_cast<const char*>(logits.row<float>(l));
            hashes->push_back(std::hash<std::string_view>()(
                {bytes, static_cast<size_t>(logits.row_elements()) * sizeof(float)}));
          }
        });
      };
    };
    device.kernels().add_first(kernel);
  }
  // The thread of a rank touches the entry of its own device only.
  static inline std::map<const Device*, Hashes> hashes_;
  static inline Kernel usual_;
};

class TensorParallelTokens : public RankModelTest {
 protected:
  // Runs a request while rank 1 chooses another token. Returns the message with which the request
  // ends.
  [[nodiscard]] std::string run_apart(int64_t row, int64_t burst_steps) const {
    const auto device = ranks_of_cpu(2);
    const AnotherToken plant(*device->peers()[0], row, 5);
    const auto model = load(*device, options_);
    AnotherToken::is_armed = true;
    Engine engine(*model, {.burst_steps = burst_steps});
    Request request = request_of("", 1, 9);
    request.max_tokens = 90;
    (void)engine.add(std::move(request));
    return message_of(ErrorKind::kDevice, [&] {
      while (engine.step([](const Generated&) {})) {
      }
    });
  }
};

TEST_F(TensorParallelTokens, ThatDifferEndAllRanksWithTheStepAndTheSequence) {
  options_.scores_prompts = false;
  for (const int64_t burst_steps : {1, 16}) {
    const std::string message = run_apart(0, burst_steps);
    EXPECT_NE(message.find("rank 1 of 2 failed"), std::string::npos) << message;
    EXPECT_NE(message.find("gave sequence 0 of the batch token"), std::string::npos) << message;
  }
}

// The draft model is the model itself, so all of its drafts are right, except the one that rank 1
// refuses.
TEST_F(TensorParallelTokens, ThatAreNotAsManyOnAllRanksEndAllOfThem) {
  options_.scores_prompts = false;
  options_.draft = source();
  options_.limits.num_drafts = 3;
  const std::string message = run_apart(1, 1);
  EXPECT_NE(message.find("rank 1 of 2 failed"), std::string::npos) << message;
  EXPECT_NE(
      message.find(
          "2 tokens on its device and 4 on that of rank 0: the ranks accept different drafts"),
      std::string::npos)
      << message;
}

// Each token of the first half of the vocabulary, which rank 0 has, has a twin with equal logits in
// the other rank's half.
TEST_F(TensorParallelTokens, AreChosenAlikeWhereLogitsOfTwoRanksAreEqual) {
  std::vector<TypedTensor> tensors = base_tensors(kLlama);
  for (TypedTensor& tensor : tensors) {
    if (tensor.name != "lm_head.weight") continue;
    const auto half = static_cast<ptrdiff_t>(tensor.values.size() / 2);
    std::copy_n(tensor.values.begin(), half, tensor.values.begin() + half);
  }
  write_model(dir_, kLlama, tensors);
  options_.scores_prompts = false;
  options_.draft = source();
  options_.limits.num_drafts = 4;
  options_.limits.max_num_tokens =
      std::max(options_.limits.max_num_tokens, 5 * options_.limits.max_batch_size);
  const auto run = [&](int num_ranks) {
    const auto device = ranks_of_cpu(num_ranks);
    const auto model = load(*device, options_);
    Engine engine(*model);
    std::vector<std::vector<int32_t>> tokens;
    for (int round = 0; round < 3; ++round) {
      std::vector<Request> requests;
      for (int i = 0; i < 8; ++i) {
        requests.push_back(request_of("", 8 * round + i, 5 + i));
        requests.back().max_tokens = 60;
        if (i % 2 == 1) requests.back().sampling.temperature = 0.7F;
        if (i % 4 == 3) requests.back().sampling.top_k = 6;
      }
      for (const Answer& answer : answers(engine, requests))
        tokens.push_back(answer.tokens);
    }
    return tokens;
  };
  EXPECT_EQ(run(2), run(1));
}

class TensorParallelBits : public RankModelTest {};

// ENCORE_RANK_RUNS sets the number of runs.
TEST_F(TensorParallelBits, AreEqualOnAllRanksAndInAllRuns) {
  const char* const wanted = std::getenv("ENCORE_RANK_RUNS");
  const int num_runs = wanted != nullptr ? std::stoi(wanted) : 3;
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(request_of("", i, 5 + 6 * i));
    if (i % 2 == 1) requests.back().sampling.temperature = 0.8F;
  }
  for (const int num_ranks : {2, 4}) {
    std::vector<Answer> expected;
    SampledLogits::Hashes hashes;
    for (int run = 0; run < num_runs; ++run) {
      SCOPED_TRACE(fmt::format("{} ranks, run {}", num_ranks, run));
      const auto device = ranks_of_cpu(num_ranks);
      const SampledLogits logits(*device);
      std::vector<Answer> given;
      {
        const auto model = load(*device, options_);
        SampledLogits::is_armed = true;
        Engine engine(*model);
        given = answers(engine, requests);
      }
      const SampledLogits::Hashes& of_first = SampledLogits::of(*device);
      EXPECT_GE(of_first.size(), 8U * 12U);
      for (const auto& peer : device->peers())
        EXPECT_EQ(SampledLogits::of(*peer), of_first) << "rank " << peer->rank().index;
      if (run == 0) {
        expected = given;
        hashes = of_first;
      }
      EXPECT_TRUE(given == expected);
      EXPECT_EQ(of_first, hashes);
    }
  }
}

class TensorParallelStops : public RankModelTest {};

// In a burst the other rank comes to the next step and waits there. After a single step it has
// nothing to do.
TEST_F(TensorParallelStops, OfTheThreadThatEndsRequestsAreToldOfByAnother) {
  options_.scores_prompts = false;
  for (const int64_t burst_steps : {1, 16}) {
    SCOPED_TRACE(burst_steps);
    std::string told;
    std::atomic<bool> is_told = false;
    options_.on_stopped_rank0 = [&](const Error& error) {
      told = error.what();
      is_told = true;
      is_told.notify_all();
    };
    const auto device = ranks_of_cpu(2, std::chrono::milliseconds(1000));
    int num_steps = 0;
    const BehindLogits stops(*device, [&] {
      if (++num_steps == 5) is_told.wait(false);
    });
    const auto model = load(*device, options_);
    BehindLogits::is_armed = true;
    Engine engine(*model, {.burst_steps = burst_steps});
    Request request = request_of("", 1, 9);
    request.max_tokens = 60;
    (void)engine.add(std::move(request));
    const std::string message = message_of(ErrorKind::kDevice, [&] {
      while (engine.step([](const Generated&) {})) {
      }
    });
    EXPECT_NE(told.find("rank 0 of 2 failed: "), std::string::npos) << told;
    EXPECT_NE(told.find("it has done nothing for 1 s"), std::string::npos) << told;
    EXPECT_NE(message.find("it has done nothing for 1 s"), std::string::npos) << message;
  }
}

TEST_F(TensorParallelStops, OfTheThreadThatHasToldOfItselfAreToldOfByNoOther) {
  std::atomic<bool> is_told = false;
  options_.on_stopped_rank0 = [&](const Error&) { is_told = true; };
  const auto device = ranks_of_cpu(2, std::chrono::milliseconds(2000));
  int num_steps = 0;
  const BehindLogits fails(*device, [&] {
    if (++num_steps == 5) fail(ErrorKind::kDevice, "injected");
  });
  {
    const auto model = load(*device, options_);
    BehindLogits::is_armed = true;
    Engine engine(*model);
    (void)engine.add(request_of("", 1, 9));
    const std::string message = message_of(ErrorKind::kDevice, [&] {
      while (engine.step([](const Generated&) {})) {
      }
    });
    EXPECT_NE(message.find("injected"), std::string::npos) << message;
  }
  EXPECT_FALSE(is_told);
}

// While it waits, the other rank checks every eighth of the limit of 4,000 ms, so every 500 ms,
// whether rank 0 is behind. The pause of 1,200 ms has two such checks.
TEST_F(TensorParallelStops, AreNotThoseOfRanksThatHaveNothingToDo) {
  const auto device = ranks_of_cpu(2, std::chrono::milliseconds(4000));
  const auto model = load(*device, options_);
  Engine engine(*model);
  const std::vector<Answer> before = answers(engine, {request_of("", 1)});
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_TRUE(answers(engine, {request_of("", 1)}) == before);
}

}  // namespace
}  // namespace encore::engine::lora
