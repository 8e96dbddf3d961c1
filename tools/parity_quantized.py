"""Checkpoints in FP8 as compressed-tensors writes them, for parity.py: what Encore makes of them, in activations of 16 bits
and of 8, against the same numbers in float32."""

import json
import pathlib
import shutil

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

BLOCK = 128
FP8_MAX = 448.0
# A scale for the whole weight, for each of its rows, for each block of 128 x 128.
STRATEGIES = ("tensor", "channel", "block")


def largest_by(strategy, weight):
    """The largest magnitude of whatever shares a scale."""
    if strategy == "tensor":
        return weight.abs().max()
    if strategy == "channel":
        return weight.abs().amax(1, keepdim=True)
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -columns % BLOCK, 0, -rows % BLOCK))
    return padded.reshape(-(-rows // BLOCK), BLOCK, -(-columns // BLOCK), BLOCK).abs().amax((1, 3))


class Inputs:
    """While it lasts, it notes the largest magnitude of what each product of the model takes."""

    def __init__(self, model):
        self.largest, self.handles = {}, []
        self.products = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}

    def note(self, name, x):
        self.largest[name] = max(self.largest.get(name, 0.0), x.abs().max().item())

    def __enter__(self):
        self.handles = [module.register_forward_pre_hook(lambda _, inputs, name=name: self.note(name, inputs[0]))
                        for name, module in self.products.items()]
        return self

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()


def save(model, strategy, directory, largest_inputs=None):
    """Quantizes the model in place by the package, and writes its checkpoint; with static scales of activations where their
    largest magnitudes are given, by product."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (QuantizationArgs, QuantizationConfig, QuantizationScheme,
                                                 apply_quantization_config)
    from compressed_tensors.quantization.utils import calculate_qparams

    common = {"num_bits": 8, "type": "float", "symmetric": True}
    weights = QuantizationArgs(**common, strategy=strategy,
                               **({"block_structure": [BLOCK, BLOCK]} if strategy == "block" else {}))
    inputs = QuantizationArgs(**common, strategy="token", dynamic=True)
    if strategy == "block":
        inputs = QuantizationArgs(**common, strategy="group", group_size=BLOCK, dynamic=True)
    if largest_inputs is not None:
        inputs = QuantizationArgs(**common, strategy="tensor", dynamic=False)
    apply_quantization_config(model, QuantizationConfig(
        config_groups={"group_0": QuantizationScheme(targets=["Linear"], weights=weights, input_activations=inputs)},
        ignore=["lm_head"], format="float-quantized"))
    for name, module in model.named_modules():
        if largest_inputs is not None and hasattr(module, "input_scale"):
            module.input_scale.data.fill_(largest_inputs[name] / FP8_MAX)
        if hasattr(module, "weight_scale"):
            largest = largest_by(strategy, module.weight.float())
            scale, _ = calculate_qparams(-largest, largest, weights)
            module.weight_scale.data.copy_(scale.reshape(module.weight_scale.shape))
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(directory)
    compressor.update_config(directory)
    return pathlib.Path(directory)


def of_blocks(scale, shape):
    """A scale for each block, as one for each number of a weight of that shape."""
    return scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:shape[0], :shape[1]]


# As published checkpoints of experts have it, whose router is named among what stays a float; and by rows.
CONFIGS = {
    "block": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK],
              "modules_to_not_convert": ["lm_head"]},
    "channel": {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head", r"re:.*\.gate$"],
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                    "num_bits": 8, "type": "float", "strategy": "channel"}}}},
}


def store(checkpoint, strategy):
    """Puts the weights of a checkpoint's layers into FP8, but for routers. Returns a checkpoint in float32 of the numbers that
    they stand for then."""
    numbers = pathlib.Path(f"{checkpoint}-numbers")
    shutil.copytree(checkpoint, numbers, dirs_exist_ok=True)
    stored, meant, routers = {}, {}, []
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        stored[name] = meant[name] = tensor
        module = name.removesuffix(".weight")
        if module.endswith(".gate"):
            routers.append(module)
        elif name.startswith("model.layers.") and tensor.dim() == 2:
            scale = largest_by(strategy, tensor) / FP8_MAX
            each = of_blocks(scale, tensor.shape) if strategy == "block" else scale
            stored[name] = (tensor / each).to(torch.float8_e4m3fn)
            stored[f"{module}.weight_scale" + ("_inv" if strategy == "block" else "")] = scale
            meant[name] = stored[name].float() * each
    save_file(stored, checkpoint / "model.safetensors", {"format": "pt"})
    save_file(meant, numbers / "model.safetensors", {"format": "pt"})
    config = json.loads((checkpoint / "config.json").read_text())
    config["quantization_config"] = dict(CONFIGS[strategy])
    if strategy == "block":
        config["quantization_config"]["modules_to_not_convert"] = ["lm_head", *routers]
    (checkpoint / "config.json").write_text(json.dumps(config))
    return numbers


def restore(model, checkpoint):
    """Gives a float32 model the numbers that the codes of a checkpoint stand for."""
    with safe_open(checkpoint / "model.safetensors", "pt") as file:
        for name, module in model.named_modules():
            if not isinstance(module, torch.nn.Linear) or f"{name}.weight_scale" not in file.keys():
                continue
            codes, scale = file.get_tensor(f"{name}.weight"), file.get_tensor(f"{name}.weight_scale").float()
            assert codes.dtype == torch.float8_e4m3fn, name
            if scale.dim() == 2 and scale.shape[1] > 1 or scale.shape[0] != codes.shape[0] and scale.numel() > 1:
                scale = of_blocks(scale, codes.shape)
            module.weight.data.copy_(codes.float() * scale)


def in_fp8(x, static_scale=None):
    """Activations as Encore rounds them: one scale for a row's 128 columns, or the static one."""
    padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))
    scale = padded.abs().amax(-1, keepdim=True) / FP8_MAX
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    if static_scale is not None:
        scale = torch.full_like(scale, static_scale)
    codes = (padded * (1 / scale)).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return (codes.float() * scale).flatten(-2)[..., :x.shape[-1]]


class Fp8Activations:
    """While it lasts, every product but the head's takes them; by the static scales of a checkpoint where one is given."""

    def __init__(self, model, checkpoint=None):
        self.products = [(name, module) for name, module in model.named_modules()
                         if isinstance(module, torch.nn.Linear) and name != "lm_head"]
        self.scales, self.handles = {}, []
        if checkpoint is not None:
            with safe_open(checkpoint / "model.safetensors", "pt") as file:
                self.scales = {name: file.get_tensor(f"{name}.input_scale").float().item() for name, _ in self.products}

    def __enter__(self):
        self.handles = [module.register_forward_pre_hook(lambda _, inputs, scale=self.scales.get(name): (in_fp8(inputs[0], scale),))
                        for name, module in self.products]

    def __exit__(self, *_):
        for handle in self.handles:
            handle.remove()
