"""The loop, the walk and the race: what is counted, what a rule is told, when the clock runs."""

import math
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from conftest import GivenDice, Table, TableSession, generate, laws_only, tokens

from pipelines import ARPipeline, SJDPipeline
from pipelines.base import ARImagePipeline
from pipelines.decoding.drafters import Drafter, NoDraft
from pipelines.decoding.jacobi_drafter import AsPoints, JacobiDrafter
from pipelines.decoding.loop import decode
from pipelines.decoding.race import race
from pipelines.decoding.rules import ExactRule, Node
from pipelines.decoding.verify import Walk, walk
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Step
from pipelines.primitives.tree import EMPTY, Draft, chain
from tests.tiny import components


TARGET = Table(seed=5, vocabulary=12, length=4)
SQUARE = Layout(2, 2)
PLAIN = Warp()


def chance(seed: int = 0) -> Chance:
    return Chance(torch.Generator().manual_seed(seed))


def session(layout: Layout = SQUARE, warp: Warp = PLAIN) -> TableSession:
    return TARGET.open(warp, 1.0, layout)


def sjd(window: int = 3) -> JacobiDrafter:
    return JacobiDrafter(SQUARE, window, "uniform")


def test_autoregression_is_one_forward_a_token():
    steps = generate(session(), NoDraft(), ExactRule(), chance())
    assert [step.index for step in steps] == [step.start for step in steps] == [0, 1, 2, 3]
    assert all(len(step.tokens) == 0 and len(step.committed) == 1 for step in steps)


@pytest.mark.parametrize("make", [NoDraft, sjd, lambda: AsPoints(sjd())])
def test_a_generator_decides_the_tokens(make):
    runs = [tokens(generate(session(), make(), ExactRule(), chance(seed))) for seed in (0, 0, 1, 2, 3)]
    assert runs[0] == runs[1]
    assert len(set(runs)) > 1
    assert all(len(run) == SQUARE.length for run in runs)


def test_a_step_tells_what_happened():
    target = session()
    position = 0
    for step in generate(target, sjd(4), ExactRule(), chance(1)):
        assert step.start == position
        count = len(step.tokens)
        assert step.path.tolist() == list(range(len(step.committed) - 1)), "a chain is kept from its start"
        judged = ~np.isnan(step.dice)
        assert judged.tolist() == [node <= len(step.path) for node in range(count)]
        kept = step.dice[judged] < step.accept_prob[judged]
        assert kept.sum() == len(step.path)
        context = target.committed[:position]
        for row in range(count + 1):
            law = target.laws((*context, *step.tokens[:row].tolist()))[0]
            assert step.top_tokens[row].tolist() == law.topk(8).indices.tolist()
            assert step.top_probs[row] == pytest.approx(law.topk(8).values, abs=1e-6)
            assert step.entropy[row] == pytest.approx(float(-(law * law.log()).sum()), abs=1e-5)
            if row < count:
                assert step.p[row] == pytest.approx(float(law[step.tokens[row]]), abs=1e-6)
        position += len(step.committed)
    assert position == SQUARE.length


def test_the_loop_never_passes_the_end():
    for seed in range(20):
        steps = generate(session(), sjd(64), ExactRule(), chance(seed))
        assert sum(len(step.committed) for step in steps) == SQUARE.length
        assert all(step.start + len(step.tokens) < SQUARE.length for step in steps)


class Overshooting(NoDraft):
    def propose(self, committed: list[int], room: int, chance: Chance) -> Draft:
        return chain([0] * (room + 1), torch.full((room + 1, TARGET.vocabulary), 1 / TARGET.vocabulary))


def test_a_draft_beyond_the_end_is_a_bug():
    with pytest.raises(AssertionError, match="overshoots"):
        generate(session(), Overshooting(), ExactRule(), chance())


def test_forced_positions_hold_their_token():
    layout = Layout(1, 3, {1: 7})
    for seed in range(20):
        run = tokens(generate(session(layout), JacobiDrafter(layout, 3, "sample_left"), ExactRule(), chance(seed)))
        assert run[1] == 7


@pytest.mark.parametrize("start", ["uniform", "copy_left", "sample_left"])
def test_greedy_jacobi_is_greedy_autoregression(start):
    greedy = Warp(temperature=0)
    expected = tokens(generate(session(warp=greedy), NoDraft(), ExactRule(), chance()))
    for seed in range(10):
        for drafter in (JacobiDrafter(SQUARE, 3, start), AsPoints(JacobiDrafter(SQUARE, 3, start))):
            assert tokens(generate(session(warp=greedy), drafter, ExactRule(), chance(seed))) == expected


def test_jacobi_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="`window` must be at least 2, got 1"):
        JacobiDrafter(SQUARE, 1, "uniform")
    with pytest.raises(ValueError, match="`start` must be one of uniform, copy_left, sample_left, got 'copy_up'"):
        JacobiDrafter(SQUARE, 4, "copy_up")


