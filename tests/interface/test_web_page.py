"""The web page in a real browser, from the key to the download, at the width of a desktop and of a phone."""

import shutil
import zipfile
from dataclasses import replace

import pytest

import dpcvx
from dpcvx.queries import Schema, query_from_json
from dpcvx.queries.answer import BINDING, UNCALIBRATED
from dpcvx.queries.legend import legend_of
from dpcvx.service.application import WEB, application
from serving import SCHEMA, Teller, make_analysts, serving

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs Chromium and chromedriver: apt install chromium chromium-driver"
)
pytestmark = pytest.mark.long  # starts a browser and a server
WIDTHS = {"analysts": (1280, 900), "phone": (390, 844)}
TABS = ["ask", "data", "history", "synthetic", "promise"]


class Page:
    """The page as a person uses it."""

    def __init__(self, driver, address, text):
        self.driver, self.address, self.text = driver, address, text

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def until(self, condition):
        return WebDriverWait(self.driver, 30, 0.05).until(lambda _: condition())

    def resize(self, width, height):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def visit(self):
        self.driver.get(f"{self.address}/healthz")  # the same origin, without a script that could log in
        self.driver.execute_script("sessionStorage.clear()")
        self.driver.get(self.address)

    def enter(self, text=None):
        self.visit()
        self.find("#key").send_keys(text or self.text, Keys.ENTER)

    def enter_and_wait(self):
        self.enter()
        self.until(lambda: self.find("#budget-words").text)

    def open(self, tab):
        self.find(f"#tab-{tab}").click()
        self.until(lambda: not self.all("[aria-busy=true]"))

    def choose(self, kind):
        self.find(f"input[name=kind][value={kind}]").click()

    def tick(self, *names):
        for name in names:
            self.find(f"input[name=feature][value={name}]").click()

    def ask(self):
        self.find("#ask").click()
        self.until(lambda: self.find("#ask").is_enabled())

    def answer(self):
        cells = self.driver.execute_script(
            "return [...document.querySelectorAll('#answer tbody tr')].map("
            "(row) => [...row.cells].map((cell) => cell.textContent))"
        )
        return self.find("#answer h2").text, cells


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    folder = tmp_path_factory.mktemp("downloads")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    browser.downloads = folder
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def engine():
    return Teller()


@pytest.fixture(scope="module")
def served(tmp_path_factory, engine):
    analysts = make_analysts(tmp_path_factory.mktemp("ledger"), engine)
    _, text = analysts.keys.create("ann", scopes=("ask", "admin"), per_minute=1000)
    with serving(application(analysts, slot=0.01)) as address:
        yield address, text


@pytest.fixture
def page(driver, served, engine):
    engine.problem = None
    driver.get_log("browser")
    page = Page(driver, *served)
    page.resize(*WIDTHS["analysts"])
    yield page
    # Refusals that a test provokes, and what the browser asks for of a page that is no page.
    expected = (
        "401 (Unauthorized)",
        "404 (Not Found)",
        "409 (Conflict)",
        "422 (Unprocessable",
        "/favicon.ico",
    )
    wrong = [line["message"] for line in driver.get_log("browser") if line["level"] == "SEVERE"]
    assert not [line for line in wrong if not any(known in line for known in expected)]


@needs_browser
def test_a_wrong_key_stays_outside(page):
    page.enter("dpcvx-000000000000-wrong")
    assert "not known" in page.until(lambda: page.find("#login-status").text)
    assert not page.find("#room").is_displayed()
    assert page.driver.execute_script("return sessionStorage.length") == 0


