// The kernel of linear with up to 256 rows. As in gemv.cu, most of the time goes into reading the
// weights, so the kernel streams them. One thread of each block keeps a ring of boxes of weights in
// flight, and fills it before the launches in front have ended. Another thread keeps a ring of
// boxes of x in flight. One or two warpgroups multiply the boxes.
//
// The operands are swapped: out^T [O, R] = weight [O, I] x^T [I, R]. Outputs take the place of the
// 64 rows of a tensor core's product, and the rows of x take the place of its 16 to 256 columns.
// Their number goes up to 64 in steps of 16, and then in steps of 8, so little is wasted where rows
// are few.
//
// The following choices matter on an H200. Each was measured by leaving it out.
// - Boxes are fetched in lines of 128 bytes. With lines of 256 bytes the stream is 2 to 6 % slower.
// - A block has at most 88 KB of weights on their way. Its ring fills further while the launches in
//   front end, but a longer queue is no faster, and x waits in it.
// - From a block's start to its first copy the memory has nothing to do if the block before it had
//   all of the shared memory. So that copy comes before most of the barriers, no division lies on
//   its path, and the work behind it is shared by several warps. It comes 1280 cycles after the end
//   of the block before, of which the chip itself takes 480. (This makes a layer 1 to 3 % faster.)
//   The amount of code counts, as described in launch.h: some 6 cycles for each instruction.
// - Finished outputs are stored by way of shared memory, as whole rows of the tile. Stored as the
//   pairs that the tensor cores leave, they take 2 us with 64 rows and 4 us with 128.
// - A block fetches all of x for each of its tiles, so tiles of few outputs move more of x than of
//   weights. Where outputs are few, the two blocks of a cluster share a tile and split the columns,
//   and each sends the other the sums of half of the rows. A sum of two parts has only one order.
//   So a row's bits depend only on the numbers of columns and outputs and on the padded number of
//   rows.
// (Copying x once into all blocks of a cluster that work on different tiles is no faster with
// clusters of two, not even in steps that are short of power. Clusters of four leave blocks of the
// chip unused.)
// (Exchanging sums through memory, as words that are their own flags, would let any number of
// blocks share a tile, wherever the chip places them. It takes 0.5 to 3 us more than the exchange
// in a cluster. That is more than the gain of fewer copies of x and fuller chips.)
// - With more than 128 rows and few outputs, two tiles of half of the rows share a part of the
//   weights. They fill the chip without further blocks that would have to add up sums, and the
//   second copy of the weights comes from the L2 cache. Where outputs are many, one tile of 256
//   rows and 128 outputs is up to 15 % faster than two tiles of 128 rows and 256 outputs.
// - A box of x has as many rows as x, rounded up to 8, because the copy engine is slow where a box
//   has more rows than the tensor. With boxes of 64 rows, a layer of the 8B took 9 % longer for 40
//   rows than for 64.
// - silu_mul as a launch of its own costs 0.4 to 2 us a layer. In this kernel the rows of a tile
//   alternate: 8 rows of the gates, then the 8 rows that they gate. So both lie side by side when
//   outputs are stored, and one copy fetches them from both halves of the weight.
// - Where codes are widened, or their sums scaled, a warpgroup's tensor cores wait for this work.
//   So tiles of 64 outputs have two warpgroups, which take turns with the columns and add up their
//   sums at last. Codes are widened while the products before them run, also across stages. These
//   products still read x, so a stage of x is released one stage later.
// - Full rings are a head start, because they fill while the launches in front end. But where
//   attention is short, or the block's part of the weight is small, it is worth more to leave room
//   beside the block for a block of attention, which can read K and V meanwhile. (In steps of 8
//   sequences: 1.3 % of an 8B's time, 7 % of a 1B's.) Registers must leave that room, too.
//
// A block asks for more than half of a multiprocessor's shared memory, for the reason given in
// gemv.cu.
#include "backend/cuda/linear/skinny_gemm.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/codes.h"
#include "backend/cuda/linear/deciding.h"
#include "backend/cuda/linear/quantize.h"
#include "backend/cuda/linear/skinny_gemm_variants.cuh"
#include "backend/fused_linear.h"
#include "backend/tuning.h"

