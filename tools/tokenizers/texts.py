"""Seeded text in mixed scripts, code, emoji and random Unicode, for training and testing tokenizers."""

import random
import unicodedata

# Where each script's letters are; words are drawn from these.
SCRIPTS = {
    "latin": [(0x61, 0x7A)], "latin1": [(0x61, 0x7A), (0xDF, 0xF6), (0xF8, 0xFF), (0x100, 0x17F)],
    "greek": [(0x3B1, 0x3C9)], "cyrillic": [(0x430, 0x45F)], "armenian": [(0x561, 0x587)],
    "hebrew": [(0x5D0, 0x5EA)], "arabic": [(0x621, 0x63A), (0x641, 0x652)],
    "devanagari": [(0x904, 0x939), (0x93E, 0x94D)], "bengali": [(0x985, 0x9B9), (0x9BE, 0x9CD)],
    "tamil": [(0xB85, 0xBB9), (0xBBE, 0xBCD)], "thai": [(0xE01, 0xE3A), (0xE40, 0xE4E)],
    "tibetan": [(0xF40, 0xF6C), (0xF71, 0xF84)], "georgian": [(0x10D0, 0x10FA)],
    "ethiopic": [(0x1200, 0x1248)], "khmer": [(0x1780, 0x17D3)], "jamo": [(0x1100, 0x1112), (0x1161, 0x1175)],
    "hiragana": [(0x3041, 0x3096)], "katakana": [(0x30A1, 0x30FA)], "han": [(0x4E00, 0x9FA5)],
    "hangul": [(0xAC00, 0xD7A3)], "gothic": [(0x10330, 0x1034A)], "math": [(0x1D400, 0x1D454)],
}
COMMON = ("the of and to in is that it was for on are as with his they be at one have this from or had by hot word "
          "but what some we can out other were all there when up use your how said an each she which do their time "
          "if will way about many then them write would like so these her long make thing see him two has look more "
          "day could go come did number sound no most people my over know water than call first who may down side "
          "been now find any new work part take get place made live where after back little only round man year came "
          "show every good me give our under name very through just form sentence great think say help low line "
          "tokenizer inference engine attention recording scheduler bucket kernel matrix vector stream graph").split()
CODE = [
    "def {a}({b}, {c}=None):\n    return {b}.{a}({c}) if {c} else {b}[{n}:-{n}]\n",
    "for (int {a} = 0; {a} < {n}; ++{a}) {{\n\t\t{b}[{a}] += {c}->{b} * 0x{n}f;\n\t}}\r\n",
    "const {{ {a}, {b} }} = await {c}.get(`/{a}/${{{b}}}?q={n}`);  // {b}\n",
    "#include <{a}.h>\n\ntemplate <typename {b}>\nclass {c} : public {a}<{b}, {n}> {{}};\n",
    '{{"{a}": [{n}, -{n}.{n}e-{n}, null, true], "{b}": {{"{c}": "\\u00e9\\n"}}}}',
    "SELECT {a}, COUNT(*) FROM {b} WHERE {c} >= '{n}' GROUP BY 1;--{a}",
    "<div class=\"{a} {b}\">\n        <p>{c}&nbsp;{n}%</p>\n</div>", "{a}_{b}.{c}::{a}<{n}>();!!??==>>{n}",
]
SPACES = [" ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u3000", "\u2003 ", "\u2028",
          "\x0b", "\x85", "\u1680", "\u202f", "        ", "\u200b", "\u180e"]
PUNCTUATION = list(".,;:!?-—–…()[]{}<>/\\|@#$%^&*_+=~`\"'“”‘’«»、。！？「」।؟¿¡§¶†•°€£¥₹")
CONTRACTIONS = ["it's", "IT'S", "don't", "WE'RE", "I've", "i'M", "you'll", "he'd", "'Tis", "x'\u017f", "'\u017fo", "'vE", "rock'n'roll",
                "''s", "l'été", "'re'll", "\u2019s"]
NUMBERS = ["0", "7", "42", "123", "1234", "12345", "123456", "1234567890", "3.14159", "1,000,000", "²³", "Ⅷ", "४५६",
           "٣٤٥٦", "½", "①②③④", "1st", "x86", "2024-01-31", "𝟘𝟙𝟚𝟛"]
