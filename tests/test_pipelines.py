"""The contract of every pipeline: what a user of diffusers may count on. A method is tested by being listed."""

import doctest
import inspect
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from diffusers.callbacks import PipelineCallback
from PIL import Image

import pipelines
from pipelines.base import ARImagePipeline
from tests import tiny


PROMPT = "a panda on snow"
OTHER = "a red cat"
GUIDED = {"guidance_scale": 3.0}
LENGTH = 16


@pytest.fixture(scope="module")
def components():
    return tiny.components()


@pytest.fixture(params=pipelines.METHODS)
def method(request) -> type[ARImagePipeline]:
    return getattr(pipelines, request.param)


@pytest.fixture
def pipe(method, components) -> ARImagePipeline:
    return quiet(method(**components))


def quiet(pipe: ARImagePipeline) -> ARImagePipeline:
    pipe.set_progress_bar_config(disable=True)
    return pipe


def dice(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tokens(pipe: ARImagePipeline, prompt=PROMPT, seed: int = 7, **arguments) -> torch.Tensor:
    return pipe(prompt, generator=dice(seed), output_type="latent", **arguments).images


def test_arguments_stand_in_diffusers_order(method):
    shared = [
        "self",
        "prompt",
        "negative_prompt",
        "height",
        "width",
        "guidance_scale",
        "temperature",
        "top_k",
        "top_p",
    ]
    more = ["num_images_per_prompt", "generator", "output_type", "return_dict", "callback_on_step_end"]
    call = list(inspect.signature(method.__call__).parameters)
    assert call == [*shared, *more, "callback_on_step_end_tensor_inputs", "settings"]
    assert list(inspect.signature(method.stream).parameters) == [*shared, "generator", "settings"]
    built = list(inspect.signature(method.__init__).parameters)
    assert built == ["self", "transformer", "vqvae", "text_encoder", "tokenizer", "draft_model", "settings"]


def test_the_docstrings_example_holds(method, tmp_path, monkeypatch, capsys):
    assert method.__doc__ is not None and ">>>" in method.__doc__, f"{method.__name__} shows no example"
    quiet(pipelines.ARPipeline(**tiny.components(grid_size=16))).save_pretrained(tmp_path / "assets/emoji-scenes")
    monkeypatch.chdir(tmp_path)
    doctest.run_docstring_examples(method, {}, name=method.__name__)
    assert not capsys.readouterr().out, "the example does not hold"


def test_a_tuple_holds_what_the_output_holds(pipe):
    output = pipe(PROMPT, generator=dice(7), output_type="np")
    images, traces = pipe(PROMPT, generator=dice(7), output_type="np", return_dict=False)
    assert np.array_equal(images, output.images) and np.array_equal(output[0], output["images"])
    assert traces[0].tokens.tolist() == output.traces[0].tokens.tolist()


def test_the_output_types_show_the_same_picture(pipe):
    drawn = {kind: pipe(PROMPT, generator=dice(7), output_type=kind).images for kind in ("pil", "np", "pt", "latent")}
    assert isinstance(drawn["pil"][0], Image.Image) and drawn["pil"][0].size == (32, 32)
    assert drawn["np"].shape == (1, 32, 32, 3) and 0 <= drawn["np"].min() <= drawn["np"].max() <= 1
    assert drawn["pt"].shape == (1, 3, 32, 32)
    assert drawn["latent"].shape == (1, 4, 4) and drawn["latent"].dtype == torch.int64
    assert np.array_equal(np.array(drawn["pil"][0]), (drawn["np"][0] * 255).round().astype(np.uint8))
    assert np.array_equal(drawn["pt"][0].permute(1, 2, 0).numpy(), drawn["np"][0])


def test_a_generator_owns_its_picture_in_any_batch(pipe):
    batch = pipe([PROMPT, OTHER], generator=[dice(1), dice(2)], output_type="np", **GUIDED)
    alone = pipe(OTHER, generator=dice(2), output_type="np", **GUIDED)
    assert batch.traces[1].tokens.tolist() == alone.traces[0].tokens.tolist()
    assert np.array_equal(batch.images[1], alone.images[0])


def test_one_generator_is_drawn_from_in_the_order_of_the_pictures(pipe):
    generator = dice(1)
    apart = [pipe(prompt, generator=generator, output_type="latent").images for prompt in (PROMPT, OTHER)]
    assert torch.equal(tokens(pipe, [PROMPT, OTHER], seed=1), torch.cat(apart))


def test_pictures_of_a_prompt_stand_together(pipe):
    generators = [dice(seed) for seed in range(4)]
    output = pipe([PROMPT, OTHER], num_images_per_prompt=2, generator=generators, output_type="latent")
    assert [trace.header.prompt for trace in output.traces] == [PROMPT, PROMPT, OTHER, OTHER]
    assert torch.equal(output.images[2:3], tokens(pipe, OTHER, seed=2)) and len(output.images) == 4


def test_the_stream_is_what_a_call_drains(pipe):
    stream = pipe.stream(PROMPT, generator=dice(7), **GUIDED)
    steps = [next(stream)]
    assert torch.is_grad_enabled(), "a stream under way switches gradients off for its consumer"
    committed = np.concatenate([step.committed for step in [*steps, *stream]])
    assert stream.trace.complete and stream.trace.tokens.tolist() == committed.tolist()
    assert tokens(pipe, **GUIDED).flatten().tolist() == committed.tolist()


def test_streams_over_shared_components_do_not_disturb_each_other(method, components):
    prompts = (PROMPT, OTHER)
    streams = [method(**components).stream(prompt, generator=dice(7), **GUIDED) for prompt in prompts]
    while sum([next(stream, None) is not None for stream in streams]):
        pass
    for stream, prompt in zip(streams, prompts):
        alone = tokens(quiet(method(**components)), prompt, **GUIDED)
        assert stream.trace.tokens.tolist() == alone.flatten().tolist(), f"{prompt!r} was disturbed"


def test_a_closed_stream_keeps_its_trace_and_frees_the_hooks(pipe):
    pipe.enable_model_cpu_offload(device="cpu")
    hooks = pipe._all_hooks
    stream = pipe.stream(PROMPT, generator=dice(7))
    next(stream)
    assert pipe._all_hooks is hooks and pipe.num_timesteps == 1
    stream.close()
    assert pipe._all_hooks is not hooks, "the hooks were not set anew"
    assert stream.trace.nfe == 1 and not stream.trace.complete and next(stream, None) is None
    pipe.remove_all_hooks()


def test_an_error_in_a_callback_frees_the_hooks(pipe):
    def fail(pipe, step, timestep, tensors):
        raise RuntimeError("from the callback")

    pipe.enable_model_cpu_offload(device="cpu")
    hooks = pipe._all_hooks
    with pytest.raises(RuntimeError, match="from the callback"):
        pipe(PROMPT, callback_on_step_end=fail)
    assert pipe._all_hooks is not hooks
    pipe.remove_all_hooks()


def test_the_callback_hears_of_every_round(pipe):
    heard = []

    def listen(caller, step, timestep, tensors):
        assert caller is pipe and list(tensors) == ["latents"]
        heard.append((step, timestep, tensors["latents"].clone()))
        return {"latents": torch.zeros_like(tensors["latents"])}

    output = pipe(PROMPT, generator=dice(7), output_type="latent", callback_on_step_end=listen)
    rounds, counts, latents = zip(*heard)
    assert rounds == tuple(range(output.traces[0].nfe)) and pipe.num_timesteps == len(rounds)
    assert all(ids.shape == (1, LENGTH) and (ids >= 0).sum() == count for ids, count in zip(latents, counts))
    assert counts[-1] == LENGTH and torch.equal(latents[-1], output.images.flatten(1))


def test_a_pipeline_callback_brings_its_own_tensor_names(pipe):
    class Listener(PipelineCallback):
        tensor_inputs = []

        def callback_fn(self, pipeline, step_index, timesteps, callback_kwargs):
            heard.append(callback_kwargs)
            return callback_kwargs

    heard = []
    output = pipe(PROMPT, callback_on_step_end=Listener())
    assert heard == [{}] * output.traces[0].nfe


def test_an_interrupt_ends_the_call_and_keeps_what_is_drawn(pipe):
    def stop(pipe, step, timestep, tensors):
        pipe._interrupt = step == 1

    output = pipe([PROMPT, OTHER], generator=[dice(7), dice(8)], output_type="latent", callback_on_step_end=stop)
    drawn = len(output.traces[0].tokens)
    first = output.images[0].flatten()
    assert pipe.interrupt and output.traces[0].nfe == 2 and not output.traces[0].complete
    assert first[:drawn].tolist() == output.traces[0].tokens.tolist() and (first[drawn:] == -1).all()
    assert output.traces[1].nfe == 0 and (output.images[1] == -1).all()
    assert torch.equal(first[:drawn], tokens(pipe).flatten()[:drawn]), "the next run starts afresh"
    assert not pipe.interrupt
    assert pipe(PROMPT, callback_on_step_end=stop).images[0].size == (32, 32), "holes are drawn too"


def test_an_interrupt_ends_no_other_pipelines_run(method, components):
    one, other = method(**components), method(**components)
    streams = [pipe.stream(PROMPT, generator=dice(7)) for pipe in (one, other)]
    first = [next(stream) for stream in streams]
    one._interrupt = True
    assert next(streams[0], None) is None and len(first) == 2
    assert sum(len(step.committed) for step in streams[1]) + len(first[1].committed) == LENGTH


def test_streams_of_one_pipeline_are_interrupted_one_by_one(pipe):
    first, last, third = (pipe.stream(PROMPT, generator=dice(7)) for _ in range(3))
    for stream in (first, last, third):
        next(stream)
    pipe._interrupt = True
    assert next(third, None) is None, "the run that started last goes on"
    first.interrupt()
    assert next(first, None) is None and first.trace.nfe == 1
    assert sum(1 for _ in last) and last.trace.complete, "an interrupt of another run ended this one"


def test_a_negative_prompt_takes_part_under_guidance_only(pipe):
    assert torch.equal(tokens(pipe, negative_prompt=OTHER), tokens(pipe))
    assert torch.equal(tokens(pipe, negative_prompt="xylophone"), tokens(pipe)), "it was read all the same"
    with pytest.raises(ValueError, match="`negative_prompt` must name something"):
        tokens(pipe, negative_prompt="xylophone", **GUIDED)
    assert not torch.equal(tokens(pipe, negative_prompt=OTHER, **GUIDED), tokens(pipe, **GUIDED))
    output = pipe(PROMPT, [OTHER], output_type="latent")
    assert output.traces[0].header.negative_prompt is None
    output = pipe(PROMPT, OTHER, output_type="latent", **GUIDED)
    assert output.traces[0].header.negative_prompt == OTHER and pipe.guidance_scale == 3.0


def test_a_run_without_a_generator_tells_its_seed(pipe):
    first, second = pipe(PROMPT, num_images_per_prompt=2, output_type="latent").traces
    assert first.header.seed != second.header.seed
    assert tokens(pipe, seed=first.header.seed).flatten().tolist() == first.tokens.tolist()


def test_a_used_generator_has_no_seed_to_tell(pipe):
    traces = pipe(PROMPT, generator=dice(7), num_images_per_prompt=2, output_type="latent").traces
    assert [trace.header.seed for trace in traces] == [7, None]


def test_streams_that_share_a_generator_claim_no_seed(pipe):
    generator = dice(7)
    streams = [pipe.stream(PROMPT, generator=generator) for _ in range(2)]
    next(streams[0])
    assert streams[0].trace.header.seed == 7 and list(streams[1])
    assert list(streams[0]) and [stream.trace.header.seed for stream in streams] == [None, None]
    alone = pipe.stream(PROMPT, generator=dice(7))
    assert list(alone) and alone.trace.header.seed == 7


def test_the_trace_says_how_it_was_made(method, pipe):
    header = pipe.stream(PROMPT, generator=dice(7), temperature=0.5, top_k=9).trace.header
    assert (header.method, header.prompt, header.seed) == (method.__name__, PROMPT, 7)
    assert (header.dtype, header.device, header.torch_version) == ("float32", "cpu", torch.__version__)
    assert header.threads == torch.get_num_threads() and header.model == "built in memory"
    sampling = {"guidance_scale": 1.0, "temperature": 0.5, "top_k": 9, "top_p": 1.0}
    assert header.settings == sampling | pipe.settings.to_dict()
    assert header.weights_sha256 == pipe.weights_sha256 and re.fullmatch("[0-9a-f]{64}", header.weights_sha256)


def test_one_discarded_forward_precedes_the_first_round(pipe):
    calls = []
    handle = pipe.transformer.register_forward_hook(lambda *_: calls.append(1))
    stream = pipe.stream(PROMPT, generator=dice(7))
    assert not calls, "the target ran before the first step was asked for"
    next(stream)
    assert len(calls) == 2
    nfe = sum(1 for _ in stream) + 1
    handle.remove()
    assert len(calls) == nfe + 1


def test_the_progress_bar_counts_tokens(method, components, capsys):
    method(**components)([PROMPT, OTHER], output_type="latent")
    assert f"{2 * LENGTH}/{2 * LENGTH}" in capsys.readouterr().err


def test_pipelines_are_listed_and_loaded_when_named():
    assert set(pipelines.METHODS) <= set(dir(pipelines))
    with pytest.raises(AttributeError, match="no attribute 'NoSuchPipeline'"):
        pipelines.NoSuchPipeline  # noqa: B018
    code = "import sys, pipelines.primitives.trace; sys.exit('torch' in sys.modules or 'diffusers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0, "a trace alone loads torch"
