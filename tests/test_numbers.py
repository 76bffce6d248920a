"""Several seeds of two methods: paired ratios, and runs in turns that draw what each method draws alone."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import app
from pipelines.contest import Ask
from tests.visit import PROMPT, held, open_studio, save_model
from visualize import numbers
from visualize.studio import Studio


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Studio:
    return open_studio(ThreadPoolExecutor(1), held(app.load(save_model(tmp_path_factory.mktemp("model")))))


def ask(*methods: str, seed: int = 3) -> Ask:
    return Ask(PROMPT, seed, [(method, {}) for method in methods], {"guidance_scale": 2.0})


def said(studio: Studio, wanted: Any) -> list[dict]:
    return [json.loads(text) for text, _ in studio.repeat(wanted) if text]


def test_ratios_are_paired_and_their_spread_is_that_of_the_median():
    found = numbers.spread([2.0, 2.0, 2.0])
    assert found == {"median": 2.0, "low": 2.0, "high": 2.0}
    wide = numbers.spread([1.0, 2.0, 3.0, 4.0, 5.0])
    assert wide["median"] == 3.0 and 1.0 <= wide["low"] < 3.0 < wide["high"] <= 5.0
    told = json.loads(numbers.told(["AR", "SJD"], [1, 2], np.array([[4, 2], [9, 3]]), np.array([[16, 8], [16, 4]]), 5))
    assert told["speedup"][0]["median"] == 2.5 and told["fewer"][0]["median"] == 3.0, "image by image"


def test_an_ask_comes_apart_into_pictures():
    apart = ask("ARPipeline", "SJDPipeline", seed=2**31 - 2).apart(3)
    assert [(one.seed, one.lanes[0][0]) for one in apart] == [
        (seed, method) for seed in (2**31 - 2, 2**31 - 1, 0) for method in ("ARPipeline", "SJDPipeline")
    ]


def test_seeds_are_told_one_after_another_and_passes_are_the_methods_own(studio: Studio):
    found = said(studio, lambda: ask("ARPipeline", "SJDPipeline").apart(2))
    assert [one["seeds"] for one in found] == [[], [], [3], [3], [3, 4]] and found[-1]["names"] == ["AR", "SJD"]
    for run, seed in enumerate((3, 4)):
        (alone,) = (one for one in [said(studio, lambda s=seed: ask("SJDPipeline", seed=s).apart(1))[-1]])
        assert found[-1]["passes"][run] == [16, alone["passes"][0][0]]
    assert np.array(found[-1]["seconds"]).min() > 0 and len(found[-1]["speedup"]) == 1


def test_one_method_alone_has_nothing_to_be_compared_with(studio: Studio):
    assert said(studio, lambda: ask("ARPipeline").apart(2))[-1]["speedup"] == []


def test_bad_input_is_a_notice(studio: Studio):
    def wrong() -> list[Ask]:
        raise ValueError("`seed` must be whole.")

    ((text, notice),) = studio.repeat(wrong)
    assert text is None and "<code>seed</code>" in notice


def test_a_comparison_can_be_stopped(studio: Studio):
    comparing = studio.repeat(lambda: ask("ARPipeline", "SJDPipeline").apart(5))
    next(comparing)
    comparing.close()
    assert said(studio, lambda: ask("ARPipeline").apart(1)), "a stopped comparison keeps its place in the line"


def test_before_the_first_seed_there_is_nothing_to_tell():
    told = json.loads(numbers.told([], [], np.zeros((0, 2)), np.zeros((0, 2)), 5))
    assert told["seeds"] == [] and told["wanted"] == 5 and told["speedup"] == []


def test_the_ceiling_is_over_what_the_first_lane_does(browser):
    page = browser.new_page()
    stubs = "const [element, addPanel, wake] = [document, () => {}, () => {}];"
    page.add_script_tag(content=stubs + app.asset("numbers.js"))
    plain = {"tokens": 256, "passes": 256, "target": 2560, "draft": 0}
    guessing = {"tokens": 256, "passes": 86, "target": 86 * 15, "draft": 86 * 5}
    found = page.evaluate("([a, b]) => [ceiling(a, b), ceiling(b, b), ceiling(b, a)]", [plain, guessing])
    assert found == pytest.approx([1.5, 1, 1 / 1.5]), "three tokens in twice the time of one"
    page.close()
