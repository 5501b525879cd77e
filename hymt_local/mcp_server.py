"""Tools for agents, by the Model Context Protocol: translate, detect, check, languages. Only this module imports `mcp`.

A tool that fails on purpose says what happened and what to do next; the agent reads both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from hymt_local import __version__
from hymt_local.checks import Pair, check_pair
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

Text = Annotated[str, Field(description="The text; its line structure and outer whitespace are kept.")]
TargetLang = Annotated[str, Field(description="The language to translate into: a tag such as `fr` or a name.")]
SourceLang = Annotated[str | None, Field(description="The language of the text; detected when left out.")]
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
    ) -> Translation:
        """Translate a text on this machine. Parts that could not be translated are listed and keep their source."""
        with _told_to_the_agent():
            request = TranslationRequest(
                text=_checked(text),
                target_lang=match_language(target_lang),
                source_lang=match_language(source_lang) if source_lang else None,
                model=model or self._model,
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

    async def languages(self) -> list[KnownLanguage]:
        """List the languages of the default model; every one can be translated into every other."""
        known = [get_language(tag) for tag in self._languages]
        return [_known(each) for each in known]

    def _findings(self, source: str, target: str, *, target_lang: str, source_lang: str | None) -> Sequence[Finding]:
        if source_lang is None and (detected := self._detector.detect(source)):
            source_lang = detected.tag
        return check_pair(Pair(source, target, source_lang, target_lang, identify=self._detector.identify))

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
    for tool in (tools.translate, tools.detect, tools.check, tools.languages):
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
