"""What faster methods cost in their pictures, as a table for a person. Reads what `benchmarks.fidelity` leaves."""

from collections.abc import Mapping
from typing import Any


COLUMNS = (
    "method", "passes", "accepted length", "speed-up over AR", "infidelity", "fidelity", "change, points",
    "log-likelihood, nats a token", "Fréchet",
)  # fmt: skip


def row(name: str, one: Mapping[str, Any], speed: str) -> str:
    change = one["fidelity_change"]
    spread = f"{100 * change['mean']:+.1f} ({100 * change['low']:+.1f} to {100 * change['high']:+.1f})"
    cells = [name, f"{one['nfe']:.0f}", f"{one['accepted_length']:.2f}", speed, f"{one['infidelity']:.3f}"]
    cells += [f"{one['fidelity']['share']:.1%}", spread]
    cells += [f"{one['log_likelihood']:.3f}", f"{max(0, one['frechet']):.2f}"]
    return f"| {' | '.join(cells)} |\n"


def price_table(found: Mapping[str, Any]) -> str:
    """Markdown: what was measured, a row a method, AR with other seeds last. found: the record as JSON has it."""
    rows = ""
    for name, one in found["methods"].items():
        settings = (f"{knob}={value}" for knob, value in one["settings"].items())
        speed = one.get("speedup")
        told = f"{speed['median']:.2f} ({speed['low']:.2f}–{speed['high']:.2f})" if speed else "–"
        rows += row(" ".join([f"`{one['pipeline']}`", *settings]), one, "1" if name == "ar" else told)
    rows += row("`ARPipeline` with other seeds", found["again"], "–")
    return (
        f"{found['images']} pictures a method by `{found['model']}`, {found['date']}, the same prompts and seeds, "
        "half of them of unseen pairs. Fidelity is the share of objects and places that an independent classifier "
        "reads back as asked, its change is against AR picture by picture with a 95 % bootstrap interval; infidelity "
        "is what the chances of guesses exceed the exact rule's by, a token; Fréchet distances are of that "
        "classifier's features from AR's pictures: what AR itself has with other seeds is the floor.\n\n"
        f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|\n{rows}"
    )
