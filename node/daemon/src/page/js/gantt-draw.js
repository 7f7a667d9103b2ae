// Drawing of the Gantt chart on a canvas. Invariant: work is bounded by what is visible; bars narrower than a pixel that
// fall on a pixel already drawn are passed over.

import { date, timeOfDay, age } from "./format.js";
import { doubt, firstAfter, reservationOf, rowAt } from "./gantt-model.js";

/** Sizes in CSS pixels. */
export const AXIS_HEIGHT = 34;
export const gutterOf = (width) => Math.max(84, Math.min(190, width * 0.22));

const STEPS = [60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
const LABEL_WIDTH = 76;

/** The colours in force, from the style sheet. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(name).trim();
  return {
    ink: named("--ink"), soft: named("--soft"), line: named("--line"), grid: named("--grid"), panel: named("--panel"),
    back: named("--back"), warn: named("--warn"), hatch: named("--hatch"), accent: named("--accent"),
    light: named("--bar-light"), chroma: named("--bar-chroma"), byName: new Map(),
  };
}

/** A colour for a name: always the same, well spread. */
export function colourOf(palette, name) {
  let colour = palette.byName.get(name);
  if (!colour) {
    let hash = 2166136261;
    for (let at = 0; at < name.length; at += 1) hash = Math.imul(hash ^ name.charCodeAt(at), 16777619) >>> 0;
    // The low bits of this hash hardly differ between names that end alike; this mixes them.
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d) >>> 0;
    hash = (hash ^ (hash >>> 13)) >>> 0;
    colour = `hsl(${(hash % 24) * 15} ${palette.chroma} calc(${palette.light} + ${((hash >>> 8) % 3) * 7 - 7}%))`;
    palette.byName.set(name, colour);
  }
  return colour;
}

function hatchPattern(context, palette) {
  if (palette.pattern) return palette.pattern;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.strokeStyle = palette.hatch;
  pen.beginPath();
  for (const shift of [-8, 0, 8]) {
    pen.moveTo(shift, 8);
    pen.lineTo(shift + 8, 0);
  }
  pen.stroke();
  palette.pattern = context.createPattern(tile, "repeat");
  return palette.pattern;
}

/** Draws everything. `view`: width, height, from, until, top, now, rows, colourBy, hovered, palette, ratio. */
export function draw(context, view) {
  const { width, height, palette } = view;
  const gutter = gutterOf(width);
  const x = (time) => gutter + ((time - view.from) / (view.until - view.from)) * (width - gutter);
  context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  context.fillStyle = palette.panel;
  context.fillRect(0, 0, width, height);
  context.save();
  context.beginPath();
  context.rect(0, AXIS_HEIGHT, width, height - AXIS_HEIGHT);
  context.clip();
  drawTicks(context, view, x, gutter);
  const visible = [];
  let at = Math.max(0, rowAt(view.rows, view.top));
  for (; at < view.rows.length && view.rows[at].top - view.top < height - AXIS_HEIGHT; at += 1) visible.push(view.rows[at]);
  const y = (row) => AXIS_HEIGHT + row.top - view.top;
  for (const row of visible.filter((one) => one.kind === "host")) drawHost(context, view, row, y(row), x, gutter);
  drawNow(context, view, x, gutter);
  for (const row of visible.filter((one) => one.kind === "site")) drawSite(context, view, row, y(row));
  context.restore();
  drawAxis(context, view, x, gutter);
}

function* ticks(view, space) {
  const wanted = ((view.until - view.from) * LABEL_WIDTH) / space;
  const step = STEPS.find((one) => one >= wanted) ?? STEPS[STEPS.length - 1];
  const offset = new Date(view.from * 1000).getTimezoneOffset() * 60;
  let time = Math.ceil((view.from - offset) / step) * step + offset;
  for (; time < view.until; time += step) yield { time, isDay: (time - offset) % 86400 === 0, step };
}

function drawTicks(context, view, x, gutter) {
  for (const { time, isDay } of ticks(view, view.width - gutter)) {
    context.fillStyle = isDay ? view.palette.line : view.palette.grid;
    context.fillRect(Math.round(x(time)), AXIS_HEIGHT, 1, view.height);
  }
}

