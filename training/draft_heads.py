"""The kinds of drafting heads: what they are, what runs them, and how a saved one comes back."""

import json
from pathlib import Path

from pipelines.models.eagle import EagleHead, EagleRun
from pipelines.models.eagle3 import Eagle3Head, Eagle3Run
from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.protocol import Session


Head = EagleHead | Eagle3Head
HEADS: dict[str, type[Head]] = {"eagle1": EagleHead, "eagle3": Eagle3Head}


def head_over(kind: str, target: LlamaGenTransformer, width: int | None, ffn_dim: int | None) -> Head:
    """An untrained head. Raises ValueError for a width that its kind has not."""
    if kind == "eagle1":
        return EagleHead.over(target, width, ffn_dim)
    if width not in (None, target.config.dim):
        raise ValueError(f"`width` must be the target's, {target.config.dim}, for an {kind} head, got {width}.")
    return Eagle3Head.over(target, ffn_dim or target.config.ffn_dim)


def saved_head(folder: Path) -> Head:
    """The head in a folder, of whichever kind. Raises ValueError where there is none."""
    name = json.loads((folder / "config.json").read_text()).get("_class_name")
    for kind in HEADS.values():
        if kind.__name__ == name:
            return kind.from_pretrained(folder).float()
    raise ValueError(f"a drafting head must be an EagleHead or an Eagle3Head, `{folder}` holds {name!r}.")


def run_of(head: Head, session: Session) -> EagleRun:
    return (Eagle3Run if isinstance(head, Eagle3Head) else EagleRun)(head, session)