@needs_browser
def test_the_key_lasts_as_long_as_the_tab_and_leaving_forgets_it(page):
    page.enter_and_wait()
    page.driver.refresh()
    page.until(lambda: page.find("#budget-words").text)
    page.find("#leave").click()
    page.until(lambda: page.find("#login").is_displayed())
    assert page.driver.execute_script("return sessionStorage.length + localStorage.length") == 0
    assert page.driver.get_cookies() == []


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_a_regression_is_built_and_answered_with_table_and_plot(page, engine, width):
    page.resize(*WIDTHS[width])
    engine.branch, engine.number = "oracle", 0.25
    page.enter_and_wait()
    Select(page.find("#target")).select_by_value("smokes")
    page.tick("age", "sex", "region")
    assert not page.find("#set").is_displayed()  # nobody has to know what it is
    page.find("#advanced summary").click()
    Select(page.find("#set")).select_by_value("l1")
    page.find("#radius").clear()
    page.find("#radius").send_keys("5")
    page.ask()
    title, rows = page.answer()
    assert title == "smokes ~ sex + age + region (logistic)"
    assert [row[0] for row in rows] == [
        "intercept",
        "sex=f (baseline)",
        "sex=m",
        "age",
        "region=north (baseline)",
        "region=south",
        "region=west",
    ]
    name = page.driver.current_url.split("#answer/")[1]
    with dpcvx.Client(page.address, page.text) as client:
        answer = client.answer(name)
    assert rows == answer.summary().table().cells()[1:]  # the same table as in Python
    assert rows[0][1:] == ["0.2500", "1.414", "0.177", "0.860", "-1.750", "2.250", "50 %"]
    page.find("#answer [data-population]").click()
    page.until(lambda: len(page.all("#answer thead th")) == 5)
    assert page.answer()[1] == answer.summary(population=False).table().cells()[1:]
    asked = engine.asked[-1][0].to_json()
    assert (asked["set"], asked["radius"], asked["loss"], asked["intercept"]) == ("l1", 5, "logistic", True)
    labels = [text.text for text in page.all("#answer svg text:not(.tick)")]
    assert "".join(labels).replace(" ", "") == "sex=mageregion=southregion=west"  # none is cut
    assert all(
        text.rect["x"] >= page.find("#answer svg").rect["x"]
        for text in page.all("#answer svg text:not(.tick)")
    )
    assert len(page.all("#answer svg circle")) == len(page.all("#answer svg .interval")) == 4
    assert "a new private measurement" in page.find("#answer dl").text
    assert _fits(page)


@needs_browser
def test_the_plot_puts_values_where_the_axis_says(page, engine):
    engine.number = 0.5
    page.enter_and_wait()
    Select(page.find("#target")).select_by_value("smokes")
    page.tick("age", "sex")
    page.ask()
    page.find("#answer [data-population]").click()
    page.until(lambda: len(page.all("#answer thead th")) == 5)
    place = {
        e.get_attribute("class"): e
        for e in page.all("#answer svg .zero, #answer svg .interval, #answer svg circle")
    }
    zero, low, high = (
        float(place[c].get_attribute(a)) for c, a in (("zero", "x1"), ("interval", "x1"), ("interval", "x2"))
    )
    dot = float(place["estimate"].get_attribute("cx"))
    room = float(page.find("#answer svg").get_attribute("width"))
    assert 0 < low < zero < dot < high < room
    assert (dot - zero) / (high - low) == pytest.approx(0.25, abs=1e-3)  # 0.5 of an interval from -0.5 to 1.5


@needs_browser
def test_counts_means_and_tables_are_asked_with_conditions(page, engine):
    engine.branch = "histogram"
    page.enter_and_wait()
    page.choose("count")
    page.ask()
    assert "Add a condition" in page.find("#ask-status").text
    Select(page.find("#condition")).select_by_value("age")
    page.ask()
    assert "at least one value of age" in page.find("#ask-status").text
    page.all(".condition input")[1].click()
    page.ask()
    assert page.answer()[0] == "Number of people with age = [40, 60)"
    page.choose("mean")
    Select(page.find("#target")).select_by_value("age")
    page.find(".condition button").click()
    page.ask()
    assert page.answer()[0] == "Mean of age"
    page.choose("marginal")
    page.tick("sex", "region")
    page.ask()
    assert [row[0] for row in page.answer()[1]] == ["f", "m", "total"]
    heads = [head.text for head in page.all("#answer thead th")]
    assert heads == ["sex", "region=north", "region=south", "region=west", "region=total"]
    kinds = [query.to_json()["kind"] for query, _ in engine.asked[-3:]]
    assert kinds == ["count", "mean", "marginal"]
    assert "public histogram" in page.find("#answer dl").text


