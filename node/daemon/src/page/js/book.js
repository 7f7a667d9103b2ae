// Booking: a plan first, which holds nothing, and a reservation on a second click.

import * as api from "./api.js";
import { el, facts, notice, number, table } from "./dom.js";
import { age, amounts, credits, factorOf, shapeOf, time, worth } from "./format.js";
import { asksNothing, requestForm } from "./request-form.js";

export async function show(place) {
  const result = el("section", { "aria-live": "polite" });
  place.append(el("h1", {}, "Book hosts"),
    el("p", { className: "soft" }, "First you see the plan: nothing is held until you reserve."),
    el("div", { className: "panel" }, requestForm({ action: "Plan", onready: async (request) => {
      result.replaceChildren(el("p", { className: "soft" }, "Planning…"));
      try {
        const plan = await api.post("/v1/plan", request);
        result.replaceChildren(...planned(plan, request));
      } catch (error) {
        result.replaceChildren();
        throw error;
      }
    } })), result);
}

function planned(plan, request) {
  if (plan.outcome !== "allocated") {
    return [el("h2", {}, "No placement"), notice(plan.reason.detail, "warn"), proof(plan), schedules(plan)];
  }
  const said = el("div", {});
  const button = el("button", { type: "button", id: "reserve", onclick: async () => {
    button.disabled = true;
    said.replaceChildren(notice("Asking the sites to hold and confirm…", "warn"));
    try {
      // No more than what is shown.
      const taken = await api.post("/v1/requests", { budget: plan.cost ?? 0, ...request });
      location.hash = `#/requests/${encodeURIComponent(taken.id)}`;
    } catch (error) {
      button.disabled = false;
      said.replaceChildren(notice(error.message));
    }
  } }, "Reserve");
  return [
    el("h2", {}, "The plan"),
    el("div", { className: "panel" },
      facts([["Start", time(plan.start)], ["End", time(plan.end)], ["Smallest", worth(plan.objective)],
        ["Shape", shapeOf(request, plan)], ["Factor", factorOf(request, plan)], ["Cost", credits(plan.cost)],
        ["Hosts looked at", plan.hosts_left_out ? `${plan.hosts_seen}; of ${plan.hosts_left_out} more the schedule is not known` : ""],
        ["Efficiency", `${plan.efficiency.toFixed(3)}, at best ${plan.efficiency_bound.toFixed(3)}`]]),
      proof(plan),
      asksNothing(request) ? notice("Nothing is asked of the hosts: name amounts, or others may reserve all of them as well.", "warn") : null,
      table("Planned hosts", ["Host", "Site", "Gives", "Until", "Cost", "Schedule of"],
        plan.hosts.map((host) => [host.id, host.site_name || host.site, amounts(host.amounts), time(host.end), credits(host.cost), age(host.schedule_age_s)])),
      el("div", { className: "row" }, button), said),
    schedules(plan),
  ];
}

function proof(plan) {
  const better = (plan.objective?.kind ?? "start") === "start" ? "earlier" : "better";
  const among = plan.hosts_left_out ? " among the hosts looked at" : "";
  const found = plan.outcome === "allocated" ? `No ${better} start exists${among}` : `No start exists${among}`;
  return plan.start_proven
    ? el("p", { className: "good" }, `✓ ${found}: proven.`)
    : el("p", { className: "soft" }, `Not proven: ${better === "earlier" ? "an earlier" : "a better"} start may exist.`);
}

export function schedules(answer) {
  return el("details", {}, el("summary", {}, `Schedules used: ${answer.schedules.length} sites`),
    table("Schedules used", ["Site", number("Hosts"), "Heard"],
      answer.schedules.map((one) => [one.site_name || one.site, number(one.hosts), age(one.age_s)])));
}
