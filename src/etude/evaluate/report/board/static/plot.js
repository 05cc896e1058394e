// Curves on a canvas: lines over steps, marks of events, the value under the pointer. A table of the last values stands for it in words.
import { colours, figure, h, sharp } from "./dom.js";

const SIDE = { left: 52, right: 10, top: 10, bottom: 24 };
const HEIGHT = 170;

// lines: [{name, xs, ys}] with null for gaps; marks: [{x, text}]. Returns {element, draw(), dispose()}.
export function plot({ title, lines, marks = [], log = false, x = "step" }) {
  const canvas = h("canvas", { role: "img", tabindex: "0", "aria-label": told(title, lines) });
  const words = h("p", { class: "muted reading", "aria-live": "polite" });
  const named = lines.length > 1 ? h("div", { class: "legend" }, lines.map((line, n) => h("span", {}, h("i", { style: `--key:var(--c${n % 6})` }), line.name.replaceAll("_", " ")))) : "";
  const element = h("div", { class: "chart" }, h("h3", {}, title), named, canvas, words);
  let at = null, area = null;

  function draw() {
    const width = element.clientWidth - 28;
    if (width < 40) return;
    const context = sharp(canvas, width, HEIGHT), colour = colours();
    area = frame(lines, width, log);
    axes(context, area, colour, width, log, x);
    for (const mark of marks) if (mark.x !== null) vertical(context, area, mark.x, colour.muted, [2, 3]);
    lines.forEach((line, place) => curve(context, area, line, colour[`c${place % 6}`]));
    if (at !== null) vertical(context, area, at, colour.fg, []);
  }
  function point(step) {
    at = step;
    const near = marks.filter((mark) => mark.x !== null && Math.abs(mark.x - step) < (area.x1 - area.x0) / 60).map((mark) => mark.text);
    words.textContent = [`${x} ${figure(step)}`, ...lines.map((line) => `${lines.length > 1 ? `${line.name} ` : ""}${figure(line.ys[nearest(line.xs, step)])}`), ...near.slice(0, 2)].join(" · ");
    draw();
  }
  canvas.addEventListener("pointermove", (event) => {
    if (!area || !lines[0]?.xs.length) return;
    const wanted = area.x0 + (event.offsetX - SIDE.left) / area.sx;
    point(lines[0].xs[nearest(lines[0].xs, wanted)]);
  });
  canvas.addEventListener("pointerleave", () => { at = null; words.textContent = ""; draw(); });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !lines[0]?.xs.length) return;
    const place = at === null ? (move > 0 ? 0 : lines[0].xs.length - 1) : nearest(lines[0].xs, at) + move;
    point(lines[0].xs[Math.max(0, Math.min(lines[0].xs.length - 1, place))]);
    event.preventDefault();
  });
  const watch = new ResizeObserver(draw);
  watch.observe(element);
  return { element, draw, dispose: () => watch.disconnect() };
}

function told(title, lines) {
  const ends = lines.map((line) => {
    const known = line.ys.filter((value) => value !== null);
    return known.length ? `${line.name} from ${figure(known[0])} to ${figure(known.at(-1))}` : `${line.name} without values`;
  });
  return `${title}: ${ends.join("; ")}. Arrow keys read it.`;
}

function frame(lines, width, log) {
  const xs = lines.flatMap((line) => [line.xs[0], line.xs.at(-1)]).filter((value) => value !== undefined);
  let low = Infinity, high = -Infinity;
  for (const line of lines) for (const value of line.ys) if (value !== null && (!log || value > 0)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) { low = 0; high = 1; }
  if (log) { low = Math.log10(low); high = Math.log10(high); }
  const spare = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)].map((value, n) => (Number.isFinite(value) ? value : n));
  const area = { x0, x1: x1 > x0 ? x1 : x0 + 1, y0: low - spare, y1: high + spare, log };
  area.sx = (width - SIDE.left - SIDE.right) / (area.x1 - area.x0);
  area.sy = (HEIGHT - SIDE.top - SIDE.bottom) / (area.y1 - area.y0);
  area.px = (value) => SIDE.left + (value - area.x0) * area.sx;
  area.py = (value) => HEIGHT - SIDE.bottom - ((log ? Math.log10(value) : value) - area.y0) * area.sy;
  return area;
}

function axes(context, area, colour, width, log, x) {
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colour.muted;
  context.strokeStyle = colour.line;
  context.lineWidth = 1;
  context.textAlign = "right";
  for (const tick of ticks(area.y0, area.y1, 4)) {
    const y = Math.round(area.py(log ? 10 ** tick : tick)) + 0.5;
    context.beginPath(); context.moveTo(SIDE.left, y); context.lineTo(width - SIDE.right, y); context.stroke();
    context.fillText(short(log ? 10 ** tick : Number(tick.toPrecision(6))), SIDE.left - 6, y + 4);
  }
  context.textAlign = "center";
  for (const tick of ticks(area.x0, area.x1, Math.max(2, width / 90))) {
    if (Number.isInteger(tick)) context.fillText(figure(tick), area.px(tick), HEIGHT - 8);
  }
  context.textAlign = "right";
}

// What fits beside an axis: 6.9M for 6,900,000.
function short(value) {
  return Math.abs(value) >= 1e4 ? value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 2 }) : figure(value);
}

export function ticks(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) found.push(Math.abs(tick) < step / 1e6 ? 0 : tick);
  return found;
}

function curve(context, area, line, colour) {
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = 1.75;
  context.beginPath();
  let on = false;
  line.xs.forEach((x, place) => {
    const y = line.ys[place];
    if (y === null || (area.log && y <= 0)) { on = false; return; }
    if (on) context.lineTo(area.px(x), area.py(y)); else context.moveTo(area.px(x), area.py(y));
    on = true;
  });
  context.stroke();
  if (line.xs.length <= 3) line.xs.forEach((x, place) => { if (line.ys[place] !== null) { context.beginPath(); context.arc(area.px(x), area.py(line.ys[place]), 2.5, 0, 7); context.fill(); } });
}

function vertical(context, area, x, colour, dashes) {
  if (x < area.x0 || x > area.x1) return;
  context.save();
  context.setLineDash(dashes);
  context.strokeStyle = colour;
  context.beginPath(); context.moveTo(area.px(x), SIDE.top); context.lineTo(area.px(x), HEIGHT - SIDE.bottom); context.stroke();
  context.restore();
}

function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}
