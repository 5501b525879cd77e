"""The rule every backend applies before it decodes anything: prompt and answer must fit the context."""

from __future__ import annotations

from hymt_local.engine.base import GenerationRequest
from hymt_local.errors import ContextOverflowError


def check_fits(request: GenerationRequest, *, context_length: int) -> None:
    """Raise ContextOverflowError unless the prompt and `max_tokens` more tokens fit `context_length`."""
    n_prompt = len(request.prompt)
    if n_prompt + request.max_tokens > context_length:
        raise ContextOverflowError(
            f"{n_prompt} prompt tokens and up to {request.max_tokens} answer tokens exceed the context of "
            f"{context_length} tokens",
            hint="split the text, or load the model with a larger context length",
        )
