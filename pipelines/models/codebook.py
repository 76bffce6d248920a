"""What single codes look like, for previews that need no decoding. Knows nothing of runs."""

import numpy as np
import torch

from pipelines.models.protocol import ImageModel


FIELD = 3  # squares a side of the field that a code is decoded in: itself, with itself for neighbours
BATCH = 64


@torch.inference_mode()
def mean_colours(model: ImageModel) -> np.ndarray:
    """[V, 3] uint8: the mean colour of every code, in the middle of a field of nothing but itself."""
    device = model.codebook().device
    colours = []
    for codes in torch.arange(len(model.codebook()), device=device).split(BATCH):
        pixels = model.decode(codes[:, None, None].expand(-1, FIELD, FIELD))  # [B, 3, H, W] in [-1, 1]
        side = pixels.shape[-1] // FIELD
        middle = slice(FIELD // 2 * side, (FIELD // 2 + 1) * side)
        colours.append(pixels[..., middle, middle].float().mean((-2, -1)))
    return ((torch.cat(colours) + 1) * 127.5).round().clamp(0, 255).byte().cpu().numpy()
