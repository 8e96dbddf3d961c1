#include "text/jinja/template.h"

#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/source_dir.h"
#include "base/testing/message_of.h"
#include "text/testing/fixed_time.h"

namespace encore::text::jinja {
namespace {

using Result = std::variant<std::string, Failure>;

Result render(std::string_view source, const json::object& with = {},
              const Limits& limits = Limits()) {
  return Template::parse(source, "test").render(with, limits);
}

std::string text_of(std::string_view source, const json::object& with = {}) {
  Result result = render(source, with);
  if (const auto* failure = std::get_if<Failure>(&result)) return "failed: " + failure->message;
  return std::get<std::string>(result);
}

std::string parse_error(std::string_view source, ErrorKind kind = ErrorKind::kModel) {
  return message_of(kind, [&] { Template::parse(source, "test"); });
}

Failure failure_of(std::string_view source, const Limits& limits = Limits()) {
  Result result = render(source, {}, limits);
  EXPECT_TRUE(std::holds_alternative<Failure>(result)) << source;
  return std::holds_alternative<Failure>(result) ? std::get<Failure>(result) : Failure();
}

TEST(JinjaTemplate, PrintsWhatJinjaPrints) {
  const std::string folder = ENCORE_SOURCE_DIR "/src/text/testdata/jinja/";
  const json::value with = json::parse_file(folder + "variables.json");
  std::ifstream lines(folder + "expected.jsonl");
  int num_lines = 0;
  for (std::string line; std::getline(lines, line); ++num_lines) {
    const json::value row = json::parse(line, "expected.jsonl");
    const std::string source = json::Object(row, "row").string_at("template");
    const json::value& outcome = row.at("outcome");
    Result result = Failure{};
    try {
      result = Template::parse(source, "test").render(with.get_object(), Limits(), fixed_time());
    } catch (const Error& error) {
      result = Failure{FailureKind::kFailed, 0, error.what()};
    }
    const auto* failure = std::get_if<Failure>(&result);
    if (outcome.is_string()) {
      const std::string expected(outcome.get_string().data(), outcome.get_string().size());
      EXPECT_EQ(failure == nullptr ? std::get<std::string>(result) : failure->message, expected)
          << source;
    } else if (const json::value* refused = outcome.get_object().if_contains("refused")) {
      ASSERT_TRUE(failure != nullptr) << source;
      EXPECT_EQ(failure->kind, FailureKind::kRefused) << source;
      EXPECT_EQ(failure->message, std::string(refused->get_string().c_str()));
    } else {
      EXPECT_TRUE(failure != nullptr) << source << "\n"
                                      << std::get<std::string>(result) << "\n"
                                      << outcome;
    }
  }
  EXPECT_GT(num_lines, 250);
}

TEST(JinjaTemplate, NamesTheLineOfWhatDoesNotParse) {
  EXPECT_EQ(parse_error("a\n{% if x %}\n{{ 1 + }}{% endif %}"),
            "test: line 3: expected an expression, got '}}'");
  EXPECT_EQ(parse_error("{% if x %}\n"), "test: line 1: 'endif' is missing");
  EXPECT_EQ(parse_error("{{ 'a"), "test: line 1: a string has no end");
  EXPECT_EQ(parse_error("\n{% extends 'x' %}", ErrorKind::kUnsupported),
            "test: line 2: Encore does not have the tag 'extends'; write the template without it");
}

TEST(JinjaTemplate, NamesTheLineOfWhatFails) {
  const Failure failure = failure_of("a\n{% for x in [1] %}\n{{ x\n.y.z }}\n{% endfor %}");
  EXPECT_EQ(failure.kind, FailureKind::kFailed);
  EXPECT_EQ(failure.line, 4);
  EXPECT_EQ(failure.message, "'int object' has no attribute 'y'");
}

TEST(JinjaTemplate, TellsARefusalFromAFailure) {
  const Failure failure = failure_of("\n{{ raise_exception('roles must alternate') }}");
  EXPECT_EQ(failure.kind, FailureKind::kRefused);
  EXPECT_EQ(failure.line, 2);
  EXPECT_EQ(failure.message, "roles must alternate");
  EXPECT_EQ(failure_of("{{ raise_exception('') }}").message,
            "the template refuses the conversation and says no reason");
  using namespace std::string_literals;
  EXPECT_EQ(failure_of("{{ raise_exception('\0no') }}"s).message, " no");
}

TEST(JinjaTemplate, TakesEndsOfLinesOfAllSystems) {
  EXPECT_EQ(text_of("a\r\n{% if true %}\r\nb\rc{% endif %}\r\n"), "a\nb\nc");
}

TEST(JinjaTemplate, ReadsBytesThatAreNotUtf8AsReplacements) {
  const json::object with = {{"x", "a\xff"}};
  EXPECT_EQ(text_of("\xc3{{ x }}{{ x | length }}", with),
            "\xef\xbf\xbd"
            "a\xef\xbf\xbd"
            "2");
}

// Without limits, each of these templates would take more time, memory or stack than the machine
// has.
TEST(JinjaTemplate, EndsHostileTemplatesByALimit) {
  const char* const hostile[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 'x' * 10000000000000 }}",
      "{{ [1] * 10000000000000 }}",
      "{{ 'x' | center(1000000000000) }}",
      "{{ 'a' | indent(100000000000, true) }}",
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}"
      "{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
      "{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}"
      "{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=1) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x == ns.x + [] }}{{ ns.x }}",
      "{% set ns = namespace(x=1) %}{% for i in range(100) %}{% set ns.x = (ns.x, ns.x) %}"
      "{% endfor %}{{ {ns.x: 1} }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(x) %}{% call m(x) %}{% endcall %}{% endmacro %}{{ m(1) }}",
      "{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns }}",
      "{% for i in range(99999) %}{% for j in range(9999) %}{{ 'aaaaaaaaaaaaaaaa' }}"
      "{% endfor %}{% endfor %}",
      "{% set x = 'a' * 1000000 %}{% set y = 'a' * 500000 + 'b' %}"
      "{% for i in range(99999) %}{{ x.rfind(y) }}{{ y in x }}{% endfor %}",
      "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
      "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}",
      "{{ ('a' * 1000000).strip('b' * 1000000 + 'a') }}",
      "{{ 'x'.join(['yyyyyyyyyyyyyyyy'] * 4000000) * 10 }}",
      "{{ range(100001) }}",
      "{{ ([[1] * 1000] * 1000) | tojson(indent=900) }}",
      "{% set l = range(9999) | list %}{% for i in l %}{{ l | sort | unique | list }}"
      "{% endfor %}"};
  Limits limits;
  limits.max_steps = 1'000'000;  // to end sooner
  for (const char* source : hostile)
    EXPECT_EQ(failure_of(source, limits).kind, FailureKind::kLimit) << source;
}

