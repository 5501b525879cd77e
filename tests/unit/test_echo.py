import pytest

from hymt_local.engine.base import FinishReason, GenerationDone, GenerationRequest, TokensGenerated
from hymt_local.engine.echo import CONTEXT_LENGTH, EchoBackend, open_echo, open_pseudo, pseudo_localize
from hymt_local.errors import ContextOverflowError


def answer(backend: EchoBackend, text: str, *, max_tokens: int = 1000) -> tuple[str, GenerationDone]:
    request = GenerationRequest(backend.tokenize(text), max_tokens=max_tokens)
    *events, done = backend.generate(request, lambda: False)
    assert isinstance(done, GenerationDone)
    data = b"".join(event.data for event in events if isinstance(event, TokensGenerated))
    return data.decode(), done


@pytest.mark.parametrize("text", ["", "Good morning", " two  spaces\n", "你好，世界", "a\0b", "👩‍👩‍👧"])
def test_echo_answers_with_its_prompt(text: str) -> None:
    echoed, done = answer(EchoBackend(), text)
    assert echoed == text
    assert (done.reason, done.usage.output_tokens) == (FinishReason.STOP, len(text.encode()))


def test_a_prompt_longer_than_the_budget_ends_with_length() -> None:
    echoed, done = answer(EchoBackend(), "Good morning", max_tokens=4)
    assert (echoed, done.reason) == ("Good", FinishReason.LENGTH)


def test_a_cancelled_echo_stops_at_the_next_word() -> None:
    backend = EchoBackend()
    request = GenerationRequest(backend.tokenize("one two three"), max_tokens=100)
    answers = iter([False, False, True])
    *events, done = backend.generate(request, lambda: next(answers))
    assert [event.data for event in events if isinstance(event, TokensGenerated)] == [b"one"]
    assert isinstance(done, GenerationDone)
    assert done.reason is FinishReason.CANCELLED


def test_a_prompt_beyond_the_context_is_refused_with_the_numbers() -> None:
    request = GenerationRequest(tuple(b"abc"), max_tokens=CONTEXT_LENGTH)
    with pytest.raises(ContextOverflowError, match=f"3 prompt tokens and up to {CONTEXT_LENGTH} "):
        list(EchoBackend().generate(request, lambda: False))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Open file", "⟦ÖÖþééñ ƒîîļéé⟧"),
        ("Hi {name}, 50%", "⟦Ĥîî {name}, 50%⟧"),
        ("%d of %(total)s and %1$s", "⟦%d ööƒ %(total)s ååñð %1$s⟧"),
        ("<b>bold</b> &amp; ${price}", "⟦<b>ƀööļð</b> &amp; ${price}⟧"),
        ("see https://example.org/a?b=c now", "⟦šéééé https://example.org/a?b=c ñööŵ⟧"),
        ("你好", "⟦你好⟧"),
    ],
)
def test_pseudo_localization_accents_letters_and_keeps_placeholders(text: str, expected: str) -> None:
    assert pseudo_localize(text) == expected


def test_the_openers_differ_in_name_and_digest() -> None:
    echo, pseudo = (opener(lambda fraction: True).info for opener in (open_echo(), open_pseudo()))
    assert (echo.name, pseudo.name) == ("echo", "pseudo")
    assert echo.file_sha256 != pseudo.file_sha256
