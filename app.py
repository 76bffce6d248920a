"""The page: a prompt, a Start button, and pictures that race token by token. `python app.py` opens it."""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
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
from pipelines.menu import asked, open_knobs
from pipelines.settings import SAMPLING, Knob
from visualize import events
from visualize.broadcast import Broadcast
from visualize.notes import in_line, not_known, note, offer
from visualize.recorded import open_recordings
from visualize.style import hex_colours


ASSETS = Path(__file__).parent / "assets"
EMBEDDED = ASSETS / "emoji-scenes"
STAGE = ("run.js", "canvas.js", "words.js", "stage.js", "square.js", "hands.js")  # one script, in this order

WAITING_SECONDS = 0.25  # between two words to one who waits, which are also where waiting can be given up
PROGRESS_SECONDS = 0.5  # between two signs of life of the JSON endpoint, which are also where it can be cancelled
STATE_SECONDS = 3600  # how long a run can be saved after its visitor was last seen
SLIDER_STEPS = 60  # whole numbers of a longer range are offered in powers of two
THREADS = max(1, torch.get_num_threads() - 1)  # for the worker; server and browser need a core, or OpenMP stalls
WAITING = "waiting"  # kind of a note that holds only until something happens

SENTENCE = (
    "Each square is one token. Drawn plainly, each takes one pass through the whole network. "
    "Drawn with guesses, one pass checks several squares and keeps those that the network agrees with."
)


def load(folder: Path) -> dict[str, Any]:
    """The components that all runs share, read once per server. Raises ValueError for a folder of something else."""
    # Imported here: diffusers and transformers take longer to import than the page to appear.
    from pipelines.models.llamagen_family import native_dtype

    device = PartialState().device
    return pipelines.ARPipeline.from_pretrained(folder, dtype=native_dtype(device)).to(device).components


def colours(components: "Future[dict[str, Any]]") -> str:
    """The palette for the page, once the components are there."""
    from pipelines.models.codebook import mean_colours

    return hex_colours(mean_colours(pipelines.ARPipeline(**components.result()).model))


Message = tuple[Any, Any, Any, Any]


def message(text: str | None = None, pixels: str | None = None, notice: str | None = None, run: Any = None) -> Message:
    """News for the page: event text, decoded pixels, a notice for the person, the run; None leaves what is there."""
    return tuple(gr.skip() if part is None else part for part in (text, pixels, notice, run))


