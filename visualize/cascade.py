"""CASCADE round by round: which guesses are as good as which, what one borrows from the others, what it spends."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from pipelines.primitives.trace import Step, Trace
from visualize.style import FATE_COLOURS, title


ALIKE, CONVERGENT, GUESS, OTHERS = "#AA3377", "#228833", "#004488", "#DDDDDD"
SLICES = ("#EE7733", "#33BBEE", "#CC3311", "#009988", "#EE3377", "#BBBBBB")  # lenders in the order of spending
HATCHES = ("//", "\\\\", "xx", "..", "++", "--")
LABELLED_NODES = 32  # of larger trees the tokens do not fit


def depths(step: Step) -> np.ndarray:
    """[1 + N] depth of root and nodes, the root's 0."""
    depth = [0]
    for parent in step.parents:
        depth.append(depth[parent + 1] + 1)
    return np.array(depth)


def interchangeable(step: Step, tau: float) -> list[tuple[int, int]]:
    """Pairs of nodes of one level with other tokens and a similarity of at least `tau`."""
    depth, alike = depths(step)[1:], step.notes["similarity"][1:, 1:] >= tau
    pairs = alike & (depth[:, None] == depth) & (step.tokens[:, None] != step.tokens)
    return [(int(a), int(b)) for a, b in np.argwhere(np.triu(pairs, 1))]


def convergent(step: Step, tau: float) -> list[int]:
    """Nodes with a similarity of at least `tau` to their parent."""
    rows = np.arange(len(step.parents))
    return np.flatnonzero(step.notes["similarity"][rows + 1, step.parents + 1] >= tau).tolist()


def places(step: Step) -> np.ndarray:
    """[1 + N, 2] x and y of root and nodes: leaves side by side, a parent over the middle of its children."""
    children = [np.flatnonzero(step.parents == node) for node in range(-1, len(step.parents))]
    across, leaves = np.zeros(len(children)), 0

    def place(row: int) -> float:
        nonlocal leaves
        below = [place(child + 1) for child in children[row]]
        if not below:
            leaves += 1
        across[row] = np.mean(below) if below else leaves
        return across[row]

    place(0)
    return np.stack([across, -depths(step)], -1).astype(float)


