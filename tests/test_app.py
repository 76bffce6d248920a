"""The page's handlers, pulled to their end on a tiny real model; its JSON endpoint through a real server."""

import base64
import io
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
import numpy as np
import pytest
import torch
from gradio_client import Client
from gradio_client.exceptions import AppError
from PIL import Image

import app
import pipelines
from tests import tiny
from visualize import events


PROMPT = "a panda on snow"
SEED = 7
WORKER = ThreadPoolExecutor(1)
SAMPLING = (2.0, 1.0, 0, 1.0)  # guidance, temperature, top-k, top-p
SCENES = {"objects": ["panda", "cat"], "places": {"snow": "on snow"}, "styles": ["3d"], "examples": [PROMPT, "a cat"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as the page reads it."""
    path = tmp_path_factory.mktemp("model")
    pipelines.ARPipeline(**tiny.components()).save_pretrained(path)
    (path / "scenes.json").write_text(json.dumps(SCENES))
    (path / "method_defaults.json").write_text(json.dumps({"sampling": {"guidance_scale": 2.0}}))
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> dict[str, Any]:
    return app.load(folder)


@pytest.fixture
def studio(model: dict[str, Any]) -> app.Studio:
    return app.Studio(WORKER, held(model), Future())


def held(value: Any) -> Future:
    future = Future()
    future.set_result(value)
    return future


def texts(messages: list[tuple]) -> list[str]:
    return [text for text, _, _ in messages if isinstance(text, str)]


def notes(messages: list[tuple]) -> list[str]:
    return [notice for _, _, notice in messages if isinstance(notice, str) and notice]


def opened(pixels: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(pixels.split(",", 3)[3])))


def tokens_alone(model: dict[str, Any], prompt: str, seed: int) -> list[list[int]]:
    """What the pipeline gives without a page."""
    pipe = pipelines.ARPipeline(**model)
    generator = torch.Generator().manual_seed(seed)
    return pipe(prompt, guidance_scale=2.0, generator=generator, output_type="latent").images[0].tolist()


def test_a_run_draws_what_the_pipeline_draws(studio: app.Studio, model: dict[str, Any]):
    run = events.read(texts(list(studio.draw(PROMPT, SEED, *SAMPLING)))[-1])
    assert run.lanes[0].tokens.tolist() == tokens_alone(model, PROMPT, SEED)
    assert (run.lanes[0].reason, run.lanes[0].passes, run.names) == (events.DONE, 16, ["AR"])


def test_messages_only_add_to_the_text(studio: app.Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "MESSAGE_SECONDS", 0.0)
    sent = texts(list(studio.draw(PROMPT, SEED, *SAMPLING)))
    assert len(sent) > 16 and all(after.startswith(before) for before, after in zip(sent, sent[1:]))


def test_messages_are_coalesced(studio: app.Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "MESSAGE_SECONDS", 3600.0)
    assert len(list(studio.draw(PROMPT, SEED, *SAMPLING))) == 2, "the opening and the end"


def test_pixels_come_twice_a_second_and_at_the_end(studio: app.Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "MESSAGE_SECONDS", 0.0)
    monkeypatch.setattr(app, "KEYFRAME_SECONDS", 0.0)
    frames = [pixels for _, pixels, _ in studio.draw(PROMPT, SEED, *SAMPLING) if isinstance(pixels, str) and pixels]
    assert [frame.split(",")[:2] for frame in frames] == [["0", str(drawn)] for drawn in (*range(1, 17), 16)]
    assert [opened(frame).format for frame in frames] == ["JPEG"] * 16 + ["PNG"]
    assert opened(frames[0]).size == (32, 32)


def test_the_last_picture_is_the_pipelines_and_tells_its_origin(studio: app.Studio, model: dict[str, Any]):
    *_, (_, pixels, _) = studio.draw(PROMPT, SEED, *SAMPLING)
    pipe = pipelines.ARPipeline(**model)
    expected = pipe(PROMPT, guidance_scale=2.0, generator=torch.Generator().manual_seed(SEED)).images[0]
    saved = opened(pixels)
    assert np.array_equal(np.array(saved.convert("RGB")), np.array(expected))
    assert (saved.text["prompt"], saved.text["seed"], saved.text["method"]) == (PROMPT, "7", "ARPipeline")
    assert json.loads(saved.text["settings"])["guidance_scale"] == 2.0


def test_two_visitors_do_not_touch_each_other(
    studio: app.Studio, model: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(app, "MESSAGE_SECONDS", 0.0)
    first, second = studio.draw(PROMPT, 1, *SAMPLING), studio.draw("a cat", 2, *SAMPLING)
    pairs = list(zip(first, second))
    second.close()
    ended = texts([*(one for one, _ in pairs), *first])
    assert events.read(ended[-1]).lanes[0].tokens.tolist() == tokens_alone(model, PROMPT, 1)
    assert events.read(pairs[-1][1][0]).lanes[0].tokens.tolist() == tokens_alone(model, "a cat", 2)


def test_closing_the_handler_ends_the_drawing(
    studio: app.Studio, model: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(app, "MESSAGE_SECONDS", 0.0)
    passes = []
    hook = model["transformer"].register_forward_hook(lambda *_: passes.append(1))
    drawing = studio.draw(PROMPT, SEED, *SAMPLING)
    for _ in range(5):
        next(drawing)
    before = len(passes)
    drawing.close()
    hook.remove()
    assert 0 < before == len(passes) < 16


def stopped_text(studio: app.Studio) -> str:
    """The event text of a run that was stopped under way, as the browser holds it."""
    drawing = studio.draw(PROMPT, SEED, *SAMPLING)
    sent = [next(drawing)[0] for _ in range(6)]
    drawing.close()
    return sent[-1]


def test_a_stopped_run_keeps_its_partial_picture(studio: app.Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "MESSAGE_SECONDS", 0.0)
    text = stopped_text(studio)
    drawn = events.read(text).lanes[0].drawn
    ended, pixels, _, go, stop = studio.finish(text, "")
    assert ended.startswith(text) and events.read(ended).lanes[0].reason == events.STOPPED
    assert 0 < drawn < 16 and pixels.startswith(f"0,{drawn},")
    seen = np.array(opened(pixels))[..., 3].reshape(4, 8, 4, 8)[:, 0, :, 0].ravel() > 0
    assert seen.tolist() == [square < drawn for square in range(16)]
    assert (go.interactive, stop.interactive) == (True, False)


def test_a_run_that_is_stopped_before_its_first_square_ends_too(studio: app.Studio):
    ended, pixels, *_ = studio.finish(next(studio.draw(PROMPT, SEED, *SAMPLING))[0], "")
    assert (events.read(ended).lanes[0].reason, pixels) == (events.STOPPED, gr.skip())


def test_finish_leaves_a_finished_picture_alone(studio: app.Studio):
    text = texts(list(studio.draw(PROMPT, SEED, *SAMPLING)))[-1]
    for ended in (text, ""):
        assert studio.finish(ended, "")[:2] == (gr.skip(), gr.skip())


def test_finish_clears_only_a_note_of_waiting(studio: app.Studio):
    assert studio.finish("", app.note("Waiting for the model.", app.WAITING))[2] == ""
    assert studio.finish("", app.note("`seed` must be whole.", "bad"))[2] == gr.skip()


@pytest.mark.parametrize("text", ["H,2,2,AR\n", "H,4,4,AR\nC,0,0,32,d\n"])
def test_finish_decodes_no_picture_of_another_model(studio: app.Studio, text: str):
    with pytest.raises(gr.Error, match="not a picture of this model"):
        studio.finish(text, "")


@pytest.mark.parametrize(
    ("prompt", "seed", "sampling", "names"),
    [
        ("", SEED, SAMPLING, "prompt"),
        ("  ", SEED, SAMPLING, "prompt"),
        ("xylophone", SEED, SAMPLING, "prompt"),
        (PROMPT, -1, SAMPLING, "seed"),
        (PROMPT, 2**31, SAMPLING, "seed"),
        (PROMPT, None, SAMPLING, "seed"),
        (PROMPT, 1.5, SAMPLING, "seed"),
        (PROMPT, SEED, (0.5, 1.0, 0, 1.0), "guidance_scale"),
        (PROMPT, SEED, (2.0, 2.5, 0, 1.0), "temperature"),
        (PROMPT, SEED, (2.0, 1.0, 33, 1.0), "top_k"),
        (PROMPT, SEED, (2.0, 1.0, 0, 1.1), "top_p"),
    ],
)
def test_bad_input_is_one_sentence_and_loses_nothing(studio: app.Studio, prompt, seed, sampling, names):
    messages = list(studio.draw(prompt, seed, *sampling))
    assert len(messages) == 1 and not texts(messages) and messages[0][1] == gr.skip()
    (notice,) = notes(messages)
    assert f"<code>{names}</code>" in notice and notice.count(". ") == 0 and notice.endswith(".</p>")


def test_unknown_words_are_named_and_the_rest_is_drawn(studio: app.Studio):
    messages = list(studio.draw("a pandah on snow & <i>", SEED, *SAMPLING))
    assert events.read(texts(messages)[-1]).lanes[0].reason == events.DONE
    (notice,) = notes(messages)
    assert "“pandah” (nearest: panda)" in notice and "&lt;i&gt;" in notice and "<i>" not in notice


@pytest.mark.parametrize("error", [RuntimeError("not enough memory"), MemoryError("not enough memory")])
def test_a_run_that_breaks_keeps_what_is_drawn_and_says_why(
    studio: app.Studio, model: dict[str, Any], error: Exception
):
    passes = []

    def breaks(*_):
        passes.append(1)
        if len(passes) == 8:
            raise error

    hook = model["transformer"].register_forward_hook(breaks)
    lane = events.read(texts(list(studio.draw(PROMPT, SEED, *SAMPLING)))[-1]).lanes[0]
    hook.remove()
    assert lane.drawn == 6, "all but the warm-up and the broken pass"
    assert "not enough memory" in lane.reason and "What is drawn stays" in lane.reason


def test_weights_that_do_not_load_are_named(tmp_path: Path):
    broken = Future()
    with pytest.raises(ValueError) as raised:
        app.load(tmp_path)
    broken.set_exception(raised.value)
    (notice,) = notes(list(app.Studio(WORKER, broken, Future()).draw(PROMPT, SEED, *SAMPLING)))
    assert "model_index.json" in notice


def test_a_run_waits_for_the_weights(model: dict[str, Any]):
    later = Future()
    drawing = app.Studio(WORKER, later, Future()).draw(PROMPT, SEED, *SAMPLING)
    assert app.WAITING in next(drawing)[2], "the visitor is told at once, and can stop"
    later.set_result(model)
    assert events.read(texts(list(drawing))[-1]).lanes[0].reason == events.DONE


def test_the_page_gets_a_colour_for_every_code(model: dict[str, Any]):
    studio = app.Studio(WORKER, held(model), held(app.colours(held(model))))
    assert len(studio.ready()) == 6 * tiny.VOCAB


def test_sliders_say_what_the_knobs_say(folder: Path):
    page = app.build(folder)
    sliders = {block.elem_id: block for block in page.blocks.values() if isinstance(block, gr.Slider)}
    knobs = {knob.name: knob for knob in app.sampling_knobs(folder, tiny.VOCAB)}
    assert list(sliders) == list(knobs)
    for name, knob in knobs.items():
        slider = sliders[name]
        assert (slider.label, slider.info, slider.value) == (knob.label, knob.help, knob.default)
        assert (slider.minimum, slider.step) == (knob.low, knob.step)
        assert slider.maximum == knob.high
    assert sliders["guidance_scale"].value == 2.0, "the model's own default"
    assert sliders["top_k"].maximum == tiny.VOCAB


def test_a_folder_that_is_no_model_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match="scenes.json"):
        app.build(tmp_path)


def test_decode_gives_the_tokens_and_what_made_them(studio: app.Studio, model: dict[str, Any]):
    *_, answer = studio.decode("a pandah on snow", SEED, guidance_scale=2.0)
    assert answer["tokens"] == tokens_alone(model, "a pandah on snow", SEED)
    assert (answer["nfe"], answer["seed"], answer["unknown_words"]) == (16, SEED, {"pandah": ["panda"]})
    assert answer["seconds"] > 0 and answer["settings"]["guidance_scale"] == 2.0
    assert json.loads(json.dumps(answer)) == answer


def test_decode_shows_signs_of_life(studio: app.Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "PROGRESS_SECONDS", 0.0)
    assert [answer["drawn"] for answer in list(studio.decode(PROMPT))[:-1]] == list(range(1, 17))


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    page = app.build(folder)
    _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **app.LAUNCH)
    yield Client(url, verbose=False)
    page.close()


def test_the_endpoint_answers_a_client(client: Client, model: dict[str, Any]):
    answer = client.predict(PROMPT, SEED, 2.0, api_name="/decode")
    assert answer["tokens"] == tokens_alone(model, PROMPT, SEED)


def test_the_endpoint_has_defaults_and_is_the_only_public_one(client: Client):
    endpoints = client.view_api(return_format="dict")["named_endpoints"]
    assert list(endpoints) == ["/decode"]
    needed = [
        each["parameter_name"] for each in endpoints["/decode"]["parameters"] if not each["parameter_has_default"]
    ]
    assert needed == ["prompt"]
    assert client.predict(PROMPT, api_name="/decode")["settings"]["guidance_scale"] == 2.0, "the model's default"


def test_the_endpoint_answers_plain_http_by_names(client: Client, model: dict[str, Any]):
    address = f"{client.src}gradio_api/call/v2/decode"
    event = httpx.post(address, json={"prompt": PROMPT, "seed": SEED}).json()["event_id"]
    lines = httpx.get(f"{address}/{event}").text.split("\n")
    answer = json.loads(lines[lines.index("event: complete") + 1].removeprefix("data: "))[0]
    assert answer["tokens"] == tokens_alone(model, PROMPT, SEED)


@pytest.mark.parametrize(("prompt", "seed"), [("", 0), ("xylophone", 0), (PROMPT, -1)])
def test_the_endpoint_refuses_in_words(client: Client, prompt: str, seed: int):
    with pytest.raises(AppError, match="must"):
        client.predict(prompt, seed, api_name="/decode")
