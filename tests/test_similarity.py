"""What is measured of likeness: which pairs count, ranks with ties, thresholds that let the share borrow they say."""

import json
from dataclasses import replace

import numpy as np
import pytest
from rounds import a_round

from benchmarks.run import EMBEDDED
from benchmarks.similarity import EDGES, measure, nearest, pairs, rank_correlation, ranks
from pipelines.models.feature_mean import FILE
from training.publish import DEFAULTS
from visualize.cascade_similarity import figure


CODES = np.array([[0.0], [1.0], [2.0], [4.0]])


def a_tree(cosines: np.ndarray, tokens: tuple[int, ...] = (1, 2, 1, 3), start: float = 0.0):
    """Three children of the root, two of them of one token, and a child of the first. start: entropy of the root."""
    step = a_round(1, 1, tokens=tokens, parents=(-1, -1, -1, 0))
    return replace(step, entropy=start + np.arange(5, dtype=np.float32), notes={"similarity": cosines, "raw": cosines})


def test_pairs_are_of_one_level_and_other_tokens():
    level, edges = pairs(a_tree(np.eye(5)))
    assert level.tolist() == [[1, 2], [2, 3]]
    assert edges.tolist() == [[1, 0], [2, 0], [3, 0], [4, 1]]


def test_the_most_alike_is_found_for_both_of_a_pair():
    cosines = np.eye(5)
    cosines[1, 2] = cosines[2, 1] = 0.8
    cosines[2, 3] = cosines[3, 2] = 0.3
    step = a_tree(cosines)
    assert nearest(step, pairs(step)[0], "raw").tolist() == [0.8, 0.8, 0.3, -np.inf]


def test_ranks_share_a_place_between_equals():
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [2.5, 0, 2.5, 1]
    values = np.array([0.1, 0.5, 0.2, 0.9])
    assert rank_correlation(values, values**3) == pytest.approx(1)
    assert rank_correlation(values, -np.exp(values)) == pytest.approx(-1)


def test_thresholds_and_regions_come_from_the_same_guesses():
    rng, steps = np.random.default_rng(0), []
    for start in rng.uniform(0, 3, 200):
        drawn = rng.uniform(-1, 1, (5, 5))
        steps.append(a_tree((drawn + drawn.T) / 2, (0, 1, 3, 2), start))
    found = measure([a_round(), *steps], CODES)
    own = found["centred"]
    assert (found["guesses"], found["pairs"]) == (800, 600) and own == found["raw"]
    assert sum(own["level"]) == 600 and sum(own["parent"]) == 800 and len(own["level"]) == len(EDGES) - 1
    shares = [np.mean([region[kind] for region in own["regions"]]) for kind in ("interchangeable", "convergent")]
    assert shares == pytest.approx([0.30, 0.25], abs=0.05)
    assert abs(own["rank_correlation"]) < 0.15, "drawn without regard to the codebook"


def test_near_codes_with_like_states_correlate_downwards():
    cosines = np.eye(5)
    for (a, b), cosine in {(1, 2): 0.9, (2, 3): 0.5, (1, 3): 0.1}.items():
        cosines[a, b] = cosines[b, a] = cosine
    steps = [a_tree(cosines, (0, 1, 3, 2), start) for start in (0, 2, 4, 6)]  # codes 0, 1 and 4 along a line
    assert measure(steps, CODES)["raw"]["rank_correlation"] == pytest.approx(-1)


def test_the_figure_shows_both_kinds_and_all_regions():
    drawn = np.random.default_rng(1).uniform(-1, 1, (5, 5))
    found = measure([a_tree((drawn + drawn.T) / 2, (0, 1, 3, 2), start) for start in (0, 2, 4, 6)], CODES)
    axes = figure(found).axes
    assert ["centred" in axes[0].get_xlabel(), "raw" in axes[1].get_xlabel()] == [True, True]
    assert [bar.get_height() for bar in axes[2].patches[:4]] == [
        region["interchangeable"] for region in found["centred"]["regions"]
    ]


def test_what_ships_is_what_publishing_writes_and_has_its_mean():
    assert json.loads((EMBEDDED / "method_defaults.json").read_text()) == DEFAULTS
    assert (EMBEDDED / FILE).exists()
