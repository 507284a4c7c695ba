"use strict";

// The page of the query service: one script, no library, no other origin.

const API = "/api/v1";
const $ = (id) => document.getElementById(id);
const LARGEST_CHART = 60; // values; more of them are shown in the table alone
const LONG = 6; // intervals that are longer than this multiple of the median do not decide the scale of a chart
const LARGEST_HISTOGRAM = 2 ** 24; // cells; where there are more, answers come from the released tables
const LONG_NAME = 14; // letters of a name from which its column has a least width
const MANY = 20; // attributes; if there are more, the form has a search
const PAGE = 50; // earlier queries that are shown at once
const SHRUNK = "the radius of the set of coefficients is reached"; // begins a note of an answer
const WIDER = 4; // radius that the page then offers, over that of the answer
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

// A long name may break after punctuation, not inside a word or a number such as 10,000.
function breakable(name) {
  return name.split(/(?<=[=_])|(?<=,)(?!\d)/).flatMap((part, place) => (place ? [make("wbr"), part] : [part]));
}

// ---- words that the schema declares for attributes and levels ------------------------------------------------

const labelOf = (attribute) => attribute.label || "";
const unitOf = (attribute) => (attribute.unit ? `in ${attribute.unit}` : "");
const named = (attribute) => [attribute.name, labelOf(attribute)].filter(Boolean).join(": ");
const levelWords = (attribute, level) => attribute?.value_labels?.[level] || "";
const levelNamed = (attribute, level) => (levelWords(attribute, level) ? `${level} (${levelWords(attribute, level)})` : level);

// The name of a number with the words of its levels, as the service writes it in tables.
function withWords(name, legend) {
  for (const [attribute, entry] of Object.entries(legend || {})) {
    for (const [level, text] of Object.entries(entry.values || {})) {
      const code = `${attribute}=${level}`.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
      name = name.replace(new RegExp(`(^|, |:)(${code})(?=$|, |:| \\()`), (_, before, found) => `${before}${found} (${text})`);
    }
  }
  return name;
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
  let response;
  try {
    response = await fetch(API + path, { ...options, headers });
  } catch {
    throw new Error("The server does not answer. Check your connection, or ask the data owner whether it runs; then try again.");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({ code: "unexpected", message: "The server sent no readable response. Try again later." }));
  throw new Refused(response.status, problem.code, problem.message);
}

const read = async (path) => (await request(path)).json();

// A lost response is requested again with the same key, so that no query is charged twice.
async function ask(query, name) {
  const options = {
    method: "POST",
    headers: { "Content-Type": "application/json", "Idempotency-Key": name },
    body: JSON.stringify(query),
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
  await Promise.all([showBudget(), openLink()]);
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
  const now = TABS.findIndex((tab) => $(`tab-${tab}`) === document.activeElement);
  const place = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: TABS.length - 1 }[event.key];
  if (place === undefined) return;
  event.preventDefault(); // Home and End would scroll
  const next = TABS[(place + TABS.length) % TABS.length];
  open(next);
  $(`tab-${next}`).focus();
}

// ---- the form ------------------------------------------------------------------------------------------------------

const names = () => schema.attributes.map((attribute) => attribute.name);
const attributeOf = (name) => schema.attributes.find((attribute) => attribute.name === name);
const isNumber = (attribute) => "edges" in attribute;
// Whether it has a mean: a number, levels that are numbers, or two levels, of which the second has a share.
const hasMean = (attribute) => isNumber(attribute) || attribute.known === 2 || attribute.levels.every((level) => typeof level === "number");
const MODELS = { logistic: "logistic: odds of a level", squared: "linear: mean", huber: "robust linear (Huber)", quantile: "median regression", smooth_hinge: "smooth hinge" };
const kindOf = () => document.querySelector("input[name=kind]:checked").value;

