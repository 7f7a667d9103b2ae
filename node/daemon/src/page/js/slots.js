// When could I have this: how many hosts have the minima free at which start, and the earliest or the fullest of them.

import * as api from "./api.js";
import { el, facts, notice, svg, table } from "./dom.js";
import { amounts, credits, date, factorOf, fromField, shapeOf, time, timeOfDay, toField } from "./format.js";
import { schedules } from "./book.js";
import { requestForm } from "./request-form.js";

const SIZE = { width: 900, height: 220, left: 40, right: 8, top: 12, bottom: 22 };

export async function show(place) {
  const result = el("section", { "aria-live": "polite" });
  const mode = el("select", { name: "mode" },
    [["earliest", "the earliest start"], ["most", "the start with most hosts"], ["at", "how many hosts at a time"]]
      .map(([value, text]) => el("option", { value }, text)));
  const at = el("input", { type: "datetime-local", value: toField(Date.now() / 1000 + 3600) });
  const atLabel = el("label", { hidden: true }, el("span", {}, "At"), at);
  mode.addEventListener("change", () => { atLabel.hidden = mode.value !== "at"; });
  const form = requestForm({ action: "Look", hosts: "1", more: [el("label", {}, el("span", {}, "Find"), mode), atLabel],
    onready: async (request) => {
      const question = { mode: mode.value, request };
      if (mode.value === "at") question.at = fromField(at.value);
      result.replaceChildren(el("p", { className: "soft" }, "Looking…"));
      try {
        const answer = await api.post("/v1/slots", question);
        result.replaceChildren(...answered(request, answer));
      } catch (error) {
        result.replaceChildren();
        throw error;
      }
    } });
  place.append(el("h1", {}, "When could I have this?"),
    el("p", { className: "soft" }, "Looks at all starts on the live view; nothing is held."),
    el("div", { className: "panel" }, form), result);
}

function answered(request, answer) {
  const found = answer.is_possible
    ? notice(`${time(answer.start)}: ${answer.hosts} ${answer.hosts === 1 ? "host has" : "hosts have"} the minima free until ${time(answer.end)}.`, "good")
    : notice(answer.reason ? answer.reason.detail : "Not possible.", "warn");
  return [el("h2", {}, "Answer"), found,
    el("p", { className: answer.is_proven ? "good" : "soft" },
      answer.is_proven ? "✓ Proven on the schedules used." : "Not proven: the search reached its limit."),
    ...(answer.front?.points.length > 1 ? priceCurve(request, answer) : []),
    facts([["Shape", shapeOf(request, answer)], ["Factor", factorOf(request, answer)], ["Cost", credits(answer.cost)], ["Free together then", answer.is_possible ? amounts(answer.free) : ""],
      ["Hosts that fit", `${answer.matching_hosts} of ${answer.known_hosts} known`],
      ["Left out", answer.without_schedule > 0 ? `${answer.without_schedule} hosts whose schedules are not known` : ""]]),
    profile(answer), schedules(answer)];
}

/** Hosts over starts. */
function profile(answer) {
  const steps = answer.profile.map((step) => [step.start, step.hosts]);
  return curve(answer, steps, { title: "Hosts with the minima free, by start", number: String,
    remark: answer.is_thinned ? " (thinned: at least this many)" : "",
    says: (most) => `up to ${most} hosts` });
}

/** The least cost of starting at a time or before, with the starts where it falls. */
function priceCurve(request, answer) {
  const { points, left_out, is_proven } = answer.front;
  const open = [is_proven ? "" : "not proven to be all", left_out ? `${left_out} more between these` : ""].filter(Boolean);
  const steps = points.map((point) => [point.start, point.cost]);
  return [curve(answer, steps, { title: "What it costs to start earlier", number: (cost) => credits(cost) || "0",
    remark: open.length ? ` (${open.join(", ")})` : "", says: (most) => `from ${credits(most)} down` }),
    table("Starts and what they cost at least", ["Start", "Cost", "Shape"],
      points.map((point) => [time(point.start), `${credits(point.cost) || "nothing"}${point.is_proven ? "" : " (not proven)"}`,
        shapeOf(request, point)]))];
}

/** A number over starts, as steps: pairs of a start and what holds from then on. */
function curve(answer, steps, { title, number, remark, says }) {
  const { width, height, left, right, top, bottom } = SIZE;
  const from = answer.profile[0].start;
  const span = Math.max(1, answer.until - from);
  const most = Math.max(1, ...steps.map(([, value]) => value));
  const x = (moment) => left + ((width - left - right) * (moment - from)) / span;
  const y = (value) => height - bottom - ((height - bottom - top) * value) / most;
  const points = steps.flatMap(([start, value], index) => {
    const end = index + 1 < steps.length ? steps[index + 1][0] : answer.until;
    return [`${x(start)},${y(value)}`, `${x(end)},${y(value)}`];
  });
  const label = (moment) => (span > 172800 ? date(moment) : timeOfDay(moment));
  const parts = [0, 0.2, 0.4, 0.6, 0.8].map((part) => from + part * span);
  return el("figure", { className: "panel profile" },
    el("figcaption", {}, title, el("span", { className: "soft small" }, remark)),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${says(most)} between ${time(from)} and ${time(answer.until)}` },
      svg("polygon", { class: "area", points: `${x(steps[0][0])},${y(0)} ${points.join(" ")} ${x(answer.until)},${y(0)}` }),
      svg("polyline", { class: "edge", points: points.join(" ") }),
      svg("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }),
      [0, most].map((value) => svg("text", { x: 4, y: y(value) + 4 }, number(value))),
      parts.map((moment) => svg("text", { x: x(moment), y: height - 6 }, label(moment))),
      answer.start === null ? [] : [svg("line", { class: "mark", x1: x(answer.start), x2: x(answer.start), y1: top, y2: y(0) })]));
}
