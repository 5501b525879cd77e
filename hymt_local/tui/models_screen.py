"""The models view: what is installed, what the catalog has besides, and what suits this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message

from hymt_local.application import Application
from hymt_local.catalog import ModelFile, ModelSpec
from hymt_local.config import write_setting
from hymt_local.errors import HymtError
from hymt_local.installed import InstalledModel, file_sha256
from hymt_local.licences import AcceptedLicences
from hymt_local.sanitize import sanitize
from hymt_local.tui.dialogs import QuestionDialog
from hymt_local.tui.downloads import Download, Downloads, download_label, size_text
from hymt_local.tui.environment import Environment
from hymt_local.tui.keymap import MODELS_COMMANDS, bindings
from hymt_local.tui.list_screen import ListRow, ListScreen, cell, fact_lines
from hymt_local.tui.machine_facts import planned_device
from hymt_local.tui.status import Notice, bar_text
from hymt_local.tui.views import View
from hymt_local.tui.wording import Wording

if TYPE_CHECKING:
    from hymt_local.engine.fit import FitPlan, MachineFacts

_NAME_CELLS, _TIGHT_NAME_CELLS, _SIZE_CELLS = 26, 19, 9


@dataclass(frozen=True, slots=True)
class Judged:
    """What this machine makes of the published files."""

    machine: MachineFacts
    plans: Mapping[str, FitPlan]
    recommended: str | None

    def devices(self) -> dict[str, str]:
        """Return where the layers of each model go."""
        return {ref: planned_device(plan) for ref, plan in self.plans.items()}


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model that is here, or could be."""

    spec: ModelSpec
    quantization: str
    installed: InstalledModel | None
    file: ModelFile | None

    @property
    def ref(self) -> str:
        """What it is called."""
        if self.installed is not None:
            return self.installed.ref
        return f"{self.spec.id}:{self.quantization}" if self.quantization else self.spec.id

    @property
    def size_bytes(self) -> int:
        """Of the file, 0 when it is not known."""
        if self.installed is not None:
            return self.installed.size_bytes
        return (self.file.size_bytes or 0) if self.file else 0


