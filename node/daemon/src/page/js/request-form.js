// The form of a request, as the command line takes it: texts go to the node, which reads them with the same code and names
// the field that is wrong.

import * as api from "./api.js";
import { el, notice } from "./dom.js";

// What has a unit of its own; further resources come from the grid.
const RESOURCES = [
  ["cpu", "cpu (cores, such as 2.5)"], ["memory", "memory (such as 40GiB)"], ["disk", "disk (such as 100GiB)"], ["gpu", "gpu"],
  ["mhz", "mhz (such as 2400, or 2.4GHz)"],
];
const CHOICES = {
  effort: [["", "the node's"], ["fast", "fast"], ["balanced", "balanced"], ["thorough", "thorough"]],
  objective: [["", "start"], ["finish", "finish"], ["runtime", "runtime"], ["host_time", "host time"], ["cost", "cost"]],
};

/** Makes the form; `onready(request)` gets the checked request. `more` are further fields, `action` the button's text. */
export function requestForm({ action, more = [], onready, hosts = "2" }) {
  const fields = new Map();
  const labelled = (key, label, input) => {
    fields.set(key, input);
    return el("label", { className: input.type === "checkbox" ? "check" : "" }, el("span", {}, label), input);
  };
  const field = (key, label, properties = {}) =>
    labelled(key, label, el("input", { name: key, autocomplete: "off", ...properties }));
  const choice = (key, label) => labelled(key, label, el("select", { name: key },
    CHOICES[key].map(([value, text]) => el("option", { value }, text))));
  const amounts = ["total", "per_host"].map((key) => [key, el("div", { className: "fields" })]);
  const addResources = (resources) => {
    for (const [key, place] of amounts) place.append(...resources.map(([name, label]) => field(`${key}.${name}`, label)));
  };
  addResources(RESOURCES);
  othersOfTheGrid().then(addResources, () => {});
  const said = el("div", {});
  const shapes = el("div", {});
  const another = el("button", { type: "button", className: "quiet", id: "another-shape", onclick: () => {
    const at = shapes.children.length + 1;
    const texts = [["hosts", "Hosts", { type: "number", min: 1, max: 10000 }], ["duration", "Duration (such as 70min)"],
      ["work", "Work in place of the duration"], ["total", "All hosts together, at least, where that differs (memory=40GiB)"],
      ["per_host", "Each host, at least, where that differs (cpu=2)"]];
    shapes.append(el("div", { className: "fields", role: "group", "aria-label": `Shape ${at + 1}` },
      texts.map(([key, label, properties]) => field(`shapes[${at}].${key}`, label, properties))));
    fields.get(`shapes[${at}].hosts`).focus();
  } }, "Or another shape");
  const button = el("button", { type: "submit" }, action);
  const form = el("form", { noValidate: true, onsubmit: async (event) => {
    event.preventDefault();
    said.replaceChildren();
    for (const input of fields.values()) input.removeAttribute("aria-invalid");
    button.disabled = true;
    try {
      const { request } = await api.post("/v1/requests/read", textsOf(fields));
      await onready(request);
    } catch (error) {
      said.replaceChildren(notice(error.message));
      mark(fields, error.key);
    } finally {
      button.disabled = false;
    }
  } },
  el("div", { className: "fields" },
    field("hosts", "Hosts", { type: "number", min: 1, max: 10000, value: hosts }),
    field("duration", "Duration (such as 2h30m)", { value: "1h" }),
    field("earliest", "Not before", { type: "datetime-local" }),
    field("latest", "Start at the latest", { type: "datetime-local" }),
    field("deadline", "End at the latest", { type: "datetime-local" }),
    more),
  ["All hosts together, at least", "Each host, at least"].map((legend, index) =>
    el("fieldset", {}, el("legend", {}, legend), amounts[index][1])),
  el("fieldset", {}, el("legend", {}, "Or, whichever is best"), shapes, another),
  el("fieldset", {}, el("legend", {}, "And"),
    el("div", { className: "fields" },
      field("attributes", "Attributes (arch=x86_64, os=linux)"),
      field("candidates", "Only these hosts (h1, h2)"),
      field("work", "Work in place of the duration (such as 2h)"),
      field("scale", "Amounts and length may be scaled by (such as 0.5..2)"),
      choice("objective", "Smallest"),
      field("budget", "Cost in credits, at most (such as 12.50)"),
      field("speed_min", "Speed of each host, at least (such as 1.5)"),
      field("traffic.mbps", "Each host sends to all others (such as 100Mbit/s)"),
      field("traffic.compute", "With that, part of the work that computes (such as 0.7)"),
      field("slack", "May begin so much later for own jobs of its site (such as 10m)"),
      field("sites_max", "Sites, at most", { type: "number", min: 1 }),
      field("needs", "Commands there need (run, network)"),
      field("image", "Image that they run in"),
      choice("effort", "Effort of planning"),
      field("id", "Label"),
      field("exclusive", "Whole hosts", { type: "checkbox" }),
      field("move_on_loss", "May move when hosts are lost", { type: "checkbox" }))),
  el("div", { className: "row" }, button), said);
  return form;
}

