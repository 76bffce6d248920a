"""The page: a prompt, a Start button, and pictures that race token by token. `python app.py` opens it."""

import argparse
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any


# Read by gradio when it is imported: without this it asks a server on the internet for its newest version.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr
import torch
from accelerate import PartialState

import pipelines
from pipelines.contest import Ask, Contest, Line
from pipelines.menu import open_menu, read_json
from pipelines.models.codebook import previews
from pipelines.models.llamagen_family import native_dtype
from pipelines.primitives.tree import STATIC_TREES
from pipelines.request import SEEDS
from pipelines.settings import SAMPLING, Knob
from visualize import events, grid
from visualize.lessons import verdicts
from visualize.notes import offer
from visualize.parcel import Shelf
from visualize.prices import price_table
from visualize.recorded import open_recordings
from visualize.studio import Studio
from visualize.style import byte_vectors, hex_colours


ASSETS = Path(__file__).parent / "assets"
EMBEDDED = ASSETS / "emoji-scenes"
PRICES = ASSETS.parent / "benchmarks" / "results" / "pareto.json"
# One script, of these files in this order.
STAGE = "run canvas words omega rules stage readings tabs square whatif cooling cascade leaf tree numbers growth cells"
STAGE += " hands"
METHOD = "SJDPipeline"  # chosen when the page opens

REPEATS = 5  # seeds of a comparison that is more than one run
STATE_SECONDS = 3600  # how long a run can be saved after its visitor was last seen
FIRST_KNOBS = 3  # of a method; the others are folded away
CARRIED = ("prompt", "seed", "opponent", "method")  # by every link; knobs only where they are changed
SLIDER_STEPS = 60  # whole numbers of a longer range are offered in powers of two
THREADS = max(1, torch.get_num_threads() - 1)  # for the worker; server and browser need a core, or OpenMP stalls

SENTENCE = "Drawn plainly, each square takes a pass of the network. With guesses, one pass may bring several."


def load(folder: Path) -> dict[str, Any]:
    """The components that all runs share, read once per server. Raises ValueError for a folder of something else."""
    device = PartialState().device
    return pipelines.ARPipeline.from_pretrained(folder, dtype=native_dtype(device)).to(device).components


def looks(components: "Future[dict[str, Any]]") -> tuple[str, str, str]:
    """The colours, the pictures and the vectors of all codes for the page, once the components are there."""
    model = pipelines.ARPipeline(**components.result()).model
    colours, thumbnails = previews(model)
    return hex_colours(colours), grid.sheet_url(thumbnails), byte_vectors(model.codebook().float().cpu().numpy())


def told(parts: Iterable[Any]) -> tuple[Any, ...]:
    """A message for gradio, which keeps what stands where a part is skipped."""
    return tuple(gr.skip() if part is None else part for part in parts)


