"""The embedded model's first tokens under each lossless method follow the law that AR draws them from.

Dice are seeded, so a test says the same every time. For each new set of weights a correct method fails by bad luck
with a probability of at most 2 LEAST, being tested on two and on three tokens. A broken twin falls far below LEAST.
"""

import pytest
import torch
from torch import Tensor

import pipelines
from benchmarks.run import EMBEDDED
from pipelines.base import ARImagePipeline
from pipelines.decoding.jacobi_drafter import JacobiDrafter
from pipelines.decoding.rules import ExactRule
from pipelines.model_folder import origin_of
from tests.chi_square import EXPECTED, draws, p_value, target_law


PROMPT = "a rocket in the night sky"  # few tokens are likely there, so that cells of their own hold most of the mass
GUIDANCE = 3.0
RUNS = 600
TOKENS = 3  # the second is guessed before the target has seen its square, the third from what the target said of it
LEAST = 1e-4

LOSSLESS = {
    "Jacobi": ("JacobiPipeline", {"window": 4}),
    "SJD": ("SJDPipeline", {"window": 4}),
    "SJD from the left": ("SJDPipeline", {"window": 4, "start": "sample_left"}),
    "SJD, maximal coupling": ("SJDPipeline", {"window": 4, "coupling": "maximal"}),
    "Speculative": ("SpeculativePipeline", {"length": 3}),
    "Speculative, tree": ("SpeculativePipeline", {"draft": "static", "tree": 6}),
    "SJD-VP": ("SJDVPPipeline", {"window": 4, "growth_steps": 1, "gain": 3.0}),
}


class LeftLaw(JacobiDrafter):
    """Broken: says that each guess was drawn from the law of the square before."""

    def _guess(self, position: int, token: int, law: Tensor) -> None:
        super()._guess(position, token, self.laws.get(position - 1, law))


class LeftLawPipeline(pipelines.SJDPipeline):
    def method(self, settings, session):
        return LeftLaw(session.layout, settings.window, settings.start), ExactRule()


@pytest.fixture(scope="module")
def shipped() -> ARImagePipeline:
    pipe = pipelines.ARPipeline.from_pretrained(EMBEDDED, dtype=torch.float32)
    # Unfiltered: of a token that a filtered law excludes, `walk` would notice a wrong q at once.
    origin_of(pipe.transformer).defaults["sampling"] = {"guidance_scale": GUIDANCE}
    return pipe


@pytest.fixture(scope="module")
def laws(shipped: ARImagePipeline) -> dict[int, dict]:
    """The target's law of the first two and of the first three tokens."""
    return {count: target_law(shipped, PROMPT, count, EXPECTED / RUNS) for count in (2, TOKENS)}


def p_values(pipe: ARImagePipeline, laws: dict) -> dict[int, float]:
    """By number of tokens, all from the same runs."""
    found = draws(pipe, PROMPT, TOKENS, RUNS, seed=1)
    return {count: p_value([tokens[:count] for tokens in found], law) for count, law in laws.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSLESS)
def test_first_tokens_follow_the_targets_law(name: str, shipped: ARImagePipeline, laws: dict):
    method, settings = LOSSLESS[name]
    found = p_values(getattr(pipelines, method)(**shipped.components, settings=settings), laws)
    assert min(found.values()) > LEAST, f"p by number of tokens: {found}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SJD", "SJD from the left"])
def test_the_left_neighbours_law_for_q_is_noticed(name: str, shipped: ARImagePipeline, laws: dict):
    found = p_values(LeftLawPipeline(**shipped.components, settings=LOSSLESS[name][1]), laws)
    assert found[TOKENS] < LEAST / 100, f"p by number of tokens: {found}"


def test_the_p_value_of_a_coin():
    """60 heads of 100: X^2 = 4 at one degree of freedom, that is two standard deviations of a normal law."""
    tosses = [(0,)] * 60 + [(1,)] * 40
    assert p_value(tosses, {(0,): 0.5}) == pytest.approx(0.0455, abs=1e-4)
    assert p_value(tosses[10:], {(0,): 50 / 90}) == pytest.approx(1)


def test_rare_sequences_share_a_cell():
    tosses = [(0,)] * 60 + [(1,)] * 40
    assert p_value(tosses, {(0,): 0.5, (1,): 0.04, (2,): 0.01}) == p_value(tosses, {(0,): 0.5})
