"""One source text -> one judged answer: protect, fit it to the model, generate, restore, check, try in other ways."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby
from typing import TypeVar

from hymt_local.catalog import ModelSpec
from hymt_local.checks import (
    Identify,
    Pair,
    check_pair,
    check_terms,
    most_characters,
    repeats_at_end,
    tidied,
    without_chatter,
)
from hymt_local.coverage import Coverage
from hymt_local.engine.base import (
    Engine,
    FinishReason,
    GenerationDone,
    GenerationRequest,
    ModelInfo,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.utf8 import Utf8Stream
from hymt_local.errors import ContextOverflowError, DecodeError, HymtError, NotCoveredError, SegmentRejectedError
from hymt_local.events import Event, Priority, PromptProgress, SamplingParams, TextDelta, TokenUsage
from hymt_local.guidance import guidance_for
from hymt_local.language import get_language
from hymt_local.planning import shown
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
from hymt_local.protect import (
    Masked,
    MaskFamily,
    MaskFault,
    MaskStream,
    protect,
    restore,
)
from hymt_local.retries import CUT_OFF, DEFAULT_RETRIES, Change, RetryPolicy, useful_changes
from hymt_local.segment import NO_GUIDANCE, Attempt, Finding, Guidance, Segment, Severity
from hymt_local.segmenter import GraphemeStream, Level, join_segments, outer_split, parts_at
from hymt_local.source_parts import is_token, mask_families, packed_to, piece_of, split_parts, uncut
from hymt_local.source_text import SourceText

Emit = Callable[[Event], None]
T = TypeVar("T")

# Room for the answer. An English token is 4 to 5 characters, and scripts such as Burmese or Tibetan may cost 3 tokens a
# character: 16 answer tokens a source token are enough for every pair. An answer that loops is stopped long before.
_ANSWER_TOKENS_PER_SOURCE_TOKEN = 16
_ANSWER_TOKENS_LEAST = 64
_LEAST_ANSWER_RATIO = 2
"""A source that leaves less room than this many times its own tokens is split."""
_CHATTER = frozenset({"preamble", "explanation", "wrapping"})
_CONTEXT_SHARE = 4
"""The context takes at most this part of the budget."""
_PROBES = ("A", "a1", " b", "(", "\n", "中", "é", "я")
"""Sources that begin differently: what their prompts have in common is the part before the source."""
_LOOP_CHECK_TOKENS = 16
_LOOP_PENALTY = 0.1
_RETRY_TEMPERATURE = 0.7
_FULL_STOPS = frozenset(".。।။።۔")
_ENVELOPE = re.compile(r"\s*<target>(.*?)</target>\s*", re.DOTALL)
_RETRIED_HINT = "the source text was kept; translate this part again, alone or with another model"
_COVERAGE_HINT = "`hymt models pull` fetches a real model that suits this machine; `hymt models list` shows all"


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
class _Form:
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
class _Step:
    """One attempt."""

    form: _Form
    sampling: SamplingParams
    is_storable: bool = True
    is_by_sentence: bool = False
    """Each sentence on its own: what loops or runs out of room in a long text does not in a short one."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A source text with its prompt as token ids."""

    source: SourceText
    masked: Masked | None
    """None for a text that is split at its tokens; it has no prompt of its own."""
    prompt: tuple[int, ...]
    form: _Form
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


@dataclass(frozen=True, slots=True)
class Answer:
    """The judged result for one source text."""

    target: str
    """Without outer whitespace; the source text when `error` is set."""
    usage: TokenUsage
    error: HymtError | None = None
    findings: tuple[Finding, ...] = ()
    is_retryable: bool = False
    """True when another attempt may succeed."""
    is_storable: bool = True
    """False for what a random retry gave: it was not sampled as the signature says."""
    fault: str = ""
    """Code of what was refused."""
    attempts: tuple[Attempt, ...] = ()
    """Every generation, in order."""


def not_covered(text: str, *, target_lang: str | None = None) -> NotCoveredError:
    """Return the refusal of a text (or the part of it) outside a demo model's closed domain.

    Args:
        text: What is not covered.
        target_lang: Given when only the translation into this language is outside.
    """
    into = f" in {get_language(target_lang).english}" if target_lang else ""
    return NotCoveredError(f"the demo phrasebook does not cover {shown(text)!r}{into}", hint=_COVERAGE_HINT)


