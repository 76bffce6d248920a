"""What the command lines of training refuse, before anything is drawn or loaded."""

import sys
from pathlib import Path

import pytest

from training import command, publish, train_classifier, train_drafter, train_tokenizer, train_transformer


MODULES = {module.__name__.split(".")[1]: module for module in (
    publish, train_classifier, train_drafter, train_tokenizer, train_transformer,
)}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("publish --tokenizer /nowhere", "argument --tokenizer: must be a folder with a saved config.json"),
        ("publish --tokenizer {saved} --model /nowhere", "argument --model: must be a folder that training."),
        ("publish --tokenizer {saved} --model {model} --out {file}", "argument --out: must be a folder or a new path"),
        ("publish --tokenizer {saved} --model {model} --out {file}/x", "argument --out: must be a folder or a new"),
        ("train_classifier --tokenizer /nowhere", "argument --tokenizer: must be a folder with"),
        ("train_classifier --tokenizer {saved} --batch 1", "argument --batch: must be at least 2"),
        ("train_classifier --resume /nowhere", "argument --resume: must be a folder with"),
        ("train_tokenizer --resume /nowhere", "argument --resume: must be a folder with"),
        ("train_tokenizer --batch 0", "argument --batch: must be a whole number from 1, got '0'"),
        ("train_tokenizer --minutes 0", "argument --minutes: must be a number above 0, got '0'"),
        ("train_tokenizer --minutes -3", "argument --minutes: must be a number above 0, got '-3'"),
        ("train_tokenizer --minutes nan", "argument --minutes: must be a number above 0, got 'nan'"),
        (
            "publish --tokenizer {saved} --model {model} --drafter /nowhere",
            "argument --drafter: must be a folder with",
        ),
        ("train_drafter --tokenizer {saved} --model {saved}", "lacks transformer, text_encoder, tokenizer"),
        ("train_drafter --tokenizer {saved} --model {model} --resume /nowhere", "argument --resume: must be a folder"),
        ("train_drafter --width 0", "argument --width: must be a whole number from 1, got '0'"),
        ("train_transformer --layers 0", "argument --layers: must be a whole number from 1, got '0'"),
        ("train_transformer --decay_from 1", "argument --decay_from: must be a number from 0 and below 1"),
        ("train_transformer --tokenizer {saved} --resume {saved}", "lacks transformer, text_encoder, tokenizer"),
        ("train_transformer --out {file}", "argument --out: must be a folder or a new path"),
    ],
)
def test_mistakes_are_refused_in_one_sentence(tmp_path: Path, monkeypatch, capsys, line: str, message: str):
    places = {name: tmp_path / name for name in ("saved", "model", "file")}
    places["saved"].mkdir()
    (places["saved"] / "config.json").write_text("{}")
    for part in ("transformer", "text_encoder", "tokenizer"):
        (places["model"] / part).mkdir(parents=True)
    places["file"].write_text("")
    name, *words = line.format(**places).split()
    assert message in refusal(name, words, monkeypatch, capsys)


@pytest.mark.parametrize("name", ["train_transformer", "train_drafter", "publish"])
def test_a_default_that_does_not_exist_is_refused_too(tmp_path: Path, monkeypatch, capsys, name: str):
    monkeypatch.setattr("training.scenes.CACHE", tmp_path / "none")
    assert "argument --tokenizer: must be a folder with" in refusal(name, [], monkeypatch, capsys)


def refusal(name: str, words: list[str], monkeypatch, capsys) -> str:
    """The last line on stderr of a command that ends with status 2."""
    monkeypatch.setattr(sys, "argv", [name, *words])
    with pytest.raises(SystemExit) as ended:
        command(MODULES[name].main)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]
