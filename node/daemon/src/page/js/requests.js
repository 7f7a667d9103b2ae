// Requests of this node: state, attempts, refusals with their reasons; and cancelling one.

import * as api from "./api.js";
import * as events from "./events.js";
import { el, facts, notice, number, table } from "./dom.js";
import { amounts, credits, duration, factorOf, factors, shapeOf, shapeText, short, time, worth } from "./format.js";

const PAGE = 100;
const KINDS = {
  confirmed: "good", active: "good", ended: "soft", done: "soft", rejected: "warn", refused: "bad", failed: "bad", degraded: "warn",
};
const OPEN = ["planning", "holding", "confirming", "confirmed", "active", "degraded", "rebrokering"];

const linkTo = (id) => el("a", { href: `#/requests/${encodeURIComponent(id)}` }, short(id));
const badge = (state) => el("span", { className: `badge ${KINDS[state] ?? "soft"}` }, state.replaceAll("_", " "));

/** With how the command ended that it was for. */
const stateOf = ({ state, exit_code: code }) => code === undefined ? state : `${state}, exit code ${code}`;

/** What is asked; the first shape until one is reserved. */
const sizeOf = (request) => request.shapes?.[0] ?? request;
const hostsOf = ({ request, reservation }) => reservation ? reservation.hosts.length : sizeOf(request).hosts;
/** How long the reservation lasts, with what lengthens it. */
const lengthOf = ({ request, reservation }) =>
  reservation ? reservation.end - reservation.start : sizeOf(request).duration ?? sizeOf(request).work;

export async function show(place, id) {
  const load = id ? one(place, id) : all(place);
  const reload = events.calmly(() => load().catch(() => {}), 500);
  // Before the first load, or a change in the middle of it would be missed.
  const stop = events.listen((kind, data) => {
    if (kind === "all" || (kind === "request" && (!id || data.id === id))) reload();
  });
  return events.loaded(load, stop);
}

function all(place) {
  const pages = [null];
  const load = async () => {
    const list = await api.get(api.query("/v1/requests", { limit: PAGE, after: pages[pages.length - 1] }));
    const rows = list.requests.map((request) => [
      el("a", { href: `#/requests/${encodeURIComponent(request.id)}` }, request.label ?? short(request.id)),
      badge(stateOf(request)), request.user, number(hostsOf(request)), duration(lengthOf(request)),
      request.reservation ? time(request.reservation.start) : (request.reason ? request.reason.detail : ""),
      time(request.submitted_ms / 1000)]);
    const turn = (text, isOn, action) => el("button", { type: "button", className: "quiet", disabled: !isOn, onclick: () => {
      action();
      load().catch((error) => place.append(notice(error.message)));
    } }, text);
    place.replaceChildren(el("h1", {}, "Requests of this node"),
      rows.length === 0 ? el("p", { className: "soft" }, "None yet. ", api.mayShow("book") ? el("a", { href: "#/book" }, "Book hosts") : "") :
        table("Requests", ["Request", "State", "User", number("Hosts"), "Duration", "Start, or why not", "Asked"], rows),
      el("div", { className: "row" },
        turn("Newer", pages.length > 1, () => pages.pop()),
        turn("Older", Boolean(list.next), () => pages.push(list.next))));
  };
  return load;
}

function one(place, id) {
  const path = `/v1/requests/${encodeURIComponent(id)}`;
  return async () => {
    const [request, why] = await Promise.all([api.get(path), api.get(`${path}/explain`)]);
    place.replaceChildren(
      el("h1", {}, "Request ", el("code", {}, request.label ?? request.id), " ", badge(stateOf(request))),
      ...standing(request), ...wanted(request), ...history(why, request), actions(request, path));
  };
}

