"""Which draft brings the most tokens a second on this machine: chains of every length, static and dynamic trees.

    python -m benchmarks.shape --method speculative --threads 1

The answer goes into the model's `method_defaults.json` by hand, for it holds for one machine only.
"""

import argparse
from pathlib import Path

from benchmarks.record import RESULTS, RaceRecord, check_writable, command
from benchmarks.report import table
from benchmarks.run import EMBEDDED, REFERENCE, entrants, example_prompts, measure, use_threads
from pipelines.primitives.tree import STATIC_TREES


CHAINS = range(1, 7)
DYNAMIC = ((2, 3, 6), (3, 4, 10), (4, 5, 16))  # width, length, nodes


def shapes(method: str) -> list[str]:
    """The method with each draft, as `benchmarks.run` writes it."""
    chains = [f"draft=chain:length={length}" for length in CHAINS]
    trees = [f"draft=static:tree={nodes}" for nodes in STATIC_TREES]
    grown = [f"draft=dynamic:tree_width={w}:length={length}:tree_nodes={nodes}" for w, length, nodes in DYNAMIC]
    name, *settings = method.split(":")
    return [":".join([name, *settings, shape]) for shape in chains + trees + grown]


def best(record: RaceRecord) -> str:
    """The draft with the largest speed-up over AR, by medians."""
    raced = {name: found for name, found in record.methods.items() if name != REFERENCE}
    return max(raced, key=lambda name: raced[name].speedup.median)


def main() -> None:
    parser = argparse.ArgumentParser(description="Race the drafts of a method.")
    parser.add_argument("--method", default="speculative", help="its short name, with settings if wanted")
    parser.add_argument("--images", type=int, default=8, help="pictures per draft")
    parser.add_argument("--seed", type=int, default=0, help="of the first picture; the next has the next seed")
    parser.add_argument("--threads", type=int, help="of the CPU; what torch takes by itself if not given")
    parser.add_argument("--model", type=Path, default=EMBEDDED, help="a model folder")
    parser.add_argument("--out", type=Path, help="JSON file; benchmarks/results/shape-METHOD.json if not given")
    options = parser.parse_args()
    asked = entrants(shapes(options.method))
    prompts = example_prompts(options.model, options.images)
    use_threads(options.threads)
    out = options.out or RESULTS / f"shape-{options.method.split(':')[0]}.json"
    check_writable("--out", out)
    record = measure(options.model, asked, prompts, options.seed)
    record.save(out)
    print(f"{table(record)}\nFastest: {best(record)}. Written to {out}.")


if __name__ == "__main__":
    command(main)
