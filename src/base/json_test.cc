#include "base/json.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"

namespace encore::json {
namespace {

// Returns the message of the kModel error that parsing `text` gives; "" when it parses.
std::string parse_error(std::string_view text) {
  return message_of(ErrorKind::kModel, [&] { parse(text, "x.json"); });
}

template <typename Function>
std::string error_of(const Function& function) {
  return message_of(ErrorKind::kModel, function);
}

TEST(Json, ParsesEveryKindOfValue) {
  const value v = parse(R"({"a": [1, -2, 1.5, true, null, "A\né"], "b": {"c": {}}})", "x");
  const Object root(v, "x");
  const array& a = root.at("a").as_array();
  EXPECT_EQ(a.at(0).as_int64(), 1);
  EXPECT_EQ(a.at(2).as_double(), 1.5);
  EXPECT_EQ(a.at(5).as_string(), "A\n\xc3\xa9");
  EXPECT_TRUE(root.object_at("b").object_at("c").raw().empty());
}

TEST(Json, KeepsLongStringsAndKeysWithEscapes) {
  const std::string half(100000, 'y');
  const value v = parse("{\"k\\u0041" + half + "\": \"" + half + "\\u0042" + half + "\"}", "x");
  EXPECT_EQ(Object(v, "x").string_at("kA" + half), half + "B" + half);
}

TEST(Json, RoundsDecimalsCorrectly) {
  const char* const texts[] = {"1e-05",
                               "1e-06",
                               "0.1",
                               "7.2057594037927933e16",
                               "2.2250738585072014e-308",
                               "0.30000000000000004",
                               "1e22",
                               "1.7976931348623157e308",
                               "-0.0",
                               "123456789012345678901234567890"};
  for (const std::string text : texts) {
    EXPECT_EQ(parse(text, "x").as_double(), std::stod(text)) << text;
  }
  EXPECT_EQ(parse("1e-400", "x").as_double(), 0.0);
  EXPECT_EQ(parse_error("[1e400]"), "x.json: invalid JSON at byte 6: number 1e400 is too large");
}

TEST(Json, RefusesADuplicateKeyInOneObject) {
  EXPECT_EQ(parse_error(R"({"a": 1, "a": 2})"),
            "x.json: invalid JSON at byte 11: key \"a\" occurs twice in one object");
  EXPECT_NE(parse_error(R"({"a": 1, "\u0061": 2})").find("key \"a\" occurs twice"),
            std::string::npos);
  EXPECT_NE(parse_error(R"([{"": 1, "": 2}])").find("key \"\" occurs twice"), std::string::npos);
  EXPECT_EQ(parse_error(R"({"a": {"a": {"b": 1}}, "b": [{"a": 1}, {"a": 2}]})"), "");
}

TEST(Json, AllowsSixtyFourLevelsAndNoMore) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(parse_error(nested(64)), "");
  EXPECT_NE(parse_error(nested(65)).find("x.json: invalid JSON at byte 64"), std::string::npos);
  EXPECT_NE(parse_error(std::string(1000000, '[')), "");
}

TEST(Json, RefusesEveryTruncationOfAnObject) {
  const std::string text = R"({"a": [1.5, "A", true], "b": null})";
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_NE(parse_error(text.substr(0, size)), "") << size;
  }
  EXPECT_EQ(parse_error(text), "");
}

TEST(Json, RefusesWhatIsNotOneValue) {
  for (const char* text :
       {"", "   ", "{} {}", "{\"a\":1,}", "[1,]", "{a:1}", "nul", "NaN", "\"\xff\"", "01", "'a'",
        "// c\n1", "\xef\xbb\xbf{}", "\"\\ud800\"", "\"\n\""}) {
    EXPECT_NE(parse_error(text).find("x.json: invalid JSON at byte "), std::string::npos) << text;
  }
}

