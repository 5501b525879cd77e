"""Faults in the header of a model file, each with the change that would repair it.

Published files have them: a conversion that took its ids from config.json ends every text at a dollar sign. What the
header should say comes from the catalog, and else from the file's own vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hymt_convert.chat_templates import CHAT_TEMPLATES, prompt_tokens, template_fault
from hymt_convert.vocabulary import TokenType
from hymt_local.catalog import Catalog, ModelSpec
from hymt_local.engine.gguf_file import GgufHeader, read_array
from hymt_local.engine.llama_vocabulary import END_TOKENS

HeaderValue = str | int | bool | float
EOS, BOS, EOT, PAD = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "bos", "eot", "padding"))
SEPARATORS = ("tokenizer.ggml.seperator_token_id", "tokenizer.ggml.separator_token_id")
"""The first is the specification's spelling."""
TEMPLATE = "tokenizer.chat_template"
PRE_TOKENIZER = "tokenizer.ggml.pre"
_ADDING = tuple(f"tokenizer.ggml.add_{name}_token" for name in ("bos", "eos", "sep"))
_BEGIN_TOKENS = ("<|startoftext|>", "<｜hy_begin▁of▁sentence｜>")
_PAD_TOKENS = ("<|pad|>", "<｜hy_▁pad▁｜>")
_ROPE_THETA = 10000.0
"""Of every model of the family whose base is scaled."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a header."""

    code: str
    """`eos`, `bos`, `eot`, `padding`, `separator`, `add_token`, `pre_tokenizer`, `control_ids`, `chat_template` or
    `rope`."""
    message: str
    """One line."""
    is_grave: bool = True
    """False: this program is not affected, and others hardly."""
    changes: Mapping[str, HeaderValue | None] = field(default_factory=dict)
    """Header keys to set, or to remove where None; empty when the header alone cannot be repaired."""


@dataclass(frozen=True, slots=True)
class _View:
    """A header with its vocabulary read."""

    header: GgufHeader
    spec: ModelSpec | None
    tokens: list[str]
    types: list[int]
    control_ids: Mapping[str, int]

    def id_at(self, key: str) -> int | None:
        """Return the id that a key holds, None when it is absent; -1 when it is nothing of the vocabulary."""
        value = self.header.metadata.get(key)
        if value is None:
            return None
        return value if isinstance(value, int) and 0 <= value < len(self.tokens) else -1

    def is_control(self, token: int) -> bool:
        """Tell whether an id is a control token."""
        return 0 <= token < len(self.types) and self.types[token] == TokenType.CONTROL

    def described(self, token: int) -> str:
        """Return an id with its text."""
        return f"{token} ({self.tokens[token]})" if 0 <= token < len(self.tokens) else "outside of the vocabulary"

    def first(self, texts: Iterable[str]) -> int | None:
        """Return the id of the first of these control tokens that there is."""
        return next((self.control_ids[text] for text in texts if text in self.control_ids), None)


def identify(header: GgufHeader, catalog: Catalog) -> ModelSpec | None:
    """Return the model of the catalog that a file's names tell, None when they tell none or several."""
    names = (str(header.metadata.get("general.name", "")), header.path.name)
    named = [
        spec
        for spec in catalog.models
        if spec.architecture == header.architecture
        and any(re.search(pattern, name, re.IGNORECASE) for pattern in spec.name_patterns for name in names)
    ]
    return named[0] if len(named) == 1 else None


def find_faults(header: GgufHeader, spec: ModelSpec | None) -> tuple[Fault, ...]:
    """Return what is wrong with a header, gravest first.

    Args:
        header: Of a file that `check_supported` lets through.
        spec: The model; None when the catalog does not know it.
    """
    view = _view(header, spec)
    checks: tuple[Callable[[_View], Iterator[Fault]], ...] = (
        _end_faults, _begin_faults, _separator_faults, _vocabulary_faults, _rope_faults,
        _padding_faults, _adding_faults, _template_faults,
    )  # fmt: skip
    faults = [fault for check in checks for fault in check(view)]
    return tuple(sorted(faults, key=lambda fault: not fault.is_grave))


def _view(header: GgufHeader, spec: ModelSpec | None) -> _View:
    tokens = [str(token) for token in read_array(header, "tokenizer.ggml.tokens")]
    types = [kind if isinstance(kind, int) else 0 for kind in read_array(header, "tokenizer.ggml.token_type")]
    controls = {tokens[i]: i for i, kind in enumerate(types) if kind == TokenType.CONTROL}
    return _View(header, spec, tokens, types, controls)


