"""Losses of drafting heads: worked cases of EAGLE-3's, and which states are redundant."""

import json
from pathlib import Path

import pytest
import torch

from training.draft_losses import REACHES, cross_entropy, redundant, unrolled_loss, weighted_mean


CASES = json.loads((Path(__file__).parent / "vectors" / "drafter.json").read_text())["eagle3_ttt_loss"]


@pytest.mark.parametrize("case", CASES)
def test_the_unrolled_loss_of_worked_cases(case):
    logits = torch.tensor(case["draft_logits_SxTxV"], dtype=torch.float64)
    laws = torch.tensor(case["target_logits_SxTxV"], dtype=torch.float64).softmax(-1)
    mask = torch.tensor(case["mask_SxT"], dtype=torch.float64)
    steps = [(cross_entropy(law, guess) * seen).mean().item() for guess, law, seen in zip(logits, laws, mask)]
    assert steps == pytest.approx(case["ploss_per_step"], abs=1e-9)
    found = unrolled_loss(list(logits[:, None]), list(laws[:, None]), list(mask[:, None]))
    assert found.item() == pytest.approx(case["loss"], abs=1e-9)


def test_a_state_is_redundant_where_a_later_one_in_reach_is_like_it():
    east, north = [1.0, 0.0], [0.0, 1.0]
    states = torch.tensor([[east, north, [-1.0, 0.0], [0.0, -1.0], [0.0, -1.0], east, north, [-1.0, 0.0]]])
    assert states.mean(1).abs().max() == 0
    assert redundant(states, None)[0].tolist() == [True, True, True, True, False, False, False, False]
    assert redundant(states, 4)[0].tolist() == [False, False, False, True, False, False, False, False]
    assert redundant(states, 5)[0].tolist() == [True, True, True, True, False, False, False, False]
    assert not redundant(states, REACHES["none"]).any()


def test_what_all_states_share_makes_none_redundant():
    states = torch.eye(4)[None] + 100
    assert not redundant(states, None).any()


def test_redundant_rows_count_twice_and_the_scale_stays():
    losses, flagged = torch.tensor([[3.0, 6.0]]), torch.tensor([[True, False]])
    assert weighted_mean(losses, flagged) == 4.0
    assert weighted_mean(losses, ~flagged & flagged) == 4.5 == weighted_mean(losses, flagged | ~flagged)
