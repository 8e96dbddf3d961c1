"""What the tests here share: the package jsonschema, and random answers held to schemas."""

import decimal
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".deps" / "jsonschema"))
try:
    import jsonschema
except ImportError:
    print("the package jsonschema is missing: ./dev setup fetches it")
    sys.exit(77)


# Multiples of long numbers are exact as well.
decimal.getcontext().prec = 2000


def read(text):
    """Numbers as they are written, so that multiples are counted exactly."""
    return json.loads(text, parse_float=decimal.Decimal)


def pattern(validator, wanted, instance, schema):
    """Patterns as ECMA-262 has them, where Python differs: $ is the end, \\d and \\w are ASCII."""
    del schema
    if validator.is_type(instance, "string") and not re.search(wanted.replace("$", r"\Z"), instance, re.ASCII):
        yield jsonschema.ValidationError(f"{instance!r} does not match {wanted!r}")


def pattern_properties(validator, patterns, instance, schema):
    del schema
    if validator.is_type(instance, "object"):
        for wanted, part in patterns.items():
            for key, value in instance.items():
                if re.search(wanted.replace("$", r"\Z"), key, re.ASCII):
                    yield from validator.descend(value, part, path=key, schema_path=wanted)


def validator_of(schema, is_draft_7):
    kind = jsonschema.Draft7Validator if is_draft_7 else jsonschema.Draft202012Validator
    kind = jsonschema.validators.extend(kind, {"pattern": pattern, "patternProperties": pattern_properties})
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


class Answers:
    """The program that makes them: build/PRESET/tests/schemas/schema_answers."""

    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def of(self, schema, seed=1, answers=3, closed=True):
        """{"answers": texts, "cut": how many did not end} or {"refused": why}"""
        self.process.stdin.write(json.dumps({"schema": schema, "seed": seed, "answers": answers, "closed": closed}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"it ended at the schema {json.dumps(schema)}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def violation(schema, text, is_draft_7):
    """Why an answer does not fit, or nothing."""
    try:
        value = read(text)
    except ValueError as error:
        return f"no JSON: {error}"
    found = next(validator_of(read(json.dumps(schema)), is_draft_7).iter_errors(value), None)
    return found and f"{found.message} (by {found.validator})"
