"""./dev: tests of a GPU never pass where there is none."""

import os
import pathlib
import shutil
import subprocess

import harness
from harness import ENCORE, SOURCE, CliTest

FINDS_A_GPU = "#!/bin/sh\necho '  --device auto runs on the GPU.'\n"
SAYS_ITS_ARGUMENTS = "#!/bin/sh\necho ctest \"$@\"\n"


class GpuTestTest(CliTest):
    def setUp(self):
        self.tree = self.work / self.id().rsplit(".", 1)[-1]
        (self.tree / "build" / "cpu").mkdir(parents=True)
        shutil.copy2(SOURCE / "dev", self.tree)

    def dev(self, *arguments, code, **environment):
        result = subprocess.run([self.tree / "dev", *arguments], env=os.environ | environment, capture_output=True, text=True,
                                check=False, timeout=600)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def script(self, path, text):
        (self.tree / path).write_text(text)
        (self.tree / path).chmod(0o755)

    def test_it_fails_where_no_gpu_can_run(self):
        (self.tree / "build" / "cpu" / "encore").symlink_to(pathlib.Path(ENCORE).resolve())
        for verb in (["gpu-test"], ["sanitize", "memcheck"]):
            error = self.dev(*verb, "--no-build", "cpu", code=1, CUDA_VISIBLE_DEVICES="").stderr
            self.assertRegex(error, rf"^dev: {verb[0]} needs a GPU, and none can run here:\ndev: +\S")

    def test_it_runs_the_tests_that_need_one_elsewhere(self):
        self.script("build/cpu/encore", FINDS_A_GPU)
        self.script("ctest", SAYS_ITS_ARGUMENTS)
        output = self.dev("gpu-test", "--no-build", "cpu", code=0, PATH=f"{self.tree}:{os.environ['PATH']}").stdout
        self.assertRegex(output, r"^ctest --test-dir build/cpu .*--no-tests=error --label-regex \^gpu\$$")


if __name__ == "__main__":
    harness.main()
