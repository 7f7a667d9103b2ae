// The grid at a glance: sites, hosts, what is reserved now and over the next day, and how this node does.

import * as api from "./api.js";
import * as events from "./events.js";
import * as runs from "./running.js";
import { el, facts, notice, number, svg, table } from "./dom.js";
import { age, amount, amounts, credits, duration, percent, short, time, timeOfDay } from "./format.js";

// Hosts whose prices are looked at; more rows would be no glance.
const PRICED_MAX = 1000;
// Lines about what was used, and how often they are read: the site adds them up from all that it has written down.
const USED = { lines: 20, everyMs: 30000 };
const CHART = { width: 480, height: 130, left: 4, bottom: 16 };

export async function show(place) {
  let accounts = null, readAt = 0;
  const used = async () => {
    if (accounts === null || Date.now() - readAt >= USED.everyMs) {
      [accounts, readAt] = [await api.get(`/v1/accounts?lines=${USED.lines}`), Date.now()];
    }
    return accounts.used;
  };
  const load = async () => {
    const [status, sites, usage, local, hosts, running, lines] = await Promise.all(
      [api.get("/v1/status"), api.get("/v1/sites"), api.get("/v1/usage?points=96"), api.get("/v1/local"), api.get(`/v1/hosts?limit=${PRICED_MAX}`), runs.load(), used()]);
    place.replaceChildren(el("h1", {}, status.name || "This node"), ...parts(status, sites.sites, usage, local, hosts.hosts, [...runs.parts(running, reload), ...usedOf(lines)]));
  };
  const reload = events.calmly(() => load().catch(() => {}), 2000);
  const stop = events.listen(reload);
  const timer = setInterval(reload, 30000);
  return events.loaded(load, () => {
    stop();
    clearInterval(timer);
  });
}

function tile(name, value, more) {
  return el("div", { className: "panel tile" }, el("span", { className: "soft" }, name), el("b", {}, String(value)),
    el("span", { className: "soft small" }, more));
}

function parts(status, sites, usage, { promised, queue }, hosts, running) {
  const count = (state) => sites.filter((site) => site.schedule === state).length;
  const [current, stale, unknown] = ["current", "stale", "unknown"].map(count);
  const health = stale + unknown === 0 ? "all schedules are current" : `${stale} stale, ${unknown} not known yet`;
  return [
    status.clock?.is_off ? clockNotice(status.clock) : "",
    el("div", { className: "tiles" },
      tile("Sites", status.known_sites, `${current} with a current schedule`),
      tile("Hosts", status.known_hosts, `${usage.hosts} with a known schedule`),
      tile("Peers", status.peers, "connected to this node"),
      tile("Requests", status.active_requests, "under way at this node")),
    el("div", { className: "charts" }, usage.resources.filter((one) => one.capacity > 0).map((one) => chart(one, usage))),
    el("h2", {}, "Health"),
    el("p", { className: stale + unknown === 0 ? "good" : "warn" }, health),
    el("h2", {}, "Sites"),
    table("Sites", ["Site", number("Hosts"), "Uplink", "Schedule", "Heard", "Advert", "Address"], sites.map(siteRow)),
    ...pricesOf(hosts),
    el("h2", {}, "Who uses this site's hosts"),
    promised.length === 0 ? el("p", { className: "soft" }, "Nobody has any of them.") :
      table("Promises", ["User", "Request", "Host", "Gives", "From", "Until"], promised.map((seat) =>
        [seat.user, short(seat.request), seat.host, amounts(seat.amounts), time(seat.start), time(seat.end)])),
    ...running,
    ...(queue.length === 0 ? [] : [el("h2", {}, "Own queue"),
      table("Own queue", ["Job", "State", "Uses", "Hosts", "From", "Until", "Deadline"], queue.map((job) =>
        [job.id, job.state + (job.is_late ? ", late" : ""), amounts(job.amounts), job.on.join(" ") || "none yet", job.start ? time(job.start) : "",
          job.end ? time(job.end) : "", job.deadline ? time(job.deadline) : ""]))]),
    el("h2", {}, "This node"),
    facts([
      ["Grid", `${status.grid} (${status.grid_form})`], ["Site id", status.site], ["Software", status.software],
      ["Up since", `${time(status.started)}, ${duration(Date.now() / 1000 - status.started)}`],
      ["Listens at", status.listen.join("  ")],
    ]),
  ];
}

/** What was reserved here until now, and what commands used of it. */
function usedOf(lines) {
  if (lines.length === 0) return [];
  const hours = (seconds) => number((seconds / 3600).toFixed(2));
  return [el("h2", {}, "Reserved and used here"),
    table("Used", ["User", "Request", "From", number("Runs"), number("Host-hours"), number("Used"), number(""), number("Processor-hours")], lines.map(
      ({ part, runs: count, reserved_s: reserved, used_ms: usedMs, cpu_ms: cpuMs }) => [part.user, short(part.request), time(part.window.start), number(count),
        hours(reserved), hours(usedMs / 1000), number(percent(usedMs / 1000, reserved)), hours(cpuMs / 1000)]))];
}

