"""Links: what the address may ask of the page, and what a link carries. The page's own functions, in Chromium."""

import json
from collections.abc import Callable, Iterator

import gradio as gr
import pytest

import app


SEED = {"id": "seed", "first": 7, "always": True, "low": 0, "high": 2**31 - 1, "whole": True, "empty": True}
DELTA = {
    "id": "CoolSDPipeline-delta",
    "first": 1.1,
    "always": False,
    "low": 0.5,
    "high": 5,
    "whole": False,
    "empty": False,
}
MU = DELTA | {"id": "CoolSDPipeline-mu", "first": None, "empty": True}
METHOD = {"id": "method", "first": "SJDPipeline", "always": True, "choices": ["SJDPipeline", "CoolSDPipeline"]}
PROMPT = {"id": "prompt", "first": "a fox", "always": True, "longest": 12}
WINDOW = {"id": "SJDPipeline-window", "first": 16, "always": False, "choices": [2, 4, 16]}


@pytest.fixture(scope="module")
def run(browser) -> Iterator[Callable]:
    page = browser.new_page()
    page.add_script_tag(content=f"{app.asset('link.js')}; window.link = link")
    yield lambda code, argument=None: page.evaluate(code, argument)
    page.close()


@pytest.mark.parametrize(
    ("control", "text", "taken"),
    [
        (SEED, "12", 12),
        (SEED, "12.6", 13),
        (SEED, "-4", 0),
        (SEED, "9e99", 2**31 - 1),
        (SEED, "Infinity", 2**31 - 1),
        (SEED, "seven", "nothing"),
        (DELTA, "0.1", 0.5),
        (DELTA, "2.25", 2.25),
        (DELTA, "<b>", "nothing"),
        (DELTA, "", "nothing"),
        (MU, "", None),
        (METHOD, "CoolSDPipeline", "CoolSDPipeline"),
        (METHOD, "__import__", "nothing"),
        (WINDOW, "4", 4),
        (WINDOW, "5", "nothing"),
        (PROMPT, "a very long prompt", "a very long "),
        (PROMPT, "  ", "nothing"),
    ],
)
def test_a_value_of_the_address_is_held_to_its_range(run: Callable, control: dict, text: str, taken: object):
    held = run(
        "([control, text]) => [link.within(control, text)].map((it) => (it === undefined ? 'nothing' : it))",
        [control, text],
    )
    assert held == [taken]


def test_a_link_carries_what_was_changed_and_nothing_else(run: Callable):
    controls, values = [PROMPT, SEED, METHOD, DELTA, WINDOW], ["a fox & 1", 3, "CoolSDPipeline", 2, 16]
    told = run(
        "([c, l, v]) => Object.fromEntries(new URLSearchParams(link.make(c, l, v).split('?')[1]))",
        [controls, -1, values],
    )
    assert told == {"prompt": "a fox & 1", "seed": "3", "method": "CoolSDPipeline", "CoolSDPipeline-delta": "2"}
    told = run("([c, l, v]) => link.make(c, l, v).split('?')[1]", [controls, 4, values])
    assert told == "lesson=5", "a lesson says all by itself"


def test_the_limits_are_those_of_the_controls():
    with gr.Blocks():
        seed = gr.Number(7, minimum=0, maximum=9, precision=0, elem_id="seed")
        slider = gr.Slider(0.5, 5, value=1.1, elem_id="X-delta")
        choice = gr.Dropdown([("One", "one"), ("Two", "two")], value="one", elem_id="method")
        text = gr.Textbox("a fox", max_length=20, elem_id="prompt")
    found = [app.limits(control) for control in (seed, slider, choice, text)]
    assert found[0] == {"id": "seed", "first": 7, "always": True, "low": 0, "high": 9, "whole": True, "empty": True}
    assert found[1] == DELTA | {"id": "X-delta"}
    assert found[2] == {"id": "method", "first": "one", "always": True, "choices": ["one", "two"]}
    assert found[3] == {"id": "prompt", "first": "a fox", "always": True, "longest": 20}
    json.dumps(found)
