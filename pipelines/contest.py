"""Methods that draw one prompt on one model, each at its own speed; and the line of those who want the model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from reprlib import repr as shown
from typing import Any

import numpy as np
import torch
from PIL import Image

import pipelines
from pipelines.decoding.race import race
from pipelines.primitives.trace import Step
from pipelines.request import SEEDS


LONGEST_LINE = 20
TURN_SECONDS = 0.06  # of a lane: where lanes change with every step, one throws the other's weights out of the cache


@dataclass(frozen=True)
class Ask:
    """What to draw: prompt, seed and sampling are the same for all lanes; lanes: method and settings of each.

    Raises ValueError for a seed that no person can type and for a method that there is not.
    """

    prompt: str
    seed: int
    lanes: list[tuple[str, dict[str, Any]]]
    sampling: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if type(self.seed) is not int or not 0 <= self.seed < SEEDS:
            raise ValueError(f"`seed` must be a whole number from 0 to {SEEDS - 1}, got {shown(self.seed)}; try 7.")
        for method, settings in self.lanes:
            if not isinstance(method, str) or method not in pipelines.METHODS:
                raise ValueError(f"`method` must be one of {', '.join(pipelines.METHODS)}, got {shown(method)}.")
            if not isinstance(settings, dict):
                raise ValueError(f"`settings` must name settings and their values, got {shown(settings)}.")

    def apart(self, seeds: int) -> "list[Ask]":
        """One ask a picture: all lanes with this seed, then with the next, so many seeds."""
        numbers = [(self.seed + offset) % SEEDS for offset in range(seeds)]
        return [replace(self, seed=seed, lanes=[lane]) for seed in numbers for lane in self.lanes]


class Contest(Iterator[tuple[int, Step]]):
    """Lanes under way, each with a pipeline of its own over the shared components; gives (lane, step) in turns.

    traces: of each lane. unknown: words of the prompt that the model does not know. Closing it ends all lanes.
    """

    def __init__(self, components: dict[str, Any], ask: Ask) -> None:
        """Raises ValueError for a prompt that cannot be drawn, and for a setting unknown or out of range."""
        streams = []
        for method, settings in ask.lanes:
            pipe = self._pipe = getattr(pipelines, method)(**components)  # any of them turns tokens into pixels
            settings = pipe.settings.revise(settings, owner=method, vocabulary=pipe.vocabulary).to_dict()
            dice = torch.Generator().manual_seed(ask.seed)
            streams.append(pipe.stream(ask.prompt, generator=dice, **ask.sampling, **settings))
        self.traces = [stream.trace for stream in streams]
        self.unknown = streams[0].unknown
        self._turns = race({str(lane): stream for lane, stream in enumerate(streams)}, TURN_SECONDS)

    def __next__(self) -> tuple[int, Step]:
        lane, step = next(self._turns)
        return int(lane), step

    def close(self) -> None:
        self._turns.close()

    @torch.inference_mode()
    def picture(self, tokens: np.ndarray) -> Image.Image:
        """Decoded squares. tokens: [rows, cols], -1 where there is none."""
        latents = torch.from_numpy(tokens).long()[None].to(self._pipe.device)
        return self._pipe.image_processor.postprocess(self._pipe.decode_latents(latents), output_type="pil")[0]


class Line:
    """Those who want the model, in the order in which they came: the first has it."""

    def __init__(self) -> None:
        self._places: list[object] = []

    @contextmanager
    def place(self) -> Iterator[Callable[[], int]]:
        """The last place, given up at the end of the block; the callable tells how many are before it.

        Raises ValueError where too many wait.
        """
        if len(self._places) > LONGEST_LINE:
            raise ValueError(f"{LONGEST_LINE} others wait for the model already; please try again in a minute.")
        mine = object()
        self._places.append(mine)
        try:
            yield lambda: self._places.index(mine)
        finally:
            self._places.remove(mine)
