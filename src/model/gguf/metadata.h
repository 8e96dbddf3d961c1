// What a GGUF file's metadata says, as the JSON files that a Hugging Face checkpoint has in its place.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "model/config.h"
#include "model/gguf/file.h"

namespace encore::model::gguf {

// config.json: "num_hidden_layers" from "llama.block_count", and so on. Whether the head is the embedding, and which
// rotation rope_freqs stands for, is told from the tensors. Errors: kModel, naming the key; kUnsupported, listing those
// there are, for another architecture.
json::object config_json(const File& file);

// As parse_config() reads that. Errors: those of both.
ModelConfig read_config(const File& file);

// tokenizer.json. Errors: kModel; kUnsupported for a kind of tokenizer, or a way to cut words, that Encore does not know.
json::object tokenizer_json(const File& file);
// tokenizer_config.json: the special tokens, and the chat template where there is one.
json::object tokenizer_config_json(const File& file);

// The tensor that a checkpoint calls `name` ("model.layers.3.mlp.up_proj.weight"): "blk.3.ffn_up.weight". Empty for a
// name that GGUF has no word for.
std::string tensor_name(std::string_view name);

}  // namespace encore::model::gguf
