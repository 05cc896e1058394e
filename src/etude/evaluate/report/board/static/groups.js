// Prompt by sample, coloured: a column is a task's group, a cell one attempt at it. Columns wrap, so that a whole run is one picture.
import { colours, figure, h, sharp } from "./dom.js";
import { signed } from "./attempts.js";

const SPACE = 2, BETWEEN = 16; // CSS pixels between columns, between lines (where the step stands)
const CELLS = [[60, 26], [160, 16], [Infinity, 10]]; // of a cell, by how many columns there are at most
const VALUES = { outcome: "outcome", reward: "reward", advantage: "advantage", tokens: "tokens", summaries: "self-summaries", seconds: "seconds", surprise: "surprise" };

export function groups(board) {
  const { data } = board;
  let cellSize = 10, source = null, value = "outcome", columns = [], deep = 1, across = 1, at = null, limits = [0, 1], main = null, watch = null;
  const canvas = h("canvas", { tabindex: "0", role: "application", "aria-label": "Groups: arrow keys move, Enter opens" });
  const words = h("p", { class: "reading", "aria-live": "polite" });
  const legend = h("div", { class: "legend square" });
  const holder = h("div", { class: "matrix" }, canvas);

  // What can be shown: RL by group; a bench's policy by task; sessions have one attempt a task and are no groups.
  function sources() {
    const found = new Map();
    for (let row = 0; row < data.length; row += 1) {
      const from = data.get("source", row);
      if (from === "rl") found.set("rl", "RL, by group");
      else if (from === "bench") found.set(`bench:${data.get("policy", row)}`, `bench, ${data.get("policy", row)}`);
    }
    return found;
  }
  function gather() {
    const [from, policy] = source.split(":");
    const byKey = new Map();
    for (let row = 0; row < data.length; row += 1) {
      if (data.get("source", row) !== from || (policy && data.get("policy", row) !== policy)) continue;
      const key = from === "rl" ? data.arrays.group[row] : data.arrays.task[row];
      if (!byKey.has(key)) byKey.set(key, []);
      byKey.get(key).push(row);
    }
    columns = [...byKey.values()].map((rows) => rows.sort((a, b) => data.arrays.member[a] - data.arrays.member[b]));
    const step = (rows) => { const found = data.arrays.step[rows[0]]; return found < 0 ? Infinity : found; };
    if (from === "rl") columns.sort((a, b) => step(a) - step(b) || data.arrays.group[a[0]] - data.arrays.group[b[0]]);
    else columns.sort((a, b) => (data.get("level", a[0]) + data.get("task", a[0]) < data.get("level", b[0]) + data.get("task", b[0]) ? -1 : 1));
    cellSize = CELLS.find(([most]) => columns.length <= most)[1];
    deep = Math.max(1, ...columns.map((rows) => rows.length));
    const known = columns.flat().map((row) => data.arrays[value][row]).filter((found) => !Number.isNaN(found)).sort((a, b) => a - b);
    const low = known[Math.floor(known.length * 0.01)] ?? 0, high = known[Math.ceil(known.length * 0.99) - 1] ?? 1;
    limits = value === "outcome" ? [0, 1] : value === "advantage" ? [-Math.max(Math.abs(low), Math.abs(high)) || -1, Math.max(Math.abs(low), Math.abs(high)) || 1] : [low, high > low ? high : low + 1];
  }
  function draw() {
    const width = holder.clientWidth;
    if (!width) return;
    const pitch = cellSize + SPACE, tall = deep * (cellSize + 1) + BETWEEN, colour = colours();
    across = Math.max(1, Math.floor(width / pitch));
    const lines = Math.ceil(columns.length / across);
    const context = sharp(canvas, width, Math.max(tall, lines * tall));
    context.font = "10px system-ui, sans-serif";
    let last = null, free = 0;
    columns.forEach((rows, place) => {
      const x = (place % across) * pitch, y = Math.floor(place / across) * tall;
      const head = source === "rl" ? data.arrays.step[rows[0]] : data.get("level", rows[0]);
      if (place % across === 0) free = 0;
      if (head !== last && x >= free) {
        const text = source === "rl" ? (head < 0 ? "not trained" : `${head}`) : String(head);
        context.fillStyle = colour.muted;
        context.fillText(text, x, y + BETWEEN - 5);
        free = x + context.measureText(text).width + 8;
      }
      last = head;
      rows.forEach((row, member) => cell(context, colour, x, y + BETWEEN + member * (cellSize + 1), data.arrays[value][row]));
    });
    if (at) {
      const place = at[0];
      context.strokeStyle = colour.fg;
      context.lineWidth = 2;
      context.strokeRect((place % across) * pitch - 1, Math.floor(place / across) * tall + BETWEEN + at[1] * (cellSize + 1) - 1, cellSize + 2, cellSize + 2);
    }
  }
  function cell(context, colour, x, y, found) {
    if (Number.isNaN(found)) { context.globalAlpha = 1; context.strokeStyle = colour.line; context.strokeRect(x + 0.5, y + 0.5, cellSize - 1, cellSize - 1); return; }
    context.globalAlpha = 1;
    context.fillStyle = colour.line;
    context.fillRect(x, y, cellSize, cellSize);
    const [low, high] = limits;
    const share = Math.max(0, Math.min(1, (found - low) / (high - low)));
    const [size, own] = value === "advantage" ? [Math.abs(share - 0.5) * 2, share < 0.5 ? colour.c1 : colour.c0] : [share, colour.c0];
    context.globalAlpha = size;
    context.fillStyle = own;
    context.fillRect(x, y, cellSize, cellSize);
    context.globalAlpha = 1;
  }
  function tell() {
    const row = at && columns[at[0]]?.[at[1]];
    if (row === null || row === undefined) { words.textContent = summary(); return; }
    const get = (name) => data.get(name, row);
    words.replaceChildren(h("a", { href: `#/rollout/${row}` }, get("task")), ` · ${source === "rl" ? `group ${get("group")}, member ${get("member")}${get("step") >= 0 ? `, step ${get("step")}` : ""}` : `pass ${get("member")}`} · outcome ${figure(get("outcome"))}`,
      get("advantage") === null ? "" : ` · advantage ${signed(get("advantage"))}`, ` · ${figure(get("tokens") || get("sampled"))} tokens · ${get("end") || get("verdict") || ""}`);
  }
  function summary() {
    const full = columns.filter((rows) => rows.length > 1);
    const uniform = full.filter((rows) => new Set(rows.map((row) => data.arrays.outcome[row])).size === 1).length;
    return `${columns.length.toLocaleString("en")} ${source === "rl" ? "groups" : "tasks"} of up to ${deep}; in ${full.length ? figure((100 * uniform) / full.length) : 0}% all attempts came to the same outcome.`;
  }
  function keysOf() {
    const [low, high] = limits;
    const shown = value === "advantage" ? [[low, "c1"], [0, "line"], [high, "c0"]] : [[low, "line"], [high, "c0"]];
    legend.replaceChildren(...shown.map(([number, name]) => h("span", {}, h("i", { style: `--key:var(--${name})` }), figure(number))), h("span", {}, "empty: not known"));
  }
  function refresh() {
    const found = sources();
    if (!found.size) { main.replaceChildren(h("h1", {}, "Groups"), h("p", { class: "muted" }, "No group of attempts has been written yet.")); return; }
    source = found.has(source) ? source : [...found.keys()][0];
    gather();
    const pick = (label, entries, chosen, take) => h("label", {}, `${label} `, h("select", { onchange: (event) => take(event.target.value) }, entries.map(([key, title]) => h("option", { value: key, selected: key === chosen }, title))));
    main.replaceChildren(h("h1", {}, "Groups"), h("div", { class: "tools" }, pick("Of", [...found], source, (next) => { source = next; at = null; refresh(); }), pick("Colour", Object.entries(VALUES), value, (next) => { value = next; refresh(); }), legend), words, holder);
    keysOf();
    draw();
    tell();
  }
  function under(event) {
    const pitch = cellSize + SPACE, tall = deep * (cellSize + 1) + BETWEEN;
    const place = Math.floor(event.offsetY / tall) * across + Math.floor(event.offsetX / pitch);
    const member = Math.floor(((event.offsetY % tall) - BETWEEN) / (cellSize + 1));
    return Math.floor(event.offsetX / pitch) < across && columns[place]?.[member] !== undefined ? [place, member] : null;
  }
  canvas.addEventListener("pointermove", (event) => { const found = under(event); if (found) { at = found; draw(); tell(); } });
  canvas.addEventListener("click", (event) => { const found = under(event); if (found) board.go(`rollout/${columns[found[0]][found[1]]}`); });
  return {
    show: (into, [wanted]) => {
      main = into;
      source = wanted ?? null;
      refresh();
      watch = new ResizeObserver(draw);
      watch.observe(holder);
      canvas.focus({ preventScroll: true });
    },
    news: (kinds) => { if (kinds.includes("rollouts")) refresh(); else if (kinds.includes("colours")) draw(); },
    key: (event) => {
      const [place, member] = at ?? [-1, 0];
      const to = { ArrowRight: [place + 1, member], ArrowLeft: [place - 1, member], ArrowDown: [place, member + 1], ArrowUp: [place, member - 1], j: [place + 1, member], k: [place - 1, member], Home: [0, 0], End: [columns.length - 1, 0] }[event.key];
      if (event.target.matches("select, input")) return false;
      if (event.key === "Enter" && at && event.target === canvas) { board.go(`rollout/${columns[at[0]][at[1]]}`); return true; }
      if (!to) return false;
      const next = Math.max(0, Math.min(columns.length - 1, to[0]));
      at = [next, Math.max(0, Math.min(columns[next].length - 1, to[1]))];
      draw();
      tell();
      return true;
    },
    leave: () => watch?.disconnect(),
  };
}
