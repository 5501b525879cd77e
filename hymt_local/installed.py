"""Models on this machine: what is installed, which one a reference means, which one is the default.

A model file is described by a small manifest beside it; the packaged demo and the test engines need none. Nothing here
loads a model.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import msgspec

from hymt_local.catalog import Catalog, ModelRef, ModelSpec, parse_model_ref
from hymt_local.config import write_atomically
from hymt_local.engine.gguf_file import GgufHeader, check_supported, read_header
from hymt_local.errors import ModelFileError, ModelNotFoundError, StoreError, UnsupportedModelError
from hymt_local.paths import Paths

HASH_CHUNK_BYTES = 4 * 1024 * 1024
DEMO_ID = "demo"
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 25: "IQ4_NL", 30: "IQ4_XS",
    32: "BF16",
}  # fmt: skip
"""`general.file_type` of GGUF -> name (llama.cpp's enum llama_ftype)."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known of one imported file; kept as `<ID>--<QUANTIZATION>.json`."""

    id: str
    quantization: str
    path: str
    size_bytes: int
    modified_ns: int
    sha256: str
    imported_at: float
    """Seconds since the epoch; the newest import is the default until `hymt models use` names one."""
    published: bool
    """True when the sha256 is one that the catalog lists."""


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
    imported_at: float = 0.0
    published: bool = False

    @property
    def ref(self) -> str:
        """The reference a user types."""
        return f"{self.spec.id}:{self.quantization}" if self.spec.kind == "translation" else self.spec.id


class ModelStore:
    """The installed models of one user. Cheap to build; every call reads the disk afresh."""

    def __init__(self, paths: Paths, catalog: Catalog) -> None:
        self._models_dir = paths.models_dir
        self._catalog = catalog

    def list(self) -> tuple[InstalledModel, ...]:
        """Return what is installed: real models newest first, then the demo, then the test engines."""
        real = sorted((self._described(m) for m in self._manifests()), key=lambda model: -model.imported_at)
        packaged = [self._packaged_demo()] if demo_file().is_file() else []
        tests = [_test_engine(spec) for spec in self._catalog.models if spec.kind == "test"]
        return (*real, *packaged, *tests)

    def default(self) -> InstalledModel:
        """Return the newest real model, or the demo when there is none.

        Raises:
            ModelNotFoundError: the package was built without its demo model and nothing is installed.
        """
        for model in self.list():
            if model.spec.kind != "test":
                return model
        raise ModelNotFoundError("no model is installed", hint="`hymt models import FILE.gguf` adds one")

    def resolve(self, ref: str | None) -> InstalledModel:
        """Return the installed model that a reference means; None means the default.

        Raises:
            ModelNotFoundError: not in the catalog, or not installed.
            ModelFileError: the file is gone or has changed since it was imported.
        """
        model = self.default() if ref is None else self._named(parse_model_ref(ref))
        _check_unchanged(model, self._manifest_of(model))
        return model

    def import_file(
        self,
        path: Path,
        *,
        as_id: str | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> InstalledModel:
        """Check, identify, hash and register a GGUF file; the file is hard-linked, or used where it lies.

        Args:
            path: The file.
            as_id: Catalog id, when the header does not tell which model it is.
            on_progress: Called with bytes hashed and total bytes.

        Raises:
            ModelFileError: not a whole GGUF.
            UnsupportedModelError: a GGUF this program cannot run, or one it cannot identify.
            StoreError: the models folder cannot be written.
        """
        header = read_header(path)
        check_supported(header)
        sha256 = file_sha256(path, on_progress=on_progress)
        spec = self._identify(header, sha256=sha256, as_id=as_id)
        quantization = _quantization(header, spec, sha256=sha256)
        manifest = self._register(path, spec=spec, quantization=quantization, sha256=sha256)
        return self._described(manifest)

    def _named(self, ref: ModelRef) -> InstalledModel:
        spec = self._catalog.get(ref.id)
        matching = [model for model in self.list() if model.spec.id == spec.id]
        if ref.quantization:
            matching = [m for m in matching if m.quantization.casefold() == ref.quantization.casefold()]
        if matching:
            return matching[0]
        wanted = f"{spec.id}:{ref.quantization}" if ref.quantization else spec.id
        raise ModelNotFoundError(
            f"model {wanted} is not installed",
            hint="`hymt models list` shows what is; `hymt models import FILE.gguf` adds a file you have",
        )

    def _manifests(self) -> list[Manifest]:
        try:
            files = sorted(self._models_dir.glob("*.json"))
        except OSError:
            return []
        return [_read_manifest(file) for file in files]

    def _manifest_of(self, model: InstalledModel) -> Manifest | None:
        wanted = (model.spec.id, model.quantization)
        return next((m for m in self._manifests() if (m.id, m.quantization) == wanted), None)

    def _described(self, manifest: Manifest) -> InstalledModel:
        return InstalledModel(
            spec=self._catalog.get(manifest.id),
            quantization=manifest.quantization,
            path=Path(manifest.path),
            fingerprint=manifest.sha256,
            size_bytes=manifest.size_bytes,
            imported_at=manifest.imported_at,
            published=manifest.published,
        )

    def _packaged_demo(self) -> InstalledModel:
        spec = self._catalog.get(DEMO_ID)
        published = spec.files[0]
        return InstalledModel(
            spec=spec,
            quantization=published.quantization,
            path=demo_file(),
            fingerprint=published.sha256 or "",
            size_bytes=published.size_bytes or 0,
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
            hint="name it: `hymt models import FILE --as ID`, with an id of `hymt models list --all`",
        )

    def _register(self, path: Path, *, spec: ModelSpec, quantization: str, sha256: str) -> Manifest:
        name = f"{spec.id}--{quantization}--{sha256[:12]}.gguf"
        target = _adopt(path.resolve(), self._models_dir, name=name)
        status = target.stat()
        manifest = Manifest(
            id=spec.id,
            quantization=quantization,
            path=str(target),
            size_bytes=status.st_size,
            modified_ns=status.st_mtime_ns,
            sha256=sha256,
            imported_at=time.time(),
            published=any(file.sha256 == sha256 for file in spec.files),
        )
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2).decode()
        write_atomically(self._models_dir / f"{spec.id}--{quantization}.json", text + "\n")
        return manifest


def demo_file() -> Path:
    """Return where the packaged demo model lies (it may be absent from a source tree)."""
    return Path(str(resources.files("hymt_local") / "data" / "demo" / "hymt-demo-Q8_0.gguf"))


def file_sha256(path: Path, *, on_progress: Callable[[int, int], None] | None = None) -> str:
    """Return the hex sha256 of a file, read in pieces.

    Raises:
        ModelFileError: the file cannot be read.
    """
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
        return msgspec.json.decode(file.read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(
            f"the model manifest {file} cannot be read: {error}",
            hint="delete it and import the model again; the model file itself is not touched",
        ) from error


def _test_engine(spec: ModelSpec) -> InstalledModel:
    return InstalledModel(spec=spec, quantization="none", path=None, fingerprint=spec.id, published=True)


def _check_unchanged(model: InstalledModel, manifest: Manifest | None) -> None:
    if model.path is None:
        return
    try:
        status = model.path.stat()
    except OSError as error:
        raise ModelFileError(
            f"the file of {model.ref} is gone: {model.path}", hint="import it again: `hymt models import FILE`"
        ) from error
    if manifest and (status.st_size, status.st_mtime_ns) != (manifest.size_bytes, manifest.modified_ns):
        raise ModelFileError(
            f"the file of {model.ref} has changed since it was imported: {model.path}",
            hint="import it again: `hymt models import FILE`",
        )


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
    for file in spec.files:
        if file.sha256 == sha256:
            return file.quantization
    in_header = header.metadata.get("general.file_type")
    if isinstance(in_header, int) and in_header in FILE_TYPES:
        return FILE_TYPES[in_header]
    in_name = re.search(r"(?i)(?<![a-z0-9])((?:i?q\d[a-z0-9_]*)|bf16|f16|f32)(?=\.gguf$)", header.path.name)
    return in_name.group(1).upper() if in_name else "unknown"


def _adopt(path: Path, models_dir: Path, *, name: str) -> Path:
    """Hard-link the file into the models folder; where links are impossible it stays where it is."""
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot create {models_dir}: {error.strerror or error}", hint="check permissions, or set HYMT_HOME"
        ) from error
    target = models_dir / name
    if target.exists():
        return target  # the name holds the hash: it is the same content
    try:
        os.link(path, target)
    except OSError:
        return path
    return target