namespace encore::cuda {
namespace {

using namespace skinny_gemm;

constexpr int64_t kMinTileOutputs = 16;  // unless the weight has fewer outputs
constexpr int64_t kMostSharedBytes = 216 * 1024;
// The smallest size of a stage of the rings, in bytes. Smaller stages are handed over too often.
// With many rows, or where x takes twice the bytes of the codes beside it, stages must be smaller,
// since larger ones would leave rings of too few stages.
constexpr int64_t kMinStageBytes = 28 * 1024;
constexpr int64_t kMinStageBytesOfManyRows = 24 * 1024;
constexpr int64_t kManyRows = 96;
// The bytes of weights and x that a block has on their way from memory at a time: about as many as
// arrive during the latency of memory. The weights among them take between kMinWeightsInFlight and
// kMaxWeightsInFlight bytes, and at most half of what the block reads.
constexpr int64_t kBytesInFlight = 136 * 1024;
constexpr int64_t kMinWeightsInFlight = 48 * 1024;
constexpr int64_t kMaxWeightsInFlight = 88 * 1024;
constexpr int64_t kMinWeightRingBytes = 68 * 1024;
// Limits how far x is copied ahead: a block has those columns of x on their way whose weights take
// this number of bytes.
constexpr int64_t kWeightBytesAhead = 64 * 1024;
constexpr int64_t kMaxBoxesAhead = 16;
// The largest number of rows of a launch that widens FP8 codes to 16 bits.
constexpr int64_t kMaxWidenedRows = 128;

// Returns the kernels for x of type T and these operands, sorted by rows and then by outputs.
template <typename T>
std::span<const Variant<T>> variants_of(SkinnyOperands operands) {
  switch (operands) {
    case SkinnyOperands::kWidenedCodes:
      return widened_variants<T>();
    case SkinnyOperands::kCodes:
      return code_variants<T>();
    default:
      return variants<T>();
  }
}

// Returns the rows of a tile (and of a box of x) when `rows` rows are dealt to `row_tiles` tiles.
int box_rows(int64_t rows, int row_tiles) {
  return static_cast<int>(round_up(div_up(rows, row_tiles), kBlockRows));
}

struct Product {
  int64_t rows;
  int64_t outputs;
  int64_t columns;
  SkinnyOperands operands = SkinnyOperands::k16Bit;

