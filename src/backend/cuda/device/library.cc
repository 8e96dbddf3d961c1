#include "backend/cuda/device/library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <sstream>

#include <fmt/format.h>

#include "base/error.h"

namespace encore::cuda {
namespace {

namespace fs = std::filesystem;

// The folder in which NVIDIA's wheels for CUDA 13 put their libraries, within a folder of Python
// packages.
constexpr const char* kWheelDirectory = "nvidia/cu13/lib";

void add_existing(std::vector<fs::path>& directories, const fs::path& directory) {
  std::error_code ignored;
  if (fs::is_directory(directory, ignored)) directories.push_back(directory);
}

// Returns the path of the first file called `name` in the folders that the environment variable
// PATH lists.
fs::path find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream parts(path == nullptr ? "" : path);
  std::string part;
  while (std::getline(parts, part, ':')) {
    std::error_code ignored;
    if (fs::is_regular_file(fs::path(part) / name, ignored)) return fs::path(part) / name;
  }
  return {};
}

void add_toolkit(std::vector<fs::path>& directories) {
  const fs::path nvcc = find_program("nvcc");
  if (!nvcc.empty()) {
    std::error_code ignored;
    const fs::path real = fs::canonical(nvcc, ignored);
    if (!real.empty()) add_existing(directories, real.parent_path().parent_path() / "lib64");
  }
  add_existing(directories, "/usr/local/cuda/lib64");
  add_existing(directories, "/usr/local/cuda-13/lib64");
  add_existing(directories, "/usr/local/cuda/extras/CUPTI/lib64");
}

// Adds folders of .deps/python beside the executable or above it, where the set-up script installs
// Python packages.
void add_own_packages(std::vector<fs::path>& directories) {
  std::error_code ignored;
  fs::path directory = fs::canonical("/proc/self/exe", ignored).parent_path();
  while (!directory.empty()) {
    add_existing(directories, directory / ".deps/python" / kWheelDirectory);
    if (directory == directory.parent_path()) break;
    directory = directory.parent_path();
  }
}

// Adds PREFIX/lib/python3.x/{site,dist}-packages for an interpreter PREFIX/bin/python3.
void add_packages_of(std::vector<fs::path>& directories, const fs::path& interpreter) {
  const fs::path prefix = interpreter.parent_path().parent_path();
  for (const fs::path& lib : {prefix / "lib", prefix / "lib64", prefix / "local/lib"}) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(lib, ignored)) {
      if (entry.path().filename().string().rfind("python3", 0) != 0) continue;
      add_existing(directories, entry.path() / "site-packages" / kWheelDirectory);
      add_existing(directories, entry.path() / "dist-packages" / kWheelDirectory);
    }
  }
}

// Adds the packages of the virtual environment that contains python3, then those of the
// installation that python3 links to.
void add_python(std::vector<fs::path>& directories) {
  const fs::path python = find_program("python3");
  if (python.empty()) return;
  add_packages_of(directories, python);
  std::error_code ignored;
  const fs::path real = fs::canonical(python, ignored);
  if (!real.empty() && real != python) add_packages_of(directories, real);
}

}  // namespace

std::vector<fs::path> library_directories() {
  std::vector<fs::path> directories;
  add_toolkit(directories);
  add_own_packages(directories);
  add_python(directories);
  return directories;
}

Library::Library(const std::string& soname, std::string_view package) {
  handle_ = dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::string looked = "  the system's default places\n";
  if (handle_ == nullptr) {
    for (const fs::path& directory : library_directories()) {
      const fs::path file = directory / soname;
      std::error_code ignored;
      if (!fs::exists(file, ignored)) {
        looked += fmt::format("  {}\n", directory.string());
        continue;
      }
      handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) break;
      const char* reason = dlerror();
      looked +=
          fmt::format("  {}: {}\n", directory.string(), reason != nullptr ? reason : "refused");
    }
  }
  if (handle_ == nullptr) {
    fail(
        ErrorKind::kDevice,
        "{} was not found. Looked in:\n{}Run ./dev setup, which fetches it, or install the CUDA 13 "
        "libraries (pip install {}) where python3 finds them.",
        soname, looked, package);
  }
  link_map* map = nullptr;
  path_ = dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : soname;
}

void* Library::address(const char* name) const {
  void* result = dlsym(handle_, name);
  if (result == nullptr) {
    fail(ErrorKind::kDevice, "{} lacks the function {}: Encore needs its CUDA 13 version", path_,
         name);
  }
  return result;
}

}  // namespace encore::cuda