class Doubled(ExactRule):
    """Accepts twice as readily, and keeps what it was told."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def accept(self, p, q, x, at):
        self.nodes.append(at)
        return min(1.0, 2 * super().accept(p, q, x, at))


def test_a_rule_learns_depth_and_what_was_lent():
    p = torch.tensor([[0.1, 0.9], [0.2, 0.8], [0.5, 0.5], [0.5, 0.5]], dtype=torch.float64)
    q = torch.tensor([[0.5, 0.5], [0.6, 0.4], [0.0, 1.0]], dtype=torch.float64)
    rule = Doubled()
    draft = Draft([0, 0, 1], [-1, 0, 0], q)
    verdict = walk(rule, draft, laws_only(p), GivenDice([0.39, 0.7, 0.99, 0.2]), 0.25)
    assert [(node.depth, node.index, node.root_prob) for node in rule.nodes] == [
        (1, 0, 0.25),
        (2, 1, 0.25),
        (2, 2, 0.25),
    ]
    # 0.1 / 0.5 doubled lends 0.2; 0.2 / 0.6 doubled lends 1/3.
    assert [node.lent for node in rule.nodes] == pytest.approx([0.0, 0.2, 0.2 + 1 / 3])
    assert verdict.path == [0, 2]
    assert verdict.p[1:] == pytest.approx([0.2, 1.0]), "the second sibling is judged by the residual"


def test_a_walk_remembers_how_likely_the_last_token_was():
    p = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]], dtype=torch.float64)
    verifier = Walk(Doubled())
    assert verifier.root_prob == 0.0
    verifier(chain([1], torch.eye(3, dtype=torch.float64)[1:2]), laws_only(p), GivenDice([0.99, 0.0]))
    assert verifier.root_prob == 0.2, "taken before the residual"
    verifier(chain([1], torch.eye(3, dtype=torch.float64)[1:2]), laws_only(p), GivenDice([0.0, 0.65]))
    assert verifier.root_prob == pytest.approx(0.1)
    verifier(EMPTY, laws_only(p[:1]), GivenDice([0.9]))
    assert verifier.rule.nodes[1].root_prob == 0.2


def test_a_token_without_mass_in_its_own_law_is_a_bug():
    with pytest.raises(AssertionError, match="cannot have been drawn"):
        walk(ExactRule(), chain([1], torch.eye(2)[:1]), laws_only(torch.full((2, 2), 0.5)), GivenDice([0.5]), 0.0)


class Telling(Drafter):
    """Slow to explain: that must not be on the clock."""

    def __init__(self) -> None:
        self.seen = 0

    def propose(self, committed: list[int], room: int, chance: Chance) -> Draft:
        return EMPTY

    def observe(self, draft, scores, verdict, chance):
        self.seen += 1

    def explain(self) -> dict[str, np.ndarray]:
        until = math.inf
        for _ in range(100_000):
            until = math.sqrt(until)
        return {"seen": np.array([self.seen])}


class TellingRule(ExactRule):
    def explain(self) -> dict[str, np.ndarray]:
        return {"rule": np.array([1.0])}


def test_drafter_and_rule_explain_after_the_clock_has_stopped():
    steps = generate(session(), Telling(), TellingRule(), chance())
    assert [step.notes["seen"].tolist() for step in steps] == [[1], [2], [3], [4]]
    assert all(step.notes["rule"].tolist() == [1.0] for step in steps)
    assert generate(session(), NoDraft(), ExactRule(), chance())[0].notes == {}
    # The explanation takes milliseconds, a round on the table takes far less.
    assert min(step.seconds for step in steps) < 0.002


def test_the_consumer_keeps_its_gradients():
    run = decode(session(), NoDraft(), Walk(ExactRule()), chance(), 4)
    next(run)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("method", [ARPipeline, SJDPipeline])
def test_an_interrupt_acts_within_one_forward(method: type[ARImagePipeline]):
    pipe, forwards = method(**components()), []

    def slow(*_) -> None:
        time.sleep(0.02)
        forwards.append(time.monotonic())

    pipe.transformer.register_forward_pre_hook(slow)
    stream = pipe.stream("a panda on snow", generator=torch.Generator().manual_seed(0))
    drawing = threading.Thread(target=list, args=(stream,))
    drawing.start()
    while len(forwards) < 4:
        time.sleep(0.001)
    asked = time.monotonic()
    stream.interrupt()
    drawing.join()
    assert time.monotonic() - asked < 0.3
    assert sum(begun > asked for begun in forwards) <= 1, "another pass began after the one that was running"
    assert stream.trace.steps and not stream.trace.complete, "what is drawn stays"


def timed(seconds: list[float], closed: list[str], name: str) -> Iterator[Step]:
    steps = generate(session(), NoDraft(), ExactRule(), chance())
    try:
        for step, spent in zip(steps, seconds):
            yield Step(**{**vars(step), "draft_seconds": spent, "target_seconds": 0.0, "rest_seconds": 0.0})
    finally:
        closed.append(name)


def test_a_race_advances_the_run_that_is_behind():
    closed: list[str] = []
    runs = {"slow": timed([3.0, 3.0], closed, "slow"), "fast": timed([1.0, 1.0, 1.0, 1.0], closed, "fast")}
    assert [name for name, _ in race(runs)] == ["slow", "fast", "fast", "fast", "slow", "fast"]


def test_a_run_may_keep_its_turn_for_a_while():
    closed: list[str] = []
    runs = {"slow": timed([2.0, 2.0], closed, "slow"), "fast": timed([1.0] * 4, closed, "fast")}
    assert [name for name, _ in race(runs, 2.5)] == ["slow", "slow", *["fast"] * 4]
    runs = {"one": timed([1.0] * 4, closed, "one"), "other": timed([1.0] * 4, closed, "other")}
    names = [name for name, _ in race(runs, 1.0)]
    assert names == ["one", "other", "other", "one", "one", "other", "other", "one"]


def test_closing_a_race_closes_its_runs():
    closed: list[str] = []
    running = race({"a": timed([1.0] * 4, closed, "a"), "b": timed([1.0] * 4, closed, "b")})
    next(running), next(running)
    running.close()
    assert closed == ["a", "b"]
