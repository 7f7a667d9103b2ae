// What the Gantt chart shows, arranged so that drawing looks only at what is visible: rows with their place on the y axis,
// and for every row lanes of reservations that do not overlap, so that the visible ones are found by bisection.

/** Heights in CSS pixels. */
export const SITE_HEIGHT = 24;

/** What stands for a site's uplink among its hosts. */
const UPLINK = "uplink";

/** Whether a host has an attribute as `key=value`; a key alone asks for any value, and nothing for any host. */
function hasAttribute(host, wanted) {
  if (!wanted) return true;
  const at = wanted.indexOf("=");
  const key = at < 0 ? wanted : wanted.slice(0, at);
  const value = at < 0 ? null : wanted.slice(at + 1);
  const own = Object.hasOwn(host.attributes, key) ? host.attributes[key] : undefined;
  return own !== undefined && (value === null || own === value);
}

const contains = (text, wanted) => !wanted || text.toLowerCase().includes(wanted.toLowerCase());

/** Puts bars (by start) into lanes without overlap; returns the lanes. */
export function lanesOf(bars) {
  const lanes = [];
  for (const bar of bars) {
    const lane = lanes.find((one) => one[one.length - 1].end <= bar.start);
    if (lane) lane.push(bar);
    else lanes.push([bar]);
  }
  return lanes;
}

/** The first bar of a lane that ends after `from`. */
export function firstAfter(lane, from) {
  let low = 0;
  let high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane[middle].end <= from) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Bars of every host: `site host` to bars by start. */
export function barsByHost(bookings, user) {
  const byHost = new Map();
  for (const booking of bookings) {
    if (!contains(booking.user, user)) continue;
    const load = booking.uplink_mbps ? [{ host: UPLINK, end: booking.end, amounts: { mbps: booking.uplink_mbps } }] : [];
    for (const part of [...booking.hosts, ...load]) {
      const key = `${booking.site} ${part.host}`;
      let bars = byHost.get(key);
      if (!bars) byHost.set(key, (bars = []));
      bars.push({ start: booking.start, end: part.end, booking, amounts: part.amounts });
    }
  }
  for (const [key, bars] of byHost) {
    bars.sort((a, b) => a.start - b.start || a.end - b.end);
    byHost.set(key, joined(bars));
  }
  return byHost;
}

/** The reservation that a booking belongs to; more time for one is booked by requests of its own. */
export const reservationOf = (booking) => booking.part_of ?? booking.request;

/** Bars by start, those of one reservation that follow each other without a gap as one. */
function joined(bars) {
  const last = new Map();
  return bars.filter((bar) => {
    const id = reservationOf(bar.booking);
    const before = last.get(id);
    if (before && before.end === bar.start && before.booking.user === bar.booking.user) {
      before.end = bar.end;
      return false;
    }
    last.set(id, bar);
    return true;
  });
}

/** The rows for some hosts, sites and reservations: a heading for each site, then its hosts, and its uplink if that has a limit. */
export function rowsOf({ hosts, sites, bookings }, filter, hostHeight) {
  const states = new Map(sites.map((site) => [site.site, site]));
  const uplinks = sites.filter((site) => site.uplink_mbps)
    .map((site) => ({ site: site.site, site_name: site.name, host: UPLINK, attributes: {}, isUplink: true }));
  const byHost = barsByHost(bookings, filter.user);
  const bySite = new Map();
  for (const host of [...hosts, ...uplinks]) {
    const wanted = filter.site === host.site || contains(host.site_name, filter.site);
    if (!wanted || !hasAttribute(host, filter.attribute)) continue;
    const bars = byHost.get(`${host.site} ${host.host}`);
    if (filter.user && !bars) continue;
    let ofSite = bySite.get(host.site);
    if (!ofSite) bySite.set(host.site, (ofSite = { name: host.site_name || host.site, hosts: [] }));
    ofSite.hosts.push({ host, lanes: lanesOf(bars ?? []) });
  }
  const order = [...bySite].sort(([a, one], [b, other]) => one.name.localeCompare(other.name) || a.localeCompare(b));
  const rows = [];
  let top = 0;
  for (const [site, { name, hosts: ofSite }] of order) {
    const state = states.get(site) ?? { schedule: "unknown", told_age_s: null };
    rows.push({ kind: "site", site, name, count: ofSite.filter(({ host }) => !host.isUplink).length, state, top, height: SITE_HEIGHT });
    top += SITE_HEIGHT;
    const isUplink = ({ host }) => Number(Boolean(host.isUplink));
    ofSite.sort((a, b) => isUplink(a) - isUplink(b) || a.host.host.localeCompare(b.host.host, undefined, { numeric: true }));
    for (const { host, lanes } of ofSite) {
      rows.push({ kind: "host", site, host, lanes, state, top, height: hostHeight });
      top += hostHeight;
    }
  }
  return { rows, height: top, hosts: rows.filter((row) => row.kind === "host" && !row.host.isUplink).length };
}

/** The row at a place on the y axis; -1 beside all. */
export function rowAt(rows, y) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].top + rows[middle].height <= y) low = middle + 1;
    else high = middle;
  }
  return low < rows.length && rows[low].top <= y ? low : -1;
}

/** Whether what is shown of a site may be wrong, and why; null when it is as it should be. */
export function doubt(state) {
  if (state.told_age_s === null || state.told_age_s === undefined) return "has reported no reservations";
  if (state.is_withheld) return "publishes no reservations";
  if (state.schedule !== "current") return `${state.schedule === "stale" ? "stale" : "not known"}`;
  return null;
}
