#include "hub/pull.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/file.h>

#include "base/error.h"
#include "base/json.h"
#include "hub/cache.h"
#include "hub/http_client.h"

namespace encore::hub {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestListing = 64 << 20;
constexpr int kTries = 5;  // failed tries in a row, without a new byte
constexpr std::string_view kSha256 = "sha256";
constexpr std::string_view kGitSha1 = "sha1";  // of "blob SIZE\0" and the content

struct RemoteFile {
  std::string name;  // "model-00001-of-00002.safetensors"
  int64_t bytes = 0;
  std::string_view hash_kind;
  std::string hash;  // the file's hash, also the blob's name in the cache
};

struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;
};

[[noreturn]] void fail_file(const fs::path& path) {
  fail(ErrorKind::kModel, "{}: {}", path.string(), std::strerror(errno));
}

// Tells whether Encore reads a file of this name. Further folders of a repository hold the same
// weights in other formats.
bool is_wanted(std::string_view name) {
  const bool is_inside = name.find('/') != std::string_view::npos;
  if (is_inside) return name.starts_with("additional_chat_templates/") && name.ends_with(".jinja");
  if (name.starts_with("consolidated")) return false;
  return name.ends_with(".json") || name.ends_with(".jinja") || name.ends_with(".safetensors") ||
         name == "LICENSE" || name == "LICENSE.txt" || name == "README.md";
}

bool is_safe(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.size() > 200) return false;
  return std::ranges::none_of(
             name, [](char c) { return c == '\\' || static_cast<unsigned char>(c) < 0x20; }) &&
         name.find("..") == std::string_view::npos;
}

