// Finds models in the cache that Hugging Face's tools share: CACHE/models--ORG--NAME/{refs/main,
// snapshots/COMMIT, blobs}.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace encore::hub {

// Returns whether `name` is "ORG/NAME" by the hub's rule: at most 96 characters, which are letters,
// digits, '-', '_' and '.'. A part neither begins nor ends with '-' or '.', and neither occurs
// twice in a row.
bool is_repository(std::string_view name);

// Returns CACHE/models--ORG--NAME, the repository's folder in the cache. REQUIRES:
// is_repository(name).
std::filesystem::path repository_folder(const std::filesystem::path& cache, std::string_view name);

// Returns the directory of the commit that refs/main names, or of the only snapshot if refs/main is
// missing. Returns nullopt where the cache has neither. Errors: kModel where refs/main names a
// commit that is not in the cache.
std::optional<std::filesystem::path> find_snapshot(const std::filesystem::path& cache,
                                                   std::string_view name);

}  // namespace encore::hub
