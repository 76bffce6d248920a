"""Coupled guesses: likely the same as the last, and yet of their new law, so that the output law is the target's."""

import pytest
import torch
from conftest import Table, TableSession, assert_same_law, branches, gap
from jacobi_laws import assert_greedy, opened_greedy, output_law, run, target_law
from rule_laws import dirichlet

from pipelines.decoding.coupling import LONGEST, Gumbel, afresh, coupling, maximal
from pipelines.decoding.jacobi_drafter import JacobiDrafter, newest
from pipelines.decoding.rules import ExactRule
from pipelines.decoding.verify import Walk
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from tests.chi_square import p_value


RUNS = 1000
LEAST = 1e-4  # of p-values: a sound method falls below once in so many
LONG, ROW = Table(seed=1, vocabulary=2, length=7), Layout(1, 6, {0: 1})


def opened_long() -> TableSession:
    """Long and flat, so that many guesses drawn in one pass are kept together."""
    return LONG.open(Warp(temperature=3.0), 1.0, ROW)


def drafter(couple, kind=JacobiDrafter, window=3):
    return lambda session: kind(session.layout, window, "copy_left", newest, couple)


def test_maximal_coupling_leaves_the_law_alone():
    assert_same_law(output_law(drafter(maximal)), target_law())


@pytest.mark.parametrize("name", ["none", "maximal"])
def test_temperature_0_is_greedy_autoregression(name):
    assert_greedy(lambda session: JacobiDrafter(session.layout, 3, "uniform", newest, coupling(name)))


def test_gumbel_coupling_at_temperature_0_is_greedy_autoregression():
    (alone,) = opened_greedy().joint()
    for seed in range(20):
        chance = Chance(torch.Generator().manual_seed(seed))
        assert run(drafter(Gumbel()), chance, Walk(ExactRule()), opened_greedy) == alone


def test_maximal_coupling_keeps_a_guess_as_often_as_can_be():
    """Its new law is met exactly, and two laws cannot agree more often than sum min(p, q)."""
    old, new, first = (dirichlet(seed, 4) for seed in (1, 2, 3))

    def redrawn(chance: Chance) -> tuple[int, ...]:
        x = int(chance.categorical(old[None]))
        return x, *maximal(torch.stack([new, first]), 5, [x], [old], chance)

    found = list(branches(redrawn))
    for place, law in ((1, new), (2, first)):
        masses = [sum(weight for told, weight in found if told[place] == token) for token in range(4)]
        assert masses == pytest.approx(law.tolist(), abs=1e-12)
    same = sum(weight for told, weight in found if told[0] == told[1])
    assert same == pytest.approx(float(torch.minimum(old, new).sum()), abs=1e-12)


def test_equal_laws_keep_every_guess_and_draw_only_what_is_new():
    law = dirichlet(4, 5)
    chance = Chance(torch.Generator().manual_seed(0))
    for x in range(5):
        assert maximal(law[None], 0, [x], [law], chance) == [x]
    assert len(maximal(torch.stack([law, law]), 0, [2], [law], chance)) == 2
    assert len(maximal(law[None], 0, [], [], chance)) == 1


class OldLaw(JacobiDrafter):
    """Broken, as the released code of the paper is: a kept guess also keeps the law it was once drawn from."""

    def observe(self, draft, scores, verdict, chance):
        tokens, laws = self.tokens, self.laws
        super().observe(draft, scores, verdict, chance)
        for position in self.tokens.keys() & tokens.keys():
            if self.tokens[position] == tokens[position]:
                self.laws[position] = laws[position]


def test_a_kept_guess_under_its_old_law_is_seen():
    off = gap(output_law(drafter(maximal, OldLaw)), target_law())
    assert off > 1e-3, f"off by {off:.1e} only"


def test_gumbel_noise_belongs_to_a_position_and_decides_by_the_law():
    chance, couple = Chance(torch.Generator().manual_seed(1)), Gumbel()
    laws = torch.stack([dirichlet(seed, 6) for seed in range(3)])
    first = couple(laws, 4, [], [], chance)
    assert couple(laws[1:], 5, [], [], chance) == first[1:], "the same law gave another token"
    couple(laws[:1], 5 + LONGEST, [], [], chance)
    assert sorted(couple.noise) == [5, 6, 5 + LONGEST], "noise of a position before the window is kept"
    noise = couple.noise[5]
    assert couple(laws[:1], 5, [], [], chance) == [int((laws[0].log() - noise.log()).argmax())]
    certain = torch.eye(6, dtype=torch.float64)[[3]]
    assert couple(certain, 5, [], [], chance) == [3], "a token of probability 0 was drawn"


def test_gumbel_guesses_have_their_law():
    """4 sigma of a binomial with n = 20_000: 4 sqrt(.25 / n) = 0.014."""
    law, chance = dirichlet(7, 5), Chance(torch.Generator().manual_seed(2))
    drawn = torch.tensor(Gumbel()(law.expand(20_000, -1), 0, [], [], chance))
    assert (drawn.bincount(minlength=5) / 20_000 - law).abs().max() < 0.014


class OneNoise(Gumbel):
    """Broken: all positions share their noise, so that a guess knows of the tokens before it what it must not."""

    def __call__(self, laws, first, tokens, before, chance):
        self.shared = getattr(self, "shared", chance.exponential(1, laws.shape[-1]))
        self.noise = dict.fromkeys(range(first, first + len(laws)), self.shared[0])
        return super().__call__(laws, first, tokens, before, chance)


@pytest.mark.parametrize(("couple", "is_sound"), [(Gumbel, True), (OneNoise, False)])
def test_gumbel_coupling_leaves_the_law_alone_and_shared_noise_does_not(couple, is_sound):
    chance = Chance(torch.Generator().manual_seed(3))
    found = [run(drafter(couple(), window=7), chance, Walk(ExactRule()), opened_long) for _ in range(RUNS)]
    law = opened_long().joint()
    law.pop(min(law, key=law.get))  # all that is not named is one cell
    told = p_value(found, law)
    assert (told > LEAST) == is_sound, f"p = {told:.1e}"


def test_couplings_go_by_name():
    assert coupling("none") is afresh and coupling("maximal") is maximal
    assert coupling("gumbel") is not coupling("gumbel"), "two runs share their noise"
