"""Speed against its price, for every relaxed method over its own knob.

    python -m benchmarks.pareto --images 100 --timed 6 --threads 1

Pictures are kept as `benchmarks.fidelity` keeps them, so a run that was cut short goes on where it was. Speed is taken
on fewer pictures, all points taking turns with AR: let nothing else run meanwhile. Leaves a JSON file, a figure, and a
contact sheet of the methods at like accepted lengths.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from benchmarks import fidelity, quality, run
from benchmarks.quality import JUDGE
from benchmarks.record import RESULTS, command
from benchmarks.run import EMBEDDED, REFERENCE, entrants, example_prompts
from pipelines.models.patch_tokenizer import PatchTokenizer
from training import scenes
from visualize.export import figure_file, figure_png
from visualize.pareto import contact_sheet, pareto


FAMILIES = {
    "COOL-SD δ": ("cool-sd:delta={}", (1.1, 1.5, 2, 3, 5)),
    "UniformRSD δ": ("uniform-rsd:delta={}", (1.1, 1.3, 1.6, 2, 3)),
    "LANTERN++ λ": ("lantern-plus-plus:draft=chain:length=3:lam={}", (2, 4, 8, 16)),
    "LANTERN δ": ("lantern:delta={}", (0.05, 0.1, 0.2, 0.4)),
    "EAGLE-1": ("speculative", (None,)),
}
SHEET_LENGTHS = (2.9, 3.1, 3.3)  # accepted lengths at which pictures are put side by side
SHEET_FAMILIES = ("LANTERN++ λ", "COOL-SD δ")
SHEET_PROMPTS = 8


def names() -> dict[str, list[str]]:
    """Family -> its points as `benchmarks.run` writes them."""
    return {family: [form.format(value) for value in values] for family, (form, values) in FAMILIES.items()}


def matched(points: dict[str, fidelity.Point], family: str, length: float) -> str:
    """The point of a family whose accepted length is nearest."""
    return min(names()[family], key=lambda name: abs(points[name].accepted_length - length))


def sheet(points: dict[str, fidelity.Point], options: argparse.Namespace) -> Any:
    """Figure of the first prompts' pictures: AR, EAGLE-1, and two families at like accepted lengths."""
    chosen = {"AR": REFERENCE, "EAGLE-1": "speculative"}
    for length in SHEET_LENGTHS:
        for family in SHEET_FAMILIES:
            name = matched(points, family, length)
            value, reached = name.split("=")[-1], points[name].accepted_length
            title = f"{family} {value}\n{reached:.1f} a pass"
            chosen[title] = name
    base, tokenizer = run.opened(options.model), PatchTokenizer.from_pretrained(options.model / "vqvae").float()
    asked = quality.tasks(options.images, options.seed)[:SHEET_PROMPTS]
    columns = {}
    for title, name in chosen.items():
        pipe = fidelity.method(base, entrants([name])[name])
        drawn = fidelity.draw(pipe, asked, options.keep / fidelity.file_of(pipe, options.seed), options.seed, name)
        images = quality.decode(tokenizer.eval(), torch.tensor([one.tokens for one in drawn]))
        pixels = ((images.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy()
        columns[title] = [Image.fromarray(picture) for picture in pixels]
    return contact_sheet(columns, [task.prompt for task in asked])


def main() -> None:
    parser = argparse.ArgumentParser(description="Race speed against its price.")
    parser.add_argument("--images", type=int, default=100, help="pictures a point for its price")
    parser.add_argument("--timed", type=int, default=6, help="pictures a point for its speed")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of the CPU, for speed")
    parser.add_argument("--seed", type=int, default=0, help="of the first picture; the next has the next seed")
    parser.add_argument("--model", type=Path, default=EMBEDDED, help="a model folder")
    parser.add_argument("--judge", type=Path, default=JUDGE, help="folder of the classifier")
    parser.add_argument("--keep", type=Path, default=scenes.CACHE / "fidelity", help="folder of drawn tokens")
    parser.add_argument("--out", type=Path, default=RESULTS / "pareto.json", help="JSON file; figures go beside it")
    parser.set_defaults(sheet=None)
    options = parser.parse_args()
    quality.check(options)
    if options.timed < 1:
        raise ValueError(f"`--timed` must be at least 1, got {options.timed}; 6 gives a usable interval.")
    if options.threads < 1:
        raise ValueError(f"`--threads` must be at least 1, got {options.threads}.")
    asked = entrants([name for family in names().values() for name in family])
    priced = fidelity.measure(asked, options)
    torch.set_num_threads(options.threads)
    raced = run.measure(options.model, asked, example_prompts(options.model, options.timed), options.seed)
    points: dict[str, fidelity.Point] = priced["methods"]
    rows = {name: dataclasses.asdict(one) | {"speedup": raced.methods[name].speedup} for name, one in points.items()}
    record = priced | {"timed": options.timed, "machine": raced.machine, "families": names(), "methods": rows}
    options.out.write_text(json.dumps(record, indent=2, ensure_ascii=False, default=dataclasses.asdict) + "\n")
    families = {family: [rows[name] for name in members] for family, members in names().items()}
    reference = points[REFERENCE]
    levels = {name: getattr(reference, name) for name in ("infidelity", "log_likelihood")}
    figure = pareto(families, levels | {"fidelity": reference.fidelity.share, "frechet": priced["again"].frechet})
    options.out.with_suffix(".png").write_bytes(figure_png(figure))
    options.out.with_name(f"{options.out.stem}-sheet.jpg").write_bytes(figure_file(sheet(points, options), "jpg"))
    print(f"{fidelity.report(priced)}\n\nWritten to {options.out}.")


if __name__ == "__main__":
    command(main)
