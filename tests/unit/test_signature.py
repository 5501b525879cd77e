from dataclasses import replace

import msgspec
import pytest

from hymt_local.events import SamplingParams
from hymt_local.signature import Signature

BASE = Signature(
    fingerprint="ab" * 32,
    quantization="Q4_K_M",
    template="0123456789abcdef",
    sampling=SamplingParams(),
    source_lang="en",
    target_lang="fr",
)
SAMPLED = replace(BASE, sampling=SamplingParams(temperature=0.7))


@pytest.mark.parametrize(
    "other",
    [
        replace(BASE, fingerprint="cd" * 32),
        replace(BASE, quantization="Q8_0"),
        replace(BASE, template="another"),
        replace(BASE, source_lang="de"),
        replace(BASE, target_lang="de"),
        replace(BASE, postprocessing=BASE.postprocessing + 1),
        replace(BASE, sampling=SamplingParams(repetition_penalty=1.1)),
        SAMPLED,
    ],
    ids=str,
)
def test_each_component_alone_changes_the_digest(other: Signature) -> None:
    assert other.digest() != BASE.digest()


@pytest.mark.parametrize("change", [{"seed": 1}, {"top_k": 5}, {"top_p": 0.9}])
def test_what_greedy_decoding_ignores_changes_nothing(change: dict[str, float]) -> None:
    assert replace(BASE, sampling=SamplingParams(**change)).digest() == BASE.digest()  # type: ignore[arg-type]
    changed = replace(SAMPLED, sampling=msgspec.structs.replace(SAMPLED.sampling, **change))
    assert changed.digest() != SAMPLED.digest()


def test_neighbouring_fields_cannot_be_confused() -> None:
    assert replace(BASE, source_lang="e", target_lang="nfr").digest() != BASE.digest()


def test_the_readable_form_is_one_line_and_tells_the_components() -> None:
    assert str(BASE) == (
        "en>fr file=abababababab quantization=Q4_K_M template=0123456789abcdef sampling=greedy,penalty=1.05 post=3"
    )
