"""Checks of a target against its source: deterministic, cheap, and quiet on correct translations.

An error means that the target must not be used, a warning that somebody should look. The thresholds come from 75,886
professional translations of news into 38 languages. To add a check, write a function from a `Pair` to findings in the
file of its family, and name it in `_CHECKS`.
"""

from __future__ import annotations

from hymt_local.checks.characters import check_characters, check_garbage, tidied
from hymt_local.checks.chatter import (
    check_gloss,
    check_note,
    check_preamble,
    check_prompt,
    check_refusal,
    check_wrapping,
    without_chatter,
)
from hymt_local.checks.languages import check_copy, check_language, check_script
from hymt_local.checks.length import check_length, check_loop, most_characters, repeats_at_end
from hymt_local.checks.pair import Check, Identify, Pair
from hymt_local.checks.structure import (
    check_control_tokens,
    check_lines,
    check_placeholders,
    check_tags,
    check_whitespace,
)
from hymt_local.checks.terms import TermMatch, check_terms, find_terms
from hymt_local.checks.wording import check_brackets, check_doubled, check_numbers, check_question
from hymt_local.segment import Finding, Severity

__all__ = [
    "Identify",
    "Pair",
    "TermMatch",
    "check_output",
    "check_pair",
    "check_terms",
    "find_terms",
    "most_characters",
    "repeats_at_end",
    "tidied",
    "without_chatter",
]

_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}

_CHECKS: tuple[Check, ...] = (
    check_characters,
    check_control_tokens,
    check_prompt,
    check_refusal,
    check_preamble,
    check_note,
    check_lines,
    check_loop,
    check_garbage,
    check_script,
    check_language,
    check_copy,
    check_length,
    check_numbers,
    check_wrapping,
    check_gloss,
    check_question,
    check_doubled,
    check_brackets,
    check_whitespace,
)
_TOKEN_CHECKS: tuple[Check, ...] = (check_placeholders, check_tags)


def check_pair(pair: Pair, *, with_tokens: bool = True) -> tuple[Finding, ...]:
    """Return everything found, gravest first.

    Args:
        pair: An empty target has that one fault.
        with_tokens: False when placeholders and tags have been verified already.
    """
    if not pair.target.strip():
        is_same = not pair.source.strip()
        return () if is_same else (Finding("empty", Severity.ERROR, "the answer is empty"),)
    checks = (*_TOKEN_CHECKS, *_CHECKS) if with_tokens else _CHECKS
    found = [finding for check in checks for finding in check(pair)]
    return tuple(sorted(found, key=lambda finding: _RANK[finding.severity]))


def check_output(source: str, target: str, *, target_lang: str | None) -> Finding | None:
    """Return the gravest error of one output, or None.

    Args:
        source: What was translated.
        target: The answer, without outer whitespace.
        target_lang: A tag of the catalog; None leaves out what depends on the language.
    """
    found = check_pair(Pair(source, target, target_lang=target_lang))
    if not source.strip() and not target.strip():
        return Finding("empty", Severity.ERROR, "the answer is empty")
    return found[0] if found and found[0].severity is Severity.ERROR else None
