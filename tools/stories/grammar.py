#!/usr/bin/env python3
"""Writes little English stories from a grammar: python3 grammar.py --seed 1 --count 3.

A story is a plot (plots.py) told about a cast that is picked once: a hero, a friend, an elder, an other, a thing, a place,
the weather, a mood. Templates have three marks:

    [a|b]      one of the alternatives, picked anew each time
    <beat>     one of the shared beats of that name (beats.py)
    {h.he}     a value of the story's state; never picked anew

Since everything that must stay the same is state, names, pronouns, places and objects agree from opening to ending.
Story `index` of seed `seed` depends on these two numbers alone, so a corpus can be written by any number of processes.
"""

import argparse
import random
import re
import sys

from beats import BEATS, OPENINGS
from plots import PLOTS
from words import (BIRDS, BOY, BOY_ENDS, BOYS, FOODS, GIRL, GIRL_ENDS, GIRLS, KINDS, LIKES, NAME_MIDDLES, NAME_STARTS, PET_NAMES,
                   PLACES, THINGS, TRAITS, WEATHER)

END_OF_TEXT = "<|end_of_text|>"

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_BEAT = re.compile(r"<(\w+)>")


_WEIGHTS = [1 / (i + 1.5) for i in range(100)]


def pick(rng, options):
    """Picks one of `options`, an earlier one more often.

    Were all as likely, the greedy text of a trained model would hang on differences too small for bf16 at every choice. As it
    is, the first option leads the second by half a nat.
    """
    return rng.choices(options, _WEIGHTS[: len(options)])[0]


def with_article(phrase):
    """Returns `phrase` with "a" or "an" before it."""
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


class Character:
    """Someone in a story; {h} is the name, and it carries kind and pronouns as attributes for templates."""

    def __init__(self, name, kind, is_girl, trait):
        self.name, self.is_girl, self.trait = name, is_girl, trait
        self.kind, self.home, self.hands, self.went, self.skills = kind
        self.he, self.him, self.his = ("she", "her", "her") if is_girl else ("he", "him", "his")
        self.He, self.His = self.he.capitalize(), self.his.capitalize()
        self.a = with_article(f"{trait} {self.kind}")
        self.a_little = with_article(f"{trait} little {self.kind}")
        self.little = f"little {self.kind}"

    def __format__(self, spec):
        return self.name


class Elder:
    """An older relative, called by title and name; same attributes as a Character where templates use them."""

    def __init__(self, name, is_girl, rng):
        self.name = pick(rng, ["Grandma", "Aunt"] if is_girl else ["Grandpa", "Uncle"]) + " " + name
        self.is_girl = is_girl
        self.he, self.him, self.his = ("she", "her", "her") if is_girl else ("he", "him", "his")
        self.He, self.His = self.he.capitalize(), self.his.capitalize()

    def __format__(self, spec):
        return self.name


class Thing:
    """An object of a story: "red ball", with its article forms."""

    def __init__(self, adjective, noun):
        self.adj, self.n, self.full = adjective, noun, f"{adjective} {noun}"
        self.a, self.the, self.The = with_article(self.full), f"the {self.full}", f"The {self.full}"
        self.A = self.a.capitalize()

    def __format__(self, spec):
        return self.full


class Cast:
    """Draws characters whose names, and for animals kinds, do not repeat within a story."""

    def __init__(self, rng):
        self._rng, self._names, self._kinds = rng, set(), set()

    def name(self, is_girl, kind=None, made_up=1 / 10):
        """A name not yet in the story: made up of syllables, or alliterating with the kind, or any of the gender's."""
        is_animal = kind is not None and kind is not GIRL and kind is not BOY
        while True:
            pool = GIRLS if is_girl else BOYS
            if self._rng.random() < made_up:
                ends = GIRL_ENDS if is_girl else BOY_ENDS
                pool = [self._rng.choice(NAME_STARTS) + self._rng.choice(NAME_MIDDLES) + self._rng.choice(ends)]
            elif is_animal:
                alike = [name for name in pool + PET_NAMES if name[0].lower() == kind.noun[0]]
                roll = self._rng.random()
                pool = alike if alike and roll < 0.4 else PET_NAMES if roll < 0.6 else pool
            name = pick(self._rng, pool)
            if name not in self._names:
                self._names.add(name)
                return name

    def _character(self, kind, is_girl, made_up=1 / 10):
        self._kinds.add(kind.noun)
        return Character(self.name(is_girl, kind, made_up), kind, is_girl, pick(self._rng, TRAITS))

    def hero(self, without_skills):
        """A hero that cannot do by itself what the plot needs a friend for; three in ten are children.

        A third of the names are made up, so that a model learns to copy any name that a prompt may bring.
        """
        is_girl = self._rng.random() < 0.6
        if self._rng.random() < 0.3:
            return self._character(GIRL if is_girl else BOY, is_girl, 1 / 3)
        return self._character(pick(self._rng, [k for k in KINDS if not k.skills & without_skills]), is_girl, 1 / 3)

    def friend(self, skill):
        """A friend with `skill`, or of any kind (a child too) if that is None."""
        is_girl = self._rng.random() < 0.6
        if skill is None and self._rng.random() < 0.2:
            return self._character(GIRL if is_girl else BOY, is_girl)
        pool = [k for k in KINDS + BIRDS if (skill is None or skill in k.skills) and k.noun not in self._kinds]
        return self._character(pick(self._rng, pool), is_girl)

    def elder(self):
        is_girl = self._rng.random() < 0.6
        return Elder(self.name(is_girl), is_girl, self._rng)


