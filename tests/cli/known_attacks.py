"""Single requests that have brought down or blocked servers of language models, or a part of them, and where that is told.

Each row: what it is, the public issue or pull request, the statuses that are right, and the request: a body (bytes as they are,
else as JSON), its route, and headers.
"""

import dataclasses
import json
import typing

COMPLETIONS, CHAT, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
HELLO = [{"role": "user", "content": "Hello"}]


@dataclasses.dataclass
class Attack:
    what: str
    source: str
    statuses: tuple
    body: typing.Any
    path: str = COMPLETIONS
    headers: str = ""

    def content(self):
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def completion(**parameters):
    return {"prompt": "Once", "max_tokens": 5} | parameters


def chat(**parameters):
    return {"messages": HELLO, "max_tokens": 5} | parameters


def outputs(**structured):
    return completion(structured_outputs=structured)


def nested(inner, depth, wrap):
    for _ in range(depth):
        inner = wrap(inner)
    return inner


def deep_schema(depth):
    return nested({"type": "string"}, depth, lambda inner: {"type": "object", "properties": {"a": inner}})


def bounded_arrays(depth, most):
    return nested({"type": "string", "maxLength": most}, depth,
                  lambda inner: {"type": "array", "items": inner, "minItems": 1, "maxItems": most})


def tools(schema):
    return chat(tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}])


AMBIGUOUS = ('root ::= feature\nfeature ::= reference "\\n" ( ("\\t")+ group )?\n'
             'group ::= ( "or " | "optional " ) ("\\n" ("\\t")+ feature)+\nreference ::= [a-z_] [a-z_0-9]*')


def ambiguous_words(count):
    """Words that `count` rules split in ever more ways: a parser has more to do with each letter."""
    return (f"root ::= ({' | '.join(f'r{i}' for i in range(1, count + 1))})*\n" +
            "".join(f"r{i} ::={' [a-z ]+' * i}\n" for i in range(1, count + 1)))


# Constraints that are small, compile at once, and take a parser longer with every letter of the answer.
SLOW_CONSTRAINTS = (
    {"grammar": ambiguous_words(8)},
    {"grammar": ambiguous_words(24)},
    {"grammar": "root ::= root root | [a-z ]"},
    {"grammar": "root ::= x*\nx ::= y | y x\ny ::= [a-z ]+ | y y | x x"},
    {"regex": f"({'[a-z ]+' * 60})*"},
    {"regex": "(([a-z ]|[a-z ]{2})+([a-z ]|[a-z ]{3})+)*"},
    {"json": {"type": "string", "pattern": f"^{'([a-z]+ ?)*' * 30}$"}},
    {"json": {"anyOf": [{"type": "string", "pattern": "[a-z ]*" * i} for i in range(1, 12)]}},
    {"json": bounded_arrays(4, 200)},
)
LOOPS = "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}"

