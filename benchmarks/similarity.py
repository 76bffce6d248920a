"""Are guesses alike to the target where their codes are? Cosines of CASCADE's states, by region and codebook distance.

    python -m benchmarks.similarity --images 32

Trees are drawn and judged exactly, with a budget of nothing, so their states are the target's own. Prompts are
held-out pairs of the training data; a JSON file and a figure are kept. The thresholds printed are those at which 30 %
of guesses have another of their level to borrow from, and 25 % their parent.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from accelerate import PartialState

from benchmarks.certainty import held_out_prompts
from benchmarks.record import RESULTS, command
from benchmarks.run import EMBEDDED, race
from pipelines import CascadePipeline
from pipelines.pipeline_cascade import CascadeRule, similarities
from pipelines.primitives.trace import Step
from pipelines.primitives.tree import depths
from visualize.cascade_similarity import figure
from visualize.export import figure_png


INTERCHANGEABLE, CONVERGENT = 0.30, 0.25  # shares of guesses that the two thresholds let borrow
EDGES = np.linspace(-1, 1, 41)


class BothRule(CascadeRule):
    """Tells the cosines of the states as they are too, as `raw`."""

    def explain(self) -> dict[str, np.ndarray]:
        notes = super().explain()
        return notes | {"raw": similarities(self.compared[0].hidden[0], None).cpu().numpy()} if notes else notes


class BothPipeline(CascadePipeline):
    """CASCADE under `BothRule`."""

    def method(self, settings, session):
        drafter, rule = super().method(settings, session)
        return drafter, BothRule(rule.settings, rule.session, rule.mean)


def pairs(step: Step) -> tuple[np.ndarray, np.ndarray]:
    """Two nodes of one level with other tokens, [n, 2], and node and parent, [N, 2], as rows: the root is 0."""
    depth, nodes = np.array(depths(step.parents.tolist())), np.arange(len(step.tokens))
    same = (depth[:, None] == depth) & (step.tokens[:, None] != step.tokens)
    return np.argwhere(np.triu(same)) + 1, np.stack([nodes, step.parents], -1) + 1


def ranks(values: np.ndarray) -> np.ndarray:
    """[n] places from 0 in order of size, equals at the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[which]


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's, of two columns [n]."""
    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def nearest(step: Step, level: np.ndarray, kind: str) -> np.ndarray:
    """[N] cosine of the state most alike in the level; -inf where a node is alone in it."""
    most, cosines = np.full(len(step.tokens) + 1, -np.inf), step.notes[kind][*level.T]
    for end in level.T:
        np.maximum.at(most, end, cosines)
    return most[1:]


def measure(steps: Sequence[Step], codebook: np.ndarray) -> dict:
    """What the file keeps; codebook: [V, e]. Entropy is of the law that the node's square was judged by, in nats."""
    steps = [step for step in steps if "similarity" in step.notes]
    found = [(step, *pairs(step)) for step in steps]
    join = np.concatenate
    unsure = join([step.entropy[step.parents + 1] for step in steps])
    edges = np.quantile(unsure, [0, 0.25, 0.5, 0.75, 1])
    region = np.clip(np.searchsorted(edges, unsure, side="right") - 1, 0, 3)
    apart = join([np.linalg.norm(codebook[step.tokens[a - 1]] - codebook[step.tokens[b - 1]], axis=-1)
                  for step, level, _ in found for a, b in [level.T]])  # fmt: skip
    siblings = join([step.parents[level[:, 0] - 1] == step.parents[level[:, 1] - 1] for step, level, _ in found])
    kinds = {}
    for name, kind in (("centred", "similarity"), ("raw", "raw")):
        level = join([step.notes[kind][*level.T] for step, level, _ in found]).astype(np.float64)
        parent = join([step.notes[kind][*edge.T] for step, _, edge in found]).astype(np.float64)
        most = join([nearest(step, level, kind) for step, level, _ in found]).astype(np.float64)
        thresholds = np.quantile(most, 1 - INTERCHANGEABLE), np.quantile(parent, 1 - CONVERGENT)
        kinds[name] = {
            "tau_level": round(float(thresholds[0]), 3),
            "tau_parent": round(float(thresholds[1]), 3),
            "rank_correlation": round(rank_correlation(level, apart), 3),
            "rank_correlation_siblings": round(rank_correlation(level[siblings], apart[siblings]), 3),
            "level": np.histogram(np.clip(level, -1, 1), EDGES)[0].tolist(),
            "parent": np.histogram(np.clip(parent, -1, 1), EDGES)[0].tolist(),
            "regions": [
                {
                    "entropy": [round(float(edge), 3) for edge in edges[at : at + 2]],
                    "most_alike": round(float(most[(region == at) & np.isfinite(most)].mean()), 3),
                    "parent": round(float(parent[region == at].mean()), 3),
                    "interchangeable": round(float((most[region == at] >= thresholds[0]).mean()), 3),
                    "convergent": round(float((parent[region == at] >= thresholds[1]).mean()), 3),
                }
                for at in range(4)
            ],
        }  # fmt: skip
    return {"guesses": len(unsure), "pairs": len(apart), "edges": EDGES.round(2).tolist(), **kinds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--model", type=Path, default=EMBEDDED)
    args = parser.parse_args()
    prompts = held_out_prompts(args.images)
    shared = CascadePipeline.from_pretrained(args.model, dtype=torch.float32).to(PartialState().device)
    pipe = BothPipeline(**shared.components, settings={"delta": 0.0, "draft": "static", "tree": 15})
    (traces,) = race({"cascade": pipe}, prompts, seed=0).values()
    steps = [step for trace in traces for step in trace.steps]
    found = {"images": args.images} | measure(steps, pipe.model.codebook().float().cpu().numpy())
    (RESULTS / "similarity.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "similarity.png").write_bytes(figure_png(figure(found)))
    for name in ("centred", "raw"):
        print(name, *(f"{key} {found[name][key]}" for key in ("tau_level", "tau_parent", "rank_correlation")))


if __name__ == "__main__":
    command(main)