TEST(JinjaTemplate, EndsAtTheLimitsItIsGiven) {
  Limits limits;
  limits.max_output_bytes = 10;
  EXPECT_EQ(failure_of("{{ 'x' * 11 }}", limits).message, "writes more than 0 MiB of text");
  limits = Limits();
  limits.max_steps = 50;
  EXPECT_EQ(failure_of("{% for i in range(99) %}{% endfor %}", limits).message,
            "takes more than 50 steps");
}

TEST(JinjaTemplate, RefusesTemplatesThatNestTooDeep) {
  const auto repeat = [](std::string_view part, int count) {
    std::string out;
    for (int i = 0; i < count; ++i)
      out += part;
    return out;
  };
  const int deep = 20'000;
  for (const std::string& source :
       {"{{ " + repeat("(", deep), "{{ " + repeat("[", deep), "{{ " + repeat("{1:", deep),
        "{{ " + repeat("not ", deep), "{{ " + repeat("-", deep) + "1 }}",
        "{{ 1" + repeat(" + 1", deep) + " }}", "{{ x" + repeat(".y", deep) + " }}",
        "{{ x" + repeat("|upper", deep) + " }}", "{{ x" + repeat("()", deep) + " }}",
        "{{ x" + repeat(" if x else x", deep) + " }}", repeat("{% if x %}", deep),
        "{% set " + repeat("(", deep), "{{ x" + repeat(" is defined", deep) + " }}"}) {
    EXPECT_NE(parse_error(source), "") << source.substr(0, 20);
  }
  // Long lists, concatenations and chains of elif are wide, not deep, and are accepted.
  EXPECT_EQ(parse_error("{{ [1" + repeat(", 1", deep) + "] }}"), "");
  EXPECT_EQ(parse_error("{{ 1" + repeat(" ~ 1", deep) + " }}"), "");
  EXPECT_EQ(parse_error("{% if x %}" + repeat("{% elif y %}", deep) + "{% endif %}"), "");
}

TEST(JinjaTemplate, ConstantsTakeNothingFromTheBudgetOfAnotherRendering) {
  const Template parsed = Template::parse("{% set x = 'a' %}{{ x + 'b' }}", "test");
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(std::get<std::string>(parsed.render({}, Limits())), "ab");
}

}  // namespace
}  // namespace encore::text::jinja
