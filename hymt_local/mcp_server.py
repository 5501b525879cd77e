"""Tools for agents, by the Model Context Protocol: translate, detect, check, terms, languages.

Only this module imports `mcp`.

A tool that fails on purpose says what happened and what to do next; the agent reads both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from hymt_local import __version__
from hymt_local.checks import Pair, check_pair, check_terms, find_terms
from hymt_local.detect import Detection, LanguageDetector
from hymt_local.errors import EmptyInputError, ErrorReport, HymtError, UsageError
from hymt_local.events import Cancelled, Failed, Finished, ModelLoading, SegmentDone, Started, TranslationRequest
from hymt_local.jobs import Service
from hymt_local.language import Language, get_language, match_language
from hymt_local.segment import Finding, Severity

INSTRUCTIONS = (
    "Translates on this machine with Tencent's Hunyuan translation models; nothing leaves it. Languages may be given "
    "as BCP 47 tags (fr, zh-Hant), locales or names. Whole documents should be sent paragraph by paragraph."
)
MAX_CHARACTERS = 100_000
"""Of one text: hours of work for a large model on a small machine; more is a mistake of the agent."""
MAX_TERMS = 10_000
"""Each is looked for in the text."""

Text = Annotated[str, Field(description="The text; its line structure and outer whitespace are kept.")]
TargetLang = Annotated[str, Field(description="The language to translate into: a tag such as `fr` or a name.")]
SourceLang = Annotated[str | None, Field(description="The language of the text; detected when left out.")]
Glossary = Annotated[
    dict[str, list[str]],
    Field(description="Terms of the source language, each with the translations that are allowed."),
]
Names = Annotated[list[str] | None, Field(description="Names and terms that must stay exactly as they are.")]
ModelName = Annotated[str | None, Field(description="A model of `hymt models list`; the default when left out.")]


class UntranslatedSegment(BaseModel, frozen=True):
    """A part that stayed source text."""

    source: str
    reason: str


class Translation(BaseModel, frozen=True):
    """The answer of the tool `translate`."""

    text: str
    source_lang: str
    target_lang: str
    model: str
    untranslated: list[UntranslatedSegment]


class DetectedLanguage(BaseModel, frozen=True):
    """One candidate of the tool `detect`."""

    tag: str
    name: str
    confidence: float


class CheckFinding(BaseModel, frozen=True):
    """What is wrong with a translation."""

    code: str
    severity: str
    message: str
    remedy: str


class CheckResult(BaseModel, frozen=True):
    """The answer of the tool `check`."""

    is_sound: bool
    """No finding is an error; warnings are worth a look."""
    findings: list[CheckFinding]


class FoundTerm(BaseModel, frozen=True):
    """A term of the glossary where it occurs in a text."""

    term: str
    start: int
    end: int
    """Code points."""
    translations: list[str]


class TermsResult(BaseModel, frozen=True):
    """The answer of the tool `terms`."""

    found: list[FoundTerm]
    findings: list[CheckFinding]
    """Terms whose translations the target lacks; empty when there is no target."""


class KnownLanguage(BaseModel, frozen=True):
    """One entry of the tool `languages`."""

    tag: str
    english: str
    chinese: str
    native: str


class TranslationTools:
    """What the tools do. Belongs to one asyncio loop.

    Args:
        service: Runs the translations; the caller closes it.
        languages: Tags of the default model.
        model: The default model; None leaves it to the service.
    """

    def __init__(self, service: Service, *, languages: Sequence[str], model: str | None = None) -> None:
        self._service = service
        self._model = model
        self._languages = tuple(languages)
        self._detector = LanguageDetector()

    async def translate(
        self,
        text: Text,
        target_lang: TargetLang,
        ctx: Context,
        source_lang: SourceLang = None,
        model: ModelName = None,
        protect: Names = None,
    ) -> Translation:
        """Translate a text on this machine. Parts that could not be translated are listed and keep their source."""
        with _told_to_the_agent():
            request = TranslationRequest(
                text=_checked(text),
                target_lang=match_language(target_lang),
                source_lang=match_language(source_lang) if source_lang else None,
                model=model or self._model,
                protect=_checked_names(protect or ()),
            )
        return await self._run(request, ctx)

    async def detect(self, text: Text) -> list[DetectedLanguage]:
        """Say which of the models' languages a text is in, likeliest first; empty when it has no words."""
        with _told_to_the_agent():
            found = await asyncio.to_thread(self._detector.candidates, _checked(text))
        return [_detected(each) for each in found]

    async def check(
        self,
        source: Annotated[str, Field(description="The original text.")],
        target: Annotated[str, Field(description="Its translation, from whomever.")],
        target_lang: TargetLang,
        source_lang: SourceLang = None,
    ) -> CheckResult:
        """Look for what no correct translation has: lost placeholders or tags, other scripts, loops, emptiness."""
        with _told_to_the_agent():
            found = await asyncio.to_thread(
                self._findings,
                *(_checked(source), target),
                target_lang=match_language(target_lang),
                source_lang=match_language(source_lang) if source_lang else None,
            )
        is_sound = not any(finding.severity is Severity.ERROR for finding in found)
        return CheckResult(is_sound=is_sound, findings=[_finding(each) for each in found])

    async def terms(
        self,
        source: Annotated[str, Field(description="The original text.")],
        glossary: Glossary,
        source_lang: SourceLang = None,
        target: Annotated[str | None, Field(description="Its translation, to be checked against the glossary.")] = None,
        target_lang: Annotated[str | None, Field(description="The language of the translation.")] = None,
    ) -> TermsResult:
        """Find a glossary's terms in a text, and what a translation of it does not translate as the glossary says."""
        with _told_to_the_agent():
            return await asyncio.to_thread(
                self._terms,
                *(_checked(source), target, _checked_glossary(glossary)),
                source_lang=match_language(source_lang) if source_lang else None,
                target_lang=match_language(target_lang) if target_lang else None,
            )

    async def languages(self) -> list[KnownLanguage]:
        """List the languages of the default model; every one can be translated into every other."""
        known = [get_language(tag) for tag in self._languages]
        return [_known(each) for each in known]

    def _findings(self, source: str, target: str, *, target_lang: str, source_lang: str | None) -> Sequence[Finding]:
        source_lang = source_lang or self._tag(source)
        return check_pair(Pair(source, target, source_lang, target_lang, identify=self._detector.identify))

    def _terms(
        self,
        source: str,
        target: str | None,
        glossary: Mapping[str, Sequence[str]],
        *,
        source_lang: str | None,
        target_lang: str | None,
    ) -> TermsResult:
        source_lang, target_lang = source_lang or self._tag(source), target_lang or self._tag(target or "")
        matches = find_terms(source, list(glossary), lang=source_lang)
        found = [
            FoundTerm(
                term=match.term,
                start=match.span.start,
                end=match.span.end,
                translations=list(glossary[match.term]),
            )
            for match in matches
        ]
        pair = None if target is None else Pair(source, target, source_lang, target_lang)
        findings = [] if pair is None else [_finding(each) for each in check_terms(pair, glossary)]
        return TermsResult(found=found, findings=findings)

    def _tag(self, text: str) -> str | None:
        detected = self._detector.detect(text)
        return detected.tag if detected else None

    async def _run(self, request: TranslationRequest, ctx: Context) -> Translation:
        n_segments, n_settled = 1, 0
        with self._service.submit(request) as job:  # leaving it cancels: the agent has given up waiting
            async for event in job:
                match event:
                    case ModelLoading(model=name, fraction=fraction):
                        await ctx.report_progress(fraction, total=1.0, message=f"loading {name}")
                    case Started():
                        n_segments = event.n_segments
                    case SegmentDone():
                        n_settled += 1
                        await ctx.report_progress(1.0 + n_settled, total=1.0 + n_segments, message="translating")
                    case Finished():
                        return _translation(event)
                    case Failed(error=report):
                        raise _tool_error(report)
                    case Cancelled():
                        raise ToolError("the translation was cancelled")
        raise ToolError("the translation ended without an answer")


