// Renders the OpenAPI description of the service. Nothing is loaded from elsewhere, and text is never read as HTML.
"use strict";

const METHODS = ["get", "post", "put", "delete"];

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function resolve(schema, all) {
  if (!schema || !schema.$ref) return schema || {};
  return schema.$ref.replace("#/", "").split("/").reduce((part, name) => part[name] || {}, all);
}

function typeOf(schema, all) {
  const found = resolve(schema, all);
  const choices = found.anyOf || found.oneOf;
  if (choices) return choices.map((one) => typeOf(one, all)).join(" or ");
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (found.const !== undefined) return JSON.stringify(found.const);
  if (found.type === "array") return `list of ${typeOf(found.items, all)}`;
  return found.title && found.properties ? found.title : found.type || "any";
}

function fields(schema, all) {
  const found = resolve(schema, all);
  const choices = found.anyOf || found.oneOf;
  if (choices) return element("div", "", ...choices.map((one) => fields(one, all)));
  if (!found.properties) return element("p", typeOf(found, all));
  const rows = Object.entries(found.properties).map(([name, one]) => {
    const needed = (found.required || []).includes(name) ? "required" : "";
    const words = resolve(one, all).description || "";
    return element("tr", "", element("th", name), element("td", typeOf(one, all)), element("td", needed), element("td", words));
  });
  return element("table", "", element("caption", found.title || found.description || ""), ...rows);
}

function content(part, all) {
  const kinds = Object.entries((part && part.content) || {});
  return kinds.map(([kind, one]) => element("div", "", element("p", kind), fields(one.schema, all)));
}

function operation(path, method, one, all) {
  const made = element("section", "", element("h2", `${method.toUpperCase()} ${path}`), element("p", one.description || one.summary || ""));
  if (one.parameters) {
    const rows = one.parameters.map((each) =>
      element("tr", "", element("th", each.name), element("td", each.in), element("td", typeOf(each.schema, all)),
        element("td", each.required ? "required" : ""), element("td", each.description || "")));
    made.append(element("h3", "Parameters"), element("table", "", ...rows));
  }
  if (one.requestBody) made.append(element("h3", "Body"), ...content(one.requestBody, all));
  for (const [status, response] of Object.entries(one.responses || {})) {
    const shown = element("details", "", element("summary", `${status}: ${response.description || ""}`), ...content(response, all));
    made.append(shown);
  }
  return made;
}

async function show(event) {
  event.preventDefault();
  const problem = document.getElementById("problem");
  const paths = document.getElementById("paths");
  problem.textContent = "";
  paths.replaceChildren();
  const headers = { Authorization: `Bearer ${document.getElementById("key").value.trim()}` };
  try {
    const response = await fetch("/api/v1/openapi.json", { headers });
    const all = await response.json();
    if (!response.ok) throw new Error(all.message);
    for (const [path, methods] of Object.entries(all.paths)) {
      for (const method of METHODS) {
        if (methods[method]) paths.append(operation(path, method, methods[method], all));
      }
    }
    const file = document.getElementById("file");
    file.href = `data:application/json,${encodeURIComponent(JSON.stringify(all, null, 2))}`;
    document.getElementById("download").hidden = false;
  } catch (error) {
    problem.textContent = error.message;
  }
}

document.getElementById("open").addEventListener("submit", show);
