"""What sessions owe their users, shown on the table; families run the same checks on theirs."""

import pytest
import torch
from conftest import Table, check_session

from pipelines.primitives.distributions import Warp, guide
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import EMPTY


TARGET = Table(seed=3, vocabulary=3, length=5)


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("layout", [Layout(1, 5), Layout(2, 2, {2: 1})])
def test_a_table_keeps_the_sessions_word(layout, scale):
    check_session(lambda: TARGET.open(Warp(temperature=0.8, top_k=2), scale, layout), 1e-12)


def test_row_0_is_conditional_and_row_1_is_not():
    session = TARGET.open(Warp(), 3.0, Layout(1, 5))
    scores = session.score(EMPTY)
    logits = scores.hidden[:, 0] @ TARGET.head.T
    torch.testing.assert_close(scores.probs[0], guide(logits[0], logits[1], 3.0).softmax(-1))
    alone = TARGET.open(Warp(), 1.0, Layout(1, 5)).score(EMPTY)
    torch.testing.assert_close(alone.hidden[0], scores.hidden[0])
