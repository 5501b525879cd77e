"""The model store: what is imported, what a reference means, and what bad files and manifests cannot do to it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hymt_local import installed
from hymt_local.catalog import Catalog, load_catalog
from hymt_local.errors import HymtError, ModelFileError, ModelNotFoundError, StoreError, UnsupportedModelError
from hymt_local.installed import ModelStore, file_sha256
from hymt_local.paths import Paths
from tests.toy_models import ToyModel, write_toy_model

ANY_ID = "Hunyuan-MT-7B"
OTHER_ID = "Hy-MT2-1.8B"
CATALOG = load_catalog()


@pytest.fixture
def store(paths: Paths, toy: Path) -> ModelStore:
    """A store whose catalog says of the packaged demo that it is as large as `toy`."""
    (published,) = CATALOG.get("demo").files
    file = msgspec.structs.replace(published, size_bytes=toy.stat().st_size)
    demo = msgspec.structs.replace(CATALOG.get("demo"), files=(file,))
    return ModelStore(paths, Catalog(tuple(demo if spec.id == "demo" else spec for spec in CATALOG.models)))


@pytest.fixture(scope="session")
def toy_bytes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """Two files with the same header and other weights."""
    folder = tmp_path_factory.mktemp("toys")
    return {seed: write_toy_model(folder / f"{seed}.gguf", ToyModel(seed=seed)).read_bytes() for seed in (0, 1)}


@pytest.fixture
def toy(tmp_path: Path, toy_bytes: dict[int, bytes]) -> Path:
    file = tmp_path / "toy.gguf"
    file.write_bytes(toy_bytes[0])
    return file


@pytest.fixture
def other_toy(tmp_path: Path, toy_bytes: dict[int, bytes]) -> Path:
    file = tmp_path / "other.gguf"
    file.write_bytes(toy_bytes[1])
    return file


@pytest.fixture
def packaged(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `toy` stand for the packaged demo."""
    monkeypatch.setattr(installed, "demo_file", lambda: toy)


@pytest.fixture
def no_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "demo_file", lambda: tmp_path / "absent")


# Importing


def test_an_imported_file_is_a_hard_link_in_the_models_folder(store: ModelStore, paths: Paths, toy: Path) -> None:
    model = store.import_file(toy, as_id=ANY_ID)
    assert model.path is not None
    assert model.path.samefile(toy)
    assert model.path.parent == paths.models_dir
    assert model.ref == "Hunyuan-MT-7B:F32"
    assert model.fingerprint == file_sha256(toy)
    assert model.size_bytes == toy.stat().st_size
    assert store.resolve(model.ref) == model
    assert sorted(file.suffix for file in paths.models_dir.iterdir()) == [".gguf", ".json"]


def test_the_original_may_be_renamed_or_deleted_afterwards(store: ModelStore, toy: Path) -> None:
    model = store.import_file(toy, as_id=ANY_ID)
    toy.unlink()
    assert store.resolve(ANY_ID) == model


def test_where_links_are_impossible_the_file_is_used_where_it_lies(
    store: ModelStore, paths: Paths, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    model = store.import_file(toy, as_id=ANY_ID)
    assert model.path == toy
    assert [file.suffix for file in paths.models_dir.iterdir()] == [".json"]
    assert store.resolve(ANY_ID) == model


def test_a_file_named_relatively_is_found_from_any_folder(
    store: ModelStore, toy: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(18, "cross-device")))
    monkeypatch.chdir(toy.parent)
    store.import_file(Path(toy.name), as_id=ANY_ID)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert store.resolve(ANY_ID).path == toy


def test_importing_a_file_twice_changes_nothing_but_its_date(store: ModelStore, paths: Paths, toy: Path) -> None:
    first = store.import_file(toy, as_id=ANY_ID)
    before = sorted(paths.models_dir.iterdir())
    second = store.import_file(toy, as_id=ANY_ID)
    assert (second.path, second.fingerprint) == (first.path, first.fingerprint)
    assert second.imported_at >= first.imported_at
    assert sorted(paths.models_dir.iterdir()) == before


def test_a_file_that_lies_in_the_models_folder_already_is_registered_there(
    store: ModelStore, paths: Paths, toy: Path
) -> None:
    paths.models_dir.mkdir(parents=True)
    file = toy.rename(paths.models_dir / "mine.gguf")
    model = store.import_file(file, as_id=ANY_ID)
    assert model.path == file
    assert store.import_file(file, as_id=ANY_ID).path == file


