// Builds the HTML pages of several verbs: one file each, nothing loaded from elsewhere, light and
// dark.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace encore::measure {

// Width of a drawing, in its own units.
inline constexpr double kHtmlWidth = 940;

// A whole page: a heading, a line below it, and `body`. `style` is added to the common one.
// `what` is escaped.
std::string html_page(std::string_view title, std::string_view heading, std::string_view what,
                      std::string_view body, std::string_view style = "");

// Text as it may stand between tags and in attributes.
std::string html_escaped(std::string_view text);
// A figure in large type and what it is.
std::string html_tile(std::string_view figure, std::string_view what);
// "1 234 567", with thin spaces.
std::string html_grouped(int64_t number);

// 1, 2 or 5 times a power of ten: about `count` of them make `range`.
double nice_step(double range, int count);

}  // namespace encore::measure
