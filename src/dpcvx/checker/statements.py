"""Check of a privacy statement: that what it promises follows from the noise that it names."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpcvx.errors import NotInstalled, WrongValue

__all__ = ["Verdict", "verify_statement"]

LARGEST = sys.float_info.max
NUMBER = (int, float)
FIELDS: dict[str, Any] = {
    "model": str,
    "private": bool,
    "unit": str,
    "relation": str,
    "epsilon": NUMBER,
    "delta": NUMBER,
    "certified_epsilon": NUMBER,
    "sampler_delta": NUMBER,
    "mechanisms": (list, tuple),
    "public": Mapping,
    "randomness": str,
    "meaning": str,
}


@dataclass(frozen=True)
class Verdict:
    """Result of a check: `findings` says what does not follow, and is empty where all of it does."""

    model: str
    epsilon: float  # that the statement promises
    delta: float
    needed_delta: float  # that its events need at this epsilon, noise of finite precision included
    findings: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the promise follows from the events, and nothing in the statement contradicts them."""
        return not self.findings

    def __str__(self) -> str:
        if self.holds:
            return (
                f"The guarantee of {self.model} follows from the noise that the statement names: epsilon "
                f"{self.epsilon:g} needs delta {self.needed_delta:.4g}, and {self.delta:.4g} is promised. "
                "Computed in ball arithmetic, by code that shares nothing with the accountant. That the "
                "program drew this noise, and that sensitivities are as stated, is not shown by a statement."
            )
        found = "\n".join(f"- {each}" for each in self.findings)
        return f"The guarantee of {self.model} does NOT follow from this statement:\n{found}"


def verify_statement(content: Mapping[str, Any]) -> Verdict:
    """Recompute the guarantee of a statement from its events alone.

    Parameters
    ----------
    content : mapping
        A privacy statement as JSON has it: ``model.privacy_statement_.to_dict()``.

    Returns
    -------
    Verdict

    Raises
    ------
    WrongValue
        If this is no privacy statement.
    """
    try:
        from dpcvx.checker.findings import find
    except ModuleNotFoundError as error:
        if error.name != "flint":
            raise
        raise NotInstalled('Checking statements needs python-flint: pip install "dpcvx[verify]".') from None
    for name, kind in FIELDS.items():
        value = content.get(name) if isinstance(content, Mapping) else None
        if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
            raise WrongValue(
                f"This is no privacy statement: its field {name!r} is missing or of another type."
            )
        if kind is NUMBER and not -LARGEST <= value <= LARGEST:
            raise WrongValue(f"This is no privacy statement: its field {name!r} is no finite number.")
    needed, findings = find(content)
    return Verdict(content["model"], content["epsilon"], content["delta"], needed, tuple(findings))