TEST(Json, NamesTheFileAndTheKeyInAccessorErrors) {
  const value v = parse(
      R"({"i": 1, "s": "t", "n": null, "o": {"d": 0.5, "u": 18446744073709551615}})", "c.json");
  const Object root(v, "c.json");
  EXPECT_EQ(error_of([&] { return root.int_at("s"); }),
            "c.json: key 's' must be an integer, not a string");
  EXPECT_EQ(error_of([&] { return root.bool_at("z"); }), "c.json: key 'z' is missing");
  EXPECT_EQ(error_of([&] { return root.string_at("n"); }),
            "c.json: key 'n' must be a string, not null");
  EXPECT_EQ(error_of([&] { return root.object_at("i"); }),
            "c.json: key 'i' must be an object, not an integer");
  EXPECT_EQ(error_of([&] { return root.array_at("o"); }),
            "c.json: key 'o' must be an array, not an object");
  EXPECT_EQ(error_of([&] { return root.object_at("o").int_at("d"); }),
            "c.json: 'o': key 'd' must be an integer, not a number");
  EXPECT_EQ(error_of([&] { return root.object_at("o").int_at("u"); }),
            "c.json: 'o': key 'u' is too large: 18446744073709551615");
  EXPECT_EQ(error_of([&] { return Object(root.at("s"), "c.json"); }),
            "c.json: must be a JSON object, not a string");
}

TEST(Json, FallsBackOnAbsentOrNullKeysOnly) {
  const value v = parse(R"({"i": 7, "n": null, "f": 2, "b": false, "s": "t"})", "x");
  const Object root(v, "x");
  EXPECT_EQ(root.int_or("i", 1), 7);
  EXPECT_EQ(root.int_or("n", 1), 1);
  EXPECT_EQ(root.double_or("f", 1.0), 2.0);
  EXPECT_EQ(root.double_or("z", 1.0), 1.0);
  EXPECT_FALSE(root.bool_or("b", true));
  EXPECT_EQ(root.string_or("s", "u"), "t");
  EXPECT_FALSE(root.has("n"));
  EXPECT_THROW((void)root.bool_or("s", true), Error);
}

TEST(Json, WritesNumbersForPeopleOrExactly) {
  const value v = parse(R"({"a": [0.1234567890123, 12345678, 1e300], "b": "c"})", "x");
  EXPECT_EQ(to_text(v), R"({"a": [0.123457, 12345678, 1e+300], "b": "c"})");
  EXPECT_EQ(exact_text(v), R"({"a": [0.1234567890123, 12345678, 1e+300], "b": "c"})");
  EXPECT_EQ(parse(exact_text(v), "y"), v);
}

TEST(Json, KnowsWhichValuesAreTheSame) {
  const auto same = [](std::string_view a, std::string_view b) {
    return is_same(parse(a, "a"), parse(b, "b"));
  };
  EXPECT_TRUE(same("1", "1.0"));
  EXPECT_TRUE(same(R"({"a": [1, {"b": 2}], "c": null})", R"({"c": null, "a": [1.0, {"b": 2e0}]})"));
  EXPECT_FALSE(same("[1, 2]", "[2, 1]"));
  EXPECT_FALSE(same("[1]", "[1, 1]"));
  EXPECT_FALSE(same(R"({"a": 1})", R"({"b": 1})"));
  EXPECT_FALSE(same(R"({"a": 1})", R"({"a": 1, "b": 1})"));
  EXPECT_FALSE(same("[]", "{}"));
  EXPECT_FALSE(same("0", "false"));
}

TEST(Json, ReadsAFileAndNamesOneItCannotRead) {
  const TempDir dir;
  const auto path = dir.write("a.json", "{\"a\": 1");
  EXPECT_EQ(read_file(path), "{\"a\": 1");
  EXPECT_NE(
      error_of([&] { return parse_file(path); }).find(path.string() + ": invalid JSON at byte 7"),
      std::string::npos);
  dir.write("a.json", "");
  EXPECT_EQ(read_file(path), "");
  std::filesystem::remove(path);
  EXPECT_EQ(error_of([&] { return read_file(path); }),
            path.string() + ": cannot be read: No such file or directory");
  EXPECT_NE(error_of([&] { return read_file(dir.path()); }).find("Is a directory"),
            std::string::npos);
}

}  // namespace
}  // namespace encore::json
