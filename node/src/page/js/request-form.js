// The form of a request, as the command line takes it: texts go to the node, which reads them with the same code and names
// the field that is wrong.

import * as api from "./api.js";
import { el, notice } from "./dom.js";
import { fromField } from "./format.js";

const RESOURCES = [
  ["cpu", "cpu (cores, such as 2.5)"], ["memory", "memory (such as 40GiB)"], ["disk", "disk (such as 100GiB)"], ["gpu", "gpu"],
];

/** Makes the form; `onready(request)` gets the checked request. `more` are further fields, `action` the button's text. */
export function requestForm({ action, more = [], onready, hosts = "2" }) {
  const fields = new Map();
  const field = (key, label, properties = {}) => {
    const input = el("input", { name: key, autocomplete: "off", ...properties });
    fields.set(key, input);
    return el("label", {}, el("span", {}, label), input);
  };
  const amountsOf = (key, legend) => el("fieldset", {}, el("legend", {}, legend),
    el("div", { className: "fields" }, RESOURCES.map(([name, label]) => field(`${key}.${name}`, label))));
  const said = el("div", {});
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
    more),
  amountsOf("total", "All hosts together, at least"),
  amountsOf("per_host", "Each host, at least"),
  el("fieldset", {}, el("legend", {}, "And"),
    el("div", { className: "fields" },
      field("attributes", "Attributes (arch=x86_64, os=linux)"), field("id", "Label"))),
  el("div", { className: "row" }, button), said);
  return form;
}

/** What is in the fields, without what is empty. */
function textsOf(fields) {
  const texts = { per_host: {}, total: {}, attributes: {} };
  for (const [key, input] of fields) {
    const value = input.value.trim();
    if (value === "") continue;
    const [head, name] = key.split(".");
    if (name) texts[head][name] = value;
    else if (key === "hosts") texts.hosts = Number(value);
    else if (key === "earliest" || key === "latest") texts[key] = fromField(value);
    else if (key === "attributes") texts.attributes = attributesOf(value);
    else texts[key] = value;
  }
  return texts;
}

function attributesOf(text) {
  const attributes = {};
  for (const word of text.split(",").map((one) => one.trim()).filter(Boolean)) {
    const at = word.indexOf("=");
    if (at < 1) throw new api.Problem(0, { detail: `attributes: "${word}": expected key=value, such as arch=x86_64`, key: "attributes" });
    attributes[word.slice(0, at).trim()] = word.slice(at + 1).trim();
  }
  return attributes;
}

function mark(fields, key) {
  if (!key) return;
  const input = fields.get(key) ?? fields.get(key.split(".")[0]) ?? fields.get(key.replace(/^request\./, ""));
  if (!input) return;
  input.setAttribute("aria-invalid", "true");
  input.focus();
}
