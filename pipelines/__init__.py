"""Everything that makes images: one pipeline class per method, each in its own file, loaded when it is first named."""

import importlib


# Class name -> module. To add a method is to add its line.
METHODS: dict[str, str] = {
    "ARPipeline": "pipelines.pipeline_ar",
    "SpeculativePipeline": "pipelines.pipeline_speculative",
    "LanternPipeline": "pipelines.pipeline_lantern",
    "LanternPlusPlusPipeline": "pipelines.pipeline_lantern_plus_plus",
    "UniformRSDPipeline": "pipelines.pipeline_uniform_rsd",
    "CoolSDPipeline": "pipelines.pipeline_cool_sd",
    "CascadePipeline": "pipelines.pipeline_cascade",
    "JacobiPipeline": "pipelines.pipeline_jacobi",
    "SJDPipeline": "pipelines.pipeline_sjd",
    "GSDPipeline": "pipelines.pipeline_gsd",
    "SJDLanternPipeline": "pipelines.pipeline_sjd_lantern",
    "SJDVPPipeline": "pipelines.pipeline_sjd_vp",
}


def __getattr__(name: str):
    """PEP 562: `pipelines.primitives` stays light, because no pipeline is imported before it is asked for."""
    if name not in METHODS:
        raise AttributeError(f"module 'pipelines' has no attribute {name!r}")
    return getattr(importlib.import_module(METHODS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *METHODS])
