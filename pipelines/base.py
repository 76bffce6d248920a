"""What all pipelines share: arguments in, one stream of steps a picture, pictures and traces out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from reprlib import repr as shown
from typing import Any, Self

import numpy as np
import torch
from diffusers import DiffusionPipeline
from diffusers.callbacks import MultiPipelineCallbacks, PipelineCallback
from diffusers.image_processor import VaeImageProcessor
from diffusers.utils import BaseOutput, logging
from PIL import Image
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

import pipelines.models.eagle3  # noqa: F401  diffusers finds a folder's classes only where imported before
from pipelines import METHODS, model_folder
from pipelines.decoding.drafters import Drafter
from pipelines.decoding.loop import decode
from pipelines.decoding.rules import Rule
from pipelines.decoding.verify import Walk
from pipelines.models import weights
from pipelines.models.llamagen_family import LlamaGen
from pipelines.models.protocol import Condition, ImageModel, Session
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import Step, Trace
from pipelines.primitives.tree import EMPTY
from pipelines.request import Plan, Request, fresh_generator, requests
from pipelines.settings import SAMPLING, Sampling, Settings
from pipelines.stream import Run, Stream, circumstances


# A child of the library's own, so that `diffusers.logging.set_verbosity_error()` and the like hold here too.
logger = logging.get_logger(f"diffusers.{__name__}")

# Class name of the transformer -> model family.
FAMILIES = {"LlamaGenTransformer": LlamaGen}
OUTPUT_TYPES = ("pil", "np", "pt", "latent")


@dataclass
class ARImagePipelineOutput(BaseOutput):
    """images: B pictures as `output_type` says, token ids [B, h, w] for "latent"; traces: B, the run of each."""

    images: list[Image.Image] | np.ndarray | Tensor
    traces: list[Trace]


class ARImagePipeline(DiffusionPipeline):
    """Base of all methods. A method states its `Settings` and which drafter and rule it is made of.

    Built anew over loaded weights by `Method(**pipe.components)`; that is cheap, so that every run may have its own
    object, and with it its own interrupt. settings: changes of the method's defaults, kept in model_index.json.
    """

    model_cpu_offload_seq = "text_encoder->transformer->vqvae"
    _optional_components = ["vqvae", "text_encoder", "tokenizer", "draft_model"]
    _exclude_from_cpu_offload = ["draft_model"]
    _callback_tensor_inputs = ["latents"]

    Settings = Settings
    needs_draft_model = False

    def __init__(
        self,
        transformer: nn.Module,
        vqvae: nn.Module | None = None,
        text_encoder: nn.Module | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        draft_model: nn.Module | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        family = type(transformer).__name__
        if family not in FAMILIES:
            raise ValueError(f"`transformer` must be a {' or a '.join(FAMILIES)}, got a {family}.")
        self.register_modules(
            transformer=transformer,
            vqvae=vqvae,
            text_encoder=text_encoder,
            tokenizer=tokenizer,
            draft_model=draft_model,
        )
        # Under the name of their method, for a folder may be loaded by another.
        self.register_to_config(settings=settings and {"method": type(self).__name__} | settings)
        self.vae_scale_factor = self.model.patch_size
        self.default_sample_size = transformer.config.grid_size
        self.image_processor = VaeImageProcessor(vae_scale_factor=self.vae_scale_factor)
        self._run = Run()
        self._plan(None, None, {}, {})  # `settings` must be in range

    def method(self, settings: Settings, session: Session) -> tuple[Drafter, Rule]:
        """The drafter and the rule of one run: fresh objects, dropped after it."""
        raise NotImplementedError(f"{type(self).__name__} names no drafter and no rule.")

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | PathLike, **kwargs: Any) -> Self:
        """Load a folder that any of our pipelines saved. Raises ValueError, naming what is wrong, for any other."""
        folder = model_folder.open_folder(pretrained_model_name_or_path)
        held = model_folder.components_in(folder, {*METHODS, cls.__name__}, FAMILIES, given=kwargs)
        if "tokenizer" in held:
            kwargs["tokenizer"] = model_folder.tokenizer(folder)
        with model_folder.loading(folder):
            pipe = super().from_pretrained(str(folder), **kwargs)
            if "transformer" in held:
                model_folder.adopt(folder, pipe.transformer)
            pipe._plan(None, None, {}, {})  # the folder's own defaults must be in range
        return pipe

    def save_pretrained(self, save_directory: str | PathLike, **kwargs: Any) -> None:
        """Write each component into a folder of its own, weights as safetensors, and the model's defaults."""
        super().save_pretrained(save_directory, **kwargs)
        model_folder.origin_of(self.transformer).write(Path(save_directory))

    @property
    def model(self) -> ImageModel:
        """The components as their family runs them."""
        family = FAMILIES[type(self.transformer).__name__]
        return family(self.transformer, self.vqvae, self.text_encoder, self.tokenizer)

    @property
    def vocabulary(self) -> int:
        """Number of codes."""
        return len(self.model.token_embedding())

    @property
    def sampling(self) -> Sampling:
        """Sampling where a call says nothing: the model's own defaults."""
        values = model_folder.origin_of(self.transformer).defaults.get(SAMPLING, {})
        return Sampling().revise(values, owner=SAMPLING, vocabulary=self.vocabulary)

    @property
    def settings(self) -> Settings:
        """The method's settings where a call says nothing: its own, changed by the model's, by this pipeline's."""
        name = type(self).__name__
        kept = dict(self.config.settings or {"method": name})
        values = kept if kept.pop("method") == name else {}
        values = model_folder.origin_of(self.transformer).defaults.get(name, {}) | values
        return self.Settings().revise(values, owner=name, vocabulary=self.vocabulary)

    @property
    def guidance_scale(self) -> float | None:
        """Of the run that started last."""
        return self._run.guidance_scale

    @property
    def interrupt(self) -> bool:
        """Whether the run that started last ends after its present round; `pipe._interrupt = True` asks for it."""
        return self._run.is_interrupted

    @property
    def _interrupt(self) -> bool:
        return self._run.is_interrupted

    @_interrupt.setter
    def _interrupt(self, value: bool) -> None:
        self._run.is_interrupted = value

    @property
    def num_timesteps(self) -> int:
        """Rounds so far of the run that started last."""
        return self._run.num_timesteps

    @property
    def weights_sha256(self) -> str:
        """Digest of what decides a picture: text encoder, transformer and image tokenizer."""
        return weights.sha256({name: getattr(self, name) for name in self.model_cpu_offload_seq.split("->")})

    def layout(self, height: int | None = None, width: int | None = None) -> Layout:
        """Where the tokens of a picture of so many pixels sit; None is the model's own size.

        Raises ValueError for a size that the model cannot draw.
        """
        own = self.default_sample_size * self.vae_scale_factor
        return self.model.layout(own if height is None else height, own if width is None else width)

    def check_inputs(
        self,
        output_type: str,
        callback_on_step_end_tensor_inputs: Sequence[str],
        callback_on_step_end: Callable[..., dict] | None = None,
    ) -> None:
        """Raise ValueError, naming the argument, for what cannot be returned or reported."""
        if output_type not in OUTPUT_TYPES:
            raise ValueError(f"`output_type` must be one of {', '.join(OUTPUT_TYPES)}, got {shown(output_type)}.")
        if output_type != "latent" and self.vqvae is None:
            raise ValueError(f"`output_type` must be 'latent' for a pipeline without `vqvae`, got {output_type!r}.")
        if callback_on_step_end is not None and not callable(callback_on_step_end):
            raise ValueError(f"`callback_on_step_end` must be a function or None, got {shown(callback_on_step_end)}.")
        unknown = [name for name in callback_on_step_end_tensor_inputs if name not in self._callback_tensor_inputs]
        if unknown:
            raise ValueError(f"`callback_on_step_end_tensor_inputs` may name latents, got {shown(unknown)}.")

    def encode_prompt(self, prompt: str, negative_prompt: str | None = None) -> Condition:
        """A prompt as the model reads it; words that it does not know are named in a warning and left out.

        Raises ValueError where it is empty or nothing in it is known.
        """
        condition = self.model.condition(prompt, negative_prompt)
        for word, near in condition.unknown.items():
            hint = f"; nearest known: {', '.join(near)}" if near else ""
            logger.warning(f"The model does not know {shown(word)}, the rest of the prompt is drawn{hint}.")
        return condition

    def decode_latents(self, latents: Tensor) -> Tensor:
        """Token ids [B, h, w], -1 where there is none yet, to pictures [B, 3, H, W] in [-1, 1], float32.

        A missing token is drawn as the code nearest to the mean of all.
        """
        model = self.model
        if (latents < 0).any():
            codes = model.codebook().float()  # [V, e]
            stand_in = torch.cdist(codes.mean(0, keepdim=True), codes).argmin()
            latents = torch.where(latents < 0, stand_in, latents)
        # One by one, so that a picture does not depend on its batch.
        return torch.cat([model.decode(grid[None]).float() for grid in latents])

    @torch.no_grad()
    def stream(
        self,
        prompt: str,
        negative_prompt: str | None = None,
        height: int | None = None,
        width: int | None = None,
        guidance_scale: float | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | None = None,
        **settings: Any,
    ) -> Stream:
        """One picture, round by round; see `__call__` for the arguments.

        All is checked and the prompt encoded before this returns; each round is computed when it is asked for.
        """
        sampling = {"guidance_scale": guidance_scale, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        plan = self._plan(height, width, sampling, settings)
        request = Request(prompt, negative_prompt, fresh_generator() if generator is None else generator)
        self._run = Run(plan.sampling.guidance_scale)
        return self._open(plan, request, *self._conditions(plan, [request]))

    @torch.no_grad()
    def __call__(
        self,
        prompt: str | list[str],
        negative_prompt: str | list[str] | None = None,
        height: int | None = None,
        width: int | None = None,
        guidance_scale: float | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        num_images_per_prompt: int = 1,
        generator: torch.Generator | list[torch.Generator] | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: Callable[..., dict] | PipelineCallback | MultiPipelineCallbacks | None = None,
        callback_on_step_end_tensor_inputs: Sequence[str] = ("latents",),
        **settings: Any,
    ) -> ARImagePipelineOutput | tuple:
        """Draw pictures: for each prompt `num_images_per_prompt` of them, one after another.

        negative_prompt: what guidance leads away from, in place of the model's empty condition; takes part above
        guidance 1 only. height, width: pixels. guidance_scale, temperature, top_k, top_p: see `sampling`; settings:
        see `settings`; None is the model's default. generator: one is drawn from in the order of the pictures; of a
        list each picture has its own, and so the same tokens in any batch. output_type: "pil", "np" [B, H, W, 3] in
        [0, 1], "pt" [B, 3, H, W], or "latent": token ids [B, h, w], -1 where an interrupted run has none.
        callback_on_step_end: called as (pipe, round, tokens so far, {"latents": [1, h w] ids, -1 = not yet}) after
        each round of each picture; what it returns is not read, for committed tokens are in the cache already.
        """
        if isinstance(callback_on_step_end, PipelineCallback | MultiPipelineCallbacks):
            callback_on_step_end_tensor_inputs = callback_on_step_end.tensor_inputs
        self.check_inputs(output_type, callback_on_step_end_tensor_inputs, callback_on_step_end)
        sampling = {"guidance_scale": guidance_scale, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        plan = self._plan(height, width, sampling, settings)
        asked = requests(prompt, negative_prompt, num_images_per_prompt, generator)
        conditions = self._conditions(plan, asked)  # all before the first picture, which a bad prompt so does not cost
        self._run = Run(plan.sampling.guidance_scale)
        traces = []
        with self.progress_bar(total=len(asked) * plan.layout.length) as bar:
            for request, condition in zip(asked, conditions):
                with closing(self._open(plan, request, condition)) as stream:
                    for step in stream:
                        bar.update(len(step.committed))
                        if callback_on_step_end is not None:
                            tensors = self._tensors(stream.trace, callback_on_step_end_tensor_inputs)
                            callback_on_step_end(self, step.index, len(stream.trace.tokens), tensors)
                traces.append(stream.trace)
        images = self._latents(traces)
        if output_type != "latent":
            images = self.image_processor.postprocess(self.decode_latents(images), output_type)
        self.maybe_free_model_hooks()
        return ARImagePipelineOutput(images, traces) if return_dict else (images, traces)

    def _plan(
        self, height: int | None, width: int | None, sampling: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Plan:
        """Raises ValueError for a size that the model cannot draw, and for a setting unknown or out of range."""
        name = type(self).__name__
        given = {knob: value for knob, value in sampling.items() if value is not None}
        return Plan(
            layout=self.layout(height, width),
            sampling=self.sampling.revise(given, owner=name, vocabulary=self.vocabulary),
            settings=self.settings.revise(settings, owner=name, vocabulary=self.vocabulary),
        )

    def _conditions(self, plan: Plan, asked: list[Request]) -> list[Condition]:
        texts = [(request.prompt, request.negative_prompt if plan.is_guided else None) for request in asked]
        conditions = {text: self.encode_prompt(*text) for text in dict.fromkeys(texts)}
        return [conditions[text] for text in texts]

    def _open(self, plan: Plan, request: Request, condition: Condition) -> Stream:
        rounds = self._rounds(plan, condition, Chance(request.generator), self._run)
        trace = Trace(circumstances(self, plan, request), plan.layout)
        return Stream(trace, condition.unknown, rounds, self._run, request.generator)

    @torch.no_grad()
    def _rounds(self, plan: Plan, condition: Condition, chance: Chance, run: Run) -> Iterator[Step]:
        sampling, model = plan.sampling, self.model
        warp = Warp(sampling.temperature, sampling.top_k, sampling.top_p)
        try:
            if run.is_interrupted:
                return
            # The discarded forward before the clock; reading from it waits for its end.
            model.open(condition, sampling.guidance_scale, warp, plan.layout).score(EMPTY).probs[-1, -1].item()
            session = model.open(condition, sampling.guidance_scale, warp, plan.layout)
            drafter, rule = self.method(plan.settings, session)
            for step in decode(session, drafter, Walk(rule), chance, plan.layout.length):
                run.num_timesteps = step.index + 1
                yield step
                if run.is_interrupted:
                    return
        finally:
            self.maybe_free_model_hooks()

    def _tensors(self, trace: Trace, names: Sequence[str]) -> dict[str, Tensor]:
        tensors = {"latents": self._latents([trace]).flatten(1)}
        return {name: tensors[name] for name in names}

    def _latents(self, traces: list[Trace]) -> Tensor:
        """Token ids [B, h, w], -1 where there is none."""
        grids = np.stack([trace.layout.grid(trace.tokens) for trace in traces])
        return torch.from_numpy(grids).to(self._execution_device)
