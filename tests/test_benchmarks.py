"""Numbers of the benchmarks: intervals, records, the README's table."""

import json
from pathlib import Path

import pytest

from benchmarks import record, report
from benchmarks.record import Machine, MethodRecord, RaceRecord, interval


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
        model="assets/emoji-scenes",
        machine=Machine("A Processor", 2, 2, "cpu", "float32", "2.13.0"),
        seed=0,
        prompts=["a panda on snow"] * 3,
        image_tokens=256,
        cached_tokens=128,
        forward_ms={"1": 4.0, "64": 12.0},
        products_ms=2.0,
        methods={"ar": method("ARPipeline", ar, ar, 256), "sjd": method("SJDPipeline", [0.5, 0.5, 0.6], ar, 120)},
    )


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


def test_report_states_machine_date_and_every_method(tmp_path: Path):
    race().save(tmp_path / "run-ar-sjd.json")
    text = report.measured(tmp_path)
    for part in ("A Processor, 2 cores", "2026-01-31", "3 images of 256 tokens", "AR spends 2.1 times"):
        assert part in text, f"{part!r} is missing in:\n{text}"
    assert "| `ARPipeline` | 1.10 (1.00–1.20) | 4.30 (3.91–4.69) | 256 | 1.00 | 1 |" in text
    assert (
        "| `SJDPipeline` | 0.50 (0.50–0.60) | 1.95 (1.95–2.34) | 120 | 2.14 | 2.00 (2.00–2.20) | 1.50 | 10% |" in text
    )


def test_report_changes_only_what_stands_between_its_lines(tmp_path: Path):
    readme = "above\n<!-- measured: by hand -->\nold\n<!-- /measured -->\nbelow\n"
    race().save(tmp_path / "run-ar.json")
    text = report.render(readme, tmp_path)
    assert text.startswith("above\n<!-- measured: by hand -->\n3 images") and text.endswith(
        "<!-- /measured -->\nbelow\n"
    )
    assert "old" not in text and report.render(text, tmp_path) == text
    with pytest.raises(ValueError, match="lacks the lines"):
        report.render("no lines here", tmp_path)


def test_the_readme_agrees_with_the_committed_records():
    readme = report.README.read_text()
    assert report.render(readme, record.RESULTS) == readme, "run python -m benchmarks.report"


def test_records_are_plain_json(tmp_path: Path):
    path = tmp_path / "run-ar.json"
    race().save(path)
    assert json.loads(path.read_text())["methods"]["ar"]["seconds"]["median"] == 1.1
