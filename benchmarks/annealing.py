"""Is a cooling schedule better than a flat one? Exact laws of small random models, COOL-SD's annealing property.

    python -m benchmarks.annealing

Two questions at one price each. The bound B on a block's total variation, at an equal expected number N of accepted
guesses; and the true total variation of whole sequences, at an equal expected number of target passes. Both for a
schedule that falls, with and without ω clamped to 1, and one that rises, over the flat schedule of the same price.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from benchmarks.record import RESULTS
from pipelines.pipeline_cool_sd import omegas


VOCABULARY, LENGTH, TOKENS = 3, 3, 6
NU = 0.7
DELTAS = (1.1, 2.0)
MODELS = 25
FAR = 9.99  # shown for ratios beyond: a flat ω below 1 is exact, so that its bound is 0
MIXES = {"close": 0.3, "middling": 0.6, "independent": 1.0}  # share of the draft that is another random law
SCHEDULES: dict[str, Callable[[float], list[float]]] = {
    "falling": lambda delta: omegas(LENGTH, delta, NU, None, None, "exp"),
    "falling, clamped": lambda delta: omegas(LENGTH, delta, NU, None, 1.0, "exp"),
    "rising, clamped": lambda delta: omegas(LENGTH, delta, NU, None, 1.0, "exp")[::-1],
}


@dataclass(frozen=True)
class Block:
    """One round over L positions, exactly.

    bound: B, the sum over prefixes of the chance that they are drafted and kept times the sum of max(q f - p, 0).
    accepted: N, the expected number of accepted guesses. distance: total variation of the block's law from the
    target's, tokens after a refusal being the target's own.
    """

    bound: float
    accepted: float
    distance: float


def laws(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random laws [.., V], uneven."""
    return rng.dirichlet(np.full(VOCABULARY, 0.7), shape)


