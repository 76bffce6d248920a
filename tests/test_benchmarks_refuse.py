"""What a benchmark cannot work with is refused before any model is read."""

import sys

import pytest

from benchmarks import certainty, growth, overhead, pareto, shape, similarity
from pipelines import ARPipeline
from tests.test_benchmarks import assert_refused


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        (shape, ["--threads", "0"], "`--threads` must be at least 1, got 0"),
        (overhead, ["--threads", "-1"], "`--threads` must be at least 1, got -1"),
        (pareto, ["--threads", "0"], "`--threads` must be at least 1, got 0"),
        (pareto, ["--timed", "0"], "`--timed` must be at least 1, got 0"),
        (growth, ["--windows", "16", "1"], "`window` must be a whole number from 2 to 64, got 1"),
        (growth, ["--seed", "-3"], "`--seed` must be at least 0, got -3"),
        (growth, ["--keep", "/dev/null/x", "--out", "/dev/null"], "`--keep` must be a file that can be written"),
        (certainty, ["--images", "0"], "`--images` must be at least 1, got 0"),
        (similarity, ["--images", "-1"], "`--images` must be at least 1, got -1"),
    ],
)
def test_no_benchmark_works_before_it_refuses(monkeypatch, capsys, module, arguments: list[str], message: str):
    monkeypatch.setattr(ARPipeline, "from_pretrained", None)
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
    assert_refused(module.main, message, capsys)