  [[nodiscard]] int64_t weight_bytes() const { return operands == SkinnyOperands::k16Bit ? 2 : 1; }
  [[nodiscard]] int64_t x_bytes() const { return operands == SkinnyOperands::kCodes ? 1 : 2; }
  [[nodiscard]] int64_t box_columns() const { return kBoxRowBytes / weight_bytes(); }
  // Returns the number of boxes of x that belong to one box of the weight.
  [[nodiscard]] int64_t x_boxes() const { return x_bytes() / weight_bytes(); }
  // Returns the bytes of x's scales that are copied with a box of x. There is one float for each
  // row if x is codes.
  [[nodiscard]] int64_t scale_bytes(int64_t rows_of_box) const {
    return operands == SkinnyOperands::kCodes ? 4 * rows_of_box : 0;
  }
};

// Returns the rows of the smallest variant that holds a tile's share of `rows` rows, or 0 if no
// variant does.
int tile_rows(int64_t rows, const SkinnyGemmTiling& t, SkinnyOperands operands) {
  // Products of codes are always added to one sum, box after box.
  const bool may_have_two_sums = operands == SkinnyOperands::k16Bit;
  const int fewest = std::max(box_rows(rows, t.row_tiles),
                              t.in_order && may_have_two_sums ? kMostRowsOfTwoSums + 1 : 0);
  for (const auto& variant : variants_of<__half>(operands)) {
    if (variant.rows >= fewest) return variant.rows;
  }
  return 0;
}

// Returns the largest number of rows that a tile of the kernel can have with these kinds of
// operands.
int64_t widest(SkinnyOperands operands) {
  return variants_of<__half>(operands).back().rows;
}

int max_tile_outputs(const Product& product, int row_tiles) {
  const int height = tile_rows(product.rows, {.row_tiles = row_tiles}, product.operands);
  int most = 0;
  for (const auto& variant : variants_of<__half>(product.operands)) {
    if (variant.rows == height) most = variant.outputs;
  }
  return most;
}

template <typename T>
const Variant<T>& variant_for(const Product& product, const SkinnyGemmTiling& t) {
  const auto variants = variants_of<T>(product.operands);
  const int height = tile_rows(product.rows, t, product.operands);
  const auto found = std::find_if(variants.begin(), variants.end(), [&](const Variant<T>& v) {
    const bool in_order = !t.in_order || v.turns == 1;
    return v.rows == height && v.outputs >= t.tile_outputs && in_order;
  });
  ENCORE_CHECK(found != variants.end(), "a tile of {} rows, {} outputs", product.rows,
               t.tile_outputs);
  return *found;
}

// Returns the cycles for which a warpgroup's tensor cores idle for each 16 columns (or 32 of
// codes), while the warpgroup widens codes of the weight, or multiplies sums of 128 columns by
// their scales. The values are guesses.
double cycles_beside(SkinnyOperands operands, int height) {
  switch (operands) {
    case SkinnyOperands::kWidenedCodes:
      return 20;
    case SkinnyOperands::kCodes:
      return 25 + 0.25 * height;
    default:
      return 0;
  }
}

// Returns how long a product takes with a tiling, on a chip with this number of multiprocessors and
// one block on each, at an H200's rates. Units: microseconds. The model computes, for the blocks
// with the most work, three times that bound theirs from below: copying weights and x, the tensor
// cores' work, and reading the weights from memory. The longest of these times counts in full, the
// others a little, and an exchange of sums in a cluster costs some time, too. The model was fitted
// to 64 measurements. The tiling that it ranks first was 0.4 % slower than the fastest on average,
// and 5 % at worst.
double estimate(const Product& product, const SkinnyGemmTiling& t, int64_t multiprocessors) {
  constexpr double kReadBytesPerUs = 4.6e6;
  constexpr double kCopiedBytesPerUs = 115e3;  // the rate of one block
  constexpr double kCyclesPerUs = 1700;
  // The fewest cycles that a tensor core takes for the products of 16 columns, or of 32 columns of
  // codes.
  constexpr double kMinCycles = 49;
  constexpr double kProductCyclesPerRow = 0.645;
  constexpr double kOverlapLoss = 0.042;
  constexpr double kExchangeUs = 0.32;
  const auto [rows, outputs, columns, operands] = product;
  const int height = tile_rows(rows, t, operands);
  const int halves = t.split ? 2 : 1;
  const int64_t blocks = div_up(outputs, t.tile_outputs) * t.row_tiles * halves;
  const auto block_columns =
      static_cast<double>(columns * div_up(blocks, multiprocessors)) / halves;
  const auto column_bytes =
      static_cast<double>(t.tile_outputs * product.weight_bytes() + height * product.x_bytes());
  const double copies = block_columns * column_bytes / kCopiedBytesPerUs;
  const int64_t products = div_up(t.tile_outputs, kProductOutputs);
  // Products of codes with codes are twice as fast as those of 16 bits. Where a tile needs only one
  // product of 64 outputs, two warpgroups take turns if codes must be widened or sums scaled.
  const double speed = operands == SkinnyOperands::kCodes ? 2 : 1;
  const bool takes_turns = operands != SkinnyOperands::k16Bit && products == 1;
  const double least = (kMinCycles + cycles_beside(operands, height)) / (takes_turns ? 2 : 1);
  const double cycles =
      std::max(least, static_cast<double>(products) * kProductCyclesPerRow * height);
  const double sums = block_columns / 16 * cycles / speed / kCyclesPerUs;
  const double reads =
      static_cast<double>(outputs * columns * product.weight_bytes()) / kReadBytesPerUs;
  return std::max({copies, sums, reads}) + kOverlapLoss * (copies + sums + reads) +
         (t.split ? kExchangeUs : 0);
}

// Returns the shared memory of a block, which gets more if rings of two stages do not fit. With few
// rows and a small weight it leaves room for a block of attention. A block of attention takes 79
// KB, or 91 KB where a cluster of eight shares a kv head.
int64_t shared_bytes(const Product& product) {
  constexpr int64_t kFewestRows = 8;
  constexpr int64_t kMostRows = 64;  // kernels for more rows need too many registers
  constexpr int64_t kMegabyte = 1000 * 1000;
  const int64_t weight_bytes = product.weight_bytes() * product.outputs * product.columns;
  if (product.rows <= kFewestRows && weight_bytes < 60 * kMegabyte) return 128 * 1024;
  if (product.rows <= kMostRows && weight_bytes < 16 * kMegabyte) return 144 * 1024;
  return kMostSharedBytes;
}

// Returns the cost of a tiling to a step beyond the product's own time, in microseconds, because
// steps of many sequences are short of power. Copies of x for each tile take power, and so do
// products of outputs that a tile does not have. How much this costs depends on how fast the chip
// reads the weights: steps of 64 sequences are short of power on an H200, but not on an H100. The
// joules of products and reads are measured. The joules of copies are chosen so that steps of an 8B
// with 40 to 128 sequences are fastest on an H200. Steps of fewer sequences are then up to 3 %
// faster on it, or equally fast within 0.5 %.
double power_us(const Product& product, const SkinnyGemmTiling& t, const Chip& chip) {
  constexpr double kJoulesPerReadByte = 109e-12;
  constexpr double kJoulesPerCopiedByte = 30e-12;
  constexpr double kJoulesPerOperation = 0.5e-12;
  constexpr double kJoulesPerCodeOperation = 0.29e-12;
  constexpr double kWatts = 565;  // power left for this work; idle multiprocessors take the rest
  // The energy of a product costs time only as far as spending it at kWatts takes longer than this
  // share of the time in which the product's weights are read.
  constexpr double kOfReading = 0.9;
  const int64_t tiles = div_up(product.outputs, t.tile_outputs);
  const int64_t outputs = tiles * round_up(t.tile_outputs, kProductOutputs);
  // Where two row tiles share outputs, the second one's copy of the weights costs as much power as
  // a copy of x.
  const int64_t copied_rows = tiles * product.rows + (t.row_tiles - 1) * product.outputs;
  const auto copied = static_cast<double>(product.x_bytes() * copied_rows * product.columns);
  const auto operations = static_cast<double>(2 * outputs * product.rows * product.columns);
  const auto read = static_cast<double>(product.weight_bytes() * product.outputs * product.columns);
  const double per_operation =
      product.operands == SkinnyOperands::kCodes ? kJoulesPerCodeOperation : kJoulesPerOperation;
  const double joules =
      read * kJoulesPerReadByte + copied * kJoulesPerCopiedByte + operations * per_operation;
  return std::max(0.0, joules / kWatts * 1e6 - kOfReading * read / chip.read_bytes_per_us);
}

TensorView rows_of(const TensorView& view, int64_t first, int64_t count) {
  TensorView rows = view;
  rows.data = view.as<std::byte>() + first * view.row_stride * size_of(view.dtype);
  rows.shape = {count, view.row_elements()};
  return rows;
}

// Returns the operands that have one row for each row of x.
std::vector<TensorView*> views_of_rows(KernelArgs& args) {
  std::vector<TensorView*> views{&args.inputs["x"], &args.outputs["y"]};
  if (args.inputs.find("residual") != nullptr) {
    views.push_back(&args.inputs["residual"]);
    views.push_back(&args.outputs["sum"]);
  }
  return views;
}

// The numbers that follow from a tiling. On one kind of chip, they depend on the tiling and on the
// product's shape alone.
struct Cut {
  int64_t shared_bytes = 0;
  int num_tiles = 0;
  int num_clusters = 0;
  int stage_boxes = 1;
  int num_steps = 0;
  int weight_stages = 0;
  int x_stages = 0;
  int x_offset = 0;
  int x_scales_offset = 0;
  int staging_offset = 0;
  int partials_offset = 0;
  int stages_in_flight = 0;
};

template <typename T>
Cut cut(const Product& product, const SkinnyGemmTiling& t, const Variant<T>& variant,
        int64_t blocks) {
  Cut result;
  const int cluster = t.split ? 2 : 1;
  const int64_t boxes = div_up(product.columns, product.box_columns());
  result.num_tiles = static_cast<int>(div_up(product.outputs, t.tile_outputs)) * t.row_tiles;
  // A cluster works on one tile. Without clusters, all blocks take equally many tiles.
  const int64_t tiles_each = t.split ? 1 : div_up(result.num_tiles, blocks);
  result.num_clusters = static_cast<int>(div_up(result.num_tiles, tiles_each));
  const int64_t weight_box = int64_t{t.tile_outputs} * kBoxRowBytes;
  const int64_t scale_box = product.scale_bytes(variant.rows);
  const int64_t x_rows_box = int64_t{variant.rows} * kBoxRowBytes * product.x_boxes();
  const int64_t x_box = x_rows_box + scale_box;
  result.stage_boxes = variant.turns;
  const int64_t min_stage_bytes =
      variant.rows >= kManyRows || product.operands == SkinnyOperands::kWidenedCodes
          ? kMinStageBytesOfManyRows
          : kMinStageBytes;
  while (result.stage_boxes * (weight_box + x_box) < min_stage_bytes &&
         2 * result.stage_boxes * cluster <= boxes) {
    result.stage_boxes *= 2;
  }
  const int64_t n = result.stage_boxes;
  result.num_steps = static_cast<int>(div_up(boxes, n));

  const int64_t staged_bytes = variant.staged_bytes[cluster - 1];
  const int64_t partial_bytes = t.split ? variant.partial_bytes : 0;
  const int64_t rest = kBarriersBytes + staged_bytes + partial_bytes;
  // A product always reads 64 outputs. A tile of fewer outputs makes it read rows beyond the ring.
  const int64_t beyond = int64_t{variant.outputs - t.tile_outputs} * kBoxRowBytes;
  // Products of widened codes still read a stage of x when the next stage's products start.
  const int64_t kept_stages = product.operands == SkinnyOperands::kWidenedCodes ? 1 : 0;
  const auto deal = [&](int64_t bytes) {
    const auto weight_bytes = [&](int64_t x_stages) {
      return bytes - std::max(x_stages * n * x_box + rest, beyond + kBarriersBytes);
    };
    const int64_t ahead =
        std::clamp<int64_t>(div_up(kWeightBytesAhead, weight_box), n, kMaxBoxesAhead) / n;
    int64_t x_stages = std::max<int64_t>(2, ahead) + kept_stages;
    while (x_stages > 2 + kept_stages && weight_bytes(x_stages) < kMinWeightRingBytes)
      --x_stages;
    result.shared_bytes = bytes;
    result.x_stages = static_cast<int>(x_stages);
    result.weight_stages =
        static_cast<int>(std::min<int64_t>(weight_bytes(x_stages) / (n * weight_box), kMaxStages));
  };
  deal(shared_bytes(product));
  if (result.weight_stages < 2) deal(kMostSharedBytes);
  ENCORE_CHECK(result.weight_stages >= 2, "a ring of {} stages", result.weight_stages);
  result.x_offset = static_cast<int>(kBarriersBytes + result.weight_stages * n * weight_box);
  result.x_scales_offset = static_cast<int>(result.x_offset + result.x_stages * n * x_rows_box);
  result.staging_offset = static_cast<int>(result.x_offset + result.x_stages * n * x_box);
  result.partials_offset = static_cast<int>(result.staging_offset + staged_bytes);
  ENCORE_CHECK(result.partials_offset + partial_bytes <= result.shared_bytes, "{} of {} bytes",
               result.partials_offset + partial_bytes, result.shared_bytes);
  const int64_t in_flight = std::min(std::clamp(kBytesInFlight * weight_box / (weight_box + x_box),
                                                kMinWeightsInFlight, kMaxWeightsInFlight),
                                     tiles_each * boxes / cluster * weight_box / 2);
  result.stages_in_flight =
      static_cast<int>(std::clamp<int64_t>(in_flight / (n * weight_box), 1, result.weight_stages));
  return result;
}

SkinnyOperands operands_of(const LinearOperands& o) {
  if (o.weight->dtype != DType::kFP8) return SkinnyOperands::k16Bit;
  return o.fp8_activations ? SkinnyOperands::kCodes : SkinnyOperands::kWidenedCodes;
}
// Returns the suffix of the name under which the tuning cache stores the tilings for these kinds of
// operands.
std::string_view suffix(SkinnyOperands operands) {
  switch (operands) {
    case SkinnyOperands::kWidenedCodes:
      return " widened";
    case SkinnyOperands::kCodes:
      return " codes";
    default:
      return "";
  }
}
// Returns the largest number of rows of a launch. With widened codes it is smaller, because
// registers hold no more.
int64_t most_rows(SkinnyOperands operands) {
  return operands == SkinnyOperands::kWidenedCodes ? kMaxWidenedRows : kMaxSkinnyRows;
}
Product product_of(const LinearOperands& o, int64_t rows) {
  return {rows, o.weight->num_rows(), o.weight->row_elements(), operands_of(o)};
}

template <typename T>
BoundLaunch bind_for(Device& device, const KernelArgs& args, const SkinnyGemmTiling& t) {
  const LinearOperands o = linear_operands(args);
  const TensorView& weight = *o.weight;
  const TensorView& out = *o.out;
  const int64_t rows = o.x->num_rows();
  const Product product = product_of(o, rows);
  const Variant<T>& variant = variant_for<T>(product, t);
  const Cut c = cut(product, t, variant, chip(device).num_multiprocessors);
  SkinnyGemmArgs<T> a{};
  TensorView x = *o.x;
  BoundLaunch quantize;
  if (product.operands == SkinnyOperands::kCodes) {
    const QuantizedRows quantized = quantized_rows(*o.x, args.scratch);
    quantize = bind_quantize(o, quantized);
    x = quantized.codes;
    a.x_scale = quantized.scales.as<const float>();
    a.x_scale_stride = static_cast<int>(quantized.scales.row_stride);
  }
  if (o.scale != nullptr) {
    a.weight_scale = o.scale->as<const float>();
    a.scale_columns = o.scale->shape.rank() > 1 ? static_cast<int>(o.scale->row_elements()) : 0;
  }
  a.whole_stages = has_whole_boxes(weight);
  a.silu_mul = o.silu_mul;
  a.stage_boxes = c.stage_boxes;
  a.x_stage_boxes = c.stage_boxes * static_cast<int>(product.x_boxes());
  a.num_boxes = static_cast<int>(div_up(product.columns, product.box_columns()));
  a.weight = map_of_boxes(weight, {.rows = t.tile_outputs,
                                   .boxes = a.whole_stages ? a.stage_boxes : 0,
                                   .in_turns = a.silu_mul ? kBlockRows : 0});
  a.row_tiles = t.row_tiles;
  a.x_rows = box_rows(rows, t.row_tiles);
  a.x = map_of_boxes(x, {.rows = a.x_rows, .boxes = a.whole_stages ? a.x_stage_boxes : 0});
  a.out = {.bias = o.bias == nullptr ? nullptr : o.bias->as<const T>(),
           .data = out.data,
           .stride = out.row_stride,
           .is_float = out.dtype == DType::kF32,
           .in_packs = is_aligned(out),
           .num_rows = static_cast<int>(out.num_rows()),
           .num_outputs = static_cast<int>(weight.num_rows())};
  a.num_steps = c.num_steps;
  a.tile_outputs = t.tile_outputs;
  a.num_workers = c.num_clusters;
  a.num_tiles = c.num_tiles;
  a.weight_stages = c.weight_stages;
  a.x_stages = c.x_stages;
  a.stages_in_flight = c.stages_in_flight;
  a.cluster = t.split ? 2 : 1;
  a.x_offset = c.x_offset;
  a.x_scales_offset = c.x_scales_offset;
  a.staging_offset = c.staging_offset;
  a.partials_offset = c.partials_offset;
  allow_shared_memory(variant.kernel, kMostSharedBytes);
  const Grid grid{.blocks = static_cast<unsigned>(c.num_clusters * a.cluster),
                  .threads = static_cast<unsigned>(variant.warpgroups * 128 + 64),
                  .shared_bytes = static_cast<size_t>(c.shared_bytes),
                  .cluster = static_cast<unsigned>(a.cluster)};
  return [a, grid, kernel = variant.kernel, quantize](Stream& stream, const StepLengths& lengths) {
    if (quantize) quantize(stream, lengths);
    launch(stream, grid, kernel, a);
  };
}

}  // namespace

std::vector<SkinnyGemmTiling> skinny_gemm_tilings(int64_t rows, int64_t outputs, int64_t columns,
                                                  int num_multiprocessors, bool silu_mul,
                                                  SkinnyOperands operands) {
  constexpr int64_t kMaxWaves = 4;
  // With more rows of x than this, tilings with two row tiles are worth a try, too.
  const int64_t most_rows_of_one_tile = std::min<int64_t>(128, most_rows(operands) / 2);
  const Product product{rows, outputs, columns, operands};
  const int64_t multiple = silu_mul ? kPairRows : kBlockRows;
  std::vector<SkinnyGemmTiling> tilings;
  const auto add = [&](int64_t tile_outputs, bool split, int row_tiles) {
    const auto tile = static_cast<int>(round_up(std::min(tile_outputs, outputs), multiple));
    // A cluster works on one tile, and each of its blocks takes at least one step. A step of codes
    // may have two boxes.
    const int64_t step_columns =
        product.box_columns() * (operands == SkinnyOperands::k16Bit ? 1 : 2);
    const bool splits =
        div_up(outputs, tile) * row_tiles <= num_multiprocessors / 2 && columns > step_columns;
    const SkinnyGemmTiling tiling{.tile_outputs = tile, .split = split, .row_tiles = row_tiles};
    const bool is_new = std::find(tilings.begin(), tilings.end(), tiling) == tilings.end();
    if (tile <= max_tile_outputs(product, row_tiles) && (!split || splits) && is_new)
      tilings.push_back(tiling);
  };
  const int most_row_tiles = rows > most_rows_of_one_tile ? 2 : 1;
  for (int row_tiles = 1; row_tiles <= most_row_tiles; ++row_tiles) {
    for (const bool split : {false, true}) {
      for (int64_t waves = 1; waves <= kMaxWaves; ++waves) {
        const int64_t tile_outputs =
            div_up(outputs * row_tiles, num_multiprocessors / (split ? 2 : 1) * waves);
        if (tile_outputs >= kMinTileOutputs) add(tile_outputs, split, row_tiles);
      }
      for (const int64_t tile_outputs : {64, 128, 256})
        add(tile_outputs, split, row_tiles);
    }
  }
  const auto less = [&](const SkinnyGemmTiling& a, const SkinnyGemmTiling& b) {
    return estimate(product, a, num_multiprocessors) < estimate(product, b, num_multiprocessors);
  };
  std::stable_sort(tilings.begin(), tilings.end(), less);
  return tilings;
}

int64_t skinny_gemm_shared_bytes(int64_t rows, int64_t outputs, int64_t columns,
                                 int num_multiprocessors, const SkinnyGemmTiling& tiling,
                                 SkinnyOperands operands) {
  const Product product{rows, outputs, columns, operands};
  const auto& variant = variant_for<__half>(product, tiling);
  return cut(product, tiling, variant, num_multiprocessors).shared_bytes;
}

std::string to_text(const SkinnyGemmTiling& tiling) {
  return (tiling.row_tiles == 2 ? "2x" : "") + std::to_string(tiling.tile_outputs) +
         (tiling.split ? "s" : "");
}

SkinnyGemmTiling skinny_gemm_tiling(Device& device, const KernelArgs& args) {
  KernelArgs padded = deciding_launch(args);
  const KernelArgs decides = padded;
  const LinearOperands o = linear_operands(decides);
  const SkinnyOperands operands = operands_of(o);
  const TensorView& weight = *o.weight;
  const int64_t row_tiles = div_up(o.x->num_rows(), widest(operands));
  const int64_t rows =
      row_tiles * tile_rows(o.x->num_rows(), {.row_tiles = static_cast<int>(row_tiles)}, operands);
  for (TensorView* view : views_of_rows(padded)) {
    // A single row may have any stride, so it gets one that is a multiple of 8.
    if (view->num_rows() == 1) view->row_stride = round_up(view->row_elements(), 8);
    view->shape = {rows, view->row_elements()};
  }
  auto tilings = skinny_gemm_tilings(rows, weight.num_rows(), weight.row_elements(),
                                     chip(device).num_multiprocessors, o.silu_mul, operands);
  if (args.batch_invariant) {
    std::erase_if(tilings, [](const auto& tiling) { return tiling.split; });
    for (SkinnyGemmTiling& tiling : tilings)
      tiling.in_order = true;
  }
  return choose_way<SkinnyGemmTiling>(
      device.tuner(),
      {.launch = tuning_text(fmt::format("linear.skinny_gemm{}", suffix(operands)), padded),
       .args = padded,
       .workspace = skinny_gemm_workspace(padded),
       .ways = tilings,
       .text = [](const SkinnyGemmTiling& tiling) { return to_text(tiling); },
       .bind = [&](const SkinnyGemmTiling& tiling,
                   const KernelArgs& on) { return bind_skinny_gemm(device, on, tiling); },
       .beside =
           [&](const SkinnyGemmTiling& tiling) {
             return power_us(product_of(o, rows), tiling, chip(device));
           }});
}

Workspace skinny_gemm_workspace(const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  if (operands_of(o) != SkinnyOperands::kCodes) return {};
  return {.scratch_bytes =
              quantized_bytes(std::min(o.x->num_rows(), kMaxSkinnyRows), o.x->row_elements())};
}

bool accepts_skinny_gemm(const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  const bool is_quantized = operands_of(o) == SkinnyOperands::kCodes;
  if (o.norm != nullptr && !(is_quantized && accepts_quantized_norm(o))) return false;
  const TensorView& x = *o.x;
  const TensorView& weight = *o.weight;
  const TensorView& out = *o.out;
  if (o.silu_mul && (weight.num_rows() % kPairRows != 0 || out.dtype != x.dtype)) return false;
  const int64_t columns = weight.row_elements();
  const SkinnyOperands operands = operands_of(o);
  const bool is_coded = operands != SkinnyOperands::k16Bit;
  const bool types = size_of(x.dtype) == 2 && (is_coded || weight.dtype == x.dtype) &&
                     (out.dtype == x.dtype || out.dtype == DType::kF32);
  // Products of widened codes are accepted with any number of rows, because no other kernel takes
  // many rows of them.
  const bool any_rows = args.batch_invariant || operands == SkinnyOperands::kWidenedCodes;
  const bool rows = x.num_rows() > 0 && (any_rows || x.num_rows() <= kMaxSkinnyRows);
  return types && rows && weight.num_rows() > 0 && columns > 0 &&
         columns % (is_coded ? kCodeGroup : 8) == 0 && is_aligned(x) && is_aligned(weight) &&
         (o.scale == nullptr || o.scale->is_dense());
}

BoundLaunch bind_skinny_gemm(Device& device, const KernelArgs& args,
                             const SkinnyGemmTiling& tiling) {
  return args.inputs["x"].dtype == DType::kF16 ? bind_for<__half>(device, args, tiling)
                                               : bind_for<__nv_bfloat16>(device, args, tiling);
}

BoundLaunch bind_skinny_gemm(Device& device, const KernelArgs& args) {
  const int64_t num_rows = args.inputs["x"].num_rows();
  const int64_t most = most_rows(operands_of(linear_operands(args)));
  if (num_rows <= most) return bind_skinny_gemm(device, args, skinny_gemm_tiling(device, args));
  std::vector<BoundLaunch> turns;
  for (int64_t first = 0; first < num_rows; first += most) {
    const int64_t count = std::min(most, num_rows - first);
    KernelArgs turn = args;
    for (TensorView* view : views_of_rows(turn))
      *view = rows_of(*view, first, count);
    turns.push_back(bind_skinny_gemm(device, turn));
  }
  return [turns = std::move(turns)](Stream& stream, const StepLengths& lengths) {
    for (const BoundLaunch& turn : turns)
      turn(stream, lengths);
  };
}

}  // namespace encore::cuda
