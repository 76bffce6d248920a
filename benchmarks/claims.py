"""What the papers claim, and what the committed records say of it: a list for the README."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.annealing import Row as Priced
from benchmarks.annealing import table
from benchmarks.record import RESULTS


Row = tuple[str, str, str]
"""Claim, the paper's figure, what was found here."""

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
            f"target, {'; '.join(parts)}: cooling helps, what falls below 1 hurts. Drafts that know nothing of "
            "the target gain nothing: see the table below"
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


def share(one: dict[str, float], form: str = ".0%") -> str:
    """A ratio with its interval: 9 % (8–10)."""
    return f"{one['value']:{form}} ({one['low']:{form}}–{one['high']:{form}})"


def growth(folder: Path) -> Row:
    found, said = held(folder, "growth"), NOT_MEASURED
    if found:
        parts = []
        for one in found["methods"].values():
            if one["method"] == "sjd":
                steps = ", ".join(
                    f"N = {n}: {share(row['grew'])} against {row['chance']['value']:.0%} by chance"
                    for n, row in one["growth"]["kept"]["all"].items()
                )
                parts.append(f"window {one['window']}: {steps} ({one['images']} pictures)")
        said = (
            "of kept guesses watched for at least N passes, the share that grew in each of the last N, up to the "
            f"check; {'; '.join(parts)}. That it grew at the check itself is nearly certain, for the check keeps what "
            "grew; growth that the drafter could know foretells the opposite ([figure](benchmarks/results/growth.png))"
        )
    return ("almost every kept token grew pass after pass", "about 95 %", said)


def distance(folder: Path) -> Row:
    found, said = held(folder, "growth"), NOT_MEASURED
    if found:
        one = next(one for one in found["methods"].values() if one["method"] == "sjd" and one["window"] == 16)
        rows = [f"{name} {share(row['mean'], '.3f')}" for name, row in one["overlap"].items() if row["change"]]
        said = f"Σ min(p, q) of the same checked guesses, by the law they are drawn from: {'; '.join(rows)}"
    return ("leaning on growth brings draft and target laws nearer", "theorem", said)


def leaning(folder: Path) -> Row:
    found, said = held(folder, "ablation-growth"), NOT_MEASURED
    if found:
        base = found["methods"]["sjd"]["nfe"]
        rows = sorted(found["methods"].items(), key=lambda row: row[1]["nfe"])
        parts = [f"`{name}` {one['nfe']:.0f} ({base / one['nfe']:.2f}×)" for name, one in rows if name != "ar"]
        said = f"passes of {found['images']} pictures each, and how many times fewer than SJD's: {', '.join(parts)}"
    return ("SJD-VP needs fewer passes than SJD", "1035 → 720 on Lumina-mGPT", said)


def likeness(folder: Path) -> Row:
    found, said = held(folder, "similarity"), NOT_MEASURED
    if found:
        regions = "; ".join(
            f"{low:.1f}–{high:.1f} nats {one['interchangeable']:.0%} and {one['convergent']:.0%}"
            for one in found["centred"]["regions"]
            for low, high in [one["entropy"]]
        )
        said = (
            "share of guesses with a like guess in their level, and with a like parent, by entropy of the target: "
            f"{regions} ({found['images']} pictures). Plain ground lies in the middle: there likeness is most common"
        )
    return ("hidden states show interchangeable tokens, mostly in flat regions", "figure", said)


def clusters(folder: Path) -> Row:
    found, said = held(folder, "similarity"), NOT_MEASURED
    if found:
        said = (
            f"in part: Spearman's correlation of likeness of states with codebook distance is "
            f"{found['centred']['rank_correlation']:.2f} over guesses of a level. The codebook tells much of what "
            "hidden states do on this model, not all ([figure](benchmarks/results/similarity.png))"
        )
    return ("static lists of like codes miss what context decides", "text", said)