def _end_faults(view: _View) -> Iterator[Fault]:
    expected = [text for text in (view.spec.stop_tokens if view.spec else END_TOKENS) if text in view.control_ids]
    right = view.first(expected)
    changes = {} if right is None else {EOS: right}
    eos, eot = view.id_at(EOS), view.id_at(EOT)
    if eos is None:
        yield Fault("eos", "no token ends a text", changes=changes)
    elif not view.is_control(eos):
        yield Fault("eos", f"texts end at token {view.described(eos)}, which is no control token", changes=changes)
    elif view.spec and right is not None and view.tokens[eos] not in expected:
        what = f"texts end at token {view.described(eos)}, those of {view.spec.id} at {view.described(right)}"
        yield Fault("eos", what, changes=changes)
    if eot is not None and not view.is_control(eot):
        what = f"turns end at token {view.described(eot)}, which is no control token"
        yield Fault("eot", what, changes={EOT: None})


def _begin_faults(view: _View) -> Iterator[Fault]:
    expected = prompt_tokens(view.spec)[:1] if view.spec else _BEGIN_TOKENS
    right, bos = view.first(expected), view.id_at(BOS)
    if bos is None:
        if right is not None:
            yield Fault("bos", "no token begins a text", is_grave=False, changes={BOS: right})
    elif not view.is_control(bos):
        what = f"texts begin with token {view.described(bos)}, which is no control token"
        yield Fault("bos", what, changes={BOS: right})
    elif view.spec and right is not None and bos != right:
        what = f"texts begin with token {view.described(bos)}, those of {view.spec.id} with {view.described(right)}"
        yield Fault("bos", what, changes={BOS: right})


def _separator_faults(view: _View) -> Iterator[Fault]:
    for key in SEPARATORS:
        if key in view.header.metadata:
            what = "a separator token is named, which some programs append to every prompt"
            yield Fault("separator", what, changes={key: None})


def _padding_faults(view: _View) -> Iterator[Fault]:
    padding = view.id_at(PAD)
    if padding is not None and not view.is_control(padding):
        what = f"the padding token is {view.described(padding)}, which is no control token"
        yield Fault("padding", what, is_grave=False, changes={PAD: view.first(_PAD_TOKENS)})


def _adding_faults(view: _View) -> Iterator[Fault]:
    for key in _ADDING:
        if view.header.metadata.get(key) is True:
            what = f"{key.rpartition('.')[2]} is set, which doubles a token that the prompts have already"
            yield Fault("add_token", what, is_grave=False, changes={key: None})


def _vocabulary_faults(view: _View) -> Iterator[Fault]:
    if view.spec is None:
        return
    wanted, found = view.spec.tokenizer, view.header.metadata.get(PRE_TOKENIZER)
    if wanted in ("hunyuan", "hunyuan-dense") and found != wanted:
        what = f"text is split as by {found!r}, the vocabulary of {view.spec.id} needs {wanted!r}"
        yield Fault("pre_tokenizer", what, changes={PRE_TOKENIZER: wanted})
    for text, token in view.spec.control_ids.items():
        if view.control_ids.get(text) != token:
            found_id = view.control_ids.get(text)
            where = "no control token" if found_id is None else f"token {found_id}"
            yield Fault("control_ids", f"{text} is {where}, in {view.spec.id} it is token {token}")
            return


def _rope_faults(view: _View) -> Iterator[Fault]:
    prefix = view.header.architecture
    alpha, base = (view.header.of_architecture(f"rope.{name}") for name in ("scaling.alpha", "freq_base"))
    dim = view.header.of_architecture("attention.key_length")
    if not (isinstance(alpha, float) and isinstance(base, float) and isinstance(dim, int) and alpha > 0 and dim > 2):
        return
    if abs(base / (_ROPE_THETA * alpha ** (dim / (dim - 2))) - 1) < 1e-3:
        what = f"the RoPE base {base:g} is scaled by alpha {alpha:g} already, and llama.cpp would scale it again"
        yield Fault("rope", what, changes={f"{prefix}.rope.scaling.alpha": None})


def _template_faults(view: _View) -> Iterator[Fault]:
    known = CHAT_TEMPLATES.get(view.spec.chat) if view.spec else None
    changes: dict[str, HeaderValue | None] = {} if known is None else {TEMPLATE: known}
    template = view.header.metadata.get(TEMPLATE)
    if not isinstance(template, str) or not template:
        if view.spec is not None:
            yield Fault("chat_template", "there is no chat template", is_grave=False, changes=changes)
        return
    what = template_fault(template, view.spec)
    if what is not None:
        yield Fault("chat_template", what, is_grave=False, changes=changes)
