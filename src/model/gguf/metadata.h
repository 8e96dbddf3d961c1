// Turns a GGUF file's metadata into the JSON files that a Hugging Face checkpoint has instead.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "model/config.h"
#include "model/gguf/file.h"

namespace encore::model::gguf {

// Returns the content of config.json: "num_hidden_layers" from "llama.block_count", and so on. The
// tensors tell whether the head is the embedding, and which rotation rope_freqs stands for. Errors:
// kModel, naming the key; kUnsupported for another architecture, listing the known ones.
json::object config_json(const File& file);

// Reads the config from config_json() as parse_config() does. Errors: those of both functions.
ModelConfig read_config(const File& file);

// Returns the content of tokenizer.json. Errors: kModel; kUnsupported for a kind of tokenizer, or a
// way to cut words, that Encore does not know.
json::object tokenizer_json(const File& file);
// Returns the content of tokenizer_config.json: the special tokens, and the chat template if there
// is one.
json::object tokenizer_config_json(const File& file);

// Returns GGUF's name for the tensor that a checkpoint calls `name`: "blk.3.ffn_up.weight" for
// "model.layers.3.mlp.up_proj.weight". Returns an empty text for a name that GGUF does not have.
std::string tensor_name(std::string_view name);

}  // namespace encore::model::gguf
