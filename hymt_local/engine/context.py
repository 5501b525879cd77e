"""The rules every backend applies before it decodes: prompt and answer must fit the context, and a slot be free."""

from __future__ import annotations

from hymt_local.engine.base import GenerationRequest
from hymt_local.errors import ContextOverflowError
from hymt_local.events import Priority


def check_fits(request: GenerationRequest, *, context_length: int) -> None:
    """Raise ContextOverflowError unless the prompt and `max_tokens` more tokens fit `context_length`."""
    n_prompt = len(request.prompt)
    if n_prompt + request.max_tokens > context_length:
        raise ContextOverflowError(
            f"{n_prompt} prompt tokens and up to {request.max_tokens} answer tokens exceed the context of "
            f"{context_length} tokens",
            hint="split the text, or load the model with a larger context length",
        )


def has_slot(priority: Priority, *, n_open: int, slots: int) -> bool:
    """Return whether one more generation may join: beside several slots one is kept for interactive work."""
    is_reserved = slots > 1 and priority is Priority.INTERACTIVE
    return n_open < slots + is_reserved
