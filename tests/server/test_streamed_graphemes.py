"""What readers of a stream see as one character never comes in two parts, however the engine's bytes fall."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hymt_local.engine.scripted import Echo
from hymt_local.segmenter import is_grapheme_boundary
from tests.server.serving import Served, serving
from tests.server.streams import streaming
from tests.services import scripted_service

GRAPHEMES = [
    "👩\u200d👩\u200d👧",
    "🇫🇷",
    "e\u0301",
    "क्षि",
    "\u1100\u1161\u11a8",
    "👍🏽",
    "น้ำ",
    "x\ufe0f",
    "a",
    "是",
    "שָׁ",
]
TEXTS = st.lists(st.sampled_from([*GRAPHEMES, "a b", "是。"]), min_size=1, max_size=12).map(
    lambda graphemes: "word " + "".join(graphemes)  # emoji alone are not translated
)


@pytest.fixture(scope="module")
def echoing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose engine gives the text back, four bytes at a time."""
    environ = {"HYMT_HOME": str(tmp_path_factory.mktemp("echo-home"))}
    with serving(scripted_service(Echo(), kind="test")[0], environ=environ) as running:
        yield running


def assert_whole(pieces: Sequence[str], text: str) -> None:
    assert "".join(pieces) == text
    place = 0
    for piece in pieces:
        place += len(piece)
        assert is_grapheme_boundary(text, place), (piece, text)


@settings(max_examples=30)
@given(TEXTS)
def test_no_native_event_ends_inside_a_grapheme(echoing: Served, text: str) -> None:
    body = {"text": text, "target_lang": "fr", "source_lang": "en", "use_cache": False}
    with streaming(echoing, "/v1/translate", body) as stream:
        assert_whole([told.data["text"] for told in stream if told.name == "token"], text)


@settings(max_examples=30)
@given(TEXTS)
def test_no_chunk_of_a_chat_ends_inside_a_grapheme(echoing: Served, text: str) -> None:
    chat = [{"role": "user", "content": text}]
    body = {"model": "x", "messages": chat, "target_lang": "fr", "stream": True}
    answer = echoing.ask("POST", "/v1/chat/completions", body)
    lines = [line.removeprefix("data: ") for line in answer.body.decode().splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"].get("content", "") for line in lines for choice in json.loads(line)["choices"]]
    assert_whole(deltas, text)
