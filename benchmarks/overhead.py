"""What CASCADE's rule costs beside a pass, at the shape of LlamaGen-XL with random weights.

    python -m benchmarks.overhead

The pass checks a static tree of 57 guesses; the rule walks it, with all its comparisons of states, again and again. At
random weights nearly every guess is refused, so nearly every child of the root is tried: the dearest walk.
"""

import argparse
import json
import statistics

import torch
from accelerate import PartialState

from benchmarks.forwards import clocked
from benchmarks.record import RESULTS, command
from benchmarks.run import processor, use_threads
from pipelines.decoding.rules import ExactRule, Rule
from pipelines.decoding.verify import Walk
from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.llamagen_family import LlamaGenCondition, LlamaGenSession
from pipelines.models.protocol import Scores
from pipelines.pipeline_cascade import CascadeRule, CascadeSettings
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import EMPTY, STATIC_TREES, Draft


NODES = 57
PASSES, WALKS = 3, 40
SHAPE = {"vocab_size": 16384, "dim": 1280, "num_layers": 36, "num_heads": 20, "cls_token_num": 120}


def drafted(law: torch.Tensor) -> Draft:
    """The tree's guesses, siblings of different tokens, all under one law [V]."""
    paths = sorted(STATIC_TREES[NODES].choices, key=lambda path: (len(path), path))
    places = {path: index for index, path in enumerate(paths)} | {(): -1}
    tokens = [97 * len(path) + path[-1] for path in paths]
    return Draft(tokens, [places[path[:-1]] for path in paths], law.expand(len(paths), -1))


def walk_seconds(rule: Rule, draft: Draft, scores: Scores) -> float:
    """Median seconds of judging the draft; what is written into a trace afterwards is off the clock."""
    walk, chance = Walk(rule), Chance(torch.Generator().manual_seed(0))
    times = []
    for _ in range(WALKS):
        if isinstance(rule, CascadeRule):
            rule.judged, rule.compared = [], None
        times.append(clocked(lambda: torch.tensor(walk(draft, scores, chance).token)))
    return statistics.median(times)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, help="of the CPU; what torch takes by itself if not given")
    args = parser.parse_args()
    use_threads(args.threads)
    device = PartialState().device
    torch.manual_seed(0)
    model = LlamaGenTransformer(**SHAPE).eval().to(device)
    text = torch.randn(2, SHAPE["cls_token_num"], model.config.caption_dim, device=device)
    condition = LlamaGenCondition(text, torch.ones(SHAPE["cls_token_num"], dtype=torch.bool, device=device), {})
    session = LlamaGenSession(model, condition, 7.5, Warp(1.0, 1000, 1.0), Layout(16, 16))
    law = session.score(EMPTY).probs[0]
    session.commit(EMPTY, [], 5)
    draft = drafted(torch.full_like(law, 1 / len(law)))
    scores = session.score(draft)
    passing = statistics.median(clocked(lambda: session.score(draft).probs) for _ in range(PASSES))
    exact = walk_seconds(ExactRule(), draft, scores)
    cascade = walk_seconds(CascadeRule(CascadeSettings(), session, torch.zeros(SHAPE["dim"])), draft, scores)
    found = {"shape": SHAPE, "nodes": NODES, "processor": processor(), "threads": torch.get_num_threads()}
    found |= {"pass_ms": 1000 * passing, "exact_walk_ms": 1000 * exact, "cascade_walk_ms": 1000 * cascade}
    found["overhead"] = (cascade - exact) / passing
    (RESULTS / "overhead.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    command(main)
