"""What Prometheus' text format, version 0.0.4, demands of metrics, and what `promtool check metrics` demands besides."""

import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{(.*)\}})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
TYPES = ("counter", "gauge", "histogram")
OF_HISTOGRAMS = ("_bucket", "_sum", "_count")
# Of units other than those that all systems share, and parts of names that say what TYPE says.
BAD_PARTS = {"ms", "us", "ns", "milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "mb", "gb", "kb", "megabytes",
             "gigabytes", "kilobytes", "percent", *TYPES, "summary"}


class Family:
    def __init__(self, name, help_text):
        self.name, self.help, self.type, self.samples = name, help_text, None, {}


def labels_of(text, problems, line):
    labels, end = [], 0
    for found in LABEL.finditer(text or ""):
        if found.start() != end:
            break
        labels.append(found.groups())
        end = found.end()
    if end != len(text or ""):
        problems.append(f"labels that are none: {line}")
    if len({name for name, _ in labels}) != len(labels):
        problems.append(f"a label twice: {line}")
    return tuple(labels)


def read(text, problems):
    """The families, each with its samples: values by name and labels."""
    families, family = {}, None
    if not text.endswith("\n"):
        problems.append("no line break at the end")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, _, about = line[len("# HELP "):].partition(" ")
            if name in families:
                problems.append(f"{name}: a family twice")
            family = families[name] = Family(name, about)
        elif line.startswith("# TYPE "):
            name, kind = line[len("# TYPE "):].split(" ")
            if family is None or family.name != name or family.type or family.samples or kind not in TYPES:
                problems.append(f"a type out of place: {line}")
            else:
                family.type = kind
        elif (found := SAMPLE.fullmatch(line)) is None:
            problems.append(f"no sample: {line}")
        else:
            name, labels, value = found.groups()
            suffixes = OF_HISTOGRAMS if family is not None and family.type == "histogram" else ("",)
            if family is None or family.type is None or name not in [family.name + suffix for suffix in suffixes]:
                problems.append(f"a sample outside its family: {line}")
                continue
            key = (name, labels_of(labels, problems, line))
            if key in family.samples:
                problems.append(f"a sample twice: {line}")
            try:
                family.samples[key] = float(value)
            except ValueError:
                problems.append(f"no number: {line}")
    return families.values()


def check_histogram(family, problems):
    series = {}
    for (name, labels), value in family.samples.items():
        others = tuple(label for label in labels if label[0] != "le")
        own = series.setdefault(others, {"buckets": []})
        if name.endswith("_bucket"):
            own["buckets"].append((float(dict(labels).get("le", "nan")), value))
        else:
            own[name.removeprefix(family.name)] = value
    for own in series.values():
        bounds = [bound for bound, _ in own["buckets"]]
        counts = [count for _, count in own["buckets"]]
        if bounds != sorted(set(bounds)) or bounds[-1:] != [math.inf]:
            problems.append(f"{family.name}: its bounds do not ascend to +Inf")
        if counts != sorted(counts):
            problems.append(f"{family.name}: its buckets are not cumulative")
        if "_sum" not in own or own.get("_count") != counts[-1]:
            problems.append(f"{family.name}: its sum is missing, or its count is not that of +Inf")


def problems_of(text):
    """What is wrong with an exposition, a line each."""
    problems = []
    for family in read(text, problems):
        if not family.help or family.type is None:
            problems.append(f"{family.name}: no help, or no type")
        if (family.type == "counter") != family.name.endswith("_total"):
            problems.append(f"{family.name}: counters end in _total, and nothing else does")
        if family.type != "histogram" and family.name.endswith(OF_HISTOGRAMS):
            problems.append(f"{family.name}: ends as a part of a histogram")
        if bad := BAD_PARTS & set(re.split("[_:]", family.name)):
            problems.append(f"{family.name}: has {', '.join(bad)} in its name")
        if re.search("[a-z][A-Z]", family.name):
            problems.append(f"{family.name}: is not snake_case")
        if family.type == "counter" and any(not value >= 0 for value in family.samples.values()):
            problems.append(f"{family.name}: a counter below 0")
        if family.type == "histogram":
            check_histogram(family, problems)
    return problems
