"""Print the committed records in the README, between its two marker lines.

python -m benchmarks.report            write
python -m benchmarks.report --check    exit with 1 where the README says something else
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.claims import claims
from benchmarks.record import RESULTS, Interval, MethodRecord, RaceRecord, command, load
from visualize.prices import price_table


README = Path(__file__).parent.parent / "README.md"
MARKERS = re.compile(r"(<!-- measured:.*?-->\n)(.*?)(<!-- /measured -->)", re.DOTALL)
NOTHING = "No figures are committed yet.\n"
HEAD = """\
| method | seconds per image | ms per token | passes | accepted length | speed-up over AR | ceiling | outside |
|---|---|---|---|---|---|---|---|
"""

FOLDED = {
    "shape-speculative": "Which draft is fastest: speculative decoding",
    "shape-cool-sd": "Which draft is fastest: COOL-SD",
    "fidelity": "What relaxed methods with a drafting head cost in their pictures",
    "fidelity-cascade": "What CASCADE costs, beside others on the same tree",
    "fidelity-jacobi": "What Jacobi methods cost",
    "fidelity-residuals": "LANTERN++ with three residuals",
    "quality": "What the embedded model draws",
}
ALT = {
    "pareto": "Four prices of every relaxed method against its accepted length",
    "pareto-sheet": "Pictures of eight prompts by AR, EAGLE-1, LANTERN++ and COOL-SD at like accepted lengths",
}

# Rows of `benchmarks.quality` that are shares of pictures -> where their intervals stand.
READ_BACK = {
    "object read back": ("seen", "object"),
    "object read back, unseen pairs": ("held_out", "object"),
    "place read back": ("all", "place"),
}


def span(values: Interval, form: str) -> str:
    """Median and interval, as in 1.32 (1.30–1.35)."""
    return f"{values.median:{form}} ({values.low:{form}}–{values.high:{form}})"


def title(method: MethodRecord) -> str:
    """The method's class, and what its settings were told beside the model's defaults."""
    return " ".join([f"`{method.pipeline}`", *(f"{name}={value}" for name, value in method.settings.items())])


def counted(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)


def losers(methods: Iterable[MethodRecord]) -> str:
    """A sentence that names the methods that certainly lost, nothing where there is none."""
    names = [title(method) for method in methods if method.speedup.high < 1]
    return f"\nSlower than AR on this machine: {', '.join(names)}.\n" if names else ""


def row(method: MethodRecord, is_reference: bool) -> str:
    cells = [
        title(method),
        span(method.seconds, ".2f"),
        span(method.ms_per_token, ".2f"),
        f"{method.nfe:.0f}",
        f"{method.accepted_length:.2f}",
        "1" if is_reference else span(method.speedup, ".2f"),
        f"{method.ceiling:.2f}",
        f"{method.outside_share:.0%}",
    ]
    return f"| {' | '.join(cells)} |\n"


def table(record: RaceRecord) -> str:
    """One race: what was measured where, a row per method, the forward's own times."""
    machine = record.machine
    forwards = ", ".join(f"{milliseconds:.1f} ({n})" for n, milliseconds in record.forward_ms.items())
    return (
        f"{len(record.prompts)} images of {record.image_tokens} tokens by `{record.model}`, {record.date}: "
        f"{machine.processor}, {machine.cores} cores, {counted(machine.threads, 'thread')}, {machine.dtype}, "
        f"torch {machine.torch}.\nMedians with 95 % bootstrap intervals; text encoding and the decoding of tokens to "
        "pixels are not on the clock. Speed-ups are over AR's pictures of the same prompts and seeds; the ceiling is "
        "the speed-up if only drafting and forwards took time; outside is the share of time outside all forwards.\n\n"
        + HEAD
        + "".join(row(method, name == "ar") for name, method in record.methods.items())
        + losers(record.methods.values())
        + f"\nOne pass in ms, by the number of tokens it checks: {forwards}.\n"
        f"The matrix products of one pass over one token take {record.products_ms:.2f} ms by themselves; "
        f"AR spends {record.products_ratio:.1f} times that per token.\n"
    )


def quantity(value: float, unit: str) -> str:
    return f"{value:.1%}" if unit == "%" else f"{value:.4g} {unit}".strip()


