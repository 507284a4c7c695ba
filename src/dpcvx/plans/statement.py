"""The privacy statement of a release, in words and as JSON, from public facts alone."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpcvx.accounting import Neighbours, explain_delta, explain_size
from dpcvx.errors import DpcvxError, WrongValue
from dpcvx.events import RELATIONS, Compose, Repeat, count_leaves, from_plain, to_plain
from dpcvx.words import html_table

if TYPE_CHECKING:
    from dpcvx.ledger import Receipt
    from dpcvx.plans.price import Price

__all__ = ["PrivacyStatement", "doubts_about_columns", "doubts_about_data", "doubts_about_levels"]

UNIT = "one row is one person"
FROM_Y = "taken from y and declared public"
PERSON = "one person with all of their rows"
CRYPTOGRAPHIC = "cryptographic: AES-256-CTR keyed by the operating system"
SEEDED = "NOT PRIVATE: a seeded generator drew the noise; whoever knows or guesses the seed can subtract it"
NO_LEDGER = "no ledger: nothing was charged; releases on the same people add up"
TUNING = (
    "dpcvx chose settings from public facts and the noisy answers above alone; settings that somebody chose "
    "by looking at the data are not covered"
)
BEFORE = (
    "anything computed from records before this run, for instance by scalers, encoders and imputers of a "
    "pipeline: the guarantee starts at the rows given to it (dpcvx.check_pipeline names such steps)"
)
SECOND_FIT = "a second fit on the same people: its epsilon and delta are added to these"
SEVERAL_ROWS = "a person who is in several rows"
NOT_COVERED = (
    BEFORE,
    "score() and any other metric computed on the private rows",
    "the scores and the choice of GridSearchCV and other tuners",
    "running time and memory",
    SECOND_FIT,
    SEVERAL_ROWS,
)
CHARGED_NOT_COVERED = tuple(
    "a fit on the same people that is not charged to the same account" if item == SECOND_FIT else item
    for item in NOT_COVERED
)


@dataclass(frozen=True)
class PrivacyStatement:
    """The guarantee of a release, whom it protects, and the public facts it rests on.

    Parameters
    ----------
    model : str
        Class of the estimator.
    version : str
        Version of dpcvx.
    private : bool
        False for a seeded run, whose noise can be subtracted.
    unit, relation : str
        Unit that is protected, and the relation between neighbouring data sets.
    epsilon, delta : float
        The guarantee.
    certified_epsilon : float
        Epsilon that the accountant certifies at delta, samplers included; at most epsilon.
    accountant : str
    sampler_delta : float
        Part of delta that pays for noise of finite precision.
    mechanisms : tuple of dict
        The private questions: question, count, event, noise.
    bounds : dict
        Bounds of a record and how they are enforced.
    public : dict
        Facts that the release treats as public.
    randomness, ledger, tuning : str
    not_covered : tuple of str
    composition : dict
        Events as they compose, where this is more than one mechanism after another, as in a search; else
        empty.
    """

    model: str
    version: str
    private: bool
    unit: str
    relation: str
    epsilon: float
    delta: float
    certified_epsilon: float
    accountant: str
    sampler_delta: float
    mechanisms: tuple[dict[str, Any], ...]
    bounds: dict[str, Any]
    public: dict[str, Any]
    randomness: str
    ledger: str = NO_LEDGER
    tuning: str = TUNING
    not_covered: tuple[str, ...] = NOT_COVERED
    composition: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        price: Price,
        *,
        model: str,
        private: bool,
        bounds: Mapping[str, Any],
        public: Mapping[str, Any],
        receipt: Receipt | None = None,
    ) -> PrivacyStatement:
        """State what a release promises.

        Parameters
        ----------
        price : Price
            Price of the release.
        model : str
            Name of the fitted model.
        private : bool
            Whether the randomness was cryptographic.
        bounds, public : mapping
            Declared bounds and how they are enforced, and the other public facts.
        receipt : Receipt, optional
            Of the account that paid.
        """
        from dpcvx import __version__

        return cls(
            model=model,
            version=__version__,
            private=private,
            unit=UNIT if price.budget.unit == "row" else PERSON,
            relation=price.budget.neighbours.relation,
            epsilon=price.budget.epsilon,
            delta=price.budget.delta,
            certified_epsilon=price.epsilon,
            accountant=type(price.accountant).__name__,
            sampler_delta=price.sampler_delta,
            mechanisms=price.parts,
            bounds=dict(bounds),
            public=dict(public),
            randomness=CRYPTOGRAPHIC if private else SEEDED,
            ledger=NO_LEDGER if receipt is None else _charged(receipt),
            not_covered=tuple(
                item
                for item in (NOT_COVERED if receipt is None else CHARGED_NOT_COVERED)
                if price.budget.unit == "row" or item != SEVERAL_ROWS
            ),
            composition=_composition(price),
        )

    @property
    def meaning(self) -> str:
        """The guarantee in one plain paragraph."""
        released, treated = _RELEASED.get(self.model.split(",")[0].split(" ")[0], _MODEL)
        if not self.private:
            return (
                "This run gives no guarantee. Its noise came from a seed and can be computed again, so treat "
                f"{treated} before publishing anything."
            )
        pair = self._neighbours.words
        if self.bounds.get("classes_are") == FROM_Y:
            pair += " and have the same set of labels"
        meaning = (
            f"Take {pair}. Any conclusion that somebody could draw from {released} "
            f"is at most e^{self.epsilon:g} times as likely with one as with the other, apart from an "
            f"extra probability of at most {self.delta:.3g}. This holds whatever else that person "
            f"knows, has, or computes later."
        )
        return " ".join(filter(None, (meaning, explain_size(self.epsilon), self._large_delta)))

    @property
    def _large_delta(self) -> str:
        """A sentence about a delta of 1/n or more; empty for a smaller one, or without a public n."""
        counts = {noun: self.public.get(name) for name, noun in (("n", "record"), ("persons", "person"))}
        found = [explain_delta(self.delta, n, noun) for noun, n in counts.items() if isinstance(n, int)]
        return " ".join(found)

    @property
    def _neighbours(self) -> Neighbours:
        return Neighbours(self.relation, "person" if self.unit == PERSON else "row")

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain types that JSON can hold."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain: dict[str, Any] = json.loads(json.dumps(fields, allow_nan=False))
        if not self.composition:  # as earlier versions write it
            del plain["composition"]
        return {**plain, "meaning": self.meaning}

    def to_json(self) -> str:
        """Return the statement as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> PrivacyStatement:
        """Read back what `to_dict` wrote; anything else is a ValueError."""
        if not isinstance(content, Mapping):
            raise WrongValue(f"A privacy statement must be a JSON object, got {type(content).__name__}.")
        fields = {field.name: field.type for field in dataclasses.fields(cls)}
        content = {"composition": {}, **content}
        if set(content) != {*fields, "meaning"}:
            odd = sorted(set(content) ^ {*fields, "meaning"})
            raise WrongValue(
                f"This is no privacy statement of this version: unknown or missing fields {odd}."
            )
        for name, kind in fields.items():
            value, expected = content[name], _JSON_TYPES[str(kind)]
            if isinstance(value, bool) != (expected is bool) or not isinstance(value, expected):
                raise WrongValue(
                    f"Field {name!r} of a privacy statement must be a {kind}, got {type(value).__name__}."
                )
        if content["relation"] not in RELATIONS:
            raise WrongValue(f"A privacy statement's relation must be one of {sorted(RELATIONS)}.")
        if not all(isinstance(part, dict) and part.keys() >= _NEEDED for part in content["mechanisms"]):
            raise WrongValue(f"Every mechanism of a privacy statement needs {sorted(_NEEDED)}.")
        values = {name: content[name] for name in fields}
        values["mechanisms"] = tuple(values["mechanisms"])
        values["not_covered"] = tuple(str(item) for item in values["not_covered"])
        return cls(**values)

    @property
    def _title(self) -> str:
        stamp = "" if self.private else "NOT PRIVATE - "
        return f"{stamp}Privacy statement of {self.model} (dpcvx {self.version})"

    @property
    def _rows(self) -> list[tuple[str, str]]:
        return [
            (
                "guarantee",
                f"epsilon = {self.epsilon:g}, delta = {self.delta:.3g}" if self.private else "none",
            ),
            ("whose", f"{self.unit}; neighbours are {self._neighbours.words} ({self.relation!r})"),
            *(("asked", _sentence(phases)) for phases in _phases(self.mechanisms)),
            (
                "accounting",
                f"{self.accountant} certifies epsilon {self.certified_epsilon:.6g}; {self.sampler_delta:.2g} "
                "of delta pays for noise of finite precision",
            ),
            *_bound_rows(self.bounds),
            ("public", "; ".join(f"{name} {_words(value)}" for name, value in self.public.items())),
            ("randomness", self.randomness),
            ("ledger", self.ledger),
            ("settings", self.tuning),
            ("not covered", "; ".join(self.not_covered)),
        ]

    def _repr_html_(self) -> str:
        return html_table(self._title, [("meaning", self.meaning), *self._rows])

    def __str__(self) -> str:
        lines = [self._title, "", *textwrap.wrap(self.meaning, 110), ""]
        for name, text in self._rows:
            lines += textwrap.wrap(text, 110, initial_indent=f"{name:<12} ", subsequent_indent=" " * 13)
        return "\n".join(lines)