def test_another_file_takes_the_place_of_the_first_without_leaving_its_link(
    store: ModelStore, paths: Paths, toy: Path, other_toy: Path
) -> None:
    store.import_file(toy, as_id=ANY_ID)
    model = store.import_file(other_toy, as_id=ANY_ID)
    assert model.fingerprint == file_sha256(other_toy)
    assert [m.ref for m in store.list() if m.spec.kind == "translation"] == ["Hunyuan-MT-7B:F32"]
    assert len(list(paths.models_dir.glob("*.gguf"))) == 1
    assert toy.is_file()


def test_the_last_link_to_a_replaced_file_is_not_deleted(
    store: ModelStore, paths: Paths, toy: Path, other_toy: Path
) -> None:
    first = store.import_file(toy, as_id=ANY_ID).path
    toy.unlink()
    store.import_file(other_toy, as_id=ANY_ID)
    assert first is not None
    assert first.is_file()


def test_a_file_overwritten_in_place_and_imported_again_is_the_new_one(
    store: ModelStore, toy: Path, toy_bytes: dict[int, bytes]
) -> None:
    store.import_file(toy, as_id=ANY_ID)
    toy.write_bytes(toy_bytes[1])  # the link in the models folder changes with it
    store.import_file(toy, as_id=ANY_ID)
    toy.unlink()
    toy.write_bytes(toy_bytes[0])
    model = store.import_file(toy, as_id=ANY_ID)
    assert model.path is not None
    assert model.path.read_bytes() == toy_bytes[0]
    assert store.resolve(ANY_ID) == model


def test_progress_reaches_the_total(store: ModelStore, toy: Path) -> None:
    seen: list[tuple[int, int]] = []
    store.import_file(toy, as_id=ANY_ID, on_progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (toy.stat().st_size, toy.stat().st_size)


# Telling which model a file is


def test_a_published_file_is_known_by_its_hash_whatever_its_name(paths: Paths, toy: Path) -> None:
    paths.config_dir.mkdir(parents=True)
    paths.catalog_file.write_text(
        f"""
        schema = 1
        [[models]]
        id = "Mine"
        title = "Mine"
        family = "dense-7B"
        template_set = "mt1"
        licence = "Apache-2.0"
        name_patterns = ["never"]
        [[models.files]]
        quantization = "Q4_K_M"
        name = "mine.gguf"
        sha256 = "{file_sha256(toy)}"
        """
    )
    model = ModelStore(paths, load_catalog(paths.catalog_file)).import_file(toy)
    assert (model.ref, model.published) == ("Mine:Q4_K_M", True)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Hunyuan-MT-7B-q8_0.gguf", "Hunyuan-MT-7B"),
        ("hunyuan-mt-chimera-7b.Q4_K_M.gguf", "Hunyuan-MT-Chimera-7B"),
        ("HY-MT1.5-1.8B-Q4_K_M.gguf", "HY-MT1.5-1.8B"),
        ("Hy-MT2-7B-Q6_K.gguf", "Hy-MT2-7B"),
    ],
)
def test_an_unpublished_file_is_known_by_its_name(store: ModelStore, toy: Path, name: str, found: str) -> None:
    model = store.import_file(toy.rename(toy.with_name(name)))
    assert (model.spec.id, model.quantization, model.published) == (found, "F32", False)


def test_a_file_that_nothing_identifies_asks_for_a_name(store: ModelStore, paths: Paths, toy: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"cannot tell which model toy\.gguf is") as caught:
        store.import_file(toy)
    assert "--as ID" in caught.value.hint
    assert not paths.models_dir.exists()


