"""CASCADE's output laws, all branches walked: where exact, and how far each kind of budget lets them stray."""

from functools import partial
from itertools import islice

import pytest
from conftest import assert_same_law, gap, generate, law, tokens
from rule_laws import exact
from test_cascade import CASES, EAGER, TOLERANCE, begun, close, made, rows, scored, siblings
from test_laws import LOSSLESS, PLAIN, STARTED, TARGET, Case, PointDrafter, TableDrafter

from pipelines.decoding.loop import decode
from pipelines.decoding.rules import ExactRule
from pipelines.decoding.verify import Walk, walk
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import one_hot, total_variation


def run_law(case: Case, **settings) -> dict:
    """Law of whole pictures."""

    def run(chance: Chance) -> tuple[int, ...]:
        session = case.open()
        return tokens(generate(session, case.make(session), made(session, **settings), chance))

    return law(run)


BLOCKS = {
    "chain": lambda session: TableDrafter(session, (1, 1)),
    "siblings": lambda session: TableDrafter(session, (2,)),
    "tree": lambda session: TableDrafter(session, (2, 1)),
    "certain guesses": lambda session: PointDrafter(session, (2, 2)),
}


def block_law(drafter: str, rule) -> dict:
    """Law of what the first checking pass commits, behind a forced token."""

    def run(chance: Chance) -> tuple[int, ...]:
        session = TARGET.open(PLAIN, 1.0, STARTED)
        steps = decode(session, BLOCKS[drafter](session), Walk(rule(session)), chance, STARTED.length)
        return tuple(next(islice(steps, 1, None)).committed.tolist())

    return law(run)


LOSSLESS_BLOCKS = {drafter: block_law(drafter, lambda session: ExactRule()) for drafter in BLOCKS}
EXACT = {"no budget": {"delta": 0.0}, "nobody lends": {"interchange": "off", "converge": "off"}}


@pytest.mark.parametrize("settings", EXACT.values(), ids=EXACT)
@pytest.mark.parametrize("budget", ["test", "step"])
def test_it_is_exact_without_a_budget_and_without_lenders(budget, settings):
    settings = {"budget": budget, **EAGER, **settings}
    for name in ("chain", "tree of one-hot children"):
        assert_same_law(run_law(LOSSLESS[name], **settings), LOSSLESS[name].open().joint())
    for drafter in ("siblings", "tree"):
        assert_same_law(block_law(drafter, partial(made, **settings)), LOSSLESS_BLOCKS[drafter])


@pytest.mark.parametrize("switched", ["interchange", "converge"])
def test_either_kind_of_lender_alone_changes_the_law(switched):
    found = block_law("tree", partial(made, **EAGER, **{switched: "off"}))
    assert gap(found, LOSSLESS_BLOCKS["tree"]) > 0.01


@pytest.mark.parametrize("drafter", ["tree", "certain guesses"])
@pytest.mark.parametrize("budget", ["test", "step"])
def test_gstar_is_the_strict_residual(drafter, budget):
    """No guess is kept less often than by the exact rule, so nothing of p - q f but p - q is left above 0."""
    settings = {"budget": budget, "delta": 0.4, **EAGER}
    strict = block_law(drafter, partial(made, **settings))
    assert_same_law(block_law(drafter, partial(made, residual="gstar", **settings)), strict)
    assert gap(strict, LOSSLESS_BLOCKS[drafter]) > 0.01


def distance(found: dict, expected: dict) -> float:
    return sum(abs(found.get(key, 0.0) - expected.get(key, 0.0)) for key in found.keys() | expected.keys()) / 2


@pytest.mark.parametrize("drafter", BLOCKS)
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_a_budget_a_step_bounds_how_far_the_committed_block_strays(drafter, delta):
    found = block_law(drafter, partial(made, budget="step", delta=delta, **EAGER))
    off = distance(found, LOSSLESS_BLOCKS[drafter])
    assert 1e-3 < off <= delta + 1e-12


def test_a_budget_a_test_does_not():
    found = block_law("tree", partial(made, budget="test", delta=0.05, **EAGER))
    assert distance(found, LOSSLESS_BLOCKS["tree"]) > 0.05


@pytest.mark.parametrize(("budget", "off"), [("test", 1.0), ("step", 0.5)])
def test_disjoint_supports(budget, off):
    """A budget of a half a test lets the output stray as far as there is; a half a step is a half."""
    p, q = rows([0, 0, 0, 0, 0.25, 0.25, 0.25, 0.25]), rows([0.25, 0.25, 0.25, 0.25, 0, 0, 0, 0])
    rule = made(begun(), budget=budget, delta=0.5, interchange="off", tau_parent=0.5)
    moved = []

    def run(chance: Chance) -> int:
        draft = siblings(chance.categorical(q[None]).tolist(), q)
        verdict = walk(rule, draft, scored(p, [[1.0], [1.0]]), chance, 0.5)
        moved.extend(rule.explain()["moved"].tolist())
        return draft.tokens[0] if verdict.path else verdict.token

    found = exact(run, p)
    assert float(total_variation(found, p)) == close(off)
    assert found.tolist() == close((q if budget == "test" else (p + q) / 2).tolist())
    assert set(moved) == {0.5}


def test_worked_law_without_loans():
    given, expect = CASES[-1]["input"], CASES[-1]["expect"]
    p, q = rows(given["p"]), rows(given["q"])
    rule = made(begun(), delta=given["delta"], **EAGER)

    def run(chance: Chance) -> int:
        first = int(chance.categorical(q[None]))
        second = int(chance.categorical((q * (1 - one_hot([first], q)[0]))[None]))
        draft = siblings([first, second], q)
        verdict = walk(rule, draft, scored(p, [[1.0]] * 3), chance, 0.5)
        return draft.tokens[verdict.path[0]] if verdict.path else verdict.token

    assert exact(run, p).tolist() == close(expect["law"], abs=TOLERANCE)
