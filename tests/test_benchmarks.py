"""Numbers of the benchmarks: intervals, forwards, races, records, the README's table."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from benchmarks import record, report, run
from benchmarks.forwards import Forwards, Products
from benchmarks.record import Machine, MethodRecord, RaceRecord, interval
from pipelines import ARPipeline
from pipelines.primitives.trace import Trace
from pipelines.primitives.tree import EMPTY
from tests.tiny import components


@pytest.fixture(scope="module")
def pipe() -> ARPipeline:
    return ARPipeline(**components())


@pytest.fixture(scope="module")
def folder(pipe: ARPipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as `benchmarks.run` reads it."""
    path = tmp_path_factory.mktemp("model")
    pipe.save_pretrained(path)
    (path / "scenes.json").write_text(json.dumps({"examples": ["a panda on snow", "a red cat"]}))
    return path


def traces(pipe: ARPipeline, count: int) -> list[Trace]:
    return run.race({"ar": pipe}, ["a panda on snow"] * count, seed=0)["ar"]


def forwards(pipe: ARPipeline) -> Forwards:
    return run.half_drawn(pipe, traces(pipe, 1)[0])


def method(pipeline: str, seconds: list[float], reference: list[float], nfe: int) -> MethodRecord:
    return MethodRecord(
        pipeline=pipeline,
        image_seconds=seconds,
        image_nfe=[nfe] * len(seconds),
        seconds=interval(seconds),
        ms_per_token=interval([1000 * second / 256 for second in seconds]),
        speedup=interval([ar / second for ar, second in zip(reference, seconds)]),
        nfe=nfe,
        accepted_length=255 / (nfe - 1),
        ceiling=1.5,
        draft_share=0.2,
        target_share=0.7,
        rest_share=0.1,
    )


def race() -> RaceRecord:
    ar = [1.0, 1.1, 1.2]
    return RaceRecord(
        date="2026-01-31",
        model="emoji-scenes",
        weights_sha256="0" * 64,
        machine=Machine("A Processor", 2, 2, "cpu", "float32", "2.13.0"),
        seed=0,
        prompts=["a panda on snow"] * 3,
        sampling={"guidance_scale": 3.0},
        image_tokens=256,
        cached_tokens=128,
        forward_ms={"1": 4.0, "64": 12.0},
        products_ms=2.0,
        methods={"ar": method("ARPipeline", ar, ar, 256), "sjd": method("SJDPipeline", [0.5, 0.5, 0.6], ar, 120)},
    )


def assert_refused(main: Callable[[], None], message: str, capsys: pytest.CaptureFixture) -> None:
    """The command ends with status 2 and one line on stderr that holds `message`."""
    with pytest.raises(SystemExit) as ended:
        record.command(main)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and message in said and said.count("\n") == 1, said


def test_interval_of_equal_values_is_a_point():
    assert interval([2.0, 2.0, 2.0]) == record.Interval(2.0, 2.0, 2.0)


def test_interval_holds_the_median_and_stays_within_the_values():
    values = [1.0, 1.5, 1.2, 1.9, 1.3, 1.4, 1.1, 1.6]
    found = interval(values)
    assert min(values) <= found.low < found.median < found.high <= max(values)
    assert found == interval(values), "the same values gave another interval"


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path):
    path = tmp_path / "results" / "run-ar-sjd.json"
    race().save(path)
    assert record.load(path) == race()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"machine": {}, "methods": {}}', '{"loss": 2.5}'])
def test_a_foreign_file_is_refused_in_one_sentence(tmp_path: Path, content: str):
    path = tmp_path / "run-ar.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="`run-ar.json` is not a record of benchmarks.run"):
        record.load(path)


