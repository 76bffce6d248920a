"""Output laws of Jacobi drafts, all branches walked, over a target just long enough for a redraft's past to matter.

With a window of 3, a guess whose law knows a past of its square is first judged in the fifth position. Half the
vocabulary is cut by top-k, and the first token is forced, so that few branches are left.
"""

from collections.abc import Callable

from conftest import Table, TableSession, assert_same_law, law, tokens

from pipelines.decoding.drafters import Drafter
from pipelines.decoding.loop import decode
from pipelines.decoding.rules import ExactRule, Rule
from pipelines.decoding.verify import Verdict, Verifier, Walk
from pipelines.models.protocol import Scores
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import Draft


TARGET = Table(seed=5, vocabulary=3, length=5)
LAYOUT = Layout(1, 4, {0: 1})
WARP = Warp(top_k=2)
GREEDY = Warp(temperature=0.0)
Make = Callable[[TableSession], Drafter]


class Quiet(Drafter):
    """Another drafter that tells nothing of its rounds, which costs more than drawing them. Sees what is judged."""

    def __init__(self, drafter: Drafter, watch: Callable[[Draft, list[int]], None]) -> None:
        self.drafter, self.watch = drafter, watch

    def propose(self, committed: list[int], room: int, chance: Chance) -> Draft:
        return self.drafter.propose(committed, room, chance)

    def observe(self, draft: Draft, scores: Scores, verdict: Verdict, chance: Chance) -> None:
        self.watch(draft, [node for node, prob in enumerate(verdict.accept_prob) if prob == prob])
        self.drafter.observe(draft, scores, verdict, chance)


def opened(warp: Warp = WARP) -> TableSession:
    return TARGET.open(warp, 1.0, LAYOUT)


def opened_greedy() -> TableSession:
    return opened(GREEDY)


def run(make: Make, chance: Chance, verifier: Verifier, opened=opened, watch=lambda *_: None) -> tuple[int, ...]:
    session = opened()
    drafter = Quiet(make(session), watch)
    return tokens(list(decode(session, drafter, verifier, chance, session.layout.length)))


def output_law(make: Make, verifier: Callable[[], Verifier] = lambda: Walk(ExactRule()), **options) -> dict:
    """Exact law of whole sequences; judged by the exact rule unless told otherwise."""
    return law(lambda chance: run(make, chance, verifier(), **options))


def target_law() -> dict:
    return opened().joint()


def assert_greedy(make: Make, rule: Callable[[], Rule] = ExactRule) -> None:
    """At temperature 0 what comes out is what the target alone would write."""
    found, alone = output_law(make, lambda: Walk(rule()), opened=opened_greedy), opened_greedy().joint()
    assert len(alone) == 1
    assert_same_law(found, alone)