function fillForm() {
  const options = () => schema.attributes.map((one) => make("option", { value: one.name }, named(one)));
  $("target").replaceChildren(...options());
  $("features").replaceChildren(
    ...schema.attributes.map((one) => make("label", { title: named(one) }, make("input", { type: "checkbox", name: "feature", value: one.name }), named(one))),
  );
  $("feature-search").hidden = schema.attributes.length <= MANY;
  $("loss").replaceChildren(...schema.losses.map((value) => make("option", { value }, MODELS[value] || value.replace("_", " "))));
  $("set").replaceChildren(...schema.sets.map((value) => make("option", { value }, `${value} ball`)));
  $("radius").max = schema.largest_radius;
  const first = make("option", { value: "" }, "choose an attribute");
  $("condition").replaceChildren(first, ...options());
  $("conditions").replaceChildren();
  arrange();
}

function arrange() {
  arrangeFields();
  writeFormula();
  clearAnswer();
}

function changeKind() {
  arrangeFields();
  if (!$("formula").dataset.typed) writeFormula();
}

// Shows the fields of the chosen kind, and keeps target and loss consistent with each other.
function arrangeFields() {
  const kind = kindOf();
  for (const part of document.querySelectorAll("[data-kind]")) part.hidden = !part.dataset.kind.split(" ").includes(kind);
  $("target-label").textContent = kind === "mean" ? "Mean of" : "What should be explained?";
  $("features-label").textContent = kind === "marginal" ? "Attributes of the table" : "Explained by";
  for (const option of $("target").options) {
    option.disabled = ["mean", "regression"].includes(kind) && !hasMean(attributeOf(option.value));
  }
  const usable = [...$("target").options].filter((option) => !option.disabled);
  if ($("target").selectedOptions[0]?.disabled && usable.length) $("target").value = usable[0].value;
  for (const box of document.querySelectorAll("input[name=feature]")) {
    box.disabled = kind === "regression" && box.value === $("target").value;
    if (box.disabled) box.checked = false;
  }
  const lacking = kind === "regression" ? attributeOf($("target").value).often_missing : null;
  say("target-note", lacking ? `About ${Math.round(100 * lacking)} % of the people have no ${$("target").value}: regressions of it on several attributes have no intervals.` : "");
  const twoLevels = attributeOf($("target").value).known === 2;
  for (const option of $("loss").options) option.disabled = !twoLevels && schema.label_losses.includes(option.value);
  if ($("loss").selectedOptions[0]?.disabled) $("loss").value = "squared";
}

// Shows the attributes that contain the text of the search, and those that are ticked.
function findFeatures() {
  const wanted = $("feature-search").value.trim().toLowerCase();
  for (const label of $("features").children) {
    label.hidden = !label.textContent.toLowerCase().includes(wanted) && !label.firstElementChild.checked;
  }
}

const chosen = () => [...document.querySelectorAll("input[name=feature]:checked")].map((box) => box.value);

const quoted = (name) => (/^[A-Za-z_][A-Za-z_0-9.]*$/.test(name) ? name : `\`${name}\``);

// Target, attributes and products of two in a formula; null if it is anything that the fields cannot show.
function parseFormula(text) {
  const tokens = text.match(/`[^`]*`|[A-Za-z_][A-Za-z_0-9.]*|[01]|[-+:*~]|\S/g) || [];
  const name = (token) => (token?.startsWith("`") && token.length > 2 ? token.slice(1, -1) : token);
  const known = (token) => (token && names().includes(name(token)) ? name(token) : null);
  const target = known(tokens[0]);
  if (!target || tokens[1] !== "~") return null;
  const [features, interactions] = [new Set(), []];
  for (let place = 2; place < tokens.length; ) {
    let sign = "+";
    if (["+", "-"].includes(tokens[place])) sign = tokens[place++];
    else if (place > 2) return null;
    const [token, link, second] = tokens.slice(place);
    if (token === "1" && sign === "+") {
      place += 1; // the intercept, which every query has
      continue;
    }
    const pair = link === ":" || link === "*" ? [known(token), known(second)] : [known(token)];
    if (sign === "-" || pair.includes(null)) return null;
    for (const one of pair) features.add(one);
    if (pair.length === 2) interactions.push(pair);
    place += 2 * pair.length - 1;
  }
  return features.size && !features.has(target) ? { target, features: [...features], interactions } : null;
}

