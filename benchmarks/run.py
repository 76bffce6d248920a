"""Race methods over the same prompts and seeds, and keep the numbers.

    python -m benchmarks.run --methods ar --images 8
    python -m benchmarks.run --methods sjd:window=4 sjd:window=8 sjd:window=16:start=copy_left

Every method draws image 1, then every method image 2, and so on, so that a busy moment of the machine hits them alike.
AR is always in the race: speed-ups are over it.
"""

import argparse
import datetime
import difflib
import itertools
import json
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState

import pipelines
from benchmarks.forwards import Forwards
from benchmarks.record import RESULTS, Machine, MethodRecord, RaceRecord, check_writable, command, interval
from benchmarks.report import table
from pipelines.base import ARImagePipeline
from pipelines.models.llamagen_family import native_dtype
from pipelines.primitives.distributions import Warp
from pipelines.primitives.trace import Header, Trace


REFERENCE = "ar"
EMBEDDED = Path(__file__).parent.parent / "assets" / "emoji-scenes"
WARM_UP_ROUNDS = 2
METHODS_HELP = "ar, sjd, ..., each with changed settings if wanted: sjd:window=8:start=copy_left"


def method_names() -> dict[str, str]:
    """Short names of all methods -> their classes: "ar" -> "ARPipeline", "cool-sd" -> "CoolSDPipeline"."""
    return {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name.removesuffix("Pipeline")).lower(): name for name in pipelines.METHODS
    }


def checked_methods(names: list[str]) -> dict[str, str]:
    """Short name -> class name, the reference first. Raises ValueError for a name that no method has."""
    known = method_names()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
            raise ValueError(f"`--methods` has no {name[:40]!r}; {hint}")
    return {name: known[name] for name in dict.fromkeys([REFERENCE, *names])}


@dataclass(frozen=True)
class Entrant:
    """A method in a race: its class and what its settings are told beside the model's defaults."""

    pipeline: str
    settings: dict[str, Any]


def entrants(asked: list[str]) -> dict[str, Entrant]:
    """Entrants by what they were asked for as: "sjd", or "sjd:window=8:start=copy_left". The reference comes first.

    Raises ValueError for a name that no method has, and for a setting that is unknown or out of range.
    """
    found = {}
    for one in dict.fromkeys([REFERENCE, *asked]):
        name, *changes = one.split(":")
        pipeline = checked_methods([name])[name]
        settings = {knob: setting(value) for knob, _, value in (change.partition("=") for change in changes)}
        getattr(pipelines, pipeline).Settings().revise(settings, owner=pipeline)
        found[one] = Entrant(pipeline, settings)
    return found


def setting(value: str) -> Any:
    """A knob's value as a command line writes it: JSON where it is some, else the text itself."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def race(methods: dict[str, ARImagePipeline], prompts: list[str], seed: int) -> dict[str, list[Trace]]:
    """One trace per method and prompt; the methods take turns, image by image, and image i has seed `seed` + i."""
    for method in methods.values():
        list(itertools.islice(method.stream(prompts[0], generator=dice(seed)), WARM_UP_ROUNDS))
    traces: dict[str, list[Trace]] = {name: [] for name in methods}
    for index, prompt in enumerate(prompts):
        for name, method in methods.items():
            stream = method.stream(prompt, generator=dice(seed + index))
            for _ in stream:
                pass
            traces[name].append(stream.trace)
    return traces


def dice(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def target_seconds(traces: list[Trace]) -> float:
    """t(n) as it was in a race: the mean of the target's forwards after the prefill."""
    return float(np.mean([step.target_seconds for trace in traces for step in trace.steps[1:]]))


def method_record(entrant: Entrant, traces: list[Trace], reference: list[Trace]) -> MethodRecord:
    """Numbers of one method; `reference` are AR's traces of the same images."""
    steps = [step for trace in traces for step in trace.steps]
    seconds = sum(step.seconds for step in steps)
    checks = [step for step in steps if step.index > 0]
    draft_round = float(np.mean([step.draft_seconds for step in checks]))
    accepted = float(np.mean([trace.accepted_length for trace in traces]))
    return MethodRecord(
        pipeline=entrant.pipeline,
        settings=entrant.settings,
        image_seconds=[trace.seconds for trace in traces],
        image_nfe=[trace.nfe for trace in traces],
        seconds=interval([trace.seconds for trace in traces]),
        ms_per_token=interval([1000 * trace.seconds / len(trace.tokens) for trace in traces]),
        speedup=interval([ar.seconds / trace.seconds for ar, trace in zip(reference, traces)]),
        nfe=float(np.mean([trace.nfe for trace in traces])),
        accepted_length=accepted,
        draft_calls=sum(step.draft_calls for step in steps) / len(traces),
        ceiling=accepted * target_seconds(reference) / (target_seconds(traces) + draft_round),
        draft_share=sum(step.draft_seconds for step in steps) / seconds,
        target_share=sum(step.target_seconds for step in steps) / seconds,
        rest_share=sum(step.rest_seconds for step in steps) / seconds,
    )


