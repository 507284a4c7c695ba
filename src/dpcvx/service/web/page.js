"use strict";

// The page of the query service: one script, no library, no other origin.

const API = "/api/v1";
const $ = (id) => document.getElementById(id);
const LARGEST_CHART = 60; // values; more of them are shown in the table alone
const TABS = ["ask", "data", "history", "synthetic", "promise"];
let key = sessionStorage.getItem("key") || "";
let schema = null;

// ---- small parts -------------------------------------------------------------------------------------------

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function say(id, words, wrong = false) {
  $(id).textContent = words;
  $(id).classList.toggle("wrong", wrong);
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size !== 0 && size < 0.001 ? value.toExponential(1) : value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

// A long name may break after punctuation, not inside a word.
function breakable(name) {
  return name.split(/(?<=[=_,])/).flatMap((part, place) => (place ? [make("wbr"), part] : [part]));
}

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

// ---- talking to the service ----------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function request(path, options = {}) {
  const headers = { Authorization: `Bearer ${key}`, ...options.headers };
  const response = await fetch(API + path, { ...options, headers });
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({ code: "unexpected", message: "The server sent no readable response. Try again later." }));
  throw new Refused(response.status, problem.code, problem.message);
}

const read = async (path) => (await request(path)).json();

// A lost response is requested again with the same key, so that no question is charged twice.
async function ask(question) {
  const options = {
    method: "POST",
    headers: { "Content-Type": "application/json", "Idempotency-Key": newKey() },
    body: JSON.stringify(question),
  };
  for (let left = 3; ; left -= 1) {
    try {
      return await (await request("/queries", options)).json();
    } catch (error) {
      if (error instanceof Refused || left === 0) throw error;
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

// ---- login and logout ------------------------------------------------------------------------------------------

async function enter() {
  try {
    schema = await read("/schema");
  } catch (error) {
    key = "";
    sessionStorage.removeItem("key");
    const unknown = error instanceof Refused && error.code === "unauthorised";
    say("login-status", unknown ? "This key is not known here, or was revoked." : error.message, true);
    return;
  }
  sessionStorage.setItem("key", key);
  $("sign-in").hidden = true;
  $("room").hidden = false;
  showData();
  fillForm();
  showAttributes();
  open("ask");
  await showBudget();
}

function leave() {
  sessionStorage.removeItem("key");
  location.reload();
}

// ---- tabs --------------------------------------------------------------------------------------------------------

function open(name) {
  for (const tab of TABS) {
    const chosen = tab === name;
    $(`tab-${tab}`).setAttribute("aria-selected", chosen);
    $(`tab-${tab}`).tabIndex = chosen ? 0 : -1;
    $(`panel-${tab}`).hidden = !chosen;
  }
  $(`tab-${name}`).scrollIntoView({ block: "nearest", inline: "nearest" });
  if (name === "history") attempt(showHistory, "past");
  if (name === "promise") attempt(showPromise, "promise");
}

async function attempt(work, id) {
  $(id).setAttribute("aria-busy", true);
  try {
    await work();
  } catch (error) {
    $(id).replaceChildren(make("p", { class: "status wrong" }, error.message));
  }
  $(id).setAttribute("aria-busy", false);
}

function moveTab(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const now = TABS.findIndex((tab) => $(`tab-${tab}`) === document.activeElement);
  const next = TABS[(now + step + TABS.length) % TABS.length];
  open(next);
  $(`tab-${next}`).focus();
}

// ---- the form ------------------------------------------------------------------------------------------------------

const names = () => schema.attributes.map((attribute) => attribute.name);
const attributeOf = (name) => schema.attributes.find((attribute) => attribute.name === name);
const isNumber = (attribute) => "edges" in attribute;
const kindOf = () => document.querySelector("input[name=kind]:checked").value;

function fillForm() {
  const options = (values) => values.map((value) => make("option", { value }, value));
  $("target").replaceChildren(...options(names()));
  $("features").replaceChildren(
    ...names().map((name) => make("label", {}, make("input", { type: "checkbox", name: "feature", value: name }), name)),
  );
  $("loss").replaceChildren(...schema.losses.map((value) => make("option", { value }, value.replace("_", " "))));
  $("set").replaceChildren(...schema.sets.map((value) => make("option", { value }, `${value} ball`)));
  $("radius").max = schema.largest_radius;
  const first = make("option", { value: "" }, "choose an attribute");
  $("condition").replaceChildren(first, ...options(names()));
  $("conditions").replaceChildren();
  arrange();
}

// Shows the fields of the chosen kind, and keeps target and loss consistent with each other.
function arrange() {
  const kind = kindOf();
  for (const part of document.querySelectorAll("[data-kind]")) part.hidden = !part.dataset.kind.split(" ").includes(kind);
  $("target-label").textContent = kind === "mean" ? "Mean of" : "Target";
  $("features-label").textContent = kind === "marginal" ? "Attributes" : "Features";
  for (const option of $("target").options) {
    const attribute = attributeOf(option.value);
    option.disabled = kind === "mean" && !isNumber(attribute) && attribute.known > 2;
  }
  const usable = [...$("target").options].filter((option) => !option.disabled);
  if ($("target").selectedOptions[0]?.disabled && usable.length) $("target").value = usable[0].value;
  for (const box of document.querySelectorAll("input[name=feature]")) {
    box.disabled = kind === "regression" && box.value === $("target").value;
    if (box.disabled) box.checked = false;
  }
  const twoLevels = attributeOf($("target").value).known === 2;
  for (const option of $("loss").options) option.disabled = !twoLevels && schema.label_losses.includes(option.value);
  if ($("loss").selectedOptions[0]?.disabled) $("loss").value = "squared";
}

function addCondition() {
  const name = $("condition").value;
  $("condition").value = "";
  if (!name || $("conditions").querySelector(`[data-name="${CSS.escape(name)}"]`)) return;
  const boxes = attributeOf(name).labels.map((label) =>
    make("label", {}, make("input", { type: "checkbox", value: label }), label),
  );
  const part = make(
    "fieldset",
    { class: "condition", "data-name": name },
    make(
      "legend",
      {},
      name,
      make("button", { type: "button", class: "quiet", "aria-label": `Remove the condition on ${name}`, onclick: () => part.remove() }, "×"),
    ),
    make("div", { class: "chips" }, ...boxes),
  );
  $("conditions").append(part);
  part.querySelector("input").focus();
}

function where() {
  const condition = {};
  for (const part of $("conditions").children) {
    const levels = [...part.querySelectorAll("input:checked")].map((box) => box.value);
    if (!levels.length) throw new Error(`Choose at least one value of ${part.dataset.name}, or remove the condition.`);
    condition[part.dataset.name] = levels;
  }
  return condition;
}

function question() {
  const kind = kindOf();
  const chosen = [...document.querySelectorAll("input[name=feature]:checked")].map((box) => box.value);
  if (kind === "count") {
    const condition = where();
    if (!Object.keys(condition).length) throw new Error("Add a condition: which people should be counted?");
    return { kind, where: condition };
  }
  if (kind === "mean") return { kind, of: $("target").value, where: where() };
  if (!chosen.length) throw new Error(kind === "marginal" ? "Choose at least one attribute." : "Choose at least one feature.");
  if (kind === "marginal") return { kind, attributes: chosen };
  const radius = Number($("radius").value);
  if (!(radius > 0 && radius <= schema.largest_radius)) throw new Error(`The radius must be above 0 and at most ${schema.largest_radius}.`);
  return {
    kind, target: $("target").value, features: chosen, loss: $("loss").value, set: $("set").value, radius,
    intercept: $("intercept").checked,
  };
}

async function send(event) {
  event.preventDefault();
  $("ask").disabled = true;
  $("answer").replaceChildren(); // an old answer beside a new refusal would be taken for its answer
  try {
    const asked = question();
    say("ask-status", "Asking …");
    const answer = await ask(asked);
    const inside = make("div");
    $("answer").replaceChildren(make("h2", {}, words(asked)), inside);
    report(inside, answer);
    say("ask-status", "");
    if (matchMedia("(max-width: 48rem)").matches) $("answer").scrollIntoView();
    await showBudget();
  } catch (error) {
    say("ask-status", error.message, true);
  }
  $("ask").disabled = false;
}

// ---- answers -------------------------------------------------------------------------------------------------------

function words(asked) {
  const condition = Object.entries(asked.where || {}).map(([name, levels]) => `${name} in {${levels.join(", ")}}`);
  const only = condition.length ? ` where ${condition.join(" and ")}` : "";
  if (asked.kind === "count") return `Count${only}`;
  if (asked.kind === "mean") return `Mean of ${asked.of}${only}`;
  if (asked.kind === "marginal") return `Table of ${asked.attributes.join(", ")}`;
  const loss = typeof asked.loss === "string" ? asked.loss.replace("_", " ") : asked.loss.name;
  return `${asked.target} ~ ${asked.features.join(" + ") || "1"} (${loss})`;
}

const ARGUMENTS = {
  noise: "by the noise of the first release",
  comparison: "by comparison with the records",
  measurement: "by the noise of its own measurement",
};

// Fills a part of the page with an answer. Answers of version 0.1 name no argument: their intervals are not shown.
function report(part, answer) {
  const values = answer.coefficients.map((one) => (ARGUMENTS[answer.covered_by] ? one : { ...one, low: null, high: null }));
  const rows = values.map((one) =>
    make("tr", {}, make("td", {}, ...breakable(one.name)), ...[one.estimate, one.low, one.high, one.std_err ?? one.noise].map((value) => make("td", {}, number(value)))),
  );
  const head = ["", "estimate", "low", "high", "noise"].map((title) => make("th", { scope: "col" }, title));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
  const sure = `${Math.round(100 * answer.confidence)} %`;
  const error = answer.query.kind === "regression" ? "excess loss" : "error";
  const proof = ARGUMENTS[answer.covered_by];
  const spent = answer.comparable === false ? "this engine makes no comparisons" : "no: the comparisons are used up";
  const facts = [
    ["found by", answer.branch === "oracle" ? "a new private measurement" : "the public histogram, at no new cost"],
    [`${error}, by noise alone`, number(answer.error)],
    [`${error}, at most`, proof ? `${number(answer.error_bound)} with ${sure} confidence, ${proof}` : "no bound is proved"],
    ["checked", answer.checked ? "yes, privately against the records" : spent],
  ];
  if (answer.note) facts.push(["how to read it", answer.note]);
  if (!answer.private) facts.unshift(["NOT PRIVATE", "the noise came from a seed"]);
  const list = make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  if (values.length > 1 && values.length <= LARGEST_CHART) part.append(chart(values, answer.confidence, part.clientWidth));
  part.append(make("div", { class: "scroll" }, table), list);
}

// A dot for each estimate and a bar for its interval, on a common scale; one unit is one pixel.
function chart(values, confidence, room) {
  const width = Math.max(280, Math.min(760, room));
  const [left, right, line] = [Math.min(200, 0.36 * width), width - 16, 26];
  const letters = Math.floor(left / 7.5);
  const bottom = values.length * line + 8;
  const ends = values.flatMap((one) => [one.low ?? one.estimate, one.high ?? one.estimate, 0]);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const pad = (high - low || 1) * 0.04;
  const x = (value) => left + ((value - low + pad) / (high - low + 2 * pad)) * (right - left);
  const parts = [draw("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom })];
  for (const tick of ticks(low - pad, high + pad)) {
    parts.push(draw("text", { class: "tick", x: x(tick), y: bottom + 18, "text-anchor": "middle" }, tick.toLocaleString("en")));
  }
  parts.push(draw("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: bottom }));
  values.forEach((one, place) => {
    const y = place * line + line / 2 + 2;
    const name = one.name.length > letters ? `${one.name.slice(0, letters - 1)}…` : one.name;
    parts.push(draw("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, name));
    if (one.low !== null && one.high !== null) {
      parts.push(draw("line", { class: "interval", x1: x(one.low), x2: x(one.high), y1: y, y2: y }));
    }
    parts.push(draw("circle", { class: "estimate", cx: x(one.estimate), cy: y, r: 4.5 }));
  });
  const intervals = values.some((one) => one.low !== null) ? ` with ${Math.round(100 * confidence)} % intervals` : "";
  const title = `Estimates${intervals}; the table below has the numbers.`;
  const picture = draw("svg", { viewBox: `0 0 ${width} ${bottom + 26}`, width, role: "img", "aria-label": title }, ...parts);
  return make("figure", {}, picture, make("figcaption", {}, title));
}

function ticks(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((candidate) => candidate >= rough);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k += 1) found.push(Number((k * step).toPrecision(12)));
  return found;
}

// ---- the other parts -------------------------------------------------------------------------------------------------

// Which data, how many, and who is protected: of the public schema.
function showData() {
  const person = schema.unit === "person";
  const whose = person
    ? "Each person counts once and is protected with all rows."
    : "Each row counts once and is protected by itself.";
  $("data-words").textContent = `${schema.data}: ${number(schema.units)} ${person ? "persons" : "rows"}. ${whose}`;
}

async function showBudget() {
  const left = await read("/budget");
  const share = Math.max(0, Math.min(1, left.remaining / left.epsilon));
  $("gauge-bar").style.width = `${100 * share}%`;
  $("gauge").setAttribute("aria-valuemax", left.epsilon);
  $("gauge").setAttribute("aria-valuenow", left.remaining);
  const none = left.comparisons ? "the comparisons are used up, there are no new measurements" : "this engine makes no comparisons";
  const checks = left.comparisons_left ? `comparisons: ${left.comparisons_left} of ${left.comparisons} runs left` : none;
  $("budget-words").textContent =
    `${number(left.remaining)} of ε = ${number(left.epsilon)} (δ = ${number(left.delta)}) left for new measurements; ` +
    `${checks}; ` +
    `${number(left.questions_today)} of ${number(left.questions_per_day)} questions today`;
}

function showAttributes() {
  const wanted = $("search").value.toLowerCase();
  const found = schema.attributes.filter((attribute) => attribute.name.toLowerCase().includes(wanted));
  const cards = found.map((attribute) =>
    make(
      "li",
      {},
      make("h3", {}, attribute.name),
      make("span", { class: "hint" }, isNumber(attribute) ? `number, ${attribute.known} bins` : `${attribute.known} levels`),
      make("ul", { class: "levels" }, ...attribute.labels.map((label) => make("li", {}, label))),
    ),
  );
  $("attributes").replaceChildren(...(cards.length ? cards : [make("p", { class: "empty" }, "No attribute of this name.")]));
}

async function showHistory() {
  const { questions } = await read("/history");
  const items = questions.map((one) => {
    const inside = make("div");
    const part = make(
      "details",
      { ontoggle: () => part.open && !inside.childElementCount && report(inside, one.answer) },
      make("summary", {}, words(one.question), make("time", {}, new Date(1000 * one.asked).toLocaleString())),
      inside,
    );
    return make("li", {}, part);
  });
  $("past").replaceChildren(...(items.length ? items : [make("li", { class: "empty" }, "There are no questions yet.")]));
}

async function showPromise() {
  const statement = await read("/statement");
  const { epsilon, delta, unit, randomness, ledger, not_covered: outside } = statement;
  const facts = [
    ["guarantee", statement.private ? `ε = ${number(epsilon)}, δ = ${number(delta)}, all answers together` : "none"],
    ["whose", unit],
    ["randomness", randomness],
    ["budget", ledger],
    ["not covered", outside?.join("; ")],
  ].filter(([, value]) => value);
  $("promise").replaceChildren(
    make("p", {}, statement.meaning),
    make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    make("details", {}, make("summary", {}, "The whole statement"), make("pre", {}, JSON.stringify(statement, null, 2))),
  );
}

async function download(event) {
  event.preventDefault();
  const format = $("format").value;
  say("synthetic-status", "Creating the file …");
  try {
    const response = await request(`/synthetic?rows=${encodeURIComponent($("rows").value)}&format=${format}`);
    const address = URL.createObjectURL(await response.blob());
    make("a", { href: address, download: `synthetic.${format}` }).click();
    URL.revokeObjectURL(address);
    say("synthetic-status", "Downloaded.");
  } catch (error) {
    say("synthetic-status", error.message, true);
  }
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  say("login-status", "");
  enter();
});
$("leave").addEventListener("click", leave);
for (const tab of TABS) $(`tab-${tab}`).addEventListener("click", () => open(tab));
document.querySelector("[role=tablist]").addEventListener("keydown", moveTab);
for (const radio of document.querySelectorAll("input[name=kind]")) radio.addEventListener("change", arrange);
$("target").addEventListener("change", () => {
  $("loss").value = schema.losses[0]; // that of labels, which `arrange` replaces for other targets
  arrange();
});
$("condition").addEventListener("change", addCondition);
$("question").addEventListener("submit", send);
$("search").addEventListener("input", showAttributes);
$("synthetic").addEventListener("submit", download);
if (key) enter();
