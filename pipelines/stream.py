"""One picture under way: an iterator of steps that keeps the trace of what it has given."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pipelines import model_folder
from pipelines.primitives.trace import Header, Step, Trace
from pipelines.request import Plan, Request


if TYPE_CHECKING:
    from pipelines.base import ARImagePipeline


@dataclass
class Run:
    """How far a call or a stream is, and whether it ends after its present round."""

    guidance_scale: float | None = None
    num_timesteps: int = 0
    is_interrupted: bool = False


class Stream(Iterator[Step]):
    """Rounds of one run, each computed when it is asked for.

    trace: header and layout from the start, a step more after each round. unknown: words of the prompt that the model
    does not know -> the nearest it knows. Closing a stream, or dropping it, ends the run and keeps what is drawn.
    """

    def __init__(
        self,
        trace: Trace,
        unknown: dict[str, list[str]],
        rounds: Iterator[Step],
        run: Run,
        generator: torch.Generator,
    ) -> None:
        self.trace = trace
        self.unknown = unknown
        self._rounds = rounds
        self._run = run
        self._generator, self._state = generator, generator.get_state()

    def __next__(self) -> Step:
        if not torch.equal(self._generator.get_state(), self._state):
            # Another run draws from the same generator: its seed alone does not lead to this picture.
            self.trace.header = replace(self.trace.header, seed=None)
        step = next(self._rounds)
        self._state = self._generator.get_state()
        self.trace.steps.append(step)
        return step

    def interrupt(self) -> None:
        """End the run after its present round, whichever run of its pipeline started last."""
        self._run.is_interrupted = True

    def close(self) -> None:
        self._rounds.close()


def circumstances(pipe: "ARImagePipeline", plan: Plan, request: Request) -> Header:
    """What a trace says of how its run was made."""
    return Header(
        method=type(pipe).__name__,
        model=model_folder.origin_of(pipe.transformer).name,
        weights_sha256=pipe.weights_sha256,
        dtype=str(pipe.transformer.dtype).removeprefix("torch."),
        torch_version=torch.__version__,
        threads=torch.get_num_threads(),
        device=str(pipe._execution_device),
        settings=plan.sampling.to_dict() | plan.settings.to_dict(),
        seed=request.seed,
        prompt=request.prompt,
        negative_prompt=request.negative_prompt if plan.is_guided else None,
    )
