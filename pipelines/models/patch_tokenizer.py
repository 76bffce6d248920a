"""Image tokenizer of the embedded model: each token sees its own patch only, the decoder sees the whole picture.

A patch-local encoder gives the same tokens wherever the same pixels stand on the grid, which is what a small
transformer needs to learn objects.
"""

import torch
import torch.nn.functional as F
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import register_to_config
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions around which the input is added."""

    def __init__(self, width: int):
        super().__init__()
        self.conv_in = nn.Conv2d(width, width, 3, padding=1)
        self.conv_out = nn.Conv2d(width, width, 3, padding=1)
        nn.init.zeros_(self.conv_out.weight)
        nn.init.zeros_(self.conv_out.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv_out(F.silu(self.conv_in(F.silu(x))))


class PatchTokenizer(ModelMixin, ConfigMixin):
    """Pictures [B, 3, H, W] in [-1, 1] to tokens [B, h, w] and back, h = H / patch_size.

    The encoder is a stack of 1 x 1 convolutions on unshuffled pixels; codes are unit vectors, the nearest wins.
    """

    @register_to_config
    def __init__(
        self,
        patch_size: int = 8,
        num_codes: int = 2048,
        code_dim: int = 8,
        encoder_width: int = 384,
        decoder_width: int = 192,
        decoder_blocks: int = 3,
        fine_width: int = 96,
        fine_blocks: int = 1,
    ):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.PixelUnshuffle(patch_size),
            nn.Conv2d(3 * patch_size**2, encoder_width, 1),
            nn.SiLU(),
            nn.Conv2d(encoder_width, encoder_width, 1),
            nn.SiLU(),
            nn.Conv2d(encoder_width, code_dim, 1),
        )
        self.register_buffer("codes", F.normalize(torch.randn(num_codes, code_dim), dim=-1))
        self.decoder = nn.Sequential(
            nn.Conv2d(code_dim, decoder_width, 3, padding=1),
            *(ResidualBlock(decoder_width) for _ in range(decoder_blocks)),
            nn.Conv2d(decoder_width, 4 * fine_width, 1),
            nn.PixelShuffle(2),
            *(ResidualBlock(fine_width) for _ in range(fine_blocks)),
            nn.SiLU(),
            nn.Conv2d(fine_width, 3 * (patch_size // 2) ** 2, 3, padding=1),
            nn.PixelShuffle(patch_size // 2),
        )

    def embed(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] in [-1, 1] to unit vectors [B, h, w, e] before the nearest code is taken."""
        return F.normalize(self.encoder(images).movedim(1, -1), dim=-1)

    def nearest(self, vectors: Tensor) -> Tensor:
        """Index of the nearest code. vectors: [..., e] of unit length."""
        return (vectors @ self.codes.T).argmax(-1)

    def encode(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] in [-1, 1] to tokens [B, h, w]. H and W must be multiples of the patch size."""
        patch = self.config.patch_size
        if images.shape[-1] % patch or images.shape[-2] % patch:
            raise ValueError(
                f"`images` must have sides that are multiples of {patch}, got {tuple(images.shape[-2:])}."
            )
        return self.nearest(self.embed(images))

    def decode_vectors(self, vectors: Tensor) -> Tensor:
        """Code vectors [B, h, w, e] to pictures [B, 3, H, W], not clipped."""
        return self.decoder(vectors.movedim(-1, 1))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [B, h, w] to pictures [B, 3, H, W] in [-1, 1]."""
        return self.decode_vectors(self.codes[tokens]).clamp(-1, 1)

    def decode(self, tokens: Tensor) -> Tensor:
        """Tokens [B, h, w] to pictures [B, 3, H, W] in [-1, 1]."""
        return self(tokens)

    def codebook(self) -> Tensor:
        """[V, e] the code vectors."""
        return self.codes
