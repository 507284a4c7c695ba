"""Exceptions and warnings.

Messages speak of public configuration only; no value derived from records may reach one.
"""

from typing import Any

from dpcvx.words import quantity


class DpcvxError(Exception):
    """Base class of the errors that only dpcvx raises."""


class WrongValue(DpcvxError, ValueError):  # noqa: N818
    """A parameter, file or declaration has a value that is not accepted; the message holds no record."""


class WrongType(DpcvxError, TypeError):  # noqa: N818
    """A parameter, table or target has a type that is not accepted; the message holds no record."""


class NotInstalled(DpcvxError, ImportError):  # noqa: N818
    """An optional package is not installed."""


class BudgetExceeded(DpcvxError):  # noqa: N818 - the name says what happened
    """A request costs more of the privacy budget than is left.

    Attributes
    ----------
    requested : float
        Epsilon asked for.
    remaining : float
        Epsilon left.
    reason : str
        Cause in words, where epsilon alone does not explain it.
    delta : float or None
        The account's delta, at which both epsilons are; None where no account is concerned.
    """

    def __init__(
        self, requested: float, remaining: float, reason: str = "", delta: float | None = None
    ) -> None:
        super().__init__(requested, remaining, reason, delta)  # all in args, so that it survives pickling
        self.requested = requested
        self.remaining = remaining
        self.reason = reason
        self.delta = delta

    def __str__(self) -> str:
        needs = f"epsilon {self.requested:g} was requested but only {self.remaining:g} is left. "
        if self.delta is not None:
            needs = f"This release needs epsilon {self.requested:g} at the account's delta, {self.delta:g}"
            if self.requested <= self.remaining:
                needs += f". One more Gaussian release could have {self.remaining:g}. "
            else:
                needs += (
                    f", but only {self.remaining:g} is left. A release of another delta is converted to that "
                    "one, which changes its epsilon. "
                )
        return needs + (f"{self.reason} " if self.reason else "") + "Ask for less, or talk to the data owner."


class DeadKey(DpcvxError):  # noqa: N818
    """A key was charged, but its answer was never stored: a new key has to pay again."""


class LedgerDamaged(DpcvxError):  # noqa: N818
    """A ledger was edited, cut short or replaced by an old copy."""


class LedgerUnavailable(DpcvxError):  # noqa: N818
    """The store of a ledger cannot be opened or does not answer."""


class Incompatible(DpcvxError, ValueError):  # noqa: N818
    """Two public parts do not fit together, for instance a solver and a domain."""


class AccountNotOpen(Incompatible):
    """The data owner has frozen or closed the account: nothing is charged to it or released from it."""


class ClusterFailed(DpcvxError):  # noqa: N818
    """Workers of a cluster could not answer. Nothing was released; what was charged stays charged."""


class ShardsDamaged(DpcvxError):  # noqa: N818
    """Shards on disk are missing, damaged, half-written, or of other records than asked for."""


class StoreUnavailable(DpcvxError):  # noqa: N818
    """A folder for shards cannot be written: it is read-only, full, or in use."""


class Interrupted(KeyboardInterrupt):
    """A run was stopped by Ctrl-C; the message says what was charged and what was kept.

    Attributes
    ----------
    receipt : Receipt or None
        Receipt of the charge, which is not refunded.
    checkpoint : Path or None
        File that holds the answers so far.
    answers : int
        Number of private answers so far.
    account : str or None
        Name of the account, if it is not known whether the charge was written.
    """

    receipt: Any
    checkpoint: Any
    answers: int
    account: str | None

    def __init__(self, receipt: Any, checkpoint: Any, answers: int, account: str | None = None) -> None:
        self.receipt, self.checkpoint, self.answers = receipt, checkpoint, answers
        self.account = account if receipt is None else None
        kept = "Nothing was kept"
        if checkpoint is not None:
            kept = f"The answers are kept in {checkpoint}: the same fit with this checkpoint continues there"
        charged = ", and nothing was charged."
        if self.account is not None:
            charged = f". A charge to account {account!r} had begun: its history shows whether it is there."
        if receipt is not None:
            again = "a new charge" if checkpoint is None else "no second charge"
            entry = f"Entry {receipt.sequence} of account {receipt.account!r}"
            charged = f". {entry} stays charged; another try is {again}."
        super().__init__(f"Interrupted after {quantity(answers, 'private answer')}. {kept}{charged}")


class NotReleased(Incompatible, AttributeError):  # noqa: N818
    """A model is asked for a result, such as an interval, that its fit did not plan and release."""


class KeyReused(Incompatible):
    """A key is used again, for another query than the first time."""


class NotAccountable(DpcvxError, ValueError):  # noqa: N818
    """No accounting rule covers the event, so no guarantee can be stated for it."""


class Unreadable(DpcvxError):  # noqa: N818
    """A file is missing, empty, unreadable or not writable, or not what its name says."""


class UselessModelWarning(UserWarning):
    """A model is probably no better than a constant prediction, by public facts or released values."""


class UnrecognisedDataWarning(UserWarning):
    """Declared columns are absent or unusable, or noisy counts show cells that are not recognised."""


class PrivacyLeakWarning(UserWarning):
    """A result computed from private data is not covered by the guarantee, or the guarantee covers little."""
