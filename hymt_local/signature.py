"""The signature: all that shaped a translation apart from its source text; cache key and provenance."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from hymt_local.events import SamplingParams

POSTPROCESSING_VERSION = 3
"""Raised whenever splitting, checking or restoring changes in a way that can change a translation."""

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Signature:
    """What shaped an output: two translations of one source with equal signatures are the same text."""

    fingerprint: str
    """sha256 of the model file; for engines without a file, a digest of their name and version."""
    quantization: str
    template: str
    """`prompts.template_signature` of the prompt template in use."""
    sampling: SamplingParams
    source_lang: str
    target_lang: str
    postprocessing: int = POSTPROCESSING_VERSION

    def digest(self) -> str:
        """Return 32 hex digits (BLAKE2b-128) over all fields."""
        fields = [
            self.fingerprint,
            self.quantization,
            self.template,
            _sampling_words(self.sampling),
            self.source_lang,
            self.target_lang,
            self.postprocessing,
        ]
        return hashlib.blake2b(json.dumps(fields).encode(), digest_size=_DIGEST_BYTES).hexdigest()

    def __str__(self) -> str:
        """Return one readable line: words separated by single spaces, the file's sha256 cut to 12 digits."""
        return (
            f"{self.source_lang}>{self.target_lang} file={self.fingerprint[:12]} quantization={self.quantization} "
            f"template={self.template} sampling={_sampling_words(self.sampling)} post={self.postprocessing}"
        )


def shaped_digest(digest: str, shape: object) -> str:
    """Return the digest of a translation that something beside signature and source text has shaped.

    Args:
        digest: Of the signature.
        shape: JSON-like: protected spans, token groups, context.
    """
    return hashlib.blake2b(json.dumps([digest, shape]).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _sampling_words(sampling: SamplingParams) -> str:
    """Return only what has an effect: greedy decoding ignores top_k, top_p and the seed."""
    if sampling.temperature <= 0:
        return f"greedy,penalty={sampling.repetition_penalty}"
    return (
        f"temperature={sampling.temperature},top_k={sampling.top_k},top_p={sampling.top_p},"
        f"penalty={sampling.repetition_penalty},seed={sampling.seed}"
    )