def decoder(studio: Studio) -> Callable[..., Iterator[dict]]:
    """The function behind the JSON endpoint; gradio tells of it by its name, its arguments and its words."""

    def decode(
        prompt: str,
        seed: int = 0,
        guidance_scale: float | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        method: str = "ARPipeline",
        settings: dict | None = None,
    ) -> Iterator[dict]:
        """Draw one picture and return its tokens.

        Args:
            prompt: What to draw, such as "a penguin on snow".
            seed: Whole number; the same seed and settings give the same tokens.
            guidance_scale: How strongly the prompt pulls, at least 1.
            temperature: From 0 to 2; 0 always takes the likeliest token.
            top_k: Only the k likeliest tokens may be drawn; 0 allows all.
            top_p: Only the likeliest tokens that together have this probability may be drawn.
            method: How to draw: "ARPipeline", "SJDPipeline" or another class of the library.
            settings: Of the method, by name, such as {"window": 16}.

        Returns:
            tokens (rows of token ids), seconds of model work, nfe (forward passes), and what the run was asked for.
        """
        chosen = {"guidance_scale": guidance_scale, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        sampling = {name: value for name, value in chosen.items() if value is not None}
        try:
            yield from studio.decode(Ask(prompt, seed, [(method, settings or {})], sampling))
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from error

    return decode


def asset(name: str) -> str:
    """A text file of the page."""
    return (ASSETS / name).read_text(encoding="utf-8")


THEME = gr.themes.Default(
    primary_hue="blue",
    text_size="lg",
    font=["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"],
    font_mono=["ui-monospace", "Consolas", "monospace"],
).set(
    body_text_color_subdued="*neutral_600",
    body_text_color_subdued_dark="*neutral_400",
    block_info_text_color="*neutral_600",
    block_info_text_color_dark="*neutral_400",
    button_primary_background_fill="*primary_700",
    button_primary_background_fill_hover="*primary_800",
    button_primary_background_fill_dark="*primary_700",
    button_primary_background_fill_hover_dark="*primary_600",
)
LAUNCH = {
    "theme": THEME,
    "css_paths": [ASSETS / name for name in ("stage.css", "panels.css", "whatif.css", "tree.css", "growth.css")],
    "head": f"<script>{asset('link.js')}{asset('page.js')}</script>",
    "footer_links": ["api", "settings"],
    "run_history": False,
    "show_error": True,
    "ssr_mode": False,
}


def control(owner: str, knob: Knob) -> gr.components.FormComponent:
    """A knob's slider, list or field, its range and its words."""
    name = knob.name if owner == SAMPLING else f"{owner}-{knob.name}"
    words = {"value": knob.default, "label": knob.label, "info": knob.help, "elem_id": name}
    if knob.choices:
        return gr.Dropdown(list(knob.choices), **words)
    if knob.is_optional:
        return gr.Number(minimum=knob.low, maximum=knob.high, step=knob.step, **words)
    if knob.kind is int and (knob.high - knob.low) / knob.step > SLIDER_STEPS:
        powers = {2**power for power in range(32) if knob.low < 2**power < knob.high}
        return gr.Dropdown(sorted(powers | {knob.low, knob.default, knob.high}), **words)
    return gr.Slider(knob.low, knob.high, step=knob.step, precision=0 if knob.kind is int else None, **words)


def limits(control: gr.components.FormComponent) -> dict[str, Any]:
    """What a link may ask of a control, as assets/link.js reads it."""
    known = {"id": control.elem_id, "first": control.value, "always": control.elem_id in CARRIED}
    if isinstance(control, gr.Textbox):
        return known | {"longest": control.max_length}
    if isinstance(control, gr.Dropdown):
        return known | {"choices": [value for _, value in control.choices]}
    known["empty"] = isinstance(control, gr.Number)
    return known | {"low": control.minimum, "high": control.maximum, "whole": control.precision == 0}


def method_knobs(methods: dict[str, list[Knob]]) -> tuple[list[gr.Column], list[gr.components.Component]]:
    """A column a method, of which the chosen one is shown; all their controls in order."""
    columns, controls = [], []
    for name, knobs in methods.items():
        with gr.Column(visible=name == METHOD, elem_id=f"knobs-{name}") as column:
            gr.Markdown(getattr(pipelines, name).__doc__.split("\n")[0])
            controls += [control(name, knob) for knob in knobs[:FIRST_KNOBS]]
            if name == "CoolSDPipeline":
                heights = {str(nodes): tree.height for nodes, tree in STATIC_TREES.items()}
                curve = asset("omega.js") + asset("curve.js")
                gr.HTML(elem_id="omega", html_template='<div class="omega"></div>', js_on_load=curve, heights=heights)
            with gr.Accordion("More of this method", open=False, visible=len(knobs) > FIRST_KNOBS):
                controls += [control(name, knob) for knob in knobs[FIRST_KNOBS:]]
        columns.append(column)
    return columns, controls


def build(folder: Path, recorded: Path = ASSETS / "traces") -> gr.Blocks:
    """The whole page over one model folder. The weights load in the background; the page does not wait for them."""
    scenes = read_json(folder / "scenes.json", ("objects", "places", "examples"))
    config = read_json(folder / "transformer" / "config.json", ("grid_size", "vocab_size"))
    menu = open_menu(folder, config["vocab_size"])
    recordings = open_recordings(recorded, folder.name)
    worker = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(THREADS,))
    components = worker.submit(load, folder)
    studio, coded = Studio(worker, components, Line(), Contest), worker.submit(looks, components)
    lessons = json.loads(asset("lessons.json"))
    shelf = Shelf(recordings, os.path.relpath(folder, ASSETS.parent), menu.defaults())

    def draw(*chosen: Any) -> Iterator[tuple[Any, ...]]:
        yield from map(told, studio.draw(partial(menu.ask, *chosen)))

    def repeat(*chosen: Any) -> Iterator[tuple[Any, ...]]:
        yield from map(told, studio.repeat(lambda: menu.ask(*chosen).apart(REPEATS)))

    def finish(run: Any, notice: str) -> tuple[Any, ...]:
        return told(studio.finish(run, notice)[:3])

    with gr.Blocks(title="Draftboard", analytics_enabled=False, fill_width=False) as page:
        gr.HTML(f"<h1>Draftboard</h1><p>{SENTENCE}</p>", elem_id="title")
        doors, cards = school(lessons)
        with gr.Row(elem_id="desk"):
            with gr.Column(elem_id="ask"):
                first = scenes["examples"][0]
                prompt = gr.Textbox(first, label="Prompt", max_lines=1, max_length=200, elem_id="prompt")
                with gr.Row(elem_id="lanes"):
                    names = [*((events.short_name(name), name) for name in menu.methods), ("none", "")]
                    method = gr.Dropdown(names[:-1], value=METHOD, label="Method", elem_id="method")
                    opponent = gr.Dropdown(names, value="ARPipeline", label="Beside it", elem_id="opponent")
                with gr.Row(elem_id="buttons"):
                    go = gr.Button("Start", variant="primary", elem_id="go")
                    stop = gr.Button("Stop", interactive=False, elem_id="stop")
                    real = gr.Button("Run it for real", visible="hidden", elem_id="real")  # the stage presses it
                    five = gr.Button("Five seeds", visible="hidden", elem_id="five")  # the stage presses it
                notice = gr.HTML("", elem_id="notice")
            with gr.Column(elem_id="board"):
                with board(config["grid_size"], recordings.race()) as stage:
                    pixels, palette = wire("pixels", recordings.pixels()), wire("palette", recordings.palette)
                    codes, codebook = wire("codes", ""), wire("codebook", "")
                    numbers = wire("numbers", "")
                if PRICES.exists():
                    with gr.Accordion("What speed costs", open=False, elem_id="prices"):
                        gr.Image(PRICES.with_suffix(".png"), show_label=False, interactive=False, buttons=[])
                        gr.Markdown(price_table(json.loads(PRICES.read_text(encoding="utf-8"))))
            with gr.Column(elem_id="tune"):
                gr.Examples([[example] for example in scenes["examples"]], [prompt], label="Examples")
                with gr.Row(elem_id="seeds"):
                    seed = gr.Number(7, minimum=0, maximum=SEEDS - 1, label="Seed", precision=0, elem_id="seed")
                    dice = gr.Button("New seed", elem_id="dice", min_width=110, scale=0)
                groups, controls = method_knobs(menu.methods)
                with gr.Accordion("Sampling", open=False):
                    controls = [control(SAMPLING, knob) for knob in menu.sampling] + controls
                with gr.Accordion("Take along", open=False, elem_id="export"):
                    save = gr.Button("Save this run", elem_id="save")
                    share = gr.Button("Link to these settings", elem_id="share")
                    gr.Markdown("Traces, pictures, figures and code in one file. The code draws the same tokens:")
                    code = gr.Code(shelf.listing(), language="python", label="Code", elem_id="code")
                with gr.Accordion("What it can draw", open=False):
                    gr.Markdown(offer(scenes), elem_id="words")

        shown, packed = gr.State(time_to_live=STATE_SECONDS), gr.Textbox(visible=False)
        start = [go.click, prompt.submit]
        quiet = {"show_progress": "hidden", "api_visibility": "private"}

        gr.on(start, None, stage, [go, stop, notice], js=script("start"), queue=False, **quiet)
        inputs = [prompt, seed, opponent, method, *controls]
        run = gr.on(start, draw, inputs, [stage, pixels, notice, shown], **quiet)
        end = run.then(finish, [shown, notice], [stage, pixels, notice], **quiet)
        answers = [card.answer for card in cards]
        end.then(None, stage, [go, stop, *answers], js=script("end", [verdicts(each) for each in lessons]), **quiet)
        end.then(shelf.listing, shown, code, queue=False, **quiet)
        five.click(None, stage, [go, stop, notice], js=script("start"), queue=False, **quiet)
        fives = five.click(repeat, inputs, [numbers, notice], **quiet)
        fives.then(None, stage, [go, stop, *answers], js=script("end", [{} for _ in lessons]), **quiet)
        stop.click(None, None, None, cancels=[run, fives], queue=False, **quiet)
        dice.click(None, None, seed, js=script("newSeed"), queue=False, **quiet)
        method.change(None, method, groups, js=script("showKnobs", list(menu.methods)), queue=False, **quiet)
        save.click(partial(shelf.pack, work=studio.work), shown, packed, **quiet).then(
            None, packed, None, js=script("save"), **quiet
        )
        shared = [limits(each) for each in inputs]
        share.click(None, inputs, notice, js=script("share", shared), queue=False, **quiet)
        page.load(None, None, inputs, js=script("fromAddress", shared), queue=False, **quiet)
        for index, (door, card, lesson) in enumerate(zip(doors, cards, lessons)):
            outputs = [*(other.column for other in cards), *answers, *inputs]
            preset = script("lesson", index, len(lessons), menu.preset(lesson["preset"]))
            door.click(None, None, outputs, js=preset, queue=False, **quiet)
            card.guess.input(None, card.guess, None, js=script("predict", index), queue=False, **quiet)
        turns = [page.load, *(each.change for each in (method, *controls))]
        known = [each.elem_id for each in (method, *controls)]
        gr.on(turns, None, [method, *controls], None, js=script("turn", known), queue=False, **quiet)
        whole = [prompt, seed, method, *controls]
        asked = real.click(None, whole, whole, js=script("real", ["prompt", "seed", *known]), queue=False, **quiet)
        asked.then(None, None, None, js=script("press"), queue=False, **quiet)
        page.load(coded.result, None, [palette, codes, codebook], queue=False, **quiet)
        gr.api(decoder(studio), api_name="decode")
    return page.queue(default_concurrency_limit=None)  # the studio keeps a line of its own


