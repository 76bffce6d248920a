"""CASCADE: who lends how much to whom, what the budget bounds and what it does not, and where nobody lends."""

import json
from itertools import islice
from pathlib import Path

import pytest
import torch
from conftest import GivenDice, TableSession
from rule_laws import dirichlet
from test_laws import PLAIN, TARGET, TableDrafter
from torch import Tensor

from pipelines.decoding.loop import decode
from pipelines.decoding.rules import Node
from pipelines.decoding.verify import Verdict, Walk, walk
from pipelines.models.protocol import Scores
from pipelines.pipeline_cascade import CascadeRule, CascadeSettings, similarities
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp, one_hot, total_variation
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import EMPTY, Draft


CASES = json.loads((Path(__file__).parent / "vectors" / "cascade.json").read_text())["vectors"]
TREES = [case for case in CASES if "parent" in case["input"]]
close = pytest.approx
TOLERANCE = 1e-9
LINE = Layout(1, 4)
EAGER = {"tau_level": -1.0, "tau_parent": -1.0}  # every guess lends, whatever the states


def rows(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def begun(layout: Layout = LINE, committed: int = 1, warp: Warp = PLAIN) -> TableSession:
    """A session that has committed so many tokens."""
    session = TARGET.open(warp, 1.0, layout)
    session.score(EMPTY)
    for _ in range(committed):
        session.commit(EMPTY, [], 0)
    return session


def made(session: TableSession, mean: Tensor | None = None, **settings) -> CascadeRule:
    return CascadeRule(CascadeSettings(**settings), session, mean)


def siblings(found: list[int], q: Tensor) -> Draft:
    """Children of the root, drawn from q without replacement."""
    laws = [q]
    for token in found[:-1]:
        left = laws[-1] * (1 - one_hot([token], q)[0])
        laws.append(left / left.sum())
    return Draft(found, [-1] * len(found), torch.stack(laws))


def scored(p: Tensor, states: list) -> Scores:
    """Scores of one law throughout and of states [1 + N, D]."""
    return Scores(p.expand(len(states), -1), p, rows([states]), None)


def asked(rule: CascadeRule, draft: Draft, scores: Scores, index: int = 0, root_prob: float = 0.0) -> tuple:
    """What the rule is asked first about a node whose earlier siblings were refused without trace."""
    at = Node(draft.depth[index], index, draft, scores, 0.0, root_prob)
    return scores.probs[draft.parents[index] + 1], draft.q[index], draft.tokens[index], at


@pytest.mark.parametrize("case", TREES, ids=lambda case: case["name"])
def test_worked_cases(case):
    given, expect = case["input"], case["expect"]
    p, q_rows, found = rows(given["p_rows"]), rows(given["q_rows"]), given["token"][1:]
    parents, taken, q = [parent - 1 for parent in given["parent"][1:]], {}, []
    for token, parent in zip(found, parents):
        left = q_rows[parent + 1].index_fill(0, torch.tensor(taken.setdefault(parent, []), dtype=torch.long), 0)
        q.append(one_hot([token], left)[0] if given["dynamic"] else left / left.sum())
        taken[parent].append(token)
    draft, scores = Draft(found, parents, torch.stack(q)), Scores(p, p, rows([given["F"]]), None)
    thresholds = {"tau_level": given["tau_pos"], "tau_parent": given["tau_seq"]}
    mean = None if given["mu"] is None else rows(given["mu"])
    rule = made(begun(), mean, delta=given["delta"], budget=given["mode"], scope=given["scope"], **thresholds)
    torch.testing.assert_close(similarities(scores.hidden[0], mean), rows(expect["S"]), atol=1e-9, rtol=0)
    for node, sets in expect["sets"].items():
        at = Node(given["depth"][int(node)], int(node) - 1, draft, scores, 0.0, given["root_conf"])
        assert [lender + 1 for lender in rule.interchangeable(at)] == sets["I"]
        assert rule.converges(at) == bool(sets["C"])
    chance = GivenDice(given["uniforms"])
    verdict = walk(rule, draft, scores, chance, given["root_conf"])
    assert [0, *(node + 1 for node in verdict.path)] == expect["path"]
    assert chance.law.tolist() == close(expect["final_dist"], abs=TOLERANCE) and verdict.token == expect["final_token"]
    assert len(rule.judged) == len(expect["trace"])
    for test, entry in zip(rule.judged, expect["trace"]):
        law, _, x, at = test
        check_test(rule, verdict, entry, law, x, at)
    notes = rule.explain()
    assert notes["moved"] == close([entry["m"] for entry in expect["trace"]])
    assert (notes["judged"] + 1).tolist() == [entry["node"] for entry in expect["trace"]]
    lent = [loan["used"] for entry in expect["trace"] for loan in entry["neighbours"]]
    assert notes["lent"] == close(lent) and notes["similarity"] == close(rows(expect["S"]).numpy(), abs=1e-3)


def check_test(rule: CascadeRule, verdict: Verdict, entry: dict, p: Tensor, x: int, at: Node) -> None:
    node = entry["node"] - 1
    assert (at.index, x, verdict.dice[node]) == (node, entry["token"], entry["r"])
    assert verdict.p[node] == close(entry["p"], abs=TOLERANCE)
    assert verdict.accept_prob[node] == close(entry["a_relaxed"], abs=TOLERANCE)
    assert (node in verdict.path) == entry["accept"]
    loans = rule.loans(p, x, at)
    assert [loan.lender + 1 for loan in loans] == [lender["node"] for lender in entry["neighbours"]]
    for loan, lender in zip(loans, entry["neighbours"]):
        assert (loan.offered, loan.used) == close((lender["offered"], lender["used"]), abs=TOLERANCE)
    law = relaxed_law(rule, p, x, at)
    assert law.tolist() == close(entry["p_R"], abs=TOLERANCE)
    assert float(total_variation(law, p)) == close(entry["tvd"], abs=TOLERANCE)


def relaxed_law(rule: CascadeRule, p: Tensor, x: int, at: Node) -> Tensor:
    """[V] p_R, mass by mass: a node of the level gives up its own token's, the parent takes from all in proportion."""
    law = p.clone()
    for loan in rule.loans(p, x, at):
        if loan.lender == at.draft.parents[at.index]:
            others = 1 - law[x]
            law *= 1 - loan.used / others if others > 0 else 1
            law[x] = 1 - others + loan.used
        else:
            law[at.draft.tokens[loan.lender]] -= loan.used
            law[x] += loan.used
    return law


def random_round(seed: int) -> tuple[Draft, Scores]:
    """Six guesses of two levels, laws of six tokens some of which are filtered, states that are often alike."""
    dice = torch.Generator().manual_seed(seed)
    p, q = dirichlet(seed, 7, 6), dirichlet(1000 + seed, 6, 6)
    p = p.masked_fill(torch.rand(p.shape, generator=dice) < 0.2, 0) + 1e-3 * one_hot([0], p)
    found = [*torch.randperm(6, generator=dice)[:3].tolist(), *torch.randint(6, (3,), generator=dice).tolist()]
    states = torch.randn(1, 7, 2, generator=dice, dtype=torch.float64)
    p = p / p.sum(-1, keepdim=True)
    return Draft(found, [-1, -1, -1, 0, 1, 2], q), Scores(p, p, states, None)


@pytest.mark.parametrize("delta", [0.0, 0.1, 0.5, 1.0])
def test_the_relaxed_target_is_off_by_what_moved_and_never_more_than_the_budget(delta):
    most, kinds = 0.0, set()
    for seed in range(60):
        draft, scores = random_round(seed)
        tau = -1.0 if seed % 2 else 0.3
        rule = made(begun(), delta=delta, tau_level=tau, tau_parent=tau)
        walk(rule, draft, scores, Chance(torch.Generator().manual_seed(seed)), 0.4)
        moved = []
        for p, _, x, at in rule.judged:
            law = relaxed_law(rule, p, x, at)
            loans = rule.loans(p, x, at)
            kinds |= {loan.lender == draft.parents[at.index] for loan in loans if loan.used}
            moved.append(sum(loan.used for loan in loans))
            assert float(law.min()) > -1e-12 and float(law.sum()) == close(1)
            assert float(total_variation(law, p)) == close(moved[-1], abs=1e-12)
            assert moved[-1] <= delta + 1e-12
        assert rule.explain()["moved"] == close(moved, abs=1e-6)
        most = max(most, *moved)
    assert most == close(delta) or delta == 1
    assert kinds == ({True, False} if delta else set()), "one of the two kinds of lenders never lent"


def test_the_last_lender_lends_a_fraction_so_the_chance_follows_the_budget_without_a_jump():
    draft, scores = random_round(4)
    chances = []
    for step in range(101):
        rule = made(begun(), delta=step / 100, **EAGER)
        chances.append(rule.accept(*asked(rule, draft, scores, 1, 0.4)))
    gains = [after - before for before, after in zip(chances, chances[1:])]
    assert chances[0] < chances[-1]
    assert min(gains) >= 0 and max(gains) <= 0.01 / float(draft.q[1, draft.tokens[1]]) + 1e-12


def test_what_a_pass_spends_stays_within_a_budget_a_step():
    spent = []
    for seed in range(60):
        draft, scores = random_round(seed)
        rule = made(begun(), budget="step", delta=0.3, **EAGER)
        walk(rule, draft, scores, Chance(torch.Generator().manual_seed(seed)), 0.4)
        spent.append(float(rule.explain()["infidelity"].sum()))
    assert max(spent) == close(0.3) and min(spent) >= 0


P, Q = rows([0.1, 0.2, 0.3, 0.25, 0.15]), rows([0.5, 0.2, 0.1, 0.1, 0.1])


def test_siblings_only_leaves_cousins_out():
    draft = Draft([0, 1, 2, 3, 4], [-1, -1, 0, 0, 1], Q.expand(5, -1))
    scores = scored(P, [[1.0]] * 6)
    for scope, lenders in {"level": [3, 4], "siblings": [3]}.items():
        rule = made(begun(), scope=scope)
        assert rule.interchangeable(asked(rule, draft, scores, 2)[3]) == lenders


def test_one_node_lends_for_each_token_and_none_for_the_candidates_own():
    draft = Draft([0, 1, 2, 3, 3, 2, 2], [-1, -1, 0, 0, 1, 1, 1], Q.expand(7, -1))
    states = [[1.0, 0.0]] * 4 + [[1.0, 0.2], [1.0, 0.1], [1.0, 0.0], [1.0, 0.0]]
    rule = made(begun(), tau_level=0.5)
    assert rule.interchangeable(asked(rule, draft, scored(P, states), 2)[3]) == [4], "the nearer of two with token 3"
    assert rule.interchangeable(asked(rule, draft, scored(P, states), 3)[3]) == [2], "the first of three as near"


def test_a_filtered_token_lends_nothing():
    p = rows([0.5, 0.0, 0.5, 0.0, 0.0])
    draft = siblings([0, 1], rows([0.8, 0.2, 0, 0, 0]))
    rule = made(begun(), converge="off")
    assert rule.accept(*asked(rule, draft, scored(p, [[1.0]] * 3))) == 0.5 / 0.8
    assert [loan.used for loan in rule.loans(*(asked(rule, draft, scored(p, [[1.0]] * 3))[i] for i in (0, 2, 3)))] == [
        0
    ]


def test_a_state_of_zeros_is_like_no_other():
    draft, scores = siblings([0, 1], Q), scored(P, [[0.0], [0.0], [1.0]])
    rule = made(begun(), tau_level=0.01, tau_parent=0.01)
    assert rule.loans(*(asked(rule, draft, scores, 0, 0.5)[i] for i in (0, 2, 3))) == []
    assert torch.equal(similarities(scores.hidden[0], None), rows([[0, 0, 0], [0, 0, 0], [0, 0, 1]]))


@pytest.mark.parametrize(("committed", "offers"), [(1, True), (2, False), (3, True)])
def test_no_parent_lends_across_the_start_of_a_row(committed, offers):
    """Two squares a row: the third token starts the second row."""
    rule = made(begun(Layout(2, 2), committed), interchange="off", tau_parent=-1.0)
    draft = siblings([0], Q)
    assert rule.accept(*asked(rule, draft, scored(P, [[1.0]] * 2), 0, 0.3)) == close((0.1 + 0.3 * offers) / 0.5)


def test_the_root_lends_what_the_target_gave_it_and_nothing_where_that_is_unknown():
    draft, scores = siblings([0], Q), scored(P, [[1.0]] * 2)
    rule = made(begun(), delta=0.9)
    assert rule.accept(*asked(rule, draft, scores, 0, 0.3)) == close(0.8)
    assert rule.accept(*asked(rule, draft, scores, 0, 0.0)) == close(0.2)


def test_the_first_checking_pass_knows_how_likely_its_root_was():
    chance = Chance(torch.Generator().manual_seed(1))
    session = TARGET.open(PLAIN, 1.0, LINE)
    rule = made(session, tau_parent=-1.0, interchange="off")
    prefill, first = islice(decode(session, TableDrafter(session, (1, 1)), Walk(rule), chance, 4), 2)
    assert prefill.notes == {}, "nothing was judged"
    root = int(prefill.committed[0])
    place = prefill.top_tokens[0].tolist().index(root)
    assert first.notes["parent_offer"][0] == close(float(prefill.top_probs[0, place]))


def test_notes_are_of_the_round_that_was_judged():
    """They are asked for when the session has moved on, over the start of a row too."""
    layout, chance = Layout(4, 1), Chance(torch.Generator().manual_seed(1))
    session = TARGET.open(PLAIN, 1.0, layout)
    steps = list(decode(session, TableDrafter(session, (2, 1)), Walk(made(session, **EAGER)), chance, 4))
    judged = [step for step in steps if step.notes]
    assert judged and all(not step.notes["parent_offer"].any() for step in judged), "a column has starts only"
    for step in judged:
        notes, nodes = step.notes, len(step.tokens)
        assert notes["similarity"].shape == (nodes + 1, nodes + 1) and notes["similarity"].dtype == "float16"
        assert notes["offers"].shape == (len(notes["judged"]), nodes)
        strict = (step.p / step.q).clip(max=1)[notes["judged"]]
        assert notes["infidelity"] == close(step.accept_prob[notes["judged"]] - strict, abs=1e-6)
        borrowed = [float(notes["lent"][notes["borrower"] == index].sum()) for index in range(len(notes["judged"]))]
        assert borrowed == close(notes["moved"].tolist(), abs=1e-6) and not notes["centred"][0]


@pytest.mark.parametrize("budget", ["test", "step"])
def test_temperature_0_leaves_nothing_to_chance(budget):
    """A relaxed target leads where more than half moved; a budget a step below 1 cannot pay for that."""
    p, q = one_hot([0], P)[0], one_hot([1], P)[0]
    draft, scores = Draft([1, 0], [-1, -1], torch.stack([q, p])), scored(p, [[1.0]] * 3)
    kept = {}
    for delta in (0.0, 0.5, 0.6, 1.0):
        rule = made(begun(warp=Warp(temperature=0.0)), budget=budget, delta=delta, converge="off")
        kept[delta] = rule.accept(*asked(rule, draft, scores))
    assert kept == {0.0: 0, 0.5: 0, 0.6: float(budget == "test"), 1.0: 1}


def test_a_guess_that_is_sure_compares_nothing():
    rule = made(begun())
    assert rule.accept(*asked(rule, siblings([2], Q), scored(P, [[1.0]] * 2))) == 1 and rule.compared is None
