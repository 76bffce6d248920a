"""CASCADE's tests under other terms: those of the run again, the rule itself at others, and the page's twin."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import app
from pipelines import CascadePipeline
from pipelines.decoding.rules import Node
from pipelines.pipeline_cascade import CascadeRule, CascadeSettings
from pipelines.primitives.trace import Step, Trace
from pipelines.primitives.tree import Draft
from tests.tiny import refusal
from visualize import events
from visualize.cascade_whatif import PARENT, Round, first_change, judge_again, pairs, told


PURE = ("run.js", "cascade.js")  # files of the page that need nothing of it
TOLD = """([text, own, terms]) => {
    const run = text.split("\\n").filter(Boolean).reduce(takeLine, null);
    const rounds = run.lanes[0].rounds.filter(isCompared);
    return rounds.map((round) => [
        cascadeTests(round, terms).map(({ guess, strict, chance, loans }) => [guess.node, strict, chance,
            loans.map(({ lender, offered, used }) => [lender, offered, used])]),
        cascadeChange(round, own, terms),
    ]);
}"""
TERMS = [
    {},
    {"delta": 0.0},
    {"delta": 1.0, "tau_level": 0.5, "tau_parent": 0.2},
    {"tau_level": -1.0, "tau_parent": -1.0, "delta": 0.9, "scope": "siblings"},
    {"delta": 0.15, "budget": "step", "tau_parent": 0.4},
    {"interchange": "off", "tau_parent": 0.1},
    {"converge": "off", "tau_level": 0.8},
]


def record(**settings) -> Trace:
    pipe = CascadePipeline.from_pretrained(app.EMBEDDED)
    pipe.set_progress_bar_config(disable=True)
    dice = torch.Generator().manual_seed(7)
    return pipe("a penguin on snow", generator=dice, output_type="latent", **settings).traces[0]


@pytest.fixture(scope="module")
def drawn() -> Trace:
    return record(tree=15)


@pytest.fixture(scope="module")
def grown() -> Trace:
    """Guesses that are certainties, one budget a pass, and refusals that hand on what the rule left over."""
    return record(draft="dynamic", tree_nodes=12, budget="step", residual="gstar", delta=0.8, tau_level=0.7)


def compared(trace: Trace) -> list[Step]:
    return [step for step in trace.steps if "similarity" in step.notes]


def test_the_terms_of_the_run_give_its_own_chances_and_loans(drawn: Trace, grown: Trace):
    for trace in (drawn, grown):
        own, seen = trace.header.settings, 0
        for step in compared(trace):
            again, notes = judge_again(told(step), own), step.notes
            assert [test.node for test in again] == notes["judged"].tolist()
            assert [test.chance for test in again] == pytest.approx(step.accept_prob[notes["judged"]], abs=1e-6)
            assert [test.moved for test in again] == pytest.approx(notes["moved"], abs=1e-6)
            loans = [loan for test in again for loan in test.loans]
            lenders = [step.parents[test.node] if lender == PARENT else lender for test in again
                       for lender, *_ in test.loans]  # fmt: skip
            assert lenders == notes["lender"].tolist()
            assert [used for *_, used in loans] == pytest.approx(notes["lent"], abs=1e-6)
            assert first_change(told(step), own, own) is None
            seen += len(loans)
        assert seen > 50, "nobody lent"


class Recorded(CascadeRule):
    """The rule over what a trace kept: only what the parent may lend is read, for its law is gone."""

    def parent_offer(self, at: Node) -> float:
        return self.offer


def by_the_rule(step: Step, terms: dict) -> list[float]:
    """Chances of the tests of a round, by the pipeline's own rule."""
    names = CascadeSettings.__dataclass_fields__
    session = SimpleNamespace(warp=SimpleNamespace(temperature=terms["temperature"]))
    rule = Recorded(CascadeSettings(**{name: terms[name] for name in names}), session, None)
    size, scores = int(step.tokens.max()) + 1, object()
    rule.compared = scores, step.notes["similarity"].tolist()
    draft = Draft(step.tokens.tolist(), step.parents.tolist(), torch.zeros(len(step.tokens), size))
    chances, lent = [], 0.0
    for index, node in enumerate(step.notes["judged"].tolist()):
        p, q, x = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64), draft.tokens[node]
        p[draft.tokens] = torch.from_numpy(step.notes["offers"][index]).double()
        p[x], q[x] = float(step.p[node]), float(step.q[node])
        rule.offer = float(step.notes["parent_offer"][index])
        chances.append(rule.chance(p, q, x, Node(draft.depth[node], node, draft, scores, lent, 0.0)))
        lent += max(0.0, chances[-1] - min(1.0, float(p[x]) / float(q[x])))
    return chances


@pytest.mark.parametrize("moved", TERMS)
def test_other_terms_give_what_the_rule_would(moved: dict, drawn: Trace, grown: Trace):
    for trace in (drawn, grown):
        terms = trace.header.settings | moved
        for step in compared(trace):
            again = [test.chance for test in judge_again(told(step), terms)]
            assert again == pytest.approx(by_the_rule(step, terms), abs=1e-6)


