#!/usr/bin/env python3
"""Random schemas over all keywords of JSON Schema: each answer that their grammars let come is valid, by the package
jsonschema, or the schema is refused. Prints the share that is refused, by keyword.

    random_schemas_test.py --answers build/cpu/tests/schemas/schema_answers [--schemas 100000] [--seed 1]
"""

import argparse
import collections
import contextlib
import json
import random
import re
import sys

from schema_answers import Answers, jsonschema, validator_of, violation

# Keywords that may well be refused; of schemas without any, few are.
HARD = {"not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties", "dependentRequired", "dependentSchemas",
        "dependencies", "contains", "minContains", "maxContains", "propertyNames"}
MOST_REFUSED = 0.05
NAMES = ["a", "b", "c", 'd"e', "f\\g", "x1", "x2", ""]
PATTERNS = ["^[a-c]+$", "^x", "[0-9]$", '^"', r"^\\", "^(ab|c){1,3}$", r"^\d{2}-\d{2}$", "a.b", "^$", r"^\w{1,4}$",
            "^[^a]{0,3}$", r"\n", "(?:a|b)c?", "^(?=.*[0-9])[a-z0-9]{2,5}$", "^(?!x)[x-z]{2}$", r"\u00e9"]
FORMATS = ["date", "date-time", "time", "email", "ipv4", "ipv6", "uuid", "uri", "duration", "json-pointer", "hostname"]


class Schemas:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def flip(self, share):
        return self.random.random() < share

    def scalar(self):
        return self.random.choice([None, True, False, 0, 1, -3, 2.5, 100, 3.14159265, "", "a", "x1", 'q"', "b\\", "\n", "\u00e9", "abc"])

    def value(self, depth=1):
        if depth > 0 and self.flip(0.2):
            if self.flip(0.5):
                return [self.value(depth - 1) for _ in range(self.random.randrange(3))]
            return {name: self.value(depth - 1) for name in self.random.sample(NAMES, self.random.randrange(3))}
        return self.scalar()

    def number(self):
        return self.random.choice([0, 1, -1, 5, 10, 100, -20, 0.5, 2.25, -0.1, 1e3, 12345678])

    def names(self, most=2):
        return self.random.sample(NAMES, self.random.randrange(1, most + 1))

    def bounds(self, schema, least, most, top):
        low = self.random.randrange(top)
        if self.flip(0.5):
            schema[least] = low
        if self.flip(0.5):
            schema[most] = low + self.random.randrange(top)

    def string(self, schema, depth):
        del depth
        kind = self.random.randrange(4)
        if kind == 0:
            self.bounds(schema, "minLength", "maxLength", 6)
        elif kind == 1:
            schema["pattern"] = self.random.choice(PATTERNS)
            if self.flip(0.3):
                self.bounds(schema, "minLength", "maxLength", 4)
        elif kind == 2:
            schema["format"] = self.random.choice(FORMATS)
            if self.flip(0.1):
                schema["maxLength"] = 40

    def numeric(self, schema, depth):
        del depth
        for keyword in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]:
            if self.flip(0.25):
                schema[keyword] = self.number()
        if self.flip(0.2):
            schema["multipleOf"] = self.random.choice([1, 2, 3, 10, 0.5, 0.01, 25, 7])

    def array(self, schema, depth):
        if self.flip(0.7):
            schema["items"] = self.schema(depth - 1)
        if self.flip(0.25):
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(self.random.randrange(1, 4))]
        self.bounds(schema, "minItems", "maxItems", 3)
        if self.flip(0.1):
            schema["uniqueItems"] = True
            if self.flip(0.8):
                schema.pop("prefixItems", None)
                schema["items"] = self.leaf()
        if self.flip(0.08):
            schema["contains"] = self.schema(depth - 1)
            if self.flip(0.4):
                schema["minContains"] = self.random.randrange(3)
            if self.flip(0.3):
                schema["maxContains"] = self.random.randrange(1, 4)
        if self.flip(0.05):
            schema["unevaluatedItems"] = self.schema(0)

    def leaf(self):
        schema = {"type": self.random.choice(["string", "integer", "number", "boolean"])}
        if self.flip(0.3):
            return {"enum": [self.scalar() for _ in range(self.random.randrange(1, 8))]}
        (self.string if schema["type"] == "string" else self.numeric)(schema, 0)
        return schema

    def object(self, schema, depth):
        if self.flip(0.8):
            schema["properties"] = {name: self.schema(depth - 1) for name in self.names(4)}
        if self.flip(0.6):
            schema["required"] = self.names(3) if self.flip(0.3) else list(schema.get("properties", {}))[:2]
        if self.flip(0.4):
            schema["additionalProperties"] = self.schema(depth - 1) if self.flip(0.5) else self.flip(0.3)
        if self.flip(0.2):
            schema["patternProperties"] = {self.random.choice(PATTERNS): self.schema(depth - 1)}
        if self.flip(0.15):
            self.bounds(schema, "minProperties", "maxProperties", 3)
        if self.flip(0.06):
            schema["propertyNames"] = self.random.choice([{"pattern": "^[a-c]"}, {"maxLength": 2}, {"enum": NAMES[:4]}, False])
        if self.flip(0.06):
            schema["dependentRequired"] = {self.random.choice(NAMES): self.names()}
        if self.flip(0.05):
            schema["dependentSchemas"] = {self.random.choice(NAMES): self.schema(depth - 1)}
        if self.flip(0.05):
            schema["unevaluatedProperties"] = self.schema(0)

    def applicators(self, schema, depth):
        kind = self.random.randrange(7)
        parts = [self.schema(depth - 1) for _ in range(self.random.randrange(1, 4))]
        if kind <= 1:
            schema["anyOf"] = parts
        elif kind == 2:
            schema["allOf"] = parts[:2]
        elif kind == 3:
            schema["oneOf"] = parts
        elif kind == 4 and self.flip(0.5):
            schema["not"] = parts[0]
        elif kind == 5 and self.flip(0.5):
            schema["if"] = parts[0]
            for keyword in ["then", "else"]:
                if self.flip(0.7):
                    schema[keyword] = self.schema(depth - 1)
        else:
            schema["$ref"] = self.random.choice(["#/$defs/a", "#/$defs/x~1y", "#here", "#", "inner.json", "#/$defs/%61"])

    def schema(self, depth):
        if self.flip(0.05):
            return self.flip(0.8)
        schema = {}
        if self.flip(0.08):
            schema["enum"] = [self.value() for _ in range(self.random.randrange(1, 5))]
        elif self.flip(0.06):
            schema["const"] = self.value()
        else:
            types = ["null", "boolean", "integer", "number", "string"] + (["array", "object", "object"] if depth > 0 else [])
            kind = self.random.choice(types)
            if self.flip(0.9):
                schema["type"] = [kind, self.random.choice(types)] if self.flip(0.1) else kind
            rules = {"integer": self.numeric, "number": self.numeric, "string": self.string, "array": self.array,
                     "object": self.object}
            if kind in rules:
                rules[kind](schema, depth)
        if depth > 0 and self.flip(0.25):
            self.applicators(schema, depth)
        if self.flip(0.1):
            schema["title"] = "t"
        items = list(schema.items())
        self.random.shuffle(items)
        return dict(items)

    def whole(self):
        schema = self.schema(3)
        if not isinstance(schema, dict):
            return schema
        if "$ref" in json.dumps(schema):
            schema["$defs"] = {"a": self.schema(1), "x/y": self.schema(1), "n": {"$anchor": "here"} | self.leaf(),
                               "i": {"$id": "inner.json"} | self.leaf()}
        return schema


