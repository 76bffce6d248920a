"""Why guesses are refused: the chance that a guess is kept against how sure the target is of that square."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from pipelines.primitives.trace import Step, Trace
from visualize.events import short_name
from visualize.style import lines


EDGES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0)  # nats
WITHIN = 1.96  # standard errors of a 95 % interval


@dataclass(frozen=True)
class Bin:
    """Guesses for squares where the target's law has so much entropy.

    entropy: their mean, in nats. chance: mean chance of being kept; low, high: 95 % interval over pictures, of one
    picture 0 to 1.
    """

    entropy: float
    chance: float
    low: float
    high: float
    guesses: int


def first_guesses(step: Step) -> np.ndarray:
    """[n, 2] entropy of the target's law and chance of being kept, of judged guesses that no sibling came before.

    A later sibling is judged by what the refusals have left of the law.
    """
    first = np.unique(step.parents, return_index=True)[1]
    judged = first[~np.isnan(step.accept_prob[first])]
    return np.stack([step.entropy[step.parents[judged] + 1], step.accept_prob[judged]], -1).astype(np.float64)


def by_entropy(traces: Sequence[Trace], edges: Sequence[float] = EDGES) -> list[Bin]:
    """The bins that hold a guess, of traces of one method."""
    sums = np.zeros((len(traces), len(edges) - 1, 3))  # guesses, their entropy, their chance
    for total, trace in zip(sums, traces):
        guesses = np.concatenate([np.empty((0, 2)), *(first_guesses(step) for step in trace.steps)])
        places = np.clip(np.searchsorted(edges, guesses[:, 0], side="right") - 1, 0, len(edges) - 2)
        np.add.at(total, places, np.insert(guesses, 0, 1, axis=1))
    pictures, found = len(traces), []
    for place, (count, entropy, chance) in enumerate(sums.sum(0)):
        if count:
            mean = chance / count
            off = sums[:, place, 2] - mean * sums[:, place, 0]  # of each picture; a ratio's error is their sum's
            spread = WITHIN * (off @ off * pictures / (pictures - 1)) ** 0.5 / count if pictures > 1 else 1.0
            found.append(Bin(entropy / count, mean, max(0.0, mean - spread), min(1.0, mean + spread), int(count)))
    return found


def certainty(traces: Sequence[Trace]) -> Figure:
    """Chance of being kept over the target's entropy, a line per method, with 95 % intervals over pictures."""
    methods: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        methods[trace.header.method].append(trace)
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for (method, own), style in zip(methods.items(), lines(list(methods))):
        bins = by_entropy(own)
        if not bins:
            continue
        at, chance = [one.entropy for one in bins], [one.chance for one in bins]
        around = [[one.chance - one.low for one in bins], [one.high - one.chance for one in bins]]
        axes.errorbar(at, chance, np.maximum(around, 0), capsize=2, marker="o", label=short_name(method), **style)
    axes.set(xlabel="entropy of the target's law, nats", ylabel="chance that a guess is kept", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    axes.legend(frameon=False)
    return figure
