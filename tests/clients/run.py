"""Runs the clients' suites against two servers: ./dev clients.

    run.py --encore build/cpu/encore --deps .deps/clients [--device cuda] [SUITE...]

Servers have the bundled model, also in float32, or answer from script.json behind Qwen 3's chat template, which reasons
and calls tools. SUITE: `official` (the tests in the openai package's source archive) or the name of a file here without
its ending. The last line says how many suites passed and failed.
"""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))

import harness  # noqa: E402
from server_process import Server  # noqa: E402

DEPS = pathlib.Path(harness.taken_from_command_line("--deps")).resolve()
TEMPLATE = harness.SOURCE / "src/text/testdata/chat_templates/qwen3.jinja"
# Models that the tests in the archive name.
OFFICIAL_MODELS = ("gpt-6-astra", "gpt-3.5-turbo-instruct")
OFFICIAL_FILES = ("test_models.py", "test_completions.py", "chat/test_completions.py", "test_responses.py")


def commands():
    """What to run by the name of a suite: arguments and folder."""
    python = [sys.executable, "-B"]
    suites = {"official": (python + ["-m", "pytest", "-q", "--asyncio-mode=auto", "-p", "no:cacheprovider", "-p",
                                     "official_exceptions", *(f"tests/api_resources/{file}" for file in OFFICIAL_FILES)],
                           DEPS / "openai-source")}
    for path in sorted(HERE.glob("*_test.py")):
        suites[path.stem.removesuffix("_test")] = (python + [path], HERE)
    for path in sorted(HERE.glob("evaluators/*_test.py")):
        suites[path.stem.removesuffix("_test")] = ([DEPS / "evaluators/bin/python", "-B", path], HERE)
    for path in sorted(HERE.glob("*.test.mjs")):
        shutil.copy(path, DEPS / "node")  # Node looks for packages beside the file
        suites[path.name.removesuffix(".test.mjs") + "_node"] = (["node", "--test", path.name], DEPS / "node")
    return suites


def main():
    suites = commands()
    chosen = sys.argv[1:] or list(suites)
    if unknown := set(chosen) - set(suites):
        sys.exit(f"clients: no suite {' '.join(unknown)}; there are: {' '.join(suites)}")
    failed = []
    scripted = ("--model", f"scripted:{HERE / 'script.json'}", "--chat-template", TEMPLATE, "--served-model-name", "scripted")
    with (Server() as stories, Server("--dtype", "f32", "--served-model-name", "stories") as f32, Server(*scripted) as script,
          Server("--served-model-name", *OFFICIAL_MODELS) as official):
        url = "http://{0.host}:{0.port}".format
        environment = os.environ | {"ENCORE_STORIES_URL": url(stories), "ENCORE_SCRIPTED_URL": url(script), "ENCORE_F32_URL": url(f32),
                                    "TEST_API_BASE_URL": url(official) + "/v1", "PYTHONPATH": str(HERE),
                                    "ENCORE_BINARY": str(pathlib.Path(harness.ENCORE).resolve()), "ENCORE_AGENTS": str(DEPS / "agents"),
                                    "AI_SDK_LOG_WARNINGS": "false"}
        for name in chosen:
            print(f"== {name}", flush=True)
            arguments, folder = suites[name]
            if subprocess.run(list(map(str, arguments)), cwd=folder, env=environment, check=False).returncode != 0:
                failed.append(name)
        for server in (stories, f32, script, official):
            server.wait_until_idle()
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed" + "".join(f" {name}" for name in failed))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