ATTACKS = (
    Attack("top_logprobs beyond the vocabulary", "sgl-project/sglang#40076", (400,), chat(logprobs=True, top_logprobs=1_000_000), CHAT),
    Attack("logprobs beyond the vocabulary", "sgl-project/sglang#40076", (400,), completion(logprobs=1_000_000)),
    Attack("five million choices", "vllm-project/vllm#37952", (400,), completion(n=5_000_000)),
    Attack("a negative token id", "vllm-project/vllm#51795", (400,), completion(prompt=[-1])),
    Attack("a token id of 32 bits", "EricLBuehler/mistral.rs#2347", (400,), completion(prompt=[4294967294])),
    Attack("a bias of a token that is not there", "vllm-project/vllm#16529", (400,), chat(logit_bias={"191222": -100}), CHAT),
    Attack("a stop token that is not there", "vllm-project/vllm#54195", (400,), completion(stop_token_ids=[151645])),
    Attack("the same with min_tokens", "gonka-ai/gonka#1170", (400,), chat(stop_token_ids=[-5, 1 << 20], min_tokens=1), CHAT),
    Attack("top_k beyond the vocabulary", "torch-spyre/sendnn-inference#542", (200,), completion(top_k=9999999)),
    Attack("a repetition penalty of 0", "sgl-project/sglang#24874", (400,), completion(repetition_penalty=0)),
    Attack("a negative repetition penalty", "raullenchai/Rapid-MLX#778", (400,), completion(repetition_penalty=-1)),
    Attack("a temperature of NaN", "sgl-project/sglang#28153", (400,), b'{"prompt": "Once", "temperature": NaN}'),
    Attack("an infinite penalty", "vllm-project/vllm#45116", (400,), b'{"prompt": "Once", "repetition_penalty": 1e999}'),
    Attack("a seed of 65 bits", "vllm-project/vllm#4529", (400,), chat(seed=2**64), CHAT),
    Attack("a seed of 64 bits without a sign", "vllm-project/vllm#57018", (400,), completion(seed=2**63)),
    Attack("no tokens, with the prompt's text", "vllm-project/vllm#6521", (200, 400), completion(max_tokens=0, echo=True)),
    Attack("no tokens", "vllm-project/vllm#10432", (200,), completion(max_tokens=0)),
    Attack("tokens without a bound", "waybarrios/vllm-mlx#340", (400,), completion(max_tokens=10**12)),
    Attack("an empty prompt", "vllm-project/vllm#10648", (200, 400), completion(prompt="")),
    Attack("a prompt beyond the context", "vllm-project/vllm#765", (400,), completion(prompt="word " * 30_000)),
    Attack("half a million stops", "vllm-project/vllm#51447", (400,), completion(stop=["x"] * 500_000)),
    Attack("50,000 bad words", "vllm-project/vllm#51447", (400,), completion(bad_words=["word"] * 50_000)),
    Attack("a regular expression that is none", "vllm-project/vllm#17313", (400,), outputs(regex="[a-z")),
    Attack("a schema that is none", "vllm-project/vllm#17248", (400,), outputs(json={"type": "object", "properties": {"foo": "bar"}})),
    Attack("a schema with a large maximum", "vllm-project/vllm#17894", (200, 400),
           outputs(json={"type": "integer", "minimum": 0, "maximum": 20_000_000_000})),
    Attack("a schema with a pattern that is none", "ggml-org/llama.cpp#19051", (400,), outputs(json={"type": "string", "pattern": "(a"})),
    Attack("a grammar that is none", "ggml-org/llama.cpp#4492", (400,), outputs(grammar="rout::=\"route\"")),
    Attack("an ambiguous grammar", "mlc-ai/xgrammar#127", (200, 400, 503), outputs(grammar=AMBIGUOUS)),
    Attack("arrays of arrays with bounds", "bcherny/json-schema-to-typescript#690", (200, 400, 503), outputs(json=bounded_arrays(4, 200))),
    Attack("items without end", "ggml-org/llama.cpp#6555", (400,),
           outputs(json={"type": "array", "items": {"type": "number"}, "minItems": 10**9, "maxItems": 2 * 10**9})),
    Attack("50,000 properties", "mlc-ai/xgrammar#691", (400,),
           outputs(json={"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(50_000)}})),
    Attack("JSON half a million deep", "nlohmann/json#1419", (400,), b"[" * 512_000),
    Attack("tools whose schema is deep", "nlohmann/json#5387", (400,), json.dumps(tools(1)).replace(
        '"parameters": 1', '"parameters": ' + '{"a": ' * 100_000 + "1" + "}" * 100_000).encode(), CHAT),
    Attack("a schema that is deep", "nlohmann/json#5387", (400,), outputs(json=deep_schema(200))),
    Attack("JSON that is none", "mozilla-ai/llamafile#116", (400,), b'{:\n  "model": "stories"}'),
    Attack("a body in another encoding", "ggml-org/llama.cpp#6396", (400,), '{"prompt": "\u4f60\u597d"}'.encode("gbk")),
    Attack("an error that quotes bytes of no encoding", "ggml-org/llama.cpp#9210", (400,), b'{"\xff\xfe\\": 1}'),
    Attack("a template with loops", "NVIDIA/Megatron-LM#6818", (400,), chat(chat_template=LOOPS), CHAT),
    Attack("a template among its variables", "ai-dynamo/dynamo#11755", (200, 400), chat(chat_template_kwargs={"chat_template": LOOPS}), CHAT),
    Attack("the same in responses", "vllm-project/vllm#50300", (200, 400),
           {"input": "Hello", "max_output_tokens": 5, "chat_template_kwargs": {"chat_template": LOOPS}}, RESPONSES),
    Attack("an unbroken run of letters", "ggml-org/llama.cpp#27783", (400,), completion(prompt="a" * 2_000_000)),
    Attack("an unbroken run of spaces", "ggml-org/llama.cpp#27783", (400,), completion(prompt=" " * 2_000_000)),
    Attack("an unbroken run of Chinese", "ggml-org/llama.cpp#27783", (400,), completion(prompt="\u4f60" * 300_000)),
    Attack("a request id that is long", "danmoz/caddy-lambda#3", (431,), completion(), headers=f"X-Request-Id: {'x' * 65536}\r\n"),
    Attack("a request id with an escape sequence", "utksh1/SecuScan#2013", (200, 400), completion(),
           headers="X-Request-Id: ok\x1b[31m encore: error (device)\r\n"),
    Attack("a body beyond the limit", "yhirose/cpp-httplib#144", (413,), b" " * (17 << 20)),
)
