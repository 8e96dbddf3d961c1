// Opens shared libraries at run time, so that the executable also starts where they are missing.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace encore::cuda {

// An open shared library. It stays open until the process ends, because kernels from it may be
// loaded.
class Library {
 public:
  // Opens the library called `soname`. Looks in the system's default places, the CUDA toolkit,
  // .deps/python above the executable, and the packages of the python3 on PATH. `package` is the
  // Python package that contains the library.
  // Errors: kDevice listing where it looked, and what to do.
  explicit Library(const std::string& soname, std::string_view package = "nvidia-cublas");

  // Sets `function` to the library's function called `name`. Errors: kDevice naming the function.
  template <typename Function>
  void look_up(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(address(name));
  }
  // Returns the path of the file that was opened.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  [[nodiscard]] void* address(const char* name) const;

  void* handle_ = nullptr;
  std::string path_;
};

// Returns the folders in which CUDA libraries are searched, in order, after the system's default
// places.
std::vector<std::filesystem::path> library_directories();

}  // namespace encore::cuda
