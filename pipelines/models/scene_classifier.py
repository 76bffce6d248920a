"""Reads object and place off a picture: the judge of what the embedded model draws. Knows nothing of tokens."""

from dataclasses import dataclass

import torch.nn.functional as F
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import register_to_config
from torch import Tensor, cat, nn


@dataclass(frozen=True)
class Reading:
    """What a batch of pictures shows."""

    objects: Tensor
    """[B, number of objects] logits."""
    places: Tensor
    """[B, number of places] logits."""
    features: Tensor
    """[B, features] what both heads read; distances between sets of pictures can be taken here."""


class ConvBlock(nn.Sequential):
    """A 3 x 3 convolution, normalised over the batch, then SiLU."""

    def __init__(self, width_in: int, width_out: int, stride: int = 1):
        super().__init__(
            nn.Conv2d(width_in, width_out, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width_out), nn.SiLU()
        )


class SceneClassifier(ModelMixin, ConfigMixin):
    """Pictures [B, 3, H, W] in [-1, 1] to logits over `object_names` and `place_names`.

    Convolutions to 1/16 of the side; there the mean of each channel tells the place, its maximum what stands somewhere
    in it.
    """

    @register_to_config
    def __init__(
        self,
        object_names: list[str],
        place_names: list[str],
        widths: tuple[int, int, int] = (40, 80, 160),
        features: int = 64,
    ):
        super().__init__()
        fine, middle, coarse = widths
        self.body = nn.Sequential(
            nn.PixelUnshuffle(4),
            ConvBlock(48, fine),
            ConvBlock(fine, middle, stride=2),
            ConvBlock(middle, middle),
            ConvBlock(middle, coarse, stride=2),
            ConvBlock(coarse, coarse),
        )
        self.neck = nn.Linear(2 * coarse, features)
        self.object_head = nn.Linear(features, len(object_names))
        self.place_head = nn.Linear(features, len(place_names))

    def forward(self, images: Tensor) -> Reading:
        """images: [B, 3, H, W] in [-1, 1], sides multiples of 4."""
        x = self.body(images)
        features = F.silu(self.neck(cat([x.mean((2, 3)), x.amax((2, 3))], 1)))
        return Reading(self.object_head(features), self.place_head(features), features)

    def names(self, reading: Reading) -> list[tuple[str, str]]:
        """The likeliest object and place of each picture."""
        objects, places = reading.objects.argmax(-1).tolist(), reading.places.argmax(-1).tolist()
        return [(self.config.object_names[i], self.config.place_names[j]) for i, j in zip(objects, places)]
