"""litmus: what needs no GPU: the table of forms, options, and the error where there is none."""

import json

import harness
from harness import CliTest


class LitmusTest(CliTest):
    def forms(self, *arguments):
        return json.loads(self.run_encore("litmus", "--list", "--json", *arguments).stdout)

    def test_every_correct_form_has_a_broken_twin_beside_it(self):
        forms = self.forms()
        correct = {(form["scope"], form["form"]) for form in forms if form["twin_of"] is None}
        broken = {(form["scope"], form["twin_of"]) for form in forms if form["twin_of"] is not None}
        self.assertEqual(correct, broken)
        self.assertEqual({form["scope"] for form in forms}, {"block", "cluster", "device", "system"})

    def test_a_form_says_what_it_is_made_of_and_what_it_teaches(self):
        [form] = self.forms("--scope", "device", "--form", "no_acquire")
        self.assertEqual(form["ptx"], "st.release.gpu / ld.relaxed.gpu")
        self.assertEqual(form["twin_of"], "release_acquire")
        self.assertEqual(form["section"], "Release and Acquire Patterns")
        self.assertIsNone(form["baseline"])
        text = self.run_encore("litmus", "--list", "--form", "no_acquire").stdout
        self.assertIn("device.no_acquire, a broken release_acquire", text)
        self.assertIn(form["teaches"], text)

    def test_scope_and_form_choose_rows(self):
        self.assertEqual([form["scope"] for form in self.forms("--form", "lock")], ["block", "cluster", "device"])
        self.assertEqual({form["scope"] for form in self.forms("--scope", "system")}, {"system"})
        both = self.forms("--scope", "block", "--form", "lock", "--form", "fences")
        self.assertEqual([form["form"] for form in both], ["fences", "lock"])

    def test_an_unknown_form_lists_those_of_the_scope(self):
        line = self.error_line("litmus", "--list", "--form", "nope", code=2)
        self.assertIn("release_acquire", line)
        self.assertIn("lock", line)
        # The host and the GPU share no lock.
        line = self.error_line("litmus", "--list", "--scope", "system", "--form", "lock", code=2)
        self.assertIn("in scope system", line)
        self.assertNotIn("relaxed_lock", line)

    def test_bad_options_name_the_help(self):
        for arguments in (["--scope", "warp"], ["--rounds", "0"], ["--seconds", "-1"]):
            with self.subTest(arguments):
                self.assertIn("--help", self.error_line("litmus", *arguments, code=2))

    def test_the_help_teaches(self):
        text = self.run_encore("litmus", "--help").stdout
        for word in ("twin", "stale", "unseen", "order", "--list", "Exit code 7"):
            self.assertIn(word, text)

    def test_without_a_gpu_it_says_what_to_do(self):
        doctor = json.loads(self.run_encore("doctor", "--json").stdout)
        if doctor["cuda"] is not None:
            self.skipTest("there is a GPU")
        line = self.error_line("litmus", code=7)
        self.assertIn("H100 or H200", line)
        self.assertIn("--list", line)


if __name__ == "__main__":
    harness.main()