# Words for the thing released, and for how to treat it without a guarantee.
_MODEL = (
    "the published model",
    "the model as if it had been fitted without privacy. Fit again with random_state=None",
)
_RELEASED = {
    "QueryEngine": (
        "the answers",
        "the answers as if they had been computed without privacy. Start again without a seed",
    ),
    "private_score": (
        "the score",
        "the score as if it had been computed without privacy. Score again with random_state=None",
    ),
}


def charged_first(account: str) -> str:
    """Say that an account was charged in time."""
    return f"charged to account {account!r} before anything was computed from the records"


def _charged(receipt: Receipt) -> str:
    return (
        f"{charged_first(receipt.account)}, entry {receipt.sequence}, {receipt.time}, hash {receipt.hash}; "
        f"everything charged to that account together has at most epsilon {receipt.budget.epsilon:g} and "
        f"delta {receipt.budget.delta:.3g}"
    )


_NEEDED = {"question", "count", "event", "sensitivity", "noise"}
_PARTS = {*_NEEDED, "answers"}
_OF_PHASE = ("count", "noise", "noise_multiplier")
_ABOUT_QUESTION = ("question", "count", "sensitivity", "noise", "answers")
_SHARES = ("empty", "cell_noise", "faint", "share_noise", "flat", "at_end")
FEW_LEVELS = 10  # named in a sentence


