"""Which files are meant, and where their translations go."""

from __future__ import annotations

from pathlib import Path

import pytest

from hymt_local.document_jobs.selection import Selection, default_target, place_targets, select
from hymt_local.errors import UsageError


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with documents, results, other files and a folder below."""
    monkeypatch.chdir(tmp_path)
    for name in (
        "docs/a.md", "docs/b.txt", "docs/c.HTML", "docs/a.fr.md", "docs/a.zh-Hant.md", "docs/photo.jpeg",
        "docs/.hidden.md", "docs/notes.v2.txt", "docs/base.pot", "docs/base.de.po", "docs/below/a.md",
        "docs/.git/x.md", "docs/empty/photo.png", "other/a.md",
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def names(selection: Selection) -> list[str]:
    return [str(each.source) for each in selection.files]


def test_a_folder_gives_its_documents_without_hidden_ones_and_results(tree: Path) -> None:
    selection = select(["docs"], is_recursive=False)
    assert names(selection) == ["docs/a.md", "docs/b.txt", "docs/base.pot", "docs/c.HTML", "docs/notes.v2.txt"]
    assert selection.n_unknown == 1


def test_recursive_takes_folders_below_and_follows_no_link(tree: Path) -> None:
    (tree / "docs" / "below" / "loop").symlink_to(tree / "docs")
    assert "docs/below/a.md" in names(select(["docs"], is_recursive=True))
    assert not any("loop" in name or ".git" in name for name in names(select(["docs"], is_recursive=True)))


def test_a_named_file_is_taken_whatever_it_is(tree: Path) -> None:
    assert names(select(["docs/photo.jpeg", "docs/a.fr.md", "gone.txt"], is_recursive=False)) == [
        "docs/photo.jpeg",
        "docs/a.fr.md",
        "gone.txt",
    ]


def test_a_pattern_is_expanded_where_the_shell_did_not(tree: Path) -> None:
    assert names(select(["docs/*.md"], is_recursive=False)) == ["docs/a.md"]
    assert names(select(["**/a.md"], is_recursive=False)) == ["docs/a.md", "docs/below/a.md", "other/a.md"]
    (tree / "docs" / "odd[1].txt").touch()
    assert names(select(["docs/odd[1].txt"], is_recursive=False)) == ["docs/odd[1].txt"]


def test_with_a_named_format_other_types_count_too(tree: Path) -> None:
    assert "docs/photo.jpeg" in names(select(["docs"], is_recursive=False, takes_all=True))


def test_a_file_that_is_named_twice_is_taken_once(tree: Path) -> None:
    assert names(select(["docs/a.md", "docs", "./docs/../docs/a.md"], is_recursive=False)).count("docs/a.md") == 1


@pytest.mark.parametrize("where", ["docs/empty", "*.md"])
def test_nothing_to_translate_is_a_usage_error(tree: Path, where: str) -> None:
    with pytest.raises(UsageError, match="there is no document in"):
        select([where], is_recursive=False)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("report.md", "report.fr.md"),
        ("a/b.tar.txt", "a/b.tar.fr.txt"),
        ("README", "README.fr"),
        (".env", ".env.fr"),
        ("messages.pot", "messages.fr.po"),
        ("Movie.SRT", "Movie.fr.SRT"),
    ],
)
def test_the_default_place_is_beside_the_source(source: str, target: str) -> None:
    assert default_target(Path(source), "fr") == Path(target)


def placed(paths: list[str], output: str | None, *, is_recursive: bool = False) -> list[str]:
    selection = select(paths, is_recursive=is_recursive)
    return [str(target) for _, target in place_targets(selection.files, target_lang="fr", output=output)]


def test_one_file_goes_where_it_is_told(tree: Path) -> None:
    assert placed(["docs/a.md"], "out.md") == ["out.md"]
    assert placed(["docs/a.md"], "out/") == ["out/a.md"]
    assert placed(["docs/a.md"], "other") == ["other/a.md"]


def test_a_folder_keeps_its_tree(tree: Path) -> None:
    assert "out/below/a.md" in placed(["docs"], "out", is_recursive=True)
    assert placed(["docs/a.md", "docs/b.txt"], "out") == ["out/a.md", "out/b.txt"]


def test_the_folder_of_the_source_as_output_gives_the_default_name(tree: Path) -> None:
    assert placed(["docs/a.md", "docs/b.txt"], "docs") == ["docs/a.fr.md", "docs/b.fr.txt"]


def test_two_documents_for_one_output_are_refused_before_anything_is_done(tree: Path) -> None:
    with pytest.raises(UsageError, match=r"docs/a.md and other/a.md would both become out/a.md"):
        placed(["docs/a.md", "other/a.md"], "out")
    (tree / "link").symlink_to("docs")
    with pytest.raises(UsageError, match="would both become"):
        placed(["docs/a.md", "link/a.md"], None)


def test_several_documents_do_not_fit_into_a_file(tree: Path) -> None:
    (tree / "out.md").touch()
    with pytest.raises(UsageError, match=r"out.md is a file, and there are 2 documents"):
        placed(["docs/a.md", "docs/b.txt"], "out.md")


@pytest.mark.parametrize("paths", [[""], ["docs", ""]])
def test_an_empty_path_is_not_this_folder(tree: Path, paths: list[str]) -> None:
    with pytest.raises(UsageError, match="an empty path"):
        select(paths, is_recursive=False)


def test_an_empty_output_is_not_the_folder_of_the_source(tree: Path) -> None:
    selection = select(["docs/a.md"], is_recursive=False)
    with pytest.raises(UsageError, match="the output is empty"):
        place_targets(selection.files, target_lang="fr", output="")


def test_names_that_are_too_long_are_left_to_whoever_opens_them(tree: Path) -> None:
    name = "n" * 300 + ".md"
    selection = select([name], is_recursive=False)
    assert names(selection) == [name]
    assert place_targets(selection.files, target_lang="fr", output=name) == [(Path(name), Path(name))]
