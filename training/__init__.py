"""Training of what ships in assets, and the checks that its command lines share."""

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from reprlib import repr as shown


MODEL_PARTS = ("transformer", "text_encoder", "tokenizer")


def command(main: Callable[[], None]) -> None:
    """Run a command; a ValueError ends it with its first line on stderr and status 2."""
    try:
        main()
    except ValueError as error:
        print(next(iter(str(error).splitlines()), repr(error)), file=sys.stderr)
        sys.exit(2)


def saved_folder(text: str) -> Path:
    """A type for argparse: the folder of one saved part. argparse checks defaults too, where they are strings."""
    folder = Path(text)
    if not (folder / "config.json").is_file():
        raise argparse.ArgumentTypeError(f"must be a folder with a saved config.json and weights; {text!r} is not.")
    return folder


def saved_model(text: str) -> Path:
    """A type for argparse: the folder that train_transformer writes."""
    lacking = [part for part in MODEL_PARTS if not (Path(text) / part).is_dir()]
    if lacking:
        raise argparse.ArgumentTypeError(
            f"must be a folder that training.train_transformer wrote; {text!r} lacks {', '.join(lacking)}."
        )
    return Path(text)


def new_folder(text: str) -> Path:
    """A type for argparse: a folder that stands or can be made."""
    folder = Path(text)
    blocking = next((path for path in (folder, *folder.parents) if path.exists() and not path.is_dir()), None)
    if blocking:
        raise argparse.ArgumentTypeError(f"must be a folder or a new path; {str(blocking)!r} is a file.")
    return folder


def positive_float(text: str) -> float:
    """A type for argparse: a finite number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {shown(text)}.")
    return value


def fraction(text: str) -> float:
    """A type for argparse: a number from 0, below 1."""
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 and below 1, got {shown(text)}.")
    return value


def positive_int(text: str) -> int:
    """A type for argparse: a whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {shown(text)}.")
    return value
