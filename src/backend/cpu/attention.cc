// Attention over a paged KV cache, for uniform and mixed steps alike.
//
// One task is one KV head and a few query tokens of one sequence, with all query heads that share
// the KV head. A task walks the sequence's pages in order with a running maximum (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018), one page at a time, so a row's
// bits depend on its own length and the page size alone.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"

namespace encore::cpu {
namespace {

constexpr int64_t kTokensPerTask = 8;

struct Attention {
  explicit Attention(const KernelArgs& args)
      : q(args.inputs["q"]),
        k_cache(args.inputs["k_cache"]),
        v_cache(args.inputs["v_cache"]),
        page_table(args.inputs["page_table"]),
        kv_lens(args.inputs["kv_lens"].as<int32_t>()),
        num_sequences(args.inputs["kv_lens"].num_rows()),
        query_starts(args.inputs["query_starts"].as<int32_t>()),
        y(args.outputs["o"]),
        sinks(args.inputs.find("sinks")),
        scale(static_cast<float>(args.attrs.get_double("scale"))) {
    if (args.attrs.find("window") != nullptr) window = args.attrs.get_int("window");
    if (args.attrs.find("softcap") != nullptr)
      softcap = static_cast<float>(args.attrs.get_double("softcap"));
  }

  [[nodiscard]] int64_t num_kv_heads() const { return k_cache.shape[1]; }
  [[nodiscard]] int64_t page_size() const { return k_cache.shape[2]; }
  [[nodiscard]] int64_t head_size() const { return k_cache.shape[3]; }
  [[nodiscard]] int64_t group() const { return q.shape[1] / head_size() / num_kv_heads(); }

  const TensorView& q;
  const TensorView& k_cache;
  const TensorView& v_cache;
  const TensorView& page_table;
  const int32_t* kv_lens;
  int64_t num_sequences;
  const int32_t* query_starts;
  const TensorView& y;
  const TensorView* sinks;  // null: the model has no sinks
  float scale;
  int64_t window = std::numeric_limits<int64_t>::max();
  float softcap = 0;  // 0: scores are not capped
};

// Query rows [first, last) of one sequence. Row r sees the first r + seen_offset + 1 tokens.
struct Task {
  int64_t sequence = 0;
  int64_t first = 0;
  int64_t last = 0;
  int64_t seen_offset = 0;
};

// Returns one past the last token that a row sees.
int64_t num_seen(const Task& task, int64_t row) {
  return std::max<int64_t>(0, row + task.seen_offset + 1);
}

// Returns the first token that a row sees.
int64_t first_seen(const Attention& a, const Task& task, int64_t row) {
  return std::max<int64_t>(0, num_seen(task, row) - a.window);
}

void zero_rows(const TensorView& y, int64_t first, int64_t last) {
  for (int64_t r = first; r < last; ++r) {
    std::fill_n(row_bytes(y, r), y.shape[1] * size_of(y.dtype), std::byte{0});
  }
}

// Cuts the step into tasks. In a uniform step, which has `q` tokens per sequence, it also writes
// zeros to rows that have no tokens to attend to. In a mixed step, `q` is 0.
std::vector<Task> make_tasks(const Attention& a, int q) {
  std::vector<Task> tasks;
  const int64_t num_rows = a.q.shape[0];
  const int64_t num_sequences = a.num_sequences;
  const int64_t max_len = a.page_table.shape[1] * a.page_size();
  for (int64_t b = 0; b < num_sequences; ++b) {
    const int64_t begin = std::clamp<int64_t>(q > 0 ? b * q : a.query_starts[b], 0, num_rows);
    const int64_t end =
        std::clamp<int64_t>(q > 0 ? (b + 1) * q : a.query_starts[b + 1], begin, num_rows);
    const int64_t kv_len = std::clamp<int64_t>(a.kv_lens[b], 0, max_len);
    if (kv_len == 0) {
      if (q > 0) zero_rows(a.y, begin, end);
      continue;
    }
    for (int64_t row = begin; row < end; row += kTokensPerTask) {
      tasks.push_back({b, row, std::min(row + kTokensPerTask, end), kv_len - end});
    }
  }
  if (q > 0) zero_rows(a.y, std::min(num_sequences * q, num_rows), num_rows);
  return tasks;
}

// The working memory of one task, which has `rows` query rows (tokens times heads of the group).
struct State {
  State(int64_t rows, int64_t head_size, int64_t page_size)
      : query(thread_buffer(Buffer::kFirst, rows * head_size)),
        sum(thread_buffer(Buffer::kSecond, rows * head_size)),
        page(thread_buffer(Buffer::kThird, page_size * head_size)),
        scores(thread_buffer(Buffer::kFourth, rows * (page_size + 2))),
        maximum(scores + rows * page_size),
        total(maximum + rows) {}