def build_server(service: Service, *, languages: Sequence[str], model: str | None = None) -> MCPServer:
    """Return the server with its tools; the caller runs it."""
    tools = TranslationTools(service, languages=languages, model=model)
    server = MCPServer(name="hymt-local", title="hymt-local", instructions=INSTRUCTIONS, version=__version__)
    harmless = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    for tool in (tools.translate, tools.detect, tools.check, tools.terms, tools.languages):
        server.add_tool(tool, annotations=harmless)
    return server


@contextmanager
def _told_to_the_agent() -> Iterator[None]:
    """Turn our errors into the protocol's own, which carry their message to the agent."""
    try:
        yield
    except HymtError as error:
        raise _tool_error(error.report()) from error


def _tool_error(report: ErrorReport) -> ToolError:
    return ToolError(report.text)


def _checked(text: str) -> str:
    if not text.strip():
        raise EmptyInputError("the text is empty", hint="send the text itself")
    if len(text) > MAX_CHARACTERS:
        raise UsageError(
            f"the text has {len(text)} characters, more than {MAX_CHARACTERS}", hint="send it in several parts"
        )
    return text


def _checked_names(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) > MAX_TERMS:
        raise UsageError(f"{len(names)} names, more than {MAX_TERMS}", hint="send those that the text has")
    return tuple(names)


def _checked_glossary(glossary: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    if not any(term.strip() for term in glossary):
        raise EmptyInputError("the glossary has no terms", hint='send it as {"term": ["translation"]}')
    if len(glossary) > MAX_TERMS:
        raise UsageError(f"{len(glossary)} terms, more than {MAX_TERMS}", hint="send those that the text has")
    return glossary


def _detected(found: Detection) -> DetectedLanguage:
    return DetectedLanguage(tag=found.tag, name=get_language(found.tag).english, confidence=round(found.confidence, 4))


def _finding(found: Finding) -> CheckFinding:
    return CheckFinding(code=found.code, severity=found.severity.value, message=found.message, remedy=found.remedy)


def _known(language: Language) -> KnownLanguage:
    return KnownLanguage(tag=language.tag, english=language.english, chinese=language.chinese, native=language.native)


def _translation(last: Finished) -> Translation:
    untranslated = [
        UntranslatedSegment(source=done.source, reason=done.error.message) for done in last.failed if done.error
    ]
    return Translation(
        text=last.text,
        source_lang=last.source_lang,
        target_lang=last.target_lang,
        model=last.model,
        untranslated=untranslated,
    )
