// Turns a GGUF file's metadata into the JSON files that a Hugging Face checkpoint has in its place.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "model/config.h"
#include "model/gguf/file.h"

namespace encore::model::gguf {

// The config.json: "num_hidden_layers" from "llama.block_count", and so on. Whether the head is the
// embedding, and which rotation rope_freqs stands for, is told from the tensors. Errors: kModel,
// naming the key; kUnsupported, listing those there are, for another architecture.
json::object config_json(const File& file);

// Reads that config as parse_config() does. Errors: those of both.
ModelConfig read_config(const File& file);

// The tokenizer.json. Errors: kModel; kUnsupported for a kind of tokenizer, or a way to cut words,
// that Encore does not know.
json::object tokenizer_json(const File& file);
// The tokenizer_config.json: the special tokens, and the chat template where there is one.
json::object tokenizer_config_json(const File& file);

// The name that GGUF gives the tensor which a checkpoint calls `name`: "blk.3.ffn_up.weight" for
// "model.layers.3.mlp.up_proj.weight". Empty for a name that GGUF has no word for.
std::string tensor_name(std::string_view name);

}  // namespace encore::model::gguf