class ModelsScreen(ListScreen):
    """Everything about models that needs no command line.

    Args:
        environment: Catalog, store and folders.
        downloads: Goes on whichever view is in front.
    """

    VIEW = View.MODELS
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(MODELS_COMMANDS)]

    class Looked(Message):
        """The machine was looked at."""

        def __init__(self, judged: Judged) -> None:
            super().__init__()
            self.judged = judged

    class Chosen(Message):
        """A model is to translate from now on."""

        def __init__(self, ref: str) -> None:
            super().__init__()
            self.ref = ref

    def __init__(self, environment: Environment, *, downloads: Downloads, current: str) -> None:
        super().__init__(environment)
        self._downloads = downloads
        self._current = current
        self._rows: dict[str, ModelRow] = {}
        self._judged: Judged | None = None
        self._found: dict[str, str] = {}
        """What the verification of a model found, by reference."""

    def on_mount(self) -> None:
        """Show what is known at once, and what must be looked at when it is."""
        self.show_models()
        self._judge()
        self.show_standing()

    def redraw_rows(self) -> None:
        """Let size and fit stand where they are seen."""
        self.show_models()

    def on_screen_resume(self) -> None:
        """Look again: a command line beside us may have installed something."""
        self.show_models()

    @work(exclusive=True, group="judge", exit_on_error=False)
    async def _judge(self) -> None:
        application = self.environment.application
        try:
            self._judged = await asyncio.to_thread(judge, application)
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))
            return
        self.post_message(self.Looked(self._judged))
        self.show_models()
        self.row_shown(self.key)
        self.show_standing()

    # What the user does

    def row_chosen(self, key: str) -> None:
        """Use what is installed, fetch what is not."""
        row = self._rows[key]
        if row.installed is not None:
            self._use(row.ref)
        elif row.file is None or not row.file.supported:
            hint = self.wording("models.convert", repo=row.spec.repo or row.spec.id)
            self.show_notice(Notice(self.wording("models.no_file", model=row.ref), hint=hint, is_warning=True))
        else:
            self.fetch(row.spec, row.file)

    def action_act(self) -> None:
        """Do what enter does, from the palette."""
        if self.key:
            self.row_chosen(self.key)

    def action_stop(self) -> None:
        """Stop the download of the row under the cursor."""
        if self.key is None or not self._downloads.stop(self._rows[self.key].ref):
            self.show_notice(Notice(self.wording("models.nothing_to_stop"), is_warning=True))

    def action_reload(self) -> None:
        """Look again at disk and machine."""
        self.show_models()
        self._judge()

    @work(exclusive=True, group="fetch", exit_on_error=False)
    async def fetch(self, spec: ModelSpec, file: ModelFile) -> None:
        """Ask for consent to the licence if need be, then fetch."""
        if not await self._is_accepted(spec, file):
            return
        self.app.run_worker(self._downloads.fetch(spec, file), group="downloads", exit_on_error=False)

    @work(exclusive=True, group="recommended", exit_on_error=False)
    async def fetch_recommended(self) -> None:
        """Fetch what suits this machine best, without making anybody look for it."""
        if self._judged is None:
            self._judged = await asyncio.to_thread(judge, self.environment.application)
            self.show_models()
        row = self._rows.get(self._judged.recommended or "")
        if row is None or row.installed is not None or row.file is None:
            self.show_notice(Notice(self.wording("models.nothing_better"), is_warning=True))
            return
        self.choose_row(row.ref)
        self.fetch(row.spec, row.file)

    async def _is_accepted(self, spec: ModelSpec, file: ModelFile) -> bool:
        accepted = AcceptedLicences(self.environment.application.paths)
        try:
            if accepted.has(spec.licence):
                return True
            dialog = QuestionDialog(
                self.wording,
                title=self.wording("models.licence_question", licence=spec.licence.title),
                text=licence_text(spec, file, self.wording),
            )
            if not await self.app.push_screen_wait(dialog):
                return False
            accepted.accept(spec.licence)
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))
            return False
        return True

    @work(exclusive=True, group="verify", exit_on_error=False)
    async def action_verify(self) -> None:
        """Hash the file of the row under the cursor again."""
        row = self._rows.get(self.key or "")
        if row is None or row.installed is None or row.installed.path is None:
            self.show_notice(Notice(self.wording("models.nothing_to_verify"), is_warning=True))
            return
        self.show_notice(Notice(self.wording("models.verifying", model=row.ref)))
        self._found[row.ref] = await asyncio.to_thread(verify, row.installed, self.wording)
        self.show_notice(Notice(f"{row.ref}: {self._found[row.ref]}"))
        self.row_shown(self.key)

    @work(exclusive=True, group="remove", exit_on_error=False)
    async def action_remove(self) -> None:
        """Forget a model, after a question; only files that this program put there are deleted."""
        row = self._rows.get(self.key or "")
        if row is None or row.installed is None or row.installed.modified_ns is None:
            self.show_notice(Notice(self.wording("models.nothing_to_remove"), is_warning=True))
            return
        model = row.installed
        key = "models.remove_deletes" if model.is_ours else "models.remove_keeps"
        text = self.wording(key, file=str(model.path), size=size_text(model.size_bytes))
        title = self.wording("models.remove_question", model=model.ref)
        if not await self.app.push_screen_wait(QuestionDialog(self.wording, title=title, text=text)):
            return
        try:
            self._remove(model)
        except HymtError as error:
            self.show_notice(Notice(error.message, hint=error.hint, is_warning=True))
        else:
            self.show_notice(Notice(self.wording("models.removed", model=model.ref)))

    def _remove(self, model: InstalledModel) -> None:
        environment = self.environment
        application = environment.application
        application.store.remove(model)
        if application.settings.model == model.ref:
            write_setting(application.paths.config_file, "model", None)
            environment.reload()
        environment.reload_models()
        if model.ref == self._current:
            self._use(environment.application.store.default().ref)
        self.show_models()

    def _use(self, ref: str) -> None:
        self._current = ref
        self.post_message(self.Chosen(ref))
        self.show_models()
        self.show_standing()

    # What is shown

    def model_in_use(self, ref: str) -> None:
        """Mark the model that translates now."""
        self._current = ref
        if self.is_mounted:
            self.show_models()
            self.show_standing()

    def download_changed(self, state: Download) -> None:
        """Redraw the row of a download; when it has ended, all of them."""
        if not self.is_mounted:
            return
        if state.is_running and (row := self._rows.get(state.ref)):
            self.update_row(ListRow(row.ref, self._line(row)))
        else:
            self.show_models()
        if state.ref == self.key:
            self.row_shown(self.key)
        self.show_standing()

    def show_models(self) -> None:
        """Show all rows."""
        rows = model_rows(self.environment, current=self._current)
        self._rows = {row.ref: row for row in rows}
        here = [row for row in rows if row.installed is not None]
        others = [row for row in rows if row.installed is None]
        listed = [self._heading("models.installed"), *map(self._list_row, here)]
        if others:
            listed += [ListRow("", Content(" ")), self._heading("models.available"), *map(self._list_row, others)]
        self.show_rows(listed)

    def show_standing(self) -> None:
        """Show the machine in the state line, or the download that is running."""
        for state in self._downloads.running[:1]:
            label = download_label(state, self.wording)
            self.show_state(bar_text(sanitize(state.ref), fraction=state.fraction, after=sanitize(label)))
            return
        text = machine_text(self._judged.machine, self.wording) if self._judged else self.wording("models.looking")
        self.show_state(Content.styled(text, "$foreground-muted"))

    def row_shown(self, key: str | None) -> None:
        """Show what is known of a model."""
        row = self._rows.get(key or "")
        if row is not None:
            self.show_detail(self._detail(row))

    def _heading(self, key: str) -> ListRow:
        return ListRow("", Content.styled(self.wording(key), "$text-accent bold"))

    def _list_row(self, row: ModelRow) -> ListRow:
        return ListRow(row.ref, self._line(row))

    def _line(self, row: ModelRow) -> Content:
        mark = Content.styled("● ", "$text-success") if row.ref == self._current else Content("  ")
        return Content("").join(
            [
                mark,
                cell(row.ref, _TIGHT_NAME_CELLS if self.is_tight else _NAME_CELLS),
                Content("" if self.is_tight else " "),
                cell(size_text(row.size_bytes), _SIZE_CELLS, "$foreground-muted"),
                self._standing(row),
            ]
        )

    def _standing(self, row: ModelRow) -> Content:
        """Say in a word how a model stands: downloading, in use, fitting or not."""
        download = self._downloads.of(row.ref)
        if download is not None and download.is_running:
            return Content.styled(f"↓ {download.fraction:.0%}", "$text-primary")
        if row.installed is not None:
            return Content.styled(self.wording("models.in_use") if row.ref == self._current else "", "$text-success")
        if row.file is None or not row.file.supported:
            key = "models.not_published" if row.file is None else "models.unsupported"
            return Content.styled(self.wording(key), "$foreground-muted")
        plan = self._judged.plans.get(row.ref) if self._judged else None
        if plan is None:
            return Content()
        if self._judged and row.ref == self._judged.recommended:
            text = self.wording("models.recommended")
            return Content.styled(text[:1] if self.is_tight else text, "$text-success bold")
        style = {"good": "$text-success", "tight": "$text-warning", "no": "$text-error"}[plan.verdict]
        return Content.styled(self.wording(f"models.fit_{plan.verdict}"), style)

    def _detail(self, row: ModelRow) -> Content:
        wording, licence = self.wording, row.spec.licence
        parts = [Content.styled(sanitize(row.spec.title), "bold"), fact_lines(self._facts(row))]
        if licence.note:
            parts.append(Content.styled(sanitize(licence.note), "$text-warning"))
        parts += list(self._plan_parts(row))
        parts.append(Content.styled(self._what_enter_does(row), "$text-accent"))
        if row.ref in self._found:
            parts.append(Content(f"{wording('models.verified')}: {sanitize(self._found[row.ref])}"))
        return Content("\n\n").join(parts)

    def _facts(self, row: ModelRow) -> list[tuple[str, str]]:
        wording, licence = self.wording, row.spec.licence
        excluded = ", ".join(licence.territory_excluded)
        download = self._downloads.of(row.ref)
        return [
            (wording("models.ref"), row.ref),
            (wording("models.size"), size_text(row.size_bytes)),
            (wording("models.licence"), licence.title),
            (wording("models.not_licensed"), excluded),
            (wording("models.languages"), str(len(row.spec.languages))),
            (wording("models.path"), str(row.installed.path) if row.installed and row.installed.path else ""),
            (wording("models.note"), row.file.note if row.file else ""),
            (wording("models.download"), download_label(download, wording) if download else ""),
        ]

    def _plan_parts(self, row: ModelRow) -> Iterator[Content]:
        plan = self._judged.plans.get(row.ref) if self._judged else None
        if plan is None:
            return
        from hymt_local.engine.fit import gibibytes

        wording = self.wording
        layers = wording("models.layers", count=plan.gpu_layers, total=plan.n_layers)
        yield fact_lines(
            [
                (wording("models.memory"), gibibytes(plan.ram_bytes)),
                (wording("models.gpu"), layers if plan.gpu_layers else wording("models.cpu_only")),
                (wording("models.context"), wording("models.tokens", count=plan.context_length)),
                (wording("models.speed"), wording("status.speed", speed=f"{plan.tokens_per_s:.0f}")),
            ]
        )
        if plan.warnings:
            yield Content.styled(sanitize("\n".join(plan.warnings)), "$text-warning")

    def _what_enter_does(self, row: ModelRow) -> str:
        download = self._downloads.of(row.ref)
        if download is not None and download.is_running:
            return self.wording("models.stop_hint")
        if row.installed is not None:
            return self.wording("models.used_hint" if row.ref == self._current else "models.use_hint")
        if row.file is None or not row.file.supported:
            return self.wording("models.convert", repo=row.spec.repo or row.spec.id)
        return self.wording("models.fetch_hint", size=size_text(row.size_bytes))


