"""How a text is asked for: its masks, its prompt with context and guidance, and how much of it fits into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hymt_local.catalog import ModelSpec
from hymt_local.coverage import Coverage
from hymt_local.engine.base import Engine, ModelInfo
from hymt_local.errors import ContextOverflowError
from hymt_local.events import Priority, SamplingParams
from hymt_local.guidance import guidance_for
from hymt_local.prompts import (
    Context,
    Delimiters,
    Formatted,
    Prompt,
    PromptLanguage,
    Task,
    Translate,
    build_prompt,
    guided_task,
    has_task,
    preferred_language,
    prompt_language,
)
from hymt_local.protect import Masked, MaskFamily, protect
from hymt_local.segment import NO_GUIDANCE, Guidance
from hymt_local.source_parts import mask_families
from hymt_local.source_text import SourceText

# Room for the answer. An English token is 4 to 5 characters, and scripts such as Burmese or Tibetan may cost 3 tokens a
# character: 16 answer tokens a source token are enough for every pair. An answer that loops is stopped long before.
_ANSWER_TOKENS_PER_SOURCE_TOKEN = 16
_ANSWER_TOKENS_LEAST = 64
_LEAST_ANSWER_RATIO = 2
"""A source that leaves less room than this many times its own tokens is split."""
_CONTEXT_SHARE = 4
"""The context takes at most this part of the budget."""
_PROBES = ("A", "a1", " b", "(", "\n", "中", "é", "я")
"""Sources that begin differently: what their prompts have in common is the part before the source."""


@dataclass(frozen=True, slots=True)
class Direction:
    """What all segments of one request have in common."""

    source_lang: str
    target_lang: str
    sampling: SamplingParams
    priority: Priority
    guidance: Guidance = NO_GUIDANCE
    """All of it; each text needs only a part."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a source text is asked for: masks and prompt."""

    family: MaskFamily
    has_masks: bool = False
    has_context: bool = False
    guidance: Guidance = NO_GUIDANCE
    prompt_lang: PromptLanguage | None = None


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What all prompts of one form have in common."""

    n_template: int
    """Tokens of a prompt without a source."""
    ids: tuple[int, ...]
    """How the prompts begin."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A source text with its prompt as token ids."""

    source: SourceText
    masked: Masked | None
    """None for a text that is split at its tokens; it has no prompt of its own."""
    prompt: tuple[int, ...]
    form: Form
    n_template: int
    fixed: tuple[int, ...]

    @property
    def n_source_tokens(self) -> int:
        """Tokens of the source, at least 1."""
        return max(1, len(self.prompt) - self.n_template)

    @property
    def n_fixed(self) -> int:
        """Tokens at the beginning that other prompts have too."""
        return len(self.fixed) if self.prompt[: len(self.fixed)] == self.fixed else 0

    def answer_room(self, context_length: int) -> int:
        """Return how many tokens the answer may have."""
        wanted = _ANSWER_TOKENS_PER_SOURCE_TOKEN * self.n_source_tokens + _ANSWER_TOKENS_LEAST
        return max(1, min(wanted, context_length - len(self.prompt)))


