// The Gantt chart of all sites: loading, moving about, and what is under the pointer.

import * as api from "./api.js";
import * as events from "./events.js";
import { el, notice, table } from "./dom.js";
import { amounts, short, time } from "./format.js";
import { AXIS_HEIGHT, colours, draw, gutterOf } from "./gantt-draw.js";
import { doubt, firstAfter, reservationOf, rowAt, rowsOf } from "./gantt-model.js";

const HOUR = 3600;
const SPANS = [["1 h", HOUR], ["6 h", 6 * HOUR], ["1 d", 24 * HOUR], ["3 d", 72 * HOUR], ["1 w", 168 * HOUR], ["2 w", 336 * HOUR]];
const SPAN_MIN = HOUR;
const SPAN_MAX = 336 * HOUR;
const HEIGHTS = { roomy: 20, close: 11, dense: 3 };
/** Pages of lists that are loaded at most: 50,000 hosts, 100,000 reservations. */
const HOST_PAGES = 10;
const BOOKING_PAGES = 10;
/** Reservations in the table beside the picture. */
const TABLE_ROWS = 200;

const now = () => Date.now() / 1000;

export async function show(place, site) {
  const chart = new Chart(place, site);
  const stop = events.listen((kind) => {
    if (kind !== "request") chart.reload();
  });
  await events.loaded(() => chart.load(), stop);
  chart.fit();
  const resize = new ResizeObserver(() => chart.fit());
  resize.observe(chart.stage);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const recolour = () => chart.recolour();
  dark.addEventListener("change", recolour);
  const timer = setInterval(() => chart.reload(), 30000);
  return () => {
    stop();
    resize.disconnect();
    dark.removeEventListener("change", recolour);
    clearInterval(timer);
    chart.isClosed = true;
  };
}

class Chart {
  constructor(place, site) {
    this.data = { hosts: [], sites: [], bookings: [] };
    this.filter = { site, user: "", attribute: "" };
    this.colourBy = "user";
    this.from = now() - HOUR;
    this.until = this.from + 24 * HOUR;
    this.top = 0;
    this.rows = [];
    this.height = 0;
    this.hovered = null;
    this.palette = colours();
    this.isClosed = false;
    this.isWaiting = false;
    this.reload = events.calmly(() => this.load().then(() => this.paint()).catch(() => {}), 1500);
    this.reach = events.calmly(() => this.load().then(() => this.paint()).catch(() => {}), 400);
    this.build(place);
  }

  build(place) {
    this.canvas = el("canvas", { tabIndex: 0, role: "application",
      "aria-label": "Reservations over time. Arrow keys move, plus and minus zoom, N goes to now, T shows a table." });
    this.tip = el("div", { className: "tip", hidden: true });
    this.stage = el("div", { className: "stage" }, this.canvas, this.tip);
    this.said = el("p", { className: "soft small", role: "status" });
    this.list = el("div", { hidden: true });
    this.spans = SPANS.map(([name, span]) =>
      el("button", { type: "button", className: "quiet", onclick: () => this.zoomTo(span) }, name));
    const input = (name, label) => el("label", {}, el("span", {}, label),
      el("input", { type: "search", size: 12, value: this.filter[name] ?? "", oninput: (event) => {
        this.filter[name] = event.target.value.trim();
        this.arrange();
      } }));
    const choice = (label, options, change) => el("label", {}, el("span", {}, label),
      el("select", { onchange: (event) => change(event.target.value) },
        options.map((option) => el("option", { value: option }, option))));
    place.append(
      el("div", { className: "row" }, el("h1", {}, "Reservations over time"), this.spans,
        el("button", { type: "button", className: "quiet", onclick: () => this.goToNow() }, "Now"),
        el("button", { type: "button", id: "as-table", className: "quiet", "aria-pressed": "false", onclick: (event) => this.toggleList(event.target) }, "As a table")),
      el("div", { className: "row" }, input("site", "Site"), input("user", "User"), input("attribute", "Attribute (key=value)"),
        choice("Colour by", ["user", "request"], (value) => { this.colourBy = value; this.paint(); }),
        choice("Rows", Object.keys(HEIGHTS), (value) => { this.rowHeight = HEIGHTS[value]; this.arrange(); })),
      this.said, this.stage, this.list);
    this.rowHeight = HEIGHTS.roomy;
    this.context = this.canvas.getContext("2d");
    this.listenToPointer();
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  async load() {
    const span = this.until - this.from;
    const window = { from: Math.floor(this.from - span), until: Math.ceil(this.until + span) };
    const [hosts, booked] = await Promise.all([
      api.pages("/v1/hosts", { limit: 5000 }, "hosts", HOST_PAGES),
      api.pages("/v1/bookings", { ...window, limit: 10000 }, "bookings", BOOKING_PAGES),
    ]);
    if (this.isClosed) return;
    this.loaded = window;
    this.data = { hosts: hosts.hosts, sites: booked.sites, bookings: booked.bookings };
    this.isCut = hosts.isCut || booked.isCut;
    this.arrange();
  }

  /** Takes other hosts and reservations in the place of those of the grid; the measurement of its speed uses this. */
  take(data) {
    this.data = data;
    this.loaded = { from: -Infinity, until: Infinity };
    this.arrange();
  }

  arrange() {
    const { rows, height, hosts } = rowsOf(this.data, this.filter, this.rowHeight);
    this.rows = rows;
    this.height = height;
    this.hostCount = hosts;
    this.move(0, 0);
  }

  fit() {
    const box = this.stage.getBoundingClientRect();
    this.ratio = window.devicePixelRatio || 1;
    this.width = Math.max(200, box.width);
    this.tall = Math.max(100, box.height);
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.tall * this.ratio);
    this.move(0, 0);
  }

