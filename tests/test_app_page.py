"""What the page offers, and its JSON endpoint through a real server."""

import base64
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
import numpy as np
import pytest
import torch
from gradio_client import Client
from gradio_client.exceptions import AppError

import app
import pipelines
from pipelines.contest import Ask
from pipelines.menu import open_menu
from tests import tiny
from tests.visit import PROMPT, SEED, held, open_studio, opened, save_model, tokens_alone
from visualize import events
from visualize.recorded import open_recordings
from visualize.studio import Studio


WORKER = ThreadPoolExecutor(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(folder: Path) -> dict[str, Any]:
    return app.load(folder)


@pytest.fixture
def studio(model: dict[str, Any]) -> Studio:
    return open_studio(WORKER, held(model))


def test_the_page_gets_a_colour_and_a_picture_for_every_code(model: dict[str, Any]):
    palette, sheet, vectors = app.looks(held(model))
    side, _, url = sheet.partition(",")
    assert len(palette) == 6 * tiny.VOCAB and url.startswith("data:image/jpeg;base64,")
    assert int(side) == pipelines.ARPipeline(**model).model.patch_size
    width, scale, digits = vectors.split(",")
    codebook = pipelines.ARPipeline(**model).model.codebook().numpy()
    read = np.frombuffer(base64.b64decode(digits), np.uint8).reshape(-1, int(width)).astype(float)
    assert read.shape == codebook.shape and np.abs((read - 128) * float(scale) - codebook).max() <= float(scale)


def controls(page: gr.Blocks) -> dict[str, gr.components.Component]:
    return {block.elem_id: block for block in page.blocks.values() if getattr(block, "elem_id", None)}


def test_controls_say_what_the_knobs_say(folder: Path):
    shown = controls(app.build(folder))
    menu = open_menu(folder, tiny.VOCAB)
    for owner, knobs in ({"sampling": menu.sampling} | menu.methods).items():
        for knob in knobs:
            each = shown[knob.name if owner == "sampling" else f"{owner}-{knob.name}"]
            assert (each.label, each.info, each.value) == (knob.label, knob.help, knob.default)
            if isinstance(each, gr.Slider):
                assert (each.minimum, each.maximum, each.step) == (knob.low, knob.high, knob.step)
                continue
            if knob.is_optional:
                assert (each.minimum, each.maximum) == (knob.low, knob.high)
                continue
            offered = [value for _, value in each.choices]
            assert offered[0] == (knob.choices or [knob.low])[0] and offered[-1] == (knob.choices or [knob.high])[-1]
            assert each.value in offered and all(knob.check(value) == value for value in offered)
    assert shown["guidance_scale"].value == 2.0, "the model's own default"
    assert [value for _, value in shown["SJDPipeline-window"].choices] == [2, 4, 8, 16, 32, 64]


def test_what_the_controls_say_is_drawn(folder: Path):
    menu = open_menu(folder, tiny.VOCAB)
    values = menu.knobs() | {("SJDPipeline", "window"): 4, ("sampling", "top_k"): 8}
    wanted = menu.ask(PROMPT, SEED, "SJDPipeline", "SJDPipeline", *values.values())
    assert wanted.lanes[0] == ("SJDPipeline", {}), "the opponent has no controls"
    assert wanted.lanes[1] == ("SJDPipeline", pipelines.SJDPipeline.Settings(window=4).to_dict())
    assert (wanted.prompt, wanted.seed, wanted.sampling["top_k"]) == (PROMPT, SEED, 8)
    assert menu.ask(PROMPT, SEED, "", "ARPipeline", *values.values()).lanes == [("ARPipeline", {})]


def test_every_method_is_offered_and_the_knobs_of_one_are_shown(folder: Path):
    shown, methods = controls(app.build(folder)), list(pipelines.METHODS)
    assert [value for _, value in shown["method"].choices] == methods
    assert [value for _, value in shown["opponent"].choices] == [*methods, ""]
    visible = [name for name in methods if shown[f"knobs-{name}"].visible]
    assert visible == [shown["method"].value]


def test_methods_that_need_a_draft_model_are_offered_where_there_is_one(tmp_path: Path):
    without = list(open_menu(tmp_path, tiny.VOCAB).methods)
    (tmp_path / "draft_model").mkdir()
    assert list(open_menu(tmp_path, tiny.VOCAB).methods) == list(pipelines.METHODS)
    assert without == [name for name in pipelines.METHODS if not getattr(pipelines, name).needs_draft_model]


def test_the_page_opens_on_the_recorded_race_of_its_model():
    shown = controls(app.build(app.EMBEDDED))
    run = events.read(shown["stage"].value)
    assert run.names == ["AR", "SJD"] and all(lane.reason == events.DONE for lane in run.lanes)
    assert run.about["recorded"]["date"] and run.about["recorded"]["device"]
    wires = {block.props["wire"]: block.value for block in shown["stage"].children}
    assert [opened(line).size for line in wires["pixels"].splitlines()] == [(128, 128)] * 2
    assert len(wires["palette"]) % 6 == 0 and len(wires["palette"]) > 6 * max(run.lanes[0].tokens.ravel())


def test_a_page_without_recordings_of_its_model_opens_empty(folder: Path, tmp_path: Path):
    assert controls(app.build(folder))["stage"].value == ""
    assert open_recordings(tmp_path, app.EMBEDDED.name).race() == ""


def test_a_damaged_recording_is_named(tmp_path: Path):
    (tmp_path / "index.json").write_text('{"lanes": ["ar"]}')
    with pytest.raises(ValueError, match="index.json.*make traces"):
        open_recordings(tmp_path, app.EMBEDDED.name)


def test_a_folder_that_is_no_model_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match="scenes.json"):
        app.build(tmp_path)


