"""What the README tells other programs to do, done: curl, gradio_client and MCP against a real server."""

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import app
from tests.visit import save_model


README = (Path(__file__).parent.parent / "README.md").read_text()
SECTION = README.split("### From other programs")[1].split("\n## ")[0]
PROMPT = "a panda on snow"  # that the small model knows


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    page = app.build(save_model(tmp_path_factory.mktemp("model")))
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, mcp_server=True, **app.LAUNCH)
    yield url.rstrip("/")
    page.close()


def example(language: str, word: str, url: str) -> str:
    """The block of the section that holds a word, as this server is to be asked."""
    (code,) = (code for code in re.findall(rf"```{language}\n(.*?)```", SECTION, re.DOTALL) if word in code)
    return code.replace("http://127.0.0.1:7860", url).replace("a penguin on snow", PROMPT)


def test_curl_is_answered(url: str):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    told = subprocess.run(
        ["bash", "-c", example("sh", "curl", url)], capture_output=True, text=True, timeout=120
    ).stdout
    assert told.rstrip().split("event: ")[-1].startswith("complete")
    (drawn,) = json.loads(told.rstrip().split("data: ")[-1])
    assert drawn["nfe"] == 16 and len(drawn["tokens"]) == 4 and drawn["prompt"] == PROMPT


def test_a_python_client_is_answered(url: str, capsys: pytest.CaptureFixture):
    exec(example("python", "gradio_client", url), {})
    passes = re.fullmatch(r"(\d+) passes", capsys.readouterr().out.strip().splitlines()[-1])
    assert 1 < int(passes[1]) <= 16


def test_an_assistant_is_answered(url: str, capsys: pytest.CaptureFixture):
    with ThreadPoolExecutor(1) as aside:  # this thread's own loop may be that of the browser's tests
        aside.submit(exec, example("python", "mcp", url), {}).result()
    drawn = ast.literal_eval(capsys.readouterr().out.strip().splitlines()[-1])
    assert drawn["nfe"] == 16 and len(drawn["tokens"]) == 4