@needs_browser
def test_shrunk_coefficients_are_asked_for_again_by_a_button(page, engine, monkeypatch):
    """Nobody has to find the radius under Advanced, which the note names."""
    monkeypatch.setattr(engine, "note", BINDING.format(UNCALIBRATED))
    page.enter_and_wait()
    page.find("#formula").send_keys("smokes ~ age + sex + age:sex", Keys.TAB)
    page.ask()
    for radius in (12, 48):
        again = page.find("#answer .tools button")
        assert again.text == f"Ask again with radius {radius}"
        before = len(engine.asked)
        again.click()
        page.until(lambda before=before: len(engine.asked) > before and page.find("#ask").is_enabled())
        assert engine.asked[-1][0].radius == radius
        assert engine.asked[-1][0].interactions == (("age", "sex"),)
    engine.note = ""
    page.ask()
    assert "Ask again" not in page.find("#answer").text


@needs_browser
@pytest.mark.parametrize("rows", ["", "0", "1.5", "1000001"])
def test_a_wrong_number_of_synthetic_rows_is_refused_in_words(page, rows):
    page.enter_and_wait()
    page.open("synthetic")
    page.find("#rows").clear()
    page.find("#rows").send_keys(rows)
    page.find("#synthetic button").click()
    assert page.find("#synthetic-status").text == "Give a whole number of rows from 1 to 1,000,000."


@needs_browser
def test_many_attributes_can_be_searched_in_the_form(page):
    """46 questions of a survey filled several screens above the button Ask."""
    page.enter_and_wait()
    assert not page.find("#feature-search").is_displayed()  # three attributes need no search
    page.driver.execute_script("$('feature-search').hidden = false")
    Select(page.find("#target")).select_by_value("smokes")
    page.tick("sex")
    page.ask()
    page.find("#feature-search").send_keys("REG", Keys.ENTER)
    shown = [label.text for label in page.all("#features label") if label.is_displayed()]
    assert shown == ["sex", "region"]  # what is ticked stays
    assert page.all("#answer tbody tr")  # the answer still belongs to the form
    assert ticked(page) == ["sex"]
    page.find("#feature-search").send_keys(Keys.BACKSPACE * 3)
    assert all(label.is_displayed() for label in page.all("#features label"))


@needs_browser
def test_the_form_offers_only_what_can_be_answered(page):
    page.enter_and_wait()
    assert not page.find("#target option[value=region]").is_enabled()  # its levels have no mean
    Select(page.find("#target")).select_by_value("age")
    assert page.find("#loss").get_attribute("value") == "squared"
    assert not page.find("#loss option[value=logistic]").is_enabled()
    assert not page.find("input[name=feature][value=age]").is_enabled()
    page.choose("mean")
    assert not page.find("#target option[value=region]").is_enabled()
    assert page.find("#target").get_attribute("value") != "region"
    page.choose("regression")
    page.ask()
    assert "at least one attribute" in page.find("#ask-status").text


@needs_browser
def test_a_refusal_is_shown_and_the_form_stays_usable(page, engine):
    from dpcvx.errors import BudgetExceeded

    page.enter_and_wait()
    Select(page.find("#target")).select_by_value("smokes")
    page.tick("age")
    page.ask()
    assert page.all("#answer tbody tr")
    engine.problem = BudgetExceeded(1.0, 0.0)
    page.ask()
    assert "budget is spent" in page.find("#ask-status").text
    assert not page.find("#answer").text  # the old answer would be taken for this question's
    engine.problem = None
    page.ask()
    assert page.find("#ask-status").text == ""
    assert page.answer()[0].startswith("smokes")


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_every_part_opens_and_fits(page, width):
    page.resize(*WIDTHS[width])
    page.enter_and_wait()
    Select(page.find("#target")).select_by_value("smokes")
    page.tick("age")
    page.ask()
    shown = {}
    ends = [page.find(f"#tab-{tab}").rect for tab in TABS]
    assert all(end["x"] >= 0 and end["x"] + end["width"] <= WIDTHS[width][0] for end in ends)  # none hidden
    for tab in TABS:
        page.open(tab)
        shown[tab] = page.until(lambda tab=tab: page.find(f"#panel-{tab}").text)
        assert page.find(f"#tab-{tab}").is_displayed()
        assert _fits(page)
        assert [t for t in TABS if page.find(f"#panel-{t}").is_displayed()] == [tab]
    assert "[20, 40)" in shown["data"]
    page.open("history")
    page.all("#past summary")[0].click()
    assert page.until(lambda: page.all("#past tbody tr"))
    assert _fits(page)
    assert "gives no guarantee" in shown["promise"]
    assert "running time; several rows" in shown["promise"]  # in words, before the JSON is opened


