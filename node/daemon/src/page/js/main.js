// Starts the page: exchanges a one-time link, shows the sign-in when the node wants a token, and one view at a time.

import * as api from "./api.js";
import * as events from "./events.js";
import { el, notice } from "./dom.js";
import { zoneName } from "./format.js";
import * as book from "./book.js";
import * as gantt from "./gantt.js";
import * as overview from "./overview.js";
import * as requests from "./requests.js";
import * as slots from "./slots.js";

const VIEWS = { overview, gantt, requests, book, slots };
const content = document.getElementById("content");
const nav = document.getElementById("nav");
const live = document.getElementById("live");
const leave = document.getElementById("leave");
let closeView = () => {};
let shown = 0;

/** Takes a one-time code out of the address, before anything else happens. */
function takeCode() {
  const code = /^#link=([0-9a-f]+)$/.exec(location.hash);
  if (!code) return null;
  history.replaceState(null, "", "/");
  return code[1];
}

function showSignIn(why) {
  closeView();
  closeView = () => {};
  shown += 1;
  events.close();
  nav.hidden = leave.hidden = live.hidden = true;
  const field = el("input", { type: "password", autocomplete: "off", required: true, id: "token" });
  const said = el("div", {});
  const form = el("form", { onsubmit: async (event) => {
    event.preventDefault();
    said.replaceChildren();
    try {
      start(await api.signIn({ token: field.value.trim() }));
    } catch (error) {
      said.replaceChildren(notice(error.message));
    }
  } },
  el("label", {}, el("span", {}, "Token"), field),
  el("div", { className: "row" }, el("button", { type: "submit" }, "Sign in")), said);
  content.replaceChildren(el("section", { className: "panel login" },
    el("h1", {}, "Sign in to this node"),
    why ? notice(why, "warn") : "",
    el("p", {}, "Type ", el("code", {}, "kolo open"), " on the node's machine to get a link that signs you in, or paste a token of it (",
      el("code", {}, "kolo token create"), ")."),
    form));
  field.focus();
}

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const known = VIEWS[name] ? name : "overview";
  return { name: api.mayShow(known) ? known : "requests", argument: decodeURIComponent(rest.join("/")) };
}

async function showView() {
  const { name, argument } = route();
  closeView();
  closeView = () => {};
  shown += 1;
  const turn = shown;
  for (const link of nav.querySelectorAll("a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const place = el("div", { className: name === "gantt" ? "gantt" : "" });
  content.replaceChildren(place);
  try {
    const close = await VIEWS[name].show(place, argument);
    if (turn === shown) closeView = close ?? (() => {});
    else if (close) close();
  } catch (error) {
    if (turn === shown && error.status !== 401) place.replaceChildren(el("h1", {}, "This cannot be shown"), notice(error.message));
  }
  performance.mark(`shown-${name}`);
}

function start({ scope }) {
  api.useScope(scope);
  for (const link of nav.querySelectorAll("a")) link.hidden = !api.mayShow(link.hash.slice(2));
  nav.hidden = leave.hidden = live.hidden = false;
  events.open();
  showView();
}

async function begin() {
  document.getElementById("zone").textContent = `Times in ${zoneName()}`;
  events.whenStateChanges((isUp) => {
    live.textContent = isUp ? "live" : "not live";
    live.classList.toggle("off", !isUp);
  });
  api.whenLocked(() => showSignIn("The session is over, or this browser has none yet."));
  leave.addEventListener("click", async () => {
    await api.signOut();
    showSignIn(null);
  });
  window.addEventListener("hashchange", () => {
    if (!nav.hidden && location.hash.startsWith("#/")) showView();
  });
  const code = takeCode();
  let why = null;
  if (code) {
    try {
      await api.signIn({ link: code });
    } catch (error) {
      why = error.message;
    }
  }
  const session = await api.get("/v1/session");
  if (session.signed_in) start(session);
  else showSignIn(why);
}

begin();