@dataclass(frozen=True)
class Card:
    """A lesson: what for, a question to be answered before the action, and room for what the run then shows."""

    column: gr.Column
    guess: gr.Radio
    answer: gr.Markdown


def school(lessons: list[dict[str, Any]]) -> tuple[list[gr.Button], list[Card]]:
    """A button a lesson, side by side, and their cards, none of them open."""
    with gr.Row(elem_id="lessons"):
        names = [f"{number} {lesson['title']}" for number, lesson in enumerate(lessons, start=1)]
        doors = [gr.Button(name, elem_id=f"lesson-{name[0]}", min_width=0) for name in names]
    cards = []
    for lesson in lessons:
        with gr.Column(visible=False, elem_classes="lesson") as column:
            gr.Markdown(f"**{lesson['title']}.** {lesson['goal']}")
            guess = gr.Radio(lesson["choices"], label=f"Predict: {lesson['question']}")
            gr.Markdown(lesson["action"])
            cards.append(Card(column, guess, gr.Markdown(visible=False)))
    return doors, cards


def board(side: int, text: str) -> gr.HTML:
    """Where pictures appear, side x side squares. Its value is the event text; hidden children bring the rest.

    An instance, not a subclass: of each subclass gradio writes a stub file beside the program.
    """
    script = "\n".join(asset(f"{name}.js") for name in STAGE.split())
    look = {"html_template": asset("stage.html"), "js_on_load": script, "apply_default_css": False}
    return gr.HTML(text, elem_id="stage", rows=side, cols=side, **look)


