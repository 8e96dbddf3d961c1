#!/usr/bin/env python3
"""Tests of the story grammar: python3 -m unittest discover -s tools/stories -p '*_test.py'. Standard library only."""

import io
import pathlib
import random
import re
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import grammar
import plots
import words

ALL_NAMES = set(words.GIRLS) | set(words.BOYS) | set(words.PET_NAMES)


def tell(plot, index):
    """Returns a story of `plot` and the state it was told from."""
    states = []
    make_state = grammar.make_state

    def keep_state(*args):
        states.append(make_state(*args))
        return states[-1]

    with mock.patch.object(grammar, "PLOTS", [plot]), mock.patch.object(grammar, "make_state", keep_state):
        return grammar.make_story(7, index), states[0]


class Stories(unittest.TestCase):
    def each_story(self, stories_per_plot=30):
        for plot in plots.PLOTS:
            for index in range(stories_per_plot):
                yield tell(plot, index)

    def test_a_seed_gives_the_same_stories_again(self):
        self.assertEqual([grammar.make_story(3, i) for i in range(50)], [grammar.make_story(3, i) for i in range(50)])
        self.assertNotEqual(grammar.make_story(3, 0), grammar.make_story(4, 0))

    def test_a_story_does_not_depend_on_the_ones_before(self):
        whole, part = io.StringIO(), io.StringIO()
        grammar.write_stories(3, 0, 10, whole)
        grammar.write_stories(3, 6, 4, part)
        self.assertTrue(whole.getvalue().endswith(part.getvalue()))
        self.assertEqual(whole.getvalue().count(grammar.END_OF_TEXT), 10)

    def test_the_global_random_state_is_left_alone(self):
        random.seed(1)
        before = random.getstate()
        grammar.make_story(1, 1)
        self.assertEqual(before, random.getstate())

    def test_stories_are_distinct(self):
        self.assertEqual(len({grammar.make_story(1, i) for i in range(3000)}), 3000)

    def test_every_placeholder_is_filled(self):
        for story, _ in self.each_story():
            self.assertIsNone(re.search(r"[\[\]{}<>|]", story), story)
            self.assertNotIn("  ", story)
            self.assertNotIn(" object at 0x", story)
            self.assertTrue(story.isascii(), story)

    def test_sentences_begin_with_a_capital_and_quotes_close(self):
        for story, _ in self.each_story():
            self.assertIsNone(re.search(r"(^|\n|[a-z][.!?] )[a-z]", story), story)
            for paragraph in story.split("\n\n"):
                self.assertEqual(paragraph.count('"') % 2, 0, paragraph)
                self.assertIn(paragraph[-1], '.!?"', paragraph)

    def test_only_the_cast_is_named(self):
        for story, state in self.each_story():
            cast = {state[who].name.split()[-1] for who in "hfge"}
            self.assertEqual(len(cast), 4)
            self.assertLessEqual(set(re.findall(r"\b[A-Z][a-z]+\b", story)) & ALL_NAMES, cast, story)

    def test_hero_and_friend_go_through_the_whole_story(self):
        for story, state in self.each_story():
            first, *middle, last = story.split("\n\n")
            hero, friend = state["h"], state["f"]
            self.assertIn(hero.name, first)
            self.assertIn(hero.kind, first)
            self.assertIn(hero.name, last)
            self.assertIn(friend.name, "".join(middle))
            self.assertIn(f"{friend.trait} {friend.kind}", "".join(middle))

    def test_pronouns_of_the_hero_agree(self):
        for story, state in self.each_story():
            others = {"he", "him", "his"} if state["h"].is_girl else {"she", "her"}
            self.assertFalse(others & set(re.findall(r"\w+", story.split("\n\n")[0].lower())), story)

    def test_the_hero_lacks_what_the_friend_is_needed_for(self):
        for plot in plots.PLOTS:
            for index in range(30):
                _, state = tell(plot, index)
                self.assertFalse(state["h"].skills & set(plot.skills), plot.name)
                if plot.skills:
                    self.assertTrue(state["f"].skills & set(plot.skills), plot.name)

    def test_articles_fit(self):
        for story, _ in self.each_story():
            self.assertIsNone(re.search(r"\b[Aa] [aeio]|\b[Aa]n [^aeiou]", story), story)


if __name__ == "__main__":
    unittest.main()
