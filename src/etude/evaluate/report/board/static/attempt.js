// One attempt: what it was worth, what was said and done, every token of it. j and k go along the browser's order.
import { figure, fragment, h } from "./dom.js";
import { order, signed } from "./attempts.js";
import { holds, json, still } from "./source.js";
import { BANDS, strip } from "./strip.js";

export function attempt(board) {
  let main = null, number = 0, strips = [];
  const clear = () => { strips.forEach((one) => one.dispose()); strips = []; };

  async function draw(scrolled) {
    const found = holds(`rollout/${number}`) ? await json(`/api/rollout/${number}`) : figuresOf(number);
    clear();
    const facts = known(found);
    strips = found.segments.map((segment, place) => strip(segment, place, facts));
    const graded = found.outcome === null ? ["open", "not graded"] : found.outcome >= 1 ? ["good", "solved"] : ["bad", found.outcome > 0 ? `scored ${figure(found.outcome)}` : "not solved"];
    main.replaceChildren(
      h("div", { class: "tools" }, h("a", { href: "#/rollouts" }, "← all rollouts"), h("span", { class: "muted" }, place()), step(-1, "k", "previous"), step(1, "j", "next")),
      h("h1", {}, found.task), h("p", {}, h("b", { class: graded[0] }, graded[1]), found.verdict ? h("span", { class: "muted" }, ` ${found.verdict}`) : ""),
      cards(found), parts(found),
      h("h2", {}, "Transcript"), said(found), transcript(found),
      ...(found.change ? [h("h2", {}, "What it changed"), fragment(found.change)] : []),
      ...(found.elsewhere ? [] : strips.length ? [h("h2", {}, "Tokens"), choice(found), ...between(found)] : [h("p", { class: "muted" }, "This attempt's tokens were not kept.")]),
      counters(found));
    strips.forEach((one) => one.draw());
    if (!scrolled) window.scrollTo(0, 0);
  }
  // Of an attempt that this file does not hold in full.
  function figuresOf(row) {
    if (row >= board.data.length) throw new Error(`there is no attempt ${row}: the run has ${board.data.length}`);
    const figures = Object.fromEntries(Object.keys(board.data.arrays).map((name) => [name, board.data.get(name, row)]));
    return { ...figures, row, elsewhere: true, transcript: [], segments: [], parts: {}, counters: {}, change: "" };
  }
  function known(found) {
    const gaps = found.segments.flatMap((segment) => segment.gaps ?? []).map(Math.abs).sort((a, b) => a - b);
    return { advantage: found.advantage, oldest: Math.max(0, found.oldest), gap: Math.max(1e-6, gaps[Math.floor(gaps.length * 0.99)] ?? 0) };
  }
  function place() {
    if (!board.order) order(board);
    const at = board.order.indexOf(number);
    return at < 0 ? `attempt ${number}` : `${(at + 1).toLocaleString("en")} of ${board.order.length.toLocaleString("en")} as filtered`;
  }
  function move(by) {
    if (!board.order) order(board);
    const at = board.order.indexOf(number) + by;
    if (at < 0 || at >= board.order.length) return;
    board.marked = at;
    number = board.order[at]; // at once: the next key may come before the address has changed
    board.go(`rollout/${number}`);
  }
  const step = (by, key, title) => h("button", { type: "button", "aria-keyshortcuts": key, onclick: () => move(by) }, title);

  function cards(found) {
    const versions = found.oldest < 0 ? null : found.oldest === found.newest ? String(found.oldest) : `${found.oldest} to ${found.newest}`;
    const group = found.group < 0 ? null : h("a", { href: `#/groups/${found.source}` }, `${found.group}, member ${found.member}`);
    const shown = [
      ["by", found.policy], ["group", group], ["trained at step", found.step < 0 ? null : found.step], ["reward", found.reward], ["advantage", found.advantage === null ? null : signed(found.advantage)],
      ["tokens, sampled", `${found.tokens ? figure(found.tokens) : "–"}, ${figure(found.sampled)}`], ["surprise, nats", found.surprise], ["policy versions", versions], ["turns, calls", `${found.turns}, ${found.calls}`],
      ["self-summaries", found.summaries ? `${found.summaries}${found.broken ? `, ${found.broken} broken` : ""}` : null], ["host", found.host], ["ended by", found.end], ["seconds", found.seconds], ["tries", found.tries > 1 ? `${found.tries} (${found.faults || "faults not recorded"})` : null],
    ];
    return h("dl", { class: "facts" }, shown.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value instanceof Node ? value : figure(value)))));
  }
  function parts(found) {
    const names = Object.entries(found.parts);
    return names.length ? h("p", { class: "muted" }, "Reward: ", names.map(([name, value], n) => `${n ? ", " : ""}${name} ${signed(value)}`).join("")) : "";
  }
  function said(found) {
    if (found.elsewhere) return h("p", { class: "muted" }, `This file holds ${still.whole.toLocaleString("en")} of ${still.attempts.toLocaleString("en")} attempts in full (report.rollouts, report.rollout_mb), this one by its figures alone. All of them: `, h("code", {}, "etude report RUN --serve"));
    if (found.kept) return h("div", { class: "tools" }, h("button", { type: "button", "aria-keyshortcuts": "]", onclick: () => fold(true) }, "unfold all"), h("button", { type: "button", "aria-keyshortcuts": "[", onclick: () => fold(false) }, "fold all"));
    const why = found.segments.length ? "Its session was not kept (rl.keep_sessions, bench.keep_sessions): this is its tokens as text, cut where the policy spoke." : "Its session was not kept (bench.keep_sessions): only its figures are known.";
    return h("p", { class: "muted" }, why);
  }
  function transcript(found) {
    const holder = fragment(found.transcript.join(""));
    holder.classList.add("transcript");
    return holder;
  }
  function fold(open) { for (const one of main.querySelectorAll(".transcript details")) one.open = open; }

  function choice(found) {
    const bands = BANDS.filter(([key]) => key !== "mask" && (key !== "gap" || found.segments.some((segment) => segment.gaps)));
    return h("fieldset", {}, h("legend", {}, "Colour by "), bands.map(([key, title]) => h("label", {}, h("input", { type: "radio", name: "band", checked: key === "logprob", onchange: () => strips.forEach((one) => one.colour(key)) }), ` ${title}`)),
      found.vocabulary ? "" : h("p", {}, "The run holds no vocabulary: tokens are shown by number."));
  }
  function between() {
    return strips.flatMap((one, n) => (n ? [h("p", { class: "boundary" }, "self-summary: the context was cut here"), one.element] : [one.element]));
  }
  function counters(found) {
    const rows = Object.entries(found.counters);
    return rows.length ? h("details", {}, h("summary", {}, "Counters"), h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, figure(value)))))) : "";
  }
  return {
    show: async (into, [wanted]) => {
      main = into;
      number = Number(wanted);
      if (!Number.isInteger(number)) throw new Error(`there is no attempt “${wanted}”`);
      await draw();
    },
    news: async (kinds) => { if (kinds.includes("colours")) strips.forEach((one) => one.draw()); },
    key: (event) => {
      if (event.target.matches("canvas") && event.key.startsWith("Arrow")) return false;
      const found = { j: () => move(1), k: () => move(-1), Escape: () => board.go("rollouts"), "]": () => fold(true), "[": () => fold(false) }[event.key];
      found?.();
      return Boolean(found);
    },
    leave: clear,
  };
}
