"""The vocabulary of a loaded model: text to ids, ids to bytes, and which ids end a generation."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from hymt_local.engine.gguf_file import GgufHeader, read_array
from hymt_local.engine.text_runs import split_runs
from hymt_local.engine.utf8 import encode_text
from hymt_local.errors import EngineError

END_TOKENS = ("<|eos|>", "<｜hy_place▁holder▁no▁2｜>", "<eos:6124c78e>")
"""The turn ends of this family, for files whose EOS is wrong: some published ones name token 3, which is `$`."""
END_OF_TEXT = "<|endoftext|>"

_CONTROL_TYPE = 3
_PIECE_BYTES = 64


class Vocabulary:
    """Ids and texts of one model. Runs on the engine thread, while the model lives.

    Args:
        api: The module `llama_cpp.llama_cpp`.
        model: The llama model.
        header: The header of its file.
    """

    def __init__(self, api: Any, model: Any, *, header: GgufHeader) -> None:
        self._api = api
        self._vocab = api.llama_model_get_vocab(model)
        self._has_regex_splits = header.metadata.get("tokenizer.ggml.model") == "gpt2"
        self._pieces: dict[int, bytes] = {}
        self.n_tokens = int(api.llama_vocab_n_tokens(self._vocab))
        self.control_tokens: Mapping[str, int] = {
            api.llama_vocab_get_text(self._vocab, token).decode("utf-8", errors="replace"): token
            for token, kind in enumerate(read_array(header, "tokenizer.ggml.token_type"))
            if kind == _CONTROL_TYPE
        }
        eos, eot = api.llama_vocab_eos(self._vocab), api.llama_vocab_eot(self._vocab)
        self.stop_ids = stop_ids(self.control_tokens, eos=eos, eot=eot)

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Return the ids of plain text; the text of a control token stays text."""
        pieces = split_runs(text) if self._has_regex_splits else [text]
        return tuple(token for piece in pieces for token in self._tokenize(encode_text(piece)))

    def piece(self, token: int) -> bytes:
        """Return the bytes a token stands for; none for a control token."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._read_piece(token, _PIECE_BYTES)
        return piece

    def _tokenize(self, data: bytes) -> list[int]:
        room = len(data) + 2  # a token is a byte or more, but for the space that SentencePiece puts in front
        ids = (ctypes.c_int32 * room)()
        n_ids = self._api.llama_tokenize(self._vocab, data, len(data), ids, room, False, False)
        if n_ids < 0:
            raise EngineError(f"llama.cpp cannot tokenize a text of {len(data)} bytes (code {n_ids})")
        return ids[:n_ids]

    def _read_piece(self, token: int, n_bytes: int) -> bytes:
        buffer = ctypes.create_string_buffer(n_bytes)
        length = self._api.llama_token_to_piece(self._vocab, token, buffer, n_bytes, 0, False)
        return buffer.raw[:length] if length >= 0 else self._read_piece(token, -length)


def stop_ids(control_tokens: Mapping[str, int], *, eos: int, eot: int) -> frozenset[int]:
    """Return the ids that end a generation: EOS and EOT of the file where they are control tokens.

    A file whose EOS is no control token is wrong about it; then the family's turn ends that it has count instead.
    """
    control_ids = frozenset(control_tokens.values())
    ids = control_ids & {eos, eot}
    if eos not in control_ids:
        ids |= {control_tokens[text] for text in END_TOKENS if text in control_tokens}
    if END_OF_TEXT in control_tokens:
        ids |= {control_tokens[END_OF_TEXT]}
    return ids
