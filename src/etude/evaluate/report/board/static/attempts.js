// The browser of all attempts: a filter in words, a few choices that write it, any order, and a list that holds as many as there are.
import { figure, h } from "./dom.js";
import { compile } from "./filter.js";
import { VirtualList } from "./list.js";
import { served, still } from "./source.js";

const NARROW = matchMedia("(max-width: 760px)");
// Title, field, width on a wide screen.
const COLUMNS = [
  ["", "outcome", "1.6em"], ["task", "task", "minmax(12em, 2.2fr)"], ["by", "policy", "minmax(4em, .8fr)"], ["step", "step", "3.2em"], ["reward", "reward", "4.6em"],
  ["adv.", "advantage", "4.6em"], ["tokens", "tokens", "4.6em"], ["turns", "turns", "3.6em"], ["sum.", "summaries", "3.2em"],
  ["s", "seconds", "4em"], ["end", "end", "5.5em"], ["tools", "tools", "minmax(8em, 1.4fr)"],
];
const ORDERS = {
  newest: ["newest first", (data) => (a, b) => data.arrays.began[b] - data.arrays.began[a] || b - a], oldest: ["oldest first", (data) => (a, b) => data.arrays.began[a] - data.arrays.began[b] || a - b],
  "-reward": ["reward, high first", by("reward", -1)], reward: ["reward, low first", by("reward", 1)], "-advantage": ["advantage, high first", by("advantage", -1)],
  advantage: ["advantage, low first", by("advantage", 1)], "-tokens": ["longest first", by("tokens", -1)], tokens: ["shortest first", by("tokens", 1)],
  "-surprise": ["most surprised first", by("surprise", -1)], "-seconds": ["slowest first", by("seconds", -1)], "-summaries": ["most summaries first", by("summaries", -1)], task: ["by task", byWord("task")],
};

function by(name, sign) {
  return (data) => { // what is not known comes last
    const column = data.arrays[name];
    const value = (row) => (Number.isNaN(column[row]) ? Infinity : sign * column[row]);
    return (a, b) => value(a) - value(b) || a - b || 0;
  };
}
function byWord(name) {
  return (data) => {
    const rank = new Map(data.words[name].map((word, place) => [word, place]).sort(([a], [b]) => (a < b ? -1 : 1)).map(([, place], order) => [place, order]));
    const column = data.arrays[name];
    return (a, b) => rank.get(column[a]) - rank.get(column[b]) || a - b;
  };
}

// The rows that the filter and the order leave, kept for the pages that step through them.
export function order(board) {
  const filter = compile(board.filter, board.data);
  const rows = [];
  for (let row = 0; row < board.data.length; row += 1) if (filter.test(row)) rows.push(row);
  rows.sort(ORDERS[board.sort][1](board.data));
  board.order = rows;
  return filter.error;
}

export function mark(data, row) {
  const outcome = data.get("outcome", row);
  if (outcome === null) return h("b", { class: "open", title: "not graded" }, "·");
  return outcome >= 1 ? h("b", { class: "good", title: "solved" }, "✓") : outcome > 0 ? h("b", { class: "open", title: `scored ${figure(outcome)}` }, "◐") : h("b", { class: "bad", title: "not solved" }, "✗");
}

