"""Guesses from memory: which past law is recalled, and that such guesses leave the law of the pictures alone."""

import pytest
import torch
from chi_square import p_value
from conftest import assert_same_law, gap, laws_only
from jacobi_laws import assert_greedy, output_law, run, target_law
from test_coupling import LEAST, RUNS, OneNoise, opened_long

from pipelines import SJDVPPipeline
from pipelines.decoding.coupling import Gumbel, afresh, maximal
from pipelines.decoding.history import Pass
from pipelines.decoding.recall import RecallDrafter, recalled
from pipelines.decoding.rules import ExactRule
from pipelines.decoding.verify import Walk
from pipelines.primitives.chance import Chance
from tests import tiny


close = pytest.approx


def remembering(kind=RecallDrafter, couple=afresh):
    return lambda session: kind(session.layout, 3, "copy_left", couple)


@pytest.mark.parametrize("couple", [afresh, maximal])
def test_recalled_guesses_leave_the_law_alone(couple):
    changed, drafters = [], []

    def remembered(session):
        drafters[:] = [remembering(couple=couple)(session)]
        return drafters[0]

    def watch(draft, judged):
        if passes := drafters[0].history.passes:
            newest = passes[-1].scores.probs[len(passes[-1].placed) :]
            pairs = enumerate(zip(newest, draft.q))
            changed.extend(node for node, (raw, q) in pairs if node in judged and (q - raw).abs().max() > 0.01)

    assert_same_law(output_law(remembered, watch=watch), target_law())
    assert changed, "no guess that was judged had been drawn from a law of old: nothing is proven"


class WrongQ(RecallDrafter):
    """Broken: the q that is told leans towards the newest law, which the guess was not drawn from."""

    def redraw(self, laws, tokens, before, chance):
        super().redraw(laws, tokens, before, chance)
        newest = self.history.passes[-1].scores.probs[-len(laws) :]
        for offset, mixed in enumerate((laws + newest) / 2):
            self.laws[self.final + offset] = mixed


def test_recalled_guesses_judged_as_if_from_another_law_are_seen():
    assert gap(output_law(remembering(WrongQ)), target_law()) > 1e-3


def test_the_past_that_agrees_for_longest_is_recalled():
    """By hand: laws of position 5, of passes that guessed other tokens before it."""

    def one(first: int, guesses: list[int], mass: float) -> Pass:
        laws = torch.full((len(guesses) + 1, 2), mass)
        return Pass(first, guesses, [], laws_only(laws), laws)

    line = {2: 7, 3: 8, 4: 9}
    passes = [one(2, [7, 8, 1], 0.1), one(2, [1, 8, 9], 0.2), one(3, [1, 9, 4], 0.3), one(3, [8, 1], 0.4)]
    assert recalled(passes, 5, line).tolist() == close([0.2, 0.2]), "position 4 and 3 agree"
    assert recalled([*passes, one(3, [8, 9], 0.5)], 5, line).tolist() == close([0.5, 0.5]), "all that was read agrees"
    assert recalled(passes, 5, line | {3: 2}).tolist() == close([0.25, 0.25]), "two agree in position 4"
    assert recalled(passes, 5, line | {4: 3}).tolist() == close([0.25, 0.25]), "none does"
    assert recalled([one(6, [], 0.7), *passes], 5, line | {4: 4}).tolist() == close([0.25, 0.25]), "5 was not seen"


@pytest.mark.parametrize(("couple", "is_sound"), [(Gumbel, True), (OneNoise, False)])
def test_recalled_guesses_of_a_squares_own_noise_leave_the_law_alone(couple, is_sound):
    chance = Chance(torch.Generator().manual_seed(3))

    def make(session):
        return RecallDrafter(session.layout, 7, "copy_left", couple())

    found = [run(make, chance, Walk(ExactRule()), opened_long) for _ in range(RUNS)]
    law = opened_long().joint()
    law.pop(min(law, key=law.get))  # all that is not named is one cell
    told = p_value(found, law)
    assert (told > LEAST) == is_sound, f"p = {told:.1e}"


def test_temperature_0_is_greedy_autoregression():
    assert_greedy(remembering())


@pytest.mark.parametrize("coupling", ["none", "maximal", "gumbel"])
def test_a_whole_run_draws_from_memory(coupling):
    """With every way of drawing."""
    pipe = SJDVPPipeline(**tiny.components(grid_size=8))
    pipe.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(3)
    settings = {"fusion": "recall", "coupling": coupling}
    trace = pipe("a panda on snow", generator=generator, output_type="latent", **settings).traces[0]
    assert trace.complete and trace.nfe < 64 and all(step.draft_calls == 0 for step in trace.steps)