@needs_browser
def test_attributes_can_be_searched(page):
    page.enter_and_wait()
    page.open("data")
    page.find("#search").send_keys("REG")
    assert [card.text for card in page.all("#attributes h3")] == ["region"]


@needs_browser
def test_the_budget_gauge_shows_what_is_left(page, engine):
    page.enter_and_wait()
    gauge, bar = page.find("#gauge"), page.find("#gauge-bar")
    assert float(gauge.get_attribute("aria-valuenow")) == engine.remaining
    assert bar.size["width"] / gauge.size["width"] == pytest.approx(engine.remaining, abs=0.02)
    assert "0.400 of ε = 1" in page.find("#budget-words").text


@needs_browser
def test_an_answer_says_its_unit_how_to_read_it_and_whether_it_was_checked(page, engine, monkeypatch):
    monkeypatch.setattr(engine, "note", "by bin midpoints")
    monkeypatch.setattr(engine, "comparisons", (0, 0))
    monkeypatch.setattr(engine, "checked", False)
    page.enter_and_wait()
    page.open("promise")
    assert "this engine makes no comparisons" in page.until(lambda: page.find("#promise").text)
    page.open("ask")
    page.choose("mean")
    Select(page.find("#target")).select_by_value("age")
    page.ask()
    facts = page.find("#answer").text
    assert "By bin midpoints." in facts
    assert "this engine makes no comparisons" in facts
    assert "excess loss" not in facts
    assert "1,000 records" in facts
    monkeypatch.setattr(engine, "comparisons", (0, 4))
    page.choose("regression")
    Select(page.find("#target")).select_by_value("smokes")
    page.tick("age")
    page.ask()
    facts = page.find("#answer").text
    assert "Proved: excess loss at most" in facts
    assert "this asker has no share of the comparisons left, or was given none" in facts
    page.open("promise")
    page.until(lambda: "the comparisons are used up" in page.find("#promise").text)


@needs_browser
def test_no_answer_stands_beside_a_form_that_has_changed(page):
    page.enter_and_wait()
    Select(page.find("#target")).select_by_value("smokes")
    page.tick("age")
    page.ask()
    assert page.all("#answer tbody tr")
    page.tick("sex")
    assert not page.all("#answer tbody tr")
    assert "#answer" not in page.driver.current_url


def ticked(page):
    return [box.get_attribute("value") for box in page.all("input[name=feature]:checked")]


@needs_browser
def test_a_typed_formula_ticks_its_attributes_and_a_tick_keeps_its_products(page, engine):
    page.enter_and_wait()
    formula = page.find("#formula")
    formula.send_keys("smokes ~ age + sex + age:sex", Keys.TAB)
    assert page.find("#target").get_attribute("value") == "smokes"
    assert ticked(page) == ["sex", "age"]
    page.tick("region")
    assert formula.get_attribute("value") == "smokes ~ sex + age + region + age:sex"
    page.ask()
    asked = engine.asked[-1][0].to_json()
    assert (asked["features"], asked["interactions"]) == (["sex", "age", "region"], [["age", "sex"]])
    page.tick("age")  # without it there is no product, and the page says that one is lost
    assert formula.get_attribute("value") == "smokes ~ sex + region"
    assert "replaced the formula that was here: smokes ~ sex" in page.find("#formula-note").text
    formula.clear()
    formula.send_keys("smokes ~ age + something(sex)", Keys.TAB)
    assert ticked(page) == []
    assert "sent as it is typed" in page.find("#formula-note").text


@needs_browser
def test_an_opened_link_fills_the_form_with_its_query(page, engine):
    queries = [
        {
            "kind": "regression",
            "formula": "age ~ sex + region + sex:region",
            "loss": "huber",
            "set": "l1",
            "radius": 7.0,
            "where": {"smokes": ["no"]},
        },
        {"kind": "count", "where": {"region": ["north", "west"]}},
        {"kind": "mean", "of": "age", "where": {}},
        {"kind": "marginal", "attributes": ["sex", "region"]},
    ]
    with dpcvx.Client(page.address, page.text) as client:
        for k, query in enumerate(queries):
            client.ask(query, key=f"link{k}")
    page.enter_and_wait()
    for k in range(len(queries)):
        page.driver.execute_script(f"location.hash = '#answer/link{k}'")
        page.until(lambda k=k: page.driver.execute_script("return $('answer').dataset.name") == f"link{k}")
        before = len(engine.asked)
        page.ask()
        assert page.find("#ask-status").text == ""
        assert engine.asked[before][0].to_json() == query_from_json(queries[k]).to_json()