class SegmentGenerator:
    """Generates the segments of one request with a loaded engine. Belongs to one asyncio loop.

    Args:
        spec: The model's entry in the catalog.
        engine: Loaded.
        coverage: The closed domain of a demo model.
        info: What the loaded engine says of itself.
        direction: Languages, sampling and priority of the request.
        emit: Takes PromptProgress and TextDelta events; None when nobody watches the text grow.
        identify: Tells the language of an answer; None leaves that check out.
        retries: How often a text is tried, and what is changed.
    """

    def __init__(
        self,
        spec: ModelSpec,
        engine: Engine,
        *,
        coverage: Coverage | None,
        info: ModelInfo,
        direction: Direction,
        emit: Emit | None,
        identify: Identify | None = None,
        retries: RetryPolicy = DEFAULT_RETRIES,
    ) -> None:
        self._spec = spec
        self._retries = retries
        self._engine = engine
        self._coverage = coverage
        self._info = info
        self._direction = direction
        self._emit = emit
        self._identify = identify
        self._budget = spec.max_segment_tokens
        self._fixed: dict[_Form, _Fixed] = {}
        self._shown: dict[int, GraphemeStream] = {}
        self._stop_ids = frozenset(info.control_tokens[t] for t in spec.stop_tokens if t in info.control_tokens)

    async def open(self) -> None:
        """Learn how much room the prompt template leaves; before anything else.

        Raises:
            ContextOverflowError: the loaded context does not even hold the prompt template.
            UnsupportedModelError: the model file lacks a control token of the template.
        """
        fixed = await self._fixed_part(_Form(MaskFamily.KEEP, guidance=self._direction.guidance))
        self._budget = self._source_budget(fixed.n_template)

    async def prepare(self, sources: Sequence[SourceText]) -> list[Prepared]:
        """Mask, build and tokenize all prompts in one call to the engine."""
        return await self._prepare([(source, self._first_form(source)) for source in sources])

    async def answer(self, prepared: Prepared, index: int, *, draft: str = "") -> Answer:
        """Translate one source text, in pieces when it is longer than the model takes at once.

        Args:
            prepared: From `prepare`.
            index: The segment that the events are about.
            draft: What the answer probably is; it changes nothing but the time.

        Raises:
            HymtError: the engine failed; what the answer lacks is in `Answer.error` instead.
        """
        answer = await self._answer(prepared, index, draft=draft)
        if index in self._shown:
            self._emit_delta(index, self._shown.pop(index).finish())
        return answer

    async def _answer(self, prepared: Prepared, index: int, *, draft: str) -> Answer:
        if prepared.masked is None:
            return await self._answer_split(prepared.source, index, is_only=True)
        if prepared.n_source_tokens <= self._budget:
            return await self._best(prepared, index, draft=draft)
        return await self._answer_in_pieces(prepared.source, index)

    # Prompts

    def _first_form(self, source: SourceText) -> _Form:
        family = mask_families(self._spec, source)[0]
        return _Form(
            family,
            has_masks=bool(source.tokens),
            has_context=self._takes_context(source, family),
            guidance=self._guidance_of(source),
        )

    def _guidance_of(self, source: SourceText) -> Guidance:
        """Return what is to be said of a text, which may be a part of the one that was planned."""
        return guidance_for(source.text, source.guidance, source_lang=self._direction.source_lang)

    def _takes_context(self, source: SourceText, family: MaskFamily) -> bool:
        is_free = source.guidance == NO_GUIDANCE  # no prompt has room for both
        return is_free and bool(source.context) and family is MaskFamily.KEEP and has_task(self._spec, Context.name)

    async def _prepare(self, wanted: Sequence[tuple[SourceText, _Form]]) -> list[Prepared]:
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

    async def _fixed_part(self, form: _Form) -> _Fixed:
        """Return what all prompts of one form begin with, and how long the form is without a source."""
        if form not in self._fixed:
            if form.family is MaskFamily.SPLIT:
                return _Fixed(0, ())
            template = (await self._tokenize([self._prompt("", form)]))[0]
            probes = await self._tokenize([self._prompt(text, form) for text in _PROBES]) if template else [()]
            self._fixed[form] = _Fixed(len(template), _common_beginning(probes))
        return self._fixed[form]

    def _prompt(self, text: str, form: _Form, *, context: str = "") -> Prompt:
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

    def _task(self, form: _Form, context: str) -> Task:
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

    # Fitting

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

    async def _answer_in_pieces(self, source: SourceText, index: int) -> Answer:
        """Translate the pieces of a text that is too long."""
        texts = await self._fitting_pieces(source)
        ends = list(accumulate(map(len, texts)))
        parts = [source.part(end - len(text), end) for text, end in zip(texts, ends, strict=True)]
        return await self._answer_parts(source, parts, index, is_only=True)

    async def _answer_split(self, source: SourceText, index: int, *, is_only: bool) -> Answer:
        """Translate what stands between the tokens, sentence by sentence where the model wants that."""
        parts = split_parts(self._spec, source, source_lang=self._direction.source_lang)
        return await self._answer_parts(source, parts, index, is_only=is_only)

    async def _answer_parts(
        self, source: SourceText, parts: Sequence[SourceText], index: int, *, is_only: bool
    ) -> Answer:
        """Translate parts in order; the first that fails fails the whole.

        Args:
            source: The whole.
            parts: Joined, their texts are its text; a part that is one token stays.
            index: The segment.
            is_only: Each part gets all the attempts that a segment gets; else, one.
        """
        pieces = [piece_of(number, part) for number, part in enumerate(parts)]
        wanted = [(piece, part) for piece, part in zip(pieces, parts, strict=True) if piece.translatable]
        inner = [part.part(len(piece.lead), len(piece.lead) + len(piece.source)) for piece, part in wanted]
        forms = [(part, self._piece_form(part)) for part in inner]
        prompts = dict(zip((piece.index for piece, _ in wanted), await self._prepare(forms), strict=True))
        answers: list[Answer] = []
        for piece in pieces:
            answers.append(await self._answer_piece(piece, prompts.get(piece.index), index, is_only=is_only))
            if answers[-1].error:
                break
        return self._joined(source, parts, pieces, answers)

    def _piece_form(self, part: SourceText) -> _Form:
        if part.tokens:
            return self._first_form(replace(part, context=()))
        return _Form(MaskFamily.KEEP, guidance=self._guidance_of(part))

    def _joined(
        self, source: SourceText, parts: Sequence[SourceText], pieces: Sequence[Segment], answers: Sequence[Answer]
    ) -> Answer:
        usage = sum((answer.usage for answer in answers), TokenUsage())
        findings = tuple(finding for answer in answers for finding in answer.findings)
        attempts = tuple(attempt for answer in answers for attempt in answer.attempts)
        if answers[-1].error:
            return replace(answers[-1], target=source.text, usage=usage, attempts=attempts)
        target = self._join(parts, pieces, answers)
        is_storable = all(answer.is_storable for answer in answers)
        return Answer(target, usage, findings=findings, is_storable=is_storable, attempts=attempts)

    async def _answer_piece(self, piece: Segment, prompt: Prepared | None, index: int, *, is_only: bool) -> Answer:
        self._emit_text(index, piece.lead)
        if prompt is None:
            answer = Answer(piece.source, TokenUsage())
            self._emit_text(index, piece.source)
        elif prompt.masked is None:
            answer = await self._answer_split(prompt.source, index, is_only=is_only)
        elif is_only:
            answer = await self._best(prompt, index)
        else:
            answer = await self._generate(
                prompt, index, _Step(prompt.form, self._direction.sampling), is_streamed=False
            )
        self._emit_text(index, piece.trail)
        return replace(answer, target=_without_added_stop(piece, answer.target)) if not answer.error else answer

    def _join(self, parts: Sequence[SourceText], pieces: Sequence[Segment], answers: Sequence[Answer]) -> str:
        """Join texts as the target language asks, and tokens to them as the source does."""
        joined: list[str] = []
        for each_is_token, run in groupby(zip(parts, pieces, answers, strict=True), key=lambda each: is_token(each[0])):
            _, segments, targets = zip(*run, strict=True)
            if each_is_token:
                joined += [segment.restored(answer.target) for segment, answer in zip(segments, targets, strict=True)]
            else:
                joined.append(self._join_texts(segments, [answer.target for answer in targets]))
        return "".join(joined)

    def _join_texts(self, segments: Sequence[Segment], targets: Sequence[str]) -> str:
        languages = self._direction
        return join_segments(segments, targets, source_lang=languages.source_lang, target_lang=languages.target_lang)

    async def _fitting_pieces(self, source: SourceText) -> list[str]:
        counted = await self._split(source.text, Level.SENTENCE)
        return packed_to(uncut(counted, source.tokens), budget=self._budget)

    async def _split(self, text: str, level: Level) -> list[tuple[str, int]]:
        """Return parts of `text` with their token counts, each within the budget unless it cannot be cut further."""
        parts = parts_at(text, level, lang=self._direction.source_lang)
        counts = [len(ids) for ids in await self._engine.tokenize(parts)]
        fitting: list[tuple[str, int]] = []
        for part, count in zip(parts, counts, strict=True):
            if count <= self._budget or (level is Level.GRAPHEME and len(parts) == 1):
                fitting.append((part, count))
            else:
                fitting += await self._split(part, Level(min(level + 1, Level.GRAPHEME)))
        return fitting

    # Generating

    async def _best(self, prepared: Prepared, index: int, *, draft: str = "") -> Answer:
        """Try again in other ways what that may mend. Only the first attempt streams: it is on the screen already."""
        steps = [_Step(prepared.form, self._direction.sampling)]
        refused: list[Answer] = []
        answer = await self._generate(prepared, index, steps[0], draft=draft)
        while answer.error and answer.is_retryable and (step := self._next_step(prepared.source, steps, answer)):
            refused.append(answer)
            steps.append(step)
            answer = await self._attempt(prepared.source, index, step)
        if not refused and _is_doubtful(answer) and self._may_sample:
            refused.append(answer)
            answer = await self._less_doubtful(answer, prepared, index)
        if not refused:
            return answer
        usage = sum((each.usage for each in refused), answer.usage)
        attempts = tuple(attempt for each in (*refused, answer) for attempt in each.attempts)
        return replace(answer, usage=usage, findings=(*_retried(refused), *answer.findings), attempts=attempts)

    @property
    def _may_sample(self) -> bool:
        return self._retries.generations > 1 and Change.SAMPLING in self._retries.order

    async def _less_doubtful(self, answer: Answer, prepared: Prepared, index: int) -> Answer:
        """Try once more what may be in the wrong language; keep the first answer when the second is no better."""
        step = _Step(prepared.form, self._retry_sampling(""), is_storable=False)
        second = await self._attempt(prepared.source, index, step)
        if second.error or _is_doubtful(second):
            # Its own usage and attempt are counted with the refused ones.
            return replace(answer, usage=second.usage, attempts=second.attempts)
        return second

    async def _attempt(self, source: SourceText, index: int, step: _Step) -> Answer:
        if step.form.family is MaskFamily.SPLIT:
            return await self._answer_split(source, index, is_only=False)
        if step.is_by_sentence:
            return await self._answer_parts(source, self._sentences(source), index, is_only=False)
        prepared = (await self._prepare([(source, step.form)]))[0]
        answer = await self._generate(prepared, index, step, is_streamed=False)
        return replace(answer, is_storable=answer.is_storable and step.is_storable)

    def _next_step(self, source: SourceText, steps: Sequence[_Step], answer: Answer) -> _Step | None:
        """Return what to change after a refused answer; None when there is nothing left that could help."""
        if len(steps) >= self._retries.generations:
            return None
        useful = useful_changes(answer.fault, has_tokens=bool(source.tokens))
        steps_left = (
            self._changed(change, source, steps, answer) for change in self._retries.order if change in useful
        )
        return next(filter(None, steps_left), None)

    def _changed(self, change: Change, source: SourceText, steps: Sequence[_Step], answer: Answer) -> _Step | None:
        match change:
            case Change.SAMPLING:
                return self._sampled(steps, answer)
            case Change.PROMPT:
                return self._other_prompt(source, steps)
            case Change.MASKS:
                return self._other_masks(source, steps) if source.tokens else None
            case Change.SENTENCES:
                is_new = not steps[-1].is_by_sentence and len(self._sentences(source)) > 1
                return replace(steps[0], is_by_sentence=True) if is_new else None

    def _sampled(self, steps: Sequence[_Step], answer: Answer) -> _Step | None:
        form = steps[-1].form
        if any(not step.is_storable for step in steps) or form.family is not steps[0].form.family:
            return None
        return _Step(form, self._retry_sampling(answer.fault), is_storable=False)

    def _sentences(self, source: SourceText) -> list[SourceText]:
        """Cut a text at the ends of its sentences, never inside a token."""
        texts = parts_at(source.text, Level.SENTENCE, lang=self._direction.source_lang)
        whole = [text for text, _ in uncut([(text, 0) for text in texts], source.tokens)]
        ends = accumulate(map(len, whole))
        return [replace(source.part(end - len(text), end), context=()) for text, end in zip(whole, ends, strict=True)]

    def _other_masks(self, source: SourceText, steps: Sequence[_Step]) -> _Step | None:
        tried = {step.form.family for step in steps}
        families = [family for family in mask_families(self._spec, source) if family not in tried]
        if not families:
            return None
        is_last = len(steps) == self._retries.generations - 1
        family = families[-1] if is_last else families[0]
        form = _Form(family, has_masks=True, guidance=self._guidance_of(source))
        return _Step(form, self._direction.sampling)

    def _other_prompt(self, source: SourceText, steps: Sequence[_Step]) -> _Step | None:
        """Ask in the other language of the prompts, where the generation has both."""
        form = steps[-1].form
        name, _, written_in = self._prompt_id(form).partition(".")
        other: PromptLanguage = "en" if written_in == "zh" else "zh"
        if form.prompt_lang is not None or not has_task(self._spec, name, other):
            return None
        return _Step(replace(form, prompt_lang=other), self._direction.sampling)

    def _prompt_id(self, form: _Form) -> str:
        """Return which prompt of the model's card a form uses, and its language."""
        task = self._task(form, "x" if form.has_context else "")
        languages = self._direction.source_lang, self._direction.target_lang
        return f"{task.name}.{form.prompt_lang or prompt_language(self._spec, task, *languages)}"

    def _retry_sampling(self, fault: str) -> SamplingParams:
        card = self._spec.sampling.params(seed=self._direction.sampling.seed + 1)
        penalty = card.repetition_penalty + (_LOOP_PENALTY if fault == "loop" else 0.0)
        return replace(card, temperature=_RETRY_TEMPERATURE, repetition_penalty=round(penalty, 3))

    async def _generate(
        self, prepared: Prepared, index: int, step: _Step, *, draft: str = "", is_streamed: bool = True
    ) -> Answer:
        assert prepared.masked is not None
        is_streamed = is_streamed and self._emit is not None
        request = await self._request(prepared, step.sampling, draft=draft)
        least = self._coverage.min_probability if self._coverage else 0.0
        record = _Record(
            prepared,
            watches_loops=self._spec.kind != "test",
            least_probability=least,
            most_characters=self._most_characters(prepared),
        )
        shown = MaskStream(prepared.masked)
        self._emit_text(index, prepared.masked.lead if is_streamed else "")
        async with _closing(self._engine.generate(request)) as events:
            async for event in events:
                if isinstance(event, PromptRead):
                    self._emit_progress(index, event)
                elif isinstance(event, TokensGenerated):
                    text = record.add(event)
                    if record.is_looping or record.is_unsure or record.is_overlong:
                        break
                    if is_streamed:
                        self._emit_text(index, shown.feed(text))
                else:
                    record.done = event
        rest = record.finish()
        if is_streamed and not record.is_unsure:
            self._emit_text(index, shown.feed(rest) + shown.finish() + prepared.masked.trail)
        answer = self._judge(record)
        return replace(answer, attempts=(self._attempted(record, step, answer),))

    def _attempted(self, record: _Record, step: _Step, answer: Answer) -> Attempt:
        form = record.prepared.form
        gravest = [finding.code for finding in answer.findings if finding.severity is Severity.ERROR]
        failed = [answer.fault or answer.error.code, *gravest] if answer.error else []
        return Attempt(
            prompt=self._prompt_id(form),
            masks=form.family.value,
            temperature=step.sampling.temperature,
            finish=record.finish_reason,
            failed=tuple(dict.fromkeys(failed)),
        )

    def _most_characters(self, prepared: Prepared) -> int | None:
        """Return the length at which an answer is given up; None where any may be right."""
        if self._spec.kind == "test" or prepared.masked is None:
            return None
        masks = len(prepared.masked.text) - len(prepared.source.text)
        most = most_characters(prepared.source.text, self._direction.source_lang, self._direction.target_lang)
        return None if most is None else most + 2 * max(0, masks)

    async def _request(self, prepared: Prepared, sampling: SamplingParams, *, draft: str) -> GenerationRequest:
        wanted = _ANSWER_TOKENS_PER_SOURCE_TOKEN * prepared.n_source_tokens + _ANSWER_TOKENS_LEAST
        has_draft = bool(draft) and prepared.form.family is MaskFamily.KEEP
        return GenerationRequest(
            prompt=prepared.prompt,
            max_tokens=max(1, min(wanted, self._info.context_length - len(prepared.prompt))),
            sampling=sampling,
            stop_ids=self._stop_ids,
            priority=self._direction.priority,
            draft=(await self._engine.tokenize([draft]))[0] if has_draft else (),
            n_fixed=prepared.n_fixed,
            probabilities=self._coverage is not None,
        )

    def _emit_progress(self, index: int, event: PromptRead) -> None:
        if self._emit is not None:
            self._emit(PromptProgress(index, event.done, event.total))

    def _emit_text(self, index: int, text: str) -> None:
        if text and self._emit is not None:
            self._emit_delta(index, self._shown.setdefault(index, GraphemeStream()).feed(text))

    def _emit_delta(self, index: int, text: str) -> None:
        if text and self._emit is not None:
            self._emit(TextDelta(index, text))

    # Judging

    def _judge(self, record: _Record) -> Answer:
        source = record.prepared.source.text
        refused = self._refusal(record)
        if refused is not None:
            return replace(refused, target=source, usage=record.usage)
        assert record.prepared.masked is not None
        text = outer_split(0, record.text).source
        if record.prepared.form.family is MaskFamily.TAGS:
            text = without_envelope(text)
        answer = self._verified(record, text)
        if answer.error is None and not _CHATTER & {finding.code for finding in answer.findings}:
            return answer
        shorter = without_chatter(record.prepared.masked.text, text)
        if shorter == text:
            return answer
        mended = self._verified(record, shorter)
        return mended if mended.error is None else answer

    def _verified(self, record: _Record, text: str) -> Answer:
        """Restore what was masked and check the result."""
        assert record.prepared.masked is not None
        source = record.prepared.source
        restored = restore(record.prepared.masked, text)
        if isinstance(restored, MaskFault):
            return _refused(source.text, record, [Finding("placeholder", Severity.ERROR, restored.message)])
        if self._spec.kind == "test":
            return Answer(restored.text, record.usage)
        languages = self._direction
        target = tidied(source.text, restored.text, target_lang=languages.target_lang)
        pair = Pair(
            source.text,
            target,
            languages.source_lang,
            languages.target_lang,
            groups=source.groups,
            context=(*source.context, *filter(None, (source.guidance.context, source.guidance.style))),
            identify=self._identify,
        )
        findings = [finding for finding in check_pair(pair, with_tokens=False) if not _is_of_layout(finding)]
        if findings and findings[0].severity is Severity.ERROR:
            return _refused(source.text, record, findings)
        terms = {term.source: (term.target,) for term in source.guidance.terms}
        return Answer(target, record.usage, findings=(*findings, *check_terms(pair, terms)))

    def _refusal(self, record: _Record) -> Answer | None:
        """Return what is wrong with the generation itself, whatever its text says."""
        nothing = TokenUsage()
        if record.is_unsure:
            return Answer("", nothing, not_covered(record.prepared.source.text))
        if record.is_looping:
            return Answer("", nothing, _rejected("the answer repeats itself"), is_retryable=True, fault="loop")
        if record.is_overlong:
            error = _rejected("the answer is much longer than its source")
            return Answer("", nothing, error, is_retryable=True, fault="ratio")
        if record.done is None or record.done.reason is FinishReason.CANCELLED:
            return Answer("", nothing, DecodeError("the engine stopped in the middle of an answer", hint="try again"))
        if record.done.reason is FinishReason.LENGTH:
            message = f"the answer was cut off after {record.usage.output_tokens} tokens"
            return Answer("", nothing, _rejected(message), is_retryable=True, fault=CUT_OFF)
        if record.n_invalid:
            error = _rejected("the answer is not valid UTF-8")
            return Answer("", nothing, error, is_retryable=True, fault="encoding")
        return None


