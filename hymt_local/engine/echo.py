"""Engines without a model: `echo` gives the text back, `pseudo` gives it back in disguise.

Both serve people who test documents and user interfaces, and the tests of everything above the engine. Token ids are
the bytes of the text's UTF-8 form; there are no control tokens and no stop tokens.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator

from hymt_local.engine.base import (
    BackendOpener,
    FinishReason,
    GenerationDone,
    GenerationEvent,
    GenerationRequest,
    ModelInfo,
    PromptRead,
    TokensGenerated,
)
from hymt_local.engine.context import check_fits
from hymt_local.engine.one_by_one import OneByOneBackend
from hymt_local.engine.utf8 import encode_text
from hymt_local.events import TokenUsage

CONTEXT_LENGTH = 1 << 20
BEHAVIOUR_VERSION = "1"
"""Part of the fingerprint: answers of another behaviour must not come out of the phrase cache."""
SLOTS = 16
_WORD = re.compile(rb"[ \t\r\n]*[^ \t\r\n]*")
_MOST_PIECES = 512

_KEPT = re.compile(
    r"""
    (?: [A-Za-z][A-Za-z0-9+.-]{0,30}://\S+ )     # URL; bounded, or a long word takes quadratic time
    | (?: [\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+ )    # mail address
    | (?: </?[A-Za-z][^<>]*> )                   # tag
    | (?: &(?:\#\w+|\w+); )                      # entity
    | (?: \$?\{\{?[^{}]*\}\}? )                  # {name}, {{name}}, ${name}
    | (?: %(?:\([^()]*\)|\d+\$)?[-+#0]*+[\d.*]*+[hlLqjzt]*[A-Za-z@] )   # %s, %(name)d, %1$s
    """,
    re.VERBOSE,
)
_ACCENTED = str.maketrans(
    {
        **dict(zip("BCDFGHJKLMNPQRSTVWXZ", "ßÇÐƑĜĤĴĶĻṀŃÞǪŔŠŢṼŴẊŽ", strict=True)),
        **dict(zip("bcdfghjklmnpqrstvwxz", "ƀçðƒĝĥĵķļɱñþɋŕšţṽŵẋž", strict=True)),
        **dict(zip("AEIOUY", ("ÅÅ", "ÉÉ", "ÎÎ", "ÖÖ", "ÛÛ", "Ý"), strict=True)),
        **dict(zip("aeiouy", ("åå", "éé", "îî", "öö", "ûû", "ý"), strict=True)),
    }
)


def pseudo_localize(text: str) -> str:
    """Return `text` readable but foreign: letters accented, vowels doubled, the whole in ⟦ ⟧.

    Accents show encoding faults, the extra length (about a third) shows tight layouts, the brackets show cut or
    concatenated strings. Placeholders, tags, entities, URLs and mail addresses stay as they are.
    """
    parts: list[str] = []
    position = 0
    for kept in _KEPT.finditer(text):
        parts += (text[position : kept.start()].translate(_ACCENTED), kept.group())
        position = kept.end()
    parts.append(text[position:].translate(_ACCENTED))
    return f"⟦{''.join(parts)}⟧"


def _identity(text: str) -> str:
    return text


class EchoBackend(OneByOneBackend):
    """Answers every prompt with `transform(prompt)`.

    Args:
        transform: From the prompt's text to the answer; it runs on the engine thread.
        name: What `info.name` says.
    """

    def __init__(self, transform: Callable[[str], str] = _identity, name: str = "echo") -> None:
        super().__init__(SLOTS)
        self._transform = transform
        self._info = ModelInfo(
            name=name,
            architecture="echo",
            vocab_size=256,
            context_length=CONTEXT_LENGTH,
            quantization="none",
            file_sha256=hashlib.sha256(f"{name} {BEHAVIOUR_VERSION}".encode()).hexdigest(),
            slots=SLOTS,
        )

    @property
    def info(self) -> ModelInfo:
        """Facts about this engine; `file_sha256` is a digest of its name and of the version of its behaviour."""
        return self._info

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the bytes of `text`; lone surrogates become U+FFFD."""
        return tuple(encode_text(text))

    def open(self, request: GenerationRequest) -> int:
        """Start a generation."""
        check_fits(request, context_length=self._info.context_length)
        return super().open(request)

    def play(self, request: GenerationRequest) -> Iterator[GenerationEvent]:
        """Yield the transformed prompt word by word."""
        started = time.perf_counter()
        answer = self._transform(bytes(request.prompt).decode("utf-8", errors="replace")).encode()
        yield PromptRead(done=len(request.prompt), total=len(request.prompt))
        n_sent = 0
        for piece in _pieces(answer[: request.max_tokens]):
            n_sent += len(piece)
            yield TokensGenerated(tuple(piece), piece, (1.0,) * len(piece) if request.probabilities else ())
        elapsed_s = time.perf_counter() - started
        usage = TokenUsage(prompt_tokens=len(request.prompt), output_tokens=n_sent, decode_s=elapsed_s)
        yield GenerationDone(FinishReason.LENGTH if len(answer) > request.max_tokens else FinishReason.STOP, usage)


def _pieces(answer: bytes) -> Iterator[bytes]:
    """Yield an answer word by word, a long one in larger steps: an event per word of a megabyte would take seconds."""
    words = [word for word in _WORD.findall(answer) if word]
    step = 1 + len(words) // _MOST_PIECES
    for start in range(0, len(words), step):
        yield b"".join(words[start : start + step])


def open_echo() -> BackendOpener:
    """Return the opener of `echo`: the answer is the prompt."""
    return lambda on_progress: EchoBackend()


def open_pseudo() -> BackendOpener:
    """Return the opener of `pseudo`: the answer is the prompt, pseudo-localized."""
    return lambda on_progress: EchoBackend(pseudo_localize, "pseudo")
