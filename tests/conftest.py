"""What the laws are proven with: a chance that walks every branch, and a target small enough to know by heart."""

import itertools
import math
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

from pipelines.decoding.drafters import Drafter
from pipelines.decoding.loop import decode
from pipelines.decoding.rules import Rule
from pipelines.decoding.verify import Walk
from pipelines.models.protocol import Scores, Session
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp, guide
from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Step
from pipelines.primitives.tree import EMPTY, Draft


Law = dict[tuple[int, ...], float]


class EveryChance(Chance):
    """One branch of all: takes the outcomes its script names, the first possible one beyond it."""

    def __init__(self, script: list[int]) -> None:
        self.taken = script
        self.widths: list[int] = []
        self.weight = 1.0

    def bernoulli(self, prob: float) -> tuple[bool, float]:
        assert 0.0 <= prob <= 1.0, f"{prob} is not a probability"
        return self._take([(True, prob), (False, 1.0 - prob)]), math.nan

    def categorical(self, probs: Tensor) -> Tensor:
        return torch.tensor(
            [self._take([(x, mass / math.fsum(row)) for x, mass in enumerate(row)]) for row in probs.tolist()]
        )

    def _take(self, outcomes: list[tuple[int, float]]) -> int:
        possible = [(outcome, weight) for outcome, weight in outcomes if weight > 0]
        if len(self.widths) == len(self.taken):
            self.taken.append(0)
        outcome, weight = possible[self.taken[len(self.widths)]]
        self.widths.append(len(possible))
        self.weight *= weight
        return outcome


