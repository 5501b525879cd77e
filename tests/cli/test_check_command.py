from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from hymt_local.bilingual import read_bilingual
from hymt_local.errors import DocumentError
from tests.cli.conftest import RunHymt

CATALOGUE = """\
msgid ""
msgstr ""
"Language: fr\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n > 1);\\n"

#, python-format
msgid "%(user)s has saved the file."
msgstr "%(utilisateur)s a enregistré le fichier."

#, c-format
msgid "%d file was found in the folder."
msgid_plural "%d files were found in the folder."
msgstr[0] "Un fichier a été trouvé dans le dossier."
msgstr[1] "%d fichiers ont été trouvés dans le dossier."

#, fuzzy
msgid "Open"
msgstr "Fermer %s"

msgid "Close"
msgstr ""

msgid "Good\\n"
msgstr "Bon"
"""


def test_p_8_a_catalogue_is_checked_message_by_message(hymt_here: RunHymt, tmp_path: Path) -> None:
    path = tmp_path / "fr.po"
    path.write_text(CATALOGUE, encoding="utf-8")
    done = hymt_here("check", str(path))
    assert done.status == 0
    assert f"{path}:line 8: error [placeholder]" in done.text
    assert f"{path}:line 24: error [newline]" in done.text
    assert "4 translations from en to fr, 2 errors, 0 warnings" in done.text
    assert hymt_here("check", str(path), "--strict").status == 1
    assert hymt_here("check", str(path), "--strict", "--ignore", "placeholder", "--ignore", "newline").status == 0


def test_p_8_a_table_is_checked_and_json_tells_all(hymt_here: RunHymt, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(
        "source\ttarget\n"
        "Save the file now.\tBitte speichern Sie {x} jetzt.\n"
        "Open the door.\tÖffnen Sie die Tür.\n"
        "Open the door.\tMachen Sie die Tür auf.\n"
        "Not yet\t\n",
        encoding="utf-8",
    )
    report = json.loads(hymt_here("check", str(path), "-f", "en", "-t", "German", "--json").out)["files"][0]
    assert (report["translations"], report["untranslated"], report["errors"], report["warnings"]) == (3, 1, 1, 1)
    assert report["target_lang"] == "de"
    first, second = report["findings"]
    assert (first["location"], first["code"], first["severity"]) == ("line 2", "placeholder", "error")
    assert first["target"][slice(*first["span"])] == "{x}"
    assert (second["location"], second["code"]) == ("line 4", "inconsistent")


def test_p_8_two_texts_are_compared_line_by_line(hymt_here: RunHymt, tmp_path: Path) -> None:
    source, target = tmp_path / "en.txt", tmp_path / "fr.txt"
    source.write_bytes(b"The weather is fine today.\nIt costs 1200 dollars.\n")
    target.write_bytes("Il fait beau aujourd'hui.\nÇa coûte 1300 dollars.\n".encode())
    done = hymt_here("check", "--texts", str(source), str(target), "--strict")
    assert done.status == 1
    assert "line 2: warning [number]" in done.text
    target.write_bytes(b"Il fait beau.\n")
    assert hymt_here("check", "--texts", str(source), str(target)).status == 5


def test_what_cannot_be_checked_is_refused(hymt_here: RunHymt, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"only one language")
    assert hymt_here("check", str(path)).status == 5
    assert hymt_here("check", str(tmp_path / "absent.po")).status == 5
    assert hymt_here("check", "--texts", str(path)).status == 2
    path.with_suffix(".tsv").write_bytes(b"one column\n")
    assert hymt_here("check", str(path.with_suffix(".tsv"))).status == 5


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("broken.po", b'msgid "a\n', "line 1 is not gettext"),
        ("one.tsv", b"only\n", "line 1 has one column"),
        ("latin.csv", b"caf\xe9,x\n", "byte 3 (0xe9) is not valid UTF-8"),
    ],
)
def test_the_file_that_cannot_be_checked_is_named(
    hymt_here: RunHymt, tmp_path: Path, name: str, data: bytes, reason: str
) -> None:
    (tmp_path / "fine.tsv").write_bytes(b"One\tUn\n")
    (tmp_path / name).write_bytes(data)
    done = hymt_here("check", "-t", "fr", str(tmp_path / "fine.tsv"), str(tmp_path / name))
    assert (done.status, done.out) == (5, b"")
    assert done.err.startswith(f"error: {tmp_path / name}: {reason}")


@pytest.mark.parametrize("kind", ["device", "folder", "endless link", "long name"])
def test_what_is_no_file_is_not_read(hymt_here: RunHymt, tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("n" * 300 + ".po" if kind == "long name" else "x.po")
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "endless link":
        path.symlink_to(path)
    done = hymt_here("check", "-t", "fr", str(path))
    assert (done.status, done.out) == (5, b"")
    assert str(path) in done.err


def test_what_a_command_writes_can_be_checked(hymt_here: RunHymt, tmp_path: Path) -> None:
    pipe = tmp_path / "table.tsv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"One\tUn\n",))
    writer.start()
    done = hymt_here("check", "-t", "fr", str(pipe))
    writer.join()
    assert done.status == 0
    assert b": 1 translation from" in done.out


def test_a_quoted_table_is_read_as_spreadsheets_write_it() -> None:
    text = read_bilingual('"Say ""hi"", please","Dites « salut »"\r\nBye,Au revoir\r\n'.encode(), "x.csv")
    assert [(unit.source, unit.target) for unit in text.units] == [
        ('Say "hi", please', "Dites « salut »"),
        ("Bye", "Au revoir"),
    ]


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"a\tb\n\xff\n"])
def test_undecodable_tables_are_refused(data: bytes) -> None:
    with pytest.raises(DocumentError) as refused:
        read_bilingual(data, "x.tsv")
    assert "hymt file" not in refused.value.hint, "that is another command"


@pytest.mark.parametrize("name", ["django-core.de", "django-core.ar", "django-core.ja", "django-admin.pl"])
def test_p_8_published_catalogues_have_few_faults(shared_data: Path, hymt_here: RunHymt, name: str) -> None:
    report = json.loads(hymt_here("check", str(shared_data / "po" / f"{name}.po"), "--json").out)["files"][0]
    assert report["translations"] > 100
    assert report["errors"] <= 3
    assert report["warnings"] <= 0.05 * report["translations"]
