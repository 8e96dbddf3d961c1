#include "backend/tuning_cache.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <unistd.h>
#include <utility>

#include <boost/json/serialize.hpp>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/log.h"

namespace encore {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormat = 1;
constexpr std::string_view kPrefix = "tuning-";
constexpr std::string_view kSuffix = ".json";

struct Content {
  TuningKey key;
  std::map<std::string, TunedChoice> choices;
};

// Returns the FNV-1a hash of the key's names and values, as text.
std::string hash_text(const TuningKey& key) {
  uint64_t hash = 0xcbf29ce484222325U;
  const auto add = [&](const std::string& text) {
    for (size_t i = 0; i <= text.size(); ++i)  // includes the terminator, which separates the texts
      hash = (hash ^ static_cast<unsigned char>(text.c_str()[i])) * 0x100000001b3U;
  };
  for (const auto& [name, value] : key) {
    add(name);
    add(value);
  }
  return fmt::format("{:016x}", hash);
}

// Reads the content of a cache file. Errors: kModel, naming the path, when the file cannot be read
// or is malformed.
Content read_content(const fs::path& path) {
  const json::value value = json::parse_file(path);
  const json::Object file(value, path.string());
  if (file.int_at("format") != kFormat)
    fail(ErrorKind::kModel, "{}: not in format {}", path.string(), kFormat);
  Content content;
  const json::Object key = file.object_at("key");
  for (const auto& member : key.raw())
    content.key[std::string(member.key())] = key.string_at(member.key());
  const json::Object choices = file.object_at("choices");
  for (const auto& member : choices.raw()) {
    const json::Object choice = choices.object_at(member.key());
    content.choices[std::string(member.key())] = {
        choice.string_at("config"), choice.double_at("us"), choice.double_at("first_guess_us")};
  }
  return content;
}

// The choices that the file holds for a key or, when the file cannot be used, the reason.
struct Reading {
  std::map<std::string, TunedChoice> choices;
  std::string problem;
};
Reading read_choices(const fs::path& path, const TuningKey& key) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  try {
    Content content = read_content(path);
    if (content.key == key) return {std::move(content.choices), ""};
    return {{}, fmt::format("{}: of another device or build", path.string())};
  } catch (const Error& error) {
    return {{}, error.what()};
  }
}

std::string quoted(const std::string& text) {
  return boost::json::serialize(boost::json::string(text));
}

// Returns the content as JSON with one choice on each line, which people and diff can read.
std::string to_text(const Content& content) {
  std::string text = fmt::format("{{\n\"format\": {},\n\"key\": {{", kFormat);
  const char* separator = "\n  ";
  for (const auto& [name, value] : content.key) {
    text += fmt::format("{}{}: {}", separator, quoted(name), quoted(value));
    separator = ",\n  ";
  }
  text += "\n},\n\"choices\": {";
  separator = "\n  ";
  for (const auto& [launch, choice] : content.choices) {
    text += fmt::format(R"({}{}: {{"us": {:.3f}, "first_guess_us": {:.3f}, "config": {}}})",
                        separator, quoted(launch), choice.microseconds,
                        choice.first_guess_microseconds, quoted(choice.config));
    separator = ",\n  ";
  }
  return text + "\n}\n}\n";
}

[[noreturn]] void fail_write(const fs::path& path, int error) {
  fail(ErrorKind::kUsage, "{}: {}", path.string(), std::strerror(error));
}

// An open file or directory.
class Descriptor {
 public:
  // Takes the result of opening the path. Errors: kUsage, naming the path, when opening it failed.
  Descriptor(int value, const fs::path& path) : value_(value) {
    if (value_ < 0) fail_write(path, errno);
  }
  ~Descriptor() { close(value_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return value_; }

 private:
  int value_;
};

// Replaces the file as a whole. Errors: kUsage, naming the path; no temporary file is left then.
void replace_file(const fs::path& path, const std::string& text) {
  // A process id would not make the temporary name unique: processes in containers that share a
  // directory may have equal ids.
  std::string temporary = path.string() + ".XXXXXX";
  const Descriptor file(mkostemp(temporary.data(), O_CLOEXEC), temporary);
  try {
    if (fchmod(file.get(), 0644) != 0) fail_write(temporary, errno);
    for (size_t at = 0; at < text.size();) {
      const ssize_t written = write(file.get(), text.data() + at, text.size() - at);
      if (written < 0 && errno != EINTR) fail_write(temporary, errno);
      at += static_cast<size_t>(std::max<ssize_t>(written, 0));
    }
    if (rename(temporary.c_str(), path.c_str()) != 0) fail_write(path, errno);
  } catch (const Error&) {
    unlink(temporary.c_str());
    throw;
  }
}

}  // namespace

std::string environment_text(std::span<const char* const> variables) {
  std::string text;
  for (const char* const variable : variables) {
    const char* const value = std::getenv(variable);
    if (value == nullptr) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", variable, value);
  }
  return text;
}

TuningCache::TuningCache(fs::path directory, TuningKey key)
    : directory_(std::move(directory)),
      key_(std::move(key)),
      path_(directory_ / fmt::format("{}{}{}", kPrefix, hash_text(key_), kSuffix)) {
  Reading reading = read_choices(path_, key_);
  if (!reading.problem.empty()) log::warning("tuning cache: {}; written anew", reading.problem);
  choices_ = std::move(reading.choices);
}

const TunedChoice* TuningCache::find(const std::string& launch) const {
  const auto place = choices_.find(launch);
  return place == choices_.end() ? nullptr : &place->second;
}

void TuningCache::add(const std::string& launch, TunedChoice choice) {
  added_[launch] = choice;
  choices_[launch] = std::move(choice);
}

void TuningCache::write() const {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) fail_write(directory_, error.value());
  // Writers take turns, so that none loses what another added. Where a file system has no locks,
  // the last one wins.
  const Descriptor directory(open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                             directory_);
  (void)flock(directory.get(), LOCK_EX);
  Content content{key_, read_choices(path_, key_).choices};
  for (const auto& [launch, choice] : added_)
    content.choices[launch] = choice;
  replace_file(path_, to_text(content));
}

bool TuningCache::save() {
  if (added_.empty()) return true;
  try {
    write();
  } catch (const Error& error) {
    log::warning(
        "kernel tuning is not remembered: {}; name a directory that can be written with "
        "--tuning-cache, or turn it off",
        error.what());
    return false;
  }
  added_.clear();
  return true;
}

std::vector<TuningFile> tuning_files(const fs::path& directory) {
  std::vector<TuningFile> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    TuningFile& file = files.emplace_back();
    file.path = entry.path();
    try {
      Content content = read_content(entry.path());
      file.key = std::move(content.key);
      file.num_choices = content.choices.size();
    } catch (const Error& error) {
      file.problem = error.what();
    }
  }
  std::sort(files.begin(), files.end(),
            [](const TuningFile& a, const TuningFile& b) { return a.path < b.path; });
  return files;
}

std::optional<std::string> write_problem(const fs::path& directory) {
  try {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) fail_write(directory, error.value());
    std::string path = (directory / "writable.XXXXXX").string();
    const Descriptor file(mkostemp(path.data(), O_CLOEXEC), path);
    unlink(path.c_str());
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace encore
