#include "model/safetensors.h"

#include <random>

#include "base/json.h"
#include "model/testing/checkpoint_fixture.h"

namespace encore::model {
namespace {

// Returns the error of opening a file with this header and buffer, without the file's path, or ""
// when it opens.
std::string open_error(const std::string& header, const std::string& buffer) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", safetensors(header, buffer)).string();
  std::string error = error_of([&] { return SafetensorsFile(path); });
  if (const size_t place = error.find(path); place != std::string::npos) {
    error.replace(place, path.size(), "x");
  }
  return error;
}

TEST(Safetensors, GivesNamesShapesAndBytesOfItsTensors) {
  const TempDir dir;
  const SafetensorsFile file(dir.write(
      "x", safetensors({{"b", {2, 3}}, {"a", {}}, {"none", {0, 7}}, {"c", {1, 1, 1, 1, 1}}})));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const StoredTensor b = file.tensor("b");
  EXPECT_EQ(b.dtype, DType::kBF16);
  EXPECT_EQ(b.shape, (Shape{2, 3}));
  EXPECT_EQ(b.num_bytes(), 12);
  EXPECT_EQ(std::to_integer<int>(b.data[11]), 11);
  EXPECT_EQ(std::to_integer<int>(file.tensor("a").data[0]), 12);
  EXPECT_EQ(file.tensor("a").shape.rank(), 0);
  EXPECT_EQ(file.tensor("none").num_bytes(), 0);
  EXPECT_EQ(file.tensor("c").shape.rank(), 5);
  EXPECT_EQ(file.names().front(), "b");
  EXPECT_EQ(file.names().back(), "c");
  EXPECT_TRUE(file.contains("a"));
  EXPECT_FALSE(file.contains("__metadata__"));
}

TEST(Safetensors, OrdersNamesByTheirBytesAndNotByTheHeader) {
  const TempDir dir;
  const SafetensorsFile file(
      dir.write("x", safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[2,6]},)"
                                 R"("b":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}   )",
                                 "123456")));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(std::to_integer<char>(file.tensor("a").data[0]), '3');
}

TEST(Safetensors, StaysValidWhenMoved) {
  const TempDir dir;
  SafetensorsFile file(dir.write("x", safetensors({{"a", {4}}})));
  const std::byte* const data = file.tensor("a").data;
  const SafetensorsFile moved = std::move(file);
  EXPECT_EQ(moved.tensor("a").data, data);
  EXPECT_EQ(std::to_integer<int>(data[7]), 7);
}

TEST(Safetensors, AcceptsEveryDtypeOfTheFormatUntilAnUnsupportedOneIsUsed) {
  const TempDir dir;
  const SafetensorsFile file(
      dir.write("x", safetensors(R"({"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                                 R"("q":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[8,10]},)"
                                 R"("f":{"dtype":"F4","shape":[2,1],"data_offsets":[10,11]}})",
                                 "01234567890")));
  EXPECT_EQ(file.tensor("i").dtype, DType::kI64);
  EXPECT_EQ(file.tensor("q").dtype, DType::kFP8);
  EXPECT_EQ(error_of([&] { return file.tensor("f"); }),
            "unsupported: " + file.path().string() +
                ": tensor \"f\" has dtype F4; supported: BF16, F16, F32, F8_E4M3, I32, I64");
  EXPECT_NE(error_of([&] { return file.tensor("z"); }).find("tensor \"z\" is missing"),
            std::string::npos);
}

