"""What a document job would do: how many units, from where, and for about how long. Nothing is loaded or written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hymt_local.document_jobs.events import DocumentTask
from hymt_local.document_jobs.files import read_source
from hymt_local.document_jobs.journal import journal_path, key_of, read_journal
from hymt_local.document_jobs.run import encoded_as_wanted, find_format
from hymt_local.document_jobs.work import Batch, DocumentWork, Known, alike, count_words
from hymt_local.events import Origin, TranslationRequest

Foresee = Callable[[TranslationRequest], Sequence[Origin | None]]
"""Says of each unit of a request where its target would come from now, None where it would be refused."""


@dataclass(frozen=True, slots=True)
class Preview:
    """One document before it is translated."""

    source: str
    target: str
    format: str
    units: int
    different: int
    """Units that differ from all before them: equal ones are translated once."""
    words: int
    characters: int
    from_journal: int
    from_cache: int
    from_model: int
    passed_through: int
    refused: int
    """Outside the phrasebook of a demo model."""
    model_characters: int
    """Of the texts that the model has to translate."""
    seconds: float | None
    """About how long the model will need; None when its speed was never measured here."""


def preview_document(
    task: DocumentTask, foresee: Foresee, *, state_dir: Path, speeds: Mapping[str, float], model: str
) -> Preview:
    """Read a document and count.

    Args:
        task: What would be done.
        foresee: Looks into the cache.
        state_dir: Where journals are kept.
        speeds: Characters per second by model.
        model: The name under which its speed is known.

    Raises:
        DocumentError: the document would be refused.
    """
    data = read_source(task.source_path)
    found = find_format(task.source_path.name, data, task.options)
    data = encoded_as_wanted(data, found, task.options)
    known = _known(task, key_of(task, data, format_name=found.name), state_dir=state_dir)
    document = found.read(data, task.options.languages)
    work = DocumentWork(document, task.options, known=known)
    counts: dict[Origin | None, int] = dict.fromkeys([*Origin, None], 0)
    n_characters = 0
    for batch in _batches(work):
        for origin, units in zip(foresee(batch.request), batch.groups, strict=True):
            counts[origin] += len(units)
            if origin is Origin.MODEL:
                n_characters += len(units[0].source.text)
    speed = speeds.get(model)
    return Preview(
        source=str(task.source_path),
        target=str(task.target_path),
        format=found.name,
        units=len(work.units),
        different=len(set(map(alike, work.units))),
        words=count_words(unit.source.text for unit in work.units),
        characters=work.characters,
        from_journal=work.n_known,
        from_cache=counts[Origin.CACHE],
        from_model=counts[Origin.MODEL],
        passed_through=counts[Origin.SOURCE],
        refused=counts[None],
        model_characters=n_characters,
        seconds=n_characters / speed if speed else None,
    )


def _known(task: DocumentTask, key: str, *, state_dir: Path) -> Known | None:
    if not task.resumes:
        return None
    remains = read_journal(journal_path(state_dir, task.target_path.resolve()), key=key)
    return remains.known if remains else None


def _batches(work: DocumentWork) -> Sequence[Batch]:
    """Return all batches at once; the language is detected in each of them, which is close enough for a preview."""
    batches = []
    while (batch := work.next_batch()) is not None:
        batches.append(batch)
        work.give_up_detecting()
    return batches
