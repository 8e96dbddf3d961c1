"""Trains three vocabularies in the styles of the large model families, each written as tokenizer.json."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
SPECIAL = {
    "llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "spm": ["<unk>", "<s>", "</s>", "<|user|>", "<|end|>"],
}
# Added to the Qwen-style vocabulary: each of the ways in which an added token can match.
ADDED = [AddedToken("<tool_call>", special=False, normalized=False), AddedToken("<left>", lstrip=True, normalized=False),
         AddedToken("<right>", rstrip=True, normalized=False), AddedToken("word", single_word=True, normalized=False),
         AddedToken("caf\u00e9", normalized=True)]


def byte_level(pattern, lines, size, special, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens(special)
    return tokenizer


def llama3(lines, size):
    tokenizer = byte_level(LLAMA3, lines, size, SPECIAL["llama3"])
    bos = SPECIAL["llama3"][0]
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B",
                                      special_tokens=[(bos, tokenizer.token_to_id(bos))])])
    description = json.loads(tokenizer.to_str())
    description["model"]["ignore_merges"] = True
    return description


def qwen2(lines, size):
    tokenizer = byte_level(QWEN2, lines, size, SPECIAL["qwen2"], normalizers.NFC())
    tokenizer.add_tokens(ADDED)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return json.loads(tokenizer.to_str())


def spm(lines, size):
    """As SentencePiece files are converted: no pre-tokenizer, so that a whole text is one word."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, show_progress=False, limit_alphabet=900))
    model = json.loads(trained.to_str())["model"]
    special = SPECIAL["spm"]
    tokens = special[:3] + [f"<0x{byte:02X}>" for byte in range(256)] + sorted(model["vocab"], key=model["vocab"].get)
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(pair) for pair in model["merges"]], unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, rstrip=token == "<|user|>") for token in special])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", vocab["<s>"])])
    return json.loads(tokenizer.to_str())


def split(pattern, behavior, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def metaspace(**options):
    return {"type": "Metaspace", "replacement": "▁", **options}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2_BYTES = {**BYTES, "use_regex": True}
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Other components, by the vocabulary that they are put into: name, vocabulary, what is replaced.
VARIANTS = [
    ("gpt4o", "llama3", {"pre_tokenizer": sequence(split(GPT4O, "Isolated"), BYTES)}),
    ("cl100k", "llama3", {"pre_tokenizer": sequence(split(CL100K, "Removed", True), BYTES)}),
    ("deepseek", "qwen2", {"normalizer": None, "pre_tokenizer": sequence(
        split(r"\p{N}{1,3}", "Isolated"), split("[一-龥぀-ゟ゠-ヿ]+", "Isolated"), split(DEEPSEEK, "Isolated"), BYTES)}),
    ("falcon", "qwen2", {"pre_tokenizer": sequence(
        {"type": "Punctuation", "behavior": "Contiguous"}, GPT2_BYTES, {"type": "Digits", "individual_digits": False},
        split("[0-9][0-9][0-9]", "Isolated"))}),
    ("starcoder", "qwen2", {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True},
                                                      {**GPT2_BYTES, "add_prefix_space": True})}),
    ("kelvin", "qwen2", {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}]}}),
    ("plain", "qwen2", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]}}),
    ("spaces", "llama3", {"pre_tokenizer": sequence(split(" ", "MergedWithNext", kind="String"),
                                                    split(r"\s", "MergedWithPrevious"), BYTES)}),
    ("regex_replace", "llama3", {"normalizer": {"type": "Replace", "pattern": {"Regex": r" {2,}|\d"}, "content": "é "}}),
    ("metaspace", "spm", {"normalizer": None, "pre_tokenizer": metaspace(prepend_scheme="always", split=True),
                          "decoder": metaspace(prepend_scheme="always", split=True)}),
    ("metaspace_first", "spm", {"normalizer": None, "pre_tokenizer": metaspace(prepend_scheme="first", split=False),
                                "decoder": {"type": "Sequence", "decoders": [
                                    {"type": "ByteFallback"}, metaspace(prepend_scheme="first", split=False)]}}),
    ("metaspace_never", "spm", {"normalizer": {"type": "NFKD"}, "decoder": None, "pre_tokenizer": sequence(
        {"type": "Whitespace"}, metaspace(prepend_scheme="never", split=True))}),
    ("words", "spm", {"normalizer": None, "pre_tokenizer": sequence(
        {"type": "WhitespaceSplit"}, {"type": "CharDelimiterSplit", "delimiter": "e"}, {"type": "Punctuation"})}),
    ("unknown", "spm", {"byte_fallback": False, "decoder": {"type": "Sequence", "decoders": [
        {"type": "Strip", "content": "▁", "start": 1, "stop": 0}, {"type": "Fuse"},
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}]}}),
    ("unknown_apart", "spm", {"byte_fallback": False, "fuse_unk": False}),
]

# With a tokenizer_config.json: name, vocabulary, its keys. Both keys, as transformers takes a missing one for false.
CONFIGS = [
    ("config_begin", "qwen2", {"bos_token": "<|im_start|>", "eos_token": "<|endoftext|>", "add_bos_token": True,
                               "add_eos_token": False}),
    ("config_end", "llama3", {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "add_bos_token": False,
                              "add_eos_token": True}),
    ("config_both", "spm", {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}),
    ("config_neither", "spm", {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False, "add_eos_token": False}),
]


def vary(description, changes):
    varied = json.loads(json.dumps(description))
    for key, value in changes.items():
        (varied["model"] if key in varied["model"] else varied)[key] = value
    return varied


STYLES = {"llama3": llama3, "qwen2": qwen2, "spm": spm}


def write(description, directory):
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(description, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    return path