// Writes the formula of the fields. Products stay while both of their attributes are ticked.
function writeFormula() {
  const [before, ticked] = [$("formula").value.trim(), chosen()];
  const parts = parseFormula(before);
  const products = (parts?.interactions || []).filter((pair) => pair.every((name) => ticked.includes(name)));
  const terms = [...ticked.map(quoted), ...products.map((pair) => pair.map(quoted).join(":"))];
  $("formula").value = ticked.length ? `${quoted($("target").value)} ~ ${terms.join(" + ")}` : "";
  const lost = before && $("formula").dataset.typed && (!parts || products.length < parts.interactions.length);
  say("formula-note", lost ? `The fields above have replaced the formula that was here: ${before}` : "");
  $("formula").dataset.typed = products.length ? "yes" : ""; // a formula that is typed is sent as it is
}

// Shows a formula in the fields while it is typed (later a note would move the button that is pressed): its target, which decides the models that may be asked for, and its attributes.
function readFormula() {
  const text = $("formula").value;
  const parts = parseFormula(text);
  const target = parts?.target ?? text.split("~")[0].trim().replace(/^`(.*)`$/, "$1");
  if (text.includes("~") && names().includes(target) && target !== $("target").value) {
    $("target").value = target;
    $("loss").value = schema.losses[0];
  }
  tick(parts?.features || []);
  arrangeFields();
  $("formula").dataset.typed = text.trim() ? "yes" : "";
  const shown = parts ? "The attributes of the formula are ticked above." : "The formula is sent as it is typed. The fields above cannot show it, so no attribute is ticked.";
  say("formula-note", text.trim() ? shown : "");
}

function tick(wanted) {
  for (const box of document.querySelectorAll("input[name=feature]")) box.checked = wanted.includes(box.value);
  findFeatures();
}

// Fills the form with a query in JSON, so that it asks the same as an answer that is shown beside it.
function fillFrom(query) {
  document.querySelector(`input[name=kind][value=${query.kind}]`).checked = true;
  const target = query.target ?? query.of;
  if (target !== undefined) $("target").value = target;
  tick(query.features ?? query.attributes ?? []);
  $("conditions").replaceChildren();
  for (const [name, levels] of Object.entries(query.where || {})) showCondition(name, levels);
  $("formula").value = "";
  $("formula").dataset.typed = "";
  arrangeFields();
  writeFormula();
  if (query.kind !== "regression") return;
  $("loss").value = query.loss?.name ?? query.loss;
  $("set").value = query.set?.name ? schema.sets[0] : query.set;
  $("radius").value = query.radius ?? "";
  const products = query.interactions || [];
  if (products.length) {
    $("formula").value += products.map((pair) => ` + ${pair.map(quoted).join(":")}`).join("");
    $("formula").dataset.typed = "yes";
  }
  const more = [query.loss?.name && "parameters of the loss", query.set?.name && "another set of coefficients", query.l2 && "an l2 penalty"].filter(Boolean);
  if (more.length) say("formula-note", `The answer was asked for with ${more.join(" and ")}, which this form does not have. If you press Ask, another query is sent.`, true);
}

function clearAnswer() {
  if (!$("answer").dataset.shown) return;
  $("answer").replaceChildren(make("p", { class: "empty" }, "The form has changed. Press Ask for its answer; earlier ones are under History."));
  $("answer").dataset.shown = "";
  history.replaceState(null, "", location.pathname);
}

