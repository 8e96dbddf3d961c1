#include "text/answer/answer_parser.h"

#include <random>

#include <gtest/gtest.h>

#include "base/json.h"

namespace encore::text {
namespace {

struct Call {
  std::string name;
  std::string arguments;

  bool operator==(const Call&) const = default;
};
// An answer as a client puts it together from the parts.
struct Answer {
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;

  bool operator==(const Answer&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  out << "reasoning [" << answer.reasoning << "] content [" << answer.content << "]";
  for (const Call& call : answer.calls)
    out << " " << call.name << "(" << call.arguments << ")";
  return out;
}

void add(const AnswerParts& parts, Answer& answer) {
  for (const AnswerPart& part : parts) {
    switch (part.kind) {
      case AnswerPart::Kind::kReasoning:
        answer.reasoning += part.text;
        break;
      case AnswerPart::Kind::kContent:
        answer.content += part.text;
        break;
      case AnswerPart::Kind::kCall:
        answer.calls.push_back({part.text, ""});
        break;
      case AnswerPart::Kind::kArguments:
        answer.calls.at(answer.calls.size() - 1).arguments += part.text;
    }
  }
}

Answer parsed(const AnswerRules& rules, const std::vector<std::string_view>& pieces) {
  AnswerParser parser(rules);
  Answer answer;
  for (const std::string_view piece : pieces)
    add(parser.push(piece), answer);
  add(parser.finish(), answer);
  return answer;
}

// Expects the answer however the text is cut: nowhere, at each byte alone, and between all bytes.
void expect_parsed(const AnswerRules& rules, std::string_view text, const Answer& expected) {
  ASSERT_EQ(parsed(rules, {text}), expected) << text;
  std::vector<std::string_view> bytes;
  for (size_t cut = 0; cut < text.size(); ++cut) {
    ASSERT_EQ(parsed(rules, {text.substr(0, cut), text.substr(cut)}), expected)
        << text << "\ncut at " << cut;
    bytes.push_back(text.substr(cut, 1));
  }
  ASSERT_EQ(parsed(rules, bytes), expected) << text;
}

AnswerRules hermes() {
  return {.tool_calls = ToolCallFormat::kHermes, .tools = {"get_weather", "write", "now"}};
}
AnswerRules qwen3() {
  AnswerRules rules = hermes();
  rules.has_reasoning = true;
  return rules;
}
AnswerRules llama3() {
  return {.tool_calls = ToolCallFormat::kLlama3, .tools = {"get_weather", "write", "now"}};
}

AnswerRules mistral() {
  return {.tool_calls = ToolCallFormat::kMistral, .tools = {"get_weather", "write", "now"}};
}

// Arguments of calls that are hard to parse piece by piece: escapes, braces and markers in strings,
// nesting, other scripts.
const std::string kArguments[] = {
    R"({})",
    R"({"city": "Paris"})",
    R"({"city":"Zürich","unit":"°C","days":[1,2.5,-3e2]})",
    R"({"text": "a \"quoted\" {brace} and \\ and \u00e9\ud83d\ude00"})",
    R"({"text": "</tool_call> <tool_call> <think> </think> <|python_tag|>"})",
    R"({"nested": {"list": [{"a": null}, [true, false], {}], "name": "inner"}})",
    R"({"arguments": {"name": "write"}, "parameters": "}}"})",
    "{\n  \"path\": \"src/main.cc\",\n  \"lines\": [\n    1,\n    2\n  ]\n}",
    R"({"text": "日本語 👩‍👩‍👧 \n\t", "empty": ""})",
    R"({"number": -0.0, "big": 12345678901234567890, "yes": true})",
};
// Contents that stand in front of calls.
const std::string kContents[] = {"", "Let me look.", "5 < 6, <tool> and {\"a\": 1} say:\n\nWait…"};
const std::string kNames[] = {"get_weather", "write", "now"};

std::string hermes_call(std::string_view name, std::string_view arguments) {
  return fmt::format("<tool_call>\n{{\"name\": \"{}\", \"arguments\": {}}}\n</tool_call>", name,
                     arguments);
}
std::string llama3_call(std::string_view name, std::string_view arguments) {
  return fmt::format("{{\"name\": \"{}\", \"parameters\": {}}}", name, arguments);
}

std::string mistral_call(std::string_view name, std::string_view arguments) {
  return fmt::format(
      "[TOOL_CALLS] [{{\"name\": \"{}\", \"arguments\": {}, \"id\": \"abcdefghi\"}}]", name,
      arguments);
}

struct Transcript {
  std::string text;
  Answer expected;
};