def foretold(one: dict[str, Any]) -> str:
    """How well the shipped head foretells the target, in words. one: as `training.compare_drafters` writes it."""
    edges = ", ".join(f"{edge:g}" for edge in one["entropy_edges"])
    depths, entropies = (", ".join(f"{share:.2f}" for share in one[name]) for name in ("alpha", "alpha_by_entropy"))
    agreed = ", ".join(f"{share:.0%}" for share in one["top1"])
    return (
        f"accepted length {one['accepted_length']:.2f}; α, the chance that a guess is kept, is {depths} at depth 1 to "
        f"{len(one['alpha'])}, and {entropies} at an entropy of the target below {edges} nats and "
        f"above; by depth the likeliest tokens agree in {agreed} of guesses"
    )


def training(folder: Path) -> Row:
    found, said = held(folder, "drafters"), NOT_MEASURED
    if found:
        parts = []
        for name, one in found["heads"].items():
            length, alone = one["accepted_length"], one["alone"]["every 5 tokens"]["fidelity"]
            parts.append(
                f"`{name}` {length['mean']:.2f} ({length['low']:.2f}–{length['high']:.2f}, {one['seeds']} seeds), "
                f"fidelity of what it draws alone {alone['share']:.0%}"
            )
        pictures = next(iter(found["heads"].values()))["pictures"]
        said = (
            f"accepted length of a chain of 5 after {pictures} pictures from scratch, and the ends of its range: "
            f"{'; '.join(parts)}. The head that ships was trained far longer: {foretold(found['shipped']['quality'])}"
        )
    return ("training that weighs redundant states more gives a better drafter", "ablation", said)


def cascade(folder: Path) -> Row:
    drawn, raced = held(folder, "fidelity-cascade"), held(folder, "run-all")
    wanted = {
        "both": "cascade",
        "I only": "cascade:converge=off",
        "C only": "cascade:interchange=off",
        "budget a pass": "cascade:budget=step",
        "COOL-SD on the same tree": "cool-sd:draft=static:delta=2",
        "LANTERN++ on the same tree": "lantern-plus-plus:lam=4",
    }
    parts = [f"{words}: {at(drawn, name)}" for words, name in wanted.items() if drawn and name in drawn["methods"]]
    said = "; ".join(parts) or NOT_MEASURED
    if parts and raced and "cascade" in raced["methods"]:
        speed = raced["methods"]["cascade"]["speedup"]
        said = f"{speed['median']:.2f}× ({speed['low']:.2f}–{speed['high']:.2f}) AR's speed here; {said}"
    if cost := held(folder, "overhead"):
        said += f". At LlamaGen-XL's shape its rule adds {cost['overhead']:.2%} to a pass over {cost['nodes']} guesses"
    return ("CASCADE is the fastest with a drafter at AR's quality; I and C both help", "LlamaGen-XL-2: 3.6×", said)


CLAIMS: tuple[Callable[[Path], Row], ...] = (
    best_residual,
    bound,
    annealing,
    cool,
    residuals,
    certainty,
    growth,
    distance,
    leaning,
    likeness,
    clusters,
    cascade,
    training,
)


def schedules(folder: Path) -> str:
    """What `benchmarks.annealing` found, as a table; nothing where it is not there."""
    found = held(folder, "annealing")
    if not found:
        return ""
    return (
        f"\nSchedules of ω by `benchmarks.annealing`, exact, drafts of {found['length']} over {found['vocabulary']} "
        "tokens: what each costs over the flat schedule of the same number N of accepted guesses, or of the same "
        "number of passes, and in how many models it costs less. Falling: ν = "
        f"{found['nu']}; clamped: no ω below 1; 9.99 stands for more too.\n\n"
        f"{table([Priced(**one) for one in found['rows']], found['tv_over_bound'])}\n"
    )


def claims(folder: Path = RESULTS) -> str:
    """The list as Markdown: each claim, the paper's figure, what was found; below it the table of schedules."""
    rows = [claim(folder) for claim in CLAIMS]
    return "".join(
        f"- **{claim[0].upper()}{claim[1:]}** ({paper}). Here: {said}.\n" for claim, paper, said in rows
    ) + schedules(folder)
