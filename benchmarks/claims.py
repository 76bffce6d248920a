"""What the papers claim, and what the committed records say of it: a table for the README."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS


Row = tuple[str, str, str]
"""Claim, the paper's figure, what was found here."""

HEAD = "| claim | the paper | here |\n|---|---|---|\n"
NOT_MEASURED = "not measured"


def held(folder: Path, name: str) -> dict[str, Any] | None:
    """A record, None where it is not there."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def points(change: dict[str, float]) -> str:
    """A difference of shares in points, with its interval: -1.5 (-3.0 to +0.1)."""
    return f"{100 * change['mean']:+.1f} ({100 * change['low']:+.1f} to {100 * change['high']:+.1f})"


def at(record: dict[str, Any], name: str) -> str:
    """A point of `benchmarks.fidelity` in words."""
    one = record["methods"][name]
    return (
        f"accepted length {one['accepted_length']:.2f}, infidelity {one['infidelity']:.3f}, fidelity "
        f"{points(one['fidelity_change'])} points against AR, Fréchet {one['frechet']:.2f}"
    )


def best_residual(_: Path) -> Row:
    return (
        "G* leaves the output nearest to the target",
        "theorem",
        "holds: of 1,000 random residuals none is nearer, and the distance is the sum of max(q f − p, 0) "
        "([tests](tests/test_uniform_rsd.py))",
    )


def bound(folder: Path) -> Row:
    found = held(folder, "annealing")
    said = NOT_MEASURED
    if found:
        means = [mean for _, mean, _ in found["tv_over_bound"].values()]
        ends = [end for low, _, high in found["tv_over_bound"].values() for end in (low, high)]
        said = (
            f"holds on {found['models']} random models each for close, middling and independent drafts: TV / B is "
            f"{min(means):.2f}–{max(means):.2f} on average, {min(ends):.2f} to {max(ends):.2f} in all"
        )
    return ("the bound on a round's total variation holds and is nearly tight", "theorem", said)


def annealing(folder: Path) -> Row:
    exact, drawn = held(folder, "annealing"), held(folder, "fidelity")
    said = NOT_MEASURED
    if exact:
        rows = {(row["delta"], row["schedule"]): row for row in exact["rows"] if asks(row)}
        parts = []
        for delta in (1.1, 2.0):
            loose, clamped = rows[delta, "falling"], rows[delta, "falling, clamped"]
            parts.append(
                f"δ = {delta:g}: {loose['ratio']:.2f}×, with ω kept at 1 or above {clamped['ratio']:.2f}× "
                f"(less in {clamped['wins']} of {clamped['models']} models)"
            )
        said = (
            "exact total variation of whole sequences over a flat schedule's of as many passes, drafts close to the "
            f"target, {'; '.join(parts)}: cooling helps, what falls below 1 hurts"
        )
    if drawn and {"cool-sd:delta=2", "uniform-rsd:delta=1.6"} <= drawn["methods"].keys():
        said += (
            f". Drawn pictures: falling {at(drawn, 'cool-sd:delta=2')}; flat {at(drawn, 'uniform-rsd:delta=1.6')}; "
            f"n = {drawn['images']}"
        )
    return ("at an equal accepted length a falling ω is closer than a flat one", "property, proven for L = 2", said)


def asks(row: dict[str, Any]) -> bool:
    return row["question"] == "sequence TV, equal passes" and row["draft"] == "close"


def cool(folder: Path) -> Row:
    drawn, raced = held(folder, "fidelity"), held(folder, "run-all")
    said = NOT_MEASURED
    if drawn and raced:
        speed = {name: found["speedup"] for name, found in raced["methods"].items()}
        said = "; ".join(
            f"{words}: {speed[name]['median']:.2f}× ({speed[name]['low']:.2f}–{speed[name]['high']:.2f}), "
            f"{at(drawn, name)}"
            for words, name in {
                "δ = 1.1": "cool-sd:delta=1.1",
                "δ = 2": "cool-sd:delta=2",
                "LANTERN++": "lantern-plus-plus:draft=chain:length=3:lam=4",
                "EAGLE-1": "speculative",
            }.items()
            if name in drawn["methods"] and name in speed
        )
    return (
        "COOL-SD is faster than EAGLE-1 and LANTERN++ at nearly equal quality",
        "LlamaGen-XL: 2.03× EAGLE-1, 2.15× LANTERN++, 2.72× COOL-SD at δ = 2",
        said,
    )


def residuals(folder: Path) -> Row:
    found, said = held(folder, "fidelity-residuals"), NOT_MEASURED
    if found:
        kinds = {
            one["settings"].get("residual", "paper"): name for name, one in found["methods"].items() if name != "ar"
        }
        said = "; ".join(f"{kind}: {at(found, name)}" for kind, name in kinds.items()) + f"; n = {found['images']}"
    return ("G* improves LANTERN++", "ablation", said)


def certainty(folder: Path) -> Row:
    found, said = held(folder, "certainty"), NOT_MEASURED
    if found:
        parts = []
        for method, bins in found["methods"].items():
            low, high = bins[0], bins[-1]
            parts.append(
                f"{method}: chance {low['chance']:.2f} where the target is sure ({low['entropy']:.1f} nats), "
                f"{high['chance']:.2f} ({high['low']:.2f}–{high['high']:.2f}) at {high['entropy']:.1f} nats"
            )
        said = "; ".join(parts) + " ([figure](benchmarks/results/certainty.png))"
    return ("guesses are refused because many tokens are about as likely", "all three papers", said)


CLAIMS: tuple[Callable[[Path], Row], ...] = (best_residual, bound, annealing, cool, residuals, certainty)


def claims(folder: Path = RESULTS) -> str:
    """The table as Markdown."""
    return HEAD + "".join(f"| {' | '.join(claim(folder))} |\n" for claim in CLAIMS)
