"""Vanilla autoregression: one token a pass, no guesses. What every other method is compared with."""

from pipelines.base import ARImagePipeline
from pipelines.decoding.drafters import Drafter, NoDraft
from pipelines.decoding.rules import ExactRule, Rule
from pipelines.models.protocol import Session
from pipelines.settings import Settings


class ARPipeline(ARImagePipeline):
    """Text to image by drawing each token from the model's law given all before it.

    As many forward passes as the picture has tokens; it gives nothing up, and it is slow. Sampling as in LlamaGen
    (Sun et al. 2024, arXiv:2406.06525): guidance, temperature, top-k, top-p.

    >>> import torch
    >>> from pipelines import ARPipeline
    >>> pipe = ARPipeline.from_pretrained("assets/emoji-scenes")
    >>> output = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7))
    >>> output.images[0].size
    (128, 128)
    >>> output.traces[0].nfe, output.traces[0].accepted_length
    (256, 1.0)
    """

    def method(self, settings: Settings, session: Session) -> tuple[Drafter, Rule]:
        return NoDraft(), ExactRule()
