"""What single codes look like, for previews that need no decoding. Knows nothing of runs."""

import numpy as np
import torch

from pipelines.models.protocol import ImageModel


FIELD = 2  # squares a side of the field that a code is decoded in; one square alone comes out far too dark or bright
BATCH = 256


@torch.inference_mode()
def mean_colours(model: ImageModel) -> np.ndarray:
    """[V, 3] uint8: the mean colour of every code, in a field of nothing but itself."""
    colours = []
    for codes in torch.arange(len(model.codebook()), device=model.codebook().device).split(BATCH):
        pixels = model.decode(codes[:, None, None].expand(-1, FIELD, FIELD))  # [B, 3, H, W] in [-1, 1]
        colours.append(pixels.float().mean((-2, -1)))
    return ((torch.cat(colours) + 1) * 127.5).round().clamp(0, 255).byte().cpu().numpy()