def model_rows(environment: Environment, *, current: str) -> list[ModelRow]:
    """Return what is installed, then every published file that is not, then models without one.

    The test engines, which translate nothing, are left out unless one is in use (`current`).
    """
    application = environment.application
    installed = application.store.list()
    shown = [model for model in installed if model.spec.kind != "test" or model.ref == current]
    rows = [ModelRow(model.spec, model.quantization, model, None) for model in shown]
    here = {row.ref for row in rows}
    for spec in application.catalog.models:
        if spec.kind != "translation":
            continue
        files = [ModelRow(spec, file.quantization, None, file) for file in spec.files]
        rows += [row for row in files if row.ref not in here] or (
            [] if spec.files else [ModelRow(spec, "", None, None)]
        )
    return rows


def judge(application: Application) -> Judged:
    """Look at the machine and plan every published file for it. Blocks for a moment.

    Raises:
        HymtError: the machine cannot be looked at.
    """
    from hymt_local.recommend import candidates, recommend

    machine = application.probe_machine()
    found = candidates(application.catalog, machine, wish=application.fit_wish())
    best = recommend(found, machine)
    return Judged(machine, {candidate.ref: candidate.plan for candidate in found}, best.ref if best else None)


def verify(model: InstalledModel, wording: Wording) -> str:
    """Hash the file of a model and return what was found, in one line. Blocks."""
    assert model.path is not None
    try:
        from hymt_local.engine.gguf_file import read_header
        from hymt_local.engine.gguf_support import check_supported

        check_supported(read_header(model.path))
        sha256 = file_sha256(model.path)
    except HymtError as error:
        return error.message
    if model.fingerprint and sha256 != model.fingerprint:
        return wording("models.changed")
    return wording("models.sound_published" if model.published else "models.sound", sha256=sha256[:12])


def licence_text(spec: ModelSpec, file: ModelFile, wording: Wording) -> str:
    """Return what must be known before a download."""
    licence = spec.licence
    lines = [wording("models.about_to_fetch", file=file.name, size=size_text(file.size_bytes)), "", licence.title]
    if licence.url:
        lines.append(licence.url)
    if licence.territory_excluded:
        lines.append(f"{wording('models.not_licensed')}: {', '.join(licence.territory_excluded)}")
    if licence.note:
        lines.append(licence.note)
    return "\n".join(lines)


def machine_text(machine: MachineFacts, wording: Wording) -> str:
    """Return memory, cores and GPUs in one line."""
    from hymt_local.engine.fit import gibibytes

    gpus = ", ".join(gpu.name for gpu in machine.gpus) or wording("models.no_gpu")
    memory = wording(
        "models.machine_memory", free=gibibytes(machine.available_bytes), total=gibibytes(machine.total_bytes)
    )
    return f"{memory} · {wording('models.cores', count=machine.n_cores)} · {sanitize(gpus)}"
