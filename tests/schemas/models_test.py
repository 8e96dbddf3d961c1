#!/usr/bin/env python3
"""The schemas that pydantic, zod and the SDKs of OpenAI and Anthropic write (models.json) are served, and answers fit."""

import argparse
import json
import pathlib
import sys

from schema_answers import Answers, violation

MODELS = pathlib.Path(__file__).resolve().parent / "models.json"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--answers", required=True)
    options = parser.parse_args()
    models = json.loads(MODELS.read_text())
    answers = Answers(options.answers)
    num_wrong = 0
    num_answers = 0
    for name, schema in models.items():
        reply = answers.of(schema, answers=4)
        wrong = [reply[key] for key in ("refused", "error") if key in reply]
        for text in reply.get("answers", []):
            num_answers += 1
            wrong += [f"{found}: {text[:200]}" for found in [violation(schema, text, is_draft_7=False)] if found]
        if wrong:
            num_wrong += 1
            print(f"{name}: {wrong[0]}\n  {json.dumps(schema)}")
    answers.close()
    print(f"{len(models)} models, {num_answers} answers, {num_wrong} models refused or with a wrong answer")
    return num_wrong > 0 or len(models) < 60 or num_answers < 2 * len(models)


if __name__ == "__main__":
    sys.exit(main())
