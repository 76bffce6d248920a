"""What a call asks for, picture by picture, and how it will be drawn: checked, every default filled in."""

import secrets
from dataclasses import dataclass
from reprlib import repr as shown

import torch

from pipelines.primitives.layout import Layout
from pipelines.settings import Sampling, Settings


LONGEST_PROMPT = 2000  # characters
SEEDS = 2**31  # seeds are drawn below this, so that a person can type them again


@dataclass(frozen=True)
class Plan:
    """How to draw, whatever the prompt."""

    layout: Layout
    sampling: Sampling
    settings: Settings

    @property
    def is_guided(self) -> bool:
        return self.sampling.guidance_scale > 1


@dataclass(frozen=True)
class Request:
    """What to draw, and whose dice decide. Raises ValueError for anything that is not one text and one generator."""

    prompt: str
    negative_prompt: str | None
    generator: torch.Generator

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, str):
            raise ValueError(f"`prompt` must be a text, got {shown(self.prompt)}.")
        for name, text in (("prompt", self.prompt), ("negative_prompt", self.negative_prompt)):
            if isinstance(text, str) and any("\ud800" <= sign <= "\udfff" for sign in text):
                raise ValueError(f"`{name}` must be readable text, got {shown(text)}, which holds half a character.")
            if isinstance(text, str) and len(text) > LONGEST_PROMPT:
                raise ValueError(f"`{name}` must have at most {LONGEST_PROMPT} characters, got {len(text)}.")
        if not isinstance(self.negative_prompt, str | None):
            raise ValueError(f"`negative_prompt` must be a text or None, got {shown(self.negative_prompt)}.")
        if not isinstance(self.generator, torch.Generator):
            raise ValueError(f"`generator` must be a torch.Generator, got {shown(self.generator)}.")

    @property
    def seed(self) -> int | None:
        """The seed that leads to the generator's present state; None once it has been drawn from."""
        seed = self.generator.initial_seed()
        fresh = torch.Generator(self.generator.device).manual_seed(seed)
        return seed if torch.equal(fresh.get_state(), self.generator.get_state()) else None


def requests(
    prompt: str | list[str],
    negative_prompt: str | list[str] | None,
    num_images_per_prompt: int,
    generator: torch.Generator | list[torch.Generator] | None,
) -> list[Request]:
    """One request for each picture, those of a prompt together. Raises ValueError where lengths do not match.

    Pictures without a generator get each a fresh one of a random seed.
    """
    prompts = prompt if isinstance(prompt, list) else [prompt]
    if not prompts:
        raise ValueError("`prompt` must hold at least one text, got an empty list.")
    if type(num_images_per_prompt) is not int or num_images_per_prompt < 1:
        raise ValueError(
            f"`num_images_per_prompt` must be an integer of at least 1, got {shown(num_images_per_prompt)}."
        )
    negatives = negative_prompt if isinstance(negative_prompt, list) else [negative_prompt] * len(prompts)
    if len(negatives) != len(prompts):
        raise ValueError(f"`negative_prompt` must be one text or {len(prompts)}, one a prompt; got {len(negatives)}.")
    count = len(prompts) * num_images_per_prompt
    generators = generator if isinstance(generator, list) else [generator] * count
    if len(generators) != count:
        raise ValueError(f"`generator` must be one or a list of {count}, one a picture; got {len(generators)}.")
    texts = [pair for pair in zip(prompts, negatives) for _ in range(num_images_per_prompt)]
    return [Request(*pair, fresh_generator() if own is None else own) for pair, own in zip(texts, generators)]


def fresh_generator() -> torch.Generator:
    """A generator of a random seed."""
    return torch.Generator().manual_seed(secrets.randbelow(SEEDS))
