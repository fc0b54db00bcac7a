"""The door for the package's words and for a user's own: one decorator, one table.

Registered classes are found by name on the command line and by every law in ``tests/property`` without another edit.
"""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["REGISTRY", "register"]

T = TypeVar("T", bound=type)

REGISTRY: dict[str, dict[str, Any]] = {"domain": {}, "potential": {}, "interaction": {}}


def register(cls: T) -> T:
    """Class decorator: enter a Domain, Potential or Interaction under its class name.

    The class needs ``kind`` (inherited from its base) and a classmethod ``example(dim)`` that returns an instance for
    that dimension, or None where it has none; the property tests run on it. A name that is taken is refused.
    """
    kind = getattr(cls, "kind", None)
    if kind not in REGISTRY:
        raise TypeError(f"only Domain, Potential and Interaction classes can be registered, got {cls.__name__}")
    known = REGISTRY[kind].get(cls.__name__)
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"a {kind} named {cls.__name__} is already registered by {known.__module__}")
    if not callable(getattr(cls, "example", None)):
        raise TypeError(f"{cls.__name__} needs a classmethod example(dim) so that the laws can be tested on it")
    REGISTRY[kind][cls.__name__] = cls
    return cls
