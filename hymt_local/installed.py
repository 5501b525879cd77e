"""Models on this machine: what is installed, which one a reference means, which one is the default.

A model file is described by a small manifest beside it; the packaged demo and the test engines need none. Nothing here
loads a model.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hymt_local.catalog import Catalog, ModelSpec, parse_model_ref
from hymt_local.config import write_atomically
from hymt_local.errors import HymtError, ModelFileError, ModelNotFoundError, StoreError, UnsupportedModelError
from hymt_local.paths import Paths
from hymt_local.regular_file import read_regular

if TYPE_CHECKING:
    from hymt_local.engine.gguf_file import GgufHeader

HASH_CHUNK_BYTES = 4 * 1024 * 1024
DEMO_ID = "demo"
_IMPORT_HINT = "`hymt models pull` fetches one, `hymt models import FILE.gguf` adds a file you have"
_IMPORT_AGAIN_HINT = "import it again: `hymt models import FILE`"


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known of one imported file; kept as `<ID>--<QUANTIZATION>.json`."""

    id: str
    quantization: str
    path: Annotated[str, msgspec.Meta(pattern=r"^[^\0]+$")]
    size_bytes: int
    modified_ns: int
    sha256: str
    imported_at: float
    """Seconds since the epoch; the newest import is the default until `hymt models use` names one."""
    published: bool
    """True when the sha256 is one that the catalog lists."""
    is_ours: bool | None = None
    """This program made the file or the link: it may delete it. None in manifests from before this was recorded."""
    conversion: dict[str, Any] | None = None
    """Of a file that this program made: the checkpoint it came from, and what was checked and measured."""


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model that can be opened now."""

    spec: ModelSpec
    quantization: str
    path: Path | None
    """None for the test engines, which have no file."""
    fingerprint: str
    """sha256 of the file; for test engines their id."""
    size_bytes: int = 0
    modified_ns: int | None = None
    """When the file was last written, as it was at its import; None for what the package brings along."""
    imported_at: float = 0.0
    published: bool = False
    is_ours: bool = False
    """The file was downloaded or linked by this program, which may delete it."""

    @property
    def ref(self) -> str:
        """The reference a user types."""
        return f"{self.spec.id}:{self.quantization}" if self.spec.kind == "translation" else self.spec.id


@dataclass(frozen=True, slots=True)
class _Manifests:
    """All that lie in the models folder: the models of the sound ones, and why the others are not."""

    models: tuple[InstalledModel, ...]
    problems: tuple[HymtError, ...]


class ModelStore:
    """The installed models of one user. Cheap to build; every call reads the disk afresh."""

    def __init__(self, paths: Paths, catalog: Catalog) -> None:
        self._models_dir = paths.models_dir
        self._catalog = catalog

    def list(self) -> tuple[InstalledModel, ...]:
        """Return what is installed: real models newest first, then the demo, then the test engines."""
        imported = sorted(
            self._read_all().models, key=lambda model: (model.spec.kind != "translation", -model.imported_at)
        )
        packaged = [self._packaged_demo()] if demo_file().is_file() else []
        tests = [_test_engine(spec) for spec in self._catalog.models if spec.kind == "test"]
        return (*imported, *packaged, *tests)

    def problems(self) -> tuple[HymtError, ...]:
        """Return what is wrong with manifests that `list` leaves out."""
        return self._read_all().problems

    def default(self) -> InstalledModel:
        """Return the newest real model, or the demo when there is none.

        Raises:
            ModelNotFoundError: the package was built without its demo model and nothing is installed.
            StoreError: a manifest cannot be read: the model that it describes may be the one that is meant.
        """
        for problem in self.problems():
            raise problem
        for model in self.list():
            if model.spec.kind != "test":
                return model
        raise ModelNotFoundError("no model is installed", hint=_IMPORT_HINT)

    def resolve(self, ref: str | None) -> InstalledModel:
        """Return the installed model that a reference means; None means the default.

        Raises:
            ModelNotFoundError: not in the catalog, or not installed.
            ModelFileError: the file is gone or has changed since it was imported.
            StoreError: the manifest of the model cannot be read.
        """
        model = self.default() if ref is None else self._named(ref)
        _check_unchanged(model)
        return model

    def import_file(
        self,
        path: Path,
        *,
        as_id: str | None = None,
        conversion: dict[str, Any] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> InstalledModel:
        """Check, identify, hash and register a GGUF file; the file is hard-linked, or used where it lies.

        Args:
            path: The file.
            as_id: Catalog id, when the header does not tell which model it is.
            conversion: How this program made the file, for the manifest; in the models folder it may delete it then.
            on_progress: Called with bytes hashed and total bytes.

        Raises:
            ModelFileError: not a whole GGUF.
            UnsupportedModelError: a GGUF this program cannot run, or one it cannot identify.
            StoreError: the models folder cannot be written; nothing is left in it.
        """
        header = _checked_header(path)
        status = path.stat()  # before it is read: a file that changes meanwhile shows as changed ever after
        sha256 = file_sha256(path, on_progress=on_progress)
        spec = self._identify(header, sha256=sha256, as_id=as_id)
        manifest = _new_manifest(header, spec, status=status, sha256=sha256)
        is_ours = True if conversion is not None and path.resolve().parent == self._models_dir.resolve() else None
        manifest = msgspec.structs.replace(manifest, conversion=conversion, is_ours=is_ours)
        return self._described(_register(manifest, self._models_dir))

    def register_download(self, path: Path, spec: ModelSpec, *, sha256: str) -> InstalledModel:
        """Register a file that was just downloaded and verified; it is not hashed again.

        Args:
            path: In the models folder, or of another program's cache, where it is used as it lies or linked.
            spec: The model it is.
            sha256: The hash that was verified.

        Raises:
            ModelError: not a file that this program can run, whatever its hash.
            StoreError: the models folder cannot be written.
        """
        header = _checked_header(path)
        manifest = _new_manifest(header, _same_architecture(spec, header), status=path.stat(), sha256=sha256)
        is_ours = path.resolve().parent == self._models_dir.resolve()
        return self._described(_register(msgspec.structs.replace(manifest, is_ours=is_ours), self._models_dir))

    def find(self, text: str) -> InstalledModel:
        """Return the installed model that a reference means, whatever has become of its file.

        Raises:
            ModelNotFoundError: not in the catalog, or not installed.
            StoreError: the manifest of the model cannot be read.
        """
        return self._named(text)

    def remove(self, model: InstalledModel) -> bool:
        """Forget an imported model, and delete its file if this program put it there; returns whether it did.

        Raises:
            ModelNotFoundError: it belongs to the package and cannot be removed.
            StoreError: the folder cannot be written.
        """
        manifest_file = self._manifest_file(model)
        if model.modified_ns is None or model.path is None:
            raise ModelNotFoundError(f"{model.ref} is part of hymt-local", hint="only imported models can be removed")
        is_shared = any(other.path == model.path and other.ref != model.ref for other in self.list())
        deletes = model.is_ours and not is_shared
        try:
            manifest_file.unlink(missing_ok=True)
            if deletes:
                model.path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot remove {error.filename}: {error.strerror or error}", hint="check the folder's permissions"
            ) from error
        return deletes

    def confirm_unchanged(self, model: InstalledModel) -> InstalledModel:
        """Take note of a new date of a file whose content is still the same, as its hash has shown.

        Raises:
            StoreError: the manifest cannot be read or written.
        """
        assert model.path is not None
        manifest_file = self._manifest_file(model)
        manifest = msgspec.structs.replace(_read_manifest(manifest_file), modified_ns=model.path.stat().st_mtime_ns)
        _write_manifest(manifest_file, manifest)
        return self._described(manifest)

    def _manifest_file(self, model: InstalledModel) -> Path:
        return self._models_dir / f"{model.spec.id}--{model.quantization}.json"

    def _named(self, text: str) -> InstalledModel:
        # By its form alone: clients of the server must not learn from the answer which files there are.
        if text.lower().endswith(".gguf") or text.startswith((".", "~")) or PurePath(text).is_absolute():
            raise ModelNotFoundError(
                f"{text!r} is a file, not a model reference",
                hint="register it once: `hymt models import FILE` prints the reference to use",
            )
        ref = parse_model_ref(text)
        spec = self._catalog.get(ref.id)
        matching = [model for model in self.list() if model.spec.id == spec.id]
        if ref.quantization:
            matching = [m for m in matching if m.quantization.casefold() == ref.quantization.casefold()]
        if matching:
            return matching[0]
        for problem in self.problems():
            raise problem
        wanted = f"{spec.id}:{ref.quantization}" if ref.quantization else spec.id
        raise ModelNotFoundError(
            f"model {wanted} is not installed", hint=f"`hymt models list` shows what is; {_IMPORT_HINT}"
        )

    def _read_all(self) -> _Manifests:
        models, problems = [], []
        for file in sorted(self._models_dir.glob("*.json")):
            try:
                models.append(self._described(_read_manifest(file)))
            except ModelNotFoundError as error:
                problems.append(_orphan(file, error))
            except StoreError as error:
                problems.append(error)
        return _Manifests(tuple(models), tuple(problems))

    def _described(self, manifest: Manifest) -> InstalledModel:
        return InstalledModel(
            spec=self._catalog.get(manifest.id),
            quantization=manifest.quantization,
            path=Path(manifest.path),
            fingerprint=manifest.sha256,
            size_bytes=manifest.size_bytes,
            modified_ns=manifest.modified_ns,
            imported_at=manifest.imported_at,
            published=manifest.published,
            is_ours=_is_own_link(manifest) if manifest.is_ours is None else manifest.is_ours,
        )

    def _packaged_demo(self) -> InstalledModel:
        spec = self._catalog.get(DEMO_ID)
        published = spec.files[0]
        return InstalledModel(
            spec=spec,
            quantization=published.quantization,
            path=demo_file(),
            fingerprint=published.sha256 or "",
            size_bytes=published.size_bytes or demo_file().stat().st_size,
            published=True,
        )

    def _identify(self, header: GgufHeader, *, sha256: str, as_id: str | None) -> ModelSpec:
        candidates = [spec for spec in self._catalog.models if spec.kind != "test"]
        if as_id:
            return _same_architecture(self._catalog.get(as_id), header)
        for spec in candidates:
            if any(file.sha256 == sha256 for file in spec.files):
                return spec
        named = [spec for spec in candidates if _has_name(spec, header)]
        if len(named) == 1:
            return _same_architecture(named[0], header)
        raise UnsupportedModelError(
            f"cannot tell which model {header.path.name} is (general.name = {header.metadata.get('general.name')!r})",
            hint="name it: `hymt models import FILE --as ID`, with an id of `hymt models list`",
        )


def demo_file() -> Path:
    """Return where the packaged demo model lies (it may be absent from a source tree)."""
    return Path(__file__).with_name("data") / "demo" / "hymt-demo-Q8_0.gguf"


def file_sha256(path: Path, *, on_progress: Callable[[int, int], None] | None = None) -> str:
    """Return the hex sha256 of a file, read in pieces.

    Raises:
        ModelFileError: the file cannot be read.
    """
    import hashlib  # with OpenSSL behind it

    digest, done = hashlib.sha256(), 0
    try:
        total = path.stat().st_size
        with path.open("rb") as stream:
            while chunk := stream.read(HASH_CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                if on_progress:
                    on_progress(done, total)
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}", hint="check the path") from error
    return digest.hexdigest()


def _read_manifest(file: Path) -> Manifest:
    try:
        return msgspec.json.decode(read_regular(file), type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(
            f"the model manifest {file} cannot be read: {error}",
            hint="delete it and import the model again; the model file itself is not touched",
        ) from error


def _orphan(file: Path, error: ModelNotFoundError) -> StoreError:
    return StoreError(
        f"the model manifest {file} names no model of the catalog: {error.message}",
        hint="put the model back into your models.toml, or delete the manifest",
    )


def _test_engine(spec: ModelSpec) -> InstalledModel:
    from hymt_local.engine.echo import BEHAVIOUR_VERSION  # the whole seam of the engine

    fingerprint = f"{spec.id} {BEHAVIOUR_VERSION}"
    return InstalledModel(spec=spec, quantization="none", path=None, fingerprint=fingerprint, published=True)


def _check_unchanged(model: InstalledModel) -> None:
    if model.path is None:
        return
    hint = _IMPORT_AGAIN_HINT if model.modified_ns else "install hymt-local again"
    try:
        status = model.path.stat()
    except OSError as error:
        raise ModelFileError(f"the file of {model.ref} is gone: {model.path} ({error.strerror})", hint=hint) from error
    if model.modified_ns not in {None, status.st_mtime_ns} or model.size_bytes not in {0, status.st_size}:
        raise ModelFileError(f"the file of {model.ref} has changed: {model.path}", hint=hint)


def _checked_header(path: Path) -> GgufHeader:
    from hymt_local.engine.gguf_file import read_header  # the shell's way to the server does without
    from hymt_local.engine.gguf_support import check_supported

    header = read_header(path)
    check_supported(header)
    return header


def _has_name(spec: ModelSpec, header: GgufHeader) -> bool:
    names = (str(header.metadata.get("general.name", "")), header.path.name)
    return any(re.search(pattern, name, re.IGNORECASE) for pattern in spec.name_patterns for name in names)


def _same_architecture(spec: ModelSpec, header: GgufHeader) -> ModelSpec:
    found = header.metadata.get("general.architecture")
    if found == spec.architecture:
        return spec
    raise UnsupportedModelError(
        f"{header.path.name} has architecture {found!r}, {spec.id} has {spec.architecture!r}",
        hint="name the right model with `--as ID`",
    )


def _quantization(header: GgufHeader, spec: ModelSpec, *, sha256: str) -> str:
    """Return the published name for this very file, else the commonest name in file name or header."""
    from hymt_local.engine.gguf_file import FILE_TYPES

    for file in spec.files:
        if file.sha256 == sha256:
            return file.quantization
    in_header = header.metadata.get("general.file_type")
    if isinstance(in_header, int) and in_header in FILE_TYPES:
        return FILE_TYPES[in_header]
    in_name = re.search(r"(?i)(?<![a-z0-9])((?:i?q\d[a-z0-9_]*)|bf16|f16|f32)(?=\.gguf$)", header.path.name)
    return in_name.group(1).upper() if in_name else "unknown"


def _new_manifest(header: GgufHeader, spec: ModelSpec, *, status: os.stat_result, sha256: str) -> Manifest:
    return Manifest(
        id=spec.id,
        quantization=_quantization(header, spec, sha256=sha256),
        path=str(header.path.resolve()),
        size_bytes=status.st_size,
        modified_ns=status.st_mtime_ns,
        sha256=sha256,
        imported_at=time.time(),
        published=any(file.sha256 == sha256 for file in spec.files),
    )


def _link_name(manifest: Manifest) -> str:
    return f"{manifest.id}--{manifest.quantization}--{manifest.sha256[:12]}.gguf"


def _is_own_link(manifest: Manifest) -> bool:
    return Path(manifest.path).name == _link_name(manifest)


def _write_manifest(file: Path, manifest: Manifest) -> None:
    write_atomically(file, msgspec.json.format(msgspec.json.encode(manifest), indent=2).decode() + "\n")


def _register(manifest: Manifest, models_dir: Path) -> Manifest:
    """Take the file over and write its manifest; returns the manifest with the file's place."""
    manifest_file = models_dir / f"{manifest.id}--{manifest.quantization}.json"
    replaced = _path_in(manifest_file)
    source = Path(manifest.path)
    target = _adopt(source, models_dir / _link_name(manifest))
    try:
        is_ours = bool(manifest.is_ours) or target != source or _is_own_link(manifest)
        manifest = msgspec.structs.replace(manifest, path=str(target), is_ours=is_ours)
        _write_manifest(manifest_file, manifest)
    except (StoreError, UnicodeEncodeError) as error:
        if target not in {source, replaced}:
            target.unlink(missing_ok=True)
        if isinstance(error, StoreError):
            raise
        raise ModelFileError(
            f"the path {str(target)!r} is not valid UTF-8", hint="rename the file or folder"
        ) from error
    if replaced and replaced != target and replaced.parent == models_dir:
        _drop_link(replaced)
    return manifest


def _path_in(manifest_file: Path) -> Path | None:
    """Return the model file that a manifest names; None when there is no sound one."""
    try:
        return Path(_read_manifest(manifest_file).path)
    except StoreError:
        return None


def _adopt(path: Path, target: Path) -> Path:
    """Hard-link the file as `target`; where links are impossible it stays where it is."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot create {target.parent}: {error.strerror or error}", hint="check permissions, or set HYMT_HOME"
        ) from error
    if path.parent == target.parent:
        return path
    linked = target.with_suffix(f".{os.getpid()}.part")
    try:
        os.link(path, linked)
        linked.replace(target)
    except OSError:
        return path
    finally:
        linked.unlink(missing_ok=True)  # left behind when `target` was a link to the same file already
    return target


def _drop_link(file: Path) -> None:
    """Remove the link to a model file whose successor has been imported, unless it is the last one."""
    with contextlib.suppress(OSError):
        if file.stat().st_nlink > 1:
            file.unlink()
