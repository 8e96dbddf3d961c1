// For tests: makes a safetensors file of tensors of several dtypes.
#pragma once

#include <string>
#include <vector>

#include "model/testing/checkpoint_fixture.h"

namespace encore::model {

struct TypedTensor {
  std::string name;
  DType dtype = DType::kF32;  // a float dtype, or fp8
  Shape shape;
  std::vector<float> values;  // one value per element, or one for all
};

inline std::string bytes_of(const TypedTensor& tensor) {
  std::string bytes;
  for (int64_t i = 0; i < tensor.shape.num_elements(); ++i) {
    const float value = tensor.values[tensor.values.size() == 1 ? 0 : static_cast<size_t>(i)];
    const auto put = [&](auto element) {
      bytes.append(reinterpret_cast<const char*>(&element), sizeof(element));
    };
    if (tensor.dtype == DType::kFP8) {
      put(Float8(value));
    } else {
      visit_float(tensor.dtype, [&](auto zero) { put(decltype(zero)(value)); });
    }
  }
  return bytes;
}

inline std::string safetensors(const std::vector<TypedTensor>& tensors) {
  std::string header;
  std::string buffer;
  for (const TypedTensor& tensor : tensors) {
    const size_t begin = buffer.size();
    buffer += bytes_of(tensor);
    const char* const dtype = tensor.dtype == DType::kFP8    ? "F8_E4M3"
                              : tensor.dtype == DType::kBF16 ? "BF16"
                              : tensor.dtype == DType::kF16  ? "F16"
                                                             : "F32";
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.empty() ? "{" : ",", tensor.name, dtype,
                          fmt::join(tensor.shape, ","), begin, buffer.size());
  }
  return safetensors(header + "}", buffer);
}

}  // namespace encore::model
