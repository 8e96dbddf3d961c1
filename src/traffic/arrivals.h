// Draws or reads the times when the requests of a trace come. Units: seconds after the start of the
// traffic, ascending.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace encore::traffic {

// Draws the times of a Poisson process of `rate` requests a second, whose gaps are exponential. The
// same seed gives the same times on every machine.
std::vector<double> poisson_arrivals(int64_t count, double rate, uint64_t seed);

// Reads one time from each line. The first line may name the column. Errors: kUsage, naming the
// file and the line.
std::vector<double> read_arrivals(const std::filesystem::path& path);
std::vector<double> parse_arrivals(std::string_view text, const std::string& where);

}  // namespace encore::traffic
