#include "server/process_metrics.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <sys/resource.h>

namespace encore::server {
namespace {

// Numbers of fields in /proc/self/stat, which proc(5) counts from 1. The second field is in
// parentheses and may hold any characters.
constexpr int kUserTime = 14;
constexpr int kSystemTime = 15;
constexpr int kStartTime = 22;
constexpr int kVirtualBytes = 23;
constexpr int kResidentPages = 24;
constexpr int kFirstBehindName = 3;

class Stat {
 public:
  Stat() {
    std::ifstream file("/proc/self/stat");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    std::istringstream rest(text.substr(std::min(text.rfind(')') + 1, text.size())));
    fields_.assign(std::istream_iterator<std::string>(rest), {});
  }
  [[nodiscard]] bool is_read() const {
    return std::ssize(fields_) > kResidentPages - kFirstBehindName;
  }
  [[nodiscard]] double at(int number) const {
    return std::stod(fields_.at(static_cast<size_t>(number - kFirstBehindName)));
  }

 private:
  std::vector<std::string> fields_;
};

// Returns the time when the machine was started. Units: seconds since 1970.
std::optional<double> boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string key; file >> key;) {
    double seconds = 0;
    if (key == "btime" && file >> seconds) return seconds;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

std::optional<int64_t> open_files() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (error) return std::nullopt;
  return std::distance(begin(files), end(files));
}

}  // namespace

void write_process_metrics(Metrics& metrics) {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (const Stat stat; stat.is_read()) {
    metrics.counter("process_cpu_seconds_total", "Time of processors, of the user and the system") =
        (stat.at(kUserTime) + stat.at(kSystemTime)) / ticks;
    metrics.gauge("process_virtual_memory_bytes", "Addresses that are taken") =
        stat.at(kVirtualBytes);
    metrics.gauge("process_resident_memory_bytes", "Memory of the host that is in use") =
        stat.at(kResidentPages) * static_cast<double>(sysconf(_SC_PAGESIZE));
    if (const auto boot = boot_time()) {
      metrics.gauge("process_start_time_seconds", "When the process began, in seconds since 1970") =
          *boot + stat.at(kStartTime) / ticks;
    }
  }
  if (const auto files = open_files())
    metrics.gauge("process_open_fds", "File descriptors that are open") =
        static_cast<double>(*files);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
    metrics.gauge("process_max_fds", "File descriptors that may be open") =
        static_cast<double>(limit.rlim_cur);
}

}  // namespace encore::server
