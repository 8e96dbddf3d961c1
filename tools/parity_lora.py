"""Adapters as PEFT makes and saves them, for parity.py: Encore's logits in bf16 against PEFT's on transformers in float32."""

import peft
import torch

TARGETS = {"qv": ["q_proj", "v_proj"], "qkvo": ["q_proj", "k_proj", "v_proj", "o_proj"], "all": "all-linear"}
# Rank, and whether the scale is alpha / sqrt(rank).
RANKS = ((4, False), (16, True), (64, False))
ALPHA = 16


def save(model, targets, rank, is_rank_stabilized, seed, directory):
    """Writes an adapter of random numbers that changes the model as much as a trained one may."""
    config = peft.LoraConfig(r=rank, lora_alpha=ALPHA, use_rslora=is_rank_stabilized, target_modules=TARGETS[targets])
    wrapped = peft.get_peft_model(model, config)
    generator = torch.Generator().manual_seed(seed)
    scale = ALPHA / (rank ** 0.5 if is_rank_stabilized else rank)
    for name, tensor in wrapped.named_parameters():
        if ".lora_A." in name or ".lora_B." in name:
            # So that scale * B A x is a few tenths of what the projection gives.
            stddev = tensor.shape[1] ** -0.5 if ".lora_A." in name else 0.3 / scale / rank ** 0.5
            tensor.data.copy_(torch.randn(tensor.shape, generator=generator) * stddev)
    wrapped.save_pretrained(directory)
    wrapped.unload()


class Adapted:
    """The model with an adapter, all of it in the model's dtype, within a `with` statement."""

    def __init__(self, model, directory):
        self.model, self.directory = model, directory

    def __enter__(self):
        self.wrapped = peft.PeftModel.from_pretrained(self.model, self.directory, autocast_adapter_dtype=False)
        for name, tensor in self.wrapped.named_parameters():
            if ".lora_" in name:
                tensor.data = tensor.data.to(self.model.dtype)
        self.wrapped.eval()
        return self.wrapped

    def __exit__(self, *_):
        self.wrapped.unload()
