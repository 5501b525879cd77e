"""Which files a command line means, and where each translation goes. Looks at names only."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from hymt_local.catalog import ALL_TAGS
from hymt_local.documents.registry import FORMATS
from hymt_local.errors import UsageError

_SUFFIX_OF_TARGET = {".pot": ".po"}
"""A template becomes a catalogue."""


@dataclass(frozen=True, slots=True)
class Selected:
    """One document and its place in the folder that was named."""

    source: Path
    folder: Path | None = None
    """The folder of the command line that it was found in; None when the file itself was named."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What was found."""

    files: tuple[Selected, ...]
    n_unknown: int = 0
    """Files in folders that are no documents of a known format."""


def select(paths: Sequence[str], *, is_recursive: bool, takes_all: bool = False) -> Selection:
    """Return the documents that paths, folders and patterns name, each once, in the order of the command line.

    From folders come the files of known formats, hidden ones and the results of earlier runs left out. A named file is
    taken whatever it is, so that it is refused with a reason.

    Args:
        paths: As the user wrote them.
        is_recursive: Folders in folders too; links to folders are not followed.
        takes_all: The format is named, so that unknown extensions count as well.

    Raises:
        UsageError: a path is empty, or a pattern or folder holds no document.
    """
    found: dict[str, Selected] = {}
    n_unknown = 0
    for written in paths:
        if not written:  # a variable that is not set in a script must not mean this folder
            raise UsageError("an empty path was named", hint="`.` is this folder")
        inside = _inside(written, is_recursive=is_recursive)
        if inside is None:
            found.setdefault(os.path.normpath(Path(written).absolute()), Selected(Path(written)))
            continue
        documents = [each for each in inside if takes_all or is_known(each.source)]
        names = {each.source for each in documents}
        wanted = [each for each in documents if not _is_result(each.source, names)]
        n_unknown += len(inside) - len(documents)
        if not wanted:
            hint = "" if is_recursive else "`--recursive` looks into the folders below; "
            raise UsageError(
                f"there is no document in {written}", hint=f"{hint}`hymt file --list-formats` shows the known types"
            )
        for each in wanted:
            found.setdefault(os.path.normpath(each.source.absolute()), each)
    return Selection(tuple(found.values()), n_unknown)


def _is_result(path: Path, names: Set[Path]) -> bool:
    """Tell whether a file is the translation of another one: `report.fr.md` beside `report.md`."""
    lang = path.with_suffix("").suffix.removeprefix(".")
    if lang not in ALL_TAGS:
        return False
    stem = path.name.removesuffix(f".{lang}{path.suffix}")
    suffixes = [path.suffix, *(source for source, target in _SUFFIX_OF_TARGET.items() if target == path.suffix)]
    return any(path.with_name(stem + suffix) in names for suffix in suffixes)


def _inside(written: str, *, is_recursive: bool) -> list[Selected] | None:
    """Return what a folder or a pattern holds; None when it is a file."""
    path = Path(written)
    if _is_folder(path):
        return [Selected(each, folder=path) for each in sorted(_files(path, is_recursive=is_recursive))]
    if glob.has_magic(written) and not os.path.lexists(path):
        matches = sorted(map(Path, glob.glob(written, recursive=True)))  # noqa: PTH207 (a pattern may be absolute)
        return [Selected(each) for each in matches if each.is_file()]
    return None


def _is_folder(path: Path) -> bool:
    with contextlib.suppress(OSError):  # a name that is too long, say: whoever opens it will say so
        return path.is_dir()
    return False


def _files(folder: Path, *, is_recursive: bool) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if is_recursive else []
        yield from (path for name in names if not name.startswith(".") and (path := Path(place) / name).is_file())


def is_known(path: Path) -> bool:
    """Tell by its extension whether a file is a document."""
    suffix = path.suffix.casefold()
    return any(suffix in known.extensions for known in FORMATS)


def default_target(source: Path, target_lang: str) -> Path:
    """Return the place beside a source: `report.md` -> `report.fr.md`."""
    suffix = _SUFFIX_OF_TARGET.get(source.suffix, source.suffix)
    return source.with_name(f"{source.stem}.{target_lang}{suffix}")


def place_targets(files: Iterable[Selected], *, target_lang: str, output: str | None) -> list[tuple[Path, Path]]:
    """Return each source with its target.

    Without `output`, each stands beside its source. A folder as `output` (one that exists, ends with a slash, or is
    needed because there are several) takes the names and the tree as they are.

    Raises:
        UsageError: two documents would become one file, or the output has no name.
    """
    if output is not None and not output:
        raise UsageError("the name of the output is empty", hint="leave out `-o`, or name a file or a folder")
    selected = list(files)
    pairs = [(each.source, _target(each, selected, target_lang=target_lang, output=output)) for each in selected]
    taken: dict[str, Path] = {}
    for source, target in pairs:
        other = taken.setdefault(os.path.normcase(os.path.realpath(target)), source)
        if other != source:
            raise UsageError(
                f"{other} and {source} would both become {target}", hint="translate them one by one, each with its `-o`"
            )
    return pairs


def _target(each: Selected, selected: Sequence[Selected], *, target_lang: str, output: str | None) -> Path:
    if output is None:
        return default_target(each.source, target_lang)
    is_folder = (
        len(selected) > 1 or each.folder is not None or output.endswith(("/", os.sep)) or _is_folder(Path(output))
    )
    if not is_folder:
        return Path(output)
    if len(selected) > 1 and os.path.lexists(output) and not _is_folder(Path(output)):
        raise UsageError(f"{output} is a file, and there are {len(selected)} documents", hint="name a folder: `-o`")
    place = each.source.relative_to(each.folder) if each.folder else Path(each.source.name)
    target = Path(output) / place
    is_same_place = os.path.realpath(target.parent) == os.path.realpath(each.source.parent)
    return Path(output) / default_target(place, target_lang) if is_same_place else target
