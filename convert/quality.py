"""What a quantization costs: how far its predictions and translations are from those of the unquantized file.

Per token, over the right translations of a fixed text: the Kullback-Leibler divergence of the two distributions, how
often both have the same favourite, and the ratio of perplexities, which alone ranks quantizations wrongly. Over the
translations that both files make: chrF.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hymt_convert.passages import Passage, Tokenizer
from hymt_convert.progress import OnProgress, Progress
from hymt_convert.reference_model import ReferenceModel, Span
from hymt_convert.verify import quantization_label
from hymt_local.engine.gguf_file import GgufHeader, read_header
from hymt_local.engine.gguf_support import check_supported
from hymt_local.errors import ModelFileError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHUNK_TOKENS = 512
"""Tokens of all passages that are computed at once."""
MAX_SEQUENCES = 16
"""Passages that are computed at once."""
MAX_LOGITS = 256
"""Predictions that are held at once: 125 MiB for the largest vocabulary, for each file."""
MAX_TRANSLATIONS = 40
"""Prompts that are translated: one in each language. All are answered at once, because each token of an answer takes a
pass over all weights, which for a file larger than the memory is a pass over the disk."""
ANSWER_TOKENS = 64
"""Longest translation that is compared by chrF."""
BLOCK_ROWS = 32
"""Distributions that are held in double precision at once: 32 MiB for the largest vocabulary."""
_COMPARING = "comparing predictions"
CHRF_ORDER = 6
CHRF_BETA = 2


@dataclass(frozen=True, slots=True)
class Quality:
    """One file against the reference."""

    path: Path
    quantization: str
    size_bytes: int
    n_positions: int
    """Predicted tokens that were compared."""
    mean_kl: float
    """Nats per token."""
    p99_kl: float
    max_kl: float
    top1_agreement: float
    """Share of tokens at which both files have the same favourite."""
    perplexity: float
    perplexity_ratio: float
    """Perplexity over that of the reference."""
    chrf: float | None
    """0 to 100: its translations against those of the reference; None for a model whose prompts are not known."""

    def table(self) -> dict[str, object]:
        """Return plain data, figures rounded to what they are good for."""
        values = {key: value for key, value in asdict(self).items() if key != "path"}
        return {"path": str(self.path), **{key: _rounded(value) for key, value in values.items()}}


def measure_quality(
    reference: Path,
    candidates: Sequence[Path],
    make_passages: Callable[[Tokenizer], Sequence[Passage]],
    *,
    threads: int | None = None,
    on_step: OnProgress | None = None,
) -> list[Quality]:
    """Compare files with the unquantized file that they were made from.

    All files are mapped at once and read passage by passage, so that no distribution has to be kept. Then one after
    another translates.

    Args:
        reference: The unquantized file.
        candidates: Files with the same vocabulary.
        make_passages: Makes the text out of ids of the reference's vocabulary.
        threads: None for one per core.
        on_step: Progress, called on this thread.

    Raises:
        ModelFileError: a file is damaged, computes what is not a number, or has another vocabulary.
        UnsupportedModelError: the engine does not run such models.
        EngineError: llama.cpp cannot load or run a file.
        UsageError: there is nothing to compare on.
    """
    headers = [read_header(path) for path in (reference, *candidates)]
    for header in headers:
        check_supported(header)
    report = on_step or (lambda progress: None)
    with contextlib.ExitStack() as stack:
        models = [stack.enter_context(_open(header.path, threads)) for header in headers]
        passages = make_passages(models[0])
        _check_comparable(models, headers[0].path, candidates, passages)
        comparisons = [_Comparison() for _ in candidates]
        _compare_predictions(models, passages, comparisons, report)
    reference_texts, *texts = _all_translations(headers, passages, threads, report)
    for comparison, own_texts in zip(comparisons, texts, strict=True):
        comparison.texts, comparison.reference_texts = own_texts, reference_texts
    return [
        comparison.quality(header.path, quantization_label(header), header.size_bytes)
        for comparison, header in zip(comparisons, headers[1:], strict=True)
    ]


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the corpus chrF2 of Popović (2015), 0 to 100, as sacrebleu computes it: 1 to 6 characters, no spaces."""
    totals = [[0, 0, 0] for _ in range(CHRF_ORDER)]
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for order, total in enumerate(totals, start=1):
            made, wanted = _n_grams(hypothesis, order), _n_grams(reference, order)
            total[0] += made.total()
            total[1] += wanted.total()
            total[2] += (made & wanted).total()
    usable = [(made, wanted, both) for made, wanted, both in totals if made and wanted]
    if not usable:
        return 0.0
    precision = sum(both / made for made, _, both in usable) / len(usable)
    recall = sum(both / wanted for _, wanted, both in usable) / len(usable)
    weight = CHRF_BETA**2
    return 100 * (1 + weight) * precision * recall / (weight * precision + recall) if precision + recall else 0.0