function drawAxis(context, view, x, gutter) {
  const { palette } = view;
  context.fillStyle = palette.panel;
  context.fillRect(0, 0, view.width, AXIS_HEIGHT);
  context.fillStyle = palette.line;
  context.fillRect(0, AXIS_HEIGHT - 1, view.width, 1);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  let dayShownTo = -Infinity;
  for (const { time, isDay, step } of ticks(view, view.width - gutter)) {
    const place = x(time);
    context.fillStyle = palette.soft;
    if (step < 86400) context.fillText(timeOfDay(time), place + 3, AXIS_HEIGHT - 9);
    if ((isDay || dayShownTo === -Infinity) && place > dayShownTo) {
      context.fillStyle = palette.ink;
      const label = date(time);
      context.fillText(label, place + 3, step < 86400 ? 9 : AXIS_HEIGHT - 12);
      dayShownTo = place + context.measureText(label).width + 8;
    }
  }
}

function drawNow(context, view, x, gutter) {
  const place = Math.round(x(view.now));
  if (place < gutter || place > view.width) return;
  context.fillStyle = view.palette.warn;
  context.fillRect(place, AXIS_HEIGHT, 2, view.height);
}

function drawSite(context, view, row, y) {
  const { palette } = view;
  context.fillStyle = palette.back;
  context.fillRect(0, y, view.width, row.height);
  context.fillStyle = palette.line;
  context.fillRect(0, y, view.width, 1);
  context.font = "600 12px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = palette.ink;
  const name = `${row.name} · ${row.count} ${row.count === 1 ? "host" : "hosts"}`;
  context.fillText(name, 8, y + row.height / 2 + 1);
  const why = doubt(row.state);
  const told = row.state.told_age_s === null || row.state.told_age_s === undefined ? "" : `as of ${age(row.state.told_age_s)}`;
  const said = [why, told].filter(Boolean).join(", ");
  const at = 8 + context.measureText(name).width + 12;
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = why ? palette.warn : palette.soft;
  context.fillText(said, at, y + row.height / 2 + 1);
}

function drawHost(context, view, row, y, x, gutter) {
  const { palette, width } = view;
  if (doubt(row.state)) {
    context.fillStyle = hatchPattern(context, palette);
    context.fillRect(gutter, y, width - gutter, row.height);
  }
  context.fillStyle = palette.line;
  for (const { start, end } of row.state.not_offered ?? []) {
    const [left, right] = [Math.max(gutter, x(start)), Math.min(width, x(end))];
    if (right > left) context.fillRect(left, y, right - left, row.height);
  }
  const pad = row.height >= 12 ? 2 : row.height >= 6 ? 1 : 0;
  const thick = Math.max(1, (row.height - 2 * pad) / Math.max(1, row.lanes.length));
  row.lanes.forEach((lane, index) => drawLane(context, view, lane, y + pad + index * thick, thick, x, gutter));
  if (row.height >= 11) {
    context.fillStyle = palette.panel;
    context.fillRect(0, y, gutter, row.height);
    context.fillStyle = palette.soft;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillText(fitted(context, row.host.host, gutter - 20), 14, y + row.height / 2 + 1);
  }
}

function drawLane(context, view, lane, y, thick, x, gutter) {
  const gap = thick > 4 ? 1 : 0;
  let drawnTo = -1;
  for (let at = firstAfter(lane, view.from); at < lane.length && lane[at].start < view.until; at += 1) {
    const bar = lane[at];
    const left = Math.max(gutter, x(bar.start));
    const right = Math.max(left + 1, Math.min(view.width, x(bar.end)));
    if (right <= drawnTo + 0.5) continue;
    drawnTo = right;
    const { booking } = bar;
    context.fillStyle = colourOf(view.palette, view.colourBy === "user" ? booking.user : reservationOf(booking));
    context.globalAlpha = bar.end <= view.now ? 0.45 : 1;
    context.fillRect(left, y, right - left - (right - left > 3 ? 0.7 : 0), thick - gap);
    if (view.hovered && reservationOf(view.hovered) === reservationOf(booking)) {
      context.globalAlpha = 1;
      context.strokeStyle = view.palette.ink;
      context.lineWidth = 1.5;
      context.strokeRect(left + 0.5, y + 0.5, Math.max(1, right - left - 1.5), Math.max(1, thick - gap - 1));
    } else if (thick >= 12 && right - left > 60) {
      context.globalAlpha = 1;
      context.fillStyle = "#fff";
      context.font = "10.5px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.fillText(fitted(context, booking.user, right - left - 8), left + 4, y + thick / 2 + 0.5);
    }
  }
  context.globalAlpha = 1;
}

/** The head of a text that fits. Measures once for texts that fit whole. */
function fitted(context, text, space) {
  if (text.length * 5 < space || context.measureText(text).width <= space) return text;
  const letters = Math.max(1, Math.floor((text.length * space) / context.measureText(text).width) - 1);
  return `${text.slice(0, letters)}…`;
}
