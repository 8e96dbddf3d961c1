#!/usr/bin/env python3
"""Writes what transformers makes of chat templates, for src/text/chat_template_test.cc to compare with.

src/text/testdata/chat_templates/ has templates of public models (*.jinja, listed in SOURCES.md) and conversations;
expected.jsonl gets a line for each of these templates and the bundled model's: for each conversation the text, or why
there is none. Likewise src/text/testdata/jinja/ has expressions, and gets what jinja2 prints for each. Needs the pinned
transformers and tokenizers of ./dev, and jinja2.
"""

import argparse
import contextlib
import io
import json
import os
import sys
from datetime import datetime
from pathlib import Path

import jinja2
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

ROOT = Path(__file__).resolve().parent.parent
TESTDATA = ROOT / "src/text/testdata"
BUNDLED = ROOT / "models/stories/chat_template.jinja"
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901)


class FixedTime(datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def outcome(render):
    """The text, or {"refused": message} where the template raises an exception, or {"failed": type} for another error."""
    try:
        return render()
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"refused": str(error)}
        return {"failed": f"{type(error).__name__}: {error}"}
    except Exception as error:  # whatever Python makes of a template that goes wrong
        return {"failed": f"{type(error).__name__}: {error}".split("\n", 1)[0][:200]}


def apply(tokenizer, conversation):
    return tokenizer.apply_chat_template(
        conversation["messages"], tools=conversation.get("tools"), documents=conversation.get("documents"),
        add_generation_prompt=conversation["add_generation_prompt"],
        continue_final_message=conversation.get("continue_final_message", False), tokenize=False,
        **conversation.get("variables", {}))


def write_chats(folder):
    conversations = json.loads((folder / "conversations.json").read_text(encoding="utf-8"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()), **SPECIAL_TOKENS)
    lines = []
    for path in [*sorted(folder.glob("*.jinja")), BUNDLED]:
        tokenizer.chat_template = path.read_text(encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()):
            outcomes = {c["name"]: outcome(lambda c=c: apply(tokenizer, c)) for c in conversations}
        lines.append(json.dumps({"template": os.path.relpath(path, folder), "outcomes": outcomes}, ensure_ascii=False))
    (folder / "expected.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{folder}: {len(lines)} templates, {len(conversations)} conversations")


def write_expressions(folder):
    """Each line of templates.txt is a template, with \\n for a newline."""
    lines = []
    variables = json.loads((folder / "variables.json").read_text(encoding="utf-8"))
    for line in (folder / "templates.txt").read_text(encoding="utf-8").splitlines():
        source = line.replace("\\n", "\n")
        result = outcome(lambda source=source: chat_template_utils._compile_jinja_template(source).render(**variables))
        lines.append(json.dumps({"template": source, "outcome": result}, ensure_ascii=False))
    (folder / "expected.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{folder}: {len(lines)} templates")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testdata", type=Path, default=TESTDATA, help="the folder with both kinds of data")
    arguments = parser.parse_args()
    chat_template_utils.datetime = FixedTime
    write_chats(arguments.testdata / "chat_templates")
    write_expressions(arguments.testdata / "jinja")
    return 0


if __name__ == "__main__":
    sys.exit(main())
