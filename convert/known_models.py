"""What the catalog knows of a checkpoint: which model it is, whose control tokens it must have, under which licence.

Nothing is guessed from a name alone: a checkpoint that is only called like a known model must also have its sizes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hymt_convert.architectures import MetadataValue, ModelPlan
from hymt_convert.chat_templates import CHAT_TEMPLATES, template_fault
from hymt_convert.vocabulary import ExpectedTokens, Vocabulary
from hymt_local.catalog import Catalog, ChatForm, ModelSpec, load_catalog
from hymt_local.errors import ModelFileError
from hymt_local.paths import Paths

PADDING_ROWS = 512
"""By so many rows at most may an embedding exceed the vocabulary, to be divisible by what its training wanted."""
_BEGIN: Mapping[ChatForm, str] = {
    "hunyuan": "<|startoftext|>",
    "hunyuan-dense": "<｜hy_begin▁of▁sentence｜>",
    "hunyuan-v3": "<｜hy_begin▁of▁sentence｜>",
}
_PADDING: Mapping[ChatForm, str] = {
    "hunyuan": "<|pad|>",
    "hunyuan-dense": "<｜hy_▁pad▁｜>",
    "hunyuan-v3": "<｜hy_▁pad▁｜>",
}
_QUANTIZED = re.compile(r"(?i)[-_.](fp8|gptq|awq|int4|int8|w\da\d+)")


@dataclass(frozen=True, slots=True)
class Identity:
    """The model of the catalog that a checkpoint is, if it is one."""

    spec: ModelSpec | None
    warnings: tuple[str, ...] = ()


def identify(
    catalog: Catalog, model: ModelPlan, *, as_id: str | None, source_id: str | None, names: Sequence[str]
) -> Identity:
    """Find out which model of the catalog a checkpoint is.

    Args:
        catalog: Where to look.
        model: The understood checkpoint.
        as_id: The model it must be; `none` when it is none of them, whatever it is called.
        source_id: The repository it comes from, which settles the matter too.
        names: Further names, such as the folder's; they only count together with the sizes.

    Raises:
        ModelNotFoundError: there is no model `as_id`.
        ModelFileError: the checkpoint is not the model that it must be.
    """
    if as_id is not None and as_id.lower() == "none":
        return Identity(None)
    spec = catalog.get(as_id) if as_id else next(iter(_of_repository(catalog, source_id)), None)
    if spec is not None:
        difference = _difference(spec, model)
        if difference:
            raise ModelFileError(
                f"the checkpoint is not {spec.id}: {difference}",
                hint="Name the right model with --as, or none.",
            )
        return Identity(spec)
    spec = find_by_name(catalog, names)
    if spec is None:
        return Identity(None)
    difference = _difference(spec, model)
    if difference:
        return Identity(None, (f"it is called like {spec.id}, but is another model: {difference}",))
    return Identity(spec)


def user_catalog() -> Catalog:
    """Return the packaged catalog with the user's models laid over it.

    Raises:
        ConfigError: the user's file breaks a rule.
    """
    paths = Paths.from_environment(os.environ)
    return load_catalog(paths.catalog_file)


def find_by_name(catalog: Catalog, names: Sequence[str]) -> ModelSpec | None:
    """Return the model that the first telling name belongs to; None when none tells."""
    for name in names:
        found = _of_repository(catalog, name) or [
            spec
            for spec in catalog.models
            if any(re.search(pattern, name, re.IGNORECASE) for pattern in spec.name_patterns)
        ]
        if len(found) == 1:
            return found[0]
    return None


def plain_checkpoint_id(catalog: Catalog, names: Sequence[str]) -> str | None:
    """Return the repository of the unquantized weights of a quantized checkpoint with these names."""
    spec = find_by_name(catalog, names)
    return spec.repo if spec is not None else None


def names_quantized_weights(source_id: str) -> bool:
    """Tell whether a repository's name says that its weights are quantized."""
    return _QUANTIZED.search(source_id) is not None


def expected_tokens(spec: ModelSpec) -> ExpectedTokens:
    """Return what the catalog says of a model's control tokens."""
    texts = {"bos": (_BEGIN.get(spec.chat),), "padding": (_PADDING.get(spec.chat),), "eos": spec.stop_tokens}
    known = {name: tuple(text for text in choices if text) for name, choices in texts.items()}
    return ExpectedTokens(spec.id, {name: choices for name, choices in known.items() if choices}, spec.control_ids)


def with_chat_template(vocabulary: Vocabulary, spec: ModelSpec | None) -> Vocabulary:
    """Return the vocabulary with a template that fits its model, and with a warning where that is not its own.

    This program renders none: it builds prompts from ids. llama.cpp's choice without one is wrong for the family.
    """
    own, ours = vocabulary.chat_template, CHAT_TEMPLATES.get(spec.chat) if spec is not None else None
    fault = template_fault(own, spec) if own is not None else "the checkpoint has no chat template"
    if fault is None:
        return vocabulary
    remedy = f"that of {spec.id} is written" if spec is not None and ours is not None else "other programs may fail"
    warnings = (*vocabulary.warnings, f"{fault}: {remedy}")
    return replace(vocabulary, chat_template=ours or own, warnings=warnings)


def licence_metadata(spec: ModelSpec) -> dict[str, MetadataValue]:
    """Return the header keys for the licence of a model's weights."""
    licence = spec.licence
    values: dict[str, MetadataValue] = {
        "general.license": licence.id,
        "general.license.name": licence.title,
        "general.license.link": licence.url,
        "general.license.note": licence.note,
        "general.license.territory_excluded": licence.territory_excluded,
    }
    return {key: value for key, value in values.items() if value}


def _of_repository(catalog: Catalog, source_id: str | None) -> list[ModelSpec]:
    if not source_id:
        return []
    return [spec for spec in catalog.models if spec.repo is not None and spec.repo.lower() == source_id.lower()]


def _difference(spec: ModelSpec, model: ModelPlan) -> str | None:
    """Say what of a checkpoint is not as the catalog has it."""
    if spec.architecture != model.architecture:
        return f"its architecture is {model.architecture}, not {spec.architecture}"
    if spec.geometry is None:
        return None
    expected = {
        "block_count": spec.geometry.layers,
        "embedding_length": spec.geometry.hidden,
        "attention.head_count_kv": spec.geometry.kv_heads,
        "attention.key_length": spec.geometry.head_dim,
    }
    for key, value in expected.items():
        found = model.metadata.get(f"{model.architecture}.{key}")
        if found != value:
            return f"its {key} is {found}, not {value}"
    if not 0 <= model.vocab_size - spec.geometry.vocab <= PADDING_ROWS:
        return f"its vocabulary has {model.vocab_size} tokens, not {spec.geometry.vocab}"
    return None
