"""What a run would have done under another rule: closed forms, recorded runs, and the page's twin in Chromium."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import torch

import app
import pipelines
from pipelines.pipeline_cool_sd import omegas
from pipelines.primitives.trace import Step, Trace, load
from visualize import events
from visualize.whatif import Borrowing, Rule, Scaled, expected_kept, what_if


SEED = 7
PROMPT = "a penguin on snow"
PURE = ("run.js", "omega.js", "rules.js")  # files of the page that know nothing of it
TOLD = """([text, rule, own]) => {
    const run = text.split("\\n").filter(Boolean).reduce(takeLine, null);
    const { changed, ...told } = suppose(run.lanes[0], rule, own);
    return { ...told, changed: changed.map(({ round, guess }) => [round.number, guess.node]) };
}"""


def record(method: str, **settings) -> Trace:
    pipe = getattr(pipelines, method).from_pretrained(app.EMBEDDED)
    return pipe(PROMPT, generator=torch.Generator().manual_seed(SEED), **settings).traces[0]


@pytest.fixture(scope="module")
def sjd() -> Trace:
    return load(app.ASSETS / "traces" / "sjd.npz")


@pytest.fixture(scope="module")
def cool() -> Trace:
    return record("CoolSDPipeline", draft="static", delta=1.5)


@pytest.fixture(scope="module")
def lantern() -> Trace:
    return record("LanternPipeline", delta=0.1, residual="gstar")


def scaled(depth: int, delta: float, nu: float = 0.0, clamp_min: float | None = None, shape: str = "exp") -> Scaled:
    return Scaled(omegas(depth, delta, nu, None, clamp_min, shape))


def told(trace: Trace) -> Trace:
    """With numbers as an event text has them."""

    def rounded(values: np.ndarray, count: int) -> np.ndarray:
        return np.array([float(f"{value:.{count}g}") for value in values.flat]).reshape(values.shape)

    def read(step: Step) -> Step:
        notes = {name: rounded(step.notes[name], 3) for name in ("masses",) if name in step.notes}
        columns = {name: rounded(getattr(step, name), 4) for name in ("p", "q", "dice")}
        return dataclasses.replace(step, notes=notes, **columns)

    return dataclasses.replace(trace, steps=[read(step) for step in trace.steps])


def test_expected_guesses_of_a_chain_and_of_a_tree():
    rng = np.random.default_rng(0)
    chance = rng.random(4)
    outcomes = itertools.product([0, 1], repeat=4)
    law = {bits: np.prod([a if bit else 1 - a for a, bit in zip(chance, bits)]) for bits in outcomes}
    expected = sum(weight * (bits + (0,)).index(0) for bits, weight in law.items())
    judged = np.array([True, False, False, False])
    assert expected_kept(chance, np.arange(1, 5), judged) == pytest.approx(expected, rel=1e-12)
    # Two siblings, then one child that was tried; the second sibling's own child never was.
    depth, tried = np.array([1, 1, 2, 2]), np.array([True, True, True, False])
    first = 1 - (1 - chance[0]) * (1 - chance[1])
    assert expected_kept(chance, depth, tried) == pytest.approx(first + first * chance[2], rel=1e-12)


def test_the_rule_of_the_run_changes_nothing(sjd: Trace, cool: Trace, lantern: Trace):
    exact = scaled(16, 1.0)
    same = what_if(sjd, exact, exact)
    assert (same.infidelity, same.changed, same.open) == (0, [], 0)
    assert same.length == pytest.approx(sjd.accepted_length, abs=0.3), "expected and measured are strangers"
    for trace, rule in ((cool, scaled(5, 1.5, 0.7)), (lantern, Borrowing(64, delta=0.1))):
        outcome = what_if(trace, rule, rule)
        lost = sum(step.notes["infidelity"].sum() for step in trace.steps) / len(trace.tokens)
        assert outcome.changed == []
        assert outcome.infidelity == pytest.approx(lost, abs=2e-3), "not what the run itself noted"
        recorded = np.concatenate([step.accept_prob for step in trace.steps if len(step.tokens)])
        again = np.concatenate([rule.chance(step, depths(step)) for step in trace.steps if len(step.tokens)])
        off = np.abs(recorded - again)[~np.isnan(recorded)]
        assert np.quantile(off, 0.9) < 1e-3, "chances are not those of the run"


def depths(step: Step) -> np.ndarray:
    return np.array([1 + sum(1 for _ in ancestors(step, node)) for node in range(len(step.tokens))])


def ancestors(step: Step, node: int):
    while (node := int(step.parents[node])) >= 0:
        yield node


def test_masses_are_what_p_gives_the_nearest_codes(lantern: Trace):
    """A chance is what the masses give it, wherever the budget ends within the codes that were kept."""
    rule, seen = Borrowing(64, delta=0.1), 0
    for step in lantern.steps:
        if len(step.tokens):
            assert step.notes["masses"].shape == (len(step.tokens), 32)
            judged = ~np.isnan(step.dice) & ~rule.open(step)
            assert rule.chance(step, depths(step))[judged] == pytest.approx(step.accept_prob[judged], abs=2e-3)
            seen += int(judged.sum())
    assert seen > 50


def test_a_looser_rule_keeps_more_and_costs_more(sjd: Trace):
    exact = scaled(16, 1.0)
    outcomes = [what_if(sjd, scaled(16, delta), exact) for delta in (1.0, 1.5, 2.5, 5.0)]
    for before, after in itertools.pairwise(outcomes):
        assert after.length > before.length and after.infidelity > before.infidelity
        assert set(before.changed) < set(after.changed)
    strict = what_if(sjd, scaled(16, 0.5), exact)
    assert strict.length < outcomes[0].length and strict.infidelity == 0 and strict.changed


def test_siblings_after_a_moved_law_are_not_told_of(cool: Trace):
    """Below ω = 1 a refusal leaves another law: then only the first sibling of a round may be said to change."""
    own = scaled(5, 1.5, 0.7, clamp_min=1.0)
    strict = Scaled([0.3] * 5)
    steps = {step.index: step for step in cool.steps}
    for index, node in what_if(cool, strict, own).changed:
        step = steps[index]
        before = [other for other in np.flatnonzero(~np.isnan(step.dice)) if other < node]
        assert all(step.parents[other] != step.parents[node] for other in before)


def test_a_trace_without_masses_is_refused(sjd: Trace):
    rule = Borrowing(64, delta=0.1)
    with pytest.raises(ValueError, match="masses"):
        what_if(sjd, rule, rule)


def settings(depth: int) -> list[Rule]:
    knobs = [(1.0, 0.0), (2.0, 0.0), (1.1, 0.7), (5.0, 2.0, 1.0), (0.5, 0.0, None, "linear")]
    return [scaled(depth, *values) for values in knobs]


BORROWED = [
    *(Borrowing(64, delta=delta) for delta in (0.0, 0.05, 0.3)),
    Borrowing(16, delta=1.0),
    Borrowing(64, lam=3.0),
]


def test_the_page_says_the_same(browser, sjd: Trace, cool: Trace, lantern: Trace):
    """3 runs x 5 settings. The text rounds p and q, so both work with what it says."""
    page = browser.new_page()
    page.add_script_tag(content="\n".join((app.ASSETS / name).read_text() for name in PURE))
    cases = [(sjd, settings(16), scaled(16, 1.0)), (cool, settings(5), scaled(5, 1.5, 0.7))]
    for trace, rules, own in [*cases, (lantern, BORROWED, Borrowing(64, delta=0.1))]:
        text, seen = events.replay([trace]), told(trace)
        for rule in rules:
            there = page.evaluate(TOLD, [text, dataclasses.asdict(rule), dataclasses.asdict(own)])
            here = dataclasses.asdict(what_if(seen, rule, own))
            assert there["length"] == pytest.approx(here["length"], rel=1e-6)
            assert there["infidelity"] == pytest.approx(here["infidelity"], rel=1e-6, abs=1e-9)
            assert [tuple(pair) for pair in there["changed"]] == here["changed"]
            assert (there["rounds"], there["open"]) == (here["rounds"], here["open"])
    page.close()


def test_the_page_knows_the_schedule(browser):
    page = browser.new_page()
    page.add_script_tag(content=(app.ASSETS / "omega.js").read_text())
    cases = [
        (1.1, 0.7, None, None, "exp"),
        (2, 0, None, 1, "exp"),
        (5, 2, -1.5, None, "exp"),
        (0.5, 0.7, None, 0.4, "linear"),
    ]
    for depth, case in itertools.product((1, 5, 16), cases):
        knobs = dict(zip(("delta", "nu", "mu", "clamp_min", "shape"), case))
        there = page.evaluate(f"omegas({json.dumps(knobs)}, {depth})")
        assert there == pytest.approx(omegas(depth, *case), rel=1e-12)
    page.close()
