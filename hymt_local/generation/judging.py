"""From a finished generation to an answer: what was masked is put back, the checks are run, chatter is cut off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hymt_local.catalog import ModelSpec
from hymt_local.checks import Identify, Pair, check_pair, check_terms, most_characters, tidied, without_chatter
from hymt_local.engine.base import FinishReason
from hymt_local.errors import DecodeError
from hymt_local.events import TokenUsage
from hymt_local.generation.answer import Answer, not_covered, rejected
from hymt_local.generation.asking import Direction, Prepared
from hymt_local.generation.watching import Record
from hymt_local.protect import MaskFamily, MaskFault, restore
from hymt_local.retries import CUT_OFF
from hymt_local.segment import Finding, Severity
from hymt_local.segmenter import outer_split

_CHATTER = frozenset({"preamble", "explanation", "wrapping"})
_ENVELOPE = re.compile(r"\s*<target>(.*?)</target>\s*", re.DOTALL)


class Judge:
    """Judges the generations of one request.

    Args:
        spec: The model's entry in the catalog; the answers of engines without a model are taken as they are.
        direction: The languages.
        identify: Tells the language of an answer; None leaves that check out.
    """

    def __init__(self, spec: ModelSpec, direction: Direction, *, identify: Identify | None) -> None:
        self._has_model = spec.kind != "test"
        self._direction = direction
        self._identify = identify

    def most_characters(self, prepared: Prepared) -> int | None:
        """Return the length at which an answer is given up; None where any may be right."""
        if not self._has_model or prepared.masked is None:
            return None
        masks = len(prepared.masked.text) - len(prepared.source.text)
        most = most_characters(prepared.source.text, self._direction.source_lang, self._direction.target_lang)
        return None if most is None else most + 2 * max(0, masks)

    def judge(self, record: Record) -> Answer:
        """Return the answer, or what is wrong with it."""
        source = record.prepared.source.text
        refused = _refusal(record)
        if refused is not None:
            return replace(refused, target=source, usage=record.usage)
        assert record.prepared.masked is not None
        text = outer_split(0, record.text).source
        if record.prepared.form.family is MaskFamily.TAGS:
            text = _without_envelope(text)
        answer = self._verified(record, text)
        if answer.error is None and not _CHATTER & {finding.code for finding in answer.findings}:
            return answer
        shorter = without_chatter(record.prepared.masked.text, text)
        if shorter == text:
            return answer
        mended = self._verified(record, shorter)
        return mended if mended.error is None else answer

    def _verified(self, record: Record, text: str) -> Answer:
        """Restore what was masked and check the result."""
        assert record.prepared.masked is not None
        source = record.prepared.source
        restored = restore(record.prepared.masked, text)
        if isinstance(restored, MaskFault):
            return _refused(source.text, record, [Finding("placeholder", Severity.ERROR, restored.message)])
        if not self._has_model:
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


def _refusal(record: Record) -> Answer | None:
    """Return what is wrong with the generation itself, whatever its text says."""
    nothing = TokenUsage()
    if record.is_unsure:
        return Answer("", nothing, not_covered(record.prepared.source.text))
    if record.is_looping:
        return Answer("", nothing, rejected("the answer repeats itself"), is_retryable=True, fault="loop")
    if record.is_overlong:
        error = rejected("the answer is much longer than its source")
        return Answer("", nothing, error, is_retryable=True, fault="ratio")
    if record.done is None or record.done.reason is FinishReason.CANCELLED:
        return Answer("", nothing, DecodeError("the engine stopped in the middle of an answer", hint="try again"))
    if record.done.reason is FinishReason.LENGTH:
        message = f"the answer was cut off after {record.usage.output_tokens} tokens"
        return Answer("", nothing, rejected(message), is_retryable=True, fault=CUT_OFF)
    if record.n_invalid:
        error = rejected("the answer is not valid UTF-8")
        return Answer("", nothing, error, is_retryable=True, fault="encoding")
    return None


def _refused(source: str, record: Record, findings: Sequence[Finding]) -> Answer:
    gravest = findings[0]
    return Answer(
        source,
        record.usage,
        rejected(gravest.message),
        findings=tuple(findings),
        is_retryable=True,
        fault=gravest.code,
    )


def _without_envelope(text: str) -> str:
    """Return the answer inside the `<target>` tags that the format template asks for."""
    match = _ENVELOPE.fullmatch(text)
    return match[1].strip() if match else text


def _is_of_layout(finding: Finding) -> bool:
    """Tell whether a finding is about wrapped lines that a translation need not keep."""
    return finding.code == "lines" and finding.severity is not Severity.ERROR