  float* query;    // [rows, C], scaled
  float* sum;      // [rows, C]: sum of exp(score - maximum) v
  float* page;     // [S, C]: one page of K or V, widened
  float* scores;   // [rows, S]
  float* maximum;  // [rows]
  float* total;    // [rows]: sum of exp(score - maximum)
};

void load_page(const TensorView& cache, int64_t page, int64_t head, int64_t num_slots, float* to) {
  const int64_t head_elements = cache.shape[2] * cache.shape[3];
  const int64_t first = (page * cache.shape[1] + head) * head_elements;
  simd().load(cache.as<std::byte>() + first * size_of(cache.dtype), cache.dtype,
              num_slots * cache.shape[3], to);
}

// Turns the scores of one row and one page into weights, and scales earlier sums to the new
// maximum.
void weigh_row(const State& state, int64_t row, int64_t num_slots, float* scores,
               int64_t head_size) {
  const float before = state.maximum[row];
  const float now = std::max(before, simd().max_number(scores, num_slots));
  const float page_total = simd().exp_sum(scores, num_slots, now);
  if (now != before) {
    float factor = before - now;
    simd().exp(&factor, 1);
    state.total[row] *= factor;
    for (int64_t c = 0; c < head_size; ++c)
      state.sum[row * head_size + c] *= factor;
    state.maximum[row] = now;
  }
  state.total[row] += page_total;
}

void cap(const Attention& a, float* scores, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    scores[i] = a.softcap * std::tanh(scores[i] / a.softcap);
}

// Adds one page, whose first token is `start`, to every row of the task that sees a token of it.
void attend_page(const Attention& a, const Task& task, int64_t head, int64_t start,
                 const State& state) {
  const int64_t group = a.group();
  const int64_t head_size = a.head_size();
  const int64_t page_size = a.page_size();
  const int64_t entry = start / page_size;
  const int64_t page = std::clamp<int64_t>(a.page_table.row<int32_t>(task.sequence)[entry], 0,
                                           a.k_cache.shape[0] - 1);
  // A later row sees more tokens. So the last row decides where reading ends, and the first row
  // that sees any token decides where it begins.
  const int64_t most = std::min(page_size, num_seen(task, task.last - 1) - start);
  int64_t first = task.first;
  while (num_seen(task, first) <= start)
    ++first;
  const int64_t row = (first - task.first) * group;
  const int64_t num_rows = (task.last - first) * group;

  load_page(a.k_cache, page, head, most, state.page);
  simd().dot_products({.x = state.query + row * head_size,
                       .x_stride = head_size,
                       .num_x = num_rows,
                       .w = state.page,
                       .w_dtype = DType::kF32,
                       .w_stride = head_size,
                       .num_w = most,
                       .n = head_size,
                       .y = state.scores + row * page_size,
                       .y_stride = page_size});
  load_page(a.v_cache, page, head, most, state.page);
  for (int64_t t = first; t < task.last; ++t) {
    const int64_t begin = std::max<int64_t>(0, first_seen(a, task, t) - start);
    const int64_t num_slots = std::min(page_size, num_seen(task, t) - start) - begin;
    if (num_slots <= 0) continue;
    const int64_t token_row = (t - task.first) * group;
    float* const scores = state.scores + token_row * page_size + begin;
    for (int64_t r = 0; r < group; ++r) {
      if (a.softcap > 0) cap(a, scores + r * page_size, num_slots);
      weigh_row(state, token_row + r, num_slots, scores + r * page_size, head_size);
    }
    simd().weighted_sum({.weights = scores,
                         .weights_stride = page_size,
                         .num_y = group,
                         .rows = state.page + begin * head_size,
                         .rows_stride = head_size,
                         .num_rows = num_slots,
                         .n = head_size,
                         .y = state.sum + token_row * head_size,
                         .y_stride = head_size});
  }
}

void run_task(const Attention& a, const Task& task, int64_t head) {
  const int64_t group = a.group();
  const int64_t head_size = a.head_size();
  // Elements of one token's query heads that share this KV head.
  const int64_t width = group * head_size;
  const int64_t rows = (task.last - task.first) * group;
  const State state(rows, head_size, a.page_size());

  for (int64_t t = task.first; t < task.last; ++t) {
    float* query = state.query + (t - task.first) * width;
    simd().load(row_bytes(a.q, t, head * width), a.q.dtype, width, query);
    for (int64_t i = 0; i < width; ++i)
      query[i] *= a.scale;
  }
  std::fill_n(state.sum, rows * head_size, 0.0F);
  std::fill_n(state.maximum, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.total, rows, 0.0F);
  if (a.sinks != nullptr) {
    // A sink acts as a key without a value that every row sees first.
    for (int64_t r = 0; r < rows; r += group)
      simd().load(row_bytes(*a.sinks, 0, head * group), a.sinks->dtype, group, state.maximum + r);
    std::fill_n(state.total, rows, 1.0F);
  }

  const int64_t longest = num_seen(task, task.last - 1);
  const int64_t first_page = first_seen(a, task, task.first) / a.page_size();
  for (int64_t start = first_page * a.page_size(); start < longest; start += a.page_size()) {
    attend_page(a, task, head, start, state);
  }

  for (int64_t t = task.first; t < task.last; ++t) {
    float* sum = state.sum + (t - task.first) * width;
    for (int64_t i = 0; i < group; ++i) {
      const float total = state.total[(t - task.first) * group + i];
      const float factor = num_seen(task, t) > 0 ? 1.0F / total : 0.0F;
      for (int64_t c = 0; c < head_size; ++c)
        sum[i * head_size + c] *= factor;
    }
    simd().store(sum, width, a.y.dtype, row_bytes(a.y, t, head * width));
  }
}

void attention(Pool& pool, const KernelArgs& args) {
  const Attention a(args);
  const std::vector<Task> tasks = make_tasks(a, args.step.q.value_or(0));
  const auto num_tasks = static_cast<int64_t>(tasks.size());
  // The last tasks of the longest sequences take longest. Each piece of the loop is one task, which
  // keeps the threads evenly loaded.
  pool.parallel_for(num_tasks * a.num_kv_heads(), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      run_task(a, tasks[static_cast<size_t>(i / a.num_kv_heads())], i % a.num_kv_heads());
    }
  });
}

}  // namespace

std::span<const Kernel> attention_kernels() {
  static constexpr std::array kRows = {
      row<"attention.cpu", attention>("attention", {"sinks"}),
  };
  return kRows;
}

}  // namespace encore::cpu
