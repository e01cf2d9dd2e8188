"""Choices as words: `name(setting,setting)`, printed from a frozen dataclass and read back from a table of its kind."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

__all__ = ["read", "spell"]


def spell(choice: Any) -> str:
    """The name of a choice, and in brackets its settings up to the last one that differs from its default.

    Example:
        >>> from diffsim.retention import Checkpoint
        >>> spell(Checkpoint(every=8))
        'checkpoint(8)'
    """
    values = [(getattr(choice, f.name), f.default) for f in fields(choice)]
    while values and values[-1][1] is not MISSING and values[-1][0] == values[-1][1]:
        values.pop()
    arguments = ",".join(str(value) for value, _ in values)
    return f"{choice.name}({arguments})" if arguments else choice.name


def read(axis: str, table: Mapping[str, Any], word: str) -> Any:
    """The choice that a word spells, one of `table` (name → class); ValueError says what is wrong with the word.

    Example:
        >>> from diffsim.retention import RETENTIONS
        >>> read("retention", RETENTIONS, "checkpoint(8)")
        Checkpoint(every=8)
    """
    match = re.fullmatch(r"([a-z-]+)(?:\(([^()]*)\))?", word)
    kind = table.get(match[1]) if match else None
    if kind is None or match is None:
        raise ValueError(f"{word!r} is no {axis}; write one of {', '.join(table)}.")
    given = [text.strip() for text in match[2].split(",")] if match[2] else []
    slots: tuple[Any, ...] = fields(kind)
    required = [f.name for f in slots if f.default is MISSING]
    example = f"{kind.name}({','.join(f.name for f in slots)})" if slots else kind.name
    if not len(required) <= len(given) <= len(slots):
        raise ValueError(f"{word!r} has {len(given)} setting(s); write {example}.")
    try:
        values = [slot.type(text) for slot, text in zip(slots, given, strict=False)]
    except ValueError:
        kinds = ", ".join(f"{slot.name} a {slot.type.__name__}" for slot in slots)
        raise ValueError(f"{word!r} can't be read; write {example}, with {kinds}.") from None
    try:
        return kind(*values)
    except ValueError as error:
        raise ValueError(f"{word!r} can't be read: {error}") from None
