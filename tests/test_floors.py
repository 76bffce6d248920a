"""The house keeps its shape: imports go down the floors, devices come from outside, files stay short."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parent.parent
LINES = 350
TOP = {
    *("app.py", "pipelines", "visualize", "assets", "tests", "training", "benchmarks"),
    *("README.md", "LICENSE", "Makefile", "requirements.txt", "pyproject.toml", ".gitignore", ".ci"),
}

# The most specific path that holds a file says what the file may import beside the standard library.
FLOORS = {
    "pipelines/primitives": ("torch", "numpy", "pipelines.primitives"),
    "pipelines/primitives/trace.py": ("numpy", "pipelines.primitives.layout"),
    "pipelines/primitives/layout.py": ("numpy",),
    "pipelines/models": (
        *("torch", "numpy", "diffusers", "transformers", "safetensors"),
        *("pipelines.primitives", "pipelines.models"),
    ),
    "pipelines/decoding": ("torch", "numpy", "pipelines.primitives", "pipelines.models", "pipelines.decoding"),
    "pipelines": ("torch", "numpy", "diffusers", "transformers", "PIL", "pipelines"),
    "visualize": (
        *("numpy", "matplotlib", "PIL"),
        *("pipelines.primitives.trace", "pipelines.primitives.layout", "visualize"),
    ),
    "app.py": ("gradio", "accelerate", "torch", "numpy", "PIL", "visualize", "pipelines"),
    "training": (
        *("torch", "numpy", "PIL", "accelerate", "diffusers", "transformers", "tokenizers", "safetensors"),
        *("pipelines.primitives", "pipelines.models", "training"),
    ),
    # What a model draws is compared with fresh scenes of its training data.
    "benchmarks": ("torch", "numpy", "PIL", "accelerate", "pipelines", "visualize", "training.scenes", "benchmarks"),
}
DEVICES = ("cuda", "cpu", "mps", "xpu")


def imported(tree: ast.AST) -> list[str]:
    """Dotted names that a file imports, also inside functions; a relative import keeps its dots."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names += ["." * node.level + f"{node.module or ''}.{alias.name}" for alias in node.names]
    return names


def is_device(node: ast.AST) -> bool:
    """Whether this node names a device: "cuda", "cuda:1" or a call of .cuda()."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.split(":")[0] in DEVICES
    return isinstance(node, ast.Attribute) and node.attr == "cuda"


def violations(path: str, source: str) -> list[str]:
    """What a product file at `path` (from the root) breaks; empty when it keeps the rules."""
    floor = max((floor for floor in FLOORS if f"{path}/".startswith(f"{floor}/")), key=len)
    tree = ast.parse(source)

    def may_import(name: str) -> bool:
        return name.split(".")[0] in sys.stdlib_module_names or any(
            f"{name}.".startswith(f"{up}.") for up in FLOORS[floor]
        )

    found = [f"{path} imports {name}" for name in imported(tree) if not may_import(name)]
    found += [f"{path}:{node.lineno} names a device" for node in ast.walk(tree) if is_device(node)]
    found += [f"{path} has more than {LINES} lines"] * (source.count("\n") > LINES)
    return found


def product() -> list[str]:
    """Python files of the product, as paths from the root."""
    files = [ROOT / "app.py"] + [file for floor in FLOORS for file in (ROOT / floor).glob("**/*.py")]
    return sorted({file.relative_to(ROOT).as_posix() for file in files if file.exists()})


def test_every_file_keeps_to_its_floor():
    found = [line for path in product() for line in violations(path, (ROOT / path).read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("pipelines/primitives/trace.py", "import torch"),
        ("pipelines/primitives/tree.py", "from pipelines.models import protocol"),
        ("pipelines/models/llamagen.py", "from .kv_cache import KVCache"),
        ("pipelines/decoding/loop.py", "def walk():\n    import diffusers"),
        ("pipelines/decoding/rules.py", "from PIL import Image"),
        ("visualize/grid.py", "from pipelines.primitives import tree"),
        ("visualize/grid.py", "import gradio"),
        ("training/scenes.py", "from pipelines import ARPipeline"),
        ("pipelines/base.py", "model.to('cuda:0')"),
        ("pipelines/base.py", "model.cuda()"),
        ("app.py", "x = 1\n" * (LINES + 1)),
    ],
)
def test_a_seeded_violation_is_caught(path: str, line: str):
    assert len(violations(path, line)) == 1, violations(path, line)


def test_plots_load_without_torch():
    modules = [path[: -len(".py")].replace("/", ".") for path in product() if path.startswith("visualize/")]
    code = f"import {', '.join(['sys', *modules])}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0, "visualize loads torch"


def test_top_level_holds_only_what_the_architecture_names():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to the project is not known")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    extra = {path.split("/")[0] for path in tracked.splitlines()} - TOP
    assert not extra, f"unexpected at the top level: {sorted(extra)}"


def test_scripts_and_tests_stay_short():
    kept = [*(ROOT / "tests").glob("**/*.py"), *(ROOT / "assets").glob("*.*")]
    files = [file for file in kept if file.suffix in (".py", ".js", ".css", ".html")]
    long = [file.name for file in files if file.read_text().count("\n") > LINES]
    assert not long, f"more than {LINES} lines: {long}"