def _without_added_stop(piece: Segment, target: str) -> str:
    """Drop the full stop that a model adds to a part of a sentence that has none."""
    if piece.source[-1:].isalnum() and target[-1:] in _FULL_STOPS and target[-2:-1].isalnum():
        return target[:-1]
    return target


def without_envelope(text: str) -> str:
    """Return the answer inside the `<target>` tags that the format template asks for."""
    match = _ENVELOPE.fullmatch(text)
    return match[1].strip() if match else text


def _refused(source: str, record: _Record, findings: Sequence[Finding]) -> Answer:
    gravest = findings[0]
    return Answer(
        source,
        record.usage,
        _rejected(gravest.message),
        findings=tuple(findings),
        is_retryable=True,
        fault=gravest.code,
    )


def _is_doubtful(answer: Answer) -> bool:
    """Tell whether an answer may be in the wrong language, which its length does not let anyone say for sure."""
    return answer.error is None and any(finding.code == "wrong_language" for finding in answer.findings)


def _is_of_layout(finding: Finding) -> bool:
    """Tell whether a finding is about wrapped lines that a translation need not keep."""
    return finding.code == "lines" and finding.severity is not Severity.ERROR


def _retried(refused: Sequence[Answer]) -> list[Finding]:
    """Return why each earlier attempt was refused."""
    return [
        Finding("retried", Severity.INFO, f"an answer was refused: {answer.error.message}")
        for answer in refused
        if answer.error
    ]


