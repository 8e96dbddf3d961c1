"""An installed tree works wherever it is moved to, and the executable alone says how to get a model."""

import pathlib
import shutil
import subprocess

import harness
from harness import DEVICE, ENCORE, CliTest


class InstallTest(CliTest):
    def install(self):
        """A tree that was installed in one place and moved to another."""
        name = self.id().rsplit(".", 1)[-1]
        built, moved = self.work / f"{name}-built", self.work / name / "encore"
        subprocess.run(["cmake", "--install", pathlib.Path(ENCORE).parent, "--prefix", built], check=True,
                       capture_output=True)
        moved.parent.mkdir()
        return built.rename(moved)

    def test_the_tree_tells_a_story_from_anywhere(self):
        tree = self.install()
        link = self.work / "link"
        link.symlink_to(tree / "bin" / "encore")
        self.encore = str(link)
        story = ["generate", "--device", DEVICE, "--max-tokens", "8"]
        result = self.run_encore(*story, cwd="/")
        self.assertTrue(result.stdout.startswith("Once upon a time"), result.stdout)
        self.run_encore(*story, "--model", "stories-draft", cwd="/")
        self.assertIn(str(tree / "share" / "encore" / "models"), self.run_encore("doctor", cwd="/").stdout)

    def test_shells_and_man_find_what_they_read(self):
        share = self.install().joinpath("share")
        self.assertIn(".TH ENCORE 1", (share / "man" / "man1" / "encore.1").read_text())
        for path in ("bash-completion/completions/encore", "zsh/site-functions/_encore", "fish/vendor_completions.d/encore.fish"):
            self.assertIn("max-batch-size", (share / path).read_text())

    def test_the_executable_alone_says_how_to_get_a_model(self):
        alone = self.work / "alone"
        alone.mkdir()
        self.encore = shutil.copy2(ENCORE, alone)
        for model in ([], ["--model", "stories"]):
            line = self.error_line("generate", "--device", DEVICE, *model, code=2)
            self.assertIn("cmake --install", line)
            self.assertIn("--model", line)
        output = self.run_encore("generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "1,2,3",
                                 "--max-tokens", "2").stdout
        self.assertEqual(len(output.split()), 2)


if __name__ == "__main__":
    harness.main()
