#include "model/gguf/file.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/temp_dir.h"
#include "model/gguf/metadata.h"

namespace encore::model::gguf {
namespace {

// Writes a GGUF file piece by piece.
class Writer {
 public:
  template <typename T>
  Writer& add(T number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(T));
    return *this;
  }
  Writer& text(std::string_view text) {
    add<uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  Writer& head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    bytes_ += "GGUF";
    return add(version).add(tensors).add(keys);
  }
  Writer& integer(std::string_view key, uint32_t value) {
    return text(key).add<uint32_t>(4).add(value);
  }
  Writer& string(std::string_view key, std::string_view value) {
    return text(key).add<uint32_t>(8).text(value);
  }
  Writer& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type,
                 uint64_t offset) {
    text(name).add<uint32_t>(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims)
      add(dim);
    return add(type).add(offset);
  }
  Writer& align() {
    bytes_.resize((bytes_.size() + 31) / 32 * 32);
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

TEST(GgufFile, ReadsKeysAndTensors) {
  const TempDir dir;
  Writer writer;
  writer.head(2, 5).integer("a.count", 7).string("a.name", "llama");
  writer.text("a.ratio").add<uint32_t>(6).add(0.5F);
  writer.text("a.flag").add<uint32_t>(7).add<uint8_t>(1);
  writer.text("a.words").add<uint32_t>(9).add<uint32_t>(8).add<uint64_t>(2).text("one").text("two");
  writer.tensor("first", {3, 2}, 0, 0).tensor("second", {2}, 1, 32).align();
  for (int i = 0; i < 6; ++i)
    writer.add(static_cast<float>(i));
  writer.align().add<uint16_t>(0x3c00).add<uint16_t>(0xc000);
  const File file(dir.write("a.gguf", writer.bytes()));
  EXPECT_EQ(file.integer("a.count"), 7);
  EXPECT_EQ(file.text("a.name"), "llama");
  EXPECT_EQ(file.number("a.ratio"), 0.5);
  EXPECT_TRUE(file.boolean("a.flag"));
  EXPECT_EQ(file.texts("a.words").at(1), "two");
  const Tensor& first = file.tensors().at("first");
  EXPECT_EQ(first.shape, (Shape{2, 3}));
  float numbers[6];
  widen(*first.format, first.data, 0, 6, numbers);
  EXPECT_EQ(numbers[5], 5);
  const Tensor& second = file.tensors().at("second");
  widen(*second.format, second.data, 0, 2, numbers);
  EXPECT_EQ(numbers[0], 1);
  EXPECT_EQ(numbers[1], -2);
}

std::string error_of(const std::string& bytes) {
  const TempDir dir;
  try {
    const File file(dir.write("a.gguf", bytes));
    (void)file.text("general.architecture");
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  return "";
}

TEST(GgufFile, RefusesWhatIsNoFileOfItsOwnAccount) {
  const auto huge = std::numeric_limits<uint64_t>::max();
  const std::pair<std::string, std::string> rows[] = {
      {"", "ends within its first bytes"},
      {"GGU", "ends within its first bytes"},
      {"GGML\3\0\0\0", "not a GGUF file"},
      {Writer().head(0, 0, 1).bytes(), "version 1 is not read"},
      {Writer().head(0, 0, 3U << 24).bytes(), "little-endian"},
      {Writer().head(huge, 0).bytes(), "tensors cannot be in a file of"},
      {Writer().head(0, huge).bytes(), "keys cannot be in a file of"},
      {Writer().head(0, 1).bytes(), "keys cannot be in a file of"},
      {Writer().head(0, 1).add(huge).text("padding padding").bytes(),
       "a key's name is longer than the file"},
      {Writer().head(0, 1).text("a").add<uint32_t>(99).add(huge).bytes(),
       "key \"a\": there is no type 99"},
      {Writer().head(0, 1).text("a").add<uint32_t>(8).add(huge).bytes(),
       "key \"a\" is longer than the file"},
      {Writer().head(0, 1).text("a").add<uint32_t>(9).add<uint32_t>(4).add(huge).bytes(),
       "elements of key \"a\" cannot be"},
      {Writer().head(0, 1).text("a").add<uint32_t>(9).add<uint32_t>(9).add(huge).bytes(),
       "key \"a\": an array of type 9 is not read"},
      {Writer()
           .head(0, 1)
           .text("a")
           .add<uint32_t>(9)
           .add<uint32_t>(8)
           .add<uint64_t>(1)
           .add(huge)
           .bytes(),
       "key \"a\" is longer than the file"},
      {Writer().head(0, 2).integer("a", 1).integer("a", 2).bytes(), "key \"a\" is there twice"},
      {Writer().head(0, 1).integer("general.alignment", 3).bytes(), "'general.alignment' is 3"},
      {Writer().head(1, 0).tensor("t", {}, 0, 0).add(huge).bytes(),
       "tensor \"t\" has 0 dimensions"},
      {Writer().head(1, 0).tensor("t", {1, 1, 1, 1, 1}, 0, 0).bytes(),
       "tensor \"t\" has 5 dimensions"},
      {Writer().head(1, 0).tensor("t", {4, 0}, 0, 0).bytes(), "tensor \"t\" has a dimension of 0"},
      {Writer().head(1, 0).tensor("t", {uint64_t{1} << 42, 32}, 0, 0).bytes(),
       "tensor \"t\" has a dimension of 32"},
      {Writer().head(1, 0).tensor("t", {huge}, 0, 0).bytes(),
       "tensor \"t\" has a dimension of 1844"},
      {Writer().head(1, 0).tensor("t", {4}, 77, 0).bytes(), "tensor \"t\" is in format 77"},
      {Writer().head(1, 0).tensor("t", {33}, 8, 0).bytes(),
       "rows of 33 elements, no multiple of the 32 in a block of Q8_0"},
      {Writer().head(1, 0).tensor("t", {4}, 0, huge).bytes(), "tensor \"t\" lies behind the end"},
      {Writer().head(1, 0).tensor("t", {4}, 0, 0).align().bytes(), "ends within tensor \"t\""},
      {Writer().head(1, 0).tensor("t", {uint64_t{1} << 42}, 0, 0).align().bytes(),
       "ends within tensor \"t\""},
      {Writer().head(2, 0).tensor("t", {4}, 0, 0).tensor("t", {4}, 0, 0).align().bytes(),
       "tensor \"t\" is there twice"},
      {Writer().head(0, 1).integer("split.count", 70000).bytes(), "'split.count' is 70000"},
      {Writer().head(0, 1).integer("split.count", 2).bytes(),
       "give the first, which is named ...-00001-of-00002.gguf"},
      {Writer().head(0, 1).integer("general.architecture", 2).bytes(),
       "key 'general.architecture' is not a string"},
      {Writer().head(0, 0).bytes(), "key 'general.architecture' is missing"},
  };
  for (const auto& [bytes, says] : rows)
    EXPECT_NE(error_of(bytes).find(says), std::string::npos) << says << "\n" << error_of(bytes);
}

TEST(GgufFile, FindsTheOtherFilesOfASplit) {
  const TempDir dir;
  Writer first;
  first.head(1, 2)
      .integer("split.no", 0)
      .integer("split.count", 2)
      .tensor("a", {2}, 0, 0)
      .align()
      .add(1.0F)
      .add(2.0F);
  Writer second;
  second.head(1, 2)
      .integer("split.no", 1)
      .integer("split.count", 2)
      .tensor("b", {2}, 0, 0)
      .align()
      .add(3.0F)
      .add(4.0F);
  const auto path = dir.write("m-00001-of-00002.gguf", first.bytes());
  EXPECT_THROW(File{path}, Error);
  const auto other = dir.write("m-00002-of-00002.gguf", second.bytes());
  const File file(path);
  EXPECT_EQ(file.paths().size(), 2U);
  EXPECT_TRUE(file.has_tensor("a") && file.has_tensor("b"));
  EXPECT_THROW(File{other}, Error);
}

TEST(GgufTensors, HaveNamesInACheckpointsWords) {
  EXPECT_EQ(tensor_name("model.embed_tokens.weight"), "token_embd.weight");
  EXPECT_EQ(tensor_name("model.layers.12.self_attn.q_proj.bias"), "blk.12.attn_q.bias");
  EXPECT_EQ(tensor_name("model.layers.0.post_attention_layernorm.weight"), "blk.0.ffn_norm.weight");
  for (const char* name : {"", "model.layers.", "model.layers.3", "model.layers.3.weight",
                           "model.layers.3.other.weight", "other"})
    EXPECT_EQ(tensor_name(name), "") << name;
}

}  // namespace
}  // namespace encore::model::gguf