def _common_beginning(prompts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    first, last = min(prompts), max(prompts)
    n_common = next(
        (n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[:n_common]


@dataclass(slots=True)
class _Record:
    """One generation as it arrives."""

    prepared: Prepared
    watches_loops: bool
    least_probability: float
    """A token below it shows that the source lies outside a closed domain; what follows is not worth waiting for."""
    most_characters: int | None = None
    """A longer answer is wrong, whatever follows."""
    done: GenerationDone | None = None
    lowest_probability: float = 1.0
    is_looping: bool = False
    _ids: list[int] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)
    _stream: Utf8Stream = field(default_factory=Utf8Stream)
    _n_checked: int = 0
    _n_characters: int = 0

    def add(self, event: TokensGenerated) -> str:
        """Take new tokens, return the text they complete."""
        self._ids += event.ids
        self.lowest_probability = min(self.lowest_probability, *event.probabilities, 1.0)
        if self.watches_loops and len(self._ids) - self._n_checked >= _LOOP_CHECK_TOKENS:
            self._n_checked = len(self._ids)
            self.is_looping = repeats_at_end(self._ids, allowed=self.prepared.prompt)
        return self._keep(self._stream.feed(event.data))

    @property
    def finish_reason(self) -> str:
        """Why it ended: as the engine says, or what it was ended for."""
        for reason, is_it in (("unsure", self.is_unsure), ("loop", self.is_looping), ("overlong", self.is_overlong)):
            if is_it:
                return reason
        return (self.done.reason if self.done else FinishReason.CANCELLED).value

    @property
    def is_overlong(self) -> bool:
        return self.most_characters is not None and self._n_characters > self.most_characters

    @property
    def is_unsure(self) -> bool:
        return self.lowest_probability < self.least_probability

    def finish(self) -> str:
        """Return what a broken last character leaves."""
        return self._keep(self._stream.finish())

    def _keep(self, text: str) -> str:
        self._parts.append(text)
        self._n_characters += len(text)
        return text

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def n_invalid(self) -> int:
        return self._stream.n_invalid

    @property
    def usage(self) -> TokenUsage:
        if self.done:
            return self.done.usage
        return TokenUsage(prompt_tokens=len(self.prepared.prompt), output_tokens=len(self._ids))


def _rejected(message: str) -> SegmentRejectedError:
    return SegmentRejectedError(message, hint=_RETRIED_HINT)


@asynccontextmanager
async def _closing(events: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close an engine's iterator on the way out, which cancels what it still does."""
    try:
        yield events
    finally:
        aclose = getattr(events, "aclose", None)
        if aclose is not None:
            await aclose()