def test_without_a_budget_the_first_change_is_the_first_guess_that_borrowing_saved(drawn: Trace):
    own, changed = drawn.header.settings, 0
    for step in compared(drawn):
        judged = step.notes["judged"]
        saved = (step.dice[judged] >= step.p[judged] / step.q[judged]) & (step.dice[judged] < step.accept_prob[judged])
        first = int(saved.argmax()) if saved.any() else None
        assert first_change(told(step), own, own | {"delta": 0.0}) == first
        changed += first is not None
    assert changed == sum("l" in events.fates(step) for step in compared(drawn)) > 0


def by_hand(dice: tuple[float, ...]) -> Round:
    """Two children of the root, alike; p 0.1 and 0.3 of q 0.5. The first may borrow all of the second's 0.3."""
    half, p = np.array([0.5, 0.5]), np.array([0.1, 0.3])
    offers = np.array([[0.1, 0.3], [0.1, 0.3]])
    cosines = np.array([0.2, 0.4, 0.9])
    return Round(
        np.array([5, 6]), np.array([-1, -1]), p, half, np.array(dice), np.arange(2), offers, np.full(2, 0.4), cosines
    )


def test_the_closed_forms_of_two_alike_children():
    own = {"tau_level": 0.9, "tau_parent": 0.3, "delta": 0.5, "budget": "test", "scope": "level", "temperature": 1.0}
    own |= {"interchange": "on", "converge": "on", "residual": "strict"}
    of = by_hand((0.9, 0.9))
    assert pairs(of.parents) == [(0, -1), (1, -1), (0, 1)]
    first, second = judge_again(of, own)
    assert (first.strict, first.chance) == pytest.approx((0.2, 0.8)) and first.loans == [(1, 0.3, 0.3)]
    # The second borrows the first's 0.1, then its parent's 0.4; in all 0.5 are allowed.
    assert second.loans == [(0, 0.1, 0.1), (PARENT, 0.4, 0.4)] and second.chance == 1
    step = judge_again(of, own | {"budget": "step"})
    assert [test.chance for test in step] == pytest.approx([0.7, 0.6]), "0.5 in all, and all of it is gone at once"
    assert [test.chance for test in judge_again(of, own | {"temperature": 0.0})] == [1.0, 1.0]


def test_past_a_refusal_that_hands_on_another_law_nothing_is_told():
    own = {"tau_level": 0.9, "tau_parent": 0.9, "delta": 0.5, "budget": "test", "scope": "level", "temperature": 1.0}
    own |= {"interchange": "on", "converge": "on", "residual": "strict"}
    looser = own | {"tau_parent": 0.3}
    of = by_hand((0.9, 0.9))  # the second is kept under the looser terms, the first never
    assert first_change(of, own, looser) == 1
    tighter = own | {"delta": 0.05}
    of = by_hand((0.9, 0.75))
    assert [test.chance for test in judge_again(of, own)] == pytest.approx([0.8, 0.8])
    assert first_change(of, own, tighter) == 1
    gstar = own | {"residual": "gstar"}
    assert first_change(of, gstar, gstar | {"delta": 0.05}) is None, "the first was refused with another chance"


def told_by(text: str) -> list[Round]:
    """Rounds of the first lane as an event text has them."""

    def numbers(cells: list[str]) -> np.ndarray:
        return np.array([float(cell or "nan") for cell in cells])

    found, lines = [], [line.split(",") for line in text.splitlines()]
    for number in [line[2] for line in lines if line[0] == "R"]:
        here = [line for line in lines if line[0] in "MN" and line[2] == number]
        notes = {line[3]: numbers(line[5:]) for line in here if line[0] == "M"}
        nodes = np.array([numbers(line[4:]) for line in here if line[0] == "N"])
        if "alike" not in notes:
            continue
        (parents, tokens), (p, q, _, dice) = nodes[:, :2].astype(int).T, nodes[:, 2:].T
        judged = notes["judged"].astype(int)
        offers = notes["offers"].reshape(len(judged), -1)
        found.append(Round(tokens, parents, p, q, dice, judged, offers, notes["parent_offer"], notes["alike"]))
    return found


def test_the_page_says_the_same(browser, drawn: Trace, grown: Trace):
    page = browser.new_page()
    page.add_script_tag(content="\n".join((app.ASSETS / name).read_text() for name in PURE))
    for trace, moved in itertools.product((drawn, grown), TERMS):
        own = trace.header.settings
        text, terms = events.replay([trace]), own | moved
        there = page.evaluate(TOLD, [text, own, terms])
        here = told_by(text)
        assert len(here) == len(there) == len(compared(trace))
        for of, (found, change) in zip(here, there):
            again = judge_again(of, terms)
            assert [node for node, *_ in found] == [test.node for test in again]
            for (_, strict, chance, loans), test in zip(found, again):
                assert (strict, chance) == pytest.approx((test.strict, test.chance), abs=1e-6)
                assert [tuple(loan) for loan in loans] == [pytest.approx(loan, abs=1e-6) for loan in test.loans]
            first = first_change(of, own, terms)
            assert change == (-1 if first is None else first)
    page.close()


def test_the_text_of_a_run_stays_small(drawn: Trace):
    assert len(events.replay([drawn])) < 150_000


def test_a_round_without_tests_is_refused(drawn: Trace):
    assert refusal(told, drawn.steps[0]).startswith("`step` must be a round in which CASCADE judged a guess")
