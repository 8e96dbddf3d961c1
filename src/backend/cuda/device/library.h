// Shared libraries opened at run time, so that the executable starts where they are missing.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace encore::cuda {

// An open library; it stays open until the process ends, because kernels of its own may be loaded.
class Library {
 public:
  // Looks in the system's default places, the CUDA toolkit, .deps/python above the executable, and
  // the packages of the python3 on PATH. `package` is the Python package that has it.
  // Errors: kDevice listing where it looked, and what to do.
  explicit Library(const std::string& soname, std::string_view package = "nvidia-cublas");

  // Errors: kDevice naming the function.
  template <typename Function>
  void look_up(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(address(name));
  }
  // The file that was opened.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  [[nodiscard]] void* address(const char* name) const;

  void* handle_ = nullptr;
  std::string path_;
};

// The folders in which libraries of CUDA are looked for beside the system's default places, in
// order.
std::vector<std::filesystem::path> library_directories();

}  // namespace encore::cuda
