"""Exceptions and warnings of dpcvx.

Messages speak of public configuration only; no value derived from records may reach one.
"""


class DpcvxError(Exception):
    """Base class of the errors that only dpcvx raises."""


class BudgetExceeded(DpcvxError):  # noqa: N818 - the name says what happened
    """A request costs more privacy than what is left.

    Attributes
    ----------
    requested : float
        Epsilon asked for.
    remaining : float
        Epsilon left.
    """

    def __init__(self, requested: float, remaining: float) -> None:
        super().__init__(requested, remaining)  # both in args, so that the error survives pickling
        self.requested = requested
        self.remaining = remaining

    def __str__(self) -> str:
        return (
            f"epsilon {self.requested:g} was requested but only {self.remaining:g} is left. "
            "Ask for less, or have the data owner raise the cap."
        )


class Incompatible(DpcvxError, ValueError):  # noqa: N818
    """Two public parts do not fit together, for instance a solver and a domain."""


class NotAccountable(DpcvxError, ValueError):  # noqa: N818
    """No accounting rule covers the event, so no guarantee can be stated for it."""


class PrivacyLeakWarning(UserWarning):
    """A result computed from private data is not covered by the guarantee."""
