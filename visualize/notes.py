"""Sentences of the page."""

import html
import re
from typing import Any


def note(sentence: str, kind: str = "") -> str:
    """A sentence for the box under the prompt, `names` in it set apart; an empty one clears the box."""
    marked = re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(sentence))
    return f'<p class="{kind}">{marked}</p>' if sentence else ""


def in_line(others: int) -> str:
    """The place of one who waits for the model behind others."""
    return f"{others} {'person' if others == 1 else 'people'} before you. Stop leaves the queue."


def not_known(unknown: dict[str, list[str]]) -> str:
    """Which words the model does not know, and what it knows instead; empty when it knows all."""
    if not unknown:
        return ""
    words = [f"“{word}”" + (f" (nearest: {', '.join(near)})" if near else "") for word, near in unknown.items()]
    return f"Not known, so left out: {'; '.join(words)}. The rest is drawn."


def offer(scenes: dict[str, Any]) -> str:
    """What the model was taught, as Markdown. scenes: "objects", and "places" with the words that go with them."""
    return f"**Objects**: {', '.join(scenes['objects'])}\n\n**Places**: {', '.join(scenes['places'].values())}"
