"""The web page at work, in a headless Chromium: every test watches that nothing is loaded from elsewhere."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

from hymt_local.engine.scripted import Hang, cut, reply
from tests.server.serving import TOKEN, Served, serving
from tests.services import scripted_service

pytestmark = pytest.mark.browser

DONE = re.compile("^Done")
PATIENCE_MS = 20_000
OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def playwright_driver() -> Iterator[Playwright]:
    with sync_playwright() as driver:
        expect.set_options(timeout=PATIENCE_MS)
        yield driver


@pytest.fixture(scope="module")
def browser(playwright_driver: Playwright) -> Iterator[Browser]:
    """The system's Chromium, or what playwright has installed for itself."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    arguments = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    browser = playwright_driver.chromium.launch(executable_path=program, args=arguments)
    yield browser
    browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open the page of a server, handed over as `hymt web` does it; at the end look at what went wrong in it."""
    contexts, faults = [], list[str]()

    def note(fault: str, *, when: bool) -> None:
        if when:
            faults.append(fault)

    def open_it(
        served: Served, *, width: int = 1280, height: int = 800, is_dark: bool = False, key: bool = True
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if is_dark else "light",
            locale="fr-FR",
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        origin = f"http://127.0.0.1:{served.port}/"
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: note(message.text, when="Content Security" in message.text))
        page.on("request", lambda request: note(request.url, when=not request.url.startswith((origin, "blob:"))))
        fragment = f"#code={served.ask('POST', '/v1/handover').json['code']}" if key else ""
        page.goto(origin + fragment)
        if key:
            expect(page.locator("#target-lang-name")).not_to_have_text("…")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def page(demo_served: Served, open_page: OpenPage) -> Page:
    return open_page(demo_served)


@contextmanager
def scripted(*script: object) -> Iterator[Served]:
    service, _ = scripted_service(*script)  # type: ignore[arg-type]
    with serving(service) as served:
        yield served


def translate(page: Page, text: str) -> None:
    page.fill("#source", text)
    page.keyboard.press("Control+Enter")


def choose(page: Page, shortcut: str, name: str) -> None:
    page.keyboard.press(shortcut)
    page.fill("#picker-search", name)
    page.keyboard.press("Enter")


def test_a_text_is_translated_while_it_is_typed(page: Page) -> None:
    page.locator("#source").press_sequentially("Good morning.\nThank you very much.")
    expect(page.locator("#target p")).to_have_text(["Bonjour.", "Merci beaucoup."])
    expect(page.locator("#status")).to_have_text(DONE)
    expect(page.locator("#source-lang-name")).to_have_text("English")
    expect(page.locator("#detected")).to_have_text(re.compile("detected"))
    expect(page.locator("#model")).to_contain_text("demo")


def test_the_code_is_good_once_and_the_key_lives_in_the_tab_alone(page: Page, demo_served: Served) -> None:
    assert "#" not in page.url
    assert page.evaluate("Object.keys(localStorage)") == []
    assert page.evaluate("sessionStorage.getItem('hymt.key')") != TOKEN
    page.reload()
    expect(page.locator("#target-lang-name")).to_have_text("French")
    expect(page.locator("#connect")).to_be_hidden()


def test_without_a_key_it_asks_for_one_and_takes_it(demo_served: Served, open_page: OpenPage) -> None:
    page = open_page(demo_served, key=False)
    expect(page.locator("#connect")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#connect")).to_be_visible()
    page.fill("#connect-key", "wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#connect-fault")).to_contain_text("not valid")
    page.fill("#connect-key", TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("#connect")).to_be_hidden()
    expect(page.locator("#target-lang-name")).to_have_text("French")


def test_an_old_code_is_told(demo_served: Served, open_page: OpenPage) -> None:
    page = open_page(demo_served, key=False)
    page.goto(page.url + "?again#code=used")
    expect(page.locator("#connect-fault")).to_contain_text("code")


def test_a_language_is_found_by_any_of_its_names(page: Page) -> None:
    for name in ("العربية", "arab", "阿拉伯语", "ar"):
        page.keyboard.press("Alt+t")
        page.fill("#picker-search", name)
        expect(page.locator("#picker-list li").first).to_contain_text("Arabic")
        page.keyboard.press("Escape")
        expect(page.locator("#picker")).to_be_hidden()
    choose(page, "Alt+t", "arab")
    page.keyboard.press("Alt+t")
    expect(page.locator("#picker-list .group").first).to_have_text("Recent")
    page.fill("#picker-search", "klingon")
    expect(page.locator("#picker-empty")).to_be_visible()


def test_each_paragraph_of_a_translation_finds_its_own_direction(page: Page) -> None:
    choose(page, "Alt+t", "ar")
    expect(page.locator("#target-lang-name")).to_have_text("Arabic")
    translate(page, "Good morning.\n12")
    expect(page.locator("#target p")).to_have_text(["صباح الخير.", "12"])
    directions = "all => all.map(line => getComputedStyle(line).direction)"
    assert page.locator("#target p").evaluate_all(directions) == ["rtl", "ltr"]
    expect(page.locator("#target")).to_have_attribute("lang", "ar")


def test_swapping_turns_text_and_languages_round(page: Page) -> None:
    translate(page, "Good morning.")
    expect(page.locator("#status")).to_have_text(DONE)
    page.keyboard.press("Alt+x")
    expect(page.locator("#source")).to_have_value("Bonjour.")
    expect(page.locator("#source-lang-name")).to_have_text("French")
    expect(page.locator("#target-lang-name")).to_have_text("English")
    expect(page.locator("#target p")).to_have_text(re.compile("Good morning|Hello"))


def test_stopping_and_typing_on_free_the_engine(open_page: OpenPage) -> None:
    hangs = [Hang(), Hang(), Hang()]
    with scripted(hangs[0], hangs[1], hangs[2], reply("Quatre.")) as served:
        page = open_page(served)
        choose(page, "Alt+s", "en")
        for hang, stop in zip(hangs, ("Escape", "button", "typing"), strict=True):
            translate(page, f"Stopped by {stop}.")
            assert hang.started.wait(10)
            expect(page.locator("#translate-label")).to_have_text("Stop")
            if stop != "typing":
                page.keyboard.press("Escape") if stop == "Escape" else page.click("#translate")
                expect(page.locator("#status")).to_have_text("Stopped")
                expect(page.locator("#translate-label")).to_have_text("Translate")
        translate(page, "Four.")
        expect(page.locator("#target p")).to_have_text("Quatre.")


def test_a_part_that_failed_is_marked_and_stays_source_text(open_page: OpenPage) -> None:
    with scripted(reply("Un."), cut("Deu")) as served:
        page = open_page(served)
        choose(page, "Alt+s", "en")
        translate(page, "One.\nTwo.")
        expect(page.locator("#target p")).to_have_text(["Un.", "Two."])
        expect(page.locator("#target .failed")).to_have_text("Two.")
        expect(page.locator("#target .failed")).to_have_attribute("title", re.compile("Not translated"))
        expect(page.locator("#status")).to_contain_text("1 part was not translated: ")


def test_a_refusal_says_what_to_do(page: Page) -> None:
    translate(page, "Quantum flux.")
    expect(page.locator("#alert")).to_be_visible()
    expect(page.locator("#alert")).to_contain_text("hymt models")
    page.click("#alert-close")
    expect(page.locator("#alert")).to_be_hidden()


def test_a_server_that_is_gone_is_told(open_page: OpenPage) -> None:
    with scripted(reply("Un.")) as served:
        page = open_page(served)
        choose(page, "Alt+s", "en")
    translate(page, "One.")
    expect(page.locator("#alert")).to_contain_text("does not answer")
    expect(page.locator("#translate-label")).to_have_text("Translate")


def test_what_people_and_models_write_is_never_markup(loud_served: Served, open_page: OpenPage) -> None:
    page = open_page(loud_served)
    text = "<img src=x onerror=alert(1)> <b>bold</b> &amp;"
    choose(page, "Alt+s", "en")
    translate(page, text)
    expect(page.locator("#status")).to_have_text(DONE)
    assert page.locator("#target img, #target b").count() == 0
    assert "BOLD" in (page.locator("#target").text_content() or "")
    page.keyboard.press("Alt+h")
    expect(page.locator("#history-list .from")).to_have_text(text)


def test_the_history_brings_a_text_back_and_is_cleared(page: Page) -> None:
    translate(page, "Good morning.")
    expect(page.locator("#status")).to_have_text(DONE)
    page.click("#clear")
    expect(page.locator("#target")).to_be_empty()
    translate(page, "Thank you very much.")
    expect(page.locator("#status")).to_have_text(DONE)
    page.keyboard.press("Alt+h")
    expect(page.locator("#history-list li")).to_have_count(2)
    page.locator("#history-list button").nth(1).click()
    expect(page.locator("#source")).to_have_value("Good morning.")
    expect(page.locator("#target p")).to_have_text("Bonjour.")
    page.reload()
    page.keyboard.press("Alt+h")
    page.click("#history-clear")
    expect(page.locator("#history-empty")).to_be_visible()
    assert page.evaluate("sessionStorage.getItem('hymt.history')") == "[]"


def test_copying_takes_the_whole_translation(page: Page) -> None:
    translate(page, "Good morning.\n\nThank you very much.\n")
    expect(page.locator("#status")).to_have_text(DONE)
    page.keyboard.press("Alt+c")
    expect(page.locator("#status")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "Bonjour.\n\nMerci beaucoup.\n"


def test_everything_is_reached_by_keys_and_the_list_says_how(page: Page) -> None:
    page.keyboard.press("F1")
    expect(page.locator("#keys-list")).to_contain_text("Swap languages")
    page.keyboard.press("Escape")
    page.keyboard.press("Alt+2")
    expect(page.locator("#target")).to_be_focused()
    page.keyboard.press("Alt+1")
    expect(page.locator("#source")).to_be_focused()
    with page.expect_file_chooser():
        page.keyboard.press("Alt+o")


def test_the_theme_follows_the_system_until_one_is_chosen(demo_served: Served, open_page: OpenPage) -> None:
    page = open_page(demo_served, is_dark=True)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.click("#theme")
    expect(page.locator("#theme-name")).to_have_text("Theme: light")
    assert page.evaluate(ground) != dark
    page.reload()
    expect(page.locator("#theme-name")).to_have_text("Theme: light")
    page.click("#theme")
    assert page.evaluate(ground) == dark


def test_nothing_is_cut_off_or_too_small_to_touch(demo_served: Served, open_page: OpenPage) -> None:
    page = open_page(demo_served)
    choose(page, "Alt+t", "zh-Hant")
    choose(page, "Alt+s", "zh-Hant")
    page.fill("#source", "Antidisestablishmentarianism" * 20)
    boxes = "all => all.map(each => each.getBoundingClientRect().toJSON())"
    for width in (320, 414, 768, 1280):
        page.set_viewport_size({"width": width, "height": 640})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for box in page.locator("button:visible").evaluate_all(boxes):
            assert box["width"] >= 40
            assert box["height"] >= 40
            assert 0 <= box["left"] <= box["right"] <= width


def test_a_phone_shows_the_names_of_the_languages_in_full(demo_served: Served, open_page: OpenPage) -> None:
    page = open_page(demo_served, width=390, height=844)
    translate(page, "Good morning.")
    expect(page.locator("#detected")).to_have_text("detected")
    for name in ("#source-lang-name", "#detected", "#target-lang-name"):
        assert page.locator(name).evaluate("each => each.scrollWidth <= each.clientWidth")


def test_a_long_text_grows_the_page_and_hides_nothing(loud_served: Served, open_page: OpenPage) -> None:
    page = open_page(loud_served, width=360, height=640)
    choose(page, "Alt+s", "en")
    translate(page, "\n".join(f"line number {number}" for number in range(120)))
    expect(page.locator("#target p").last).to_have_text("LINE NUMBER 119")
    page.locator("#target p").last.scroll_into_view_if_needed()
    expect(page.locator("#target p").last).to_be_in_viewport()
    expect(page.locator("#source-lang")).to_be_in_viewport()


def test_a_document_is_sent_followed_and_saved(loud_served: Served, open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(loud_served)
    choose(page, "Alt+s", "en")
    good, bad = tmp_path / "note <b>.txt", tmp_path / "image.xyz"
    good.write_text("one\n\ntwo\n", encoding="utf-8")
    bad.write_bytes(bytes(range(256)))
    page.set_input_files("#file", [good, bad])
    expect(page.locator(".document")).to_have_count(2)
    done = page.locator(".document", has_text="note <b>.txt")
    expect(done.locator(".state")).to_have_text("Done")
    with page.expect_download() as download:
        done.get_by_role("link", name="Save").click()
    assert download.value.suggested_filename.endswith(".fr.txt")
    assert download.value.path().read_text(encoding="utf-8") == "ONE\n\nTWO\n"
    refused = page.locator(".document.failed")
    expect(refused).to_contain_text("image.xyz")
    refused.get_by_role("button").click()
    expect(page.locator(".document")).to_have_count(1)
