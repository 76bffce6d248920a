"""What the page costs beside the drawing itself, on the model that ships."""

import statistics
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

import app
import pipelines
from visualize import events


PROMPT = "a panda on snow"
PICTURES = 6


@pytest.mark.slow
def test_the_models_own_clock_runs_as_fast_under_the_page():
    worker = ThreadPoolExecutor(1)
    components = worker.submit(app.load, app.EMBEDDED)
    studio, pipe = app.Studio(worker, components, Future()), pipelines.ARPipeline(**components.result())
    sampling = pipe.sampling.to_dict()
    ratios = []
    for seed in range(PICTURES):
        stream = pipe.stream(PROMPT, generator=torch.Generator().manual_seed(seed))
        worker.submit(list, stream).result()
        text = [shown for shown, _, _ in studio.draw(PROMPT, seed, *sampling.values()) if isinstance(shown, str)][-1]
        ratios.append(events.read(text).lanes[0].milliseconds / 1000 / stream.trace.seconds)
    # Pictures take turns, so that a slow moment of the machine hits both; the median forgets one that hit one alone.
    assert statistics.median(ratios) < 1.1, f"page over bare, picture by picture: {ratios}"
