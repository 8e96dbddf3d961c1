// Checks that any file is read as a checkpoint whose tensors lie within the file, or refused with
// an error.
#include "model/safetensors.h"

#include <fstream>

#include "base/error.h"
#include "base/testing/temp_dir.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace encore;
  static const TempDir dir;
  const auto path = dir.write("model.safetensors", {reinterpret_cast<const char*>(data), size});
  try {
    const model::SafetensorsFile file(path);
    unsigned sum = 0;
    for (const std::string& name : file.names()) {
      try {
        const model::StoredTensor tensor = file.tensor(name);
        ENCORE_CHECK(tensor.num_bytes() <= static_cast<int64_t>(size));
        for (int64_t i = 0; i < tensor.num_bytes(); ++i)
          sum += static_cast<unsigned>(tensor.data[i]);
      } catch (const Error&) {  // a dtype that Encore does not have
      }
    }
    const volatile unsigned seen = sum;  // keeps the compiler from removing the reads
    static_cast<void>(seen);
  } catch (const Error&) {
  }
  return 0;
}