def keywords(schema):
    """All keywords in it; names of properties count as well, which does not matter."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            yield key
            yield from keywords(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from keywords(value)


def simple_values():
    scalars = [None, True, False, "", "a", "x1", "abc", "b", 'q"', "b\\", "\n", "12-34", "2024-02-29", "xy", "a1",
               *range(-25, 101, 5), 0.5, 2.25, 2.5, 12345678, 1, 2, 3, 7, 50, 175]
    yield from scalars
    for size in range(4):
        for value in scalars[:16]:
            yield [value] * size
            yield dict.fromkeys(NAMES[:size], value)
            yield {name: value for name in NAMES[size:size + 2]}


def fits_something(schema):
    """Whether a simple value fits, by the package, which comes to no end where a part refers to itself in place."""
    validator = validator_of(schema, is_draft_7=False)
    for value in simple_values():
        with contextlib.suppress(RecursionError):
            if validator.is_valid(value):
                return True
    return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--answers", required=True)
    parser.add_argument("--schemas", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    schemas = Schemas(options.seed)
    answers = Answers(options.answers)
    counts = collections.Counter()
    refused = collections.Counter()
    asked = collections.Counter()
    reasons = collections.Counter()
    for number in range(options.schemas):
        schema = schemas.whole()
        reply = answers.of(schema, seed=number, closed=number % 4 != 0)
        if "error" in reply:
            print(f"error: {reply['error']}\n  {json.dumps(schema)}")
            counts["errors"] += 1
            continue
        used = set(keywords(schema))
        why = reply.get("refused", "")
        # The package does not come to an end with a schema that contains itself in place.
        if "refers to itself" in why or ("no value fits" in why and not fits_something(schema)):
            counts["unsatisfiable"] += 1
            continue
        for keyword in used - {"title", "$defs", "$anchor", "$id", *NAMES}:
            asked[keyword] += 1
            refused[keyword] += bool(why)
        kind = "hard" if used & HARD else "plain"
        counts[kind] += 1
        if why:
            counts[f"{kind} refused"] += 1
            reasons[re.sub(r"^schema\S*?\.?(\w+):|[\"\d].*", r"\1:", why)[:100]] += 1
            continue
        counts["cut"] += reply["cut"]
        for text in reply["answers"]:
            counts["answers"] += 1
            try:
                found = violation(schema, text, is_draft_7=False)
            except RecursionError:  # as above, where no answer depends on it: an `if` alone
                counts["endless"] += 1
                continue
            except jsonschema.exceptions.SchemaError as error:
                found = repr(error)
            if found:
                counts["invalid"] += 1
                if counts["invalid"] <= 20:
                    print(f"invalid: {found}\n  {json.dumps(schema)}\n  {text[:300]}")
    answers.close()
    print("refused by keyword:", ", ".join(f"{keyword} {refused[keyword]}/{asked[keyword]}" for keyword in
                                           sorted(asked, key=lambda k: -refused[k] / asked[k]) if refused[keyword]))
    print("reasons:", *(f"\n  {count} {reason}" for reason, count in reasons.most_common(15)))
    share = counts["plain refused"] / max(1, counts["plain"])
    print(f"{options.schemas} schemas, {counts['unsatisfiable']} that nothing fits; {counts['answers']} answers, {counts['cut']} cut, "
          f"{counts['invalid']} invalid, {counts['endless']} that the package comes to no end with, {counts['errors']} errors; "
          f"refused {share:.2%} of {counts['plain']} plain and "
          f"{counts['hard refused']} of {counts['hard']} hard ones")
    return counts["invalid"] > 0 or counts["errors"] > 0 or share > MOST_REFUSED or counts["answers"] < options.schemas


if __name__ == "__main__":
    sys.exit(main())
