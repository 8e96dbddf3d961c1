#!/usr/bin/env python3
"""Writes src/text/unicode_table.cc: what the `tokenizers` package takes each code point for.

Its regular expressions match with Unicode 16 tables. Its normalizers, Punctuation and Digits have tables of other
versions; those are not looked up but asked of the package itself. Needs Python 3.11 (of Unicode 14, as PCRE2 10.42 is):

    pip install tokenizers==0.23.3 unicodedata2==16.0.0
    tools/tokenizers/unicode_table.py > src/text/unicode_table.cc
"""

import sys
import unicodedata as pcre2

import unicodedata2 as unicodedata
from tokenizers import normalizers, pre_tokenizers

VERSION = "16.0.0"
PCRE2_VERSION = "14.0.0"
LETTER, NUMBER, MARK, PUNCTUATION, SPACE, WORD, DIGIT, INERT = (1 << bit for bit in range(8))

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# White_Space of PropList.txt.
SPACES = {*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
          0x205F, 0x3000}
# Alphabetic or Join_Control, yet neither letter nor mark nor letter number (PropList.txt).
MORE_WORD = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
             *range(0x1F170, 0x1F18A), 0x200C, 0x200D}

nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str
strip_accents = normalizers.StripAccents().normalize_str
lower = normalizers.Lowercase().normalize_str
punctuation, digits = pre_tokenizers.Punctuation(), pre_tokenizers.Digits(False)


def splits(pre_tokenizer, character):
    return len(pre_tokenizer.pre_tokenize_str("a" + character)) > 1


def is_reordered(character):
    """Whether the package knows a combining class: it moves in front of class 240, or class 1 in front of it."""
    return nfd("\u0345" + character) == character + "\u0345" or nfd(character + "\u0334") == "\u0334" + character


def inert_code_points():
    """What normalization concerns today and not in the package."""
    inert = set()
    for code_point in CODE_POINTS:
        character = chr(code_point)
        decomposed = unicodedata.normalize("NFKD", character)
        if decomposed != character:
            if nfkd(character) == character:
                inert.add(code_point)
                canonical = unicodedata.decomposition(character).split()
                if not canonical[0].startswith("<"):  # so that nothing composes with the first part
                    inert.add(int(canonical[0], 16))
        elif unicodedata.combining(character) and not is_reordered(character):
            inert.add(code_point)
    return inert


def classes(code_point, inert):
    character = chr(code_point)
    category = unicodedata.category(character)
    bits = {"L": LETTER, "N": NUMBER}.get(category[0], 0)
    if code_point in SPACES:
        bits |= SPACE
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc") or code_point in MORE_WORD:
        bits |= WORD
    if not 0xD800 <= code_point < 0xE000:
        bits |= MARK * (strip_accents(character) == "") | PUNCTUATION * splits(punctuation, character)
        bits |= DIGIT * splits(digits, character) | INERT * (code_point in inert)
    return bits


def class_ranges():
    inert = inert_code_points()
    previous = None
    for code_point in range(0x110000):
        bits = classes(code_point, inert)
        if bits != previous:
            yield f"0x{code_point << 8 | bits:x},"
            previous = bits


def newer_categories():
    """Ranges of one category which PCRE2 does not have in it: [first, last, category]."""
    rows = []
    for code_point in CODE_POINTS:
        category = unicodedata.category(chr(code_point))
        if category == pcre2.category(chr(code_point)):
            continue
        if rows and rows[-1][1:] == [code_point - 1, category]:
            rows[-1][1] = code_point
        else:
            rows.append([code_point, code_point, category])
    return [f'{{0x{first:x}, 0x{last:x}, "{category}"}},' for first, last, category in rows]


def newer_lower_case():
    """Characters to which Unicode 14 has no lower case: [first, last, distance]."""
    rows = []
    for code_point in CODE_POINTS:
        lowered = lower(chr(code_point))
        if lowered == chr(code_point).lower():
            continue
        distance = ord(lowered) - code_point
        if rows and rows[-1][1:] == [code_point - 1, distance]:
            rows[-1][1] = code_point
        else:
            rows.append([code_point, code_point, distance])
    return [f"{{0x{first:x}, 0x{last:x}, {distance}}}," for first, last, distance in rows]


def print_table(declaration, entries, gap):
    print(f"const {declaration}[] = {{")
    line = ""
    for entry in entries:
        if len(line) + len(gap) + len(entry) > 98:
            print("  " + line)
            line = ""
        line += (gap if line else "") + entry
    print("  " + line)
    print("};")


def main():
    if unicodedata.unidata_version != VERSION or pcre2.unidata_version != PCRE2_VERSION:
        sys.exit(f"needs Unicode {VERSION} and {PCRE2_VERSION}, found {unicodedata.unidata_version} and "
                 f"{pcre2.unidata_version}")
    print(f"// Generated by tools/tokenizers/unicode_table.py from Unicode {VERSION} and the tokenizers package; do not edit.")
    print('#include "text/unicode.h"\n\nnamespace encore::text {\n')
    tables = [("uint32_t", "CharClassRanges", list(class_ranges()), ""),
              ("NewerCategory", "NewerCategories", newer_categories(), " "),
              ("NewerLowerCase", "NewerLowerCases", newer_lower_case(), " ")]
    print("// clang-format off")
    for kind, name, entries, gap in tables:
        print_table(f"{kind} k{name}", entries, gap)
    print("// clang-format on")
    for _, name, entries, _ in tables:
        print(f"const int kNum{name} = {len(entries)};")
    print("\n}  // namespace encore::text")


if __name__ == "__main__":
    main()
