"""Scenes: one file each. To add one, write its file with a `make(**settings)` and name it in `SCENES`."""

from importlib import import_module

from diffsim.scenes.scene import Scene

__all__ = ["SCENES", "Scene", "make"]

SCENES = {
    "beam": "diffsim.scenes.beam",
    "cartpole": "diffsim.scenes.cartpole",
    "chain": "diffsim.scenes.chain",
    "cloth": "diffsim.scenes.cloth",
    "double_pendulum": "diffsim.scenes.double_pendulum",
    "fixed_point": "diffsim.scenes.fixed_point",
    "fluid": "diffsim.scenes.fluid",
    "heat": "diffsim.scenes.heat",
    "lennard_jones": "diffsim.scenes.lennard_jones",
    "pendulum": "diffsim.scenes.pendulum",
    "wave": "diffsim.scenes.wave",
}


def make(name: str, **settings) -> Scene:
    """The scene of that name; `settings` are those of the scene's own `make`.

    Raises:
        ValueError: there is no such scene.

    Example:
        >>> make("pendulum").name
        'pendulum'
    """
    if name not in SCENES:
        raise ValueError(f"there is no scene {name!r}; write one of {', '.join(SCENES)}.")
    return import_module(SCENES[name]).make(**settings)
