"""Jacobi decoding: at temperature 0 the fixed point of the target's own choice; what a run tells of its squares."""

import numpy as np
import pytest
import torch
from conftest import generate
from jacobi_laws import LAYOUT, TARGET, assert_greedy, opened

from pipelines import JacobiPipeline, SJDPipeline
from pipelines.decoding.history import GUESSES, PASSES, RIVALS, History
from pipelines.decoding.jacobi_drafter import AsPoints, JacobiDrafter
from pipelines.decoding.rules import ExactRule
from pipelines.decoding.verify import Verdict
from pipelines.models.protocol import Scores
from pipelines.primitives.chance import Chance
from tests import tiny


def points(session):
    return AsPoints(JacobiDrafter(session.layout, 3, "uniform"))


def test_temperature_0_is_greedy_autoregression():
    assert_greedy(points)


@pytest.fixture(scope="module")
def pipes():
    parts = tiny.components(grid_size=8)
    return {kind: kind(**parts) for kind in (JacobiPipeline, SJDPipeline)}


def trace(pipe, **settings):
    pipe.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(3)
    return pipe("a panda on snow", generator=generator, output_type="latent", **settings).traces[0]


def test_greedy_jacobi_takes_fewer_passes_and_keeps_what_equals_the_row(pipes):
    run = trace(pipes[JacobiPipeline], temperature=0.0)
    assert run.complete and run.nfe < 64, "nothing was kept"
    for step in run.steps:
        judged = ~np.isnan(step.accept_prob)
        assert set(step.accept_prob[judged].tolist()) <= {0.0, 1.0} and (step.q == 1).all()
        assert ((step.accept_prob == 1) == (step.top_tokens[:-1, 0] == step.tokens))[judged].all()


def test_guesses_as_points_are_kept_less_often(pipes):
    assert trace(pipes[SJDPipeline]).nfe < trace(pipes[JacobiPipeline]).nfe


def test_a_run_tells_how_each_square_came_about():
    """Told once, in the pass that places it, against laws kept beside the run."""
    seen: list[tuple[int, Scores, list[int]]] = []

    class Watched(JacobiDrafter):
        def observe(self, draft, scores, verdict, chance):
            seen.append((self.final, scores, draft.tokens))
            super().observe(draft, scores, verdict, chance)

    chance = Chance(torch.Generator().manual_seed(0))
    for _ in range(20):
        seen.clear()
        steps = generate(opened(), Watched(LAYOUT, 3, "copy_left"), ExactRule(), chance)
        for step, (first, *_) in zip(steps, seen):
            notes = step.notes
            assert first == step.start and len(notes["past_tokens"]) == len(step.committed)
            assert notes["past_tokens"][:, 0].tolist() == step.committed.tolist()
            for square, position in enumerate(range(first, first + len(step.committed))):
                told = notes["past_probs"][square]
                assert sorted(notes["past_tokens"][square, : RIVALS + 1][:3].tolist()) == [0, 1, 2]
                passes = seen[: step.index + 1][-len(told) :]
                for row, guess, (start, laws, guesses) in zip(told, notes["past_guesses"][square], passes):
                    at = position - start
                    if at >= len(laws.guided):
                        assert np.isnan(row).all() and guess == -1, "a pass that did not come so far is told of"
                        continue
                    assert guess == (guesses[at] if at < len(guesses) else -1)
                    for token, prob in zip(notes["past_tokens"][square].tolist(), row.tolist()):
                        assert token == -1 or prob == pytest.approx(float(laws.guided[at, token]), abs=1e-6)
            assert not np.isnan(notes["past_probs"][0, 0, 0]), "a pass that saw none of the squares is told of"
    assert TARGET.vocabulary == 3


def test_a_long_history_is_cut_to_the_newest_passes_and_guesses():
    """A square that is guessed anew for fifty passes, always another token, while the first one is drawn again."""
    history, vocabulary = History(), 64
    law = torch.arange(vocabulary).float().softmax(0).expand(3, -1)  # rivals from 63 down
    for turn in range(50):
        history.add(
            turn, [turn % vocabulary, 7], Verdict([], 9, [], [], []), Scores(law, law, law[None], None), law[1:]
        )
    assert len(history.passes) == 3, "a pass that saw no live square is kept"
    history = History()
    for turn in range(50):
        history.add(0, [turn, 7], Verdict([], 9, [], [], []), Scores(law, law, law[None], None), law[1:])
    notes = history.notes()
    assert notes["past_guesses"].tolist() == [list(range(50 - PASSES, 50))]
    assert notes["past_probs"].shape == (1, PASSES, 1 + RIVALS + GUESSES)
    newest = notes["past_tokens"][0, -GUESSES:].tolist()
    assert newest == list(range(49, 49 - GUESSES, -1)), "not the newest guesses are told"
