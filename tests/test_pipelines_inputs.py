"""What a pipeline cannot take is refused in one sentence, before anything is drawn."""

import pytest
import torch
from transformers import T5Config, T5EncoderModel

import pipelines
from pipelines.base import ARImagePipeline
from pipelines.models.patch_tokenizer import PatchTokenizer
from tests import tiny
from tests.tiny import WindowPipeline, refusal


PROMPT = "a panda on snow"


@pytest.fixture(scope="module")
def components():
    return tiny.components()


@pytest.fixture(params=pipelines.METHODS)
def pipe(request, components) -> ARImagePipeline:
    pipe = getattr(pipelines, request.param)(**components)
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"guidance_scale": 0.5}, "`guidance_scale` must be a number from 1 to 20, got 0.5."),
        ({"guidance_scale": 1e39}, "`guidance_scale` must be a number from 1 to 20, got 1e+39."),
        ({"top_p": 10**90}, f"`top_p` must be a number from 0 to 1, got 1{'0' * 17}...{'0' * 19}."),
        ({"top_k": "many" * 99}, "`top_k` must be a whole number from 0 to 32, got 'manymanymany...ymanymanymany'."),
        ({"temperature": 2.5}, "`temperature` must be a number from 0 to 2, got 2.5."),
        ({"temperature": "1"}, "`temperature` must be a number from 0 to 2, got '1'."),
        ({"top_k": 33}, "`top_k` must be a whole number from 0 to 32, got 33."),
        ({"top_k": 2.0}, "`top_k` must be a whole number from 0 to 32, got 2.0."),
        ({"top_p": -0.1}, "`top_p` must be a number from 0 to 1, got -0.1."),
    ],
)
def test_sampling_out_of_range_is_refused_with_the_range(pipe, arguments, sentence):
    assert refusal(pipe, PROMPT, **arguments) == refusal(pipe.stream, PROMPT, **arguments) == sentence


def test_an_unknown_setting_is_refused(pipe):
    message = refusal(pipe, PROMPT, num_inference_steps=50)
    assert message.startswith(f"`num_inference_steps` is not a setting of {type(pipe).__name__}")
    assert refusal(type(pipe), **pipe.components, settings={"num_inference_steps": 50}) == message
    assert len(refusal(pipe, PROMPT, **{"many" * 99: 1})) < 400


@pytest.mark.parametrize("size", [{"height": 33}, {"width": 8}, {"height": 0}, {"height": 64, "width": 64}])
def test_a_size_that_cannot_be_drawn_is_refused_with_one_that_can(pipe, size):
    name, value = next(iter(size.items()))
    message = refusal(pipe, PROMPT, **size)
    assert message.startswith(f"`{name}` must be 32 pixels") and message.endswith(f"got {value}.")
    assert pipe(PROMPT, height=32, width=32).images[0].size == (32, 32)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prompt": 3}, "`prompt` must be a text, got 3."),
        ({"prompt": None}, "`prompt` must be a text, got None."),
        (
            {"prompt": "\ud800 panda"},
            "`prompt` must be readable text, got '\\ud800 panda', which holds half a character.",
        ),
        ({"prompt": "panda " * 1000}, "`prompt` must have at most 2000 characters, got 6000."),
        ({"prompt": []}, "`prompt` must hold at least one text, got an empty list."),
        ({"prompt": [PROMPT, 3]}, "`prompt` must be a text, got 3."),
        ({"prompt": ""}, "`prompt` must say what to draw"),
        ({"prompt": "xylophone " * 99}, "`prompt` must name something this model knows, got 'xylophone xy"),
        ({"prompt": ["panda " * 99, 3]}, "`prompt` must be a text, got 3."),
        ({"prompt": "xylophone zeppelin"}, "`prompt` must name something this model knows"),
        ({"prompt": [PROMPT, "xylophone"]}, "`prompt` must name something this model knows"),
        ({"negative_prompt": 3}, "`negative_prompt` must be a text or None, got 3."),
        ({"negative_prompt": ["cat", "cat"]}, "`negative_prompt` must be one text or 1, one a prompt; got 2."),
        ({"num_images_per_prompt": 0}, "`num_images_per_prompt` must be an integer of at least 1, got 0."),
        ({"num_images_per_prompt": 1.5}, "`num_images_per_prompt` must be an integer of at least 1, got 1.5."),
        ({"generator": 7}, "`generator` must be a torch.Generator, got 7."),
        ({"generator": [torch.Generator()] * 3}, "`generator` must be one or a list of 1, one a picture; got 3."),
        ({"output_type": "jpeg"}, "`output_type` must be one of pil, np, pt, latent, got 'jpeg'."),
        (
            {"callback_on_step_end_tensor_inputs": ["latents", "logits"]},
            "`callback_on_step_end_tensor_inputs` may name latents, got ['logits'].",
        ),
    ],
)
def test_what_a_call_cannot_take_is_refused_before_it_draws(pipe, arguments, sentence):
    rounds = []
    arguments = {"prompt": PROMPT, "callback_on_step_end": lambda *_: rounds.append(1)} | arguments
    assert refusal(pipe, **arguments).startswith(sentence)
    assert not rounds, "something was drawn"