  recolour() {
    this.palette = colours();
    this.paint();
  }

  /** Asks for a new picture with the next frame. */
  paint() {
    if (this.isWaiting || this.isClosed) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      if (!this.isClosed) this.drawNow();
    });
  }

  drawNow() {
    draw(this.context, { width: this.width, height: this.tall, from: this.from, until: this.until, top: this.top, now: now(),
      rows: this.rows, colourBy: this.colourBy, hovered: this.hovered, palette: this.palette, ratio: this.ratio });
    const stale = this.rows.filter((row) => row.kind === "site" && doubt(row.state)).length;
    const said = `${this.hostCount} hosts, ${this.data.bookings.length} reservations loaded` +
      (stale > 0 ? `; ${stale} ${stale === 1 ? "site" : "sites"} hatched: what is shown may be old` : "") +
      (this.isCut ? "; there are more than are shown" : "");
    if (this.said.textContent !== said) this.said.textContent = said;
    if (!this.list.hidden) this.fillList();
    for (const [index, [, span]] of SPANS.entries()) {
      this.spans[index].setAttribute("aria-pressed", String(Math.abs(span - (this.until - this.from)) < 1));
    }
  }

  /** Moves by seconds and pixels, inside what there is. */
  move(seconds, pixels) {
    this.from += seconds;
    this.until += seconds;
    const most = Math.max(0, this.height - ((this.tall ?? 0) - AXIS_HEIGHT));
    this.top = Math.min(most, Math.max(0, this.top + pixels));
    if (this.loaded && (this.from < this.loaded.from || this.until > this.loaded.until)) this.reach();
    this.paint();
  }

  /** Changes the span around a share of the width. */
  zoomTo(span, share = 0.5) {
    const wanted = Math.min(SPAN_MAX, Math.max(SPAN_MIN, span));
    const fixed = this.from + share * (this.until - this.from);
    this.from = fixed - share * wanted;
    this.until = this.from + wanted;
    this.move(0, 0);
  }

  goToNow() {
    const span = this.until - this.from;
    this.from = now() - span / 12;
    this.until = this.from + span;
    this.move(0, 0);
  }

  secondsPerPixel() {
    return (this.until - this.from) / (this.width - gutterOf(this.width));
  }

  shareAt(x) {
    const gutter = gutterOf(this.width);
    return Math.min(1, Math.max(0, (x - gutter) / (this.width - gutter)));
  }

  listenToPointer() {
    const { canvas } = this;
    const held = new Map();
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      held.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      canvas.classList.add("dragging");
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) {
        this.hover(event.offsetX, event.offsetY);
        return;
      }
      const after = { x: event.offsetX, y: event.offsetY };
      if (held.size === 1) {
        this.move((before.x - after.x) * this.secondsPerPixel(), before.y - after.y);
      } else {
        const [other] = [...held].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
        const ratio = Math.abs(before.x - other.x) / Math.max(8, Math.abs(after.x - other.x));
        this.zoomTo((this.until - this.from) * ratio, this.shareAt((after.x + other.x) / 2));
      }
      held.set(event.pointerId, after);
    });
    for (const kind of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(kind, (event) => {
        held.delete(event.pointerId);
        canvas.classList.toggle("dragging", held.size > 0);
        if (event.pointerType === "touch") this.hover(event.offsetX, event.offsetY);
      });
    }
    canvas.addEventListener("pointerleave", () => this.hover(-1, -1));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) {
        this.zoomTo((this.until - this.from) * 2 ** (event.deltaY / 250), this.shareAt(event.offsetX));
      } else {
        const sideways = event.shiftKey ? event.deltaY : event.deltaX;
        this.move(sideways * this.secondsPerPixel(), event.shiftKey ? 0 : event.deltaY);
      }
    }, { passive: false });
  }

  onKey(event) {
    const span = this.until - this.from;
    const page = this.tall - AXIS_HEIGHT;
    const moves = {
      ArrowLeft: () => this.move(-span / 10, 0), ArrowRight: () => this.move(span / 10, 0),
      ArrowUp: () => this.move(0, -60), ArrowDown: () => this.move(0, 60),
      PageUp: () => this.move(0, -page), PageDown: () => this.move(0, page),
      Home: () => this.move(0, -this.height), End: () => this.move(0, this.height),
      "+": () => this.zoomTo(span / 1.5), "=": () => this.zoomTo(span / 1.5), "-": () => this.zoomTo(span * 1.5),
      n: () => this.goToNow(), t: () => this.toggleList(null),
    };
    const move = moves[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move();
  }

  /** The bar at a place, with its row. */
  find(x, y) {
    const at = y < AXIS_HEIGHT || x < gutterOf(this.width) ? -1 : rowAt(this.rows, y - AXIS_HEIGHT + this.top);
    const row = at < 0 ? null : this.rows[at];
    if (!row || row.kind !== "host" || row.lanes.length === 0) return { row, bar: null };
    const inside = (y - AXIS_HEIGHT + this.top - row.top) / row.height;
    const lane = row.lanes[Math.min(row.lanes.length - 1, Math.floor(inside * row.lanes.length))];
    const moment = this.from + this.shareAt(x) * (this.until - this.from);
    const bar = lane[firstAfter(lane, moment - this.secondsPerPixel())];
    return { row, bar: bar && bar.start <= moment + this.secondsPerPixel() ? bar : null };
  }

  hover(x, y) {
    const { row, bar } = this.find(x, y);
    const booking = bar ? bar.booking : null;
    if (booking !== this.hovered) {
      this.hovered = booking;
      this.paint();
    }
    this.tip.hidden = !bar;
    if (!bar) return;
    const lines = [`${booking.user} · ${short(reservationOf(booking))}`, `${row.host.site_name}, ${row.host.host}: ${amounts(bar.amounts)}`,
      `${time(bar.start)} to ${time(bar.end)}`, `${booking.hosts.length} ${booking.hosts.length === 1 ? "host" : "hosts"} at this site`];
    const why = doubt(row.state);
    if (why) lines.push(`site: ${why}`);
    this.tip.replaceChildren(...lines.map((line) => el("div", {}, line)));
    const width = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(4, Math.min(this.width - width - 4, x + 14))}px`;
    this.tip.style.top = `${Math.min(this.tall - this.tip.offsetHeight - 4, y + 16)}px`;
  }

  toggleList(button) {
    this.list.hidden = !this.list.hidden;
    if (button) button.setAttribute("aria-pressed", String(!this.list.hidden));
    this.paint();
  }

  fillList() {
    const names = new Map(this.data.sites.map((site) => [site.site, site.name || site.site]));
    const visible = this.data.bookings.filter((one) => one.end > this.from && one.start < this.until);
    const rows = visible.slice(0, TABLE_ROWS).map((one) => [
      one.user, el("span", { title: reservationOf(one) }, short(reservationOf(one))), names.get(one.site) ?? one.site,
      one.hosts.map((part) => part.host).join(", "), time(one.start), time(one.end)]);
    this.list.replaceChildren(
      visible.length > TABLE_ROWS ? notice(`${TABLE_ROWS} of ${visible.length} are shown; zoom in to see the others`, "warn") : "",
      table("Reservations in view", ["User", "Request", "Site", "Hosts", "Start", "End"], rows));
  }
}

export { Chart };