def _composition(price: Price) -> dict[str, Any]:
    """Plain events of a release, empty where they are those of its mechanisms one after another."""
    try:
        listed = [Repeat(from_plain(_event(part)), part["count"]) for part in price.parts]
        if listed and count_leaves(Compose(tuple(listed))) == count_leaves(price.event):
            return {}
    except DpcvxError:  # a description that is for people
        pass
    return to_plain(price.event)


def _event(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in _ABOUT_QUESTION}


_JSON_TYPES: dict[str, Any] = {
    "str": str,
    "bool": bool,
    "float": (int, float),
    "tuple[dict[str, Any], ...]": (list, tuple),
    "tuple[str, ...]": (list, tuple),
    "dict[str, Any]": dict,
}


def _bound_rows(bounds: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Lines about bounds: names and values, and what released shares say, in words."""
    plain = {name: value for name, value in bounds.items() if name not in _SHARES}
    rows = [(name.replace("_", " "), _words(value)) for name, value in plain.items()]
    found = [*doubts_about_data(bounds), *doubts_about_levels(bounds)]
    return [*rows, *(("doubts", sentence) for sentence in found)]


def doubts_about_data(bounds: Mapping[str, Any]) -> list[str]:
    """Return sentences about columns that may be empty or in another unit, from released numbers."""
    return [*doubts_about_columns(bounds), *doubts_about_units(bounds)]


def doubts_about_columns(bounds: Mapping[str, Any]) -> list[str]:
    """Return a sentence about columns of numbers whose released shares are within their noise, or none."""
    if not (empty := bounds.get("empty")):
        return []
    return [
        f"Perhaps no cell of {', '.join(empty)} was recognised: the released share of the cells that "
        f"are numbers is within twice its noise (standard deviation {bounds['cell_noise']:.2g}). See that "
        "these are the right columns, written as numbers."
    ]


def doubts_about_units(bounds: Mapping[str, Any]) -> list[str]:
    """Return a warning about columns of numbers whose bounds may be in another unit, or none."""
    found = []
    if at_end := bounds.get("at_end"):
        found.append(
            f"The released mean of {', '.join(at_end)} is within its noise of the upper bound: perhaps "
            "nearly all cells are clipped there."
        )
    if flat := bounds.get("flat"):
        found.append(
            f"The released standard deviation of {', '.join(flat)} is within its noise, which is small: the "
            "cells hardly vary within such bounds."
        )
    if not found:
        return []
    advice = (
        "The model may make little use of these columns. Check that their bounds are in the unit and on the "
        "scale of the cells, and not far too wide."
    )
    return [" ".join([*found, advice])]


def doubts_about_levels(bounds: Mapping[str, Any]) -> list[str]:
    """Return a sentence about levels whose released shares are within their noise, or none."""
    if not (faint := bounds.get("faint")):
        return []
    named = ", ".join(faint[:FEW_LEVELS]) + (" and others" if len(faint) > FEW_LEVELS else "")
    return [
        f"Nobody may be at {named}: the released shares of these levels are within twice their noise "
        f"(standard deviation {bounds['share_noise']:.2g}), and their coefficients may be noise alone."
    ]


def _phases(parts: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Group adjacent Gaussian parts that differ only in count and noise: the phases of one descent."""

    def question(part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name not in _OF_PHASE}

    found: list[list[Mapping[str, Any]]] = []
    for part in parts:
        if "noise_multiplier" in part and found and question(found[-1][-1]) == question(part):
            found[-1].append(part)
        else:
            found.append([part])
    return found


def _sentence(phases: Sequence[Mapping[str, Any]]) -> str:
    part = phases[0]
    if len(phases) > 1:
        values = {name: tuple(each[name] for each in phases) for name in _OF_PHASE if name in part}
        often = f"{sum(values['count'])} times in phases of {_words(values['count'])}"
        part = {**part, **values}
    else:
        often = "once" if part["count"] == 1 else f"{part['count']} times"
    cost = ", ".join(
        f"{name.replace('_', ' ')} {_words(value)}" for name, value in part.items() if name not in _PARTS
    )
    if part.get("answers"):
        each = (
            f"{one['answer']}, Gaussian with noise multiplier {_words(one['noise_multiplier'])}, sensitivity "
            f"{_words(one['sensitivity'])}, noise scale {_words(one['noise'])}"
            for one in part["answers"]
        )
        return f"{part['question']}, {often}: {'; '.join(each)}"
    scale = "" if len(phases) > 1 else f", noise scale {_words(part['noise'])}"  # it is their product
    sensitivity = _words(part["sensitivity"])
    return f"{part['question']}, {often}, {part['event']} with {cost}; sensitivity {sensitivity}{scale}"


def _words(value: Any) -> str:
    """Short text of a public value; long lists are counted, JSON has them in full."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(value)
    if isinstance(value, int | float):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(item)}" for name, item in value.items())
    if len(value) > 8:
        return f"({len(value)} values from {_words(value[0])} to {_words(value[-1])})"
    return "(" + ", ".join(_words(item) for item in value) + ")"
