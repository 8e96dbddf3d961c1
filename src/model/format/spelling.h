// Declares the readers of all spellings and their common helpers.
#pragma once

#include "base/json.h"
#include "model/format/quantization.h"

namespace encore::model::format {

// Each reader gets the object that names its quantization method. Errors: those of
// read_quantization.
std::optional<Quantization> read_compressed_tensors(const json::Object& object);
Quantization read_fp8(const json::Object& object);
Quantization read_fbgemm(const json::Object& object);
// Reads the spelling of modelopt. `object` is quantization_config of config.json, or `quantization`
// of hf_quant_config.json.
std::optional<Quantization> read_modelopt(const json::Object& object);

// Throws kUnsupported. The message says that the key's value is not supported, and which values
// are.
[[noreturn]] void refuse(const json::Object& object, std::string_view key,
                         std::string_view supported);
// Refuses the value of a key unless `holds` is true. REQUIRES: the key is present.
void require(bool holds, const json::Object& object, std::string_view key,
             std::string_view supported);
// Returns the module names under a key, which may be absent or null. Errors: kModel when the key
// holds something else.
std::vector<std::string> names_at(const json::Object& object, std::string_view key);
// Returns a pattern of the kind `kind` for each name.
std::vector<ModulePattern> patterns(ModulePattern::Kind kind,
                                    const std::vector<std::string>& names);
// Returns whether the value is a block size of 128 x 128, written as a list or as "128x128".
bool is_known_block(const json::value& value);

}  // namespace encore::model::format
