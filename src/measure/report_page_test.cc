#include "measure/report_page.h"

#include <gtest/gtest.h>

namespace encore::measure {
namespace {

TEST(ReportPage, IsOneFileThatMayLoadNothing) {
  const std::string page = report_page("graphs", "a log", {});
  EXPECT_NE(page.find("content=\"default-src 'none';"), std::string::npos);
  for (const char* loads : {" src=", " href=", "url(", "@import", "fetch(", "import("})
    EXPECT_EQ(page.find(loads), std::string::npos) << loads;
  for (const EmbeddedFile& file : embedded_files())
    EXPECT_EQ(page.find("@" + std::string(file.name) + "@"), std::string::npos) << file.name;
}

TEST(ReportPage, HasTheReportAsJsonThatNoTextInItEnds) {
  const std::string page =
      report_page("eval", "</script><script>alert(1)", json::object{{"model", "<b>"}});
  EXPECT_EQ(page.find("alert(1)"), page.rfind("alert(1)"));
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  const std::string begin = "id=\"report\">";
  const size_t from = page.find(begin) + begin.size();
  const json::value report =
      json::parse(page.substr(from, page.find("</script>", from) - from), "the page");
  EXPECT_EQ(report.at("verb"), "eval");
  EXPECT_EQ(report.at("what"), "</script><script>alert(1)");
  EXPECT_EQ(report.at("report").at("model"), "<b>");
}

}  // namespace
}  // namespace encore::measure