function standing(request) {
  const { reservation, reason } = request;
  const parts = [];
  if (reason) parts.push(notice(reason.detail, "warn"));
  if (reservation) {
    parts.push(el("h2", {}, "Reservation"), el("div", { className: "panel" },
      facts([["Start", time(reservation.start)], ["Later than reserved by", reservation.wait ? duration(reservation.wait) : ""], ["End", time(reservation.end)], ["Shape", shapeOf(request.request, reservation)], ["Factor", factorOf(request.request, reservation)], ["Smallest", worth(reservation.objective)], ["Cost", credits(reservation.cost)],
        ["Efficiency", `${reservation.efficiency.toFixed(3)}, at best ${reservation.efficiency_bound.toFixed(3)}`],
        [reservation.objective.kind === "start" ? "Earliest start" : "Best start", reservation.start_proven ? "proven on the schedules used" : "not proven"]]),
      table("Hosts", ["Host", "Site", "Gives", "Until", "Cost", "Reach", ""], reservation.hosts.map((host) => [host.class ? `one of ${host.class}` : host.host,
        host.site_name || host.site, amounts(host.amounts), time(host.end), credits(host.cost), host.contact ? el("code", {}, host.contact) : "", host.lost ? el("span", { className: "badge bad" }, `lost: ${host.lost.replaceAll("_", " ")}`) : ""]))));
  }
  const extensions = request.extensions ?? [];
  if (extensions.length > 0) {
    parts.push(el("h2", {}, "Extended"), table("Extensions", ["Until", "State", number("Hosts"), "Request"],
      extensions.map((one) => [one.end === null ? "" : time(one.end), badge(one.state), number(one.hosts), linkTo(one.id)])));
  }
  return parts;
}

function wanted({ request, user, extends: extends_, submitted_ms: submitted, elapsed_ms: elapsed, attempts, conflicts, phase, id }) {
  const attributes = Object.entries(request.attributes ?? {}).map(([key, value]) => `${key}=${value}`).join(", ");
  return [el("h2", {}, "Asked"), facts([
    ["Id", el("code", {}, id)], ["Lengthens", extends_ ? linkTo(extends_) : ""], ["User", user], ["Hosts", request.hosts ? String(request.hosts) : ""], ["One of", (request.shapes ?? []).map(shapeText).join(", or ")], ["Duration", request.duration ? duration(request.duration) : ""], ["Work", request.work ? duration(request.work) : ""], ["Scaled by", request.scale ? factors(request.scale) : ""],
    ["All together", request.total && Object.keys(request.total).length ? amounts(request.total) : ""],
    ["Each host", request.per_host && Object.keys(request.per_host).length ? amounts(request.per_host) : ""],
    ["Attributes", attributes], ["Budget", request.budget === undefined ? "" : credits(request.budget) || "nothing"], ["Not before", request.earliest ? time(request.earliest) : ""],
    ["At the latest", request.latest ? time(request.latest) : ""], ["End at the latest", request.deadline ? time(request.deadline) : ""], ["Submitted", time(submitted / 1000)],
    ["Took", `${elapsed} ms, ${attempts} ${attempts === 1 ? "attempt" : "attempts"}, ${conflicts} ${conflicts === 1 ? "conflict" : "conflicts"}`],
    ["Working on", phase]])];
}

function history(why, request) {
  const rounds = why.rounds.map((round, index) => [
    number(index + 1), `${round.found_hosts} fit and have a schedule, ${round.known_hosts} known`,
    round.cut.map((cut) => `${cut.constraint}: ${cut.hosts}`).join(", "),
    round.start === null ? round.detail : `planned for ${time(round.start)}`]);
  const tries = why.attempts.flatMap((attempt) => attempt.sites.map((site) => [
    number(attempt.attempt), time(attempt.start), site.site_name || site.site, number(site.hosts),
    el("span", { className: site.answer === "refused" || site.answer === "no answer" ? "bad" : "" }, site.answer),
    site.detail ?? "", number(`${site.milliseconds} ms`)]));
  return [
    why.price ? el("p", { className: "soft" }, `Price: ${why.price}.`) : "",
    el("h2", {}, "Rounds of planning"),
    table("Rounds", [number("Round"), "Hosts found", "Cut by", "Outcome"], rounds),
    el("h2", {}, "Attempts"),
    tries.length === 0 ? el("p", { className: "soft" }, request.state === "planning" ? "No site was asked yet." : "No site was asked.") :
      table("Attempts", [number("Attempt"), "Start", "Site", number("Hosts"), "Answer", "Why", number("After")], tries)];
}

function actions(request, path) {
  if (!api.mayChange() || !OPEN.includes(request.state)) return "";
  let isSure = false;
  const said = el("div", {});
  const button = el("button", { type: "button", className: "danger", id: "cancel", onclick: async () => {
    if (!isSure) {
      isSure = true;
      button.textContent = "Really cancel it";
      return;
    }
    button.disabled = true;
    try {
      await api.remove(path);
    } catch (error) {
      button.disabled = false;
      said.replaceChildren(notice(error.message));
    }
  } }, "Cancel");
  return el("div", { className: "row" }, button, said);
}