@needs_browser
def test_a_formula_can_be_typed_in_place_of_the_fields(page, engine):
    page.enter_and_wait()
    Select(page.find("#target")).select_by_value("smokes")
    page.tick("age")
    assert page.find("#formula").get_attribute("value") == "smokes ~ age"
    page.find("#formula").send_keys(" + region")
    page.ask()
    assert page.answer()[0] == "smokes ~ age + region (logistic)"
    assert engine.asked[-1][0].to_json()["features"] == ["age", "region"]
    page.find("#formula").send_keys(" + nothing")
    page.ask()
    assert "nothing" in page.find("#ask-status.wrong").text


@needs_browser
def test_a_typed_target_decides_the_model(page):
    page.enter_and_wait()
    Select(page.find("#target")).select_by_value("age")
    page.find("#formula").send_keys("`smokes` ~ sex")
    page.ask()
    assert page.answer()[0] == "smokes ~ sex (logistic)"
    assert page.find("#target").get_attribute("value") == "smokes"


@needs_browser
def test_an_answer_has_a_link_that_opens_it_again(page):
    page.enter_and_wait()
    page.choose("mean")
    Select(page.find("#target")).select_by_value("age")
    page.ask()
    link = page.driver.current_url
    page.driver.get(f"{page.address}/healthz")
    page.driver.get(link)
    page.until(lambda: page.all("#answer tbody tr"))
    assert page.answer()[0] == "Mean of age"
    page.driver.get(f"{page.address}/healthz")
    page.driver.get(f"{page.address}/#answer/another")
    assert "another key" in page.until(lambda: page.find("#ask-status").text)


@needs_browser
def test_answers_are_downloaded_and_compared(page):
    page.enter_and_wait()
    page.choose("marginal")
    page.tick("sex", "region")
    page.ask()
    page.all("#answer .tools button")[0].click()
    file = page.driver.downloads / "answer.csv"
    page.until(lambda: file.exists() and file.read_text().endswith("\n"))
    assert file.read_text().startswith("sex,region,people,std err,")
    page.ask()
    page.open("history")
    assert not page.find("#compare").is_enabled()
    for box in page.all("input[name=compared]")[:2]:
        box.click()
    page.find("#compare").click()
    rows = page.until(lambda: page.all("#comparison tbody tr"))
    assert rows[0].text.endswith("overlap")


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_history_has_pages_and_a_filter(page, width):
    page.resize(*WIDTHS[width])
    with dpcvx.Client(page.address, page.text) as client:
        for k in range(60):
            client.ask({"kind": "count", "where": {"region": ["west"]}}, key=f"page-{width}-{k}")
        client.ask({"kind": "mean", "of": "age", "where": {"sex": ["f", "m"]}}, key=f"page-{width}-mean")
    page.enter_and_wait()
    page.open("history")
    page.until(lambda: len(page.all("#past > li")) == 50)
    assert page.find("#past summary").text.startswith("Mean of age where sex in {f, m}")
    assert "Count where region = west" in page.all("#past summary")[1].text
    page.find("#older").click()
    page.until(lambda: len(page.all("#past > li")) > 60)
    names = [one.get_attribute("data-name") for one in page.all("#past > li")]
    assert len(set(names)) == len(names)
    page.find("#history-search").send_keys("MEAN sex")
    page.until(lambda: {one.text.split(" where")[0] for one in page.all("#past summary")} == {"Mean of age"})
    page.find("#history-search").send_keys(" nothing")
    page.until(lambda: "No query has these words" in page.find("#past").text)
    assert _fits(page)