def half_drawn(pipe: ARImagePipeline, trace: Trace) -> Forwards:
    """The model half way through the picture of a trace: with the cache of an average forward."""
    model, sampling = pipe.model, pipe.sampling
    warp = Warp(sampling.temperature, sampling.top_k, sampling.top_p)
    condition = model.condition(trace.header.prompt, None)
    session = model.open(condition, sampling.guidance_scale, warp, trace.layout)
    return Forwards(session, held=trace.layout.length // 2)


def processor() -> str:
    """The name of the accelerator, or else of the CPU."""
    if torch.accelerator.is_available():
        return torch.get_device_module().get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*:\s*(.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return named[1] if named else platform.machine()


def machine_of(header: Header) -> Machine:
    """The machine that has just made a run."""
    return Machine(
        processor=processor(),
        cores=os.cpu_count(),
        threads=header.threads,
        device=header.device,
        dtype=header.dtype,
        torch=header.torch_version,
    )


def opened(folder: Path) -> ARImagePipeline:
    """AR over the model in a folder, where and how this machine runs it best."""
    device = PartialState().device
    return pipelines.ARPipeline.from_pretrained(folder, dtype=native_dtype(device)).to(device)


def measure(folder: Path, asked: dict[str, Entrant], prompts: list[str], seed: int) -> RaceRecord:
    """Load the model in `folder`, race the entrants and time the forwards."""
    reference = opened(folder)
    methods = {
        name: getattr(pipelines, one.pipeline)(**reference.components, settings=one.settings)
        for name, one in asked.items()
    }
    traces = race(methods, prompts, seed)
    forwards = half_drawn(reference, traces[REFERENCE][0])
    forward = forwards.seconds()
    header = traces[REFERENCE][0].header
    return RaceRecord(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        model=header.model,
        weights_sha256=header.weights_sha256,
        machine=machine_of(header),
        seed=seed,
        prompts=prompts,
        sampling=reference.sampling.to_dict(),
        image_tokens=traces[REFERENCE][0].layout.length,
        cached_tokens=forwards.held,
        forward_ms={str(size): 1000 * seconds for size, seconds in forward.items()},
        products_ms=1000 * forwards.product_seconds(),
        methods={name: method_record(asked[name], traces[name], traces[REFERENCE]) for name in methods},
    )


def use_threads(threads: int | None) -> None:
    """Let torch work with so many threads of the CPU, or as many as it will."""
    if threads is not None:
        if threads < 1:
            raise ValueError(f"`--threads` must be at least 1, got {threads}.")
        torch.set_num_threads(threads)


def example_prompts(folder: Path, images: int) -> list[str]:
    """As many prompts as images, the model's own examples in turn. Raises ValueError where it has none."""
    if images < 1:
        raise ValueError(f"`--images` must be at least 1, got {images}; 8 gives a usable interval.")
    return list(itertools.islice(itertools.cycle(offered(folder, "examples")["examples"]), images))


def offered(folder: Path, *names: str) -> dict[str, list]:
    """The named lists of a model's scenes.json. Raises ValueError where there is no such file or list."""
    path = folder / "scenes.json"
    if not path.is_file():
        raise ValueError(
            f"`--model` must be a folder with a scenes.json, which names example prompts; {folder} has none."
        )
    try:
        held = json.loads(path.read_text())
    except ValueError:
        held = None
    lists = {name: held.get(name) if isinstance(held, dict) else None for name in names}
    for name, values in lists.items():
        if not (isinstance(values, list) and values and all(isinstance(value, str) for value in values)):
            raise ValueError(f"`{path}` must be a JSON object whose {name!r} is a list of at least one text.")
    return lists


def main() -> None:
    parser = argparse.ArgumentParser(description="Race methods over the same prompts and seeds, and keep the numbers.")
    parser.add_argument("--methods", nargs="+", default=[REFERENCE], help=METHODS_HELP)
    parser.add_argument("--images", type=int, default=8, help="pictures per method")
    parser.add_argument("--seed", type=int, default=0, help="of the first picture; the next has the next seed")
    parser.add_argument("--threads", type=int, help="of the CPU; what torch takes by itself if not given")
    parser.add_argument("--model", type=Path, default=EMBEDDED, help="a model folder")
    parser.add_argument("--out", type=Path, help="JSON file; benchmarks/results/run-METHODS.json if not given")
    options = parser.parse_args()
    asked = entrants(options.methods)
    prompts = example_prompts(options.model, options.images)
    use_threads(options.threads)
    out = options.out or RESULTS / f"run-{re.sub('[^a-z0-9_]+', '-', '-'.join(asked))}.json"
    check_writable("--out", out)
    record = measure(options.model, asked, prompts, options.seed)
    record.save(out)
    print(f"{table(record)}\nWritten to {out}.")


if __name__ == "__main__":
    command(main)