@pytest.mark.parametrize(("as_id", "said"), [("Hy-MT2-30B-A3B", "hy_v3"), ("echo", "echo"), ("pseudo", "pseudo")])
def test_a_name_of_another_architecture_is_refused(
    store: ModelStore, paths: Paths, toy: Path, as_id: str, said: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        store.import_file(toy, as_id=as_id)
    assert not paths.models_dir.exists()


def test_an_unknown_name_is_refused(store: ModelStore, toy: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="unknown model 'Hunyuan-MT-8B'") as caught:
        store.import_file(toy, as_id="Hunyuan-MT-8B")
    assert "Hunyuan-MT-7B" in caught.value.hint


# What a reference means


@pytest.mark.usefixtures("no_demo")
def test_without_any_model_the_default_is_a_clear_error(store: ModelStore) -> None:
    with pytest.raises(ModelNotFoundError, match="no model is installed"):
        store.resolve(None)
    assert [model.ref for model in store.list()] == ["echo", "pseudo"]


@pytest.mark.usefixtures("packaged")
def test_the_demo_is_the_default_until_a_real_model_comes(store: ModelStore, other_toy: Path) -> None:
    assert store.resolve(None).ref == "demo"
    store.import_file(other_toy, as_id=ANY_ID)
    assert store.resolve(None).ref == "Hunyuan-MT-7B:F32"
    assert store.resolve("demo").spec.kind == "demo"


@pytest.mark.usefixtures("packaged")
def test_an_imported_demo_never_beats_a_real_model(store: ModelStore, toy: Path, other_toy: Path) -> None:
    store.import_file(other_toy, as_id=ANY_ID)
    store.import_file(toy, as_id="demo")
    assert store.resolve(None).ref == "Hunyuan-MT-7B:F32"
    assert store.resolve("demo").ref == "demo"


def test_the_newest_import_is_the_default(store: ModelStore, toy: Path, other_toy: Path) -> None:
    store.import_file(toy, as_id=ANY_ID)
    store.import_file(other_toy, as_id=OTHER_ID)
    assert store.resolve(None).spec.id == OTHER_ID
    store.import_file(toy, as_id=ANY_ID)
    assert store.resolve(None).spec.id == ANY_ID


def test_references_are_read_in_any_case_and_with_or_without_quantization(store: ModelStore, toy: Path) -> None:
    model = store.import_file(toy, as_id=ANY_ID)
    for ref in ("Hunyuan-MT-7B", "hunyuan-mt-7b", "HUNYUAN-MT-7B:f32", "Hunyuan-MT-7B:F32"):
        assert store.resolve(ref) == model


@pytest.mark.parametrize("ref", ["Hunyuan-MT-7B:Q9_Z", "Hy-MT2-7B", "Hy-MT2-7B:Q4_K_M"])
def test_a_model_of_the_catalog_that_is_not_here_says_so(store: ModelStore, toy: Path, ref: str) -> None:
    store.import_file(toy, as_id=ANY_ID)
    with pytest.raises(ModelNotFoundError, match=f"model {ref} is not installed"):
        store.resolve(ref)


def test_a_path_is_no_reference_and_the_hint_says_what_to_do(store: ModelStore, toy: Path) -> None:
    for ref in (str(toy), "absent.gguf", str(toy.parent), "/no/such/file", "./here", "~/there"):
        with pytest.raises(ModelNotFoundError, match="is a file, not a model reference") as caught:
            store.resolve(ref)
        assert "hymt models import" in caught.value.hint
    with pytest.raises(ModelNotFoundError, match="unknown model 'tencent/Hy-MT2-7B'") as caught:
        store.resolve("tencent/Hy-MT2-7B")
    assert "Hy-MT2-7B" in caught.value.hint


@given(ref=st.text(max_size=40) | st.sampled_from(["", ":", "demo:", ":Q4", "echo:none", "x\0y", "a/" * 3000]))
def test_any_reference_resolves_or_is_a_model_error(tmp_path_factory: pytest.TempPathFactory, ref: str) -> None:
    store = ModelStore(Paths.under(tmp_path_factory.getbasetemp() / "empty-home"), CATALOG)
    found: int | str
    try:
        found = store.resolve(ref).ref
    except HymtError as error:
        found = error.exit_status
    assert found in {"demo", "echo", "pseudo", 3}


# What can happen to files and manifests


def test_a_file_that_is_gone_is_named(store: ModelStore, toy: Path) -> None:
    path = store.import_file(toy, as_id=ANY_ID).path
    assert path is not None
    path.unlink()
    with pytest.raises(ModelFileError, match="Hunyuan-MT-7B:F32 is gone") as caught:
        store.resolve(None)
    assert "models import" in caught.value.hint
    assert store.list()[0].spec.id == ANY_ID


@pytest.mark.parametrize(("n_bytes", "n_nanoseconds"), [(1, 0), (0, 1)])
def test_a_file_that_has_changed_is_not_used(store: ModelStore, toy: Path, n_bytes: int, n_nanoseconds: int) -> None:
    path = store.import_file(toy, as_id=ANY_ID).path
    assert path is not None
    before = path.stat()
    os.truncate(path, before.st_size + n_bytes)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + n_nanoseconds))
    with pytest.raises(ModelFileError, match="the file of Hunyuan-MT-7B:F32 has changed") as caught:
        store.resolve(ANY_ID)
    assert "import it again" in caught.value.hint


