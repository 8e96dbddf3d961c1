"""Claude Code and Codex, unmodified: each reads a file and edits it, as a scripted model tells it to."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
AGENTS = pathlib.Path(os.environ["ENCORE_AGENTS"])
sys.argv[1:1] = ["--encore", os.environ["ENCORE_BINARY"]]
sys.path.insert(0, str(HERE.parent / "cli"))

from harness import SOURCE  # noqa: E402
from server_process import Server  # noqa: E402

TEMPLATE = SOURCE / "src/text/testdata/chat_templates/qwen3.jinja"
PATIENCE = 300  # seconds
TASK = "Have the file greet in French."
BEFORE, AFTER = "greeting = 'good morning'\n", "greeting = 'bonjour'\n"
LAST_WORDS = "The greeting is French now."


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class AgentsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name) / "home"
        self.work = pathlib.Path(folder.name) / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.file = self.work / "greeting.py"
        self.file.write_text(BEFORE)

    def run_agent(self, read, edit, command):
        """Runs the agent's command, given the server's URL, whose model says these calls and then the last words."""
        script = self.home / "script.json"
        # The first whose mark the prompt has: the edit is in it once it was made, what the file says once it was read.
        script.write_text(json.dumps({"answers": [{"when": "bonjour", "text": LAST_WORDS}, {"when": "good morning", "text": edit},
                                                  {"text": read}]}))
        with Server("--model", f"scripted:{script}", "--chat-template", TEMPLATE, "--served-model-name", "scripted") as server:
            arguments, variables = command(f"http://{server.host}:{server.port}")
            environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)} | variables
            done = subprocess.run(list(map(str, arguments)), cwd=self.work, env=environment, stdin=subprocess.DEVNULL, check=False,
                                  capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, (done.stdout, done.stderr, server.log))
        self.assertIn(LAST_WORDS, done.stdout, done.stderr)
        self.assertEqual(self.file.read_text(), AFTER)

    def test_claude_code(self):
        def command(url):
            binary, = AGENTS.glob("node_modules/@anthropic-ai/claude-code-*/claude")
            return ([binary, "-p", TASK, "--model", "scripted", "--permission-mode", "acceptEdits"],
                    {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1",
                     "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})

        self.run_agent(call("Read", file_path=str(self.file)),
                       call("Edit", file_path=str(self.file), old_string="good morning", new_string="bonjour"), command)

    def test_codex(self):
        def command(url):
            settings = self.home / ".codex"
            settings.mkdir()
            (settings / "config.toml").write_text(
                f'model = "scripted"\nmodel_provider = "encore"\n[model_providers.encore]\nname = "Encore"\n'
                f'base_url = "{url}/v1"\nwire_api = "responses"\n')
            return (["node", AGENTS / "node_modules/@openai/codex/bin/codex.js", "exec", "--skip-git-repo-check",
                     "--sandbox", "danger-full-access", TASK], {})

        self.run_agent(call("exec_command", cmd="cat greeting.py"),
                       call("exec_command", cmd="sed -i 's/good morning/bonjour/' greeting.py"), command)


if __name__ == "__main__":
    unittest.main()
