"""What a lesson says once its action has been seen."""

from collections.abc import Mapping
from typing import Any


def verdicts(lesson: Mapping[str, Any]) -> dict[str, str]:
    """Choice -> Markdown: whether it was right, and why; "" is for who did not choose."""
    right = lesson["choices"][lesson["answer"]]
    said = {choice: f"**Not so: {right}.**" for choice in lesson["choices"]}
    said |= {right: f"**Right: {right}.**", "": f"**{right}.**"}
    return {choice: f"{verdict} {lesson['why']}" for choice, verdict in said.items()}
