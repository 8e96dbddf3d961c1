// Draws the times when the requests of a trace come. Units: seconds since the first may come,
// ascending.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace encore::traffic {

// A Poisson process of `rate` requests a second: the gaps between them are exponential. The same
// seed gives the same times on every machine.
std::vector<double> poisson_arrivals(int64_t count, double rate, uint64_t seed);

// A time a line, below a line that names the column or without one.
// Errors: kUsage, naming the file and the line.
std::vector<double> read_arrivals(const std::filesystem::path& path);
std::vector<double> parse_arrivals(std::string_view text, const std::string& where);

}  // namespace encore::traffic
