// The board: pages by the address after #, news from /api/follow, keys. A page is {show(main, rest), news(kinds)?, key(event)?, leave()?}.
// In a file that stands alone there is no news; all else is the same.
import { h } from "./dom.js";
import { Table } from "./data.js";
import { corpus, overview, pageOf, pareto } from "./sections.js";
import { curves } from "./curves.js";
import { groups } from "./groups.js";
import { attempts } from "./attempts.js";
import { attempt } from "./attempt.js";
import { fleet, weights, cheats } from "./machines.js";
import { json, served, still } from "./source.js";

const PAGES = [
  ["overview", "Overview", overview], ["curves", "Curves", curves], ["groups", "Groups", groups], ["rollouts", "Rollouts", attempts],
  ["pareto", "Pareto", pareto], ["fleet", "Sandboxes", fleet], ["weights", "Weights", weights], ["cheats", "Cheat desk", cheats], ["corpus", "Corpus", corpus],
];
const KINDS = ["rollouts", "curves", "pages", "problems"];
const CALM_MS = 400; // news of a busy run are taken together

// What all pages share: the attempts, the filter of the browser, and the order in which it shows them (j and k go along it).
export const board = { data: new Table(), filter: "", sort: "newest", order: null, state: {}, run: null, go: (place) => { location.hash = `#/${place}`; } };
const main = document.getElementById("main");
const keys = document.getElementById("keys");
let shown = null;

async function route() {
  const anchor = /^#[^/]/.test(location.hash) ? decodeURIComponent(location.hash.slice(1)) : null; // of a section, on whichever page
  const there = anchor && document.getElementById(anchor);
  if (there && shown) { there.scrollIntoView(); return; }
  const [name, ...rest] = anchor ? [pageOf(board, anchor)] : location.hash.replace(/^#\//, "").split("/");
  const page = name === "rollout" ? attempt : (PAGES.find(([key]) => key === name) ?? PAGES[0])[2];
  shown?.leave?.();
  shown = page(board);
  const current = name === "rollout" ? "rollouts" : PAGES.some(([key]) => key === name) ? name : "overview";
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.page === current) { link.setAttribute("aria-current", "page"); link.scrollIntoView({ block: "nearest", inline: "nearest" }); }
    else link.removeAttribute("aria-current");
  }
  const place = h("div"); // of this page alone: what an earlier one still fetches is drawn where nobody looks
  main.replaceChildren(place);
  document.body.dataset.page = current;
  window.scrollTo(0, 0);
  await guarded(() => shown.show(place, rest.map(decodeURIComponent)));
  if (anchor) document.getElementById(anchor)?.scrollIntoView();
}

// A page that fails says so in its place; the others go on.
async function guarded(work) {
  try { await work(); } catch (error) {
    main.append(h("p", { class: "failure", role: "alert" }, `This could not be shown. ${error.message}`));
    console.error(error);
  }
}

async function tellRun() {
  board.run = await json("/api/run");
  document.getElementById("title").textContent = board.run.title;
  document.title = served ? `${board.run.title} · board` : board.run.title;
  const found = Object.entries(board.run.problems);
  document.getElementById("problems").replaceChildren(...(found.length ? [h("details", { class: "problems" },
    h("summary", {}, `${found.length} ${found.length === 1 ? "thing" : "things"} of this run can't be shown`),
    h("ul", {}, found.slice(0, 100).map(([what, why]) => h("li", {}, h("b", {}, what), `: ${why}`))))] : []));
}

async function take(state) {
  const kinds = KINDS.filter((kind) => state[kind] !== board.state[kind]);
  board.state = state;
  if (kinds.includes("rollouts")) await board.data.load();
  if (kinds.includes("pages") || kinds.includes("problems")) await tellRun();
  if (kinds.length) await guarded(() => shown?.news?.(kinds));
  say();
}

let connected = null; // null: not yet
function say() {
  const live = document.getElementById("live");
  const count = `${board.data.length.toLocaleString("en")} attempts`;
  if (!served) { live.textContent = `${count} · a file, ${still.whole.toLocaleString("en")} in full`; return; }
  live.textContent = connected === null ? "connecting" : !connected ? `${count} · not connected` : board.state.ready ? `${count} · following` : `${count} · reading`;
  live.classList.toggle("lost", connected === false);
}

function follow() {
  const source = new EventSource("/api/follow");
  let waiting = null, busy = false;
  const drain = async () => {
    if (busy || !waiting) return;
    busy = true;
    const state = waiting;
    waiting = null;
    try { await take(state); } catch (error) { console.error(error); connected = false; say(); }
    setTimeout(() => { busy = false; drain(); }, CALM_MS);
  };
  source.onmessage = (event) => { connected = true; waiting = JSON.parse(event.data); drain(); };
  source.onerror = () => { connected = false; say(); };
}

function onKey(event) {
  const typing = event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.altKey || event.metaKey || keys.open) return;
  if (typing) { if (event.key === "Escape") event.target.blur(); return; }
  if (shown?.key?.(event)) { event.preventDefault(); return; }
  if (event.key === "?") { keys.showModal(); event.preventDefault(); }
  else if (event.key === "/") { const box = document.querySelector("input[type=search]"); if (box) box.focus(); else board.go("rollouts"); event.preventDefault(); }
  else if (PAGES[Number(event.key) - 1]) board.go(PAGES[Number(event.key) - 1][0]);
}

document.getElementById("nav").append(...PAGES.map(([key, title], place) => h("a", { href: `#/${key}`, "data-page": key, "aria-keyshortcuts": String(place + 1) }, title)));
document.getElementById("help").addEventListener("click", () => keys.showModal());
document.addEventListener("keydown", onKey);
window.addEventListener("hashchange", route);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown?.news?.(["colours"]));
await guarded(async () => { await Promise.all([tellRun(), board.data.load()]); await route(); say(); });
document.body.dataset.ready = "yes";
if (served) follow();