class Studio:
    """What a page can ask for. A run lives in the generator that shows it: who stops reading stops the drawing.

    worker: the one thread in which all model work is done. OpenMP keeps threads for every thread that calls it, and
    two such teams hinder each other: on 2 cores a token then takes 5.1 ms instead of 2.3, even one after the other.
    """

    def __init__(self, worker: ThreadPoolExecutor, components: "Future[dict[str, Any]]", palette: "Future[str]"):
        self.worker, self.components, self.palette = worker, components, palette
        self.line = Line()

    def work(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a task, done by the worker."""
        return self.worker.submit(task, *arguments).result()

    def ready(self) -> str:
        """The palette, as soon as there is one; until then squares are grey."""
        return self.palette.result()

    def draw(self, make: Callable[[], Ask]) -> Iterator[Message]:
        """Draw a picture a lane, when it is this visitor's turn."""
        try:
            ask = make()
            with self.line.place() as ahead:
                while others := ahead():
                    yield message(notice=note(in_line(others), WAITING))
                    time.sleep(WAITING_SECONDS)
                while not self.components.done():
                    yield message(notice=note("The model is being loaded. This takes a few seconds.", WAITING))
                    wait([self.components], timeout=WAITING_SECONDS)
                contest = self.work(Contest, self.components.result(), ask)
                with closing(Broadcast(contest)) as run:
                    yield message(run.log.text, "", note(not_known(contest.unknown), "warn"), run)
                    for news in run.news(self.work):
                        yield message(*news)
        except (ValueError, OSError) as error:
            yield message(notice=note(str(error), "bad"))

    def finish(self, run: Broadcast | None, notice: str) -> tuple[Any, Any, Any]:
        """After a run, whether it came to its end or was stopped: close its event text, decode what there is."""
        rest = "" if WAITING in notice else None
        was_stopped = run is not None and run.end(events.STOPPED)
        return message(run.log.text, self.work(run.portraits), rest)[:3] if was_stopped else message(notice=rest)[:3]

    def decode(
        self,
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
            prompt: What to draw, such as "a panda on snow".
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
            ask = Ask(prompt, seed, [(method, settings or {})], sampling)
            with self.line.place() as ahead:
                while others := ahead():
                    yield {"waiting_for": others}
                    time.sleep(WAITING_SECONDS)
                contest = self.work(Contest, self.components.result(), ask)
                with closing(Broadcast(contest)) as run:
                    while self.work(run.advance, PROGRESS_SECONDS):
                        yield {"drawn": run.log.lanes[0].drawn}
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from error
        counts = {"tokens": run.log.lanes[0].tokens.tolist(), "seconds": run.traces[0].seconds}
        yield counts | {"nfe": run.traces[0].nfe} | run.about[0] | {"unknown_words": contest.unknown}


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
    "css_paths": ASSETS / "stage.css",
    "head": f"<script>{(ASSETS / 'page.js').read_text(encoding='utf-8')}</script>",
    "footer_links": ["api", "settings"],
    "run_history": False,
    "show_error": True,
    "ssr_mode": False,
}


def control(owner: str, knob: Knob) -> gr.components.FormComponent:
    """A knob's slider or list, its range and its words."""
    name = knob.name if owner == SAMPLING else f"{owner}-{knob.name}"
    words = {"label": knob.label, "info": knob.help, "elem_id": name}
    if knob.kind is str:
        return gr.Dropdown(knob.choices, value=knob.default, **words)
    if knob.kind is int and (knob.high - knob.low) / knob.step > SLIDER_STEPS:
        powers = {2**power for power in range(32) if knob.low < 2**power < knob.high}
        return gr.Dropdown(sorted(powers | {int(knob.low), knob.default, int(knob.high)}), value=knob.default, **words)
    precision = 0 if knob.kind is int else None
    return gr.Slider(knob.low, knob.high, knob.default, step=knob.step, precision=precision, **words)


def build(folder: Path, recorded: Path = ASSETS / "traces") -> gr.Blocks:
    """The whole page over one model folder. The weights load in the background; the page does not wait for them."""
    scenes = read_json(folder / "scenes.json", ("objects", "places", "examples"))
    config = read_json(folder / "transformer" / "config.json", ("grid_size", "vocab_size"))
    knobs = open_knobs(folder, config["vocab_size"])
    recordings = open_recordings(recorded, folder.name)
    worker = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(THREADS,))
    components = worker.submit(load, folder)
    studio = Studio(worker, components, worker.submit(colours, components))
    with gr.Blocks(title="Draftboard", analytics_enabled=False, fill_width=False) as page:
        gr.HTML(f"<h1>Draftboard</h1><p>{SENTENCE}</p>", elem_id="title")
        with gr.Row(elem_id="desk"):
            with gr.Column(elem_id="ask"):
                prompt = gr.Textbox(
                    scenes["examples"][0], label="Prompt", max_lines=1, max_length=200, elem_id="prompt"
                )
                with gr.Row(elem_id="lanes"):
                    names = [(events.short_name(name), name) for name in pipelines.METHODS]
                    method = gr.Dropdown(names, value=names[-1][1], label="Method", elem_id="method")
                    opponent = gr.Dropdown(
                        [*names, ("none", "")], value="ARPipeline", label="Beside it", elem_id="opponent"
                    )
                with gr.Row(elem_id="buttons"):
                    go = gr.Button("Start", variant="primary", elem_id="go")
                    stop = gr.Button("Stop", interactive=False, elem_id="stop")
                notice = gr.HTML("", elem_id="notice")
            with gr.Column(elem_id="board"):
                with board(config["grid_size"], recordings.race()) as stage:
                    pixels, palette = wire("pixels", recordings.pixels()), wire("palette", recordings.palette)
            with gr.Column(elem_id="tune"):
                groups, controls = [], []
                for owner in pipelines.METHODS:
                    with gr.Column(visible=owner == method.value, elem_id=f"knobs-{owner}") as group:
                        gr.Markdown(getattr(pipelines, owner).__doc__.split("\n")[0])
                        controls += [control(owner, knob) for knob in knobs[owner]]
                    groups.append(group)
                gr.Examples([[example] for example in scenes["examples"]], [prompt], label="Examples")
                with gr.Row(elem_id="seeds"):
                    seed = gr.Number(7, label="Seed", precision=0, elem_id="seed")
                    dice = gr.Button("New seed", elem_id="dice", min_width=110, scale=0)
                with gr.Accordion("Sampling", open=False):
                    controls = [control(SAMPLING, knob) for knob in knobs[SAMPLING]] + controls
                with gr.Accordion("What it can draw", open=False):
                    gr.Markdown(offer(scenes), elem_id="words")

        shown = gr.State(time_to_live=STATE_SECONDS)
        start = [go.click, prompt.submit]
        quiet = {"show_progress": "hidden", "api_visibility": "private"}
        at_once = {"concurrency_limit": None}  # the studio keeps its own line

        def draw(*chosen: Any) -> Iterator[Message]:
            yield from studio.draw(partial(asked, knobs, *chosen))

        gr.on(start, None, None, [go, stop, notice], js=script("start"), queue=False, **quiet)
        inputs = [prompt, seed, opponent, method, *controls]
        run = gr.on(start, draw, inputs, [stage, pixels, notice, shown], **at_once, **quiet)
        end = run.then(studio.finish, [shown, notice], [stage, pixels, notice], **at_once, **quiet)
        end.then(None, None, [go, stop], js=script("end"), **quiet)
        stop.click(None, None, None, cancels=run, queue=False, **quiet)
        dice.click(None, None, seed, js=script("newSeed"), queue=False, **quiet)
        method.change(None, method, groups, js=script("showKnobs", list(pipelines.METHODS)), queue=False, **quiet)
        page.load(studio.ready, None, palette, queue=False, **quiet)
        gr.api(studio.decode, api_name="decode", **at_once)
    return page.queue(max_size=20)


