"""`hymt models`: find, fit, fetch, verify, switch and remove models. One file per subcommand."""

from __future__ import annotations

import click

from hymt_local.cli.models.fit import fit_models
from hymt_local.cli.models.importing import import_model
from hymt_local.cli.models.listing import list_models
from hymt_local.cli.models.pull import pull_model
from hymt_local.cli.models.removing import remove_models
from hymt_local.cli.models.using import use_model
from hymt_local.cli.models.verify import verify_models


@click.group(name="models")
def models_command() -> None:
    """List, fit, fetch, verify and remove models; choose the default."""


for _command in (list_models, fit_models, pull_model, import_model, verify_models, use_model, remove_models):
    models_command.add_command(_command)