def tables(rng: np.random.Generator, mix: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Target and draft: for position i the laws [V] * i + [V] given all tokens before."""
    p = [laws(rng, *[VOCABULARY] * depth) for depth in range(LENGTH)]
    return p, [(1 - mix) * law + mix * laws(rng, *law.shape[:-1]) for law in p]


def residual(p: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """G*: norm(max(p - q f, 0)); p where nothing is left."""
    left = np.maximum(p - kept, 0)
    total = left.sum(-1, keepdims=True)
    return np.where(total > 0, left / np.where(total > 0, total, 1), p)


def block(p: list[np.ndarray], q: list[np.ndarray], factors: list[float]) -> Block:
    """One round with f = min(1, ω p/q) and G*. factors: ω by depth."""
    reached, bound, accepted = np.ones(()), 0.0, 0.0
    length, vocabulary = len(p), p[0].shape[-1]
    found, true = np.zeros([vocabulary] * length), np.ones([vocabulary] * length)
    for depth, (target, draft, omega) in enumerate(zip(p, q, factors)):
        kept = np.minimum(draft, omega * target)
        bound += float((reached[..., None] * np.maximum(kept - target, 0)).sum())
        ended = reached[..., None] * (1 - kept.sum(-1, keepdims=True)) * residual(target, kept)
        for after in p[depth + 1 :]:
            ended = ended[..., None] * after
        found = found + ended
        reached = reached[..., None] * kept
        accepted += float(reached.sum())
        true = true * target.reshape(target.shape + (1,) * (length - depth - 1))
    return Block(bound, accepted, float(np.abs(found + reached - true).sum() / 2))


@dataclass(frozen=True)
class Process:
    """A whole sequence, round after round.

    law: [V] * tokens. passes: expected target passes. distance: total variation from the target's law.
    """

    law: np.ndarray
    passes: float
    distance: float


def process(p: np.ndarray, q: np.ndarray, factors: list[float], tokens: int = TOKENS) -> Process:
    """Of a target and a draft that know the last token only: [V, V] each, the sequence starting behind token 0."""
    vocabulary = len(p)
    follow = [np.ones(vocabulary)]  # by tokens left: the law [last token] + [V] * left of what follows
    passes = [np.zeros(vocabulary)]  # and how many passes it takes, [last token]
    for left in range(1, tokens + 1):
        law, count = np.zeros([vocabulary] * (left + 1)), np.ones(vocabulary)
        reached = np.ones(vocabulary)  # chance of each [last token, guesses so far]
        for depth in range(min(len(factors), left - 1) + 1):
            kept = np.minimum(q, factors[depth] * p) if depth < min(len(factors), left - 1) else np.zeros_like(p)
            drawn = (1 - kept.sum(-1, keepdims=True)) * residual(p, kept)
            ended = reached[..., None] * drawn
            count = count + ended.reshape(vocabulary, -1, vocabulary).sum(1) @ passes[left - depth - 1]
            law += ended.reshape(ended.shape + (1,) * (left - depth - 1)) * follow[left - depth - 1]
            reached = reached[..., None] * kept
        follow.append(law)
        passes.append(count)
    true = p[0]
    for _ in range(tokens - 1):
        true = true[..., None] * p
    return Process(follow[tokens][0], float(passes[tokens][0]), float(np.abs(follow[tokens][0] - true).sum() / 2))


def flat_at(price: Callable[[float], float], wanted: float) -> float:
    """The flat ω whose price is `wanted`. price: monotone."""
    low, high = 1e-3, 1e3
    rises = price(high) > price(low)
    for _ in range(40):
        middle = (low * high) ** 0.5
        if (price(middle) < wanted) == rises:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True)
class Row:
    """What a schedule costs over the flat one of its price. ratio: of the means; wins: models where it is lower."""

    question: str
    draft: str
    delta: float
    schedule: str
    ratio: float
    wins: int
    models: int


def row(question: str, draft: str, delta: float, schedule: str, pairs: list[tuple[float, float]]) -> Row:
    """pairs: cost of the schedule and of the flat one, by model."""
    own, flat = np.array(pairs).T
    return Row(question, draft, delta, schedule, float(own.mean() / flat.mean()), int((own < flat).sum()), len(pairs))


def compare(models: int, seed: int) -> list[Row]:
    """Every schedule against the flat one of its price, at every draft and δ."""
    rows = []
    for draft, mix in MIXES.items():
        rng = np.random.default_rng([seed, list(MIXES).index(draft)])
        blocks = [tables(rng, mix) for _ in range(models)]
        chains = [(law, (1 - mix) * law + mix * laws(rng, VOCABULARY)) for law in laws(rng, models, VOCABULARY)]
        for delta in DELTAS:
            for name, schedule in SCHEDULES.items():
                bounds, distances, sequences = [], [], []
                for p, q in blocks:
                    own = block(p, q, schedule(delta))
                    omega = flat_at(lambda omega, p=p, q=q: block(p, q, [omega] * LENGTH).accepted, own.accepted)
                    flat = block(p, q, [omega] * LENGTH)
                    bounds.append((own.bound, flat.bound))
                    distances.append((own.distance, flat.distance))
                for p, q in chains:
                    own = process(p, q, schedule(delta))
                    omega = flat_at(lambda omega, p=p, q=q: process(p, q, [omega] * LENGTH).passes, own.passes)
                    sequences.append((own.distance, process(p, q, [omega] * LENGTH).distance))
                add = partial(row, draft=draft, delta=delta, schedule=name)
                rows.append(add("bound, equal N", pairs=bounds))
                rows.append(add("block TV, equal N", pairs=distances))
                rows.append(add("sequence TV, equal passes", pairs=sequences))
    return rows


def nearness(models: int, seed: int) -> dict[str, list[float]]:
    """TV/B of clamped falling schedules, by draft: least, mean and largest over random models. Never above 1."""
    found = {}
    for draft, mix in MIXES.items():
        rng = np.random.default_rng([seed, 1, list(MIXES).index(draft)])
        blocks = [block(*tables(rng, mix), SCHEDULES["falling, clamped"](2.0)) for _ in range(models)]
        ratios = [one.distance / one.bound for one in blocks]
        found[draft] = [min(ratios), float(np.mean(ratios)), max(ratios)]
    return found


def table(rows: list[Row], ratios: dict[str, list[float]]) -> str:
    """As Markdown: the ratio to the flat schedule, and in how many of the models it is lower."""
    questions = list(dict.fromkeys(one.question for one in rows))
    cells = {(one.draft, one.delta, one.schedule, one.question): one for one in rows}
    keys = dict.fromkeys((one.draft, one.delta, one.schedule) for one in rows)
    lines = [f"| draft | δ | schedule | {' | '.join(questions)} |", "|---" * (3 + len(questions)) + "|"]
    for draft, delta, schedule in keys:
        found = [cells[draft, delta, schedule, question] for question in questions]
        told = " | ".join(f"{min(one.ratio, FAR):.2f} ({one.wins}/{one.models})" for one in found)
        lines.append(f"| {draft} | {delta:g} | {schedule} | {told} |")
    near = "; ".join(f"{draft} {low:.2f}, {mean:.2f}, {high:.2f}" for draft, (low, mean, high) in ratios.items())
    return "\n".join([*lines, "", f"TV/B of the clamped falling schedule at δ = 2, least, mean, largest: {near}."])


def main() -> None:
    rows, ratios = compare(MODELS, seed=0), nearness(MODELS, seed=0)
    print(table(rows, ratios))
    kept = {"nu": NU, "length": LENGTH, "vocabulary": VOCABULARY, "tokens": TOKENS, "models": MODELS}
    kept |= {"rows": [asdict(one) for one in rows], "tv_over_bound": ratios}
    (RESULTS / "annealing.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