// Returns answers of each content with one call, for all arguments, and answers with two and three
// calls.
template <typename Write>
std::vector<Transcript> transcripts(const Write& write, std::string_view between) {
  std::vector<Transcript> list;
  for (const std::string& content : kContents) {
    for (size_t i = 0; i < std::size(kArguments); ++i) {
      const std::string& name = kNames[i % 3];
      list.push_back({content + (content.empty() ? "" : "\n") + write(name, kArguments[i]),
                      {"", content, {{name, kArguments[i]}}}});
    }
  }
  for (size_t count = 2; count <= 3; ++count) {
    for (size_t i = 0; i < std::size(kArguments); ++i) {
      Transcript transcript;
      for (size_t j = 0; j < count; ++j) {
        const std::string& arguments = kArguments[(i + 3 * j) % std::size(kArguments)];
        if (j > 0) transcript.text += between;
        transcript.text += write(kNames[j], arguments);
        transcript.expected.calls.push_back({kNames[j], arguments});
      }
      list.push_back(std::move(transcript));
    }
  }
  return list;
}

TEST(AnswerParser, FindsHermesCallsHoweverTheTextIsCut) {
  const auto list = transcripts(hermes_call, "\n");
  ASSERT_GE(list.size(), 50U);
  for (const Transcript& transcript : list)
    expect_parsed(hermes(), transcript.text, transcript.expected);
}

TEST(AnswerParser, FindsQwen3CallsBehindReasoningHoweverTheTextIsCut) {
  const std::string reasoning = "The user asks.\n<tool_call>{}</tool_call> is how I call; 1 < 2";
  for (Transcript transcript : transcripts(hermes_call, "\n")) {
    transcript.expected.reasoning = reasoning;
    AnswerRules rules = qwen3();
    expect_parsed(rules, "<think>\n" + reasoning + "\n</think>\n\n" + transcript.text,
                  transcript.expected);
    rules.starts_in_reasoning = true;
    expect_parsed(rules, "\n" + reasoning + "\n</think>\n\n" + transcript.text,
                  transcript.expected);
  }
}

TEST(AnswerParser, FindsLlama3CallsHoweverTheTextIsCut) {
  for (const std::string_view between : {"; ", "\n", ",<|python_tag|>"}) {
    const auto list = transcripts(llama3_call, between);
    ASSERT_GE(list.size(), 50U);
    for (const Transcript& transcript : list)
      expect_parsed(llama3(), transcript.text, transcript.expected);
  }
  for (const Transcript& transcript : transcripts(llama3_call, ";")) {
    if (transcript.expected.content.empty())
      expect_parsed(llama3(), "<|python_tag|>" + transcript.text, transcript.expected);
  }
}

TEST(AnswerParser, FindsMistralCallsHoweverTheTextIsCut) {
  const auto list = transcripts(mistral_call, " ");
  ASSERT_GE(list.size(), 50U);
  for (const Transcript& transcript : list)
    expect_parsed(mistral(), transcript.text, transcript.expected);
  expect_parsed(mistral(),
                R"(Now.[TOOL_CALLS][{"name": "now", "arguments": {}},)"
                R"( {"arguments": {"a": [1]}, "name": "write"}] Done [1])",
                {"", "Now.Done [1]", {{"now", "{}"}, {"write", R"({"a": [1]})"}}});
  for (const std::string_view text :
       {"[TOOL_CALLS]", "[TOOL_CALLS] []", "[TOOL_CALLS] now", "[TOOL_CALLS][{\"name\": 5}]",
        "[TOOL_C", "[1] {\"name\": \"now\"}", "[TOOL_CALLS][{\"name\": \"now\", \"argu"}) {
    expect_parsed(mistral(), text, {"", std::string(text), {}});
  }
}

