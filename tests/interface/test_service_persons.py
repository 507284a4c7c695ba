"""The query service on a table of persons with several rows: what its start, its answers and its page say."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dpcvx.accounting import Budget
from dpcvx.data.files import CsvDialect, FileForm
from dpcvx.errors import Incompatible, WrongValue
from dpcvx.ledger import Ledger
from dpcvx.service import start
from dpcvx.service.start import ServiceSettings
from serving import make_analysts, visitor

# The weight is left out on purpose: a new account is not charged before the schema says so.
DECLARED = """
no_queries = ["weight"]
[columns.patient]
kind = "person"
[columns.age]
kind = "number"
bounds = [18, 90]
bins = 4
[columns.sex]
kind = "levels"
levels = ["f", "m"]
[columns.weight]
kind = "number"
bounds = [40, 120]
"""
ATTRIBUTES = """
[attributes.sex]
levels = ["f", "m"]
other = "m"
[attributes.age]
edges = [18, 36, 54, 72, 90]
missing = 45
"""
PERSONS = 400


@pytest.fixture
def folder(tmp_path):
    """Visits of patients, one to four each, with semicolons and decimal commas."""
    generator = np.random.default_rng(0)
    lines = ["patient;age;sex;weight"]
    for person in range(PERSONS):
        age, sex = generator.integers(18, 90), generator.choice(["f", "m"])
        for _ in range(1 + person % 4):
            lines.append(f"P{person};{age};{sex};{str(generator.uniform(40, 120)).replace('.', ',')}")
    (tmp_path / "visits.csv").write_text("\n".join(lines))
    (tmp_path / "declared.toml").write_text(DECLARED)
    (tmp_path / "attributes.toml").write_text(ATTRIBUTES)
    return tmp_path


WITHOUT_BINS = DECLARED.replace('no_queries = ["weight"]\n', "")


def settings(folder, schema="declared.toml", **given):
    return ServiceSettings(
        folder / "visits.csv",
        folder / schema,
        given.pop("epsilon", 4.0),
        delta=None,
        ledger=str(folder / "ledger.db"),
        witness=None,
        account="visits",
        host="127.0.0.1",
        port=0,
        slot=0.01,
        **{"form": lambda schema: FileForm(CsvDialect(";", ",")), **given},
    )


def served(monkeypatch, capsys, given):
    """Run a server that stops at once; return its engine and what its console said."""
    seen = []

    def application(analysts, **_):
        seen.append(analysts)
        return analysts

    monkeypatch.setattr(start, "application", application)
    monkeypatch.setattr("dpcvx.service.connections.server_config", lambda app: app)
    monkeypatch.setattr("uvicorn.Server", lambda config: type("Server", (), {"run": lambda *_, **__: None})())
    start.run(given)
    return seen[0], capsys.readouterr().err


@pytest.mark.long
def test_a_table_of_visits_is_served_by_persons(folder, monkeypatch, capsys):
    analysts, said = served(monkeypatch, capsys, settings(folder))
    engine = analysts.engine
    assert (engine.n, engine.budget.unit) == (PERSONS, "person")
    assert engine.budget.delta == 1 / PERSONS**2
    assert Ledger(folder / "ledger.db").account("visits").budget == Budget(4.0, 1 / PERSONS**2, unit="person")
    assert "attributes of 400 people" in said
    assert "unit: one person with all of their rows, 400 of them" in said
    assert "weight" not in said
    assert "1,000" not in said  # the number of rows
    assert (analysts.schema["unit"], analysts.schema["units"]) == ("person", PERSONS)
    assert analysts.statement()["public"]["persons"] == PERSONS
    with pytest.raises(WrongValue, match="protects all rows of a person together, which cannot be"):
        start.run(settings(folder, "attributes.toml"))


def test_a_table_of_persons_is_never_told_to_protect_rows_instead(folder):
    Ledger(folder / "ledger.db").create("visits", epsilon=4.0, delta=1e-6)
    with pytest.raises(WrongValue, match="ledger create NAME --unit person") as refused:
        start.run(settings(folder))
    assert "leave" not in str(refused.value)


@pytest.mark.long
def test_attributes_with_an_option_are_served_by_persons(folder, monkeypatch, capsys):
    analysts, said = served(
        monkeypatch, capsys, settings(folder, "attributes.toml", person="patient", persons=500)
    )
    assert analysts.engine.n == 500
    assert "500 of them" in said


@pytest.mark.parametrize(
    ("schema", "given", "words"),
    [
        ("attributes.toml", {"person": "nobody"}, "lacks 'nobody'"),
        ("attributes.toml", {"person": "age"}, "leave it out there"),
        ("attributes.toml", {"persons": 9}, "--persons needs the ids"),
        ("attributes.toml", {"form": lambda schema: FileForm()}, "declares columns that"),
    ],
)
def test_what_is_wrong_with_persons_is_said_before_anything_is_charged(folder, schema, given, words):
    with pytest.raises(WrongValue, match=words):
        start.run(settings(folder, schema, **given))
    assert not (folder / "ledger.db").exists()


@pytest.mark.parametrize(
    ("schema", "content", "given", "words"),
    [
        (
            "declared.toml",
            WITHOUT_BINS,
            {},
            r"cannot use 'weight' \(a number without bins.* no_queries = \[\"weight\"\]  before the first",
        ),
        (
            "declared.toml",
            WITHOUT_BINS.replace('"number"\nbounds = [40, 120]', '"weight"\nbounds = [0, 120]'),
            {},
            "survey weights, which queries do not use: all people count alike",
        ),
        (
            "attributes.toml",
            ATTRIBUTES.replace("missing = 45", "").replace('other = "m"', ""),
            {"person": "patient"},
            r"does not say where other and missing cells of 'sex', 'age' count",
        ),
        (
            "attributes.toml",
            ATTRIBUTES.replace("[18, 36, 54, 72, 90]", str(list(range(18, 91, 3)))),
            {"person": "patient", "spend": 0.001},
            "regressions and tables would show no relation between columns",
        ),
    ],
)
def test_public_findings_stop_a_new_account_before_it_pays(folder, schema, content, given, words):
    """A schema cannot be changed once it is paid for; these findings need no record."""
    (folder / schema).write_text(content)
    with pytest.raises(WrongValue, match=words) as refused:
        start.run(settings(folder, schema, **given))
    assert "Nothing was charged" in str(refused.value)
    assert "--accept-warnings" in str(refused.value)
    assert not (folder / "ledger.db").exists()


@pytest.mark.parametrize("accept_warnings", [False, True])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"person": "patient"}, "cannot be chosen for persons"),
        ({}, "more than 16,777,216. Leave out .*--choose-pairs"),
    ],
    ids=["persons", "few cells"],
)
def test_pairs_that_cannot_be_chosen_are_refused_before_an_account_is_opened(
    folder, given, words, accept_warnings
):
    chosen = settings(folder, "attributes.toml", choose_pairs=True, accept_warnings=accept_warnings, **given)
    with pytest.raises(Incompatible, match=words):
        start.run(chosen)
    assert not (folder / "ledger.db").exists()


def wide(folder, columns, people):
    """A table of yes and no in many columns, with its schema, in the place of the visits."""
    names = [f"q{j}" for j in range(columns)]
    answers = np.random.default_rng(0).choice(["no", "yes"], (people, columns))
    lines = [";".join(row) for row in (names, *answers)]
    (folder / "visits.csv").write_text("\n".join(lines))
    declared = "".join(f'[attributes.{name}]\nlevels = ["no", "yes"]\nother = "missing"\n' for name in names)
    (folder / "wide.toml").write_text(declared)
    return partial(settings, folder, "wide.toml", epsilon=1.0)


@pytest.mark.parametrize(("people", "advised"), [(20, False), (400, True)])
def test_a_choice_of_pairs_is_advised_only_where_it_measures_some(folder, people, advised):
    with pytest.raises(WrongValue, match="show no relation between columns") as refused:
        start.run(wide(folder, 60, people)())
    assert ("--choose-pairs" in str(refused.value)) == advised


def test_a_choice_of_pairs_is_not_advised_where_it_would_be_refused(folder):
    with pytest.raises(WrongValue, match="show no relation between columns") as refused:
        start.run(wide(folder, 14, 40)())
    assert "--choose-pairs" not in str(refused.value)


@pytest.mark.long
def test_the_console_says_whether_pairs_are_chosen_and_another_start_is_refused(folder, monkeypatch, capsys):
    given = wide(folder, 20, 2000)
    _, said = served(monkeypatch, capsys, given(choose_pairs=True))
    assert "pairs that are chosen: 20 attributes of 2,000 people" in said
    assert "warm" not in said
    with pytest.raises(WrongValue, match=r"method \(chosen_pairs, now warm\).*options \(.*--choose-pairs\)"):
        start.run(given())


@pytest.mark.long
def test_an_account_that_has_paid_goes_on_with_its_schema(folder, monkeypatch, capsys):
    (folder / "declared.toml").write_text(WITHOUT_BINS)
    analysts, said = served(monkeypatch, capsys, settings(folder, accept_warnings=True))
    assert "no queries about 'weight' (a number without bins" in said
    _, again = served(monkeypatch, capsys, settings(folder))
    assert "warning: Queries cannot use 'weight'" in again
    (folder / "declared.toml").write_text(DECLARED)  # the attributes are the same
    other, _ = served(monkeypatch, capsys, settings(folder))
    assert other.engine.schema == analysts.engine.schema
    assert len(Ledger(folder / "ledger.db").account("visits").history()) == 1


def renamed(folder):
    """Give the column age another name in the table."""
    visits = folder / "visits.csv"
    visits.write_text(visits.read_text().replace("patient;age", "patient;Age", 1))


def test_a_declared_column_that_the_table_lacks_stops_a_new_account_before_it_pays(folder):
    """Otherwise the whole budget would be charged for a server without this column."""
    renamed(folder)
    (folder / "declared.toml").write_text(DECLARED + '[columns.typo]\nkind = "levels"\nlevels = [1, 2]\n')
    with pytest.raises(WrongValue, match=r"lacks, .*: 'age' \(the table has 'Age'\), 'typo'\.") as refused:
        start.run(settings(folder))
    assert "Nothing was charged" in str(refused.value)
    assert not (folder / "ledger.db").exists()


def test_survey_weights_are_left_out_where_the_schema_says_so(folder):
    """The start was refused with advice for fits."""
    weighted = DECLARED.replace('"number"\nbounds = [40, 120]', '"weight"\nbounds = [0, 120]')
    (folder / "declared.toml").write_text(weighted)
    table = start._open_declared(settings(folder))
    assert "'weight' (survey weights: all people count alike)" in table.left_out
    assert not table.warnings
    assert table.schema.names == ("age", "sex")


def test_absent_columns_that_the_schema_leaves_out_stop_nothing(folder):
    (folder / "declared.toml").write_text(DECLARED + '[columns.name]\nkind = "ignored"\n')
    table = start._open_declared(settings(folder))
    assert table.left_out == ("'name', which the table lacks and the schema leaves out",)
    assert not table.warnings


@pytest.mark.long
def test_an_account_that_has_paid_is_told_which_columns_differ(folder, monkeypatch, capsys):
    served(monkeypatch, capsys, settings(folder, spend=0.5))
    (folder / "declared.toml").write_text(DECLARED.replace('["f", "m"]', '["f", "m", "x"]'))
    renamed(folder)
    with pytest.raises(WrongValue, match="'age' not there any more; 'sex' declared otherwise") as refused:
        start.run(settings(folder, spend=0.5))
    assert "the table has 'Age'" in str(refused.value)
    assert len(Ledger(folder / "ledger.db").account("visits").history()) == 1  # not the other half


def with_one_more(folder):
    """Add a patient to the table."""
    with (folder / "visits.csv").open("a") as file:
        file.write("\nP400;30;f;70,0")


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"spend": 0.5}, r"another number of people \(400, now 401\)\. Nothing"),
        ({"spend": 0.3}, r"people .* and another budget \(epsilon 2, delta .*, now epsilon 1\.2, delta "),
        ({"spend": 0.5, "check": 0.0}, "another share of the check of the data"),
        ({"spend": 0.5, "persons": 401}, "another way of counting persons"),
    ],
    ids=["table", "spend", "check", "persons"],
)
def test_an_account_with_budget_left_does_not_pay_for_a_second_server_unasked(
    folder, monkeypatch, capsys, given, words
):
    served(monkeypatch, capsys, settings(folder, spend=0.5))
    with_one_more(folder)
    with pytest.raises(WrongValue, match=words) as refused:
        start.run(settings(folder, **given))
    assert "second server, add --accept-warnings" in str(refused.value)
    assert len(Ledger(folder / "ledger.db").account("visits").history()) == 1


@pytest.mark.long
def test_a_server_goes_on_where_its_first_start_stopped_before_it_stored_its_split(
    folder, monkeypatch, capsys
):
    """It was charged and its facts were noted; the second start pays nothing."""
    place = folder / "ledger.db"
    with monkeypatch.context() as stopped:
        stopped.setattr("dpcvx.ledger.Account.store", lambda *_: exec("raise KeyboardInterrupt"))
        with pytest.raises(KeyboardInterrupt):
            served(stopped, capsys, settings(folder, spend=0.5))
    served(monkeypatch, capsys, settings(folder, spend=0.5))
    assert len(Ledger(place).account("visits").history()) == 1


@pytest.mark.long
def test_a_changed_file_is_not_said_to_be_without_effect_where_it_is_measured(folder, monkeypatch, capsys):
    served(monkeypatch, capsys, settings(folder, spend=0.3))
    visits = folder / "visits.csv"
    visits.write_text(visits.read_text().replace("P399;", "P398;"))
    _, said = served(monkeypatch, capsys, settings(folder, spend=0.3, accept_warnings=True))
    assert "your data: changed file: about 100%" in said
    assert "A server that continues still uses earlier measurements" in said  # this one does not continue
    assert len(Ledger(folder / "ledger.db").account("visits").history()) == 2


def test_too_many_cells_for_persons_open_no_account(folder):
    """The cap of an account that is open cannot be changed."""
    many = WITHOUT_BINS.replace("bins = 4", "bins = 5000") + "bins = 9999\n"
    (folder / "declared.toml").write_text(many)
    with pytest.raises(Incompatible, match=r"150,030,000 cells.* weight \(10000\), age \(5001\), sex"):
        start.run(settings(folder))
    assert not (folder / "ledger.db").exists()


@pytest.mark.long
def test_a_start_without_the_witness_of_an_earlier_one_is_noticed(folder, monkeypatch, capsys):
    with_witness = replace(settings(folder), witness=str(folder / "witness"))
    assert "was not told" not in served(monkeypatch, capsys, with_witness)[1]
    said = served(monkeypatch, capsys, settings(folder))[1]
    assert "warning: this ledger has a witness, and this start was not told where it is" in said
    assert "was not told" not in served(monkeypatch, capsys, with_witness)[1]


@pytest.mark.long
def test_the_check_does_not_say_that_nothing_looks_wrong_where_a_column_is_absent(
    folder, monkeypatch, capsys
):
    renamed(folder)
    _, said = served(monkeypatch, capsys, settings(folder, accept_warnings=True, epsilon=50.0))
    assert "no column, level or class looks wrong" not in said
    assert "nothing else looks wrong, but the table lacks 'age'" in said
    assert "warm start: 1 attribute of" in said


@pytest.mark.long
def test_the_console_and_the_schema_name_columns_without_intervals(folder, monkeypatch, capsys):
    """By noisy shares, which every regression of such a column would state too."""
    generator = np.random.default_rng(0)
    lines = ["age;sex;smokes;town"]
    for k in range(5000):
        age, town = (
            ("", "") if k % 5 == 0 else (generator.integers(18, 90), generator.choice(["a", "b", "c"]))
        )
        lines.append(f"{age};{generator.choice(['f', 'm'])};{generator.choice(['no', 'yes'])};{town}")
    (folder / "visits.csv").write_text("\n".join(lines))
    (folder / "declared.toml").write_text(
        '[columns.age]\nkind = "number"\nbounds = [18, 90]\nbins = 4\n'
        '[columns.sex]\nkind = "levels"\nlevels = ["f", "m"]\n'
        '[columns.smokes]\nkind = "levels"\nlevels = ["no", "yes"]\n'
        '[columns.town]\nkind = "levels"\nlevels = ["a", "b", "c"]\n'  # never a target: it has no mean
    )
    analysts, said = served(monkeypatch, capsys, settings(folder))
    assert "no intervals for regressions of age (about 20% lack it) on several attributes" in said
    shares = {one["name"]: one.get("often_missing") for one in analysts.schema["attributes"]}
    assert shares == {"age": pytest.approx(0.2, abs=0.02), "sex": None, "smokes": None, "town": None}
    assert shares["age"] == round(shares["age"], 2)


def test_the_console_names_columns_that_the_schema_does_not_declare(folder):
    table = start._open(settings(folder, "attributes.toml", person="patient"))
    assert table.left_out == ("1 column that the schema does not declare: 'weight'",)
    assert not table.warnings


def test_a_declared_column_of_persons_is_never_overlooked(folder):
    (folder / "declared.toml").write_text(DECLARED.replace("columns.patient", "columns.person"))
    with pytest.raises(WrongValue, match="lacks 'person', the column with the ids of persons"):
        start.run(settings(folder))


def test_the_schema_says_whose_data_these_are(tmp_path):
    with visitor(make_analysts(tmp_path)) as client:
        told = client.get("/api/v1/schema").json()
    assert (told["data"], told["units"], told["unit"]) == ("people", 1000, "record")