def wire(name: str, value: str) -> gr.HTML:
    """A hidden child through which pictures or colours reach the stage."""
    return gr.HTML(value, wire=name, html_template="", js_on_load=asset("wire.js"))


def script(name: str, *more: Any) -> str:
    """A function of page.js as a handler; `more` comes before the values of the handler's inputs."""
    return f"(...values) => page.{name}(...{json.dumps(more)}, ...values)"


def main() -> None:
    """Serve the page. Without arguments gradio's own variables hold, GRADIO_SERVER_PORT among them."""
    options = argparse.ArgumentParser(description="Draw pictures token by token, in the browser.")
    options.add_argument("--port", type=int, help="the first free port from 7860 on if not given")
    options.add_argument("--model", type=Path, default=EMBEDDED, help="a model folder other than the embedded one")
    options.add_argument("--open", action="store_true", help="show the page in this machine's browser")
    chosen = options.parse_args()
    if chosen.port is not None and not 0 < chosen.port < 65536:
        options.error(f"`port` must be a number from 1 to 65535, got {chosen.port}.")
    try:
        build(chosen.model).launch(server_port=chosen.port, inbrowser=chosen.open, **LAUNCH)
    except (ValueError, OSError) as error:
        options.error(str(error))


if __name__ == "__main__":
    main()
