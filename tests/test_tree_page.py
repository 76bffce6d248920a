"""The Tree panel in a real browser, over a recorded run of CASCADE."""

import json
import threading

import pytest
import torch
from PIL import Image

import app
from pipelines import CascadePipeline
from pipelines.primitives.trace import Trace
from visualize import events
from visualize.cascade_whatif import first_change, told


VOCABULARY = 2048
NODES = "document.querySelectorAll('button.node').length"
SMALL = """[...document.querySelectorAll('#panel-tree :is(button, input)')]
    .filter((target) => target.offsetParent && target.getBoundingClientRect().height < 40).length"""


@pytest.fixture(scope="module")
def trace() -> Trace:
    pipe = CascadePipeline.from_pretrained(app.EMBEDDED)
    pipe.set_progress_bar_config(disable=True)
    dice = torch.Generator().manual_seed(7)
    return pipe("a penguin on snow", generator=dice, output_type="latent", tree=15).traces[0]


@pytest.fixture(scope="module")
def address(trace: Trace, tmp_path_factory):
    """A server whose recording is that run alone; its model never loads."""
    folder, wait = tmp_path_factory.mktemp("traces"), threading.Event()
    trace.save(folder / "cascade.npz")
    Image.new("RGB", (128, 128), "gray").save(folder / "cascade.png")
    index = {"lanes": ["cascade"], "date": "2026-01-31", "machine": "a machine", "palette": "808080" * VOCABULARY}
    (folder / "index.json").write_text(json.dumps(index))
    load = app.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "load", lambda model: wait.wait() and load(model))
        page = app.build(app.EMBEDDED, folder)
        _, url, _ = page.launch(prevent_thread_lock=True, quiet=True, **app.LAUNCH)
        yield url
        wait.set()
        page.close()


@pytest.fixture
def page(browser, address: str):
    """The panel, open at the end of the run; nothing may be complained of."""
    complaints = []
    page = browser.new_page(viewport={"width": 390, "height": 900}, reduced_motion="reduce")
    page.set_default_timeout(120_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    page.wait_for_function("document.querySelector('.stage')?.dataset.tokens == 256")
    page.click("#tab-tree")
    page.wait_for_selector("button.node")
    yield page
    page.close()
    assert not complaints, complaints


def test_the_panel_tells_of_guesses_terms_and_lenders(page, trace: Trace):
    last = trace.steps[-1]
    assert page.evaluate(NODES) == len(last.tokens)
    assert page.locator("button.node.kept").count() == len(last.path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390 and page.evaluate(SMALL) == 0

    # Another square, another pass; its kept guess is told first.
    step = next(step for step in trace.steps if "l" in events.fates(step))
    square = step.start + events.fates(step).index("l")
    box = page.locator(".lane .board").bounding_box()
    at = [(part + 0.5) * box["width"] / 16 for part in divmod(square, 16)]
    page.locator(".lane .board").click(position={"x": at[1], "y": at[0]})
    page.click("#tab-tree")
    page.wait_for_function(f"{NODES} == {len(step.tokens)}")
    node = step.path[square - step.start]
    assert page.locator("[aria-pressed=true].node").get_attribute("data-node") == str(node)
    tale = page.locator(".tale").inner_text()
    assert "with what others lend it was" in tale and tale.endswith("kept.")
    test = step.notes["judged"].tolist().index(node)
    used = step.notes["lent"][(step.notes["borrower"] == test) & (step.notes["lent"] > 0)]
    assert page.locator(".lenders span").count() == len(used) > 0
    level = sum(depth == square - step.start + 1 for depth in depths(step))
    assert page.locator(".blues tbody tr").count() == level

    # Keys walk the tree, and what they reach is told.
    page.locator("[aria-pressed=true].node").focus()
    page.keyboard.press("ArrowLeft")
    parent = step.parents[node]
    walked = page.locator("[aria-pressed=true].node").get_attribute("data-node")
    assert walked == str(parent if parent >= 0 else node)

    # Without a budget the guess would have been refused; the count is Python's.
    page.evaluate("(() => { const i = document.querySelector('[data-term=delta]'); i.value = 0; i.oninput(); })()")
    own = trace.header.settings
    rounds = [told(step) for step in trace.steps if "similarity" in step.notes]
    changed = sum(first_change(of, own, own | {"delta": 0.0}) is not None for of in rounds)
    words = f"{changed} of {len(rounds)} passes would end differently"
    page.wait_for_function(f"document.querySelector('.replayed').textContent.includes('{words}')")
    assert page.locator("button.node.other").count() >= 1
    page.click(".terms .back")
    page.wait_for_function("!document.querySelector('button.node.other')")


def test_the_map_tells_who_lent(page, trace: Trace):
    """By the page's own word for every square, against the loans of the trace."""
    choice = "document.querySelector('.reading select')"
    page.evaluate(f"{choice}.value = 'lender', {choice}.onchange({{ target: {choice} }})")
    assert "Whose probability" in page.locator(".legend p").text_content()
    text = events.replay([trace])
    pure = "\n".join((app.ASSETS / name).read_text() for name in ("run.js", "cascade.js"))
    found = page.evaluate(f"""(text) => {{
        {pure}
        const run = text.split("\\n").filter(Boolean).reduce(takeLine, null);
        return run.lanes[0].squares.map((_, square) => lentBy(run.lanes[0], square) ?? null);
    }}""", text)  # fmt: skip
    for step in trace.steps:
        for offset, fate in enumerate(events.fates(step)):
            assert found[step.start + offset] == expected(step, offset, fate)


def expected(step, offset: int, fate: str) -> str | None:
    if fate not in "kl" or "judged" not in step.notes:
        return None
    if fate == "k":
        return "k"
    node = step.path[offset]
    mine = (step.notes["borrower"] == step.notes["judged"].tolist().index(node)) & (step.notes["lent"] > 0)
    above = step.notes["lender"][mine] == step.parents[node]
    return "B" if above.any() and not above.all() else "C" if above.all() else "I"


def depths(step) -> list[int]:
    found: list[int] = []
    for parent in step.parents.tolist():
        found.append(1 if parent < 0 else found[parent] + 1)
    return found