def divergences(reference: NDArray[np.float64], candidate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Kullback-Leibler divergence of each row.

    Args:
        reference: Log probabilities: shape [n, vocab_size].
        candidate: The same of the file in question.
    """
    import numpy as np

    # Mathematically never below 0; rounding is.
    sums: NDArray[np.float64] = (np.exp(reference) * (reference - candidate)).sum(axis=-1)
    return np.maximum(sums, 0.0)


def log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the logarithm of the softmax of each row."""
    import numpy as np

    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


@dataclass(slots=True)
class _Comparison:
    """What is known of one candidate so far; one value per predicted token."""

    kl: list[float] = field(default_factory=list)
    agreements: list[bool] = field(default_factory=list)
    surprise: list[float] = field(default_factory=list)
    reference_surprise: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    reference_texts: list[str] = field(default_factory=list)

    def add(self, reference: NDArray[np.float32], candidate: NDArray[np.float32], tokens: Sequence[int]) -> None:
        """Take logits, one row for each of the tokens that really follow."""
        for start in range(0, len(tokens), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            self._add(log_probabilities(reference[block]), log_probabilities(candidate[block]), list(tokens[block]))

    def _add(self, reference: NDArray[np.float64], candidate: NDArray[np.float64], tokens: list[int]) -> None:
        rows = range(len(tokens))
        self.kl += divergences(reference, candidate).tolist()
        self.agreements += (reference.argmax(axis=-1) == candidate.argmax(axis=-1)).tolist()
        self.reference_surprise += (-reference[rows, tokens]).tolist()
        self.surprise += (-candidate[rows, tokens]).tolist()

    def quality(self, path: Path, quantization: str, size_bytes: int) -> Quality:
        import numpy as np

        mean, reference_mean = float(np.mean(self.surprise)), float(np.mean(self.reference_surprise))
        return Quality(
            path=path,
            quantization=quantization,
            size_bytes=size_bytes,
            n_positions=len(self.kl),
            mean_kl=float(np.mean(self.kl)),
            p99_kl=float(np.quantile(self.kl, 0.99)),
            max_kl=float(np.max(self.kl)),
            top1_agreement=float(np.mean(self.agreements)),
            perplexity=float(np.exp(mean)),
            perplexity_ratio=float(np.exp(mean - reference_mean)),
            chrf=chrf(self.texts, self.reference_texts) if self.texts else None,
        )


def _open(path: Path, threads: int | None) -> ReferenceModel:
    return ReferenceModel(
        path,
        context_length=CHUNK_TOKENS,
        max_logits=MAX_LOGITS,
        threads=threads,
        sequences=MAX_SEQUENCES,
    )


def _check_comparable(
    models: Sequence[ReferenceModel], reference: Path, candidates: Sequence[Path], passages: Sequence[Passage]
) -> None:
    if not any(len(passage.answer) for passage in passages):
        raise UsageError("there is no text to compare the files on")
    for model, path in zip(models[1:], candidates, strict=True):
        if model.vocab_size != models[0].vocab_size:
            raise ModelFileError(
                f"{path.name} has {model.vocab_size} tokens, {reference.name} {models[0].vocab_size}",
                hint="Compare a quantization with the file that it was made from.",
            )


def _batches(passages: Iterable[Passage]) -> Iterator[list[Passage]]:
    batch: list[Passage] = []
    for passage in passages:
        if passage.n_tokens > CHUNK_TOKENS or len(passage.answer) > MAX_LOGITS:
            continue
        if batch and not _fits([*batch, passage]):
            yield batch
            batch = []
        batch.append(passage)
    if batch:
        yield batch


def _fits(batch: Sequence[Passage]) -> bool:
    n_tokens, n_logits = sum(each.n_tokens for each in batch), sum(len(each.answer) for each in batch)
    return len(batch) <= MAX_SEQUENCES and n_tokens <= CHUNK_TOKENS and n_logits <= MAX_LOGITS


def _compare_predictions(
    models: Sequence[ReferenceModel],
    passages: Sequence[Passage],
    comparisons: Sequence[_Comparison],
    report: OnProgress,
) -> None:
    batches = list(_batches(passages))
    done, total = 0, len(models) * sum(each.n_tokens for batch in batches for each in batch)
    report(Progress(_COMPARING, done, total, "tokens"))

    def predictions(model: ReferenceModel, batch: Sequence[Passage]) -> NDArray[np.float32]:
        nonlocal done
        logits = _predictions(model, batch)
        done += sum(each.n_tokens for each in batch)
        report(Progress(_COMPARING, done, total, "tokens"))
        return logits

    for batch in batches:
        tokens = [token for passage in batch for token in passage.answer]
        logits = predictions(models[0], batch)
        for model, comparison in zip(models[1:], comparisons, strict=True):
            comparison.add(logits, predictions(model, batch), tokens)


def _predictions(model: ReferenceModel, batch: Sequence[Passage]) -> NDArray[np.float32]:
    """Return the logits at the place of each answer token."""
    import numpy as np

    # The last answer token is predicted by the one before it: it need not be read.
    spans = [Span(number, 0, passage.tokens[:-1], len(passage.answer)) for number, passage in enumerate(batch)]
    model.clear()
    logits = model.decode(spans)
    if not np.isfinite(logits).all():
        raise ModelFileError(f"{model.name} predicts something that is not a number", hint="Its weights are damaged.")
    return logits


def _all_translations(
    headers: Sequence[GgufHeader], passages: Sequence[Passage], threads: int | None, report: OnProgress
) -> list[list[str]]:
    """Return what each file makes of a sample of the prompts, one file after another: each needs room for all."""
    prompts = [passage for passage in passages if passage.is_prompt]
    sample = prompts[:: -(-len(prompts) // MAX_TRANSLATIONS) or 1]
    if not sample:
        return [[] for _ in headers]
    return [_translations(header.path, sample, threads, report) for header in headers]


def _translations(path: Path, sample: Sequence[Passage], threads: int | None, report: OnProgress) -> list[str]:
    step, prompts = f"translating with {path.name}", [passage.prompt for passage in sample]

    def advance(done: int) -> None:
        report(Progress(step, done, ANSWER_TOKENS, "passes"))

    advance(0)
    with ReferenceModel(
        path,
        context_length=sum(map(len, prompts)) + len(prompts) * ANSWER_TOKENS,
        batch_tokens=max(CHUNK_TOKENS, *map(len, prompts)),
        max_logits=MAX_TRANSLATIONS,
        threads=threads,
        sequences=len(prompts),
        cache_type="F16",
    ) as model:
        answers = model.answers(prompts, end_ids=sample[0].end_ids, max_tokens=ANSWER_TOKENS, on_token=advance)
        return [model.text(answer) for answer in answers]


def _n_grams(text: str, order: int) -> Counter[str]:
    characters = "".join(text.split())
    return Counter(characters[start : start + order] for start in range(len(characters) - order + 1))


def _rounded(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value
