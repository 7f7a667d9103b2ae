// What users run on this site's hosts, for its owner: a row a command, with a button that ends it for a reason which its user reads.

import * as api from "./api.js";
import { el, notice, number, table } from "./dom.js";
import { short, time } from "./format.js";

/** The list, where this session may see it; it stays away where nothing runs. */
export async function load() {
  return api.isOperator() ? api.get("/v1/local/running") : { running: [], accounts: [] };
}

/** The rows; `reload` shows what is left. */
export function parts({ stopped, running, accounts, runs_max, streams_max, open_files_max }, reload) {
  const told = stopped ? [notice(`All commands of users are stopped (kolo local resume): ${stopped}`)] : [];
  if (running.length === 0) return told;
  return [el("h2", {}, "What users run here"), ...told,
    table("Accounts", ["Account", number("Runs"), number("Output"), number("Streams"), number("Files for ports")], accounts.map((one) =>
      [short(one.account), number(`${one.runs} of ${runs_max}`), number(`${Math.ceil(one.output_bytes / 2 ** 20)} MiB`), number(`${one.streams} of ${streams_max}`), number(`${one.open_files} of ${open_files_max}`)])),
    table("Running", ["Request", number("Seat"), "User", "Command", number("Process"), "Until", ""], running.map((run) =>
      [short(run.request), number(run.seat), short(run.user_key), el("code", {}, run.command.join(" ")), number(run.pid ?? "waits"), time(run.end),
        el("button", { type: "button", className: "danger", onclick: () => ask(run, reload) }, "End")]))];
}

/** Asks why, in a box of its own: what is around it is drawn anew while the owner writes. */
function ask(run, reload) {
  const reason = el("input", { name: "reason", required: true, maxLength: 500, value: "the owner needs the machine" });
  const said = el("div", {});
  const close = () => dialog.remove();
  const form = el("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await api.remove(api.query(`/v1/local/running/${encodeURIComponent(run.request)}`, { seat: run.seat, reason: reason.value }));
      close();
      reload();
    } catch (error) {
      said.replaceChildren(notice(error.message));
    }
  } },
  el("p", {}, "End ", el("code", {}, run.command.join(" ")), "?"),
  el("label", {}, el("span", {}, "Reason, which its user reads"), reason),
  el("div", { className: "row" }, el("button", { type: "submit", className: "danger", id: "end-run" }, "End it"),
    el("button", { type: "button", className: "quiet", onclick: close }, "Leave it")), said);
  const dialog = el("dialog", { onclose: close }, form);
  document.body.append(dialog);
  dialog.showModal();
}
