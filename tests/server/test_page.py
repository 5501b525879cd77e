"""The web page as files: what it may load, and that its parts fit together."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from tests.server.serving import Served

FOLDER = resources.files("hymt_local.server").joinpath("page")
FILES = {entry.name: entry.read_text(encoding="utf-8") for entry in FOLDER.iterdir()}
PAGE = FILES["index.html"]
SCRIPTS = {name: text for name, text in FILES.items() if name.endswith(".js")}


def test_the_page_and_its_parts_need_no_token_and_may_load_nothing_from_elsewhere(demo_served: Served) -> None:
    for path in ("/", *(f"/page/{name}" for name in FILES)):
        answer = demo_served.ask("GET", path, token=None)
        assert answer.status == 200, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert demo_served.ask("GET", "/page/page.js", token=None).headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "path", ["/page/", "/page/../app.py", "/page/%2e%2e/app.py", "/page/nothing.js", "/index.html"]
)
def test_nothing_else_is_served(demo_served: Served, path: str) -> None:
    assert demo_served.ask("GET", path).status == 404


@pytest.mark.parametrize("name", sorted(FILES))
def test_no_file_names_an_address_outside(name: str) -> None:
    without_namespace = FILES[name].replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", without_namespace)


def test_the_page_has_no_script_style_or_handler_in_its_lines() -> None:
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", PAGE)
    for script in SCRIPTS.values():
        assert not re.search(r"innerHTML|outerHTML|document\.write|\beval\b|new Function|\.style\b", script)


def test_every_element_that_a_script_names_is_there_once() -> None:
    ids = re.findall(r'\sid="([\w-]+)"', PAGE)
    assert len(ids) == len(set(ids))
    for name, script in SCRIPTS.items():
        wanted = re.findall(r'(?:\bat|getElementById)\("([\w-]+)"\)', script)
        assert set(wanted) <= set(ids), name


def test_every_button_and_field_has_a_name() -> None:
    for button in re.findall(r"<button.*?</button>", PAGE, re.DOTALL):
        assert re.sub(r"<[^>]*>", "", button).strip(), button
    for field in re.findall(r'<(?:input|textarea)[^>]*\sid="([\w-]+)"[^>]*>', PAGE):
        is_named = re.search(rf'<label[^>]*>\s*<input[^>]*id="{field}"|for="{field}"|id="{field}"[^>]*aria-', PAGE)
        assert is_named, field


def test_shortcuts_do_not_collide_and_each_is_shown_on_its_button() -> None:
    keys = re.findall(r'\{ keys: \[([^\]]*)\], action: "(\w+)"', SCRIPTS["keys.js"])
    assert len({key for key, _ in keys}) == len(keys) > 8
    shown = "".join(re.findall(r'title="[^"]*\(([^)]*)\)"', PAGE))
    for combination, action in keys:
        if action not in {"cancel", "focusSource", "focusTarget"}:
            assert "+".join(re.findall(r'"([^"]+)"', combination)) in shown, action


def test_colours_are_readable_in_both_themes() -> None:
    """WCAG AA, 4.5:1, for every text colour on every ground that it may stand on."""
    colours = {
        name: (light, dark)
        for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", FILES["page.css"])
    }
    pairs = [(text, ground) for text in ("text", "muted") for ground in ("ground", "surface", "sunken")]
    pairs += [("on-accent", "accent"), ("on-accent", "accent-strong"), ("accent-strong", "accent-soft")]
    pairs += [("fault", "fault-soft"), ("text", "fault-soft"), ("fault", "surface"), ("accent", "surface")]
    pairs += [("muted", "accent-soft"), ("text", "accent-soft")]
    for text, ground in pairs:
        for theme in (0, 1):
            assert contrast(colours[text][theme], colours[ground][theme]) >= 4.5, (text, ground, theme)


def contrast(first: str, second: str) -> float:
    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