def tree(trace: Trace, index: int) -> Figure:
    """The guesses of round `index`: arcs join those interchangeable within a level, double edges converge.

    Raises ValueError for a round that CASCADE judged nothing in.
    """
    step, settings = _judged(trace, index), trace.header.settings
    at, figure = places(step), Figure(figsize=(7.2, 4.4), layout="constrained")
    axes, pairs = figure.add_subplot(), interchangeable(step, settings["tau_level"])
    double = set(convergent(step, settings["tau_parent"]))
    for node, parent in enumerate(step.parents):
        line = at[[parent + 1, node + 1]].T
        axes.plot(
            *line, color=CONVERGENT if node in double else "#888888", linewidth=5 if node in double else 1, zorder=1
        )
        if node in double:
            axes.plot(*line, color="white", linewidth=2.4, zorder=1)
    for a, b in pairs:
        ends, bend = at[[a + 1, b + 1]], -0.35 if at[a + 1, 0] < at[b + 1, 0] else 0.35
        arc = {"arrowstyle": "-", "connectionstyle": f"arc3,rad={bend}", "shrinkA": 7, "shrinkB": 7}
        axes.add_patch(FancyArrowPatch(*map(tuple, ends), **arc, color=ALIKE, linewidth=1.2, zorder=2))
    colours = ["white"] + [_fate(step, node) for node in range(len(step.tokens))]
    axes.scatter(*at.T, s=220, c=colours, edgecolors="black", zorder=3)
    if len(step.tokens) <= LABELLED_NODES:
        for node, token in enumerate(step.tokens):
            axes.annotate(str(token), at[node + 1], xytext=(9, -11), textcoords="offset points", fontsize=7)
    axes.set(yticks=-np.unique(depths(step)), xticks=[], ylabel="depth", title=f"{title(trace.header)}, round {index}")
    axes.set_yticklabels(np.unique(depths(step)))
    axes.margins(0.06, 0.16)
    names = {"interchangeable": ALIKE, "convergent": CONVERGENT}
    key = [Line2D([], [], color=colour, label=name, linewidth=2) for name, colour in names.items()]
    fates = {"kept": "k", "kept by relaxation": "l", "refused": "r", "not judged": "d"}
    key += [
        Line2D([], [], color=FATE_COLOURS[fate], marker="o", linestyle="none", label=name)
        for name, fate in fates.items()
    ]
    figure.legend(handles=key, loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    return figure


def transfer(trace: Trace, index: int, test: int) -> Figure:
    """One test of round `index`: what each lender gives, how much of the budget that is, and how the dice fell.

    test: number of the judged node, in the order they were judged. Raises ValueError where there is no such test.
    """
    step = _judged(trace, index)
    if not 0 <= test < len(step.notes["judged"]):
        raise ValueError(f"`test` must be from 0 to {len(step.notes['judged']) - 1} in round {index}, got {test}.")
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    axes, node = figure.add_subplot(), int(step.notes["judged"][test])
    _masses(axes, step, test)
    _budget(axes, trace, step, test)
    p, q, granted = float(step.p[node]), float(step.q[node]), float(step.accept_prob[node])
    axes.barh(0, granted, color=FATE_COLOURS["l"], height=0.5)
    axes.barh(0, min(1.0, p / q), color=GUESS, height=0.5)
    axes.plot(step.dice[node], 0, marker="v", color="black", markersize=9, clip_on=False)
    axes.set(yticks=range(4), xlim=(0, 1), xlabel="probability")
    axes.set_yticklabels(["chance, dice ▼", "budget", "$p_R$", "$p$"])
    axes.set_title(f"token {step.tokens[node]}: {'kept' if step.dice[node] < granted else 'refused'}")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
    return figure


def levels(trace: Trace, index: int) -> Figure:
    """Similarity of all rows of round `index`, root and nodes level by level; lines part the levels."""
    step = _judged(trace, index)
    order = np.argsort(depths(step), kind="stable")
    figure = Figure(figsize=(5.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    cosines = step.notes["similarity"].astype(float)[np.ix_(order, order)]
    image = axes.imshow(cosines, "PuOr", vmin=-1, vmax=1, interpolation="nearest")
    for edge in np.cumsum(np.bincount(depths(step)))[:-1] - 0.5:
        axes.axhline(edge, color="black", linewidth=0.8)
        axes.axvline(edge, color="black", linewidth=0.8)
    kind = "cosine of centred states" if step.notes["centred"].all() else "cosine of raw states"
    figure.colorbar(image, ax=axes, label=kind, shrink=0.85)
    axes.set(xlabel="row, by level", ylabel="row, by level", title=f"{title(trace.header)}, round {index}")
    return figure


def figures(trace: Trace) -> dict[str, Figure]:
    """All three of the round that lent most, by name; none for a run in which CASCADE judged nothing."""
    spent = {at: step.notes["infidelity"].sum() for at, step in enumerate(trace.steps) if "similarity" in step.notes}
    if not spent:
        return {}
    index = max(spent, key=spent.__getitem__)
    test = int(trace.steps[index].notes["infidelity"].argmax())
    return {"tree": tree(trace, index), "transfer": transfer(trace, index, test), "levels": levels(trace, index)}


def _judged(trace: Trace, index: int) -> Step:
    if not 0 <= index < len(trace.steps) or "similarity" not in trace.steps[index].notes:
        raise ValueError(f"`index` must be a round in which CASCADE judged a guess, got {index}.")
    return trace.steps[index]


def _fate(step: Step, node: int) -> str:
    if np.isnan(step.dice[node]):
        return FATE_COLOURS["d"]
    if not step.dice[node] < step.accept_prob[node]:
        return FATE_COLOURS["r"]
    return FATE_COLOURS["k" if step.dice[node] < step.p[node] / step.q[node] else "l"]


def _masses(axes: Axes, step: Step, test: int) -> None:
    """Two bars, p above p_R: the guess, then what lends to it, then all else."""
    notes = step.notes
    node, mine = int(notes["judged"][test]), notes["borrower"] == test
    before, after = [float(step.p[node])] * 2
    for y, right in ((3, before), (2, after)):
        axes.barh(y, right, color=GUESS, height=0.6, label="the guess" if y == 3 else None)
    for place, (lender, lent) in enumerate(zip(notes["lender"][mine], notes["lent"][mine])):
        style = {"color": SLICES[place % 6], "hatch": HATCHES[place % 6], "edgecolor": "white", "height": 0.6}
        is_parent = lender == step.parents[node]
        whole = lent if is_parent else notes["offers"][test, lender]
        name = "its parent" if is_parent else f"token {step.tokens[lender]}"
        axes.barh(3, 0 if is_parent else whole, left=before, label=name, **style)
        axes.barh(2, lent, left=after, **style)
        before, after = before + (0 if is_parent else whole), after + lent
    axes.barh(3, 1 - before, left=before, color=OTHERS, height=0.6, label="all else")
    axes.barh(2, 1 - after, left=after, color=OTHERS, height=0.6)


def _budget(axes: Axes, trace: Trace, step: Step, test: int) -> None:
    """What of the budget is used: what moved in this test, or what all tests of the pass have lent so far."""
    delta, spent = trace.header.settings["delta"], float(step.notes["moved"][test])
    if trace.header.settings["budget"] == "step":
        spent = float(step.notes["infidelity"][: test + 1].sum())
    axes.barh(1, spent, color=FATE_COLOURS["l"], height=0.4)
    axes.barh(1, delta, facecolor="none", edgecolor="black", height=0.4)