@needs_browser
def test_a_server_that_does_not_answer_is_named_so(page):
    page.enter_and_wait()
    page.driver.execute_script("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    page.find("#synthetic-status")
    page.open("synthetic")
    page.find("#synthetic button").click()
    assert "The server does not answer" in page.until(lambda: page.find("#synthetic-status.wrong").text)


@needs_browser
def test_the_tabs_are_reached_by_home_and_end(page):
    page.enter_and_wait()
    page.find("#tab-ask").send_keys(Keys.END)
    assert page.driver.switch_to.active_element.get_attribute("id") == "tab-promise"
    page.driver.switch_to.active_element.send_keys(Keys.HOME)
    assert page.find("#panel-ask").is_displayed()


@needs_browser
def test_a_mean_beside_a_long_table_fits_a_phone(page):
    page.resize(*WIDTHS["phone"])
    with dpcvx.Client(page.address, page.text) as client:
        client.ask({"kind": "marginal", "attributes": ["sex", "age", "region", "smokes"]}, key="long")
        client.ask({"kind": "mean", "of": "age"}, key="short")
    page.enter_and_wait()
    page.open("history")
    for box in page.all("input[name=compared]")[:2]:
        box.click()
    page.find("#compare").click()
    rows = page.until(lambda: page.all("#comparison tbody tr"))
    assert len(rows) > 50
    assert page.find("#comparison").size["height"] < 2 * WIDTHS["phone"][1]
    assert max(row.size["height"] for row in rows) < 120
    assert _fits(page)


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_declared_words_are_shown_wherever_codes_are(driver, tmp_path, width):
    words = {"label": "Part of the country", "value_labels": {"north": "the cold & <b>"}}
    listed = [{**one.identity(), **(words if one.name == "region" else {})} for one in SCHEMA.attributes]
    schema = Schema.from_dict({"attributes": listed})

    class Labelled(Teller):
        def answer(self, compiled, key=None, asker=None, record=None):
            answer = super().answer(compiled, key, asker, record)
            return replace(answer, legend=legend_of(schema, answer.query))

    analysts = make_analysts(tmp_path, Labelled(schema=schema, often_missing={"smokes": 0.104}))
    _, text = analysts.keys.create("ann")
    with serving(application(analysts, slot=0.01)) as address:
        page = Page(driver, address, text)
        page.resize(*WIDTHS[width])
        page.enter_and_wait()
        Select(page.find("#target")).select_by_value("smokes")
        assert "About 10 % of the people have no smokes" in page.find("#target-note").text
        assert "region: Part of the country" in page.find("#features").text
        page.tick("region")
        Select(page.find("#condition")).select_by_value("region")
        assert "north (the cold & <b>)" in page.find("#conditions").text
        page.find(".condition button").click()
        page.ask()
        assert page.answer()[1][1][0] == "region=north (the cold & <b>) (baseline)"
        assert "Part of the country" in page.find("#answer dl").text
        page.choose("marginal")
        page.tick("sex")
        page.ask()
        labels = "".join(one.text for one in page.all("#answer svg text:not(.tick)")).replace(" ", "")
        assert "sex=f,region=north(thecold&<b>)" in labels
        assert _fits(page)
        page.open("data")
        assert "north (the cold & <b>)" in page.find("#attributes").text
        page.find("#search").send_keys("country")
        assert len(page.all("#attributes > li")) == 1


@needs_browser
def test_synthetic_data_are_downloaded(page):
    page.enter_and_wait()
    page.open("synthetic")
    page.find("#rows").clear()
    page.find("#rows").send_keys("7")
    page.find("#synthetic button").click()
    page.until(lambda: "privacy statement" in page.find("#synthetic-status").text)
    file = page.driver.downloads / "synthetic.zip"
    page.until(lambda: file.exists() and zipfile.is_zipfile(file))
    with zipfile.ZipFile(file) as archive:
        assert len(archive.read("synthetic.csv").splitlines()) == 8
        assert b"meaning" in archive.read("synthetic.csv.privacy.json")  # as the client writes it
    page.find("#rows").send_keys("000000000")
    page.find("#synthetic button").click()
    assert "rows" in page.until(lambda: page.find("#synthetic-status.wrong").text)


@needs_browser
def test_everything_can_be_done_by_keyboard_and_every_field_has_a_label(page):
    page.enter_and_wait()
    page.find("#tab-ask").send_keys(Keys.ARROW_RIGHT)
    assert page.driver.switch_to.active_element.get_attribute("id") == "tab-data"
    assert page.find("#panel-data").is_displayed()
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    assert page.find("#panel-ask").is_displayed()
    unnamed = page.driver.execute_script(
        "return [...document.querySelectorAll('input, select')].filter(e => !e.labels.length && "
        "!e.getAttribute('aria-label')).map(e => e.outerHTML)"
    )
    assert unnamed == []
    unreachable = page.driver.execute_script(
        "return [...document.querySelectorAll('button, input, select, summary')].filter(e => "
        "e.tabIndex < 0 && e.getAttribute('role') !== 'tab').length"
    )
    assert unreachable == 0


@needs_browser
def test_nothing_is_fetched_from_elsewhere(page):
    import json

    page.driver.get_log("performance")
    page.enter_and_wait()
    events = [json.loads(line["message"])["message"] for line in page.driver.get_log("performance")]
    fetched = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert any(url.endswith("/page.js") for url in fetched)
    assert not [url for url in fetched if not url.startswith((page.address, "data:"))]


def _fits(page):
    """Nothing hangs over the side of the screen."""
    return page.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("name", ["index.html", "page.js", "style.css"])
def test_the_files_hold_no_inline_script_and_no_foreign_address(name):
    text = (WEB / name).read_text().replace("http://www.w3.org/2000/svg", "")
    assert len(text) > 1000
    for word in ("http://", "https://", "//cdn", "@import", " style=", "onclick=", "innerHTML", "eval("):
        assert word not in text


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_the_interface_is_rendered_from_its_description(page, width):
    page.resize(*WIDTHS[width])
    page.driver.get(f"{page.address}/interface")
    page.find("#key").send_keys("dpcvx-wrong", Keys.ENTER)
    page.until(lambda: "valid API key" in page.find("#problem").text)
    page.find("#key").clear()
    page.find("#key").send_keys(page.text, Keys.ENTER)
    page.until(lambda: page.all("#paths section"))
    titles = [each.text for each in page.all("#paths h2")]
    assert {"POST /api/v1/queries", "GET /api/v1/budget", "DELETE /api/v1/keys/{id}"} <= set(titles)
    assert "Idempotency-Key" in page.find("#paths").text
    assert page.find("#file").get_attribute("href").startswith("data:application/json")
    wide = page.driver.execute_script("return document.documentElement.scrollWidth")
    assert wide <= WIDTHS[width][0]


@needs_browser
def test_what_nobody_knows_does_not_decide_the_scale_of_a_chart(page):
    """Intervals up to the edge of the set made all others invisible, and a narrow chart had too few ticks."""
    page.enter_and_wait()
    values = "[[-1, 1, 0], [-0.5, 1, 0.2], [-40, 40, 30], [null, null, 9]]"
    rows = f"{values}.map(([low, high, estimate], k) => ({{name: 'x=' + k, low, high, estimate}}))"
    assert page.driver.execute_script(f"return forScale({rows}, true).length") == 2
    assert page.driver.execute_script(f"return forScale({rows}, false).length") == 4  # of a table
    picture = page.driver.execute_script(f"return chart({rows}, 0.95, 350, true).outerHTML")
    assert "What lies beyond the chart is cut" in picture
    assert picture.count("<circle") == 2  # the other two are beyond the ends
    assert picture.count('class="interval"') == 3
    assert picture.count('class="tick"') >= 2
    for low, high in ((-4.2, 4.2), (0, 1), (-0.02, 0.13), (0.9, 1.05), (-0.9, 0.3), (3, 17_000)):
        assert len(page.driver.execute_script(f"return ticks({low}, {high}, 3)")) >= 2
    faint = "[{name: 'a', low: -1, high: 1, estimate: 0}, {name: 'b', low: null, high: null, estimate: 0.5}]"
    assert "estimate faint" in page.driver.execute_script(f"return chart({faint}, 0.95, 350, true).outerHTML")


@needs_browser
def test_the_page_names_a_histogram_only_where_there_is_one(page):
    page.enter_and_wait()
    assert "answers from the public histogram cost nothing" in page.find("#budget-words").text
    wide = "schema.attributes = Array(30).fill(schema.attributes[0]); return released()"
    assert page.driver.execute_script(wide) == "released tables"
