// Making elements. Invariant: what comes from the grid is only ever set as text, never read as HTML.

/** An element with properties, attributes (names with "-", and role) and children; strings become text. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for" || name === "list") {
      element.setAttribute(name, value);
    } else element[name] = value;
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** As `el`, for drawings; all properties are attributes. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.flat(Infinity));
  return element;
}

/** A table of rows of cells; a cell is text, an element, or `{text, number: true}`. */
export function table(caption, headings, rows) {
  const isNumber = (cell) => cell !== null && typeof cell === "object" && cell.number === true;
  const content = (cell) => (isNumber(cell) ? cell.text : cell);
  const head = headings.map((heading) =>
    el("th", { scope: "col", className: isNumber(heading) ? "number" : "" }, content(heading)));
  const body = rows.map((row) =>
    // Narrow windows show a row as a list of its cells, each behind its heading.
    el("tr", {}, row.map((cell, column) => el("td", { className: isNumber(cell) ? "number" : "",
      "data-heading": content(headings[column]) || null }, content(cell) ?? ""))));
  return el("div", { className: "scroll" },
    el("table", { "aria-label": caption }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

/** A list of names and values. */
export function facts(pairs) {
  return el("dl", { className: "facts" },
    pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

/** A right-aligned cell. */
export const number = (text) => ({ text: String(text), number: true });

/** What went wrong, as a box that screen readers announce. */
export function notice(text, kind = "bad") {
  return el("div", { className: `notice ${kind}`, role: kind === "bad" ? "alert" : "status" }, text);
}
