"""What single codes look like, for previews that need no decoding, and which are alike. Knows nothing of runs."""

import numpy as np
import torch
from torch import Tensor

from pipelines.models.protocol import ImageModel


FIELD = 2  # squares a side of the field that a code is decoded in; one square alone comes out far too dark or bright
BATCH = 256


@torch.inference_mode()
def previews(model: ImageModel) -> tuple[np.ndarray, np.ndarray]:
    """Every code in a field of nothing but itself: its mean colour, [V, 3] uint8, and the pixels of one square of the
    field, [V, side, side, 3] uint8.
    """
    colours, squares = [], []
    for codes in torch.arange(len(model.codebook()), device=model.codebook().device).split(BATCH):
        pixels = model.decode(codes[:, None, None].expand(-1, FIELD, FIELD)).float()  # [B, 3, H, W] in [-1, 1]
        side = pixels.shape[-1] // FIELD
        colours.append(pixels.mean((-2, -1)))
        squares.append(pixels[..., :side, :side].permute(0, 2, 3, 1))
    return _bytes(torch.cat(colours)), _bytes(torch.cat(squares))


def _bytes(colours: Tensor) -> np.ndarray:
    return ((colours + 1) * 127.5).round().clamp(0, 255).byte().cpu().numpy()


@torch.inference_mode()
def neighbours(codebook: Tensor, count: int) -> Tensor:
    """[V, count] int64: the other codes nearest to each, nearest first, by distance of the raw vectors [V, e].

    Jang et al. 2025, arXiv:2410.03355, as in the released table. Raises ValueError unless 1 <= count < V.
    """
    if not 1 <= count < len(codebook):
        raise ValueError(f"`count` must lie between 1 and {len(codebook) - 1}, got {count}.")
    vectors = codebook.float()
    nearest = []
    for rows in torch.arange(len(vectors), device=vectors.device).split(BATCH):
        # Without matrix products, whose rounding would swap near neighbours.
        distance = torch.cdist(vectors[rows], vectors, compute_mode="donot_use_mm_for_euclid_dist")
        distance[range(len(rows)), rows] = torch.inf
        nearest.append(distance.topk(count, largest=False).indices)
    return torch.cat(nearest)
