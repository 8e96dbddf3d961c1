// Models in the cache that Hugging Face's tools share: CACHE/models--ORG--NAME/{refs/main, snapshots/COMMIT, blobs}.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace encore::hub {

// "ORG/NAME", by the hub's rule: letters, digits, - _ and ., of which - and . neither begin nor end a part nor stand
// twice, at most 96 characters.
bool is_repository(std::string_view name);

// CACHE/models--ORG--NAME. REQUIRES: is_repository(name).
std::filesystem::path repository_folder(const std::filesystem::path& cache, std::string_view name);

// The directory of the commit that refs/main names, or else of the only snapshot there is. Nothing where the cache has
// none. Errors: kModel where refs/main names a commit that is not there.
std::optional<std::filesystem::path> find_snapshot(const std::filesystem::path& cache,
                                                   std::string_view name);

}  // namespace encore::hub
