// Times, durations and amounts for people. Times are shown in the viewer's zone, always with the zone.

const zoned = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  timeZoneName: "short",
});
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });

/** Name of the viewer's zone with its present offset. */
export function zoneName() {
  const offset = zoned.formatToParts(new Date()).find((part) => part.type === "timeZoneName");
  return `${Intl.DateTimeFormat().resolvedOptions().timeZone} (${offset ? offset.value : "local"})`;
}

/** A time (Unix seconds) with date and zone. */
export const time = (seconds) => zoned.format(new Date(seconds * 1000));
/** The time of day. */
export const timeOfDay = (seconds) => clock.format(new Date(seconds * 1000));
/** The date. */
export const date = (seconds) => day.format(new Date(seconds * 1000));

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** A length of time such as 2h30min. */
export function duration(seconds) {
  if (seconds < 1) return "0s";
  let left = Math.round(seconds);
  let text = "";
  for (const [unit, length] of UNITS) {
    const count = Math.floor(left / length);
    left -= count * length;
    if (count > 0) text += `${count}${unit}`;
  }
  return text;
}

/** A shape of a request, in short. */
export const shapeText = ({ hosts, duration: long, work }) =>
  `${hosts} ${hosts === 1 ? "host" : "hosts"} for ${long ? duration(long) : `work of ${duration(work)}`}`;

/** A factor, or a range of them, given in thousandths. */
export const factors = (thousandths) => [thousandths].flat().map((one) => String(one / 1000)).join("..");

/** The factor of a plan of a moldable request; empty of any other. */
export const factorOf = ({ scale: range }, { scale }) =>
  range && scale !== undefined ? `${factors(scale)} of ${factors(range)}` : "";

/** Which of the shapes of a request a plan is of; empty where it has none. */
export const shapeOf = ({ shapes }, { shape }) =>
  shapes && shape !== undefined ? `${shape + 1} of ${shapes.length}: ${shapeText(shapes[shape])}` : "";

/** What a plan is worth by its objective; empty when that is its start. */
export function worth({ kind, value, bound }) {
  if (kind === "start") return "";
  const shown = (one) => (kind === "finish" ? time(one) : kind === "cost" ? credits(one) : duration(one));
  const best = bound === undefined ? "perhaps not the best" : `at best ${shown(bound)}`;
  return `${kind.replace("_", " ")} ${shown(value)}, ${best}`;
}

/** An amount of money, given in thousandths of a credit; empty when there is none. */
export const credits = (thousandths) => (thousandths ? `${thousandths % 10 ? (thousandths / 1000).toFixed(3) : (thousandths / 1000).toFixed(2)} credits` : "");

/** How long ago, roughly. */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return "never";
  for (const [unit, length] of UNITS) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit} ago`;
  }
  return "now";
}

/** An amount in base units, as people write it. */
export function amount(name, value) {
  if (name === "cpu") return `${trim(value / 1000)} cores`;
  if (name === "mhz") return `${value} MHz`;
  if (name === "memory" || name === "disk") {
    if (value >= 1 << 20) return `${trim(value / (1 << 20))} TiB`;
    return value >= 1024 ? `${trim(value / 1024)} GiB` : `${value} MiB`;
  }
  return String(value);
}

const trim = (value) => String(Math.round(value * 100) / 100);

/** Amounts by name, in one line. */
export const amounts = (all) =>
  Object.entries(all).map(([name, value]) => `${name} ${amount(name, value)}`).join(", ") || "nothing";

/** A share in percent. */
export const percent = (part, whole) => (whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–");

/** The head of a long id. */
export const short = (id) => (id.length > 12 ? `${id.slice(0, 10)}…` : id);

/** Seconds since the epoch of a local date-and-time field; null when empty. */
export function fromField(text) {
  return text ? Math.floor(new Date(text).getTime() / 1000) : null;
}

/** What a local date-and-time field wants. */
export function toField(seconds) {
  const at = new Date(seconds * 1000);
  const two = (value) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}