export function attempts(board) {
  const { data } = board;
  const said = h("p", { class: "muted", role: "status" });
  const box = h("input", { type: "search", "aria-label": "Filter", placeholder: "outcome<1 tool:edit summaries>=1 tokens>500 words…", value: board.filter, spellcheck: "false",
    oninput: () => { board.filter = box.value; list.marked = 0; list.element.scrollTop = 0; update(); },
    onkeydown: (event) => { if (event.key === "Enter" || event.key === "ArrowDown") { list.element.focus(); event.preventDefault(); } } });
  const list = new VirtualList({
    label: "Attempts", draw: (place) => row(board.order[place]), open: (place) => board.go(`rollout/${board.order[place]}`), rowHeight: () => (NARROW.matches ? 58 : 32),
    moved: (place) => { board.marked = place; },
  });

  function row(number) {
    const get = (name) => data.get(name, number);
    if (NARROW.matches) {
      return h("div", { class: data.has("here") && !get("here") ? "row narrow elsewhere" : "row narrow" }, h("div", {}, mark(data, number), " ", get("task")), h("div", { class: "muted" },
        [get("policy"), get("step") >= 0 && `step ${get("step")}`, get("advantage") !== null && `adv. ${signed(get("advantage"))}`, `${figure(get("tokens") || get("sampled"))} tokens`, `${get("turns")} turns`].filter(Boolean).join(" · ")));
    }
    const shown = { outcome: () => mark(data, number), step: () => (get("step") < 0 ? "–" : get("step")), advantage: () => signed(get("advantage")), reward: () => figure(get("reward") ?? get("outcome")),
      tokens: () => figure(get("tokens") || get("sampled")) }; // of a bench only what was sampled is written down
    return h("div", { class: data.has("here") && !get("here") ? "row elsewhere" : "row" }, COLUMNS.map(([, name]) => h("span", { class: name in data.words ? "" : "number", title: name in data.words ? get(name) : null },
      String(name in shown ? "" : name in data.words ? get(name) : figure(get(name))), name in shown ? shown[name]() : "")));
  }
  function update() {
    const error = order(board);
    const rows = board.order;
    const solved = rows.reduce((sum, number) => sum + (data.arrays.outcome[number] >= 1), 0);
    const graded = rows.reduce((sum, number) => sum + !Number.isNaN(data.arrays.outcome[number]), 0);
    said.textContent = error ?? `${rows.length.toLocaleString("en")} of ${data.length.toLocaleString("en")} attempts${graded ? `, ${figure((100 * solved) / graded)}% of ${graded.toLocaleString("en")} graded ones solved` : ""}`;
    said.classList.toggle("failure", Boolean(error));
    list.set(rows.length);
  }
  function choose(label, field) {
    const words = [...new Set(data.words[field] ?? [])].filter(Boolean).sort();
    if (words.length < 2 || words.length > 60) return null;
    return h("label", {}, `${label} `, h("select", { onchange: (event) => {
      const others = board.filter.split(/\s+/).filter((piece) => piece && !piece.startsWith(`${field}=`));
      board.filter = box.value = [...others, ...(event.target.value ? [`${field}=${event.target.value}`] : [])].join(" ");
      update();
    } }, h("option", { value: "" }, "all"), words.map((word) => h("option", { value: word, selected: board.filter.split(/\s+/).includes(`${field}=${word}`) }, word))));
  }
  const sort = h("label", {}, "Order ", h("select", { onchange: (event) => { board.sort = event.target.value; update(); } }, Object.entries(ORDERS).map(([key, [title]]) => h("option", { value: key, selected: key === board.sort }, title))));
  return {
    show: (main) => {
      if (!data.length) { main.append(h("h1", {}, "Rollouts"), h("p", { class: "muted" }, "No attempt has been written yet.")); }
      const titles = h("div", { class: "row head", "aria-hidden": "true" }, COLUMNS.map(([title, name]) => h("span", { class: name in data.words ? "" : "number" }, title)));
      if (!served && still.whole < still.attempts) main.append(h("p", { class: "muted" }, `Of ${still.attempts.toLocaleString("en")} attempts this file holds ${still.whole.toLocaleString("en")} in full (filter: here), of the others (pale) the figures. All of them: `, h("code", {}, "etude report RUN --serve")));
      main.append(h("h1", { class: "hidden" }, "Rollouts"), h("div", { class: "tools" }, h("div", { class: "wide" }, box), choose("From", "source"), choose("Policy", "policy"), choose("Level", "level"), choose("End", "end"), sort),
        h("details", { class: "muted hint" }, h("summary", {}, "What the filter understands"), h("p", {}, "Terms with blanks between, all must hold; a leading - turns one around. Numbers: outcome, reward, advantage, tokens, sampled, surprise, turns, calls, failed, malformed, summaries, broken (summaries), oldest, newest, tries, seconds with <, <=, >, >=, =, !=. Words: task, level (category), policy, tool, end, verdict, faults with : (holds), =, !=. Short: solved, failed, kept, repeated. A bare word is looked for in task, verdict, end, tools, policy and faults.")),
        said, titles, list.element);
      document.documentElement.style.setProperty("--columns", COLUMNS.map(([, , width]) => width).join(" "));
      list.marked = Math.min(board.marked ?? 0, data.length);
      update();
      list.mark(list.marked);
      list.element.focus({ preventScroll: true });
    },
    news: (kinds) => { if (kinds.includes("rollouts")) update(); },
    key: (event) => list.key(event),
    leave: () => list.dispose(),
  };
}

export function signed(value) {
  return value === null ? "–" : `${value > 0 ? "+" : ""}${figure(value || 0)}`; // no -0
}
