"""Colours of single codes."""

import numpy as np
import torch

from pipelines import ARPipeline
from pipelines.models.codebook import mean_colours
from tests import tiny


def test_a_colour_is_the_mean_of_its_code_among_its_like():
    model = ARPipeline(**tiny.components()).model
    colours = mean_colours(model)
    assert (colours.shape, colours.dtype) == ((tiny.VOCAB, 3), np.uint8)
    for code in range(tiny.VOCAB):
        pixels = (model.decode(torch.full((1, 2, 2), code))[0] + 1) * 127.5
        assert np.abs(colours[code] - pixels.mean((1, 2)).numpy()).max() <= 0.51, f"code {code}"
    assert len(np.unique(colours, axis=0)) > 1, "all codes look the same"