bool is_hex(const std::string& text, size_t length) {
  return text.size() == length && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

class Hash {
 public:
  explicit Hash(const RemoteFile& file) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), file.hash_kind == kSha256 ? EVP_sha256() : EVP_sha1(),
                      nullptr);
    if (file.hash_kind == kGitSha1) {
      const std::string head = fmt::format("blob {}", file.bytes);
      add({head.c_str(), head.size() + 1});
    }
  }
  void add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string text() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int count = 0;
    EVP_DigestFinal_ex(context_.get(), bytes, &count);
    std::string text;
    for (unsigned int i = 0; i < count; ++i)
      text += fmt::format("{:02x}", bytes[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// Owns a file that grows until it is complete. A lock keeps other processes from writing it.
class Incomplete {
 public:
  explicit Incomplete(fs::path path) : path_(std::move(path)) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail_file(path_);
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      close(descriptor_);
      fail(ErrorKind::kModel, "{}: another process fetches it", path_.string());
    }
  }
  ~Incomplete() { close(descriptor_); }
  Incomplete(const Incomplete&) = delete;
  Incomplete& operator=(const Incomplete&) = delete;

  // Adds the bytes that the file already has to `hash`. Returns their number.
  int64_t read(Hash& hash) {
    std::string part(1 << 20, '\0');
    int64_t size = 0;
    for (;;) {
      const ssize_t count = pread(descriptor_, part.data(), part.size(), size);
      if (count < 0) fail_file(path_);
      if (count == 0) return size;
      hash.add({part.data(), static_cast<size_t>(count)});
      size += count;
    }
  }
  void append(std::string_view bytes, int64_t at) {
    while (!bytes.empty()) {
      const ssize_t count = pwrite(descriptor_, bytes.data(), bytes.size(), at);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail_file(path_);
      at += count;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
  }
  void clear() {
    if (ftruncate(descriptor_, 0) != 0) fail_file(path_);
  }
  void become(const fs::path& whole) {
    if (rename(path_.c_str(), whole.c_str()) != 0) fail_file(whole);
  }
  void remove() { unlink(path_.c_str()); }

 private:
  fs::path path_;
  int descriptor_;
};

void write_text(const fs::path& path, const std::string& text) {
  Incomplete file(path.string() + ".new");
  file.clear();
  file.append(text, 0);
  file.become(path);
}

class Pull {
 public:
  Pull(const std::string& name, const PullOptions& options)
      : name_(name), options_(options), folder_(repository_folder(options.cache, name)) {}

  fs::path run() {
    const Listing listing = list();
    std::error_code error;
    for (const char* part : {"blobs", "refs", "snapshots"}) {
      fs::create_directories(folder_ / part, error);
      if (error) fail(ErrorKind::kModel, "{}: {}", (folder_ / part).string(), error.message());
    }
    const fs::path snapshot = folder_ / "snapshots" / listing.commit;
    for (const RemoteFile& file : listing.files) {
      fetch(listing, file);
      link(snapshot, file);
    }
    write_text(folder_ / "refs" / "main", listing.commit);
    return snapshot;
  }

 private:
  [[nodiscard]] Url url(const std::string& path) const {
    std::string endpoint = options_.endpoint;
    while (endpoint.ends_with('/'))
      endpoint.pop_back();
    return parse_url(endpoint + path);
  }

  [[noreturn]] void fail_connection(const Url& url, const ConnectionError& error) const {
    fail(ErrorKind::kModel,
         "{}: {}; where there is a network, `hf download {} --local-dir {}` fetches the model, and "
         "--model DIRECTORY takes it",
         url.host, error.why, name_, name_.substr(name_.find('/') + 1));
  }

  void check_status(const Url& url, int status) const {
    if (status == 200 || status == 206) return;
    if (status == 401 || status == 403) {
      fail(ErrorKind::kModel,
           "{} keeps {} from who asks{}: accept its terms on its page there, and set HF_TOKEN to a "
           "token that may read it",
           url.host, name_, options_.token.empty() ? " without a token" : "");
    }
    if (status == 404) fail(ErrorKind::kModel, "{} has no model {}", url.host, name_);
    fail(ErrorKind::kModel, "{}: answers {}", url.text(), status);
  }

  Listing list() const {
    const Url at = url(fmt::format("/api/models/{}/revision/main?blobs=true", name_));
    std::string body;
    try {
      (void)get(at, {.token = options_.token},
                {[&](const Answer& answer) {
                   check_status(at, answer.status);
                   return true;
                 },
                 [&](std::string_view part) {
                   body += part;
                   if (std::ssize(body) > kLargestListing)
                     fail(ErrorKind::kModel, "{}: more than a list of files", at.text());
                 }});
    } catch (const ConnectionError& error) {
      fail_connection(at, error);
    }
    const json::value value = json::parse(body, at.text());
    const json::Object model(value, at.text());
    Listing listing{model.string_at("sha"), {}};
    if (!is_hex(listing.commit, 40))
      fail(ErrorKind::kModel, "{}: key 'sha' is no commit", at.text());
    for (const json::value& entry : model.array_at("siblings")) {
      const json::Object row(entry, at.text());
      RemoteFile file{row.string_at("rfilename"), 0, kGitSha1, ""};
      if (!is_wanted(file.name)) continue;
      if (!is_safe(file.name))
        fail(ErrorKind::kModel, "{}: a file named {:?}", at.text(), file.name.substr(0, 100));
      file.bytes = row.int_at("size");
      if (row.has("lfs")) {
        file.hash_kind = kSha256;
        file.hash = row.object_at("lfs").string_at("sha256");
      } else {
        file.hash = row.string_at("blobId");
      }
      if (!is_hex(file.hash, file.hash_kind == kSha256 ? 64 : 40) || file.bytes < 0)
        fail(ErrorKind::kModel, "{}: {} has no hash", at.text(), file.name);
      listing.files.push_back(std::move(file));
    }
    const bool has_weights = std::ranges::any_of(
        listing.files, [](const RemoteFile& file) { return file.name.ends_with(".safetensors"); });
    if (!has_weights)
      fail(ErrorKind::kModel, "{} has no *.safetensors: Encore reads no other weights of the hub",
           name_);
    return listing;
  }

  void fetch(const Listing& listing, const RemoteFile& file) const {
    const fs::path blob = folder_ / "blobs" / file.hash;
    std::error_code ignored;
    if (fs::exists(blob, ignored)) return;
    Incomplete incomplete(blob.string() + ".incomplete");
    std::optional<Hash> hash(file);
    int64_t done = incomplete.read(*hash);
    const auto restart = [&] {
      incomplete.clear();
      hash.emplace(file);
      done = 0;
    };
    if (done > file.bytes) restart();
    const Url at = url(fmt::format("/{}/resolve/{}/{}", name_, listing.commit, file.name));
    for (int tries = 0; done < file.bytes;) {
      const int64_t before = done;
      try {
        (void)get(at, {.token = options_.token, .first_byte = done},
                  {[&](const Answer& answer) {
                     check_status(at, answer.status);
                     if (done > 0 && !answer.is_partial) restart();
                     return true;
                   },
                   [&](std::string_view part) {
                     if (std::ssize(part) > file.bytes - done)
                       fail(ErrorKind::kModel,
                            "{}: more than the {} bytes that the hub says it has", file.name,
                            file.bytes);
                     incomplete.append(part, done);
                     hash->add(part);
                     done += std::ssize(part);
                     if (options_.on_progress) options_.on_progress(file.name, done, file.bytes);
                   }});
        if (done < file.bytes) throw ConnectionError{"the answer ended early"};
      } catch (const ConnectionError& error) {
        tries = done > before ? 0 : tries + 1;
        if (tries >= kTries) fail_connection(at, error);
      }
    }
    if (const std::string found = hash->text(); found != file.hash) {
      incomplete.remove();
      fail(ErrorKind::kModel,
           "{}: its {} is {}, and the hub says {}: what came is thrown away; fetch it again",
           file.name, file.hash_kind, found, file.hash);
    }
    incomplete.become(blob);
  }

  static void link(const fs::path& snapshot, const RemoteFile& file) {
    const fs::path path = snapshot / file.name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    fs::remove(path, error);
    fs::path up;
    for (auto depth = std::ranges::count(file.name, '/') + 2; depth > 0; --depth)
      up /= "..";
    fs::create_symlink(up / "blobs" / file.hash, path, error);
    if (error) fail(ErrorKind::kModel, "{}: {}", path.string(), error.message());
  }

  const std::string& name_;
  const PullOptions& options_;
  fs::path folder_;
};

}  // namespace

fs::path pull(const std::string& name, const PullOptions& options) {
  if (!is_repository(name))
    fail(ErrorKind::kUsage, "{:?} is no name of a model on the hub: give ORG/NAME",
         name.substr(0, 100));
  return Pull(name, options).run();
}

}  // namespace encore::hub
