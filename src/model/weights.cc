#include "model/weights.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace encore::model {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kStagingBytes = int64_t{32} << 20;
constexpr float kRandomStddev = 0.02F;
constexpr double kMegabyte = 1e6;

Weights allocate(const ir::Graph& graph, Device& device) {
  Weights weights;
  weights.views.resize(graph.num_values());
  std::vector<int64_t> offsets(graph.num_values());
  int64_t bytes = 0;
  const auto ids = graph.values_of_kind(ir::ValueKind::kWeight);
  for (const ir::ValueId id : ids) {
    offsets[id.index] = bytes;
    const int64_t size = graph.value(id).type.num_bytes({});
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  weights.memory = device.allocate(bytes);
  for (const ir::ValueId id : ids) {
    const ir::Type& type = graph.value(id).type;
    weights.views[id.index] = {weights.memory.data() + offsets[id.index], type.dtype,
                               type.resolve({})};
  }
  return weights;
}

// Casts `count` elements; source and target may be any float dtypes.
void cast(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, int64_t count) {
  visit_float(from_dtype, [&](auto source) {
    visit_float(to_dtype, [&](auto target) {
      using Source = decltype(source);
      using Target = decltype(target);
      auto* out = reinterpret_cast<Target*>(to);
      for (int64_t i = 0; i < count; ++i) {
        Source element;  // a file's tensors need not be aligned
        std::memcpy(&element, from + i * sizeof(Source), sizeof(Source));
        out[i] = Target(static_cast<float>(element));
      }
    });
  });
}

// Copies through two pinned buffers, so that reading one piece overlaps sending the last.
class Uploader {
 public:
  explicit Uploader(Device& device) : stream_(device.create_stream()) {
    for (Buffer& buffer : buffers_) {
      buffer.memory = device.allocate_host(kStagingBytes);
      buffer.sent = device.create_event();
    }
  }

  void send(const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, int64_t count) {
    const int64_t chunk = kStagingBytes / std::max(size_of(from_dtype), size_of(to_dtype));
    for (int64_t done = 0; done < count; done += chunk) {
      Buffer& buffer = buffers_[next_];
      next_ = 1 - next_;
      if (buffer.in_flight) buffer.sent->synchronize();
      const int64_t n = std::min(chunk, count - done);
      const std::byte* source = from + done * size_of(from_dtype);
      if (from_dtype == to_dtype) {
        std::memcpy(buffer.memory.data(), source, n * size_of(to_dtype));
      } else {
        cast(source, from_dtype, buffer.memory.data(), to_dtype, n);
      }
      stream_->copy_to_device(to + done * size_of(to_dtype), buffer.memory.data(),
                              n * size_of(to_dtype));
      stream_->record(*buffer.sent);
      buffer.in_flight = true;
    }
  }
  void finish() { stream_->synchronize(); }
  Stream& stream() { return *stream_; }

 private:
  struct Buffer {
    Memory memory;
    std::unique_ptr<Event> sent;
    bool in_flight = false;
  };
  std::unique_ptr<Stream> stream_;
  Buffer buffers_[2];
  int next_ = 0;
};

void send_constant(const ir::Value& value, const TensorView& view, Uploader& uploader) {
  const auto& constant = value.recipe.constant;
  ENCORE_CHECK(static_cast<int64_t>(constant.size()) == view.shape.num_elements());
  uploader.send(reinterpret_cast<const std::byte*>(constant.data()), DType::kF32,
                static_cast<std::byte*>(view.data), view.dtype, view.shape.num_elements());
}

// One checkpoint tensor, or rows of it, as a recipe asks for it.
struct Piece {
  const std::byte* data;
  DType dtype;
  int64_t count;
};

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
    const int64_t first = wanted.rows ? wanted.rows->first : 0;
    const int64_t last = wanted.rows ? wanted.rows->last : expected[0];
    if (first < 0 || last < first || last > expected[0]) {
      fail(ErrorKind::kModel, "tensor '{}' has {} rows, rows {} to {} are wanted", wanted.tensor,
           expected[0], first, last);
    }
    const int64_t row = expected.num_elements_from(1);
    pieces.push_back(
        {tensor.data + first * row * size_of(tensor.dtype), tensor.dtype, (last - first) * row});
    rows += last - first;
  }
  if (rows != shape[0]) {
    fail(ErrorKind::kModel, "tensors '{}' ... have {} rows together, {} are wanted",
         value.recipe.pieces[0].tensor, rows, shape[0]);
  }
  return pieces;
}

}  // namespace

Weights load_weights(const ir::Graph& graph, const Checkpoint& checkpoint, Device& device) {
  const auto ids = graph.values_of_kind(ir::ValueKind::kWeight);
  std::vector<std::vector<Piece>> pieces;
  for (const ir::ValueId id : ids) {
    const ir::Value& value = graph.value(id);
    pieces.push_back(value.recipe.pieces.empty()
                         ? std::vector<Piece>{}
                         : resolve(value, value.type.resolve({}), checkpoint));
  }
  Weights weights = allocate(graph, device);
  Uploader uploader(device);
  log::Progress progress("loading weights", static_cast<double>(weights.memory.bytes()) / kMegabyte,
                         "MB");
  int64_t done = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const TensorView& view = weights.views[ids[i].index];
    if (pieces[i].empty()) send_constant(graph.value(ids[i]), view, uploader);
    auto* to = static_cast<std::byte*>(view.data);
    for (const Piece& piece : pieces[i]) {
      uploader.send(piece.data, piece.dtype, to, view.dtype, piece.count);
      to += piece.count * size_of(view.dtype);
    }
    done += view.num_bytes();
    progress.update(static_cast<double>(done) / kMegabyte);
  }
  uploader.finish();
  return weights;
}

Weights random_weights(const ir::Graph& graph, Device& device, uint64_t seed) {
  Weights weights = allocate(graph, device);
  Uploader uploader(device);
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    const ir::Value& value = graph.value(id);
    const TensorView& view = weights.views[id.index];
    if (value.recipe.pieces.empty()) {
      send_constant(value, view, uploader);
    } else if (value.recipe.pieces[0].tensor.find("norm") != std::string::npos) {
      const std::vector<float> ones(view.shape.num_elements(), 1.0F);
      uploader.send(reinterpret_cast<const std::byte*>(ones.data()), DType::kF32,
                    static_cast<std::byte*>(view.data), view.dtype, view.shape.num_elements());
    } else {
      device.fill_random(uploader.stream(), view, seed + static_cast<uint64_t>(id.index),
                         kRandomStddev);
    }
  }
  uploader.finish();
  return weights;
}

}  // namespace encore::model
