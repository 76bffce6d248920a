"""What single codes look like, for previews that need no decoding, and which are alike. Knows nothing of runs."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from pipelines.models.protocol import ImageModel


FIELD = 2  # squares a side of the field that a code is decoded in; one square alone comes out far too dark or bright
BATCH = 256


@torch.inference_mode()
def mean_colours(model: ImageModel) -> np.ndarray:
    """[V, 3] uint8: the mean colour of every code, in a field of nothing but itself."""
    return _bytes(torch.cat([pixels.mean((-2, -1)) for pixels in _fields(model)]))


@torch.inference_mode()
def thumbnails(model: ImageModel) -> np.ndarray:
    """[V, side, side, 3] uint8: the pixels of every code's own square, in a field of nothing but itself."""
    squares = [pixels[..., : pixels.shape[-1] // FIELD, : pixels.shape[-1] // FIELD] for pixels in _fields(model)]
    return _bytes(torch.cat(squares).permute(0, 2, 3, 1))


def _fields(model: ImageModel) -> Iterator[Tensor]:
    """All codes, some at a time: [B, 3, H, W] float32 in [-1, 1]."""
    for codes in torch.arange(len(model.codebook()), device=model.codebook().device).split(BATCH):
        yield model.decode(codes[:, None, None].expand(-1, FIELD, FIELD)).float()


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
