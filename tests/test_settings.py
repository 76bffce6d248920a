"""Knobs say what they allow, refuse the rest in one sentence, and take a model folder's own defaults."""

import dataclasses
import json

import numpy as np
import pytest

from pipelines.settings import VOCABULARY, Sampling, Settings, knob, read_defaults


@dataclasses.dataclass(frozen=True)
class WindowSettings(Settings):
    window: int = knob(16, low=2, high=64, step=1, label="Window", help="How many tokens one pass checks.")
    start: str = knob("uniform", choices=("uniform", "copy_left"), label="Start", help="What a new guess is.")
    budget: float = knob(0.1, low=0.0, high=1.0, step=0.01, label="Budget", help="How much may be borrowed.")
    pool: int = knob(0, low=0, high=VOCABULARY, step=1, label="Pool", help="How many codes take part.")


@pytest.mark.parametrize(
    ("name", "value", "range_in_words"),
    [
        ("window", 1, "a whole number from 2 to 64"),
        ("window", 65, "a whole number from 2 to 64"),
        ("window", 16.0, "a whole number from 2 to 64"),
        ("window", True, "a whole number from 2 to 64"),
        ("window", "16", "a whole number from 2 to 64"),
        ("window", None, "a whole number from 2 to 64"),
        ("budget", -0.01, "a number from 0 to 1"),
        ("budget", float("nan"), "a number from 0 to 1"),
        ("budget", "0.5", "a number from 0 to 1"),
        ("start", "left", "one of uniform, copy_left"),
        ("start", 3, "one of uniform, copy_left"),
        ("pool", -1, "a whole number, at least 0"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_its_range(name, value, range_in_words):
    with pytest.raises(ValueError) as made:
        WindowSettings(**{name: value})
    with pytest.raises(ValueError) as revised:
        WindowSettings().revise({name: value}, owner="WindowPipeline")
    assert str(made.value) == str(revised.value) == f"`{name}` must be {range_in_words}, got {value!r}."


def test_an_optional_knob_takes_none_and_says_so():
    @dataclasses.dataclass(frozen=True)
    class Cooling(Settings):
        floor: float | None = knob(None, low=0.0, high=5.0, step=0.1, label="Floor", help="Least factor.")
        size: int = knob(6, choices=(6, 10), label="Size", help="Guesses.")

    assert Cooling().to_dict() == {"floor": None, "size": 6} and Cooling(floor=1).floor == 1.0
    assert Cooling(floor=2.0).revise({"floor": None, "size": 10}, owner="").to_dict() == {"floor": None, "size": 10}
    assert Cooling().knobs()["floor"].is_optional and not Cooling().knobs()["size"].is_optional
    for name, value, allowed in (("floor", 6.0, "a number from 0 to 5 or None"), ("size", 7, "one of 6, 10")):
        with pytest.raises(ValueError) as caught:
            Cooling(**{name: value})
        assert str(caught.value) == f"`{name}` must be {allowed}, got {value!r}."


def test_both_ends_of_a_range_are_allowed():
    assert WindowSettings(window=2, budget=0.0).revise({"window": 64, "budget": 1.0}, owner="").window == 64


def test_values_take_the_type_of_their_knob():
    settings = WindowSettings(window=np.int64(8), budget=1)
    assert settings.to_dict() == {"window": 8, "start": "uniform", "budget": 1.0, "pool": 0}
    assert [type(value) for value in settings.to_dict().values()] == [int, str, float, int]
    json.dumps(settings.to_dict())


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError) as caught:
        WindowSettings().revise({"windw": 8}, owner="WindowPipeline")
    message = str(caught.value)
    assert message.startswith("`windw` is not a setting of WindowPipeline, which has `window`, `start`, `budget`")
    assert message.endswith("did you mean `window`, a whole number from 2 to 64?")
    with pytest.raises(ValueError, match="`window` is not a setting of ARPipeline, which has none"):
        Settings().revise({"window": 8}, owner="ARPipeline")


def test_a_range_over_codes_ends_where_the_model_says():
    settings = WindowSettings()
    assert settings.knobs()["pool"].high is None and settings.knobs(vocabulary=32)["pool"].high == 32
    assert settings.revise({"pool": 32}, owner="", vocabulary=32).pool == 32
    with pytest.raises(ValueError, match="`pool` must be a whole number from 0 to 32, got 33"):
        settings.revise({"pool": 33}, owner="", vocabulary=32)


def test_a_knob_starts_where_its_settings_are():
    assert WindowSettings(window=8).knobs()["window"].default == 8


@pytest.mark.parametrize("settings", [Sampling(), WindowSettings()])
def test_every_knob_has_what_a_control_needs(settings):
    for name, control in settings.knobs(vocabulary=32).items():
        assert control.name == name and control.label and control.help.endswith("."), name
        assert control.choices or (control.low is not None and control.step), name
        assert control.check(control.default) == control.default, name


def test_sampling_defaults_leave_the_models_law_alone():
    assert Sampling().to_dict() == {"guidance_scale": 1.0, "temperature": 1.0, "top_k": 0, "top_p": 1.0}


def test_a_folder_without_defaults_changes_none(tmp_path):
    assert read_defaults(tmp_path) == {}


def test_a_folders_defaults_are_read_by_group(tmp_path):
    groups = {"sampling": {"guidance_scale": 3.0}, "WindowPipeline": {"window": 8}}
    (tmp_path / "method_defaults.json").write_text(json.dumps(groups))
    assert read_defaults(tmp_path) == groups


@pytest.mark.parametrize("text", ["{", "[1, 2]", '{"sampling": 3}'])
def test_a_defaults_file_of_another_shape_is_refused(tmp_path, text):
    (tmp_path / "method_defaults.json").write_text(text)
    with pytest.raises(ValueError, match="method_defaults.json` must be a JSON object of objects"):
        read_defaults(tmp_path)