class Asking:
    """Makes the prompts of one request.

    Args:
        spec: The model's entry in the catalog.
        engine: Loaded; only its tokenizer is used.
        coverage: The closed domain of a demo model.
        info: What the loaded engine says of itself.
        direction: Languages and guidance of the request.
    """

    def __init__(
        self, spec: ModelSpec, engine: Engine, *, coverage: Coverage | None, info: ModelInfo, direction: Direction
    ) -> None:
        self._spec = spec
        self._engine = engine
        self._coverage = coverage
        self._info = info
        self._direction = direction
        self._fixed: dict[Form, _Fixed] = {}
        self._budget = spec.max_segment_tokens

    @property
    def budget(self) -> int:
        """Source tokens that one prompt may hold; known after `open`."""
        return self._budget

    async def open(self) -> None:
        """Learn how much room the prompt template leaves; before anything else.

        Raises:
            ContextOverflowError: the loaded context does not even hold the prompt template.
            UnsupportedModelError: the model file lacks a control token of the template.
        """
        fixed = await self._fixed_part(Form(MaskFamily.KEEP, guidance=self._direction.guidance))
        self._budget = self._source_budget(fixed.n_template)

    async def prepare(self, wanted: Sequence[tuple[SourceText, Form]]) -> list[Prepared]:
        """Mask, build and tokenize all prompts in one call to the engine."""
        masked = [
            None if form.family is MaskFamily.SPLIT else protect(source, family=form.family) for source, form in wanted
        ]
        fixed = [await self._fixed_part(form) for _, form in wanted]
        contexts = [await self._context_of(source) if form.has_context else "" for source, form in wanted]
        shown = [
            self._prompt(each.text, form, context=context)
            for each, (_, form), context in zip(masked, wanted, contexts, strict=True)
            if each is not None
        ]
        prompts = iter(await self._tokenize(shown))
        return [
            Prepared(source, each, next(prompts) if each else (), form, part.n_template, part.ids)
            for each, part, (source, form) in zip(masked, fixed, wanted, strict=True)
        ]

    def first_form(self, source: SourceText) -> Form:
        """Return how a text is asked for at first."""
        family = mask_families(self._spec, source)[0]
        return Form(
            family,
            has_masks=bool(source.tokens),
            has_context=self._takes_context(source, family),
            guidance=self.guidance_of(source),
        )

    def guidance_of(self, source: SourceText) -> Guidance:
        """Return what is to be said of a text, which may be a part of the one that was planned."""
        return guidance_for(source.text, source.guidance, source_lang=self._direction.source_lang)

    def prompt_id(self, form: Form) -> str:
        """Return which prompt of the model's card a form uses, and its language: `default.zh`."""
        task = self._task(form, "x" if form.has_context else "")
        languages = self._direction.source_lang, self._direction.target_lang
        return f"{task.name}.{form.prompt_lang or prompt_language(self._spec, task, *languages)}"

    def _takes_context(self, source: SourceText, family: MaskFamily) -> bool:
        is_free = source.guidance == NO_GUIDANCE  # no prompt has room for both
        return is_free and bool(source.context) and family is MaskFamily.KEEP and has_task(self._spec, Context.name)

    async def _fixed_part(self, form: Form) -> _Fixed:
        """Return what all prompts of one form begin with, and how long the form is without a source."""
        if form not in self._fixed:
            if form.family is MaskFamily.SPLIT:
                return _Fixed(0, ())
            template = (await self._tokenize([self._prompt("", form)]))[0]
            probes = await self._tokenize([self._prompt(text, form) for text in _PROBES]) if template else [()]
            self._fixed[form] = _Fixed(len(template), _common_beginning(probes))
        return self._fixed[form]

    def _prompt(self, text: str, form: Form, *, context: str = "") -> Prompt:
        if self._coverage:
            text = self._coverage.usual_form(text, self._direction.source_lang)
        return build_prompt(
            self._spec,
            source_lang=self._direction.source_lang,
            target_lang=self._direction.target_lang,
            source=text,
            task=self._task(form, context),
            prompt_lang=form.prompt_lang,
        )

    def _task(self, form: Form, context: str) -> Task:
        if form.family is MaskFamily.TAGS:
            return Formatted()
        has_delimiters = form.family is MaskFamily.XML and form.has_masks and has_task(self._spec, Delimiters.name)
        if form.guidance.kinds:
            languages = self._direction
            written_in = form.prompt_lang or preferred_language(languages.source_lang, languages.target_lang)
            return guided_task(self._spec, form.guidance, written_in=written_in, keeps_delimiters=has_delimiters)
        if has_delimiters:
            return Delimiters()
        return Context(context) if form.has_context and context else Translate()

    async def _context_of(self, source: SourceText) -> str:
        """Return as much of the context, its nearest part first, as a quarter of the budget holds."""
        counts = [len(ids) for ids in await self._engine.tokenize(list(source.context))]
        room, kept = self._budget // _CONTEXT_SHARE, len(source.context)
        while kept and counts[kept - 1] <= room:
            kept -= 1
            room -= counts[kept]
        return "\n".join(source.context[kept:])

    async def _tokenize(self, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
        texts = [text for prompt in prompts for text in prompt.texts]
        tokenized = iter(await self._engine.tokenize(texts))
        control = self._info.control_tokens
        return [prompt.assemble(control, [next(tokenized) for _ in prompt.texts]) for prompt in prompts]

    def _source_budget(self, n_template: int) -> int:
        """Return how many source tokens one prompt may hold."""
        room = self._info.context_length - n_template - _ANSWER_TOKENS_LEAST
        budget = min(self._spec.max_segment_tokens, room // (1 + _LEAST_ANSWER_RATIO))
        if budget < 1:
            raise ContextOverflowError(
                f"a context of {self._info.context_length} tokens is too small for the prompt of {n_template} tokens",
                hint="raise the context length: `hymt config set context_length 2048`",
            )
        return budget


def _common_beginning(prompts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    first, last = min(prompts), max(prompts)
    n_common = next(
        (n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[:n_common]
