"""Everything that makes images: one pipeline class per method, each in its own file, loaded when it is first named."""

import importlib


# Class name -> module. To add a method is to add its line.
METHODS: dict[str, str] = {
    "ARPipeline": "pipelines.pipeline_ar",
    "SJDPipeline": "pipelines.pipeline_sjd",
}


def __getattr__(name: str):
    """PEP 562: `pipelines.primitives` stays light, because no pipeline is imported before it is asked for."""
    if name not in METHODS:
        raise AttributeError(f"module 'pipelines' has no attribute {name!r}")
    return getattr(importlib.import_module(METHODS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *METHODS])