def branches(run: Callable[[Chance], object]) -> Iterator[tuple[object, float]]:
    """Every outcome of `run` with its probability, one branch after another."""
    script: list[int] = []
    while True:
        chance = EveryChance(script)
        yield run(chance), chance.weight
        while script and script[-1] + 1 == chance.widths[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1


def law(run: Callable[[Chance], tuple[int, ...]]) -> Law:
    """Exact law of what `run` returns."""
    masses: Law = defaultdict(float)
    for outcome, weight in branches(run):
        masses[outcome] += weight
    return dict(masses)


def gap(found: Law, expected: Law) -> float:
    """Largest difference between two laws at one outcome."""
    return max(abs(found.get(outcome, 0.0) - expected.get(outcome, 0.0)) for outcome in found.keys() | expected.keys())


def assert_same_law(found: Law, expected: Law) -> None:
    assert gap(found, expected) < 1e-12, f"the output law is off by {gap(found, expected):.2e}"


class Table:
    """A target as a table: for every context of a sequence over `vocabulary` tokens a pair of features, float64.

    Row 0 of a pair is conditional, row 1 unconditional. The head turns features [.., D] into logits [.., V].
    """

    DIM = 4
    PROMPT = 2

    def __init__(self, seed: int, vocabulary: int, length: int) -> None:
        self.vocabulary, self.length = vocabulary, length
        dice = torch.Generator().manual_seed(seed)

        def table(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=dice, dtype=torch.float64)

        contexts = itertools.chain.from_iterable(
            itertools.product(range(vocabulary), repeat=known) for known in range(length)
        )
        self.features = {context: table(2, self.DIM) for context in contexts}
        self.inner = {context: table(2, 3 * self.DIM) for context in self.features}
        self.prompt, self.prompt_inner = table(2, self.PROMPT - 1, self.DIM), table(2, self.PROMPT - 1, 3 * self.DIM)
        self.head = table(vocabulary, self.DIM)
        self.known: dict[str, dict] = defaultdict(dict)  # laws worked out so far, by how they are wanted

    def open(self, warp: Warp, guidance_scale: float, layout: Layout) -> "TableSession":
        assert layout.length <= self.length
        return TableSession(self, warp, guidance_scale, layout)


class TableSession:
    """A `Session` on a table. It counts what a real cache would hold."""

    def __init__(self, table: Table, warp: Warp, guidance_scale: float, layout: Layout) -> None:
        self.table, self.warp, self.guidance_scale, self.layout = table, warp, guidance_scale, layout
        self.keep_taps = False
        self.rows = 2 if guidance_scale > 1 else 1
        self.length = 0
        self.committed: tuple[int, ...] = ()
        self.known: dict[tuple[int, ...], tuple[Tensor, Tensor]] = table.known[f"{warp} {guidance_scale} {layout}"]

    def score(self, draft: Draft) -> Scores:
        contexts = [self.committed]
        for token, parent in zip(draft.tokens, draft.parents):
            contexts.append((*contexts[parent + 1], token))
        if not self.committed:
            self.prefix_hidden = torch.cat([self.table.prompt, self.table.features[()][:, None]], 1)[: self.rows]
            taps = torch.cat([self.table.prompt_inner, self.table.inner[()][:, None]], 1)[: self.rows]
            self.prefix_taps = taps if self.keep_taps else None
            self.length = self.table.PROMPT - 1
        laws = [self.laws(context) for context in contexts]
        return Scores(
            probs=torch.stack([probs for probs, _ in laws]),
            guided=torch.stack([guided for _, guided in laws]),
            hidden=torch.stack([self.table.features[context] for context in contexts], 1)[: self.rows],
            taps=torch.stack([self.table.inner[context] for context in contexts], 1)[: self.rows]
            if self.keep_taps
            else None,
        )

    def commit(self, draft: Draft, path: list[int], token: int) -> None:
        self.committed += (*(draft.tokens[node] for node in path), token)
        self.length += len(path) + 1

    def laws(self, context: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """The target's law of what follows `context`, and the same before top-k and top-p: [V] each."""
        if context not in self.known:
            logits = self.table.features[context] @ self.table.head.T
            if self.rows == 2:
                logits = guide(logits[0], logits[1], self.guidance_scale)[None]
            soft = self.layout.force(self.warp.soften(logits[0]), len(context))
            self.known[context] = self.warp.filter(soft), soft
        return self.known[context]

    def joint(self) -> Law:
        """The target's own law of whole sequences."""
        masses: Law = {(): 1.0}
        for _ in range(self.layout.length):
            masses = {
                (*context, token): mass * prob
                for context, mass in masses.items()
                for token, prob in enumerate(self.laws(context)[0].tolist())
                if prob > 0
            }
        return masses


def generate(session: TableSession, drafter: Drafter, rule: Rule, chance: Chance) -> list[Step]:
    """One whole run."""
    return list(decode(session, drafter, Walk(rule), chance, session.layout.length))


def tokens(steps: list[Step]) -> tuple[int, ...]:
    return tuple(token for step in steps for token in step.committed.tolist())


class GivenDice(Chance):
    """Rolls the uniforms it was given, and keeps the law that the last token was drawn from."""

    def __init__(self, dice: list[float]) -> None:
        self.dice = list(dice)

    def categorical(self, probs: Tensor) -> Tensor:
        self.law = probs[-1]
        return super().categorical(probs)

    def _uniforms(self, count: int) -> Tensor:
        rolled, self.dice = self.dice[:count], self.dice[count:]
        return torch.tensor(rolled, dtype=torch.float64)


def laws_only(probs: Tensor) -> Scores:
    """Scores of a target that has laws [1 + N, V] and no features."""
    return Scores(probs, probs, probs.new_zeros(1, len(probs), 1), None)


def check_session(open_session: Callable[[], Session], tolerance: float) -> None:
    """What every `Session` owes the loop and later drafters: shapes, and rows that mean what they are said to mean.

    open_session: the same run afresh, of at least five positions.
    """
    one, tapped = open_session(), open_session()
    tapped.keep_taps = True
    first, first_tapped = one.score(EMPTY), tapped.score(EMPTY)
    rows, prompt, width = one.prefix_hidden.shape
    vocabulary = first.probs.shape[-1]
    assert rows == (2 if one.guidance_scale > 1 else 1)
    assert (first.taps, one.prefix_taps) == (None, None)
    assert first_tapped.taps.shape == (rows, 1, 3 * width)
    assert tapped.prefix_taps.shape == (rows, prompt, 3 * width)
    same = partial(torch.testing.assert_close, atol=tolerance, rtol=tolerance)
    same(one.prefix_hidden[:, -1:], first.hidden)
    same(tapped.prefix_taps[:, -1:], first_tapped.taps)
    check_laws(one, first, [0], tolerance)
    token, *guesses = first.probs[0].topk(4).indices.tolist() if vocabulary > 3 else [0, 1, 2, 1]
    flat = first.probs.new_full((3, vocabulary), 1 / vocabulary)
    draft = Draft(guesses, [-1, -1, 1], flat)  # the root's second child has a child
    for session in (one, tapped):
        session.commit(EMPTY, [], token)
        assert session.length == prompt, "the token committed last is cached before it was a root"
    tree, tree_tapped = one.score(draft), tapped.score(draft)
    assert tree.probs.shape == tree.guided.shape == (4, vocabulary)
    assert tree.hidden.shape == (rows, 4, width)
    assert tree.taps is None and tree_tapped.taps.shape == (rows, 4, 3 * width)
    check_laws(one, tree, [1, 2, 2, 3], tolerance)
    # Token by token, the same contexts give the same rows: a row is the state that consumed its token.
    for path in ([0], [1], [1, 2]):
        alone = open_session()
        alone.keep_taps = True
        alone.score(EMPTY)
        alone.commit(EMPTY, [], token)
        for node in path:
            alone.score(EMPTY)
            alone.commit(EMPTY, [], draft.tokens[node])
        row, found = path[-1] + 1, alone.score(EMPTY)
        same(tree.probs[row], found.probs[0])
        same(tree.hidden[:, row], found.hidden[:, 0])
        same(tree_tapped.taps[:, row], found.taps[:, 0])
    one.commit(draft, [1, 2], token)
    assert one.length == prompt + 3


def check_laws(session: Session, scores: Scores, positions: list[int], tolerance: float) -> None:
    for probs, guided, position in zip(scores.probs, scores.guided, positions):
        assert float(guided.sum()) == pytest.approx(1, abs=1e-5)
        torch.testing.assert_close(session.warp.filter(guided), probs, atol=tolerance, rtol=0)
        torch.testing.assert_close(session.layout.force(guided, position), guided, atol=tolerance, rtol=0)


FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """Chromium. Where it or Playwright is missing, CI fails; elsewhere the tests skip."""
    give_up = pytest.fail if os.environ.get("CI") else pytest.skip
    chromium = shutil.which("chromium")
    if chromium is None:
        give_up("there is no chromium on this machine: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        give_up("playwright is not installed: pip install playwright")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=chromium, args=FLAGS)
