"""Growth: chance levels against shuffles, what is read off a run, the same on the page, and the figure."""

import io
import itertools
import json
import re
import zipfile

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

import app
from benchmarks import growth as benchmark
from benchmarks.watched import LAWS, NOTES, WatchedSJD
from pipelines.primitives.trace import Trace, load
from tests import tiny
from tests.rounds import HEADER
from visualize import events, past
from visualize.growth import by_window, growth, longest_watched
from visualize.parcel import parcel


RECORDED = app.ASSETS / "traces" / "sjd.npz"
close = pytest.approx


@pytest.fixture(scope="module")
def run() -> Trace:
    return load(RECORDED)


@pytest.mark.parametrize("steps", past.STEPS)
@pytest.mark.parametrize("probs", [[0.1, 0.4, 0.2, 0.3, 0.7], [0.5, 0.1, 0.5, 0.1, 0.9], [0.2] * 4, [0.3, 0.1]])
def test_the_chance_level_is_the_mean_over_all_orders(probs, steps):
    orders = [past.grew(np.array(order), steps) for order in itertools.permutations(probs)]
    assert past.chance(np.array(probs), steps) == close(np.mean(orders))


def test_growth_ends_at_the_check_and_is_strict():
    rising = np.array([0.1, 0.3, 0.2, 0.4, 0.5])
    assert [past.grew(rising, steps) for steps in (1, 2, 3)] == [True, True, False]
    assert not past.grew(np.array([0.2, 0.2]), 1) and not past.grew(np.array([0.2]), 1)


def test_guesses_of_a_run_have_the_probabilities_that_they_were_judged_by(run):
    """With top-p 0.9 the law that judges is the told one cut off, so what it leaves is at least as likely."""
    guesses = past.checked(run)
    judged = [(step, node) for step in run.steps for node in np.flatnonzero(~np.isnan(step.accept_prob))]
    assert len(guesses) == len(judged) > 200
    for one, (step, node) in zip(guesses, judged):
        assert one.square == step.start + node and one.is_kept == (node in step.path)
        assert step.p[node] == 0 or one.probs[-1] <= step.p[node] * 1.0001
    newest = [(one.probs[-2], step.q[node]) for one, (step, node) in zip(guesses, judged) if len(one.probs) > 1]
    assert all(before <= q * 1.0001 for before, q in newest), "the pass before is not the one that the guess came from"


def test_streaks_tell_what_shares_are_made_of(run):
    guesses = past.checked(run)
    told = np.concatenate([rows for rows in map(past.streaks, run.steps) if rows is not None])
    for steps in past.STEPS:
        for fate in (0, 1):
            rows = told[(told[:, 0] == fate) & (told[:, 2] >= steps)]
            share, _, number = past.shares([one for one in guesses if one.is_kept == fate], steps)
            assert number == len(rows) and share == close(float(np.mean(rows[:, 1] >= steps)))
    assert past.shares([], 1)[2] == 0


def test_the_page_is_told_the_past_in_a_small_text(run):
    text = events.replay([run])
    lines = [line for line in text.split("\n") if re.match(r"M,0,\d+,(past_|streaks)", line)]
    assert {line.split(",")[3] for line in lines} == {"past_tokens", "past_guesses", "past_probs", "streaks"}
    assert sum(map(len, lines)) < 150_000
    assert "past_" not in events.replay([load(app.ASSETS / "traces" / "ar.npz")])


def test_the_figure_shows_the_square_that_waited_longest(run):
    step, offset = longest_watched(run)
    assert len(past.past(step, offset)) == max(
        len(past.past(each, at)) for each in run.steps for at in range(len(each.committed))
    )
    figure = growth(run)
    assert isinstance(figure, Figure)
    left, right = figure.axes
    placed = next(line for line in left.lines if "placed" in str(line.get_label()))
    assert placed.get_ydata() == close(np.log10(past.past(step, offset)[:, 0]), abs=1e-6)
    bars = [bar.get_height() for bar in right.patches]
    kept = [one for one in past.checked(run) if one.is_kept]
    assert bars[:3] == close([past.shares(kept, steps)[0] for steps in past.STEPS])


def test_a_run_without_a_past_is_refused():
    with pytest.raises(ValueError, match="keeps no past"):
        growth(Trace(HEADER, load(RECORDED).layout))


@pytest.fixture(scope="module")
def watched() -> Trace:
    pipe = WatchedSJD(**tiny.components(grid_size=8))
    pipe.set_progress_bar_config(disable=True)
    return pipe("a panda on snow", output_type="latent", window=6).traces[0]


def test_other_laws_are_compared_on_the_same_guesses(watched):
    """The newest law is what SJD drew from: its overlap with the target's is the chance to be kept, on average."""
    picture = benchmark.picture(watched)
    assert picture.overlaps.shape == (len(picture.overlaps), len(NOTES)) and len(picture.overlaps) > 30
    assert ((picture.overlaps >= 0) & (picture.overlaps <= 1.0001)).all()
    chances = [prob for step in watched.steps for prob in step.accept_prob if prob == prob]
    seen = [prob for one, prob in zip(picture.guesses, chances) if len(one.probs) > 1]
    newest = picture.overlaps[:, LAWS.index("newest")]
    assert len(seen) == len(newest)
    spread = np.std(np.array(seen) - newest) / len(seen) ** 0.5
    assert np.mean(seen) == close(newest.mean(), abs=4 * spread)


def test_a_ratio_resamples_pictures():
    found = benchmark.ratio([(1.0, 2), (3.0, 4), (0.0, 0)])
    assert (found.value, found.n) == (close(4 / 6), 6) and found.low == close(0.5) and found.high == close(0.75)


def test_the_benchmark_writes_a_record_and_a_figure(watched, tmp_path, monkeypatch):
    pictures = [benchmark.picture(watched)] * 2
    one = benchmark.figured(pictures, np.linspace(0, 1, 64))
    methods = {"sjd, window 6": {"method": "sjd", "window": 6} | one}
    assert one["growth"]["kept"]["all"][1]["grew"].n == 2 * sum(
        guess.is_kept and len(guess.probs) > 1 for guess in pictures[0].guesses
    )
    json.dumps(one, default=vars)
    assert "window 6" in benchmark.report(methods) and len(by_window(methods, LAWS).axes) == 2


def test_a_run_that_is_taken_along_brings_its_figure(run):
    packed = zipfile.ZipFile(io.BytesIO(parcel([run], [Image.new("RGB", (128, 128))], ["pass"])))
    assert np.array(Image.open(packed.open("SJD growth.png"))).std() > 0
