"""The page: a prompt, a Start button, and a picture that appears token by token. `python app.py` opens it."""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any


# Read by gradio when it is imported: without this it asks a server on the internet for its newest version.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr
import torch
from accelerate import PartialState
from PIL import Image

import pipelines
from pipelines.settings import SAMPLING, Knob, Sampling, read_defaults
from visualize import events, grid
from visualize.notes import not_known, note, offer
from visualize.style import hex_colours


if TYPE_CHECKING:
    from pipelines.base import ARImagePipeline


ASSETS = Path(__file__).parent / "assets"
EMBEDDED = ASSETS / "emoji-scenes"

MESSAGE_SECONDS = 0.1  # at most ten messages a second to the page; it spreads the squares between them
KEYFRAME_SECONDS = 0.5
PROGRESS_SECONDS = 0.5  # between two signs of life of the JSON endpoint, which are also where it can be cancelled
HIGHEST_SEED = 2**31 - 1
THREADS = max(1, torch.get_num_threads() - 1)  # for the worker; server and browser need a core, or OpenMP stalls
WAITING = "waiting"  # kind of a note that holds only until something happens

SENTENCE = (
    "Each square is one token. The model draws them one by one, left to right and top to bottom, "
    "and each takes one pass through the whole network."
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


class Run:
    """One picture under way: its own pipeline object over the shared weights, its stream, and its event text."""

    def __init__(self, components: dict[str, Any], prompt: str, seed: int, sampling: dict[str, Any]):
        """Raises ValueError, in one sentence, for what cannot be drawn."""
        if type(seed) is not int or not 0 <= seed <= HIGHEST_SEED:
            raise ValueError(f"`seed` must be a whole number from 0 to {HIGHEST_SEED}, got {seed}; try 7.")
        self.pipe = pipelines.ARPipeline(**components)
        self.stream = self.pipe.stream(prompt, generator=torch.Generator().manual_seed(seed), **sampling)
        header = self.stream.trace.header
        self.about = {"prompt": prompt, "seed": seed, "method": header.method, "settings": header.settings}
        self.log = events.EventLog(self.stream.trace.layout, ["AR"], self.about)
        self.lane = self.log.lanes[0]

    def advance(self, seconds: float) -> bool:
        """Draw for so long, one square at least; whether there may be more to draw."""
        until = time.monotonic() + seconds
        for step in self.stream:
            self.log.add(0, step)
            if time.monotonic() >= until:
                return True
        return False


class Studio:
    """What a page can ask for. A run lives in the generator that shows it: who stops reading stops the drawing.

    worker: the one thread in which all model work is done. OpenMP keeps threads for every thread that calls it, and
    two such teams hinder each other: on 2 cores a token then takes 5.1 ms instead of 2.3, even one after the other.
    """

    def __init__(self, worker: ThreadPoolExecutor, components: "Future[dict[str, Any]]", palette: "Future[str]"):
        self.worker, self.components, self.palette = worker, components, palette

    def work(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a task, done by the worker."""
        return self.worker.submit(task, *arguments).result()

    def ready(self) -> str:
        """The palette, as soon as there is one; until then squares are grey."""
        return self.palette.result()

    def draw(self, prompt: str, seed: int, *sampling: float) -> Iterator[tuple[Any, Any, Any]]:
        """Draw one picture. Yields event text, decoded pixels and a notice for the person who waits."""
        while not self.components.done():
            yield gr.skip(), gr.skip(), note("The model is being loaded. This takes a few seconds.", WAITING)
            wait([self.components], timeout=MESSAGE_SECONDS)
        try:
            run = self.work(Run, self.components.result(), prompt, seed, dict(zip(Sampling().knobs(), sampling)))
        except (ValueError, OSError) as error:
            yield gr.skip(), gr.skip(), note(str(error), "bad")
            return
        yield run.log.text, "", note(not_known(run.stream.unknown), "warn")
        try:
            with closing(run.stream):
                yield from self._messages(run)
        except (RuntimeError, MemoryError) as error:
            run.log.end(0, f"The run broke off: {error} What is drawn stays; Start tries again.")
            yield run.log.text, gr.skip(), gr.skip()

    def _messages(self, run: Run) -> Iterator[tuple[Any, Any, Any]]:
        """What the page hears of a run, ten times a second. The run's clock stands between two steps."""
        keyframe = time.monotonic()
        while self.work(run.advance, MESSAGE_SECONDS):
            is_due = time.monotonic() >= keyframe + KEYFRAME_SECONDS
            keyframe = time.monotonic() if is_due else keyframe
            yield run.log.text, self.work(still, run.pipe, run.lane) if is_due else gr.skip(), gr.skip()
        run.log.end(0, events.DONE)
        yield run.log.text, self.work(portrait, run.pipe, run.lane, run.about), gr.skip()

    def finish(self, text: str, notice: str) -> tuple[Any, Any, Any, Any, Any]:
        """After a run, whether it came to its end or was stopped: close its event text, decode what there is."""
        rest = "" if WAITING in notice else gr.skip(), gr.Button(interactive=True), gr.Button(interactive=False)
        try:
            run = events.read(text) if text else None
        except ValueError as error:
            raise gr.Error(f"What was drawn cannot be read: {error}", print_exception=False) from error
        if run is None or run.lanes[0].reason:
            return gr.skip(), gr.skip(), *rest
        # The text comes back from a browser, which may send anything.
        lane, pipe = run.lanes[0], pipelines.ARPipeline(**self.components.result())
        layout = pipe.layout()
        if lane.tokens.shape != (layout.rows, layout.cols) or lane.tokens.max() >= pipe.vocabulary:
            raise gr.Error(
                "What was drawn is not a picture of this model; Start draws a new one.", print_exception=False
            )
        last = self.work(portrait, pipe, lane, run.about) if lane.drawn else gr.skip()
        return f"{text.rstrip()}\nE,0,{events.STOPPED}\n", last, *rest

    def decode(
        self,
        prompt: str,
        seed: int = 0,
        guidance_scale: float | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Iterator[dict]:
        """Draw one picture and return its tokens.

        Args:
            prompt: What to draw, such as "a panda on snow".
            seed: Whole number; the same seed and settings give the same tokens.
            guidance_scale: How strongly the prompt pulls, at least 1.
            temperature: From 0 to 2; 0 always takes the likeliest token.
            top_k: Only the k likeliest tokens may be drawn; 0 allows all.
            top_p: Only the likeliest tokens that together have this probability may be drawn.

        Returns:
            tokens (rows of token ids), seconds of model work, nfe (forward passes), and what the run was asked for.
        """
        chosen = {"guidance_scale": guidance_scale, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        sampling = {name: value for name, value in chosen.items() if value is not None}
        try:
            run = self.work(Run, self.components.result(), prompt, seed, sampling)
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from error
        with closing(run.stream):
            while self.work(run.advance, PROGRESS_SECONDS):
                yield {"drawn": run.lane.drawn}
        trace = run.stream.trace
        counts = {"tokens": run.lane.tokens.tolist(), "seconds": trace.seconds, "nfe": trace.nfe}
        yield counts | run.about | {"unknown_words": run.stream.unknown}


@torch.inference_mode()
def picture(pipe: "ARImagePipeline", lane: events.Lane) -> Image.Image:
    """A lane's squares, decoded; below the drawn ones they go on, so that the edge does not bleed."""
    latents = torch.from_numpy(grid.extend(lane.tokens)).long()[None].to(pipe.device)
    return pipe.image_processor.postprocess(pipe.decode_latents(latents), output_type="pil")[0]


def still(pipe: "ARImagePipeline", lane: events.Lane) -> str:
    """What is drawn so far, as the page's "pixels" take it: lane, number of squares, picture."""
    return f"0,{lane.drawn},{grid.jpeg_url(picture(pipe, lane))}"


def portrait(pipe: "ARImagePipeline", lane: events.Lane, about: dict[str, Any]) -> str:
    """The last picture of a run, without loss, transparent where nothing is drawn, with its origin inside."""
    final = grid.reveal(picture(pipe, lane), lane.tokens)
    return f"0,{lane.drawn},{grid.png_url(final, about)}"


# Runs in the browser at once, before the server answers; keyboard users land on Stop, not nowhere.
ON_START = f"""() => {{
    if (document.activeElement?.id === "go") setTimeout(() => document.querySelector("#stop")?.focus(), 100);
    const set = (interactive) => ({{__type__: "update", interactive}});
    return [set(false), set(true), {note("Waiting for the model.", WAITING)!r}];
}}"""
ON_END = """() => setTimeout(() => {
    if (document.activeElement === document.body) document.querySelector("#go")?.focus({preventScroll: true});
}, 100)"""
NEW_SEED = f"() => Math.floor(Math.random() * {HIGHEST_SEED})"

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
    "footer_links": ["api", "settings"],
    "run_history": False,
    "show_error": True,
    "ssr_mode": False,
}


def slider(knob: Knob) -> gr.Slider:
    """A knob's slider, its range and its words."""
    words = {"label": knob.label, "info": knob.help, "elem_id": knob.name}
    whole = {"precision": 0 if knob.kind is int else None}
    return gr.Slider(knob.low, knob.high, knob.default, step=knob.step, **whole, **words)


def sampling_knobs(folder: Path, vocabulary: int) -> list[Knob]:
    """The sampling knobs with the model's own defaults, read without loading weights. vocabulary: number of codes."""
    defaults = read_defaults(folder).get(SAMPLING, {})
    return list(Sampling().revise(defaults, "the model", vocabulary).knobs(vocabulary).values())


def build(folder: Path) -> gr.Blocks:
    """The whole page over one model folder. The weights load in the background; the page does not wait for them."""
    scenes = read_json(folder / "scenes.json", ("objects", "places", "examples"))
    config = read_json(folder / "transformer" / "config.json", ("grid_size", "vocab_size"))
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
                with gr.Row(elem_id="buttons"):
                    go = gr.Button("Start", variant="primary", elem_id="go")
                    stop = gr.Button("Stop", interactive=False, elem_id="stop")
                notice = gr.HTML("", js_on_load=asset("notice.js"), elem_id="notice")
            with gr.Column(elem_id="board"):
                with board(config["grid_size"]) as stage:
                    pixels, palette = wire("pixels"), wire("palette")
            with gr.Column(elem_id="tune"):
                gr.Examples([[example] for example in scenes["examples"]], [prompt], label="Examples")
                with gr.Row(elem_id="seeds"):
                    seed = gr.Number(7, label="Seed", precision=0, elem_id="seed")
                    dice = gr.Button("New seed", elem_id="dice", min_width=110, scale=0)
                with gr.Accordion("Sampling", open=False):
                    sliders = [slider(knob) for knob in sampling_knobs(folder, config["vocab_size"])]
                with gr.Accordion("What it can draw", open=False):
                    gr.Markdown(offer(scenes), elem_id="words")

        start = [go.click, prompt.submit]
        model = {"concurrency_id": "model", "concurrency_limit": 1}
        quiet = {"show_progress": "hidden", "api_visibility": "private"}
        gr.on(start, None, None, [go, stop, notice], js=ON_START, queue=False, **quiet)
        run = gr.on(start, studio.draw, [prompt, seed, *sliders], [stage, pixels, notice], **model, **quiet)
        end = run.then(studio.finish, [stage, notice], [stage, pixels, notice, go, stop], **quiet)
        end.then(None, None, None, js=ON_END, **quiet)
        stop.click(None, None, None, cancels=run, queue=False, **quiet)
        dice.click(None, None, seed, js=NEW_SEED, queue=False, **quiet)
        page.load(studio.ready, None, palette, queue=False, **quiet)
        gr.api(studio.decode, api_name="decode", **model)
    return page.queue(max_size=20)


def board(side: int) -> gr.HTML:
    """Where pictures appear, side x side squares. Its value is the event text; hidden children bring the rest.

    An instance, not a subclass: of each subclass gradio writes a stub file beside the program.
    """
    look = {"html_template": asset("stage.html"), "js_on_load": asset("stage.js"), "apply_default_css": False}
    return gr.HTML("", elem_id="stage", rows=side, cols=side, **look)


def wire(name: str) -> gr.HTML:
    """A hidden child through which pictures or colours reach the stage."""
    return gr.HTML("", wire=name, html_template="", js_on_load=asset("wire.js"))


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
