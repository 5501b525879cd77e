"""The settings view: every setting with its value, origin and meaning; validated while it is typed, written at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from hymt_local.config import (
    Layer,
    check_setting,
    setting_names,
    settings_schema,
    variable_name,
    write_atomically,
    write_setting,
)
from hymt_local.errors import HymtError
from hymt_local.sanitize import sanitize
from hymt_local.tui.environment import Environment
from hymt_local.tui.guiding import GUIDANCE_SETTINGS
from hymt_local.tui.keymap import SETTINGS_COMMANDS, bindings, every_command
from hymt_local.tui.line_input import LineInput
from hymt_local.tui.list_screen import ListRow, ListScreen, cell, fact_lines
from hymt_local.tui.status import Notice
from hymt_local.tui.steady_screen import SteadyScreen
from hymt_local.tui.views import View
from hymt_local.tui.wording import Wording

_NAME_CELLS, _VALUE_CELLS, _TIGHT_VALUE_CELLS = 18, 24, 15
LATER = frozenset(
    {
        "threads",
        "context_length",
        "gpu_layers",
        "kv_type",
        "kv_offload",
        "tensor_split",
        "flash_attention",
        "repack",
        "mlock",
        "slots",
        "deterministic",
        "memory_check",
        "resident",
        "log_level",
        "offline",
        "ui_language",
        "rtl",
    }
)
"""Settings that a running program has used already."""


class SettingsScreen(ListScreen):
    """Owns nothing: every change goes to the file and is read back. Args: what all views use; all themes there are."""

    VIEW = View.SETTINGS
    HAS_SEARCH = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(SETTINGS_COMMANDS)]

    class Changed(Message):
        """A setting was written and read back."""

    class GuidanceWanted(Message):
        """A setting was chosen that tells the model something: they are asked for together."""

    def __init__(self, environment: Environment, *, themes: Sequence[str]) -> None:
        super().__init__(environment)
        self._themes = themes
        self._schema: dict[str, Any] = settings_schema()["$defs"]["Settings"]["properties"]

    def on_mount(self) -> None:
        """Show all settings."""
        self._show_settings()
        file = self.environment.application.paths.config_file
        text = self.wording("settings.file", file=sanitize(str(file)))
        self.show_state(Content.styled(text, "$foreground-muted"))

    def on_screen_resume(self) -> None:
        """Show what was changed elsewhere, such as the theme."""
        self.refresh_settings()

    def refresh_settings(self) -> None:
        """Show the settings as they are now."""
        self._show_settings()
        self.row_shown(self.key)

    def redraw_rows(self) -> None:
        """Show name and value alone where there is no room for the origin."""
        self._show_settings()

    def search_changed(self, query: str) -> None:
        """Show the settings that are called so or mean so."""
        self._show_settings()

    # What the user does

    def row_chosen(self, key: str) -> None:
        """Turn a switch over; ask for any other value."""
        if key in GUIDANCE_SETTINGS:
            self.post_message(self.GuidanceWanted())
        elif isinstance(self._value(key), dict | tuple):  # the command line writes them
            self.show_notice(Notice(self.wording("settings.elsewhere"), is_warning=True))
        elif isinstance(self._value(key), bool):
            self._write(key, "false" if self._value(key) else "true")
        else:
            self._ask(key)

    def action_edit(self) -> None:
        """Do what enter does, from the palette."""
        if self.key:
            self.row_chosen(self.key)

    def action_reset(self) -> None:
        """Go back to the default."""
        if self.key:
            self._write(self.key, None)

    def action_keys(self) -> None:
        """Write a keymap file with all keys as they are now, for the user to change."""
        file = self.environment.application.paths.keymap_file
        if not file.exists():
            try:
                write_atomically(file, keymap_template(self.wording))
            except HymtError as error:
                self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))
                return
        self.show_notice(Notice(self.wording("settings.keymap", file=str(file)), hint=self.wording("settings.restart")))

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def _ask(self, name: str) -> None:
        value = self._value(name)
        dialog = SettingDialog(
            self.wording,
            name=name,
            text=self._meaning(name),
            value="" if value is None else str(value),
            choices=self._choices(name),
        )
        answer = await self.app.push_screen_wait(dialog)
        if answer is not None:
            self._write(name, answer or None)

    def _write(self, name: str, value: str | None) -> None:
        environment = self.environment
        application = environment.application
        try:
            write_setting(application.paths.config_file, name, value)
            environment.reload()
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))
            return
        self._show_settings()
        self.post_message(self.Changed())
        self.show_notice(self._written_notice(name))

    def _written_notice(self, name: str) -> Notice:
        layer = self.environment.application.resolved.origins[name]
        if layer in {Layer.ENVIRONMENT, Layer.FLAG}:
            where = variable_name(name) if layer is Layer.ENVIRONMENT else self.wording("origin_of.flag")
            return Notice(self.wording("settings.overridden", name=name, where=where), is_warning=True)
        hint = self.wording("settings.restart") if name in LATER else ""
        return Notice(self.wording("settings.written", name=name), hint=hint)

    # What is shown

    def _show_settings(self) -> None:
        wanted = self.query_text.strip().casefold()
        names = [name for name in setting_names() if wanted in f"{name} {self._meaning(name)}".casefold()]
        self.show_rows([ListRow(name, self._line(name)) for name in names], empty=self.wording("list.nothing"))

    def _line(self, name: str) -> Content:
        origin = self.environment.application.resolved.origins[name]
        style = "$foreground-muted" if origin is Layer.DEFAULT else "$text-accent"
        value_style = style if self.is_tight and origin is not Layer.DEFAULT else ""
        return Content("").join(
            [
                cell(name, _NAME_CELLS, "bold"),
                cell(self._shown(name), _TIGHT_VALUE_CELLS if self.is_tight else _VALUE_CELLS, value_style),
                Content.styled("" if self.is_tight else self.wording(f"origin_of.{origin}"), style),
            ]
        )

    def row_shown(self, key: str | None) -> None:
        """Show what a setting means and takes."""
        if key is None:
            return
        wording, schema = self.wording, self._schema[key]
        origin = self.environment.application.resolved.origins[key]
        choices = self._choices(key)
        facts = fact_lines(
            [
                (wording("settings.value"), self._shown(key)),
                (wording("settings.default"), self._text_of(schema.get("default"))),
                (wording("settings.origin"), wording(f"origin_of.{origin}")),
                (wording("settings.takes"), ", ".join(choices[:30]) or range_text(schema)),
                (wording("settings.variable"), variable_name(key)),
            ]
        )
        parts = [Content.styled(key, "bold"), Content(sanitize(self._meaning(key))), facts]
        if key in LATER:
            parts.append(Content.styled(wording("settings.restart"), "$foreground-muted"))
        self.show_detail(Content("\n\n").join(parts))

    def _meaning(self, name: str) -> str:
        key = f"setting.{name}"
        return self.wording(key) if self.wording.has(key) else str(self._schema[name].get("description", ""))

    def _value(self, name: str) -> Any:
        return getattr(self.environment.settings, name)

    def _shown(self, name: str) -> str:
        return self._text_of(self._value(name))

    def _text_of(self, value: object) -> str:
        if isinstance(value, bool):
            return self.wording("settings.on" if value else "settings.off")
        if value is None or value in ("", {}, (), []):
            return self.wording("settings.unset")
        return ", ".join(map(str, value)) if isinstance(value, tuple | list | dict) else str(value)

    def _choices(self, name: str) -> list[str]:
        """Return the values that a setting can take, where there are only so many."""
        environment = self.environment
        match name:
            case "theme":
                return list(self._themes)
            case "model":
                return [model.ref for model in environment.models]
            case "source_lang" | "target_lang" | "second_target":
                return [language.tag for language in environment.languages]
        return [str(value) for value in self._schema[name].get("enum", [])]


class SettingDialog(SteadyScreen, ModalScreen[str | None]):
    """Asks for a value and says while it is typed what is wrong with it; an empty one goes back to the default.

    Args:
        wording: The language of the program.
        name: The setting.
        text: What it means.
        value: What it is now.
        choices: What it can be, where that is known.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
    ]

    def __init__(self, wording: Wording, *, name: str, text: str, value: str, choices: Sequence[str]) -> None:
        super().__init__()
        self._wording = wording
        self._setting = name
        self._text = text
        self._value = value
        self._choices = choices

    def compose(self) -> ComposeResult:
        """Lay out name, meaning, field, choices and what is wrong."""
        with Vertical(id="dialog"):
            yield Static(Content.styled(self._setting, "bold"), id="dialog-title", markup=False)
            yield Static(sanitize(self._text), id="dialog-note", markup=False)
            yield LineInput(value=self._value, id="value", select_on_focus=True)
            yield Static(id="problem", markup=False)
            if self._choices:
                yield OptionList(id="choices", markup=False)
            yield Static(self._wording("settings.dialog_help"), id="dialog-help", markup=False)

    def on_mount(self) -> None:
        """List the choices."""
        for options in self.query(OptionList):
            options.can_focus = False
            options.add_options([Option(choice, id=choice) for choice in self._choices])
            if self._value in self._choices:
                options.highlighted = self._choices.index(self._value)

    @on(Input.Changed, "#value")
    def _typed(self, event: Input.Changed) -> None:
        self.query_one("#problem", Static).update(Content.styled(sanitize(self._problem(event.value)), "$text-error"))

    @on(Input.Submitted, "#value")
    def _submitted(self, event: Input.Submitted) -> None:
        if not self._problem(event.value):
            self.dismiss(event.value.strip())

    @on(OptionList.OptionSelected, "#choices")
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def action_move(self, rows: int) -> None:
        """Take the next choice into the field."""
        for options in self.query(OptionList):
            at = -1 if options.highlighted is None and rows > 0 else (options.highlighted or 0)
            options.highlighted = max(0, min(at + rows, options.option_count - 1))
            field = self.query_one(Input)
            field.value = options.get_option_at_index(options.highlighted).id or ""
            field.cursor_position = len(field.value)

    def _problem(self, value: str) -> str:
        """Return what is wrong with a value, or nothing."""
        if not value.strip():
            return ""
        if self._setting == "theme" and value.strip() not in self._choices:
            return self._wording("theme.unknown", theme=repr(value.strip()))
        try:
            check_setting(self._setting, value.strip())
        except HymtError as error:
            return error.message
        return ""


def range_text(schema: dict[str, Any]) -> str:
    """Return the numbers that a setting takes."""
    for part in (schema, *schema.get("anyOf", [])):
        if "minimum" in part or "maximum" in part:
            return f"{part.get('minimum', '…')} – {part.get('maximum', '…')}"
    return ""


def keymap_template(wording: Wording) -> str:
    """Return a keymap file that changes nothing: every action with its keys, commented out."""
    lines = [f"# {wording('settings.keymap_note')}"]
    lines += [
        f"# {json.dumps(command.id) if '.' in command.id else command.id} = {json.dumps(command.keys)}"
        f"  # {command.description(wording)}"
        for command in every_command()
    ]
    return "\n".join(lines) + "\n"