TEST(Safetensors, ChecksSizesWithoutOverflow) {
  const auto shape = [](const std::string& dims) {
    return open_error(R"({"a":{"dtype":"F32","shape":[)" + dims + R"(],"data_offsets":[0,0]}})",
                      "");
  };
  EXPECT_EQ(shape("4294967296,4294967296"), "model: x: tensor \"a\": the shape's size overflows");
  EXPECT_EQ(shape("9223372036854775807"), "model: x: tensor \"a\": the shape's size overflows");
  EXPECT_EQ(shape("4294967296,4294967296,0"), "model: x: tensor \"a\": the shape's size overflows");
  EXPECT_EQ(shape("18446744073709551615"),
            "model: x: tensor \"a\": 'shape' must hold non-negative integers");
  EXPECT_EQ(shape("0"), "");
  EXPECT_EQ(open_error(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", "x"),
            "model: x: tensor \"a\": the size is not whole bytes");
}

TEST(Safetensors, AcceptsMetadataThatIsNull) {
  const TempDir dir;
  const auto path = dir.write("x", safetensors(R"({"__metadata__":null})", ""));
  EXPECT_TRUE(SafetensorsFile(path).metadata().empty());
}

TEST(Safetensors, AcceptsAFileWithoutTensors) {
  EXPECT_EQ(open_error("{}", ""), "");
  EXPECT_EQ(open_error("{}", "x"), "model: x: 1 bytes after the last tensor belong to none");
}

TEST(Safetensors, KeepsHostileNamesOnOneLineOfTheMessage) {
  const std::string name(5000, 'n');
  const std::string error = open_error("{\"\\n\\u0000" + name + "\":{\"dtype\":\"no\\n\"}}", "");
  EXPECT_EQ(error.find('\n'), std::string::npos);
  EXPECT_LT(error.size(), 400U);
  EXPECT_NE(error.find("unknown dtype \"no\\n\""), std::string::npos) << error;
}

TEST(Safetensors, RefusesWhatIsNotARegularFile) {
  const TempDir dir;
  EXPECT_NE(error_of([&] { return SafetensorsFile(dir.path()); }).find("not a regular file"),
            std::string::npos);
  EXPECT_NE(error_of([&] { return SafetensorsFile(dir.path() / "no"); }).find("No such file"),
            std::string::npos);
}

// Makes one random change: it alters a byte or a digit, or cuts, repeats or removes a part, mostly
// in the header.
std::string mutate(std::string bytes, std::mt19937& random) {
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  static constexpr std::string_view kInteresting = "0123456789{}[]\",:-.eE\\ \n\x01\xff";
  const size_t place = below(below(4) == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 400));
  const size_t length = std::min<size_t>(1 + below(12), bytes.size() - place);
  switch (below(6)) {
    case 0:
      bytes[place] = static_cast<char>(below(256));
      break;
    case 1:
    case 2:
      bytes[place] = kInteresting[below(kInteresting.size())];
      break;
    case 3:
      bytes.resize(place);
      break;
    case 4:
      bytes.erase(place, length);
      break;
    default:
      bytes.insert(place, bytes.substr(below(bytes.size()), length));
  }
  return bytes;
}

TEST(Safetensors, SurvivesRandomDamageWithAnErrorOrSoundTensors) {
  std::mt19937 random(20250101);
  const TempDir dir;
  const std::string intact = safetensors({{"a.weight", {3, 5}}, {"b", {2}}, {"c", {1, 2, 2}}});
  int num_errors = 0;
  int num_opened = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = mutate(intact, random);
    if (round % 3 == 0 && !bytes.empty()) bytes = mutate(bytes, random);
    // In half of the rounds, the header's length is updated after the damage, so that the rules for
    // the header's content are reached.
    if (round % 2 == 0 && bytes.size() >= intact.size() && bytes.size() < intact.size() + 200) {
      const size_t header_bytes = intact.size() - 8 - 42 + (bytes.size() - intact.size());
      bytes = safetensors(bytes.substr(8, header_bytes), bytes.substr(8 + header_bytes));
    }
    const auto path = dir.write("x", bytes);
    try {
      const SafetensorsFile file(path);
      int64_t total = 0;
      unsigned sum = 0;
      for (const std::string& name : file.names()) {
        const StoredTensor tensor = file.tensor(name);
        total += tensor.num_bytes();
        for (int64_t i = 0; i < tensor.num_bytes(); ++i)
          sum += std::to_integer<unsigned>(tensor.data[i]);
      }
      EXPECT_LT(total, static_cast<int64_t>(bytes.size()));
      EXPECT_GE(sum, 0U);
      ++num_opened;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_TRUE(error.kind() == ErrorKind::kModel || error.kind() == ErrorKind::kUnsupported);
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_EQ(message.find(path.string()), 0U) << message;
      ++num_errors;
    }
  }
  EXPECT_GT(num_errors, 1000);
  EXPECT_GT(num_opened, 100);
}

}  // namespace
}  // namespace encore::model
