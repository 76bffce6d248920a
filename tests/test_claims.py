"""What the README says of prices and of the papers' claims comes from records, or says that there is none."""

import json
from pathlib import Path

from benchmarks import report
from benchmarks.claims import CLAIMS, claims


def test_report_prints_what_faster_methods_cost(tmp_path: Path):
    share, change = {"share": 0.8, "low": 0.7, "high": 0.9, "n": 9}, {"mean": -0.015, "low": -0.03, "high": 0.001}
    counts = {"nfe": 90.4, "accepted_length": 2.85, "infidelity": 0.05, "log_likelihood": -1.23456, "frechet": 0.3}
    one = {
        "pipeline": "CoolSDPipeline",
        "settings": {"delta": 2},
        "fidelity": share,
        "fidelity_change": change,
        **counts,
    }
    found = {"images": 9, "model": "emoji-scenes", "date": "2026-01-31", "again": one, "methods": {"cool": one}}
    (tmp_path / "fidelity.json").write_text(json.dumps(found))
    text = report.measured(tmp_path)
    assert "| `CoolSDPipeline` delta=2 | 90 | 2.85 | – | 0.050 | 80.0% | -1.5 (-3.0 to +0.1) | -1.235 | 0.30 |" in text
    assert "9 pictures a method" in text and "`ARPipeline` with other seeds" in text
    raced = {"speedup": {"median": 1.1, "low": 1.0, "high": 1.25}}
    (tmp_path / "pareto.json").write_text(json.dumps(found | {"methods": {"cool": one | raced}}))
    (tmp_path / "pareto.png").write_bytes(b"")
    text = report.measured(tmp_path)
    assert "1.10 (1.00–1.25)" in text and "(benchmarks/results/pareto.png)" in text and "sheet" not in text


def test_claims_say_what_is_not_measured_yet(tmp_path: Path):
    assert claims(tmp_path).count("Here: not measured.") == len(CLAIMS) - 1, "all but what tests prove"
    assert "not measured" not in claims().split("COOL-SD is faster")[0]
