"""Model folders: what is saved comes back the same, and a folder that is broken or foreign says so in one sentence."""

import json
import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import pipelines
from pipelines import ARPipeline
from tests import tiny
from tests.tiny import WindowPipeline, refusal


PROMPT = "a panda on snow"
TRANSFORMER = "transformer/diffusion_pytorch_model.safetensors"
TEXT_ENCODER = "text_encoder/model.safetensors"
DEFAULTS = {"sampling": {"guidance_scale": 2.0, "top_k": 5}, "WindowPipeline": {"window": 4}}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A folder with defaults of its own."""
    folder = tmp_path_factory.mktemp("models") / "tiny-scenes"
    ARPipeline(**tiny.components()).save_pretrained(folder)
    (folder / "method_defaults.json").write_text(json.dumps(DEFAULTS))
    return folder


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(saved, tmp_path / saved.name))


@pytest.fixture(params=pipelines.METHODS)
def method(request):
    return getattr(pipelines, request.param)


def tokens(pipe, **arguments) -> list[int]:
    pipe.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(7)
    return pipe(PROMPT, generator=generator, output_type="latent", **arguments).traces[0].tokens.tolist()


def edit(path: Path, change) -> None:
    stored = load_file(path)
    change(stored)
    save_file(stored, path)


def set_config(folder: Path, part: str, **values) -> None:
    config = folder / part / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))


def set_index(folder: Path, name: str, value) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps(index | {name: value}))


def test_a_saved_pipeline_comes_back_and_draws_the_same(method, tmp_path):
    built = method(**tiny.components())
    built.save_pretrained(tmp_path)
    loaded = method.from_pretrained(tmp_path)
    assert tokens(loaded, guidance_scale=3.0) == tokens(built, guidance_scale=3.0)
    assert loaded.weights_sha256 == built.weights_sha256
    assert not (tmp_path / "method_defaults.json").exists(), "defaults were made up"
    assert not [file for file in tmp_path.glob("**/*") if file.suffix in (".bin", ".pt", ".pkl")]


def test_every_method_reads_the_folder_of_every_other(method, saved):
    pipe = method.from_pretrained(saved)
    assert tokens(method(**ARPipeline.from_pretrained(saved).components)) == tokens(pipe)


def test_a_component_may_be_given_instead_of_loaded(method, saved, folder):
    transformer = ARPipeline.from_pretrained(saved).transformer
    shutil.rmtree(folder / "transformer")
    assert method.from_pretrained(folder, transformer=transformer).transformer is transformer


def test_a_models_own_defaults_replace_the_methods(saved, tmp_path):
    pipe = ARPipeline.from_pretrained(saved)
    sampling = {"guidance_scale": 2.0, "temperature": 1.0, "top_k": 5, "top_p": 1.0}
    assert pipe.sampling.to_dict() == sampling and pipe.stream(PROMPT).trace.header.settings == sampling
    assert tokens(pipe) == tokens(pipe, guidance_scale=2.0, top_k=5) != tokens(pipe, guidance_scale=2.0, top_k=0)
    assert pipe.stream(PROMPT).trace.header.model == "tiny-scenes"
    other = WindowPipeline(**pipe.components)
    assert other.settings.window == 4 and other.sampling == pipe.sampling, "lost on the way to another method"
    assert WindowPipeline(**pipe.components, settings={"window": 8}).settings.window == 8
    pipe.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "method_defaults.json").read_text()) == DEFAULTS


def test_defaults_out_of_range_are_refused_with_the_folder(method, folder):
    (folder / "method_defaults.json").write_text('{"sampling": {"top_k": 99}}')
    message = refusal(method.from_pretrained, folder)
    assert message == f"`{folder}` cannot be loaded: `top_k` must be a whole number from 0 to 32, got 99."


def test_settings_of_another_method_stay_with_it(folder):
    WindowPipeline(**tiny.components(), settings={"window": 8}).save_pretrained(folder)
    set_index(folder, "_class_name", "ARPipeline")
    pipe = ARPipeline.from_pretrained(folder)
    assert pipe.settings.to_dict() == {}
    pipe.save_pretrained(folder)
    assert WindowPipeline.from_pretrained(folder).settings.window == 8


def test_the_digest_tells_weights_apart_and_outlives_a_cast(saved, folder):
    pipe = ARPipeline.from_pretrained(saved)
    digest = pipe.weights_sha256
    edit(folder / TRANSFORMER, lambda stored: stored["norm.weight"][0].add_(1e-3))
    assert ARPipeline.from_pretrained(folder).weights_sha256 != digest, "one changed number went unseen"
    halved = pipe.to(torch.bfloat16).weights_sha256
    assert halved != digest, "rounded weights are other weights"
    assert pipe.to(torch.float32).weights_sha256 == halved, "the same numbers in a wider type are the same weights"


def test_a_model_runs_in_the_type_it_is_loaded_in(method, saved):
    pipe = method.from_pretrained(saved, dtype=torch.bfloat16)
    pipe.set_progress_bar_config(disable=True)
    output = pipe(PROMPT, generator=torch.Generator().manual_seed(7), output_type="pt")
    assert output.traces[0].header.dtype == "bfloat16" and output.images.dtype == torch.float32
    assert output.traces[0].complete


BROKEN = {
    "no index": (
        lambda folder: (folder / "model_index.json").unlink(),
        "`{folder}` is not a model folder: it has no model_index.json.",
    ),
    "index is not JSON": (
        lambda folder: (folder / "model_index.json").write_text("{"),
        "`{folder}/model_index.json` must hold a JSON object, it is missing, cut short or another file.",
    ),
    "index is a list": (
        lambda folder: (folder / "model_index.json").write_text("[]"),
        "`{folder}/model_index.json` must hold a JSON object, got [].",
    ),
    "another pipeline": (
        lambda folder: set_index(folder, "_class_name", "StableDiffusionPipeline"),
        "`{folder}` holds a StableDiffusionPipeline, which is not a model of ours; it must have been saved by one of",
    ),
    "another transformer": (
        lambda folder: set_index(folder, "transformer", ["diffusers", "FluxTransformer2DModel"]),
        "`{folder}/model_index.json` must name a LlamaGenTransformer as transformer, got ['diffusers', 'Flux",
    ),
    "a component is gone": (
        lambda folder: shutil.rmtree(folder / "vqvae"),
        "`{folder}` lacks the folder 'vqvae' that its model_index.json names.",
    ),
    "weights are gone": (
        lambda folder: (folder / TRANSFORMER).unlink(),
        "`{folder}/transformer` holds no weights: a .safetensors file is missing.",
    ),
    "weights are cut short": (
        lambda folder: (folder / TRANSFORMER).write_bytes((folder / TRANSFORMER).read_bytes()[:-100]),
        "`{folder}/" + TRANSFORMER + "` is missing, cut short or no safetensors file: ",
    ),
    "weights are empty": (
        lambda folder: (folder / TEXT_ENCODER).write_bytes(b""),
        "`{folder}/" + TEXT_ENCODER + "` is missing, cut short or no safetensors file: ",
    ),
    "the index of the shards is cut short": (
        lambda folder: (folder / f"{TRANSFORMER}.index.json").write_text('{"weight_map": {"a": "b.saf'),
        "`{folder}/" + TRANSFORMER + ".index.json` must be the JSON index of safetensors files, it is cut short",
    ),
    "the index of the shards is another file": (
        lambda folder: (folder / f"{TRANSFORMER}.index.json").write_text("[]"),
        "`{folder}/" + TRANSFORMER + ".index.json` must be the JSON index of safetensors files, it is cut short",
    ),
    "settings are no object": (
        lambda folder: set_index(folder, "settings", [1]),
        "`{folder}/model_index.json` must hold its `settings` as an object, got [1].",
    ),
    "the config has fewer layers": (
        lambda folder: set_config(folder, "transformer", num_layers=1),
        "`{folder}/transformer` has weights of another model than its config.json",
    ),
    "a shard is gone": (
        lambda folder: (folder / f"{TRANSFORMER}.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}'),
        "`{folder}/transformer/b.safetensors` is missing, cut short or no safetensors file: ",
    ),
    "a tensor is gone": (
        lambda folder: edit(folder / TRANSFORMER, lambda stored: stored.pop("head.weight")),
        "`{folder}/transformer` is not the weights of a LlamaGenTransformer: it lacks 1 ",
    ),
    "a tensor of the text encoder is gone": (
        lambda folder: edit(folder / TEXT_ENCODER, lambda stored: stored.pop("encoder.final_layer_norm.weight")),
        "`{folder}/text_encoder` is not the weights of a T5EncoderModel: it lacks 1 ",
    ),
    "a tensor is of another shape": (
        lambda folder: edit(folder / TRANSFORMER, lambda stored: stored.update({"head.weight": torch.zeros(16, 32)})),
        "`{folder}/transformer` has weights of another model than its config.json describes: 'head.weight' is "
        "[16, 32], not [32, 32].",
    ),
    "a config is gone": (
        lambda folder: (folder / "transformer/config.json").unlink(),
        "`{folder}/transformer/config.json` must hold a JSON object, it is missing, cut short or another file.",
    ),
    "a config is a list": (
        lambda folder: (folder / "text_encoder/config.json").write_text("[]"),
        "`{folder}/text_encoder/config.json` must hold a JSON object, got [].",
    ),
    "a config is null": (
        lambda folder: (folder / "vqvae/config.json").write_text("null"),
        "`{folder}/vqvae/config.json` must hold a JSON object, got None.",
    ),
    "a config of another class": (
        lambda folder: set_config(folder, "vqvae", _class_name="VQModel"),
        "`{folder}/vqvae/config.json` must describe a PatchTokenizer, got 'VQModel'.",
    ),
    "a text encoder of another class": (
        lambda folder: set_config(folder, "text_encoder", architectures=["BertModel"]),
        "`{folder}/text_encoder/config.json` must describe a T5EncoderModel, got ['BertModel'].",
    ),
    "a text encoder of another width": (
        lambda folder: set_config(folder, "text_encoder", d_model=24),
        "`{folder}/text_encoder` has weights of another model than its config.json describes: 'encoder.block.0.layer."
        "0.SelfAttention.k.weight' is [16, 16], not [16, 24].",
    ),
    "a config with a word for a number": (
        lambda folder: set_config(folder, "text_encoder", d_model="wide"),
        "`{folder}/text_encoder/config.json` does not describe a T5EncoderModel that can be built.",
    ),
    "a config without heads": (
        lambda folder: set_config(folder, "transformer", num_heads=0),
        "`{folder}/transformer/config.json` does not describe a LlamaGenTransformer that can be built.",
    ),
    "a class that does not exist": (
        lambda folder: set_index(folder, "text_encoder", ["transformers", 3]),
        "`{folder}/model_index.json` names ['transformers', 3], which is no part of a model of ours.",
    ),
    "a tokenizer of another kind": (
        lambda folder: (folder / "tokenizer/tokenizer.json").write_text("{}"),
        "`{folder}/tokenizer` does not hold the files of a TokenizersBackend.",
    ),
    "defaults are not JSON": (
        lambda folder: (folder / "method_defaults.json").write_text("{"),
        "`{folder}` cannot be loaded: `{folder}/method_defaults.json` must be a JSON object of objects",
    ),
}


@pytest.mark.parametrize(("change", "sentence"), BROKEN.values(), ids=BROKEN)
def test_a_broken_or_foreign_folder_is_refused_with_what_is_wrong(folder, change, sentence, caplog):
    caplog.set_level(logging.CRITICAL)
    change(folder)
    assert refusal(ARPipeline.from_pretrained, folder).startswith(sentence.format(folder=folder))


def test_what_is_no_folder_is_refused_with_what_to_do():
    message = refusal(ARPipeline.from_pretrained, "somebody/some-model")
    assert message.startswith("`pretrained_model_name_or_path` must be a model folder on this machine, got 'some")
    assert "snapshot_download" in message


def test_a_tokenizer_that_would_hide_unknown_words_is_refused(folder: Path):
    (folder / "tokenizer" / "tokenizer_config.json").unlink()
    assert str(folder / "tokenizer") in tiny.refusal(ARPipeline.from_pretrained, folder)


def test_no_path_is_no_folder():
    for path in (None, 3):
        message = tiny.refusal(ARPipeline.from_pretrained, path)
        assert f"must be a model folder on this machine, got '{path}'" in message


def test_threads_may_load_at_once(folder: Path):
    with ThreadPoolExecutor(4) as threads:
        pipes = list(threads.map(ARPipeline.from_pretrained, [folder] * 8))
    assert len({pipe.weights_sha256 for pipe in pipes}) == 1
