"""Text and bytes at the engine's edge: UTF-8 in that no engine can choke on, UTF-8 out that may arrive in pieces."""

from __future__ import annotations

import codecs

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def encode_text(text: str) -> bytes:
    """Return the UTF-8 form of `text`; surrogate pairs are joined, lone surrogates become U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", errors="surrogatepass").decode("utf-16-le", errors="replace").encode()


class Utf8Stream:
    """Decodes UTF-8 that arrives in pieces of any size: a character split over two pieces comes out once, whole.

    Law: for any split of `data`, the joined results equal `data.decode(errors="replace")`.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._n_invalid = 0

    @property
    def n_invalid(self) -> int:
        """Invalid sequences met so far; each one came out as U+FFFD."""
        return self._n_invalid

    def feed(self, data: bytes) -> str:
        """Return the text completed by `data`; an unfinished character is held back."""
        return self._decode(data, final=False)

    def finish(self) -> str:
        """End the stream: return U+FFFD for a character that was never completed, else the empty string."""
        return self._decode(b"", final=True)

    def _decode(self, data: bytes, *, final: bool) -> str:
        parts: list[str] = []
        while True:
            try:
                parts.append(self._decoder.decode(data, final))
            except UnicodeDecodeError as error:
                self._decoder.reset()
                self._n_invalid += 1
                parts += (error.object[: error.start].decode(), _REPLACEMENT)
                data = error.object[error.end :]
            else:
                return "".join(parts)
