"""Pearson's test of a method on a real model: do the first tokens of its pictures follow the target's own law?

For laws too wide to walk every branch of. The target's law is worked out, not sampled, so that only the method's draws
are random.
"""

from collections import Counter

import torch

from pipelines.base import ARImagePipeline
from pipelines.decoding.loop import decode
from pipelines.decoding.verify import Walk
from pipelines.models.protocol import Condition, Session
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.tree import EMPTY


Tokens = tuple[int, ...]
Law = dict[Tokens, float]

EXPECTED = 5  # draws a cell must await, so that its count is near enough to normal (Cochran 1954)


def opened(pipe: ARImagePipeline, condition: Condition) -> Session:
    sampling = pipe.sampling
    warp = Warp(sampling.temperature, sampling.top_k, sampling.top_p)
    return pipe.model.open(condition, sampling.guidance_scale, warp, pipe.layout())


@torch.no_grad()
def target_law(pipe: ARImagePipeline, prompt: str, count: int, least: float) -> Law:
    """The first `count` tokens as the target draws them one by one: every sequence of probability `least` or more."""
    condition, law = pipe.encode_prompt(prompt), {(): 1.0}
    for _ in range(count):
        longer: Law = {}
        for tokens, mass in law.items():
            session = opened(pipe, condition)
            probs = session.score(EMPTY).probs[0]  # [V]
            for token in tokens:
                session.commit(EMPTY, [], token)
                probs = session.score(EMPTY).probs[0]
            masses = mass * probs.double()
            longer |= {(*tokens, token): float(masses[token]) for token in (masses >= least).nonzero()[:, 0].tolist()}
        law = longer
    return law


@torch.no_grad()
def draws(pipe: ARImagePipeline, prompt: str, count: int, runs: int, seed: int) -> list[Tokens]:
    """The first `count` tokens of so many runs by the pipeline's method, each stopped once it has them."""
    condition, chance = pipe.encode_prompt(prompt), Chance(torch.Generator().manual_seed(seed))
    found = []
    for _ in range(runs):
        session = opened(pipe, condition)
        drafter, rule = pipe.method(pipe.settings, session)
        tokens: list[int] = []
        for step in decode(session, drafter, Walk(rule), chance, session.layout.length):
            tokens += step.committed.tolist()
            if len(tokens) >= count:
                break
        found.append(tuple(tokens[:count]))
    return found


def p_value(found: list[Tokens], law: Law) -> float:
    """How often draws from `law` would lie as far from it as `found`, or farther.

    Pearson's X^2 over the sequences that await at least `EXPECTED` draws; all others are one cell more. With k cells
    X^2 has a chi-square law of k - 1 degrees of freedom, whose upper tail is Q((k - 1)/2, X^2/2).
    """
    runs, counts = len(found), Counter(found)
    cells = [(counts[tokens], runs * mass) for tokens, mass in law.items() if runs * mass >= EXPECTED]
    rest = runs - sum(count for count, _ in cells), runs - sum(expected for _, expected in cells)
    assert cells and rest[1] >= EXPECTED, f"too few draws, or a law too narrow: the last cell awaits {rest[1]:.1f}"
    distance = sum((count - expected) ** 2 / expected for count, expected in [*cells, rest])
    half = torch.tensor([len(cells) / 2, distance / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(*half))
