"""Colours of single codes, and their neighbours."""

import numpy as np
import torch

from pipelines import ARPipeline
from pipelines.models.codebook import BATCH, neighbours, previews
from tests import tiny


def test_a_colour_is_the_mean_of_its_code_among_its_like():
    model = ARPipeline(**tiny.components()).model
    colours, _ = previews(model)
    assert (colours.shape, colours.dtype) == ((tiny.VOCAB, 3), np.uint8)
    for code in range(tiny.VOCAB):
        pixels = (model.decode(torch.full((1, 2, 2), code))[0] + 1) * 127.5
        assert np.abs(colours[code] - pixels.mean((1, 2)).numpy()).max() <= 0.51, f"code {code}"
    assert len(np.unique(colours, axis=0)) > 1, "all codes look the same"


def test_a_thumbnail_is_a_codes_own_square_among_its_like():
    model = ARPipeline(**tiny.components()).model
    (_, squares), side = previews(model), model.patch_size
    assert (squares.shape, squares.dtype) == ((tiny.VOCAB, side, side, 3), np.uint8)
    for code in range(tiny.VOCAB):
        pixels = (model.decode(torch.full((1, 2, 2), code))[0, :, :side, :side] + 1) * 127.5
        assert np.abs(squares[code] - pixels.permute(1, 2, 0).numpy()).max() <= 0.51, f"code {code}"


def test_neighbours_are_the_other_codes_by_distance():
    codebook = torch.randn(BATCH + 20, 8, generator=torch.Generator().manual_seed(0))
    codebook[3] = codebook[7]
    found = neighbours(codebook, 30)
    assert found.shape == (BATCH + 20, 30)
    distance = (codebook.double()[:, None] - codebook.double()).norm(dim=-1).fill_diagonal_(torch.inf)
    torch.testing.assert_close(distance.gather(1, found), distance.sort(1).values[:, :30], rtol=0, atol=1e-6)
    assert all(len(set(row)) == 30 for row in found.tolist())
    assert (found[3, 0], found[7, 0]) == (7, 3), "twins are each other's nearest, never their own"


def test_a_code_has_no_more_neighbours_than_there_are_others():
    for count in (0, 20):
        assert "`count` must lie between 1 and 19" in tiny.refusal(neighbours, torch.randn(20, 8), count)
