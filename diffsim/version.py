"""The version of diffsim, in one place: pyproject.toml reads it from here."""

__all__: list[str] = []

__version__ = "0.1.0"