def board(side: int, text: str) -> gr.HTML:
    """Where pictures appear, side x side squares. Its value is the event text; hidden children bring the rest.

    An instance, not a subclass: of each subclass gradio writes a stub file beside the program.
    """
    script = "\n".join(asset(name) for name in STAGE)
    look = {"html_template": asset("stage.html"), "js_on_load": script, "apply_default_css": False}
    return gr.HTML(text, elem_id="stage", rows=side, cols=side, **look)


def wire(name: str, value: str) -> gr.HTML:
    """A hidden child through which pictures or colours reach the stage."""
    return gr.HTML(value, wire=name, html_template="", js_on_load=asset("wire.js"))


def read_json(path: Path, entries: tuple[str, ...]) -> dict[str, Any]:
    """Raises ValueError, naming the file, where there is none or it does not hold the entries, none of them empty."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"`model` must be a model's folder, got {str(path)!r} that cannot be read: {error}."
        ) from error
    if not isinstance(found, dict) or not all(found.get(name) for name in entries):
        raise ValueError(f"`model` must be a model's folder, got {str(path)!r} without {', '.join(entries)}.")
    return found


def script(name: str, *more: Any) -> str:
    """A function of page.js as a handler; `more` comes before the values of the handler's inputs."""
    return f"(...values) => page.{name}(...{json.dumps(more)}, ...values)"


def asset(name: str) -> str:
    """A text file of the page."""
    return (ASSETS / name).read_text(encoding="utf-8")


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
