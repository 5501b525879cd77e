"""What the next attempt at a refused text changes: each step is another way, and none is taken twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from hymt_local.catalog import ModelSpec
from hymt_local.events import SamplingParams
from hymt_local.generation.answer import Answer
from hymt_local.generation.asking import Asking, Direction, Form
from hymt_local.generation.parts import sentences_of
from hymt_local.prompts import PromptLanguage, has_task
from hymt_local.retries import Change, RetryPolicy, useful_changes
from hymt_local.segment import GuidanceKind
from hymt_local.source_parts import mask_families
from hymt_local.source_text import SourceText

_LOOP_PENALTY = 0.1
_RETRY_TEMPERATURE = 0.7


@dataclass(frozen=True, slots=True)
class Step:
    """One attempt."""

    form: Form
    sampling: SamplingParams
    is_storable: bool = True
    is_by_sentence: bool = False
    """Each sentence on its own: what loops or runs out of room in a long text does not in a short one."""


class Ladder:
    """Chooses the attempts of one request.

    Args:
        spec: The model's entry in the catalog.
        asking: Makes its prompts.
        direction: Languages and sampling.
        retries: How often a text is tried, and in which order things are changed.
    """

    def __init__(self, spec: ModelSpec, asking: Asking, direction: Direction, retries: RetryPolicy) -> None:
        self._spec = spec
        self._asking = asking
        self._direction = direction
        self._retries = retries

    def first(self, form: Form) -> Step:
        """Return the attempt that every text begins with."""
        return Step(form, self._direction.sampling)

    def next_step(self, source: SourceText, steps: Sequence[Step], answer: Answer) -> Step | None:
        """Return what to change after a refused answer; None when there is nothing left that could help."""
        if len(steps) >= self._retries.generations:
            return None
        has_sentences = len(sentences_of(source, self._direction.source_lang)) > 1
        useful = useful_changes(answer.fault, has_tokens=bool(source.tokens), has_sentences=has_sentences)
        steps_left = (
            self._changed(change, source, steps, answer)
            for change in self._retries.order
            if change in useful and (has_sentences or change is not Change.SENTENCES)
        )
        return next(filter(None, steps_left), None)

    def second_opinion(self, form: Form) -> Step | None:
        """Return another attempt at an answer that is not refused but doubtful, if the policy has one."""
        if self._retries.generations < 2 or Change.SAMPLING not in self._retries.order:
            return None
        return Step(form, self._retry_sampling(""), is_storable=False)

    def _changed(self, change: Change, source: SourceText, steps: Sequence[Step], answer: Answer) -> Step | None:
        match change:
            case Change.CONTEXT:
                return self._without_context(steps)
            case Change.SAMPLING:
                return self._sampled(steps, answer)
            case Change.PROMPT:
                return self._other_prompt(steps)
            case Change.MASKS:
                return self._other_masks(source, steps) if source.tokens else None
            case Change.SENTENCES:
                return None if steps[-1].is_by_sentence else replace(steps[0], is_by_sentence=True)

    def _without_context(self, steps: Sequence[Step]) -> Step | None:
        form = steps[-1].form
        bare = replace(form, has_context=False, guidance=form.guidance.only({GuidanceKind.TERMS}))
        return None if bare == form else Step(bare, self._direction.sampling)

    def _sampled(self, steps: Sequence[Step], answer: Answer) -> Step | None:
        form = steps[-1].form
        if any(not step.is_storable for step in steps) or form.family is not steps[0].form.family:
            return None
        return Step(form, self._retry_sampling(answer.fault), is_storable=False)

    def _other_masks(self, source: SourceText, steps: Sequence[Step]) -> Step | None:
        tried = {step.form.family for step in steps}
        families = [family for family in mask_families(self._spec, source) if family not in tried]
        if not families:
            return None
        is_last = len(steps) == self._retries.generations - 1
        family = families[-1] if is_last else families[0]
        form = Form(family, has_masks=True, guidance=steps[-1].form.guidance)
        return Step(form, self._direction.sampling)

    def _other_prompt(self, steps: Sequence[Step]) -> Step | None:
        """Ask in the other language of the prompts, where the generation has both."""
        form = steps[-1].form
        name, _, written_in = self._asking.prompt_id(form).partition(".")
        other: PromptLanguage = "en" if written_in == "zh" else "zh"
        if form.prompt_lang is not None or not has_task(self._spec, name, other):
            return None
        return Step(replace(form, prompt_lang=other), self._direction.sampling)

    def _retry_sampling(self, fault: str) -> SamplingParams:
        card = self._spec.sampling.params(seed=self._direction.sampling.seed + 1)
        penalty = card.repetition_penalty + (_LOOP_PENALTY if fault == "loop" else 0.0)
        return msgspec.structs.replace(card, temperature=_RETRY_TEMPERATURE, repetition_penalty=round(penalty, 3))