def expand(template, state, rng):
    """Returns `template` with beats, choices and values filled in, in this order."""
    while True:
        template, num_beats = _BEAT.subn(lambda m: pick(rng, BEATS[m[1]]), template)
        if num_beats == 0:
            break
    while True:
        template, num_choices = _CHOICE.subn(lambda m: pick(rng, m[1].split("|")), template)
        if num_choices == 0:
            break
    return template.format_map(state)


def make_state(plot, rng):
    """Picks everything that stays the same through one story of `plot`."""
    cast = Cast(rng)
    skill = pick(rng, plot.skills) if plot.skills else None
    hero = cast.hero(frozenset(plot.skills + plot.hero_lacks))
    friend = cast.friend(skill)
    place = pick(rng, PLACES)
    weather = pick(rng, WEATHER[pick(rng, plot.weather)])
    adjectives, nouns = THINGS[plot.thing]
    spots = list(place.spots)
    s1, s2, s3 = (spots.pop(spots.index(pick(rng, spots))) for _ in range(3))
    state = {
        "h": hero, "f": friend, "g": cast.friend(None), "e": cast.elder(),
        "o": Thing(pick(rng, adjectives), pick(rng, plot.nouns or nouns)),
        "p": place, "tree": place.tree, "water": place.water, "s1": s1, "s2": s2, "s3": s3,
        "w": weather, "tod": pick(rng, ["morning", "day", "afternoon"]), "mood": pick(rng, plot.moods),
        "food": pick(rng, FOODS), "like": plot.like if plot.like and rng.random() < 0.7 else pick(rng, LIKES),
    }
    for name, options in plot.slots.items():
        chosen = options[skill] if isinstance(options, dict) else pick(rng, options)
        if isinstance(chosen, tuple):
            state.update({f"{name}{i}": expand(part, state, rng) for i, part in enumerate(chosen)})
        else:
            state[name] = expand(chosen, state, rng)
    return state


def make_story(seed, index):
    """Returns story number `index` of `seed`: paragraphs with a blank line between, no end-of-text mark."""
    rng = random.Random(f"{seed}:{index}")
    plot = rng.choices(PLOTS, [1 + 3 / (i + 1) for i in range(len(PLOTS))])[0]
    state = make_state(plot, rng)
    opening, day = pick(rng, OPENINGS)
    first, *rest = plot.beats
    paragraphs = [opening, f"{day} {first}", *rest, f"{plot.moral} <end>"]
    return "\n\n".join(expand(p, state, rng) for p in paragraphs)


def write_stories(seed, first, count, out):
    """Writes `count` stories, each followed by a line with the end-of-text mark."""
    for index in range(first, first + count):
        out.write(make_story(seed, index))
        out.write(f"\n{END_OF_TEXT}\n")


def main():
    parser = argparse.ArgumentParser(description="Write little stories from a grammar.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first story")
    parser.add_argument("--count", type=int, default=1, help="number of stories")
    parser.add_argument("--out", default="-", help="file to write; - is stdout")
    args = parser.parse_args()
    if args.out == "-":
        write_stories(args.seed, args.first, args.count, sys.stdout)
    else:
        with open(args.out, "w", encoding="utf-8") as out:
            write_stories(args.seed, args.first, args.count, out)


if __name__ == "__main__":
    main()
