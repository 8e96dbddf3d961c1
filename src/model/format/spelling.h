// Helpers that the readers of all spellings share.
#pragma once

#include "base/json.h"
#include "model/format/quantization.h"

namespace encore::model::format {

// Each reads the object that names its method. Errors: those of read_quantization.
std::optional<Quantization> read_compressed_tensors(const json::Object& object);
Quantization read_fp8(const json::Object& object);
Quantization read_fbgemm(const json::Object& object);
// `object` is quantization_config of config.json, or `quantization` of hf_quant_config.json.
std::optional<Quantization> read_modelopt(const json::Object& object);

// Throws kUnsupported, saying that the key's value is not supported, and what would be.
[[noreturn]] void refuse(const json::Object& object, std::string_view key,
                         std::string_view supported);
// Refuses the value of a key, which is there, unless `holds`.
void require(bool holds, const json::Object& object, std::string_view key,
             std::string_view supported);
// Module names under a key, which may be absent or null. Errors: kModel when it holds something
// else.
std::vector<std::string> names_at(const json::Object& object, std::string_view key);
// The patterns of a list, all of one kind.
std::vector<ModulePattern> patterns(ModulePattern::Kind kind,
                                    const std::vector<std::string>& names);
// Is it a block of 128 x 128, written as a list or as "128x128"?
bool is_known_block(const json::value& value);

}  // namespace encore::model::format
