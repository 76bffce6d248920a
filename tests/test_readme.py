"""The README tells the truth: its code runs, its table lists the methods, a Space accepts its front matter."""

import re
from pathlib import Path

import pytest
import yaml

import pipelines
from tests.tiny import components


ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_a_space_accepts_the_front_matter():
    matter = yaml.safe_load(README.split("---\n")[1])
    assert matter["sdk"] == "gradio" and matter["license"] == "apache-2.0"
    assert (ROOT / matter["app_file"]).exists()
    assert len(matter["short_description"]) <= 60
    assert re.fullmatch(r"3\.1[1-9]", matter["python_version"]), "a number would turn 3.10 into 3.1"
    colours = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
    assert {matter["colorFrom"], matter["colorTo"]} <= colours
    gradio = re.search(r"gradio>=(\d+)\.(\d+),<(\d+)", (ROOT / "requirements.txt").read_text())
    major, minor = (int(part) for part in matter["sdk_version"].split(".")[:2])
    assert (int(gradio[1]), int(gradio[2])) <= (major, minor) < (int(gradio[3]), 0)


def test_every_method_has_a_row_and_every_row_a_method():
    rows = re.findall(r"^\| `(\w+Pipeline)` \|.*\]\((pipelines/\w+\.py)\) \|$", README, re.MULTILINE)
    assert {name: path.removesuffix(".py").replace("/", ".") for name, path in rows} == pipelines.METHODS


def test_every_link_leads_somewhere():
    targets = re.findall(r"\[[^\]]*\]\((?!https?:)([^)]+)\)", README)
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert targets and not missing, f"the README points to {missing}"


def test_the_python_lines_draw_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    pipelines.ARPipeline(**components()).save_pretrained(tmp_path / "assets" / "emoji-scenes")
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    assert len([line for line in code.splitlines() if line]) <= 10
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert re.fullmatch(r"16 passes of the network in \d+\.\d\d seconds\n", capsys.readouterr().out)
    assert (tmp_path / "penguin.png").read_bytes().startswith(b"\x89PNG")
