"""Chat templates of the families, for files that lack theirs: what other programs make prompts with (ours never does).

They are written after the model cards and the official training code; the texts of the control tokens are exact.
"""

from __future__ import annotations

from collections.abc import Mapping

from hymt_local.catalog import ModelSpec
from hymt_local.prompts import ControlToken, build_prompt

CHAT_TEMPLATES: Mapping[str, str] = {
    # Every user turn begins anew, but the one that follows a system message.
    "hunyuan": (
        "{% for message in messages %}"
        "{% if message['role'] == 'system' %}<|startoftext|>{{ message['content'] }}<|extra_4|>"
        "{% elif message['role'] == 'user' %}"
        "{% if loop.first or messages[loop.index0 - 1]['role'] != 'system' %}<|startoftext|>{% endif %}"
        "{{ message['content'] }}<|extra_0|>"
        "{% elif message['role'] == 'assistant' %}{{ message['content'] }}<|eos|>"
        "{% endif %}{% endfor %}"
    ),
    "hunyuan-dense": (
        "<｜hy_begin▁of▁sentence｜>"
        "{% for message in messages %}"
        "{% if message['role'] == 'system' %}{{ message['content'] }}<｜hy_place▁holder▁no▁3｜>"
        "{% elif message['role'] == 'user' %}<｜hy_User｜>{{ message['content'] }}"
        "{% elif message['role'] == 'assistant' %}"
        "<｜hy_Assistant｜>{{ message['content'] }}<｜hy_place▁holder▁no▁2｜>"
        "{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<｜hy_Assistant｜>{% endif %}"
    ),
}
"""By chat form of the catalog. The form of the 30B is published in two revisions that disagree, so it is not here."""
_LONGEST = 1 << 18


def prompt_tokens(spec: ModelSpec) -> tuple[str, ...]:
    """Return the texts of the control tokens around a user's text, in order."""
    prompt = build_prompt(spec, source_lang="en", target_lang="fr", source="")
    return tuple(part.text for part in prompt.parts if isinstance(part, ControlToken) and part.required)


def template_fault(template: str, spec: ModelSpec | None) -> str | None:
    """Return what is wrong with a template, None when nothing shows.

    The template is read, not run: it comes from a stranger.
    """
    if len(template) > _LONGEST:
        return f"the chat template has {len(template)} characters"
    syntax = _syntax_fault(template)
    if syntax is not None:
        return f"the chat template is no Jinja: {syntax}"
    missing = [text for text in _expected(spec) if text not in template]
    return f"the chat template lacks {missing[0]}, so it is another model's" if missing else None


def _expected(spec: ModelSpec | None) -> tuple[str, ...]:
    """BOS may be left to `bos_token`."""
    return prompt_tokens(spec)[1:] if spec is not None else ()


def _syntax_fault(template: str) -> str | None:
    from jinja2 import Environment, TemplateSyntaxError

    # The extensions that chat templates are commonly rendered with.
    environment = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True)
    try:
        environment.parse(template)
    except TemplateSyntaxError as error:
        return f"{error.message} in line {error.lineno}"
    except RecursionError:
        return "it is nested too deeply"
    return None