EMOJI = ["🙂", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇯🇵", "❤️", "🤷🏻‍♀️", "☃", "✨", "1️⃣", "🫠", "🧑🏿‍🚀", "♻️", "🀄"]
MARKS = [c for lo, hi in [(0x300, 0x34E), (0x591, 0x5BD), (0x64B, 0x652), (0x93C, 0x93C), (0x3099, 0x309A)]
         for c in range(lo, hi + 1)]
# Scripts with marks of Unicode 10 to 18, which Python may not know, and which the package's normalization does not.
NEWER_MARKS = [(0x897, 0x89F), (0x8CA, 0x8D3), (0xD3B, 0xD3C), (0x1715, 0x1715), (0x1ABF, 0x1AF0), (0x1DF6, 0x1DFA),
               (0x10D24, 0x10D27), (0x10EAB, 0x10EFF), (0x10F46, 0x10F50), (0x11380, 0x113D0), (0x11930, 0x11943),
               (0x11D42, 0x11D45), (0x11F41, 0x11F42), (0x16121, 0x1612F), (0x16D63, 0x16D6A), (0x1E130, 0x1E136),
               (0x1E6E3, 0x1E6F5)]
COMPOSED = "éèêëñçåÅǻḹṩΐΰάὰᾳᾷй ї ö ü Ạ ậ ǘ 가 각 힣 か が ぱ ﬁ Å K क़ ড়".replace(" ", "")


class TextSource:
    """Draws lines of text; the same seed gives the same lines."""

    def __init__(self, seed, special_tokens=()):
        self.random = random.Random(seed)
        self.special_tokens = list(special_tokens)
        self.words = {name: self._words(ranges) for name, ranges in SCRIPTS.items()}
        self.combining = ([c for c in range(0x110000) if unicodedata.combining(chr(c))] +
                          [c for low, high in NEWER_MARKS for c in range(low, high + 1)])
        self.assigned = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
        self.kinds = [(self.prose, 40), (self.mixed, 16), (self.code, 12), (self.emoji, 6), (self.noise, 8),
                      (self.blanks, 5), (self.marks, 5), (self.numbers, 4), (self.run, 1), (self.specials, 3)]

    def _words(self, ranges):
        letters = [chr(c) for lo, hi in ranges for c in range(lo, hi + 1)]
        if len(letters) > 2000:  # a script of many characters uses a few of them most of the time
            letters = self.random.sample(letters, 600)
        return ["".join(self.random.choices(letters, k=self.random.choice((1, 2, 2, 3, 3, 4, 5, 6, 8, 11))))
                for _ in range(400)]

    def word(self, script):
        # A few words are frequent, most are rare.
        index = min(int(self.random.paretovariate(0.6)) - 1, 399)
        if script == "latin" and self.random.random() < 0.8:
            word = COMMON[index % len(COMMON)]
        else:
            word = self.words[script][index]
        shape = self.random.random()
        return word.capitalize() if shape < 0.1 else word.upper() if shape < 0.13 else word

    def prose(self):
        script = self.random.choice(list(SCRIPTS)) if self.random.random() < 0.6 else "latin"
        gap = "" if script in ("han", "hiragana", "katakana", "thai", "khmer") else " "
        parts = []
        for _ in range(self.random.randint(1, 14)):
            parts.append(self.random.choice(CONTRACTIONS) if self.random.random() < 0.04 else self.word(script))
            chance = self.random.random()
            parts.append(self.random.choice(PUNCTUATION) + gap if chance < 0.15 else gap)
        text = "".join(parts)
        return text.strip() if self.random.random() < 0.8 else text

    def mixed(self):
        return "".join(self.word(self.random.choice(list(SCRIPTS))) +
                       self.random.choice(SPACES + PUNCTUATION + ["", ""]) for _ in range(self.random.randint(1, 9)))

    def code(self):
        names = {key: self.random.choice(COMMON) + self.random.choice(["", "_id", "Map", "2", "__"]) for key in "abc"}
        return self.random.choice(CODE).format(n=self.random.randint(0, 4096), **names)

    def emoji(self):
        return "".join(self.random.choice(EMOJI) + self.random.choice(["", " ", "!", self.word("latin")])
                       for _ in range(self.random.randint(1, 6)))

    def noise(self):
        def character():
            chance = self.random.random()
            if chance < 0.5:
                return chr(self.random.choice(self.assigned))
            if chance < 0.6:
                return chr(self.random.randint(0, 0x7F))
            if chance < 0.9:
                return chr(self.random.randint(0x80, 0x2FFF))
            return chr(self.random.choice((0xE000, 0xF8FF, 0xFFFE, 0xFFFF, 0xFFFD, 0xFEFF, 0x50000, 0xE0001, 0x10FFFF)))
        return "".join(character() for _ in range(self.random.randint(1, 24)))

    def blanks(self):
        return "".join(self.random.choice(SPACES + ["a", "1", "!", "é"]) for _ in range(self.random.randint(1, 12)))

    def marks(self):
        return "".join(self.random.choice(list("aeoAEνж가かक ") + list(COMPOSED)) +
                       "".join(chr(self.random.choice(MARKS)) for _ in range(self.random.choice((0, 1, 1, 2, 4))))
                       for _ in range(self.random.randint(1, 10)))

    def numbers(self):
        return "".join(self.random.choice(NUMBERS) + self.random.choice(["", " ", ".", "%", " kg "])
                       for _ in range(self.random.randint(1, 7)))

    def run(self):
        unit = self.random.choice(["a", "ab", " ", "\n", "=", "1", "é", "世", "🙂", "▁", "Ġ", "'", " \n", "xyz", "\t"])
        return unit * self.random.randint(20, 400)

    def specials(self):
        pieces = self.special_tokens + [" ", "  ", "\n", "a", "hello", " world ", "<", ">", "|", "<|", "s>"]
        return "".join(self.random.choice(pieces) for _ in range(self.random.randint(1, 9)))

    def soup(self):
        """Code points of every plane, assigned or not, among marks, which normalization moves."""
        def character():
            chance = self.random.random()
            if chance < 0.35:
                return chr(self.random.choice(self.combining))
            if chance < 0.6:
                return chr(self.random.choice(self.assigned))
            if chance < 0.7:
                return self.random.choice(COMPOSED + "aeoAEν ")
            return chr(self.random.choice((self.random.randrange(0xD800), self.random.randrange(0xE000, 0x20000),
                                           self.random.randrange(0x110000 - 0xE000) + 0xE000)))
        return "".join(character() for _ in range(self.random.randint(1, 24)))

    def line(self):
        kinds, weights = zip(*self.kinds)
        text = self.random.choices(kinds, weights)[0]()
        return "".join(c for c in text if not 0xD800 <= ord(c) < 0xE000)
