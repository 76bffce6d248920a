"""What several runs of two methods say together: paired ratios and how far chance alone spreads them."""

import itertools
import json
from collections.abc import Sequence

import numpy as np


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """Median of a few paired ratios and its 95 % bootstrap interval: of all resamples there are, none left out."""
    medians = np.median(list(itertools.product(ratios, repeat=len(ratios))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return {"median": float(np.median(ratios)), "low": float(low), "high": float(high)}


def told(names: Sequence[str], seeds: Sequence[int], seconds: np.ndarray, passes: np.ndarray, wanted: int) -> str:
    """Runs so far as the page takes them, JSON: seconds and passes of each lane by seed, and ratios over the first.

    seconds, passes: [runs, lanes]; wanted: how many seeds there will be.
    """
    found = {"names": list(names), "seeds": list(seeds), "wanted": wanted}
    found |= {"seconds": np.round(seconds, 4).tolist(), "passes": passes.tolist()}
    pairs = {"speedup": seconds, "fewer": passes}
    for name, counts in pairs.items():
        found[name] = [spread(counts[:, 0] / counts[:, lane]) for lane in range(1, len(names))] if len(seeds) else []
    return json.dumps(found)
