"""How settings reach the engine, and where it runs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hymt_local.application import Application, open_application
from hymt_local.config import check_setting
from hymt_local.engine.base import Backend, GenerationRequest, TokensGenerated
from hymt_local.engine.host import HostedBackend
from hymt_local.engine.llama import LlamaBackend
from hymt_local.errors import ConfigError
from hymt_local.events import TranslationRequest
from hymt_local.installed import InstalledModel
from hymt_local.retries import Change, RetryPolicy
from tests.toy_models import write_toy_model

pytestmark = pytest.mark.llama


def open_app(folder: Path, **settings: object) -> Application:
    return open_application({"HYMT_HOME": str(folder / "home")}, flags=settings)


def toy_of(app: Application, folder: Path, *, kind: str = "translation") -> InstalledModel:
    spec = next(spec for spec in app.catalog.models if spec.kind == kind and spec.architecture == "hunyuan-dense")
    path = folder / "toy.gguf"
    if not path.exists():
        write_toy_model(path)
    return InstalledModel(spec, "F32", path, "0" * 64, path.stat().st_size)


def load(app: Application, model: InstalledModel) -> Backend:
    return app._opener(model)(lambda fraction: True)


def answer(backend: Backend) -> list[int]:
    events = backend.generate(GenerationRequest(tuple(b"The quick brown fox"), 12, n_fixed=16), lambda: False)
    return [token for event in events if isinstance(event, TokensGenerated) for token in event.ids]


def test_the_settings_reach_the_engine_wherever_it_runs(tmp_path: Path) -> None:
    answers = []
    for place, kind in (("child", HostedBackend), ("inline", LlamaBackend)):
        app = open_app(tmp_path / place, engine_process=place, slots=3, kv_type="q8_0", context_length=512)
        with closing(load(app, toy_of(app, tmp_path))) as backend:
            assert isinstance(backend, kind)
            assert (backend.info.slots, backend.info.context_length, backend.info.is_deterministic) == (3, 512, False)
            answers.append(answer(backend))
        assert [path.suffix for path in (app.paths.cache_dir / "prefix").iterdir()] == [".kv"]
    assert answers[0] == answers[1] != []


@pytest.mark.parametrize("place", ["child", "inline"])
def test_where_weights_and_cache_are_kept_is_as_set(tmp_path: Path, place: str) -> None:
    """What a GPU would be told is told on a machine without one too, and changes nothing there."""
    settings = {"mlock": True, "repack": "on", "kv_offload": False, "tensor_split": "3,1.5", "flash_attention": False}
    app = open_app(tmp_path, engine_process=place, gpu_layers=99, memory_check=False, **settings)
    model = toy_of(app, tmp_path)
    options = app._fitted_options(model, app.probe_machine())
    assert (options.use_mlock, options.kv_offload, options.tensor_split) == (True, False, (3.0, 1.5))
    assert (options.flash_attention, options.gpu_layers, options.repack) == (False, 99, True)
    with closing(load(app, model)) as backend:
        assert backend.info.n_gpu_layers == 0
        assert len(answer(backend)) == 12
        if isinstance(backend, LlamaBackend):
            assert backend._context is not None
            shape = backend._context._shape
            assert (shape.kv_offload, shape.flash_attention, shape.offload) == (False, False, True)


@pytest.mark.parametrize("text", ["", "a", "1,", "1,,2", "-1,2", "1;2"])
def test_shares_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="tensor_split"):
        check_setting("tensor_split", text)


def test_deterministic_means_one_at_a_time(tmp_path: Path) -> None:
    app = open_app(tmp_path, engine_process="inline", deterministic=True, slots=9)
    with closing(load(app, toy_of(app, tmp_path))) as backend:
        assert (backend.info.slots, backend.info.is_deterministic) == (1, True)


@pytest.mark.parametrize("kv_type", ["auto", "f16", "bf16", "q8_0", "q4_0"])
def test_the_plan_and_the_engine_agree_on_the_cache(tmp_path: Path, kv_type: str) -> None:
    app = open_app(tmp_path, engine_process="inline", kv_type=kv_type)
    model = toy_of(app, tmp_path)
    fit = app.plan_installed(model, app.probe_machine())
    assert fit.kv_type == ("f16" if kv_type == "auto" else kv_type)
    with closing(load(app, model)) as backend:
        assert isinstance(backend, LlamaBackend)
        assert backend._context is not None
        assert backend._context._shape.kv_type == ("bf16" if kv_type == "auto" else kv_type)
        assert (backend.info.slots, backend.info.context_length) == (fit.n_slots, fit.context_length)
        assert len(answer(backend)) == 12


def test_left_alone_only_large_translators_get_a_process_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_app(tmp_path)
    path = toy_of(app, tmp_path).path
    assert path is not None
    assert app._runs_inline(toy_of(app, tmp_path), path)
    monkeypatch.setattr("hymt_local.engine.options.TINY_MODEL_BYTES", 1000)
    assert not app._runs_inline(toy_of(app, tmp_path), path)
    assert app._runs_inline(replace(toy_of(app, tmp_path), spec=app.catalog.get("demo")), path)
    assert open_app(tmp_path, engine_process="inline")._runs_inline(toy_of(app, tmp_path), path)


def test_a_translation_is_the_same_from_a_process_of_its_own(tmp_path: Path) -> None:
    texts = []
    for place in ("child", "inline"):
        app = open_app(tmp_path, engine_process=place, cache=False, model="demo")
        with closing(app.open_service()) as service:
            texts.append(service.submit(TranslationRequest("Good morning", "fr", source_lang="en")).result().text)
    assert texts[0] == texts[1] != "Good morning"


def test_f_11_a_translation_model_is_tested_unless_the_settings_trust_it(tmp_path: Path) -> None:
    app = open_app(tmp_path)
    passed = app._passed_tests(toy_of(app, tmp_path))
    assert passed is not None
    passed.add("sentences")
    assert (app.paths.state_dir / "self-tests.json").exists()
    on_the_gpu = open_app(tmp_path, gpu_layers=9)._passed_tests(toy_of(app, tmp_path))
    assert on_the_gpu is not None
    assert (passed.has("sentences"), on_the_gpu.has("sentences")) == (True, False)
    assert app._passed_tests(toy_of(app, tmp_path, kind="demo")) is None
    assert open_app(tmp_path, self_test=False)._passed_tests(toy_of(app, tmp_path)) is None


def test_f_16_the_settings_say_how_often_and_how_a_segment_is_tried(tmp_path: Path) -> None:
    assert open_app(tmp_path, model="echo").open_model(None).retries == RetryPolicy()
    app = open_app(tmp_path, model="echo", attempts=2, retry_order="masks, prompt,masks")
    assert app.open_model(None).retries == RetryPolicy(2, (Change.MASKS, Change.PROMPT))
    assert open_app(tmp_path, model="echo", retry_order="").open_model(None).retries.order == ()
    for wrong in ({"attempts": 4}, {"attempts": 0}, {"retry_order": "masks,luck"}):
        with pytest.raises(ConfigError):
            open_app(tmp_path, **wrong)