def goals(path: Path) -> str:
    """What `benchmarks.quality` found, a row per goal."""
    found = json.loads(path.read_text())
    shares = {figure: found["read_back"][group][part] for figure, (group, part) in READ_BACK.items()}
    rows = ""
    for goal in found["goals"]:
        value, wanted, aim = (quantity(goal[name], goal["unit"]) for name in ("value", "ship", "aim"))
        if goal["figure"] in shares:
            share = shares[goal["figure"]]
            value += f" ({share['low']:.1%}–{share['high']:.1%}, n = {share['n']})"
        rows += f"| {goal['figure']} | {value} | {wanted} | {aim} |\n"
    return (
        f"{found['images']} pictures by `{found['model']}`, {found['date']}, default sampling, read back by an "
        "independent classifier, with 95 % intervals; `assets` is the most that the folder may weigh.\n\n"
        f"| figure | measured | wanted | aim |\n|---|---|---|---|\n{rows}"
    )


def drafts(path: Path) -> str:
    """What `benchmarks.shape` found, a row a draft, the fastest first."""
    record = load(path)
    raced = sorted((one for name, one in record.methods.items() if name != "ar"), key=lambda one: -one.speedup.median)
    rows = "".join(
        f"| {', '.join(f'{name} {value}' for name, value in one.settings.items())} | {one.nfe:.0f} | "
        f"{one.accepted_length:.2f} | {span(one.speedup, '.2f')} |\n"
        for one in raced
    )
    head = "| draft | passes | accepted length | speed-up over AR |\n|---|---|---|---|\n"
    return f"`{raced[0].pipeline}`, {len(record.prompts)} images a draft, the fastest first.\n\n{head}{rows}"


def prices(path: Path) -> str:
    """What `benchmarks.fidelity` or `benchmarks.pareto` found, a row a method."""
    pictures = [path.with_suffix(".png"), path.with_name(f"{path.stem}-sheet.jpg")]
    shown = "".join(f"\n![{ALT[one.stem]}](benchmarks/results/{one.name})\n" for one in pictures if one.exists())
    return price_table(json.loads(path.read_text())) + shown


def measured(folder: Path) -> str:
    """Markdown for every record in a folder: races, prices, the model's pictures, the papers' claims."""
    parts = [printed(path, lambda path: table(load(path)), "run") for path in sorted(folder.glob("run-*.json"))]
    parts += [folded(path, drafts, "shape") for path in sorted(folder.glob("shape-*.json"))]
    parts += [folded(path, prices, "fidelity") for path in sorted(folder.glob("fidelity*.json"))]
    parts += [printed(path, prices, "pareto") for path in folder.glob("pareto.json")]
    parts += [folded(path, goals, "quality") for path in folder.glob("quality.json")]
    if not parts:
        return NOTHING
    return "\n".join([*parts, "### What the papers claim\n\n" + printed(folder, claims, "claims")])


def folded(path: Path, form: Callable[[Path], str], module: str) -> str:
    """As `printed`, behind a line that opens it."""
    title = FOLDED.get(path.stem, path.stem)
    return f"<details><summary>{title}</summary>\n\n{printed(path, form, module)}\n</details>\n"


def printed(path: Path, form: Callable[[Path], str], module: str) -> str:
    """A record as Markdown. Raises ValueError, which names the file, where it is not what `module` writes."""
    try:
        return form(path)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"`{path}` is not a record of benchmarks.{module}; measure again or remove it.") from error


def render(readme: str, folder: Path) -> str:
    """The README's text with its measured part replaced. Raises ValueError where the marker lines are missing."""
    if not MARKERS.search(readme):
        raise ValueError("`README.md` lacks the lines `<!-- measured: … -->` and `<!-- /measured -->`; put them back.")
    return MARKERS.sub(lambda found: found[1] + measured(folder) + found[3], readme)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the committed records in the README.")
    parser.add_argument("--check", action="store_true", help="change nothing, fail where the README differs")
    check = parser.parse_args().check
    if not README.is_file():
        raise ValueError(f"`{README}` must be the README with the marker lines; there is no such file.")
    readme = README.read_text()
    wanted = render(readme, RESULTS)

    if not check:
        README.write_text(wanted)
    elif wanted != readme:
        sys.exit("README.md differs from benchmarks/results; run: python -m benchmarks.report")


if __name__ == "__main__":
    command(main)
