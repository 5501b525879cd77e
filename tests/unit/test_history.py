"""The history of translations: paged, searched, edited, and the edits that win over the phrase cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hymt_local.errors import StoreError
from hymt_local.memory import history as history_module
from hymt_local.memory.history import History, Translation
from hymt_local.memory.phrase_cache import PhraseCache
from hymt_local.paths import Paths


def a_translation(source: str, target: str = "cible", *, into: str = "fr") -> Translation:
    return Translation(source, target, "en", into, "demo")


@pytest.fixture
def history(paths: Paths) -> Iterator[History]:
    opened = History(paths.database)
    yield opened
    opened.close()


@pytest.fixture
def cache(paths: Paths) -> Iterator[PhraseCache]:
    opened = PhraseCache(paths.database)
    yield opened
    opened.close()


def test_pages_are_newest_first_and_follow_each_other_without_gap_or_repeat(history: History) -> None:
    ids = [history.add(a_translation(f"text {number}")) for number in range(7)]
    first = history.page(limit=3)
    second = history.page(before_id=first[-1].id, limit=3)
    assert [entry.id for entry in (*first, *second)] == ids[:0:-1]
    history.add(a_translation("newer"))
    assert history.page(before_id=first[-1].id, limit=3) == second


@pytest.mark.parametrize("query", ["STRASSE", "straße", " ｓｔｒａｓｓｅ ", "rue"])
def test_the_search_ignores_case_width_and_side(history: History, query: str) -> None:
    history.add(a_translation("other", "autre"))
    wanted = history.add(a_translation("Die Straße", "la Rue"))
    assert [entry.id for entry in history.page(query)] == [wanted]


@pytest.mark.parametrize("query", ["%", "_", "'", '"', "\\"])
def test_no_character_of_a_query_is_a_wildcard(history: History, cache: PhraseCache, query: str) -> None:
    history.add(a_translation("plain"))
    wanted = history.add(a_translation(f"with {query} in it"))
    cache.put("s", "plain", target="simple")
    cache.put("s", f"with {query} in it", target="avec")
    assert [entry.id for entry in history.page(query)] == [wanted]
    assert [entry.source for entry in history.cached_page(query)] == [f"with {query} in it"]


def test_two_chinese_characters_are_enough_to_search(history: History) -> None:
    wanted = history.add(a_translation("你好，世界"))
    history.add(a_translation("世人"))
    assert [entry.id for entry in history.page("世界")] == [wanted]


def test_a_later_state_of_a_text_stands_in_the_place_of_the_former(history: History) -> None:
    entry_id = history.add(a_translation("Hel"))
    history.replace(entry_id, a_translation("Hello", "Bonjour"))
    (entry,) = history.page()
    assert (entry.id, entry.source, entry.target) == (entry_id, "Hello", "Bonjour")
    assert history.page("bonj") == (entry,)


class TestAnEdit:
    def test_it_is_shown_found_and_marked(self, history: History) -> None:
        entry_id = history.add(a_translation("Hello", "Bonjour"))
        edited = history.edit(entry_id, "Salut")
        assert edited is not None
        assert (edited.target, edited.edited_at is not None) == ("Salut", True)
        assert [entry.id for entry in history.page("salut")] == [entry_id]

    def test_it_wins_for_the_same_languages_only(self, history: History, cache: PhraseCache) -> None:
        history.edit(history.add(a_translation(" Hello\n", "Bonjour\n")), "Salut\n")
        assert cache.edited("Hello", source_lang="en", target_lang="fr") == "Salut"
        assert cache.edited("Hello", source_lang="en", target_lang="de") is None
        assert cache.edited("Hello", source_lang="de", target_lang="fr") is None

    def test_only_the_changed_lines_of_a_text_win_in_other_texts(self, history: History, cache: PhraseCache) -> None:
        entry_id = history.add(a_translation("one\n\n two", "un\n\n deux"))
        history.edit(entry_id, "un\n\n DEUX")
        assert cache.edited("two", source_lang="en", target_lang="fr") == "DEUX"
        assert cache.edited("one", source_lang="en", target_lang="fr") is None

    def test_lines_that_do_not_match_teach_nothing_of_single_lines(self, history: History, cache: PhraseCache) -> None:
        history.edit(history.add(a_translation("one\ntwo", "un deux")), "un\ndeux")
        assert cache.edited("one", source_lang="en", target_lang="fr") is None

    def test_the_last_one_wins_and_deleting_the_entry_takes_it_back(self, history: History, cache: PhraseCache) -> None:
        entry_id = history.add(a_translation("Hello", "Bonjour"))
        history.edit(entry_id, "Salut")
        history.edit(entry_id, "Coucou")
        assert cache.edited("Hello", source_lang="en", target_lang="fr") == "Coucou"
        history.delete([entry_id])
        assert history.page() == ()
        assert cache.edited("Hello", source_lang="en", target_lang="fr") is None

    def test_of_an_entry_that_is_gone_it_does_nothing(self, history: History) -> None:
        assert history.edit(17, "x") is None


def test_rows_of_the_phrase_cache_are_changed_and_deleted_and_its_totals_follow(
    history: History, cache: PhraseCache
) -> None:
    cache.put("s", "one", target="un")
    cache.put("s", "two", target="deux")
    newest, oldest = history.cached_page()
    assert [newest.source, oldest.source] == ["two", "one"]
    history.edit_cached(newest.id, "DEUX")
    phrase = cache.get("s", "two")
    assert phrase is not None
    assert phrase.target == "DEUX"
    history.delete_cached([newest.id, oldest.id])
    assert cache.get("s", "two") is None
    assert cache.stats().entries == 0


def test_the_oldest_unedited_entries_go_when_there_are_too_many(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "MOST_ENTRIES", 3)
    monkeypatch.setattr(history_module, "_TRIM_EVERY", 2)
    kept = history.add(a_translation("edited"))
    history.edit(kept, "x")
    for number in range(6):
        history.add(a_translation(f"text {number}"))
    assert [entry.source for entry in history.page()][:3] == ["text 5", "text 4", "text 3"]
    assert history.page()[-1].id == kept
    assert history.count() == 4


def test_an_export_goes_through_all_pages(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(history_module.PAGE_ENTRIES + 5):
        history.add(a_translation(f"text {number}"))
    assert len(list(history.every())) == history_module.PAGE_ENTRIES + 5
    assert [entry.source for entry in history.every("text 17")] == ["text 17"]


def test_a_database_that_is_none_is_named(paths: Paths) -> None:
    paths.database.parent.mkdir(parents=True)
    paths.database.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="cannot be used"):
        History(paths.database)