function addCondition() {
  const name = $("condition").value;
  $("condition").value = "";
  if (!name) return;
  const there = $("conditions").querySelector(`[data-name="${CSS.escape(name)}"]`);
  if (there) { // an attribute has one condition: its ticked values are alternatives
    there.querySelector("input").focus();
    say("ask-status", `There is a condition on ${name}: tick further values there.`);
    return;
  }
  showCondition(name, []).querySelector("input").focus();
}

function showCondition(name, levels) {
  const boxes = attributeOf(name).labels.map((label) =>
    make("label", {}, make("input", { type: "checkbox", value: label, checked: levels.includes(label) }), levelNamed(attributeOf(name), label)),
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
  return part;
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

function readForm() {
  const kind = kindOf();
  if (kind === "count") {
    const condition = where();
    if (!Object.keys(condition).length) throw new Error("Add a condition: which people should be counted?");
    return { kind, where: condition };
  }
  if (kind === "mean") return { kind, of: $("target").value, where: where() };
  const typed = kind === "regression" && $("formula").dataset.typed;
  if (!typed && !chosen().length) throw new Error(kind === "marginal" ? "Choose at least one attribute." : "Choose at least one attribute that explains it.");
  if (kind === "marginal") return { kind, attributes: chosen() };
  const radius = Number($("radius").value);
  if (!(radius > 0 && radius <= schema.largest_radius)) throw new Error(`The radius must be above 0 and at most ${schema.largest_radius}.`);
  const model = typed ? { formula: $("formula").value } : { target: $("target").value, features: chosen() };
  const condition = where();
  const only = Object.keys(condition).length ? { where: condition } : {};
  return { kind, ...model, loss: $("loss").value, set: $("set").value, radius, ...only };
}

async function send(event) {
  event.preventDefault();
  $("ask").disabled = true;
  $("answer").replaceChildren(); // an old answer beside a new refusal would be taken for its answer
  try {
    const asked = readForm();
    const name = newKey();
    say("ask-status", "Asking …");
    const answer = await ask(asked, name);
    await present($("answer"), name, answer);
    say("ask-status", "");
    if (matchMedia("(max-width: 48rem)").matches) $("answer").scrollIntoView();
    await showBudget();
  } catch (error) {
    say("ask-status", error.message, true);
  }
  $("ask").disabled = false;
  if (document.activeElement === document.body) $("ask").focus({ preventScroll: true }); // a disabled button loses it
}

// ---- answers -------------------------------------------------------------------------------------------------------

function words(asked) {
  const shown = (name, levels) => levels.map((level) => levelNamed(attributeOf(name), level)).join(", ");
  const condition = Object.entries(asked.where || {}).map(([name, levels]) => (levels.length > 1 ? `${name} in {${shown(name, levels)}}` : `${name} = ${shown(name, levels)}`));
  const only = condition.length ? ` where ${condition.join(" and ")}` : "";
  if (asked.kind === "count") return `Count${only}`;
  if (asked.kind === "mean") return `Mean of ${asked.of}${only}`;
  if (asked.kind === "marginal") return `Table of ${asked.attributes.join(", ")}`;
  const loss = typeof asked.loss === "string" ? asked.loss.replace("_", " ") : asked.loss.name;
  const terms = [...asked.features, ...(asked.interactions || []).map((pair) => pair.join(":"))];
  return `${asked.target} ~ ${terms.join(" + ") || "1"} (${loss})${only}`;
}

// Shows an answer with its link, and remembers that the form belongs to it.
async function present(part, name, answer) {
  const inside = make("div");
  await report(inside, name, answer);
  part.replaceChildren(inside);
  offerWider(inside, answer);
  part.dataset.shown = "yes";
  part.dataset.name = name;
  history.replaceState(null, "", `#answer/${name}`);
}

// Adds a button that asks again with a larger radius if the set shrinks the coefficients, for queries that the form can show.
function offerWider(part, { query, note }) {
  const radius = Math.min(WIDER * query.radius, schema.largest_radius);
  const plain = typeof query.loss === "string" && typeof query.set === "string" && !query.l2;
  if (!note.includes(SHRUNK) || !plain || !(radius > query.radius)) return;
  const again = () => {
    $("advanced").open = true;
    $("radius").value = radius;
    $("query").requestSubmit();
  };
  part.querySelector("h2").after(make("div", { class: "tools" }, make("button", { type: "button", onclick: again }, `Ask again with radius ${radius}`), make("p", { class: "hint" }, "The radius limits the size of all coefficients together, and has shrunk them in this answer.")));
}

// The table of an answer comes from the service as texts: those that Python and the command line print.
async function report(part, name, answer) {
  const regression = answer.query.kind === "regression";
  const box = make("input", { type: "checkbox", "data-population": "", onchange: () => fill(box.checked) });
  const sampled = answer.coefficients.some((one) => (one.population_low ?? null) !== null);
  box.checked = regression && sampled; // else the intervals for these people, if there are any
  const choice = make("label", { class: "population" }, box, "Intervals for a larger population, of which these people are a random sample");
  const body = make("div");
  async function fill(population) {
    const table = await read(`/answers/${name}/table?population=${population}`);
    body.replaceChildren(...tableParts(table));
    const shown = answer.coefficients
      .filter((one) => !/\(baseline\)$|=total(,|$)/.test(one.name) && !(regression && one.name === "intercept"))
      .map((one) => ({ name: withWords(one.name, answer.legend), estimate: one.estimate, low: population ? one.population_low : one.low, high: population ? one.population_high : one.high }));
    if (shown.length > 1 && shown.length <= LARGEST_CHART) body.querySelector("h2").after(chart(shown, answer.confidence, part.clientWidth || $("answer").clientWidth - 32, regression));
  }
  const tools = make(
    "div",
    { class: "tools" },
    ...["csv", "parquet", "json"].map((format) => make("button", { type: "button", class: "quiet", onclick: () => save(`/answers/${name}?format=${format}&population=${box.checked}`, `answer.${format}`) }, `Download ${format === "parquet" ? "Parquet" : format.toUpperCase()}`)),
    make("button", { type: "button", class: "quiet", onclick: (event) => copyLink(name, event.target) }, "Copy link"),
  );
  part.append(body, ...(sampled ? [choice] : []), tools);
  await fill(box.checked);
}

function tableParts(table) {
  const head = table.columns.map((title, place) => make("th", { scope: "col" }, ...(place ? [title] : breakable(title))));
  const rows = table.rows.map((row) => make("tr", { class: /^total$|\(baseline/.test(row[0]) ? "known" : null }, ...row.map((cell, place) => make("td", {}, ...(place ? [cell] : breakable(cell))))));
  const long = table.rows.some((row) => row[0].length > LONG_NAME);
  const facts = make("dl", {}, ...table.facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  return [
    make("h2", {}, table.title),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of the answer" }, make("table", { class: long ? "named" : null }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows))),
    make("ul", { class: "notes" }, ...table.notes.map((note) => make("li", {}, note))),
    facts,
  ];
}

async function copyLink(name, button) {
  const link = `${location.origin}${location.pathname}#answer/${name}`;
  try {
    await navigator.clipboard.writeText(link);
    button.textContent = "Link copied";
  } catch {
    button.replaceWith(make("input", { type: "text", readonly: true, "aria-label": "Link to this answer", value: link }));
  }
}

// An answer that the address names; only the key that asked can open it.
async function openLink() {
  const name = /^#answer\/([A-Za-z0-9_.-]{1,64})$/.exec(location.hash)?.[1];
  if (!name) return;
  try {
    const answer = await read(`/answers/${name}`);
    fillFrom(answer.query);
    open("ask");
    await present($("answer"), name, answer);
  } catch (error) {
    say("ask-status", error.code === "not_found" ? "The link is to an answer that another key was given, or to none." : error.message, true);
  }
}

// Lines of a label that fit into a width, broken after punctuation and blanks.
function lines(text, letters) {
  const found = [""];
  for (const part of text.split(/(?<=[=,_ ])/)) {
    if (found.at(-1) && (found.at(-1) + part).trimEnd().length > letters) found.push("");
    found[found.length - 1] += part;
  }
  return found.map((line) => line.trim());
}

// The values that decide the scale of a chart: of coefficients, those with an interval that is not far longer
// than the others. Few people, or the edge of the set of coefficients, make an interval that long.
function forScale(values, regression) {
  const known = values.filter((one) => (one.low ?? null) !== null);
  if (!regression || !known.length) return values;
  const lengths = known.map((one) => one.high - one.low).sort((a, b) => a - b);
  const usual = known.filter((one) => one.high - one.low <= LONG * lengths[Math.floor((lengths.length - 1) / 2)]);
  return usual.length ? usual : known;
}

// A dot for each estimate and a bar for its interval, on a common scale; one unit is one pixel.
function chart(values, confidence, room, regression) {
  const width = Math.max(280, Math.min(760, room || 760));
  const labels = values.map((one) => lines(one.name, width < 500 ? 16 : 30));
  const left = 12 + 8 * Math.max(...labels.flat().map((line) => line.length));
  const [right, line] = [width - 16, 16];
  const tops = labels.map((_, place) => labels.slice(0, place).reduce((sum, one) => sum + one.length * line + 10, 2));
  const bottom = tops.at(-1) + labels.at(-1).length * line + 14;
  const ends = forScale(values, regression).flatMap((one) => [one.low ?? one.estimate, one.high ?? one.estimate, 0]);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const pad = (high - low || 1) * 0.04;
  const inside = (value) => Math.max(low - pad, Math.min(high + pad, value));
  const x = (value) => left + ((inside(value) - low + pad) / (high - low + 2 * pad)) * (right - left);
  const parts = [draw("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom })];
  for (const tick of ticks(low - pad, high + pad, Math.max(3, Math.floor((right - left) / 90)))) {
    parts.push(draw("text", { class: "tick", x: x(tick), y: bottom + 18, "text-anchor": "middle" }, tick.toLocaleString("en")));
  }
  parts.push(draw("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: bottom }));
  const some = values.some((one) => (one.low ?? null) !== null);
  let cut = false;
  values.forEach((one, place) => {
    const y = tops[place] + (labels[place].length * line) / 2 + 4;
    const known = (one.low ?? null) !== null && (one.high ?? null) !== null;
    labels[place].forEach((text, k) => parts.push(draw("text", { x: left - 10, y: tops[place] + (k + 1) * line, "text-anchor": "end" }, text)));
    if (known) parts.push(draw("line", { class: "interval", x1: x(one.low), x2: x(one.high), y1: y, y2: y }));
    const outside = [one.estimate, ...(known ? [one.low, one.high] : [])].some((value) => value !== inside(value));
    cut = cut || outside;
    if (one.estimate === inside(one.estimate)) {
      parts.push(draw("circle", { class: some && !known ? "estimate faint" : "estimate", cx: x(one.estimate), cy: y, r: 4.5 }));
    }
  });
  const intervals = some ? ` with ${Math.round(100 * confidence)} % intervals` : "";
  const ending = cut ? " What lies beyond the chart is cut." : "";
  const title = `Estimates${intervals}; the table below has the numbers.${ending}`;
  const picture = draw("svg", { viewBox: `0 0 ${width} ${bottom + 26}`, width, role: "img", "aria-label": title }, ...parts);
  return make("figure", {}, picture, make("figcaption", {}, title));
}

// Round numbers between two ends, at least two of them.
function ticks(low, high, most = 4) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10].map((m) => m * power);
  let found = [];
  for (let place = steps.findIndex((step) => step >= rough); place >= 0 && found.length < 2; place -= 1) {
    found = [];
    for (let k = Math.ceil(low / steps[place]); k * steps[place] <= high; k += 1) found.push(Number((k * steps[place]).toPrecision(12)));
  }
  return found;
}

// ---- the other parts -------------------------------------------------------------------------------------------------

// Which data, how many, and who is protected: of the public schema.
function showData() {
  const person = schema.unit === "person"; // the other one is "record"
  document.title = `${schema.data}: queries on one privacy budget`;
  const whose = person
    ? "Each person counts once and is protected with all rows."
    : "Each record, a row of the table, counts once and is protected by itself.";
  $("synthetic-source").textContent = released();
  $("data-words").textContent = `${schema.data}: ${number(schema.units)} ${person ? "persons" : "records"}. ${whose}`;
}

// What answers and synthetic records come from.
function released() {
  const cells = schema.attributes.reduce((product, attribute) => product * attribute.labels.length, 1);
  return cells <= LARGEST_HISTOGRAM ? "public histogram" : "released tables";
}

async function showBudget() {
  const left = await read("/budget");
  const share = Math.max(0, Math.min(1, left.remaining / left.epsilon));
  $("gauge-bar").style.width = `${100 * share}%`;
  $("gauge").setAttribute("aria-valuemax", left.epsilon);
  $("gauge").setAttribute("aria-valuenow", left.remaining);
  $("budget-words").textContent =
    `Privacy budget: ${number(left.remaining)} of ε = ${number(left.epsilon)} is left for new measurements; answers from the ${released()} cost nothing. ` +
    `You asked ${number(left.queries_today)} of ${number(left.queries_per_day)} queries today.`;
}

function showAttributes() {
  const wanted = $("search").value.toLowerCase();
  const found = schema.attributes.filter((attribute) => named(attribute).toLowerCase().includes(wanted));
  const cards = found.map((attribute) =>
    make(
      "li",
      {},
      make("h3", {}, attribute.name),
      ...(labelOf(attribute) ? [make("p", {}, labelOf(attribute))] : []),
      make("span", { class: "hint" }, [isNumber(attribute) ? `number, ${attribute.known} bins` : `${attribute.known} levels`, unitOf(attribute)].filter(Boolean).join(", ")),
      make("ul", { class: "levels" }, ...attribute.labels.map((label) => make("li", {}, levelNamed(attribute, label)))),
    ),
  );
  $("attributes").replaceChildren(...(cards.length ? cards : [make("p", { class: "empty" }, "No attribute of this name.")]));
}

async function showHistory() {
  $("comparison").replaceChildren();
  $("past").replaceChildren();
  await moreHistory();
}

// Adds the next page of earlier queries below those that are shown.
async function moreHistory() {
  const last = $("past").lastElementChild?.dataset.name;
  const wanted = $("history-search").value.trim();
  const { queries, more } = await read(`/history?limit=${PAGE}&search=${encodeURIComponent(wanted)}${last ? `&older_than=${last}` : ""}`);
  if (wanted !== $("history-search").value.trim()) return; // another search has begun
  const items = queries.map((one) => {
    const inside = make("div");
    const part = make(
      "details",
      { ontoggle: () => part.open && !inside.childElementCount && report(inside, one.idempotency_key, one.answer) },
      make("summary", {}, words(one.query), make("time", {}, new Date(1000 * one.asked).toLocaleString())),
      inside,
    );
    const box = make("input", { type: "checkbox", name: "compared", value: one.idempotency_key, "aria-label": `Compare ${words(one.query)}`, onchange: allowComparison });
    return make("li", { "data-name": one.idempotency_key }, box, part);
  });
  $("past").append(...items);
  $("older").hidden = !more;
  allowComparison();
  if ($("past").childElementCount) return;
  const none = wanted ? "No query has these words." : "There are no queries yet. Their answers will be kept here.";
  $("past").replaceChildren(make("li", { class: "empty" }, none));
}

const compared = () => [...document.querySelectorAll("input[name=compared]:checked")].map((box) => box.value);

function allowComparison() {
  $("compare").disabled = compared().length !== 2;
}

async function compare() {
  const [one, other] = compared();
  try {
    $("comparison").replaceChildren(...tableParts(await read(`/answers/${other}/table?beside=${one}`))); // the older one first
    $("comparison").scrollIntoView({ block: "nearest" });
  } catch (error) {
    $("comparison").replaceChildren(make("p", { class: "status wrong" }, error.message));
  }
}

function comparisonWords(left) {
  if (!left.comparisons) return "this engine makes no comparisons with the records";
  if (!left.comparisons_left) return "the comparisons are used up: answers are no longer checked, and nothing is measured anew";
  const runs = `comparisons with the records: ${left.comparisons_left} of ${left.comparisons} runs left`;
  if (!left.measurements) return `${runs}; this key may cause no new measurements, so its answers are not checked`;
  if (!left.measurements_left) return `${runs}, but this key's share of ${left.measurements} is used up: its answers are no longer checked`;
  return runs;
}

async function showPromise() {
  const [statement, left] = await Promise.all([read("/statement"), read("/budget")]);
  const { epsilon, delta, unit, randomness, ledger, not_covered: outside } = statement;
  const facts = [
    ["guarantee", statement.private ? `ε = ${number(epsilon)}, δ = ${number(delta)}, all answers together` : "none"],
    ["whose", unit],
    ["randomness", randomness],
    ["budget", ledger],
    ["checks", comparisonWords(left)],
    ["not covered", outside?.join("; ")],
  ].filter(([, value]) => value);
  $("promise").replaceChildren(
    make("p", {}, statement.meaning),
    make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    make("details", {}, make("summary", {}, "The whole statement"), make("pre", {}, JSON.stringify(statement, null, 2))),
  );
}

async function save(path, name) {
  const response = await request(path);
  const address = URL.createObjectURL(await response.blob());
  make("a", { href: address, download: name }).click();
  URL.revokeObjectURL(address);
}

async function download(event) {
  event.preventDefault();
  const [format, rows] = [$("format").value, $("rows")];
  if (!rows.value || !rows.checkValidity()) {
    say("synthetic-status", `Give a whole number of rows from ${number(Number(rows.min))} to ${number(Number(rows.max))}.`, true);
    return;
  }
  say("synthetic-status", "Creating the file …");
  try {
    await save(`/synthetic?rows=${encodeURIComponent(rows.value)}&format=${format}`, `synthetic.${format}`);
    say("synthetic-status", "Downloaded, with the privacy statement.");
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
for (const radio of document.querySelectorAll("input[name=kind]")) radio.addEventListener("change", changeKind);
$("target").addEventListener("change", () => {
  $("loss").value = schema.losses[0]; // that of labels, which `arrange` replaces for other targets
  arrange();
});
$("condition").addEventListener("change", addCondition);
$("query").addEventListener("submit", send);
$("features").addEventListener("change", writeFormula);
for (const change of ["change", "input"]) {
  $("feature-search").addEventListener(change, (event) => {
    event.stopPropagation(); // the query stays as it is, and its answer beside it
    findFeatures();
  });
}
$("feature-search").addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault()); // Enter would send the query
$("formula").addEventListener("input", readFormula);
for (const change of ["change", "input"]) $("query").addEventListener(change, clearAnswer);
$("compare").addEventListener("click", compare);
$("older").addEventListener("click", () => attempt(moreHistory, "history-status"));
$("history-search").addEventListener("input", () => attempt(showHistory, "past"));
addEventListener("hashchange", openLink);
$("search").addEventListener("input", showAttributes);
$("synthetic").addEventListener("submit", download);
if (key) enter();
