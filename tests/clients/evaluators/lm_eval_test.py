"""lm-evaluation-harness, unmodified: log-likelihoods through /v1/completions are those of transformers in float32."""

import json
import os
import pathlib
import tempfile
import unittest

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}  # everything it needs is in files here

import lm_eval
import torch
import transformers
from lm_eval.tasks import TaskManager

MODEL = pathlib.Path(__file__).resolve().parents[3] / "models/stories"
URL = os.environ["ENCORE_F32_URL"]
BAR = 1e-3

CONTEXTS = ("Once upon a time, there was a little girl named Lily.", "Tom and his dog went to the park to", "The sun",
            "Mom said, \"Please do not touch the hot stove.\" But Ben", "It was raining, so the bird hid under a big",
            "One day, a boat sailed on the sea. The waves were high and the wind was", "Anna had a red ball. She liked to",
            "\"Thank you,\" said the bear. They")
CHOICES = (" play with the ball.", " leaf. It was very sad and did not know what to do.", " loud",
           " were happy and lived together for ever after, near the old tree.")
TASK = """task: continuations
dataset_path: json
dataset_kwargs: {data_files: {test: "%s"}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_choice: "{{choices}}"
doc_to_target: 0
target_delimiter: ""
metric_list: [{metric: acc}]
"""


def expected(model, tokenizer, context, continuation):
    """The sum over the continuation's tokens, cut where the harness cuts: behind the context's own tokens."""
    ids = tokenizer(context + continuation, add_special_tokens=True).input_ids
    num_before = len(tokenizer(context, add_special_tokens=True).input_ids)
    with torch.inference_mode():
        log_probs = model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    return sum(log_probs[i - 1, ids[i]].item() for i in range(num_before, len(ids)))


class LmEvalTest(unittest.TestCase):
    def test_log_likelihoods_are_those_of_transformers(self):
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder, "data.jsonl")
            data.write_text("".join(json.dumps({"context": context, "choices": CHOICES}) + "\n" for context in CONTEXTS))
            pathlib.Path(folder, "continuations.yaml").write_text(TASK % data)
            output = lm_eval.simple_evaluate(
                model="local-completions", tasks=["continuations"], task_manager=TaskManager(include_path=folder),
                model_args={"model": "stories", "base_url": URL + "/v1/completions", "tokenizer": str(MODEL), "add_bos_token": True,
                            "num_concurrent": 4})
        model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
        samples = output["samples"]["continuations"]
        self.assertEqual(len(samples), len(CONTEXTS))
        most = 0
        for sample in samples:
            for (likelihood, _), choice in zip(sample["filtered_resps"], CHOICES, strict=True):
                most = max(most, abs(float(likelihood) - expected(model, tokenizer, sample["doc"]["context"], choice)))
        print(f"{len(samples) * len(CHOICES)} log-likelihoods, at most {most:.1e} from transformers")
        self.assertLess(most, BAR)


if __name__ == "__main__":
    unittest.main()