def test_a_stream_is_refused_where_it_is_asked_for(pipe):
    assert refusal(pipe.stream, [PROMPT]) == f"`prompt` must be a text, got ['{PROMPT}']."
    assert refusal(pipe.stream, "") == refusal(pipe, "")
    assert refusal(pipe.stream, PROMPT, generator=[torch.Generator()]).startswith("`generator` must be a torch.Gen")


def test_unknown_words_are_named_and_the_rest_is_drawn(pipe, caplog):
    stream = pipe.stream("a pandas on xylophone grass", generator=torch.Generator().manual_seed(7))
    assert stream.unknown == {"pandas": ["panda"], "xylophone": []}
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == [
        "The model does not know 'pandas', the rest of the prompt is drawn; nearest known: panda.",
        "The model does not know 'xylophone', the rest of the prompt is drawn.",
    ]
    steps = [step.committed.tolist() for step in stream]
    plain = [step.committed.tolist() for step in pipe.stream("grass", generator=torch.Generator().manual_seed(7))]
    assert steps == plain


def test_a_pipeline_without_a_tokenizer_of_pictures_gives_tokens_only(pipe, components):
    blind = type(pipe)(**components | {"vqvae": None})
    sentence = "`output_type` must be 'latent' for a pipeline without `vqvae`, got 'pil'."
    assert refusal(blind, PROMPT) == sentence
    assert refusal(type(pipe), torch.nn.Linear(1, 1)).startswith("`transformer` must be a LlamaGenTransformer, got a")


def test_components_that_do_not_fit_are_refused_by_name(pipe):
    method, parts = type(pipe), pipe.components
    few = PatchTokenizer(tiny.PATCH, 4, encoder_width=8, decoder_width=8, decoder_blocks=1, fine_width=8)
    assert refusal(method, **parts | {"vqvae": few}) == (
        "`vqvae` must have the 32 codes that `transformer` draws, got 4."
    )
    assert refusal(method, **parts | {"vqvae": torch.nn.Linear(1, 1)}).startswith("`vqvae` must be a PatchTokenizer")
    wide = T5EncoderModel(T5Config(vocab_size=8, d_model=24, d_kv=8, d_ff=32, num_layers=1, num_heads=2))
    assert refusal(method, **parts | {"text_encoder": wide}) == (
        "`text_encoder` must be 16 wide, as `transformer` reads it, got 24."
    )
    deaf = T5EncoderModel(T5Config(vocab_size=4, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2))
    assert refusal(method, **parts | {"text_encoder": deaf}).startswith("`tokenizer` must have at most the 4 words")
    assert refusal(pipe, PROMPT, callback_on_step_end=5) == (
        "`callback_on_step_end` must be a function or None, got 5."
    )


def test_the_coldest_temperatures_are_greedy(pipe):
    def drawn(temperature: float) -> torch.Tensor:
        return pipe(PROMPT, temperature=temperature, generator=torch.Generator().manual_seed(1), output_type="latent")[
            0
        ]

    assert torch.equal(drawn(1e-40), drawn(0.0))


def test_missing_tokens_are_drawn_as_the_code_nearest_to_the_mean(pipe):
    codes = pipe.vqvae.codebook()
    mean = ((codes - codes.mean(0)) ** 2).sum(-1).argmin()
    latents = torch.arange(16).view(1, 4, 4)
    holes = latents.masked_fill(latents % 3 == 0, -1)
    filled = torch.where(holes < 0, mean, holes)
    assert torch.equal(pipe.decode_latents(holes), pipe.decode_latents(filled))
    assert (holes < 0).any(), "the tokens given were written to"


def test_a_methods_knob_is_set_for_a_pipeline_or_for_a_call(components):
    pipe = WindowPipeline(**components, settings={"window": 8})
    assert pipe.settings.window == 8 and pipe.stream(PROMPT).trace.header.settings["window"] == 8
    assert pipe.stream(PROMPT, window=4).trace.header.settings["window"] == 4
    assert pipe.settings.window == 8, "a call changed the pipeline"
    sentence = "`window` must be a whole number from 2 to 64, got 1."
    assert refusal(pipe, PROMPT, window=1) == sentence
    assert refusal(WindowPipeline, **components, settings={"window": 1}) == sentence
    assert refusal(pipe, PROMPT, windw=4).endswith("did you mean `window`, a whole number from 2 to 64?")


def test_settings_belong_to_the_method_that_they_were_saved_by(components, tmp_path):
    WindowPipeline(**components, settings={"window": 8}).save_pretrained(tmp_path)
    assert WindowPipeline.from_pretrained(tmp_path).settings.window == 8
    assert WindowPipeline.from_pretrained(tmp_path, settings={"window": 4}).settings.window == 4