TEST(AnswerParser, StreamsTheArgumentsOfACallAsTheyCome) {
  AnswerParser parser(hermes());
  EXPECT_TRUE(parser.push(R"(<tool_call>{"name": "write", "arguments")").empty());
  using Kind = AnswerPart::Kind;
  EXPECT_EQ(parser.push(R"(: {"text": "Once)"),
            (AnswerParts{{Kind::kCall, "write"}, {Kind::kArguments, R"({"text": "Once)"}}));
  EXPECT_EQ(parser.push(" upon"), (AnswerParts{{Kind::kArguments, " upon"}}));
  EXPECT_EQ(parser.push("\"}}\n</tool_call>"), (AnswerParts{{Kind::kArguments, "\"}"}}));
  EXPECT_TRUE(parser.finish().empty());
}

TEST(AnswerParser, TakesCallsInTheOtherFormsThatModelsWrite) {
  const Answer expected{"", "", {{"now", R"({"zone": "UTC"})"}}};
  const auto expect_call = [&](std::string_view json) {
    expect_parsed(hermes(), fmt::format("<tool_call>{}</tool_call>", json), expected);
    expect_parsed(llama3(), json, expected);
  };
  expect_call(R"({"arguments": {"zone": "UTC"}, "name": "now"})");
  expect_call(R"({"type": "function", "name": "now", "parameters": {"zone": "UTC"}})");
  expect_call(R"({"name": "now", "arguments": "{\"zone\": \"UTC\"}"})");
  expect_call(R"({"name": "now", "arguments": {"zone": "UTC"}, "id": "1"})");
  for (const std::string_view json :
       {R"({"name": "now"})", R"({"name": "now", "arguments": null})",
        R"({"arguments": "", "name": "now"})", R"({"name": "now", "parameters": ""})"}) {
    expect_parsed(hermes(), fmt::format("<tool_call>{}</tool_call>", json),
                  {"", "", {{"now", "{}"}}});
    expect_parsed(llama3(), json, {"", "", {{"now", "{}"}}});
  }
  expect_parsed(hermes(), R"(<tool_call>{"name": "unknown", "arguments": {}}</tool_call>)",
                {"", "", {{"unknown", "{}"}}});
}

TEST(AnswerParser, ShowsWhatOnlyResemblesACallAsItIs) {
  for (const std::string_view text :
       {"", " \n", "No call.\n", "<tool_call>", "<tool_call>\n</tool_call>", "a <tool_cal b",
        "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>", "<<tool_call",
        "<tool_call>{'name': 'now'}</tool_call>", "<tool_call>[1]</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call> ",
        "<tool_call>{\"name\": \"now\", \"arguments\": 5}", "<tool_call>\"name\"</tool_call>",
        "<tool_call>{\"name\": \"\"}", "<tool_call>{\"name\": {}}",
        "<tool_call>{\"name\": \"now\", \"argu", "</tool_call>"}) {
    expect_parsed(hermes(), text, {"", std::string(text), {}});
  }
  for (const std::string_view text :
       {"", " \n", "{}", "{", "No call.\n{\"name\": \"Ann\", \"age\": 5}", "{\"name\": \"Ann\"}; {",
        "{\"city\": \"Paris\", \"name\": \"now\"}", "It is {\"name\": \"now\"}",
        "<|python_tag|>print(1)", "<|python_tag|>\n", "<|python_t",
        "<|python_tag|>{\"name\": \"none\"}", "[{\"name\": \"now\"}]",
        "{\"name\": \"now\", \"parameters\": ", "{\"name\": \"now\", \"parameters\": [1]}",
        "\n {\n }"}) {
    expect_parsed(llama3(), text, {"", std::string(text), {}});
  }
}

TEST(AnswerParser, PassesOnArgumentsThatTurnOutToBeNoJson) {
  const std::string broken = R"({"a": 1,, "b": })";
  expect_parsed(
      hermes(),
      fmt::format("<tool_call>{{\"name\": \"now\", \"arguments\": {}</tool_call> ok", broken),
      {"", "ok", {{"now", broken}}});
  expect_parsed(hermes(), fmt::format("<tool_call>{{\"name\": \"now\", \"arguments\": {}", broken),
                {"", "", {{"now", broken}}});
  expect_parsed(llama3(), fmt::format("{{\"name\": \"now\", \"parameters\": {}", broken),
                {"", "", {{"now", broken}}});
  const std::string cut = R"({"text": "Once upon)";
  expect_parsed(hermes(), fmt::format("<tool_call>{{\"name\": \"write\", \"arguments\": {}", cut),
                {"", "", {{"write", cut}}});
}

TEST(AnswerParser, ForgivesWhatModelsLeaveAroundTheClosingMarker) {
  const std::string call = R"(<tool_call>{"name": "now", "arguments": {}})";
  const std::vector<Call> once{{"now", "{}"}};
  expect_parsed(hermes(), call, {"", "", once});
  expect_parsed(hermes(), call + "}\n</tool_call>\n Done.\n", {"", "Done.\n", once});
  expect_parsed(hermes(), call + "\n</tool_", {"", "", once});
  expect_parsed(hermes(), call + " And so on", {"", "And so on", once});
  expect_parsed(hermes(), call + "\n" + call + "</tool_call>", {"", "", {once[0], once[0]}});
}

TEST(AnswerParser, EndsBehindTheFirstCallWhereOnlyOneIsAsked) {
  for (AnswerRules rules : {hermes(), llama3()}) {
    rules.parallel_calls = false;
    const auto write = rules.tool_calls == ToolCallFormat::kHermes ? hermes_call : llama3_call;
    const std::string text = "Now.\n" + write("now", "{}") + "\n" + write("write", "{}") + " more";
    expect_parsed(rules, text, {"", "Now.", {{"now", "{}"}}});
    AnswerParser parser(rules);
    parser.push(text.substr(0, 20));
    EXPECT_FALSE(parser.has_ended());
    parser.push(text.substr(20));
    EXPECT_TRUE(parser.has_ended());
  }
}

TEST(AnswerParser, SplitsReasoningOffHoweverTheTextIsCut) {
  const AnswerRules plain{.has_reasoning = true};
  const AnswerRules inside{.has_reasoning = true, .starts_in_reasoning = true};
  expect_parsed(plain, "<think>\n1 < 2 </ think>\n</think>\n\nYes.\n",
                {"1 < 2 </ think>", "Yes.\n", {}});
  expect_parsed(plain, " \n<think></think>Yes.", {"", "Yes.", {}});
  expect_parsed(plain, "<think>  \n\n</think>\n\nYes.", {"", "Yes.", {}});
  expect_parsed(plain, "No <think> here </think>.", {"", "No <think> here </think>.", {}});
  expect_parsed(plain, " <thin k", {"", " <thin k", {}});
  expect_parsed(plain, "\n <thi", {"", "\n <thi", {}});
  expect_parsed(plain, "<think>It is cut o", {"It is cut o", "", {}});
  expect_parsed(plain, "<think>It is cut </thi", {"It is cut </thi", "", {}});
  expect_parsed(plain, "", {"", "", {}});
  expect_parsed(inside, "Hm <th <\n ok\n</think>\nYes </think>.",
                {"Hm <th <\n ok", "Yes </think>.", {}});
  expect_parsed(inside, "<th ink>", {"<th ink>", "", {}});
  expect_parsed(inside, "\n<think>\nHm.</think>Yes", {"Hm.", "Yes", {}});
  expect_parsed(inside, "</think>Yes", {"", "Yes", {}});
  expect_parsed(AnswerRules{}, "<think>Hm</think> <tool_call>{}",
                {"", "<think>Hm</think> <tool_call>{}", {}});
}

TEST(AnswerParser, KnowsWhetherItIsInTheReasoning) {
  AnswerParser parser(AnswerRules{.has_reasoning = true});
  const auto expect_after = [&](std::string_view text, bool reasoning, bool content) {
    parser.push(text);
    EXPECT_EQ(parser.is_in_reasoning(), reasoning) << text;
    EXPECT_EQ(parser.is_in_content(), content) << text;
  };
  expect_after("", false, false);
  expect_after("<thi", false, false);
  expect_after("nk>", true, false);
  expect_after("Hm.", true, false);
  expect_after("</think>", true, false);
  expect_after("\n", true, false);  // falls away
  expect_after("Yes", false, true);
}

TEST(AnswerParser, DividesDamagedTextsTheSameWayHoweverTheyAreCut) {
  std::mt19937 random(7);
  const std::string_view bytes = "<>{}[]\",:/ \n\\;|{}<";
  AnswerRules qwen3_inside = qwen3();
  qwen3_inside.starts_in_reasoning = true;
  for (const AnswerRules& rules : {hermes(), qwen3(), qwen3_inside, llama3(), mistral()}) {
    const auto write = rules.tool_calls == ToolCallFormat::kLlama3    ? llama3_call
                       : rules.tool_calls == ToolCallFormat::kMistral ? mistral_call
                                                                      : hermes_call;
    const auto list = transcripts(write, "\n");
    for (int round = 0; round < 4000; ++round) {
      std::string text = list[random() % list.size()].text;
      if (rules.has_reasoning) text = "<think>\nHm </thin\n</think>\n" + text;
      for (uint32_t i = 0; i <= random() % 3; ++i) {
        const size_t at = random() % text.size();
        const size_t length = std::min<size_t>(1 + random() % 12, text.size() - at);
        if (random() % 2 == 0) {
          text[at] = bytes[random() % bytes.size()];
        } else {
          text.insert(random() % text.size(), text.substr(at, length));
        }
      }
      std::vector<std::string_view> pieces;
      for (size_t at = 0; at < text.size();) {
        const size_t length = 1 + random() % 5;
        pieces.push_back(std::string_view(text).substr(at, length));
        at += length;
      }
      ASSERT_EQ(parsed(rules, pieces), parsed(rules, {text})) << text;
    }
  }
}

TEST(AnswerParser, TakesTimeInProportionToTheText) {
  const std::string spaces(1 << 20, '\n');
  for (AnswerRules rules : {qwen3(), llama3()}) {
    expect_parsed(rules, "", {});
    EXPECT_EQ(parsed(rules, {"a", spaces, "b"}).content.size(), spaces.size() + 2);
    EXPECT_EQ(parsed(rules, {"<tool_call>", spaces, "b"}).content.size(), spaces.size() + 12);
  }
}

}  // namespace
}  // namespace encore::text