/** Names of the resources that the grid's hosts have beside those of every form. */
async function othersOfTheGrid() {
  const { resources } = await api.get("/v1/usage?points=1");
  const known = new Set(RESOURCES.map(([name]) => name));
  return resources.filter(({ name }) => !known.has(name)).map(({ name }) => [name, name]);
}

/** Whether the request asks anything of its hosts. */
export function asksNothing({ per_host: perHost = {}, total = {} }) {
  return [...Object.values(perHost), ...Object.values(total)].every((amount) => amount === 0);
}

/** What is in the fields, without what is empty. */
function textsOf(fields) {
  const texts = { per_host: {}, total: {}, attributes: {} };
  const others = new Map();
  for (const [key, input] of fields) {
    const value = input.value.trim();
    const dot = key.indexOf(".");
    const shape = /^shapes\[(\d+)\]\.(.*)$/.exec(key);
    if (shape !== null) {
      const [, at, name] = shape;
      const other = others.get(at) ?? others.set(at, {}).get(at);
      if (value !== "") other[name] = name === "hosts" ? Number(value) : name === "total" || name === "per_host" ? pairsOf(value, key) : value;
    } else if (input.type === "checkbox") {
      if (input.checked) texts[key] = true;
    } else if (value === "") continue;
    else if (dot > 0) (texts[key.slice(0, dot)] ??= {})[key.slice(dot + 1)] = value;
    else if (input.type === "number") texts[key] = Number(value);
    else if (input.type === "datetime-local") texts[key] = new Date(value).toISOString();
    else if (key === "attributes") texts.attributes = pairsOf(value, key, "arch=x86_64");
    else if (key === "candidates" || key === "needs") texts[key] = wordsOf(value);
    else texts[key] = value;
  }
  const filled = [...others.values()].filter((other) => Object.keys(other).length > 0);
  return filled.length > 0 ? withShapes(texts, filled) : texts;
}

/** What the form asks itself is the first shape. */
function withShapes({ hosts, duration, work, ...common }, others) {
  return { ...common, shapes: [JSON.parse(JSON.stringify({ hosts, duration, work })), ...others] };
}

const wordsOf = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);

function pairsOf(text, key, example = "memory=40GiB") {
  const pairs = {};
  for (const word of wordsOf(text)) {
    const at = word.indexOf("=");
    if (at < 1) throw new api.Problem(0, { detail: `${key}: "${word}": expected key=value, such as ${example}`, key });
    pairs[word.slice(0, at).trim()] = word.slice(at + 1).trim();
  }
  return pairs;
}

function mark(fields, key) {
  if (!key) return;
  const name = key.replace(/^request\./, "").replace(/^shapes\[0\]\./, "");
  const inShape = /^shapes\[\d+\]\.\w+/.exec(name)?.[0];
  const input = fields.get(name) ?? fields.get(inShape) ?? fields.get(name.split(/[.[]/)[0]);
  if (!input) return;
  input.setAttribute("aria-invalid", "true");
  input.focus();
}