def test_decode_gives_the_tokens_and_what_made_them(studio: Studio, model: dict[str, Any]):
    *_, answer = app.decoder(studio)("a pandah on snow", SEED, guidance_scale=2.0)
    assert answer["tokens"] == tokens_alone(model, "a pandah on snow", SEED)
    assert (answer["nfe"], answer["seed"], answer["unknown_words"]) == (16, SEED, {"pandah": ["panda"]})
    assert answer["seconds"] > 0 and answer["settings"]["guidance_scale"] == 2.0
    assert json.loads(json.dumps(answer)) == answer


def test_decode_draws_by_any_method(studio: Studio, model: dict[str, Any]):
    *_, answer = app.decoder(studio)(PROMPT, SEED, guidance_scale=2.0, method="SJDPipeline", settings={"window": 4})
    assert (answer["method"], answer["settings"]["window"]) == ("SJDPipeline", 4)
    pipe, generator = pipelines.SJDPipeline(**model), torch.Generator().manual_seed(SEED)
    output = pipe(PROMPT, guidance_scale=2.0, generator=generator, window=4, output_type="latent")
    assert (answer["tokens"], answer["nfe"]) == (output.images[0].tolist(), output.traces[0].nfe)


@pytest.mark.parametrize(
    ("method", "settings", "names"),
    [
        ("PNGPipeline", None, "`method` must be one of ARPipeline, "),
        (["SJDPipeline"], None, "`method` must be one of ARPipeline, "),
        ("SJDPipeline", {"window": 65}, "`window` must be a whole number from 2 to 64"),
        ("SJDPipeline", {"windows": 4}, "did you mean `window`"),
        ("ARPipeline", {"window": 4}, "`window` is not a setting of ARPipeline"),
        ("ARPipeline", {"prompt": "a cat"}, "`prompt` is not a setting of ARPipeline"),
        ("SJDPipeline", [["window", 4]], "`settings` must name settings"),
    ],
)
def test_decode_refuses_a_method_or_setting_in_one_sentence(studio: Studio, method, settings, names):
    with pytest.raises(gr.Error, match=names) as caught:
        list(app.decoder(studio)(PROMPT, SEED, method=method, settings=settings))
    assert str(caught.value).count(". ") == 0


def test_decode_waits_for_its_turn(studio: Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("visualize.studio.WAITING_SECONDS", 0.0)
    drawing, answers = studio.draw(lambda: Ask(PROMPT, SEED, [("ARPipeline", {})])), app.decoder(studio)(PROMPT)
    next(drawing)
    assert next(answers) == {"waiting_for": 1}
    drawing.close()
    assert list(answers)[-1]["nfe"] == 16


def test_decode_shows_signs_of_life(studio: Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("visualize.studio.PROGRESS_SECONDS", 0.0)
    assert [answer["drawn"] for answer in list(app.decoder(studio)(PROMPT))[:-1]] == list(range(1, 17))


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


def test_no_style_rule_gets_a_weight_from_gradio():
    # gradio writes its own classes after each comma, also within :is(a, b), which then outweighs all later rules.
    rules = "".join(path.read_text() for path in app.LAUNCH["css_paths"])
    assert ":where(" in rules and not re.search(r":(is|not|has)\([^)]*,", rules)
