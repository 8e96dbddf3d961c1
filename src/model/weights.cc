#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include <fmt/ranges.h>

#include "backend/cpu/simd.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rounding.h"
#include "model/checkpoint.h"
#include "model/draft_model.h"
#include "model/read_ahead.h"
#include "model/transforms.h"

namespace encore::model {
namespace {

constexpr int64_t kAlignment = 256;
constexpr float kRandomStddev = 0.02F;
constexpr float kRandomCodeStddev = 64;  // standard deviation of fp8 codes, far below 448
constexpr double kMegabyte = 1e6;
constexpr double kWorthALine = 1;  // seconds of work from which on progress is shown

using Range = ir::WeightPiece::Range;

// Holds one checkpoint tensor as a recipe asks for it: transformed, cut, and with a factor.
struct Piece {
  std::string_view name;  // the tensor's name
  StoredTensor tensor;
  const Transform* transform = nullptr;  // null: the tensor is used as it is stored
  TransformNumbers numbers;
  Shape shape;    // shape after the transform
  Range rows;     // rows of the first dim
  Range columns;  // columns among a row's elements
  float factor = 1;

  [[nodiscard]] int64_t row_elements() const { return shape.num_elements_from(1); }
  [[nodiscard]] int64_t num_rows() const { return rows.last - rows.first; }
  [[nodiscard]] int64_t num_columns() const { return columns.last - columns.first; }
  [[nodiscard]] int64_t count() const { return num_rows() * num_columns(); }
  // Returns whether the elements of the piece lie one behind the other in the file.
  [[nodiscard]] bool is_contiguous() const {
    return transform == nullptr && tensor.is_plain() && num_columns() == row_elements();
  }
  // Returns the bytes of the file that the piece reads.
  [[nodiscard]] ReadAhead::Bytes stored() const {
    if (!is_contiguous()) return {tensor.data, static_cast<size_t>(tensor.num_bytes())};
    const int64_t row = row_elements() * size_of(tensor.dtype);
    return {tensor.data + rows.first * row, static_cast<size_t>(num_rows() * row)};
  }
};

// Casts `count` elements at `from`, multiplied by the factor, to `to`. Both dtypes may be any float
// dtypes.
void cast(const std::byte* from, DType from_dtype, float factor, std::byte* to, DType to_dtype,
          int64_t count) {
  visit_float(from_dtype, [&](auto source) {
    visit_float(to_dtype, [&](auto target) {
      using Source = decltype(source);
      using Target = decltype(target);
      auto* out = reinterpret_cast<Target*>(to);
      for (int64_t i = 0; i < count; ++i) {
        Source element;  // a copy, because a file's tensors may be unaligned
        std::memcpy(&element, from + i * sizeof(Source), sizeof(Source));
        out[i] = Target(static_cast<float>(element) * factor);
      }
    });
  });
}

// Writes the elements [first, first + count) of the piece, counted row by row, to `to`.
void write_rows(const Piece& piece, int64_t first, int64_t count, std::byte* to, DType dtype) {
  std::vector<float> row(static_cast<size_t>(piece.row_elements()));
  for (int64_t done = 0; done < count;) {
    const int64_t at = first + done;
    const int64_t stored_row = piece.rows.first + at / piece.num_columns();
    const int64_t column = at % piece.num_columns();
    const int64_t part = std::min(piece.num_columns() - column, count - done);
    const int64_t first_column = piece.columns.first + column;
    float* values = row.data() + first_column;
    if (piece.transform != nullptr) {
      piece.transform->row(piece.tensor, piece.numbers, stored_row, row.data());
    } else {
      widen(piece.tensor, stored_row * piece.row_elements() + first_column, part, values);
    }
    if (piece.factor != 1) {
      for (int64_t i = 0; i < part; ++i)
        values[i] *= piece.factor;
    }
    cpu::simd().store(values, part, dtype, to + done * size_of(dtype));
    done += part;
  }
}

// Returns the index of the first NaN among codes in FP8, or `count` if there is none.
int64_t find_nan(const std::byte* codes, int64_t count) {
  constexpr int64_t kChunk = 1024;  // codes that a loop without branches checks, with vectors
  constexpr std::byte kNan{0x7f};   // e4m3's NaN, without the sign bit
  const auto is_nan = [](std::byte code) { return (code & kNan) == kNan; };
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t last = std::min(first + kChunk, count);
    uint8_t has_nan = 0;
    for (int64_t i = first; i < last; ++i)
      has_nan |= static_cast<uint8_t>(is_nan(codes[i]));
    if (has_nan != 0) return std::find_if(codes + first, codes + last, is_nan) - codes;
  }
  return count;
}

// Copies codes in FP8 to the device. Errors: kModel, naming the first NaN among them.
void send_codes(StagedCopy& copy, const Piece& piece, void* to) {
  const std::byte* stored =
      piece.is_contiguous() && piece.tensor.dtype == DType::kFP8 ? piece.stored().data() : nullptr;
  std::atomic<int64_t> first_nan = piece.count();
  copy.to_device(to, piece.count(), [&](std::byte* staged, int64_t first, int64_t bytes) {
    if (stored != nullptr) {
      std::memcpy(staged, stored + first, static_cast<size_t>(bytes));
    } else {
      write_rows(piece, first, bytes, staged, DType::kFP8);
    }
    const int64_t found = find_nan(stored != nullptr ? stored + first : staged, bytes);
    if (found == bytes) return;
    int64_t known = first_nan;
    while (first + found < known && !first_nan.compare_exchange_weak(known, first + found)) {
    }
  });
  if (first_nan == piece.count()) return;
  const int64_t row = piece.rows.first + first_nan / piece.num_columns();
  const int64_t column = piece.columns.first + first_nan % piece.num_columns();
  fail(ErrorKind::kModel,
       "tensor '{}' has NaN at index {} (row {}, column {}): the checkpoint is "
       "damaged, or its FP8 is of another kind than e4m3",
       piece.name, row * piece.row_elements() + column, row, column);
}

void send(StagedCopy& copy, const Piece& piece, void* to, DType to_dtype) {
  if (to_dtype == DType::kFP8 && piece.factor == 1) return send_codes(copy, piece, to);
  const int64_t size = size_of(to_dtype);
  const std::byte* from = piece.stored().data();
  const bool is_contiguous = piece.is_contiguous();
  if (is_contiguous && piece.tensor.dtype == to_dtype && piece.factor == 1)
    return copy.to_device(to, from, piece.count() * size);
  const bool is_cast = is_contiguous && is_float(piece.tensor.dtype) && is_float(to_dtype);
  copy.to_device(to, piece.count() * size, [&](std::byte* staged, int64_t first, int64_t bytes) {
    if (!is_cast) return write_rows(piece, first / size, bytes / size, staged, to_dtype);
    cast(from + first / size * size_of(piece.tensor.dtype), piece.tensor.dtype, piece.factor,
         staged, to_dtype, bytes / size);
  });
}

void send(StagedCopy& copy, const std::vector<float>& from, const TensorView& to) {
  const auto count = static_cast<int64_t>(from.size());
  ENCORE_CHECK(count == to.shape.num_elements());
  Piece piece;
  piece.tensor = {DType::kF32, {count}, reinterpret_cast<const std::byte*>(from.data())};
  piece.shape = {count};
  piece.rows = {0, count};
  piece.columns = {0, 1};
  send(copy, piece, to.data, to.dtype);
}

// Checks that a weight of the dtype `wanted` can be made from the tensor. Any float dtype fits; any
// other dtype must equal `wanted`.
void check_dtype(const std::string& name, const StoredTensor& tensor, DType wanted) {
  if (is_float(tensor.dtype) || tensor.dtype == wanted) return;
  if (tensor.dtype == DType::kFP8) {
    fail(ErrorKind::kUnsupported,
         "tensor '{}' is stored in FP8, but nothing says what its scale is: config.json needs a "
         "quantization_config that covers it",
         name);
  }
  fail(ErrorKind::kUnsupported,
       "tensor '{}' holds integers ({}), a weight is of BF16, F16 or F32: take the checkpoint "
       "before it was quantized",
       name, encore::name(tensor.dtype));
}

// Returns the range to cut out of a dim of `size`, or all of it where no range is given.
Range cut(const std::optional<Range>& wanted, int64_t size, const std::string& tensor,
          std::string_view what) {
  const Range range = wanted.value_or(Range{0, size});
  if (range.first >= 0 && range.last >= range.first && range.last <= size) return range;
  fail(ErrorKind::kModel, "tensor '{}' has {} {}, {} {} to {} are wanted", tensor, size, what, what,
       range.first, range.last);
}

// Finds the tensor of a piece in the checkpoint. `prefix` stands in front of the tensor's name in
// the recipe, but not in the checkpoint. Lifetime: refers to `wanted`.
Piece resolve(const ir::WeightPiece& wanted, const Checkpoint& checkpoint,
              std::string_view prefix) {
  Piece piece;
  piece.name = wanted.tensor;
  piece.tensor = checkpoint.tensor(wanted.tensor.substr(prefix.size()));
  piece.shape = piece.tensor.shape;
  piece.factor = static_cast<float>(wanted.factor);
  if (wanted.transform) {
    piece.transform = &find_transform(wanted.transform->name);
    piece.numbers = wanted.transform->numbers;
    try {
      piece.shape = piece.transform->shape(piece.tensor, piece.numbers);
    } catch (const Error& error) {
      fail(error.kind(), "tensor '{}': {} {}", wanted.tensor, wanted.transform->name, error.what());
    }
  }
  const int64_t num_rows = piece.shape.rank() == 0 ? 1 : piece.shape[0];
  piece.rows = cut(wanted.rows, num_rows, wanted.tensor, "rows");
  piece.columns = cut(wanted.columns, piece.row_elements(), wanted.tensor, "columns");
  return piece;
}

// Returns the recipe's pieces and checks them: together they have the weight's rows, and each has
// the weight's shape of a row.
std::vector<Piece> resolve(const ir::Value& value, const Shape& shape, const Checkpoint& checkpoint,
                           std::string_view prefix) {
  const std::vector<ir::WeightPiece>& recipe = value.recipe.pieces;
  std::vector<Piece> pieces;
  int64_t rows = 0;
  int64_t wanted_rows = shape[0];
  for (const ir::WeightPiece& wanted : recipe) {
    const Piece piece = resolve(wanted, checkpoint, prefix);
    // A single tensor has the weight's shape. One of several tensors has that shape except for the
    // number of rows, or, where tensors are stacked, the shape of the weight's dims behind the
    // first.
    const bool alone = recipe.size() == 1 && !wanted.rows && !wanted.columns;
    const bool stacked =
        (recipe.size() > 1 || shape[0] == 1) && piece.shape.rank() + 1 == shape.rank();
    if (stacked) wanted_rows = shape[0] * shape[1];
    Shape expected;
    for (int i = stacked ? 1 : 0; i < shape.rank(); ++i) {
      const bool is_rows = expected.rank() == 0 && !alone && piece.shape.rank() > 0;
      const bool is_cut = wanted.columns && i + 1 == shape.rank() &&
                          piece.num_columns() == shape[i] && piece.shape.rank() == 2;
      expected.push_back(is_rows ? piece.shape[0] : is_cut ? piece.row_elements() : shape[i]);
    }
    if (piece.shape != expected) {
      fail(ErrorKind::kModel, "{}: tensor {:?} has shape [{}], but config.json implies [{}]",
           checkpoint.dir().string(), wanted.tensor, fmt::join(piece.shape, ", "),
           fmt::join(expected, ", "));
    }
    check_dtype(wanted.tensor, piece.tensor, value.type.dtype);
    rows += piece.num_rows();
    pieces.push_back(piece);
  }
  if (rows != wanted_rows) {
    fail(ErrorKind::kModel, "tensors '{}' ... have {} rows together, {} are wanted",
         recipe[0].tensor, rows, wanted_rows);
  }
  return pieces;
}

// Returns whether the piece is a scale of codes, which is stored, or computed at load.
bool is_scale(const ir::WeightPiece& piece) {
  return piece.tensor.find("scale") != std::string::npos ||
         (piece.transform && piece.transform->name == "fp8_scales");
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

Weights::Weights(const ir::Graph& graph, WeightSources sources, Device& device)
    : graph_(graph), device_(device), views_(graph.num_values()) {
  models_.push_back({std::move(sources.model), ""});
  if (sources.draft) models_.push_back({*sources.draft, kDraftPrefix});
  std::vector<int64_t> offsets(graph.num_values());
  const auto ids = graph.values_of_kind(ir::ValueKind::kWeight);
  for (const ir::ValueId id : ids) {
    offsets[id.index] = bytes_;
    const bool is_drafts = sources.draft && graph.value(id).name.starts_with(kDraftPrefix);
    models_[is_drafts ? 1 : 0].ids.push_back(id);
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
  for (Model& model : models_)
    std::visit([&](const auto& source) { fill_from(source, model, copy); }, model.source);
  for (const ir::ValueId id : graph_.values_of_kind(ir::ValueKind::kWeight))
    device_.arrange_weight(copy.stream(), views_[id.index]);
  copy.finish();
}

void Weights::fill_from(const std::filesystem::path& dir, Model& model, StagedCopy& copy) {
  check_unchanged(model.loaded_files);
  const Checkpoint checkpoint(dir);
  const std::vector<ir::ValueId>& ids = model.ids;
  std::vector<std::vector<Piece>> pieces;
  for (const ir::ValueId id : ids) {
    const ir::Value& value = graph_.value(id);
    pieces.push_back(value.recipe.pieces.empty() || value.recipe.has_slots
                         ? std::vector<Piece>{}
                         : resolve(value, value.type.resolve({}), checkpoint, model.prefix));
  }
  if (model.loaded_files.empty()) {
    for (const std::filesystem::path& file : checkpoint.files())
      model.loaded_files.push_back(stamp(file));
  }
  std::vector<ReadAhead::Bytes> stored;
  for (const auto& of_weight : pieces) {
    for (const Piece& piece : of_weight)
      stored.push_back(piece.stored());
  }
  ReadAhead ahead(stored);
  log::Progress progress("loading weights", static_cast<double>(bytes_) / kMegabyte, "MB");
  int64_t done = 0;
  int64_t used = 0;  // bytes of the stored tensors that were used
  for (size_t i = 0; i < ids.size(); ++i) {
    const TensorView& view = views_[ids[i].index];
    const ir::WeightRecipe& recipe = graph_.value(ids[i]).recipe;
    if (recipe.has_slots) {
      copy.stream().fill(view.data, 0, view.num_bytes());
    } else if (pieces[i].empty()) {
      send(copy, recipe.constant, view);
    }
    auto* to = static_cast<std::byte*>(view.data);
    for (const Piece& piece : pieces[i]) {
      send(copy, piece, to, view.dtype);
      to += piece.count() * size_of(view.dtype);
      ahead.used(used += static_cast<int64_t>(piece.stored().size()));
    }
    done += view.num_bytes();
    progress.update(static_cast<double>(done) / kMegabyte);
  }
}

void Weights::fill_pieces(uint64_t seed, const std::vector<ir::WeightPiece>& pieces,
                          const TensorView& weight, std::string_view prefix, StagedCopy& copy) {
  if (is_scale(pieces[0])) {
    const float scale = static_cast<float>(pieces[0].factor) * kRandomStddev / kRandomCodeStddev;
    return send(copy, std::vector<float>(static_cast<size_t>(weight.shape.num_elements()), scale),
                weight);
  }
  const int64_t columns = weight.shape.rank() == 1 ? 1 : weight.shape[weight.shape.rank() - 1];
  const int64_t num_rows = weight.shape.num_elements() / columns;
  auto* to = static_cast<std::byte*>(weight.data);
  for (const ir::WeightPiece& piece : pieces) {
    // Pieces that do not say how many rows they have share the weight's rows evenly, as experts do.
    const int64_t rows = piece.rows ? piece.rows->last - piece.rows->first
                                    : piece.num_rows.value_or(num_rows / std::ssize(pieces));
    const int64_t first_row = piece.rows.value_or(Range{}).first;
    const int64_t first_column = piece.columns.value_or(Range{}).first;
    const bool is_vector = weight.shape.rank() == 1;
    TensorView part(to, weight.dtype, is_vector ? Shape{rows} : Shape{rows, columns});
    to += part.num_bytes();
    const auto factor = static_cast<float>(piece.factor);
    if (piece.tensor.find("norm") != std::string::npos) {
      send(copy, std::vector<float>(static_cast<size_t>(rows * columns), factor), part);
    } else {
      device_.fill_random(
          copy.stream(), part, seed ^ hash(std::string_view(piece.tensor).substr(prefix.size())),
          factor * (weight.dtype == DType::kFP8 ? kRandomCodeStddev : kRandomStddev),
          is_vector ? MatrixPlace{0, first_row} : MatrixPlace{first_row, first_column});
    }
  }
  ENCORE_CHECK(to == static_cast<std::byte*>(weight.data) + weight.num_bytes());
}

void Weights::fill_from(const RandomWeights& random, Model& model, StagedCopy& copy) {
  // Random weights are only enqueued, so the loader waits for the stream to know that they are
  // made. If the first weights show that all will be made within a second, it does not wait.
  constexpr int64_t kBetweenReports = 256 << 20;
  log::Progress progress("making random weights", static_cast<double>(bytes_) / kMegabyte, "MB",
                         kWorthALine);
  int64_t enqueued = 0;
  int64_t done = 0;
  double seconds = 0;  // time until the first weights were made
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
  for (const ir::ValueId id : model.ids) {
    const ir::WeightRecipe& recipe = graph_.value(id).recipe;
    const TensorView& view = views_[id.index];
    if (recipe.has_slots) {
      copy.stream().fill(view.data, 0, view.num_bytes());
    } else if (recipe.pieces.empty()) {
      send(copy, recipe.constant, view);
    } else {
      fill_pieces(random.seed, recipe.pieces, view, model.prefix, copy);
    }
    enqueued += view.num_bytes();
    if (enqueued - done >= kBetweenReports && takes_long()) report();
  }
  if (takes_long()) report();
}

}  // namespace encore::model