@pytest.mark.parametrize("name", ["run-a.json", "quality.json"])
@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"goals": 1}', "\xff"])
def test_a_foreign_record_is_named_and_the_readme_stays(tmp_path: Path, monkeypatch, capsys, name: str, content: str):
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    readme = tmp_path / "README.md"
    readme.write_text("<!-- measured: by hand -->\n<!-- /measured -->\n")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "README", readme)
    monkeypatch.setattr(sys, "argv", ["report"])
    assert_refused(report.main, f"`{tmp_path / name}` is not a record of benchmarks.", capsys)
    assert readme.read_text() == "<!-- measured: by hand -->\n<!-- /measured -->\n"


def test_report_refuses_a_readme_without_markers_or_none(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(report, "README", tmp_path / "README.md")
    monkeypatch.setattr(sys, "argv", ["report"])
    assert_refused(report.main, "there is no such file", capsys)
    (tmp_path / "README.md").write_text("no lines here")
    assert_refused(report.main, "lacks the lines", capsys)


def test_report_states_machine_date_and_every_method(tmp_path: Path):
    race().save(tmp_path / "run-ar-sjd.json")
    text = report.measured(tmp_path)
    for part in ("A Processor, 2 cores", "2026-01-31", "3 images of 256 tokens", "AR spends 2.1 times"):
        assert part in text, f"{part!r} is missing in:\n{text}"
    assert "| `ARPipeline` | 1.10 (1.00–1.20) | 4.30 (3.91–4.69) | 256 | 1.00 | 1 |" in text
    assert (
        "| `SJDPipeline` | 0.50 (0.50–0.60) | 1.95 (1.95–2.34) | 120 | 2.14 | 2.00 (2.00–2.20) | 1.50 | 30% |" in text
    )
    assert "slower" not in text


def test_report_names_settings_and_says_which_method_lost():
    found = race()
    lost = method("SJDPipeline", [1.5, 1.5, 1.6], found.methods["ar"].image_seconds, 120)
    found.methods["sjd:window=32"] = replace(lost, settings={"window": 32})
    text = report.table(found)
    assert "| `SJDPipeline` window=32 | 1.50 (1.50–1.60) |" in text
    assert "\nSlower than AR on this machine: `SJDPipeline` window=32.\n" in text and text.count("Slower") == 1


def test_drafting_by_a_network_is_not_outside_forwards():
    plain = method("SJDPipeline", [0.5], [1.0], 120)
    assert plain.outside_share == pytest.approx(0.3)
    assert replace(plain, draft_calls=40.0).outside_share == pytest.approx(0.1)


def test_report_states_what_the_model_draws_with_intervals(tmp_path: Path):
    def share(value: float) -> dict[str, float]:
        return {"share": value, "low": value - 0.05, "high": value + 0.05, "n": 250}

    goals = [
        {"figure": "object read back", "value": 0.8, "ship": 0.75, "aim": 0.95, "unit": "%"},
        {"figure": "assets", "value": 21.5, "ship": 30, "aim": 30, "unit": "MB"},
    ]
    read_back = {
        "seen": {"object": share(0.8)}, "held_out": {"object": share(0.7)}, "all": {"place": share(0.9)},
    }  # fmt: skip
    found = {"images": 500, "model": "emoji-scenes", "date": "2026-01-31", "goals": goals, "read_back": read_back}
    (tmp_path / "quality.json").write_text(json.dumps(found))
    text = report.measured(tmp_path)
    assert "| object read back | 80.0% (75.0%–85.0%, n = 250) | 75.0% | 95.0% |" in text
    assert "| assets | 21.5 MB | 30 MB | 30 MB |" in text


def test_report_changes_only_what_stands_between_its_lines(tmp_path: Path):
    readme = "above\n<!-- measured: by hand -->\nformer words\n<!-- /measured -->\nbelow\n"
    race().save(tmp_path / "run-ar.json")
    text = report.render(readme, tmp_path)
    assert text.startswith("above\n<!-- measured: by hand -->\n3 images") and text.endswith(
        "<!-- /measured -->\nbelow\n"
    )
    assert "former words" not in text and report.render(text, tmp_path) == text
    with pytest.raises(ValueError, match="lacks the lines"):
        report.render("no lines here", tmp_path)


def test_the_readme_agrees_with_the_committed_records():
    readme = report.README.read_text()
    assert report.render(readme, record.RESULTS) == readme, "run python -m benchmarks.report"


def test_products_are_the_multiplications_and_nothing_else():
    x, weight, keys = torch.randn(2, 4), torch.randn(8, 4), torch.randn(1, 2, 3, 4)
    with Products() as products:
        hidden = F.silu(F.linear(x, weight)).exp() + 1
        F.scaled_dot_product_attention(keys, keys, keys)
        last = hidden @ weight
    assert len(products.calls) == 3
    assert torch.equal(products.replay(), last)


@torch.no_grad()
def test_a_forward_is_made_of_the_products_of_its_layers(pipe: ARPipeline):
    bench = forwards(pipe)
    with Products() as products:
        bench.session.score(EMPTY)
    config = pipe.transformer.config
    # At least query-key-value, attention, output and two products of the feed-forward net a layer, and the head.
    assert 5 * config.num_layers + 1 <= len(products.calls) <= 10 * config.num_layers + 1
    assert bench.product_seconds() < bench.seconds()[1], "the products alone took longer than the forward"


@torch.no_grad()
def test_timing_forwards_leaves_the_session_as_it_was(pipe: ARPipeline):
    bench = forwards(pipe)
    assert bench.held == 8
    length, law = bench.session.length, bench.session.score(EMPTY).probs
    assert list(bench.seconds()) == [1, 2, 4, 8], "a forward must fit into the 8 squares left of 16"
    assert bench.session.length == length
    assert torch.equal(bench.session.score(EMPTY).probs, law)


def test_every_method_draws_the_same_pictures_from_the_same_seeds(pipe: ARPipeline):
    prompts = ["a panda on snow", "a red cat"]
    raced = run.race({"ar": pipe, "again": ARPipeline(**pipe.components)}, prompts, seed=3)
    assert [trace.header.prompt for trace in raced["ar"]] == prompts
    assert [trace.header.seed for trace in raced["ar"]] == [3, 4]
    for left, right in zip(raced["ar"], raced["again"]):
        assert left.complete and np.array_equal(left.tokens, right.tokens)


def test_numbers_follow_their_definitions(pipe: ARPipeline):
    def timed(trace: Trace, seconds: tuple[float, float, float], nodes: int) -> Trace:
        times = dict(zip(("draft_seconds", "target_seconds", "rest_seconds"), seconds))
        prefill, *checks = (replace(step, **times) for step in trace.steps)
        return replace(trace, steps=[prefill, *(replace(step, tokens=np.zeros(nodes)) for step in checks)])

    drawn = traces(pipe, 2)
    reference = [timed(trace, (0.0, 0.006, 0.002), nodes=0) for trace in drawn]
    guessing = [timed(trace, (0.001, 0.002, 0.001), nodes=2) for trace in drawn]
    found = run.method_record(run.Entrant("XPipeline", {"window": 3}), guessing, reference)

    assert (found.pipeline, found.settings, found.draft_calls) == ("XPipeline", {"window": 3}, 0.0)
    assert found.nfe == 16 and found.accepted_length == 1.0
    assert found.seconds.median == pytest.approx(16 * 0.004) and found.ms_per_token.median == pytest.approx(4.0)
    assert found.speedup.median == pytest.approx(2.0)
    assert (found.draft_share, found.target_share, found.rest_share) == pytest.approx((0.25, 0.5, 0.25))
    assert found.ceiling == pytest.approx(1.0 * 0.006 / (0.002 + 0.001)), "forwards and drafting alone"


def test_entrants_are_methods_with_changed_settings():
    found = run.entrants(["sjd:window=8", "sjd:window=4:start=copy_left", "sjd"])
    assert list(found) == ["ar", "sjd:window=8", "sjd:window=4:start=copy_left", "sjd"]
    assert found["sjd:window=4:start=copy_left"] == run.Entrant("SJDPipeline", {"window": 4, "start": "copy_left"})
    assert found["ar"] == run.Entrant("ARPipeline", {}) and found["sjd"].settings == {}


def test_settings_of_an_entrant_take_part_in_the_race(folder: Path, tmp_path: Path, monkeypatch, capsys):
    out, threads, race, windows = tmp_path / "run.json", torch.get_num_threads(), run.race, {}

    def watched(methods, *others):
        windows.update({name: method.settings.to_dict().get("window") for name, method in methods.items()})
        return race(methods, *others)

    monkeypatch.setattr(run, "race", watched)
    arguments = ["--methods", "sjd:window=2", "sjd:window=3", "--images", "2", "--threads", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["run", "--model", str(folder), *arguments])
    try:
        run.main()
    finally:
        torch.set_num_threads(threads)
    assert windows == {"ar": None, "sjd:window=2": 2, "sjd:window=3": 3}
    written = record.load(out)
    assert written.methods["sjd:window=3"].settings == {"window": 3} and written.machine.threads == 1
    assert "| `SJDPipeline` window=2 |" in capsys.readouterr().out


def test_a_run_writes_a_record_and_prints_its_table(folder: Path, tmp_path: Path, monkeypatch, capsys):
    out = tmp_path / "run-ar.json"
    arguments = ["run", "--methods", "ar", "--images", "2", "--model", str(folder), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", arguments)
    run.main()
    written = record.load(out)
    assert written.methods["ar"].image_nfe == [16, 16] and written.image_tokens == 16
    assert written.prompts == ["a panda on snow", "a red cat"]
    assert list(written.forward_ms) == ["1", "2", "4", "8"]
    assert written.products_ratio > 1
    assert "| `ARPipeline` |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "arr"], "`--methods` has no 'arr'; did you mean ar?"),
        (["--methods", "xyz"], "`--methods` has no 'xyz'; there are ar"),
        (
            ["--methods", "sjd:windw=8"],
            "`windw` is not a setting of SJDPipeline, which has `window`, `start`",
        ),
        (["--methods", "sjd:window=1"], "`window` must be a whole number from 2 to 64"),
        (["--methods", "sjd:window"], "`window` must be a whole number from 2 to 64"),
        (["--threads", "0"], "`--threads` must be at least 1, got 0"),
        (["--images", "0"], "`--images` must be at least 1, got 0"),
        (["--model", "/nowhere"], "/nowhere has none"),
        (["--out", "/dev/null/run.json"], "`--out` must be a file that can be written; '/dev/null/run.json' is not"),
        (["--out", "/"], "`--out` must be a file that can be written; '/' is not"),
    ],
)
def test_bad_input_is_refused_before_the_race(folder: Path, monkeypatch, capsys, arguments: list[str], message: str):
    monkeypatch.delattr(run, "measure")
    monkeypatch.setattr(sys, "argv", ["run", "--model", str(folder), *arguments])
    assert_refused(run.main, message, capsys)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"examples": []}', '{"examples": [1]}'])
def test_a_foreign_scenes_file_is_named(tmp_path: Path, monkeypatch, capsys, content: str):
    (tmp_path / "scenes.json").write_text(content)
    monkeypatch.setattr(sys, "argv", ["run", "--model", str(tmp_path)])
    assert_refused(run.main, f"`{tmp_path / 'scenes.json'}` must be a JSON object whose 'examples'", capsys)


def test_short_names_are_words_joined_by_hyphens(monkeypatch):
    names = ["ARPipeline", "LanternPlusPlusPipeline", "UniformRSDPipeline", "CoolSDPipeline", "SJDPipeline"]
    monkeypatch.setattr("pipelines.METHODS", dict.fromkeys(names, ""))
    assert list(run.method_names()) == ["ar", "lantern-plus-plus", "uniform-rsd", "cool-sd", "sjd"]


def test_records_are_plain_json(tmp_path: Path):
    path = tmp_path / "run-ar.json"
    race().save(path)
    assert json.loads(path.read_text())["methods"]["ar"]["seconds"]["median"] == 1.1
