"""Requests as the translator makes them, for the embedded demo model: every language, some sixteen phrases each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hymt_local.catalog import load_catalog
from hymt_local.engine.base import Backend, GenerationRequest
from hymt_local.events import Priority, SamplingParams
from hymt_local.prompts import build_prompt

PHRASES = (
    "Good morning", "Thank you", "Where is the train station?", "How much does it cost?", "I need help",
    "The bill, please", "Good night", "See you tomorrow", "Monday", "red", "two coffees please",
    "I do not understand", "What time is it?", "water", "Germany", "seven",
)  # fmt: skip
MOST_TOKENS = 40
PLAIN = SamplingParams(repetition_penalty=1.0)


def demo_requests(
    backend: Backend, *, languages: Sequence[str] | None = None, phrases: Sequence[str] = PHRASES
) -> Iterator[GenerationRequest]:
    """Yield one request a phrase and language, without a penalty, so that logits alone decide."""
    spec = load_catalog().get("demo")
    info = backend.info
    stop_ids = frozenset(info.control_tokens[text] for text in spec.stop_tokens if text in info.control_tokens)
    for target in languages or [code for code in spec.languages if code != "en"]:
        for phrase in phrases:
            prompt = build_prompt(spec, source_lang="en", target_lang=target, source=phrase)
            ids = prompt.assemble(info.control_tokens, [backend.tokenize(text) for text in prompt.texts])
            yield GenerationRequest(ids, MOST_TOKENS, PLAIN, stop_ids=stop_ids, priority=Priority.DOCUMENT)
