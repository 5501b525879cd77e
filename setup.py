"""Copies models.toml, which lives at the top of the repository, into the built package; pyproject.toml has the rest."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithCatalog(build_py):
    """An editable install reads the file in the checkout, a wheel carries its own copy."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.copy_file("models.toml", str(Path(self.build_lib) / "hymt_local" / "models.toml"))


setup(cmdclass={"build_py": BuildWithCatalog})