/** The hosts that have a price, those of a site with the same prices in one row. */
function pricesOf(hosts) {
  const rows = new Map();
  for (const { host, site, site_name, prices = {}, next_prices: next, conditions } of hosts) {
    if (Object.keys(prices).length === 0 && !next) continue;
    const cells = [site_name || site, perHour(prices), next ? `from ${time(next.from)}: ${perHour(next.prices)}` : "", conditionsText(conditions)];
    const key = JSON.stringify([site, ...cells]);
    if (!rows.has(key)) rows.set(key, { cells, hosts: [] });
    rows.get(key).hosts.push(host);
  }
  if (rows.size === 0) return [];
  return [el("h2", {}, "Prices"), table("Prices", ["Site", "Hosts", "An hour", "Then", "Conditions"],
    [...rows.values()].map(({ cells: [site, ...others], hosts: named }) =>
      [site, named.length > 3 ? `${named[0]} and ${named.length - 1} more` : named.join(", "), ...others]))];
}

const perHour = (prices) => Object.entries(prices).map(([name, price]) => `${name} ${credits(price)}`).join(", ") || "free";

function conditionsText({ surcharges = [], refunds = [], horizon_s: horizon, notice_s: notice, share } = {}) {
  const part = (thousandths) => percent(thousandths, 1000);
  return [
    ...surcharges.map((one) => `within ${duration(one.before_s)}: ${part(one.part)} more`),
    ...refunds.map((one) => `cancelled ${duration(one.before_s)} before: ${part(one.part)} back`),
    horizon ? `at most ${duration(horizon)} ahead` : "", notice ? `at least ${duration(notice)} ahead` : "",
    share ? `${part(share)} of each resource` : "",
  ].filter(Boolean).join("; ");
}

function clockNotice({ ahead_ms, sites }) {
  const much = duration(Math.abs(ahead_ms) / 1000), direction = ahead_ms > 0 ? "behind" : "ahead of";
  return notice(`The clock of this machine is ${much} ${direction} the median clock of ${sites} other ${sites === 1 ? "site" : "sites"}: ` +
    "reservations begin and end at the wrong time here. See whether it is synchronised.");
}

/** What a link carries, and what of it is free now. */
const uplinkText = (uplink) =>
  uplink ? `${number(uplink.mbps)} Mbit/s, ${uplink.free_now_mbps === null ? "unknown" : number(uplink.free_now_mbps)} free` : "";

function siteRow(site) {
  const kind = { current: "good", stale: "warn", unknown: "bad" }[site.schedule];
  return [
    el("span", {}, el("a", { href: `#/gantt/${encodeURIComponent(site.site)}` }, site.name || site.site),
      site.this_node ? el("span", { className: "soft" }, " (this node)") : ""),
    number(site.hosts),
    uplinkText(site.uplink),
    el("span", { className: `badge ${kind}` }, site.schedule),
    age(site.schedule_age_s),
    age(site.advert_age_s),
    el("span", { className: "soft small" }, site.addresses[0] ?? ""),
  ];
}

/** Use of one resource from now on, as an area under its capacity. */
function chart(resource, usage) {
  const { width, height, left, bottom } = CHART;
  const y = (value) => (height - bottom) - ((height - bottom - 14) * value) / resource.capacity;
  const x = (index) => left + ((width - 2 * left) * index) / resource.used.length;
  const points = resource.used.flatMap((used, index) => [`${x(index)},${y(used)}`, `${x(index + 1)},${y(used)}`]);
  const base = height - bottom;
  const line = points.join(" ");
  const now = resource.used[0] ?? 0;
  const mean = resource.used.reduce((sum, used) => sum + used, 0) / Math.max(1, resource.used.length);
  const until = usage.from + usage.step_s * resource.used.length;
  const said = `${resource.name}: ${percent(now, resource.capacity)} reserved now, ${percent(mean, resource.capacity)} until ${time(until)}`;
  return el("figure", { className: "panel" },
    el("figcaption", {}, el("strong", {}, resource.name), " ",
      el("span", { className: "soft small" },
        `${percent(now, resource.capacity)} of ${amount(resource.name, resource.capacity)} reserved now, ${percent(mean, resource.capacity)} over the next ${duration(until - usage.from)}`)),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said },
      svg("polygon", { class: "area", points: `${x(0)},${base} ${line} ${x(resource.used.length)},${base}` }),
      svg("polyline", { class: "edge", points: line }),
      svg("line", { class: "axis", x1: left, x2: width - left, y1: base, y2: base }),
      svg("line", { class: "axis", x1: left, x2: width - left, y1: y(resource.capacity), y2: y(resource.capacity) }),
      [0, 0.25, 0.5, 0.75].map((part) =>
        svg("text", { x: left + part * (width - 2 * left), y: height - 3 }, timeOfDay(usage.from + part * (until - usage.from))))));
}