@pytest.mark.usefixtures("packaged")
def test_a_damaged_demo_of_the_package_is_not_used(store: ModelStore, toy: Path) -> None:
    os.truncate(toy, 100)
    with pytest.raises(ModelFileError, match="the file of demo has changed") as caught:
        store.resolve("demo")
    assert caught.value.hint == "install hymt-local again"


BAD_MANIFESTS = {
    "empty": b"",
    "not JSON": b"{",
    "not UTF-8": b'{"id": "\xff"}',
    "a list": b"[]",
    "incomplete": b'{"id": "Hunyuan-MT-7B"}',
    "deep": b'{"id": ' + b"[" * 100_000,
}


@pytest.mark.usefixtures("packaged")
@pytest.mark.parametrize("data", BAD_MANIFESTS.values(), ids=BAD_MANIFESTS)
def test_a_bad_manifest_stops_only_what_it_may_concern(store: ModelStore, paths: Paths, data: bytes) -> None:
    paths.models_dir.mkdir(parents=True)
    (paths.models_dir / "Hunyuan-MT-7B--F32.json").write_bytes(data)
    assert store.resolve("echo").ref == "echo"
    assert store.resolve("demo").ref == "demo"
    assert len(store.problems()) == 1
    for ref in (None, ANY_ID):  # it may describe either: the demo must not answer in place of a real model
        with pytest.raises(StoreError, match=r"Hunyuan-MT-7B--F32\.json") as caught:
            store.resolve(ref)
        assert "delete it and import the model again" in caught.value.hint


def test_importing_again_mends_a_bad_manifest(store: ModelStore, paths: Paths, toy: Path) -> None:
    store.import_file(toy, as_id=ANY_ID)
    (paths.models_dir / "Hunyuan-MT-7B--F32.json").write_bytes(b"{")
    store.import_file(toy, as_id=ANY_ID)
    assert store.problems() == ()
    assert store.resolve(None).spec.id == ANY_ID


def test_a_manifest_of_a_model_no_longer_in_the_catalog_is_a_problem(
    store: ModelStore, paths: Paths, toy: Path
) -> None:
    store.import_file(toy, as_id=ANY_ID)
    manifest = paths.models_dir / "Hunyuan-MT-7B--F32.json"
    entry = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**entry, "id": "Vanished"}))
    with pytest.raises(StoreError, match="names no model of the catalog: unknown model 'Vanished'"):
        store.resolve(None)


@given(
    fields=st.dictionaries(
        st.sampled_from(["id", "quantization", "path", "size_bytes", "modified_ns", "sha256", "imported_at", "more"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8),
        max_size=3,
    )
)
def test_no_content_of_a_manifest_is_more_than_a_known_error(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, object]
) -> None:
    sound = {
        "id": ANY_ID, "quantization": "F32", "path": "model.gguf", "size_bytes": 1, "modified_ns": 1,
        "sha256": "0" * 64, "imported_at": 1.0, "published": False,
    }  # fmt: skip
    paths = Paths.under(tmp_path_factory.getbasetemp() / "any-manifest")
    paths.models_dir.mkdir(parents=True, exist_ok=True)
    (paths.models_dir / "any.json").write_text(json.dumps({**sound, **fields}))
    store = ModelStore(paths, CATALOG)
    store.list()
    with pytest.raises(HymtError):  # at best the file is gone
        store.resolve(ANY_ID)


def test_a_models_folder_that_cannot_be_made_is_a_store_error(store: ModelStore, paths: Paths, toy: Path) -> None:
    paths.data_dir.write_text("in the way")
    with pytest.raises(StoreError, match="cannot create"):
        store.import_file(toy, as_id=ANY_ID)
    assert [model.ref for model in store.list() if model.spec.kind == "test"] == ["echo", "pseudo"]


def test_a_manifest_that_cannot_be_written_leaves_no_link(
    store: ModelStore, paths: Paths, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        store.import_file(toy, as_id=ANY_ID)
    assert list(paths.models_dir.iterdir()) == []
    assert toy.is_file()


def test_a_path_that_is_not_utf8_is_refused_where_it_must_be_recorded(
    store: ModelStore, paths: Paths, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = toy.rename(toy.with_name(os.fsdecode(b"mod\xe8le.gguf")))
    assert store.import_file(named, as_id=ANY_ID).path != named  # a link has a name of ours
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(18, "cross-device")))
    with pytest.raises(ModelFileError, match="not valid UTF-8"):
        store.import_file(named, as_id=OTHER_ID)
    assert named.is_file()
    assert not any(OTHER_ID in file.name for file in paths.models_dir.iterdir())
