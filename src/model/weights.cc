#include "model/weights.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "base/rounding.h"
#include "model/checkpoint.h"
#include "model/read_ahead.h"

namespace encore::model {
namespace {

constexpr int64_t kAlignment = 256;
constexpr float kRandomStddev = 0.02F;
constexpr double kMegabyte = 1e6;
constexpr double kWorthALine = 1;  // seconds

// One checkpoint tensor, or rows of it, as a recipe asks for it.
struct Piece {
  const std::byte* data;
  DType dtype;
  int64_t count;
  float factor = 1;

  [[nodiscard]] int64_t num_bytes() const { return count * size_of(dtype); }
};

// Casts elements [first, first + count), times the factor; source and target may be any float
// dtypes.
void cast(const Piece& piece, int64_t first, std::byte* to, DType to_dtype, int64_t count) {
  visit_float(piece.dtype, [&](auto source) {
    visit_float(to_dtype, [&](auto target) {
      using Source = decltype(source);
      using Target = decltype(target);
      auto* out = reinterpret_cast<Target*>(to);
      const std::byte* from = piece.data + first * sizeof(Source);
      for (int64_t i = 0; i < count; ++i) {
        Source element;  // a file's tensors need not be aligned
        std::memcpy(&element, from + i * sizeof(Source), sizeof(Source));
        out[i] = Target(static_cast<float>(element) * piece.factor);
      }
    });
  });
}

void send(StagedCopy& copy, const Piece& piece, void* to, DType to_dtype) {
  const int64_t size = size_of(to_dtype);
  if (piece.dtype == to_dtype && piece.factor == 1)
    return copy.to_device(to, piece.data, piece.count * size);
  copy.to_device(to, piece.count * size, [&](std::byte* staged, int64_t first, int64_t bytes) {
    cast(piece, first / size, staged, to_dtype, bytes / size);
  });
}

void send(StagedCopy& copy, const std::vector<float>& from, const TensorView& to) {
  ENCORE_CHECK(static_cast<int64_t>(from.size()) == to.shape.num_elements());
  send(copy,
       {reinterpret_cast<const std::byte*>(from.data()), DType::kF32,
        static_cast<int64_t>(from.size())},
       to.data, to.dtype);
}

// The recipe's pieces, checked: together they have the weight's rows, and each its row shape.
std::vector<Piece> resolve(const ir::Value& value, const Shape& shape,
                           const Checkpoint& checkpoint) {
  std::vector<Piece> pieces;
  int64_t rows = 0;
  for (const ir::WeightPiece& wanted : value.recipe.pieces) {
    StoredTensor tensor = checkpoint.tensor(wanted.tensor);
    // A tensor that stands alone must have the weight's shape; one of several its shape but for dim
    // 0.
    Shape expected;
    const bool alone = value.recipe.pieces.size() == 1 && !wanted.rows;
    for (int i = 0; i < shape.rank(); ++i) {
      expected.push_back(i > 0 || alone || tensor.shape.rank() == 0 ? shape[i] : tensor.shape[0]);
    }
    tensor = checkpoint.tensor(wanted.tensor, expected);
    if (!is_float(tensor.dtype)) {
      fail(ErrorKind::kUnsupported,
           "tensor '{}' holds integers ({}), a weight is of BF16, F16 or F32: take the checkpoint "
           "before it was quantized",
           wanted.tensor, name(tensor.dtype));
    }
    const int64_t first = wanted.rows ? wanted.rows->first : 0;
    const int64_t last = wanted.rows ? wanted.rows->last : expected[0];
    if (first < 0 || last < first || last > expected[0]) {
      fail(ErrorKind::kModel, "tensor '{}' has {} rows, rows {} to {} are wanted", wanted.tensor,
           expected[0], first, last);
    }
    const int64_t row = expected.num_elements_from(1);
    pieces.push_back({tensor.data + first * row * size_of(tensor.dtype), tensor.dtype,
                      (last - first) * row, static_cast<float>(wanted.factor)});
    rows += last - first;
  }
  if (rows != shape[0]) {
    fail(ErrorKind::kModel, "tensors '{}' ... have {} rows together, {} are wanted",
         value.recipe.pieces[0].tensor, rows, shape[0]);
  }
  return pieces;
}

void check_unchanged(const std::vector<FileStamp>& loaded) {
  for (const FileStamp& file : loaded) {
    if (stamp(file.path) == file) continue;
    fail(ErrorKind::kModel,
         "{}: changed on disk since its weights were loaded (size, time or header): put the old "
         "file "
         "back, or start anew with the new one",
         file.path.string());
  }
}

}  // namespace

Weights::Weights(const ir::Graph& graph, WeightSource source, Device& device)
    : graph_(graph), source_(std::move(source)), device_(device), views_(graph.num_values()) {
  std::vector<int64_t> offsets(graph.num_values());
  const auto ids = graph.values_of_kind(ir::ValueKind::kWeight);
  for (const ir::ValueId id : ids) {
    offsets[id.index] = bytes_;
    const int64_t size = graph.value(id).type.num_bytes({});
    bytes_ += round_up(size, kAlignment);
  }
  range_ = device.reserve(bytes_);
  for (const ir::ValueId id : ids) {
    const ir::Type& type = graph.value(id).type;
    views_[id.index] = {range_->data() + offsets[id.index], type.dtype, type.resolve({})};
  }
  map();
  StagedCopy copy(device);
  fill(copy);
}

void Weights::fill(StagedCopy& copy) {
  std::visit([&](const auto& source) { fill_from(source, copy); }, source_);
  for (const ir::ValueId id : graph_.values_of_kind(ir::ValueKind::kWeight))
    device_.arrange_weight(copy.stream(), views_[id.index]);
  copy.finish();
}

void Weights::fill_from(const std::filesystem::path& dir, StagedCopy& copy) {
  check_unchanged(loaded_files_);
  const Checkpoint checkpoint(dir);
  const auto ids = graph_.values_of_kind(ir::ValueKind::kWeight);
  std::vector<std::vector<Piece>> pieces;
  for (const ir::ValueId id : ids) {
    const ir::Value& value = graph_.value(id);
    pieces.push_back(value.recipe.pieces.empty()
                         ? std::vector<Piece>{}
                         : resolve(value, value.type.resolve({}), checkpoint));
  }
  if (loaded_files_.empty()) {
    for (const SafetensorsFile& file : checkpoint.files())
      loaded_files_.push_back(stamp(file.path()));
  }
  std::vector<ReadAhead::Bytes> stored;
  for (const auto& of_weight : pieces) {
    for (const Piece& piece : of_weight)
      stored.emplace_back(piece.data, static_cast<size_t>(piece.num_bytes()));
  }
  ReadAhead ahead(stored);
  log::Progress progress("loading weights", static_cast<double>(bytes_) / kMegabyte, "MB");
  int64_t done = 0;
  int64_t used = 0;  // of what is stored
  for (size_t i = 0; i < ids.size(); ++i) {
    const TensorView& view = views_[ids[i].index];
    if (pieces[i].empty()) send(copy, graph_.value(ids[i]).recipe.constant, view);
    auto* to = static_cast<std::byte*>(view.data);
    for (const Piece& piece : pieces[i]) {
      send(copy, piece, to, view.dtype);
      to += piece.count * size_of(view.dtype);
      ahead.used(used += piece.num_bytes());
    }
    done += view.num_bytes();
    progress.update(static_cast<double>(done) / kMegabyte);
  }
}

void Weights::fill_from(const RandomWeights& random, StagedCopy& copy) {
  // A weight is enqueued at once; to know that it is made, the stream is waited for. Where the first
  // ones show that all are made within a second, that is left to whoever needs them.
  constexpr int64_t kBetweenReports = 256 << 20;
  log::Progress progress("making random weights", static_cast<double>(bytes_) / kMegabyte, "MB",
                         kWorthALine);
  int64_t enqueued = 0;
  int64_t done = 0;
  double seconds = 0;  // until those were done
  const auto start = std::chrono::steady_clock::now();
  const auto takes_long = [&] {
    return seconds * static_cast<double>(bytes_) >= kWorthALine * static_cast<double>(done);
  };
  const auto report = [&] {
    copy.stream().synchronize();
    done = enqueued;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    progress.update(static_cast<double>(done) / kMegabyte);
  };
  for (const ir::ValueId id : graph_.values_of_kind(ir::ValueKind::kWeight)) {
    const ir::WeightRecipe& recipe = graph_.value(id).recipe;
    const TensorView& view = views_[id.index];
    if (recipe.pieces.empty()) {
      send(copy, recipe.constant, view);
    } else if (recipe.pieces[0].tensor.find("norm") != std::string::npos) {
      send(copy, std::vector<float>(view.shape.num_elements(), 1.0F), view);
    } else {
      device_.fill_random(copy.stream(), view, random.seed + static_cast<uint64_t>(id.index),
                          kRandomStddev);
    }
    enqueued += view.num_bytes();
    if (enqueued - done >= kBetweenReports && takes_long()) report();
  }
  if (takes_long()) report();
}

}  // namespace encore::model
