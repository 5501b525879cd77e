"""What llama.cpp makes of a model file: whether it loads, tokenizes, predicts numbers and translates.

Call `probe_file` through `isolated.run_isolated`: a strange file can end the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hymt_convert.passages import end_ids
from hymt_convert.progress import OnProgress, Progress
from hymt_convert.reference_model import ReferenceModel
from hymt_local.catalog import ModelSpec
from hymt_local.engine.gguf_file import read_header
from hymt_local.engine.gguf_support import check_supported
from hymt_local.engine.text_runs import split_runs
from hymt_local.errors import ModelFileError
from hymt_local.prompts import build_prompt

SMOKE_TEXTS = (("en", "zh", "Good morning."), ("zh", "en", "谢谢。"), ("en", "fr", "Good morning."))
"""Source language, target language, text: what the demo model knows, too."""
_CONTEXT_TOKENS = 512
_MAX_LOGITS = 64
_ANSWER_TOKENS = 32
_LOADED, _READ = 1, 2
"""Passes over the weights before the first token of a translation: loading, and reading a text."""


@dataclass(frozen=True, slots=True)
class Translation:
    """One answer of the model."""

    source_lang: str
    target_lang: str
    source: str
    target: str
    is_ended: bool
    """Whether the model ended it by itself."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found."""

    token_ids: tuple[tuple[int, ...], ...]
    """Of the texts that were given."""
    changed_texts: tuple[tuple[str, str], ...]
    """Texts that do not come back from their tokens, and what comes back."""
    control_texts: tuple[str, ...]
    """Texts in whose tokens there is a control token."""
    translations: tuple[Translation, ...]


def probe_file(
    path: Path,
    spec: ModelSpec | None,
    texts: Sequence[str],
    *,
    threads: int | None = None,
    check_weights: bool = True,
    on_step: OnProgress | None = None,
) -> Probe:
    """Load a file and try it.

    Args:
        path: The file.
        spec: The model; without it nothing is translated, but a text is read.
        texts: To be tokenized; control-token text in them must stay text.
        threads: None for one per core.
        check_weights: Read all weights and look for those that are not numbers.
        on_step: Progress, in passes over the weights.

    Raises:
        ModelFileError: a weight or a prediction is not a number.
        UnsupportedModelError: the engine does not run such models, or the file is another model's.
        EngineError: llama.cpp cannot load or run it.
    """
    check_supported(read_header(path))

    def advance(n_passes: int) -> None:
        if on_step is not None:
            on_step(Progress(f"checking {path.name}", n_passes, _READ + _ANSWER_TOKENS, "passes"))

    advance(0)
    with ReferenceModel(
        path,
        context_length=_CONTEXT_TOKENS,
        max_logits=_MAX_LOGITS,
        threads=threads,
        sequences=len(SMOKE_TEXTS),
        check_weights=check_weights,
    ) as model:
        advance(_LOADED)
        ids = tuple(tuple(_tokenized(model, text)) for text in texts)
        controls = frozenset(model.control_tokens.values())
        pairs = [(text, model.text(tokens)) for text, tokens in zip(texts, ids, strict=True)]
        _check_numbers(model, ids)
        advance(_READ)
        return Probe(
            token_ids=ids,
            changed_texts=tuple((text, back) for text, back in pairs if back.strip(" ") != text.strip(" ")),
            control_texts=tuple(text for text, tokens in zip(texts, ids, strict=True) if controls & set(tokens)),
            translations=_translations(model, spec, lambda n_tokens: advance(_READ + n_tokens)) if spec else (),
        )


def _tokenized(model: ReferenceModel, text: str) -> list[int]:
    return [token for piece in split_runs(text) for token in model.tokenize(piece)]


def _check_numbers(model: ReferenceModel, ids: Sequence[Sequence[int]]) -> None:
    import numpy as np

    tokens = [token for text in ids for token in text][:_MAX_LOGITS] or [0]
    if not np.isfinite(model.logits(tokens)).all():
        raise ModelFileError(f"{model.name} predicts something that is not a number", hint="Its weights are damaged.")


def _translations(model: ReferenceModel, spec: ModelSpec, on_token: Callable[[int], None]) -> tuple[Translation, ...]:
    wanted = [text for text in SMOKE_TEXTS if {text[0], text[1]} <= set(spec.full_languages)]
    if not wanted:
        return ()
    answers = model.answers(
        [_prompt(model, spec, *text) for text in wanted],
        end_ids=end_ids(model, spec),
        max_tokens=_ANSWER_TOKENS,
        on_token=on_token,
    )
    return tuple(
        Translation(*text, model.text(answer), is_ended=len(answer) < _ANSWER_TOKENS)
        for text, answer in zip(wanted, answers, strict=True)
    )


def _prompt(model: ReferenceModel, spec: ModelSpec, source_lang: str, target_lang: str, source: str) -> tuple[int, ...]:
    prompt = build_prompt(spec, source_lang=source_lang, target_lang=target_lang, source=source)
    return prompt.assemble(model.control_tokens, [tuple(model.tokenize(text)) for text in prompt.texts])
